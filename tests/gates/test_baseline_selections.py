"""A baseline that is a selection: it is no evidence of what it left out."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmeval.gates.decide import decide_saved
from pytest_llmeval.gates.earlier_reports import EarlierReports
from pytest_llmeval.gates.options import GateOptions
from pytest_llmeval.reporting.report.report import GateResult, Report, Selected
from tests.gates.reports_for_tests import COMMON, DEFAULT, Ran, compared, ran, report

BY_KEYWORD, BY_OUTCOME = Selected(by=("-k easy",)), Selected(by=("--lf",), is_by_outcome=True)
WHOLE = ran([True] * 60)
OF_TESTS: dict[str, Any] = {"fingerprint": None}
"""Of hand-written tests nobody knows how many there are."""


def part(start: int, stop: int, **info: Any) -> Ran:
    """Samples of a suite of 60."""
    return ran({str(place): True for place in range(start, stop)}, **{"num_samples": 60, **info})


def first(before: Report, after: Report, settings: Any = DEFAULT, **options: Any) -> GateResult:
    return compared(before, after, settings, **options)[0]


@pytest.mark.parametrize("settings", [DEFAULT, COMMON])
@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (report(part(0, 10), selection=BY_KEYWORD), "the baseline is a selection, 10 of 60 samples (-k easy), and th"),
        (report(part(0, 10), schema=2), "the baseline is a selection, 10 of 60 samples (its report is of schema 2, wh"),
        (report(part(0, 10), schema=2, options={"limit": "10"}), "the baseline is a selection, 10 of 60 samples (--l"),
        (report(part(0, 10)), "the baseline is a selection, 10 of 60 samples, and this run is not the same one: mak"),
        (
            report(part(0, 10, num_skipped=50)),
            "the baseline is a selection, 10 of 60 samples (50 skipped), and this run is not the same one: make it of",
        ),
        (
            report(part(0, 10, num_samples=None, **OF_TESTS), selection=BY_KEYWORD),
            "the baseline is a selection, 10 samples (-k easy), and this run is not the same one: make it of the whol",
        ),
        (report(part(0, 10), selection=BY_OUTCOME), "the baseline is a selection, 10 of 60 samples (--lf): samples"),
    ],
)
def test_a_selection_decides_nothing_of_the_whole(before: Report, reason: str, settings: Any) -> None:
    after = report(WHOLE) if before.suites[0].info.fingerprint else report(ran([True] * 60, **OF_TESTS))
    for require, outcome in ((False, "skipped"), (True, "failed")):
        result = first(before, after, settings, require=require)
        assert (result.outcome, result.regression) == (outcome, None)
        assert result.reason.startswith(reason)


def test_of_a_stopped_session_only_suites_that_ran_whole_are_compared() -> None:
    before = report(ran([True] * 10, num_samples=60, num_expected=60), stopped="interrupted")
    result = first(before, report(WHOLE), COMMON)
    assert (result.outcome, result.reason[:80]) == (
        "skipped",
        "the baseline is a selection, 10 of 60 samples (stopped early: interrupted), and ",
    )
    assert first(report(WHOLE, stopped="interrupted"), report(WHOLE), COMMON).outcome == "passed"
    tests, more = (ran([True] * number, **OF_TESTS) for number in (60, 61))
    assert first(report(tests, stopped="interrupted"), report(more), COMMON).outcome == "skipped"


def test_the_same_selection_is_compared() -> None:
    infos: tuple[dict[str, Any], ...] = {}, {"num_samples": None, **OF_TESTS}
    for info in infos:
        before = report(part(0, 10, **info), selection=BY_KEYWORD)
        result = first(before, report(part(0, 10, **info), selection=BY_KEYWORD))
        assert (result.outcome, result.regression is not None) == ("passed", True)
        assert any(note.startswith("the baseline is a selection, 10") for note in result.notes)
        assert first(before, report(part(0, 9, **info), selection=BY_KEYWORD), is_selection=True).outcome == "skipped"
        assert first(before, report(part(1, 11, **info), selection=BY_KEYWORD), is_selection=True).outcome == "skipped"


def test_samples_that_failed_before_never_are() -> None:
    before = report(part(0, 10), selection=BY_OUTCOME)
    assert first(before, report(part(0, 10), selection=BY_KEYWORD)).outcome == "skipped"
    assert first(report(WHOLE, selection=BY_OUTCOME), report(WHOLE)).outcome == "passed", "all had failed before"


def test_two_selections_with_nothing_in_common_are_undecided() -> None:
    result = first(report(part(0, 10), selection=BY_KEYWORD), report(part(20, 30), selection=BY_KEYWORD))
    assert result.outcome == "skipped"


def test_tests_of_schema_2_are_whole_where_a_whole_run_has_no_others() -> None:
    """``--lf`` has left nothing out of what has all samples of now."""
    tests, some = (ran([True] * number, **OF_TESTS) for number in (60, 50))
    assert first(report(tests, schema=2), report(tests)).outcome == "passed"
    more = report(ran([True] * 61, **OF_TESTS))
    for after, is_selection, found in (
        (more, False, "60 of the 61 samples of this run: make it anew"),
        (report(some), True, "50 of the 50 samples of this run, which is one: make it anew"),
    ):
        result = first(report(tests, schema=2), after, is_selection=is_selection)
        assert (result.outcome, result.regression) == ("skipped", None)
        assert result.reason == (
            "the baseline may be a selection: its report is of schema 2, which does not say so of tests, and it has "
            + found
        )
        assert first(report(tests), after, is_selection=is_selection).outcome == "passed"
        assert first(report(tests, schema=2), after, is_selection=is_selection, require=True).outcome == "failed"
    assert first(report(tests, schema=2, options={"shard": "1/2"}), more).outcome == "skipped"


def test_a_saved_report_of_what_had_failed_is_compared_with_nothing() -> None:
    options = GateOptions(comparison=DEFAULT)
    earlier = EarlierReports.of([("whole.json", report(WHOLE))])
    results = decide_saved(report(part(0, 10), selection=BY_OUTCOME), options, earlier)
    assert [one.outcome for one in results] == ["skipped"]
    assert decide_saved(report(part(0, 10), selection=BY_KEYWORD), options, earlier)[0].outcome == "passed"
