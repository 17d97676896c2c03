"""A judge of a few rules, as a module that plugin tests write beside their suites."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

__all__ = ["FORM_OF", "JUDGED_SUITE", "asked", "form_of", "records_of", "report_of", "write_judge"]


def form_of(system: str) -> Any:
    """The form that a judge is shown, filled in with the best verdict."""
    form = system.rpartition("\n")[2].replace('"<text>"', '"why"').replace(", ...]", "]")
    form = form.replace("<true or false>", "true")
    return json.loads(re.sub("<[^<>]*(?: or | to )([^<>]*)>", r"\1", form))


FORM_OF = f"import json\nimport re\nfrom typing import Any\n\n\n{inspect.getsource(form_of)}"
"""The same as the beginning of a module."""

_JUDGE = '''
# Good replies hold the word good. Other words make it fail.

import os
from pathlib import Path

from pytest_llmeval.errors import RequestError
from pytest_llmeval.types import GenerateResponse, ModelIdentity

HERE = Path(__file__).parent


def log(name, texts):
    with HERE.joinpath("asked.jsonl").open("a") as file:
        file.write(json.dumps({"name": name, "texts": texts, "pid": os.getpid()}) + "\\n")


def material(user):
    return user.rpartition("Reply:\\n")[2]


def verdict(system, user):
    """The form that is asked for, with the best values for a good reply, else with the worst."""
    is_good = "good" in material(user)
    form = form_of(system)
    if "equivalent" in form:
        return {"reason": "because", "equivalent": is_good}
    for entry in form.values():
        entry["reason"] = "because"
        if "score" in entry and not is_good:
            entry["score"] = 1
        if "label" in entry and not is_good:
            entry["label"] = "fail"
    return form


def answer(request):
    system, user = (turn.content for turn in request.prompt)
    reply = material(user)
    if "INTERRUPT" in reply:
        raise KeyboardInterrupt
    if "RAISE" in reply:
        raise RuntimeError("the judge fell over")
    if "REFUSE" in reply:
        return RequestError("refused by the judge")
    text = "I cannot help with that." if "PROSE" in reply else json.dumps(verdict(system, user))
    return GenerateResponse(text=text, num_prompt_tokens=30, num_tokens=10, seconds=0.5)


class Judge:
    def __init__(self, weights="1"):
        self.identity = ModelIdentity(name=f"judge-{weights}", backend="test", fingerprint=weights)
        log("load-judge", [])

    def generate(self, requests):
        log("judge", [material(request.prompt[1].content) for request in requests])
        return [answer(request) for request in requests]


class Writer:
    """The model that is evaluated: it repeats the question."""

    def __init__(self):
        self.identity = ModelIdentity(name="writer", backend="test", fingerprint="w")
        log("load-writer", [])

    def generate(self, requests):
        log("writer", [request.prompt for request in requests])
        return [GenerateResponse(text=request.prompt, num_tokens=3) for request in requests]


def by_function(messages):
    """As Judge does."""
    log("judge", [material(messages[1]["content"])])
    return json.dumps(verdict(messages[0]["content"], messages[1]["content"]))


def broken():
    pass


class Unloadable:
    def __init__(self):
        raise RuntimeError("no weights here")
'''

JUDGED_SUITE = """\
suite: judged
samples:
  - {id: j1, question: Say it., response: a good one, target: The target.}
  - {id: j2, question: Say it., response: a bad one, target: The target.}
  - {id: j3, question: Say it., response: another good one, target: The target.}
  - {id: j4, question: Say it., response: the target., target: The target.}
"""
"""j1 and j3 are good; j4 is the target but for its case."""


def write_judge(pytester: pytest.Pytester) -> None:
    """The module ``my_judge``: ``Judge``, ``Writer``, ``by_function``, ``Unloadable``."""
    pytester.makepyfile(my_judge=FORM_OF + _JUDGE)


def asked(folder: Path, name: str = "judge") -> list[list[str]]:
    """What each call of the judge, or of the writer, held, in order."""
    path = folder / "asked.jsonl"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line["texts"] for line in lines if line["name"] == name]


def report_of(folder: Path, name: str = "report.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def records_of(folder: Path, name: str = "report.json") -> dict[str, Any]:
    """The records by sample id."""
    return {record["id"]: record for record in report_of(folder, name)["records"]}
