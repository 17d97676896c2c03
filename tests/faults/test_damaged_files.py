"""The campaign of damaged files: what it counts, and a sample of it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import damaged_cases, damaged_files, mutations
from tests.faults.damaged_formats import FORMATS, Case, Use
from tests.faults.damaged_judge import FIGURES, Outcome, faults_of
from tests.faults.damaged_projects import TOKEN

GOOD = Outcome(status=0, output="2 passed\n", written="", seconds=1.0, processor_s=1.0, peak_bytes=1 << 27)
PLANTED = {
    "tracebacks": replace(GOOD, output='Traceback (most recent call last):\n  File "x.py", line 1\nKeyError: 1\n'),
    "odd exit": replace(GOOD, status=3),
    "over 10 s": replace(GOOD, processor_s=10.5),
    "over 2 GB": replace(GOOD, peak_bytes=3 << 30),
    "code run": replace(GOOD, has_canary=True),
    "read outside": replace(GOOD, output=f"near '{TOKEN}'"),
    "raw controls": replace(GOOD, output="\x1b[2J"),
    "silently wrong": replace(GOOD, numbers={"pets q1 accuracy": 0.0}),
}
SEEN = {
    "tracebacks": [
        replace(GOOD, output="INTERNALERROR> x\n"),
        replace(GOOD, output="pytest_llmeval/data/rows.py:12: in read\n    x\n"),
        replace(GOOD, output="E   x\n\npytest_llmeval/data/rows.py:12: KeyError\n"),
        replace(GOOD, output="Exception ignored in: <x>\n"),
    ],
    "over 10 s": [replace(GOOD, seconds=10.5)],
    "odd exit": [replace(GOOD, status=None), replace(GOOD, status=-9)],
    "code run": [replace(GOOD, ran=["os.system ls"])],
    "read outside": [replace(GOOD, reached=["/etc/passwd"]), replace(GOOD, written=TOKEN)],
}
CLEAN = {"pets q1 accuracy": 1.0}


def case(judge: str = "", **fields: object) -> Case:
    made = Case(0, "report", "report.json", Use("llmeval", ("show", "report.json"), judge))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_each_figure_has_an_outcome_that_it_counts() -> None:
    assert faults_of(case("session"), replace(GOOD, numbers=CLEAN), CLEAN) == {}
    assert list(PLANTED) == list(FIGURES)
    for figure, outcome in PLANTED.items():
        assert list(faults_of(case("session"), outcome, CLEAN)) == [figure]
    for figure, outcomes in SEEN.items():
        for outcome in outcomes:
            assert list(faults_of(case(), outcome, None)) == [figure]


def test_messages_are_no_tracebacks() -> None:
    for text in ("rows.jsonl:3: is not JSON", "ERROR pets.yaml", "see docs/x.md:12: in short", "a.py: no such file"):
        assert faults_of(case(), replace(GOOD, output=text + "\n"), None) == {}


@pytest.mark.parametrize(
    ("format_", "named", "is_fault"),
    [
        ("suite", "dataset: {path: ../outside/secret.txt}", False),
        ("suite", "dataset:\n  path: /etc/passwd", False),
        ("suite", "  template: '{% include \"/outside/secret.txt\" %}'", True),
        ("suite", "question: ../outside/secret.txt", True),
        ("task", "include: ../outside/secret.txt", False),
        ("data", "path: ../outside/secret.txt", True),
        ("report", "path: ../outside/secret.txt", True),
    ],
)
def test_files_that_a_suite_may_name(format_: str, named: str, is_fault: bool) -> None:
    outcome = replace(GOOD, reached=["/x/outside/secret.txt"])
    assert bool(faults_of(case(format=format_, named=named), outcome, None)) == is_fault


def test_a_gate_that_is_gone_is_seen_only_where_the_session_passes() -> None:
    gone = replace(GOOD, numbers={"pets a >= 1": None})
    clean = {"pets a >= 1": None, "pets b >= 1": None, "pets b >= 1 value": 0.5}
    assert list(faults_of(case("gates"), gone, clean)) == ["silently wrong"]
    assert faults_of(case("gates"), replace(gone, status=1), clean) == {}
    other = replace(GOOD, status=1, numbers={**clean, "pets b >= 1 value": 0.4})
    assert list(faults_of(case("gates"), other, clean)) == ["silently wrong"]


def test_mutants_of_a_number_are_the_same_and_differ_from_the_file() -> None:
    payloads = mutations.Payloads(canary="/c", secret="/s")
    data = json.dumps({"a": [1, {"b": "c"}], "records": [{"id": "x"}]}).encode()
    for damage in (mutations.damaged_bytes, mutations.damaged_lines):
        made = [damage(data * 3, random.Random(number))[0] for number in range(50)]
        assert made == [damage(data * 3, random.Random(number))[0] for number in range(50)]
        assert sum(one != data * 3 for one in made) > 30
    draw = random.Random(0)
    for _ in range(300):
        damaged, what = mutations.damaged_json(data, draw, lambda _: draw.choice(payloads.scalars))
        assert damaged
        assert what
    suite = b"suite: x\nsamples:\n  - {id: a, question: b}\nscore: choice\n"
    assert all(mutations.damaged_yaml(suite, random.Random(n), payloads, payloads.regexes)[0] for n in range(300))


def test_cases_are_those_of_their_seed() -> None:
    drawn = [damaged_cases.drawn_case(number, 0)[0] for number in range(500)]
    assert drawn == [damaged_cases.drawn_case(number, 0)[0] for number in range(500)]
    assert {one.format for one in drawn} == set(FORMATS)
    assert drawn != [damaged_cases.drawn_case(number, 1)[0] for number in range(500)]


@pytest.mark.slow
def test_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    status = damaged_files.main(["--count=12", "--seed=1"])
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("mutants 12, " + ", ".join(f"{figure} 0" for figure in FIGURES))
    assert status == 0


@pytest.mark.campaign
def test_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    status = damaged_files.main([])
    assert status == 0, capsys.readouterr().out


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    """The text of the watched process notices what it is there for: files, programs and code."""
    code = (Path(damaged_files.__file__).with_name("confined.py")).read_text(encoding="utf-8")
    module: dict[str, object] = {"__name__": "confined"}
    exec(compile(code, "confined.py", "exec"), module)
    watch = module["Watch"]({"roots": [f"{tmp_path}/"], "own": str(tmp_path), "modules": ["model.py"]})  # type: ignore[operator]
    watch.event("open", (str(tmp_path / "rows.jsonl"), "r", 0))
    watch.event("subprocess.Popen", ("python", ["python", "/x/bounded_worker.py"]))
    watch.event("exec", (compile("1", str(tmp_path / "model.py"), "exec"),))
    watch.event("socket.connect", (None, ("127.0.0.1", 80)))
    assert not watch.reached
    assert not watch.ran
    watch.event("open", ("/etc/passwd", "r", 0))
    watch.event("open", (str(tmp_path / ".." / "x"), "r", 0))
    watch.event("os.system", ("touch x",))
    watch.event("subprocess.Popen", ("sh", ["sh", "-c", "x"]))
    watch.event("exec", (compile("1", str(tmp_path / "utils.py"), "exec"),))
    watch.event("socket.connect", (None, ("203.0.113.1", 80)))
    assert len(watch.reached) == 3
    assert len(watch.ran) == 3
