"""Whole sessions of pytest with a hostile reply of each kind: from a file of replies, and with a store and workers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from tests.faults.hostile_session import case_random
from tests.faults.judges import Judge
from tests.faults.replies import KINDS
from tests.fork_server import fork
from tests.forked import ForkServer
from tests.support import clean_environment

__all__ = ["whole_sessions"]

_HANGS_AFTER_S = 900.0
_CHILD = """
import os, runpy, sys
os.chdir(sys.argv[1])
del sys.argv[1]
runpy.run_module("pytest", run_name="__main__", alter_sys=True)
"""
_MODEL = """
import json
from pathlib import Path
from pytest_llmeval.types import GenerateResponse, ModelIdentity

HERE = Path(__file__).parent
REPLIES = [json.loads(line)["response"] for line in HERE.joinpath("replies.jsonl").open()]


class Replier:
    identity = ModelIdentity(name="replier", backend="test", fingerprint="1")

    def generate(self, requests):
        with HERE.joinpath("asked").open("a") as file:
            file.write("asked\\n" * len(requests))
        return [GenerateResponse(text=REPLIES[int(request.prompt.split()[1])]) for request in requests]
"""
_JUDGE = Judge(name="number", suite={}, sample={"target": 48151}, right="48151", wrong=("1", "2/3"))
_SCORERS = ("number", {"exact": {"normalize": ["unicode", "lower", "no_punctuation"]}}, "json", "f1", "chrf", "letter")


def whole_sessions(
    server: ForkServer, seed: int, judge_session: Callable[[Path, int, str, int], Sequence[tuple[str, str]]]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The name of each session, and what is wrong with it: a figure and a text for each thing."""
    kinds = [kind for kind in KINDS if kind != "around right"]
    replies = [KINDS[kind](case_random(seed, number), _JUDGE) for number, kind in enumerate(kinds)]
    for place, scorer in enumerate(_SCORERS):
        with tempfile.TemporaryDirectory(prefix="whole-") as name:
            folder = Path(name)
            has_store = place % 2 == 1
            _write(folder, scorer, replies)
            workers = ["-n2"] if place % 3 else ["-p", "no:xdist"]
            model = ["--llm-model=python:replier:Replier", "--llm-store=store"] if has_store else []
            arguments = [
                *workers,
                *(model or ["--llm-model=replay:replies.jsonl"]),
                *(["--llm-strict"] if place > 2 else []),
            ]
            shown = f"whole session: {scorer} {' '.join(arguments)}"
            code, output = _run(server, folder, arguments)
            problems = [*judge_session(folder, code, output, len(replies))]
            if problems or not has_store:
                yield shown, problems
                continue
            first = _outcomes(folder)
            folder.joinpath("asked").unlink()
            code, output = _run(server, folder, arguments)
            problems += judge_session(folder, code, output, len(replies))
            if folder.joinpath("asked").exists() or _outcomes(folder) != first:
                problems.append(("other samples changed", "a rerun with the store asked again, or has other scores"))
            yield shown, problems


def _write(folder: Path, scorer: object, replies: Sequence[str]) -> None:
    is_letter = scorer == "letter"
    target = {"choices": ["yes", "no", "both"], "target": 2} if is_letter else {"target": "48151"}
    samples = [{"id": f"s{number}", "question": f"reply {number} .", **target} for number in range(len(replies))]
    suite = {"suite": "hostile", "score": scorer, "samples": samples}
    folder.joinpath("suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    folder.joinpath("replier.py").write_text(_MODEL)
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    lines = [json.dumps({"id": f"s{number}", "response": reply}) for number, reply in enumerate(replies)]
    folder.joinpath("replies.jsonl").write_text("\n".join(lines) + "\n")


def _run(server: ForkServer, folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
    reports = [f"--llm-report=out.{name}" for name in ("json", "md", "csv", "jsonl")]
    common = ["suite.yaml", "-rA", "--color=no", "-p", "no:cacheprovider", "--junitxml=out.xml"]
    output = folder / "output"
    with open(os.devnull, "rb") as nothing, output.open("wb") as file:
        process = fork(
            server._requests,
            _CHILD,
            [str(folder), *common, *arguments, *reports],
            (nothing.fileno(), file.fileno(), file.fileno()),
            environment=clean_environment(),
            forks_workers=True,
        )
    try:
        code = process.wait(_HANGS_AFTER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return code, output.read_text(encoding="utf-8", errors="surrogateescape")


def _outcomes(folder: Path) -> list[object]:
    records = json.loads(folder.joinpath("out.json").read_text())["records"]
    return [(one["id"], one["status"], one["answer"], one["values"], one["output"]) for one in records]
