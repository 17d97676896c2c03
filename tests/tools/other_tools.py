"""Writes the tables of docs/other_tools.md, from sessions in which other plugins of pytest run beside this one.

    python -m tests.tools.other_tools

Each tool is installed, in the version that is named here, into a folder of its own, so that no other session meets it.
``tests/packaging/test_other_tools.py`` holds the page to what it measures anew.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import REPOSITORY, clean_environment

__all__ = ["COMMAND", "PATH", "installed", "tables", "with_tables"]

PATH = REPOSITORY / "docs" / "other_tools.md"
COMMAND = "python -m tests.tools.other_tools"

SUITE = """\
suite: sums
gates: [accuracy >= 0.9]
samples:
  - {id: right, question: "1 + 1 =", target: 2}
  - {id: wrong, question: "2 + 3 =", target: 5}
  - {id: odd, question: "4 + 4 =", target: 8}
  - {id: last, question: "5 + 4 =", target: 9}
score: number
"""
MODEL = """\
import os
import time
import pytest
from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import ModelIdentity
from pytest_llmeval.types import GenerateResponse

REPLIES = {"1 + 1 =": "2", "2 + 3 =": "4", "4 + 4 =": "8", "5 + 4 =": "9"}

class Model:
    identity = ModelIdentity(name="scripted", backend="script", fingerprint="1")
    num_failures = 0

    def generate(self, requests):
        return [self.answer(request.prompt) for request in requests]

    def answer(self, prompt):
        how = os.environ.get("ODD")
        if prompt == "4 + 4 =" and how == "error":
            return RequestError("overloaded")
        if prompt == "4 + 4 =" and how == "twice" and self.num_failures < 2:
            self.num_failures += 1
            return RequestError("overloaded")
        if prompt == "4 + 4 =" and how == "slow":
            time.sleep(60)
        return GenerateResponse(text=REPLIES[prompt], num_prompt_tokens=5, num_tokens=1)

@pytest.fixture(scope="session")
def llm_model():
    return Model()
"""
GATE = "gate[accuracy >= 0.9]"
ALONE, SPREAD = ("-p", "no:xdist"), ("-n2",)

Shown = Mapping[str, Sequence[str]]
"""How a tool shows each sample and gate: a text for each time that it shows it."""


@dataclass(frozen=True)
class Session:
    """What one pytest session has left in ``folder``."""

    folder: Path
    output: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the samples of the JSON report that ``--llm-report`` has written."""
        return json.loads((self.folder / "out.json").read_text(encoding="utf-8"))["records"]  # type: ignore[no-any-return]

    @property
    def statuses(self) -> list[tuple[str, str]]:
        return sorted((record["id"], record["status"]) for record in self.records)


@dataclass(frozen=True)
class Reporter:
    """A tool that shows results. ``read`` says how it shows each; ``note`` is what a user should know."""

    name: str
    arguments: Sequence[str]
    read: Callable[[Session], Shown]
    note: str
    others: Sequence[str] = ()
    """Packages that it needs beside pytest."""


def _name(nodeid: str) -> str:
    return nodeid.partition("::")[2]


def _html(session: Session) -> Shown:
    page = (session.folder / "page.html").read_text(encoding="utf-8")
    blob = re.search(r'data-jsonblob="([^"]*)"', page)
    assert blob is not None
    tests = json.loads(html.unescape(blob[1]))["tests"]
    cells = {nodeid: [test["resultsTableRow"][0] for test in tests[nodeid]] for nodeid in tests}
    return {_name(nodeid): [re.findall(r">([^<]+)</td>", cell)[-1] for cell in cells[nodeid]] for nodeid in cells}


def _allure(session: Session) -> Shown:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (session.folder / "allure").glob("*-result.json")]
    return _grouped((one["name"], one["status"]) for one in found)


def _json_report(session: Session) -> Shown:
    tests = json.loads((session.folder / "tests.json").read_text(encoding="utf-8"))["tests"]
    return _grouped((_name(test["nodeid"]), test["outcome"]) for test in tests)


