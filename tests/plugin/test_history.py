"""Sessions over time: their reports, and the history that ``llmeval history`` makes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pytest_llmeval.reporting.storage.report_file import read_report, write_report

MODEL = """
import re

def one(prompt):
    number = int(re.findall(r"(\\d+) \\+", prompt)[-1])
    return "?" if number > LIMIT else f"{number + 1}"
"""
SUITE = {
    "suite": "sums",
    "score": "exact",
    "samples": [{"id": f"q{n}", "question": f"{n} + 1 =", "target": str(n + 1)} for n in range(1, 41)],
}


def sized(number: int, code: str) -> str:
    """The code in a file of a size of its own: Python tells versions of one second apart by their size."""
    return f"{'#' * (number + 1)}\n{code}"


def commit(folder: Path, message: str) -> str:
    identity = {f"GIT_{who}_{what}": "t@t.t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    if not (folder / ".git").exists():
        git("init", "--quiet", "--initial-branch=main")
    git("add", "agents.py", "sums.yaml")
    git("commit", "--quiet", "-m", message)
    return git("rev-parse", "HEAD")[:10]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_change_that_made_it_worse_is_marked_with_its_commit(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    folder = llm_pytester.path
    (folder / "sums.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False), encoding="utf-8")
    commits = []
    for place, limit in enumerate((38, 38, 15)):
        (folder / "agents.py").write_text(sized(place, f"LIMIT = {limit}\n{MODEL}"))
        commits.append(commit(folder, str(place)))
        options = ("--llm-model=python:agents:one", f"--llm-report=runs/{place}.json", f"--llm-label=try={place}")
        assert llm_pytester.runpytest_subprocess(*workers, *options, "sums.yaml").ret == 0
    result = llm_pytester.run("llmeval", "history", "runs/0.json", "runs/1.json", "runs/2.json")
    assert result.ret == 0
    text = " ".join(result.stdout.str().split())
    assert "#3 is worse than #2: -0.575 [" in text
    assert f"], n 40, p < 0.001 after Holm; commit {commits[1]} -> {commits[2]}" in text
    assert "3 runs, 2 steps between neighbours tested, sample by sample: 1 significant" in text
    for place, found in enumerate(commits):
        result.stdout.fnmatch_lines([f"*{found}*main*try={place}*"])


WITH_NOISE = """
import re

def one(prompt):
    number = int(re.findall(r"(\\d+) \\+", prompt)[-1])
    is_right = (DAY + number) % 2 == 0 if number <= 6 else number <= 38 - DAY
    return f"{number + 1}" if is_right else "?"
"""


@pytest.fixture
def creeping(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with eight reports, in each of which one answer more is wrong."""
    (llm_pytester.path / "sums.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False), encoding="utf-8")
    for day in range(1, 9):
        (llm_pytester.path / "agents.py").write_text(sized(day, f"DAY = {day}\n{WITH_NOISE}"))
        session(llm_pytester, f"--llm-report=runs/{day}.json")
        report = read_report(llm_pytester.path / "runs" / f"{day}.json")
        dated = replace(report, created=f"2026-01-{day:02}T00:00:00+00:00", records=tuple(report.records))
        write_report(dated, llm_pytester.path / "runs" / f"{day}.json")
    (llm_pytester.path / "agents.py").write_text(sized(9, f"DAY = 9\n{WITH_NOISE}"))
    return llm_pytester


def session(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("--llm-model=python:agents:one", *arguments, "sums.yaml")


def test_a_slow_creep_fails_against_the_oldest_report(creeping: pytest.Pytester, workers: list[str]) -> None:
    latest = session(creeping, *workers, "--llm-baseline=runs/8.json")
    assert latest.ret == 0
    result = session(creeping, *workers, "--llm-baseline=runs/*.json", "--llm-report=now.json", "--llm-report=now.md")
    assert result.ret == 1
    text = " ".join(result.stdout.str().split())
    assert "8 reports, 2026-01-01T00:00:00+00:00 to 2026-01-08T00:00:00+00:00: the mean of the last 5, and the" in text
    assert "failed: sums, accuracy vs oldest report: accuracy 0.850 -> 0.650: -0.200" in text
    assert "passed: sums, accuracy vs mean of 5 reports: accuracy 0.725 -> 0.650: -0.075" in text
    gates = json.loads((creeping.path / "now.json").read_text())["gates"]
    assert [(gate["name"], gate["outcome"], gate["regression"]["family"]) for gate in gates] == [
        ("accuracy vs mean of 5 reports", "passed", 2),
        ("accuracy vs oldest report", "failed", 2),
    ]
    assert "accuracy vs oldest report" in (creeping.path / "now.md").read_text("utf-8")
    result = session(creeping, *workers, "--llm-baseline=runs/*.json", "--llm-baseline-last=1")
    assert "accuracy vs latest report: accuracy 0.675 -> 0.650" in " ".join(result.stdout.str().split())


def test_an_edited_report_is_refused(llm_pytester: pytest.Pytester) -> None:
    (llm_pytester.path / "agents.py").write_text(f"LIMIT = 99\n{MODEL}")
    (llm_pytester.path / "sums.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False), encoding="utf-8")
    for name in ("1", "2"):
        session(llm_pytester, f"--llm-report=runs/{name}.json")
    path = llm_pytester.path / "runs" / "2.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"value": 1.0', '"value": 0.5', 1), encoding="utf-8")
    result = llm_pytester.run("llmeval", "history", "runs/1.json", "runs/2.json")
    assert (result.ret, result.stdout.str().strip()) == (1, "")
    result.stderr.fnmatch_lines(["*the report runs/2.json: it was changed after it was written*"])


REFUSED = {
    "--llm-baseline=no/*.json": "--llm-baseline: no file fits no/*.json",
    "--llm-baseline-last=3": "--llm-baseline-last applies to a comparison only: give --llm-baseline REPORT.json",
    "--llm-baseline-last=0": "--llm-baseline-last: expected a whole number above 0",
    "--llm-report=runs/3.json": "--llm-report runs/3.json is also the baseline",
    "damaged": "--llm-baseline: cannot read the report runs/3.json",
}


@pytest.mark.parametrize("given", REFUSED)
def test_several_baselines_that_cannot_be_used(llm_pytester: pytest.Pytester, given: str) -> None:
    llm_pytester.makepyfile(agents=MODEL)
    (llm_pytester.path / "sums.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False), encoding="utf-8")
    (llm_pytester.path / "runs").mkdir()
    (llm_pytester.path / "runs" / "3.json").write_text("damaged")
    options = ["--llm-baseline=runs/*.json"] if given in ("damaged", "--llm-report=runs/3.json") else []
    result = session(llm_pytester, *options, *([given] if given.startswith("--") else []))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sum(REFUSED[given] in line for line in result.stderr.lines) == 1
    assert "Traceback" not in result.stderr.str()
