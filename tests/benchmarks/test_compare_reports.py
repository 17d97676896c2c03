"""The script that measures comparisons runs, on a few samples, and its two reports can be compared."""

from __future__ import annotations

import pytest

from benchmarks.compare_reports import NUM_CATEGORIES, measure, report_of


@pytest.mark.slow
def test_a_small_comparison_is_measured() -> None:
    found = measure(200, runs=1)
    assert found["samples"] == 200
    assert found["compare_cpu_s"] > found["json_cpu_s"] > 0
    assert found["compare_json"] > 1


def test_the_second_model_answers_some_samples_otherwise() -> None:
    before, now = (report_of(400, "model", is_changed=is_changed) for is_changed in (False, True))
    assert len(before.suites[0].categories) == NUM_CATEGORIES
    assert len(before.suites[0].summary.metrics) == 16
    statuses = [[record.status for record in report.records] for report in (before, now)]
    assert 0 < sum(one != other for one, other in zip(*statuses, strict=True)) < 80
