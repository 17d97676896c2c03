"""What GitHub Actions gets: a summary that it shows, and commands that say only what we mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.writers.github import (
    MAX_CHARACTERS,
    MAX_SUMMARY_BYTES,
    annotation_lines,
    append_job_summary,
)
from pytest_llmeval.reporting.writers.markdown import markdown_summary
from tests.reporting.made_reports import gate, hostile_report, metric, record, report, suite_report, summary

ACTIONS = {"GITHUB_ACTIONS": "true"}
COMMAND = re.compile(r"::error (?P<properties>[^\r\n]*?)::(?P<message>[^\r\n]*)")
ROOT = Path("/work/project")


def unescaped(text: str) -> str:
    """What the runner does to a property or a message (actions/runner, ActionCommand.cs): ``%25`` comes last."""
    for escape, character in (("%3A", ":"), ("%2C", ","), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def commands(of: Report, environ: dict[str, str] | None = None) -> list[dict[str, str]]:
    """The commands as the runner reads them."""
    found = []
    for line in annotation_lines(of, {**ACTIONS, **(environ or {})}, root=ROOT):
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        pairs = [pair.partition("=") for pair in match["properties"].split(",")]
        found.append({name: unescaped(value) for name, _, value in pairs} | {"message": unescaped(match["message"])})
    return found


def test_an_annotation_at_the_gate_that_failed() -> None:
    made = report(gates=(gate("passed"), gate(notes=("2 samples left out",)), gate("skipped")))
    assert list(annotation_lines(made, ACTIONS, root=ROOT)) == [
        "::error file=suites/boolq.yaml,line=12,title=gate accuracy >= 0.6::"
        "boolq, accuracy >= 0.6: accuracy is 0.550, n 200%0A2 samples left out"
    ]


def test_a_gate_of_no_file() -> None:
    made = report(gates=(gate(path=None, line=None, name="category.a,b.accuracy >= 0.5", reason="50% is: too low"),))
    assert list(annotation_lines(made, ACTIONS, root=ROOT)) == [
        "::error title=gate category.a%2Cb.accuracy >= 0.5::boolq, category.a,b.accuracy >= 0.5: 50%25 is: too low"
    ]


def test_the_file_is_named_as_the_checkout_has_it() -> None:
    made = report(gates=(gate(path="suites/a.yaml::part", line=None),))
    (one,) = commands(made, {"GITHUB_WORKSPACE": "/work"})
    assert one["file"] == "project/suites/a.yaml"


def test_samples_without_a_score() -> None:
    unscored = summary({"accuracy": metric(0.5)}, num_unscored=1)
    suites = [suite_report("fine"), suite_report("odd")]
    suites[1] = type(suites[1])(info=suites[1].info, summary=unscored, categories={})
    (one,) = commands(report(suites))
    assert one["title"] == "1 sample of odd could not be scored"
    assert one["file"] == "suites/odd.yaml"


def test_no_more_than_github_shows() -> None:
    found = commands(report(gates=tuple(gate(name=f"accuracy >= 0.{place}") for place in range(1, 15))))
    assert len(found) == 10
    assert found[8]["title"] == "gate accuracy >= 0.9"
    assert found[9]["title"] == "5 more"


def test_nothing_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    for environ in ({}, {"GITHUB_ACTIONS": "false"}):
        assert list(annotation_lines(report(gates=(gate(),)), environ, root=ROOT)) == []
        assert append_job_summary(report(), {**environ, "GITHUB_STEP_SUMMARY": str(path)}) is None
    assert append_job_summary(report(), ACTIONS) is None
    assert not path.exists()


@given(st.lists(st.text(st.characters(exclude_categories=[])) | st.text("%:,\r\n=03ADC\x0b\x85\u2028"), min_size=4))
def test_no_text_makes_a_command_of_its_own(texts: list[str]) -> None:
    name, reason, suite, *notes = texts
    (line,) = annotation_lines(
        report(gates=(gate(name=name, reason=reason, suite=suite, notes=tuple(notes)),)), ACTIONS, root=ROOT
    )
    assert len(line.splitlines()) == 1
    assert COMMAND.fullmatch(line)
    (found,) = commands(report(gates=(gate(name="x", reason=reason, suite="s", notes=()),)))
    assert list(found) == ["file", "line", "title", "message"]


def test_a_hostile_report_makes_its_own_commands_only() -> None:
    found = commands(hostile_report())
    assert [len(one) for one in found] == [4, 3]
    assert all(len(line.splitlines()) == 1 for line in annotation_lines(hostile_report(), ACTIONS, root=ROOT))


def test_the_summary_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    environ = {**ACTIONS, "GITHUB_STEP_SUMMARY": str(path)}
    assert append_job_summary(report(), environ) is None
    assert path.read_text(encoding="utf-8") == f"before\n\n{markdown_summary(report())}"


@pytest.mark.parametrize("num_before", [0, MAX_SUMMARY_BYTES - 70_000, MAX_SUMMARY_BYTES - 10, MAX_SUMMARY_BYTES + 10])
def test_github_takes_a_mebibyte_of_a_step(num_before: int, tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_bytes(b"x" * num_before)
    long = report(problems=tuple("é" * 1000 for _ in range(1000)), records=[record()])
    assert append_job_summary(long, {**ACTIONS, "GITHUB_STEP_SUMMARY": str(path)}) is None
    size, text = path.stat().st_size, path.read_text(encoding="utf-8")
    if num_before == 0:
        assert MAX_CHARACTERS - 2000 < len(text) <= MAX_CHARACTERS + 1
        assert f"\n… and {1000 - text.count('- problem: ')} more problems\n" in text
    elif num_before < MAX_SUMMARY_BYTES - 1000:
        assert MAX_SUMMARY_BYTES - 3000 < size <= MAX_SUMMARY_BYTES
        assert text.endswith("é\n\n… cut here: GitHub shows 1 MiB of a step's summary.\n")
    else:
        assert size == num_before


def test_a_summary_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    warning = append_job_summary(report(), {**ACTIONS, "GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert warning == f"cannot append to the job summary {tmp_path}: Is a directory"
