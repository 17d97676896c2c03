"""One suite whose numbers cannot be computed costs no other's, and its traceback is in the log."""

from __future__ import annotations

import pytest

from pytest_llmeval.reporting.report import summaries
from pytest_llmeval.reporting.report.report import Group
from pytest_llmeval.reporting.report.summaries import GroupRecords, summarize_suite, with_suites
from tests.reporting.reports import make_record, make_report


def test_a_defect_costs_one_suite_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails_on_a(info, records, **known):  # type: ignore[no-untyped-def]
        if info.name == "a" and known.get("has_metrics", True):
            raise ArithmeticError("too much")
        return summarize_suite(info, records, **known)

    monkeypatch.setattr(summaries, "summarize_suite", fails_on_a)
    records = [make_record("a", "q1"), make_record("b", "q1")]
    groups: dict[Group, GroupRecords] = {
        (one.suite, None): GroupRecords(records=[one], info=None, num_expected=1) for one in records
    }
    problems = ["an earlier one"]
    report = with_suites(make_report(records), groups, (), problems)
    assert report.problems == ("an earlier one", "suite 'a' has no metrics: ArithmeticError: too much")
    assert [(suite.summary.num_scored, bool(suite.summary.metrics)) for suite in report.suites] == [
        (1, False),
        (1, True),
    ]
    (logged,) = caplog.records
    assert (logged.name, logged.levelname) == ("pytest_llmeval", "ERROR")
    assert "fails_on_a" in caplog.text
