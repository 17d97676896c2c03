"""The campaign of failing disks and clocks: planted faults are found, and a sample of it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import disks
from tests.faults.disk_cases import Case, all_cases
from tests.faults.disk_findings import Ended, impossible_times, judge

GOOD = "id,status\n" + "".join(f"s{number},correct\n" for number in range(8))


def problems(
    disk: Path, exit_code: int | None, output: str, *, before: str | None = None, now: str | None = GOOD
) -> list[str]:
    """The figures of a session that was to write ``out.csv``."""
    path = disk / "out.csv"
    if now is not None:
        path.write_text(now)
    ended = Ended(exit_code=exit_code, output=output, before={path: None if before is None else before.encode()})
    case = Case(fault="full", detail="3", reports=("csv",), older=before is not None)
    return [problem.partition(":")[0] for problem in judge(case, ended, disk)]


SAID = "problem: cannot write the report disk/out.csv: No space left on device"


@pytest.mark.parametrize(
    ("exit_code", "output", "before", "now", "figures"),
    [
        (0, "8 passed", None, GOOD, []),
        (0, "8 passed", "older", GOOD, []),
        (1, SAID, "older", "older", []),
        (4, SAID, None, None, []),
        (None, "", None, None, ["hang"]),
        (0, SAID, "older", "older", ["dishonest"]),
        (1, "8 passed", "older", "older", ["dishonest"]),
        (1, "problem: cannot write a report", "older", "older", ["dishonest"]),
        (3, SAID, "older", "older", ["dishonest"]),
        (1, "8 passed", None, GOOD, ["dishonest"]),
        (1, SAID, "older", GOOD[:40], ["older report"]),
        (1, SAID, "older", None, ["older report"]),
        (1, f"Traceback (most recent call last)\n{SAID}", "older", "older", ["traceback"]),
        (1, SAID + "x" * 900, "older", "older", ["dishonest"]),
    ],
)
def test_what_is_wrong_is_found(
    tmp_path: Path, exit_code: int | None, output: str, before: str | None, now: str | None, figures: list[str]
) -> None:
    assert problems(tmp_path, exit_code, output, before=before, now=now)[:1] == figures


@pytest.mark.parametrize(
    ("name", "content", "figure"),
    [
        (".llmeval-abc.tmp", "", "temporary file"),
        ("replies-0123456789abcdef.tmp", "", "temporary file"),
        ("out.csv.journal", '{"schema": 2}\n', "temporary file"),
    ],
)
def test_what_is_left_is_found(tmp_path: Path, name: str, content: str, figure: str) -> None:
    tmp_path.joinpath(name).write_text(content)
    assert figure in problems(tmp_path, 0, "8 passed")


def test_a_journal_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    tmp_path.joinpath("out.csv.journal").write_text("{")
    assert problems(tmp_path, 1, SAID, before="older", now="older") == ["damaged journal"]


@pytest.mark.parametrize(
    ("output", "seconds", "num_problems"),
    [("1 passed in 0.10s", 0.1, 0), ("last written -5 h ago", 0.1, 1), ("in 94608000.12s", 0.1, 1), ("", -18000.0, 1)],
)
def test_impossible_times_are_found(tmp_path: Path, output: str, seconds: float, num_problems: int) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"seconds": seconds, "records": []}))
    assert len(list(impossible_times(output, path))) == num_problems


def test_each_fault_is_met_with_workers_and_over_an_older_report() -> None:
    cases = all_cases()
    assert len(set(map(str, cases))) > 0.9 * len(cases)
    for fault in {case.fault for case in cases} - {"command"}:
        assert {(case.workers, case.older) for case in cases if case.fault == fault} == {
            *((False, False), (False, True), (True, False), (True, True)),
        }


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full", "path", "clock", "two sessions"])
def test_one_case_of(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    number = next(number for number, case in enumerate(all_cases()) if case.fault == fault and case.older)
    assert disks.main([f"--only={number}"]) == 0, capsys.readouterr().out


@pytest.mark.campaign
def test_the_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    assert disks.main([]) == 0, capsys.readouterr().out