def _reportlog(session: Session) -> Shown:
    lines = [json.loads(line) for line in (session.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    calls = [line for line in lines if line["$report_type"] == "TestReport" and line["when"] == "call"]
    return _grouped((_name(line["nodeid"]), _with_status(line["outcome"], line["user_properties"])) for line in calls)


def _junit(session: Session) -> Shown:
    program = (
        "import json\n"
        "from junitparser import JUnitXml, Properties\n"
        "print(json.dumps([[case.name, [type(one).__name__ for one in case.result],\n"
        "                   [[one.name, one.value] for one in case.child(Properties) or ()]]\n"
        "                  for suite in JUnitXml.fromfile('junit.xml') for case in suite]))"
    )
    cases = json.loads(_run(["-c", program], session.folder, PYTHONPATH=os.fspath(installed()["junitparser"])))
    return _grouped((name, _with_status(", ".join(result) or "passed", values)) for name, result, values in cases)


def _sugar(session: Session) -> Shown:
    failed = re.findall(r"^ +- sums\.yaml:\d+ sums: (.*)$", session.output, re.MULTILINE)
    (passed,) = re.findall(r"^ +(\d+) passed$", session.output, re.MULTILINE)
    assert int(passed) == 3
    texts = {"accuracy >= 0.9": GATE}
    return {"wrong": ["passed"], "right": ["passed"], "last": ["passed"]} | _grouped(
        (texts.get(name, name), "failed") for name in failed
    )


def _tldr(session: Session) -> Shown:
    (marks,) = re.findall(r"^[.E]{4}$", session.output, re.MULTILINE)
    assert marks.count(".") == 3
    failed = re.findall(r"^(\w+): sums\.yaml::(.*)$", session.output, re.MULTILINE)
    return {"wrong": ["`.`"], "right": ["`.`"], "last": ["`.`"]} | _grouped((name, kind) for kind, name in failed)


def _teamcity(session: Session) -> Shown:
    messages = re.findall(r"##teamcity\[(testFailed|testFinished) .*name='sums_yaml\.([^']*)'", session.output)
    failed = [name for kind, name in messages if kind == "testFailed"]
    names = {"gate(accuracy >= 0_9)": GATE}
    finished = [name for kind, name in messages if kind == "testFinished"]
    return _grouped((names.get(name, name), "failed" if name in failed else "passed") for name in finished)


def _with_status(outcome: str, properties: Sequence[tuple[str, str]]) -> str:
    return f"{outcome}, with `llm_status` {dict(properties)['llm_status']}" if properties else outcome


def _grouped(pairs: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        found.setdefault(name, []).append(text)
    return found


REPORTERS = (
    Reporter("pytest-html", ["--html=page.html"], _html, "The page filters and counts wrong answers as passed.",
             ["pytest-metadata==3.1.1"]),
    Reporter("allure-pytest", ["--alluredir=allure"], _allure,
             "It reports the items that pytest runs, and a gate is none: read the exit code, or JUnit's file.",
             ["allure-python-commons==2.16.2"]),
    Reporter("pytest-json-report", ["--json-report", "--json-report-file=tests.json"], _json_report,
             "Its summary counts `wrong`.", ["pytest-metadata==3.1.1"]),
    Reporter("pytest-reportlog", ["--report-log=log.jsonl"], _reportlog,
             "With `--junitxml` beside it, its lines have the properties `llm_status` and `llm_wrong` too."),
    Reporter("junitparser", ["--junitxml=junit.xml"], _junit,
             "Reads the file of pytest's own `--junitxml`. The property `llm_wrong` says what was expected and found."),
    Reporter("teamcity-messages", ["--teamcity"], _teamcity,
             "TeamCity's and PyCharm's reports are made of it. Its output has the text of each answer, as with `-vv`."),
    Reporter("pytest-sugar", ["--force-sugar"], _sugar, "Its results count wrong answers as passed.",
             ["termcolor==3.3.0"]),
    Reporter("pytest-tldr", [], _tldr, "The summary with the numbers follows its own."),
)  # fmt: skip
"""Tools that show results, in the order of the page."""

VERSIONS = {
    "pytest-html": "4.2.0",
    "allure-pytest": "2.16.2",
    "pytest-json-report": "1.5.0",
    "pytest-reportlog": "1.0.0",
    "junitparser": "5.0.3",
    "teamcity-messages": "1.33",
    "pytest-sugar": "1.1.1",
    "pytest-tldr": "0.2.6",
    "pytest-rerunfailures": "16.7",
    "pytest-timeout": "2.4.0",
    "pytest-randomly": "5.1.0",
    "pytest-split": "0.11.0",
}
"""The tools and their versions."""


@cache
def installed() -> Mapping[str, Path]:
    """Install each tool into a folder of its own, once in a process, and return the folders."""
    root = Path(tempfile.mkdtemp(prefix="other_tools_"))
    others = {reporter.name: reporter.others for reporter in REPORTERS}
    for name, version in VERSIONS.items():
        packages = [f"{name}=={version}", *others.get(name, ())]
        _run(["-m", "pip", "install", "--quiet", "--no-deps", "--target", os.fspath(root / name), *packages], root)
    return {name: root / name for name in VERSIONS}


def _run(arguments: Sequence[str], folder: Path, *, expected: int = 0, **variables: str) -> str:
    """Return what Python prints. Raises ``AssertionError`` for another exit code than ``expected``."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == expected, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _session(tool: str | None, *arguments: str, odd: str = "", expected: int = 1) -> Session:
    """Run the suite in a new folder beside ``tool``."""
    folder = Path(tempfile.mkdtemp(prefix="session_"))
    (folder / "sums.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "conftest.py").write_text(MODEL, encoding="utf-8")
    path = {} if tool is None else {"PYTHONPATH": os.fspath(installed()[tool])}
    plain = ["-m", "pytest", "-p", "no:cacheprovider", "--llm-report=out.json", "sums.yaml"]
    return Session(folder, _run([*plain, *arguments], folder, expected=expected, ODD=odd, **path))


def _reporter_row(tool: Reporter) -> Sequence[str]:
    """Measure how a tool shows what can happen, in one process and with two workers."""
    alone = _session(tool.name, *ALONE, *tool.arguments, odd="error")
    spread = _session(tool.name, *SPREAD, *tool.arguments, odd="error")
    assert alone.statuses == spread.statuses == _session_alone().statuses
    shown = tool.read(alone)
    samples = {name: texts for name, texts in shown.items() if name != GATE}
    assert set(samples) <= {"right", "wrong", "odd", "last"}
    assert all(len(texts) == 1 for texts in shown.values()), shown
    with_workers = "the same" if tool.read(spread) == shown else "differs"
    cells = [shown[name][0] if name in shown else "not there" for name in ("wrong", "odd", GATE)]
    return tool.name, VERSIONS[tool.name], *cells, with_workers, tool.note


@cache
def _session_alone() -> Session:
    return _session(None, *ALONE, odd="error")


@dataclass(frozen=True)
class Runner:
    """A tool that changes which tests run, when, or how often. ``measure`` says what then happens to the samples."""

    name: str
    shown: str
    measure: Callable[[Sequence[str]], str]
    note: str = field(default="")


def _rerun(how: Sequence[str]) -> str:
    session = _session("pytest-rerunfailures", *how, "--reruns=2", odd="twice")
    reruns = re.findall(r"(\d+) rerun", session.output)
    counts = Counter(sample for sample, _ in session.statuses)
    (status,) = (status for sample, status in session.statuses if sample == "odd")
    assert set(counts.values()) == {1}
    assert reruns
    return f"A sample whose model fails at first is run again and ends `{status}`. {len(counts)} records of 4 samples"


def _timeout(how: Sequence[str]) -> str:
    session = _session("pytest-timeout", *how, "--timeout=2", odd="slow")
    ends = dict(session.statuses)
    kept = sum(ends[name] == status for name, status in (("right", "correct"), ("wrong", "wrong"), ("last", "correct")))
    (reason,) = (record["reason"] for record in session.records if record["id"] == "odd")
    reason = reason.removesuffix(".")
    return f"The sample whose model hangs is `{ends['odd']}` (*{reason}*). {kept} of the 3 others keep their results"


def _randomly(how: Sequence[str]) -> str:
    orders, found = set(), []
    for seed in ("1", "2", "3"):
        session = _session("pytest-randomly", *how, "-v", f"--randomly-seed={seed}")
        orders.add(tuple(re.findall(r"sums\.yaml::(right|wrong|odd|last) ", session.output)))
        found.append((session.statuses, _numbers(session)))
    assert len(orders) > 1
    assert all(one == found[0] for one in found)
    plain = _session(None, *how)
    is_same = found[0] == (plain.statuses, _numbers(plain))
    return f"Three seeds give different orders; each number is {'as without it' if is_same else 'another'}"


def _split(how: Sequence[str]) -> str:
    parts = [_session("pytest-split", *how, "--splits=2", f"--group={group}", expected=0) for group in (1, 2)]
    skipped = all("gates: 1 skipped" in part.output for part in parts)
    whole = _session(None, *how)
    merge = ["-m", "pytest_llmeval.cli", "merge", *(str(part.folder / "out.json") for part in parts), "-o", "all.json"]
    _run(merge, whole.folder)
    merged = Session(whole.folder / "merged", "")
    merged.folder.mkdir()
    (whole.folder / "all.json").rename(merged.folder / "out.json")
    is_same = (merged.statuses, _numbers(merged)) == (whole.statuses, _numbers(whole))
    gates = "its gates are skipped" if skipped else "its gates are decided"
    return (
        f"A group is a selection: {gates}. `llmeval merge` of both reports has {len(merged.records)} of 4 samples, and "
        f"{'the numbers of a whole run' if is_same else 'other numbers'}"
    )


def _numbers(session: Session) -> object:
    suites = json.loads((session.folder / "out.json").read_text(encoding="utf-8"))["suites"]
    return [(suite["name"], suite["num_scored"], suite["metrics"]) for suite in suites]


RUNNERS = (
    Runner("pytest-rerunfailures", "--reruns=2", _rerun,
           "A wrong answer is not run again, as it is no failure; nor with `--llm-strict`, see [gates.md](gates.md)."),
    Runner("pytest-timeout", "--timeout=2", _timeout, "Loading the model does not count."),
    Runner("pytest-randomly", "--randomly-seed=1", _randomly,
           "It also seeds `random` and NumPy before each test."),
    Runner("pytest-split", "--splits=2 --group=1", _split,
           "Decide with `llmeval gate` on the merged report. `--llm-shard 1/2` splits without another plugin."),
)  # fmt: skip
"""Tools that change what runs, in the order of the page."""


def _runner_row(tool: Runner) -> Sequence[str]:
    alone, spread = tool.measure(ALONE), tool.measure(SPREAD)
    with_workers = "the same" if spread == alone else spread
    return tool.name, VERSIONS[tool.name], f"`{tool.shown}`", alone, with_workers, tool.note


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line).replace("  ", " ") + " |" for line in lines)


def tables() -> Mapping[str, str]:
    """Run all tools, and return the page's tables by the names of their marks."""
    reporters = [_reporter_row(tool) for tool in REPORTERS]
    runners = [_runner_row(tool) for tool in RUNNERS]
    return {
        "reporters": _table(
            ("tool", "version", "wrong answer", "sample with an error", "failed gate", "with `-n2`", "note"), reporters
        ),
        "runners": _table(("tool", "version", "run with", "what happens", "with `-n2`", "note"), runners),
    }


def with_tables(page: str, made: Mapping[str, str]) -> str:
    """Return the page with these tables between their marks."""
    for name, table in made.items():
        between = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
        parts = between.split(page)
        assert len(parts) == 2, name
        page = f"\n{table}\n\n".join(parts)
    return page


if __name__ == "__main__":
    made = tables()  # takes minutes: the page may have been changed by then
    PATH.write_text(with_tables(PATH.read_text(encoding="utf-8"), made), encoding="utf-8")
