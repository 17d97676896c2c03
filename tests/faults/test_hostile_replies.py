"""The campaign of hostile replies: its judges cover the package, a planted fault is found, and a sample of it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scoring.filters import FILTERS
from tests.faults import hostile_replies
from tests.faults.hostile_replies import Case, judge_pair, judge_session
from tests.faults.hostile_session import case_random
from tests.faults.judges import Judge, asks_a_model, judges
from tests.faults.replies import KINDS, MARKER, draw_reply

JUDGE = Judge(name="number", suite={"score": "number"}, sample={"target": 1}, right="1")
CASE = Case(7, 0, "one digit", may_be_right=False)


def the_record(**values: Any) -> dict[str, Any]:
    right = {"status": "correct", "values": {"accuracy": 1.0}, "answer": "1", "reason": None, "no_answer": False}
    return {**right, **values}


def problems(record: dict[str, Any] | None = None, end: dict[str, Any] | None = None, **healthy: Any) -> list[str]:
    """The figures that are raised by a pair whose hostile reply was judged so."""
    records = {"first": the_record(), "ok7": the_record(**healthy), "h7": the_record(status="wrong", answer="99")}
    records["h7"].update(record or {})
    ends = {"h7": {"processor_s": 0.1, "peak": 10**8, "escaped": None, **(end or {})}}
    return [figure for figure, _ in judge_pair(CASE, JUDGE, records, ends)]


def test_every_scorer_and_filter_is_there_and_cases_stay_the_same() -> None:
    names = {judge.name for judge in judges()}
    elsewhere = {name for name, settings in SCORERS.items() if asks_a_model(settings) or settings.runs_code}
    assert set(SCORERS) - elsewhere <= names
    assert {f"filter:{name}" for name in FILTERS} <= names
    some = hostile_replies.cases_of(3, 150)
    assert some == hostile_replies.cases_of(3, 150)
    assert some[:20] == hostile_replies.cases_of(3, 20)
    assert len({case.kind for case in some}) > 15


@pytest.mark.parametrize("kind", KINDS)
def test_replies_of_each_kind_are_the_same_each_time(kind: str) -> None:
    def drawn() -> str:
        return KINDS[kind](case_random(0, 5), JUDGE)

    assert drawn() == drawn()
    assert len(drawn()) < 10**7
    assert draw_reply(case_random(0, 5), JUDGE, exclude=(kind,))[0] != kind


@pytest.mark.parametrize(
    ("record", "end", "healthy", "figures"),
    [
        ({}, {}, {}, []),
        ({"status": "unscored", "reason": "it took longer than 5 s"}, {}, {}, []),
        ({}, {"processor_s": 10.1}, {}, ["over 10 s"]),
        ({}, {"peak": 1.1e9}, {}, ["over 1 GB"]),
        ({}, {"escaped": "RecursionError: too deep"}, {}, ["crashes"]),
        ({"status": "unscored", "reason": None}, {}, {}, ["no outcome"]),
        ({"status": "correct", "answer": "1e999999"}, {}, {}, ["right where it should not be"]),
        ({"values": {"accuracy": float("nan")}}, {}, {}, ["out of bounds"]),
        ({}, {}, {"status": "wrong"}, ["other samples changed"]),
        ({}, {}, {"values": {"accuracy": 0.5}}, ["other samples changed"]),
    ],
)
def test_what_is_wrong_with_a_pair_is_found(
    record: dict[str, Any], end: dict[str, Any], healthy: dict[str, Any], figures: list[str]
) -> None:
    assert problems(record, end, **healthy) == figures


def test_a_pair_without_a_record_is_found() -> None:
    assert judge_pair(CASE, JUDGE, {}, {}) == [("no outcome", "no record")]


@pytest.mark.parametrize(
    ("exit_code", "output", "figures"),
    [
        (0, "fine", set()),
        (3, "INTERNALERROR", {"dishonest exits"}),
        (-11, "", {"dishonest exits"}),
        (1, "\x1b[31m", {"escapes in output"}),
        (1, "\u202e", {"escapes in output"}),
        (1, f"ok\n::error::{MARKER}\n", {"commands in output"}),
    ],
)
def test_what_is_wrong_with_a_session_is_found(tmp_path: Path, exit_code: int, output: str, figures: set[str]) -> None:
    for name in ("out.md", "out.csv", "out.xml"):
        tmp_path.joinpath(name).write_text("")
    found = {figure for figure, _ in judge_session(tmp_path, exit_code, output, 3)}
    assert found - {"damaged reports"} == figures


@pytest.mark.slow
def test_some_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    """Of scorers that start no process of their own; all kinds are in the campaign."""
    light = [
        case.number for case in hostile_replies.cases_of(1, 73) if judges()[case.judge].name not in ("math", "several")
    ]
    status = hostile_replies.main(["--seed=1", f"--only={','.join(map(str, light[:12]))}"])
    output = capsys.readouterr().out
    assert status == 0, output
    assert output.startswith("pairs 12, whole sessions 0, over 10 s 0, ")


@pytest.mark.campaign
def test_the_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile_replies.main([]) == 0, capsys.readouterr().out
