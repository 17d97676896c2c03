"""Durations are measured by a clock that nobody sets."""

from __future__ import annotations

import json

import pytest

from tests.plugin.suites_for_tests import SUMS


def test_a_clock_that_is_set_back_makes_no_negative_seconds(llm_pytester: pytest.Pytester) -> None:
    """An hour at each look, so that whatever measures by it is found out."""
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makepyfile(waits="import time\n\n\ndef a_moment(prompt):\n    time.sleep(0.002)\n    return '2'\n")
    llm_pytester.makeconftest(
        """
        import itertools
        import time

        clock, hours = time.time, itertools.count(1)

        def pytest_collection_finish():
            time.time = lambda: clock() - 3600 * next(hours)

        def pytest_unconfigure():
            time.time = clock
        """
    )
    reports = ("--llm-report=report.json", "--llm-report=report.md")
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-model=python:waits:a_moment", *reports)
    assert result.ret == 0
    report = json.loads((llm_pytester.path / "report.json").read_text(encoding="utf-8"))
    assert 0.008 < report["seconds"] < 3600
    assert len(report["records"]) == 4
    assert all(0.002 <= record["seconds"] < 3600 for record in report["records"])
