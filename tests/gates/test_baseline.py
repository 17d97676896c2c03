"""The gate against a baseline: what it finds, and what it tells."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import GateResult
from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scoring.metrics.judged import HUMAN
from pytest_llmeval.scoring.statistics.clustered import paired_proportions_interval
from pytest_llmeval.scoring.statistics.paired_tests import holm, mcnemar, smallest_drop_of_mcnemar
from tests.gates.reports_for_tests import (
    Outcome,
    answers,
    compared,
    ran,
    report,
    the_one,
)


def test_a_drop_fails() -> None:
    before, after = answers(1000, right=700, lost=90, gained=40)
    result = the_one(ran(before), ran(after))
    low, high = paired_proportions_interval(40, 90, 1000)
    assert (result.name, result.outcome, result.kind, result.origin) == (
        "accuracy vs baseline",
        "failed",
        "baseline",
        "option",
    )
    assert (result.suite, result.model, result.path, result.metric) == ("s", None, "s.yaml", "accuracy")
    assert result.reason == (
        f"accuracy 0.700 -> 0.650: -0.050 [{low:.3f}, {high:.3f}], n 1,000, p < 0.0001, "
        "90 samples became wrong and 40 right; a drop of 0.034 would be found (90% power)"
    )
    assert result.notes == ()
    found = result.regression
    assert found is not None
    assert (found.n, found.num_worse, found.num_better, found.family, found.num_left_out) == (1000, 90, 40, 1, 0)
    assert found.p_value == found.p_adjusted == mcnemar(90, 40).p_drop
    assert found.drop == pytest.approx(0.05)
    assert (found.margin, found.method, found.num_draws) == (0, "mcnemar", None)


def test_an_unchanged_model_passes() -> None:
    before, _ = answers(50, right=30)
    low, high = paired_proportions_interval(0, 0, 50)
    result = the_one(ran(before), ran(before))
    assert result.outcome == "passed"
    assert result.reason == (
        f"accuracy 0.600 -> 0.600: 0.000 [{low:.3f}, {high:.3f}], n 50, p = 1.000, 0 samples became wrong and 0 right; "
        "a drop of 0.154 would be found (90% power)"
    )


def test_dice_rolled_differently_pass() -> None:
    before, after = answers(1000, right=700, lost=50, gained=40)
    result = the_one(ran(before), ran(after))
    assert result.outcome == "passed"
    assert "-0.010" in result.reason
    assert "p = 0.171" in result.reason


def test_an_improvement_is_reported() -> None:
    before, after = answers(1000, right=600, lost=40, gained=90)
    result = the_one(ran(before), ran(after))
    assert result.outcome == "passed"
    assert result.reason.startswith("improved: accuracy 0.600 -> 0.650: +0.050 [")
    assert "p < 0.0001, 40 samples became wrong and 90 right" in result.reason


def test_a_family_is_held_together() -> None:
    """P is 0.03 in each of three suites: alone each fails, together none does."""
    before, after = answers(40, right=30, lost=5)
    suites = [[ran(side, name) for name in "abc"] for side in (before, after)]
    results = compared(report(*suites[0]), report(*suites[1]))
    p = mcnemar(5, 0).p_drop
    assert [result.outcome for result in results] == ["passed"] * 3
    assert the_one(suites[0][0], suites[1][0]).outcome == "failed"
    for result in results:
        assert result.regression is not None
        assert result.regression.p_adjusted == pytest.approx(3 * p)
        assert result.regression.family == 3
        assert f"p = {p:.3f} (Holm over 3: {3 * p:.3f})" in result.reason
        assert result.regression.smallest_drop == smallest_drop_of_mcnemar(40, 5 / 40, 0.05 / 3)


def test_holm_steps_down() -> None:
    sides = {"a": answers(100, right=80, lost=9), "b": answers(100, right=80, lost=6), "c": answers(100, right=80)}
    results = compared(
        report(*(ran(before, name) for name, (before, _) in sides.items())),
        report(*(ran(after, name) for name, (_, after) in sides.items())),
    )
    assert [result.outcome for result in results] == ["failed", "failed", "passed"]
    found = [result.regression.p_adjusted for result in results if result.regression]
    assert found == pytest.approx(holm([2**-9, 2**-6, 1.0]))


def test_order_is_that_of_the_session_then_of_the_baseline() -> None:
    same: list[Outcome] = [True, False] * 8
    results = compared(
        report(*(ran(same, name) for name in ("gone", "b", "a", "lost"))),
        report(*(ran(same, name) for name in ("new", "a", "b"))),
    )
    assert [(result.suite, result.outcome) for result in results] == [
        ("new", "skipped"),
        ("a", "passed"),
        ("b", "passed"),
        ("gone", "failed"),
        ("lost", "failed"),
    ]


def test_the_only_model_of_the_baseline_is_what_another_is_compared_with() -> None:
    before, after = answers(40, right=30, lost=9)
    result = the_one(ran(before, model="gpt2"), ran(after, model="gpt2-4bit"))
    assert (result.outcome, result.model) == ("failed", None)
    results = compared(report(ran(before, model="gpt2")), report(ran(after, model="a"), ran(before, model="b")))
    assert [(one.model, one.outcome) for one in results] == [("a", "failed"), ("b", "passed")]


def test_of_several_models_that_of_the_same_name() -> None:
    before, after = answers(40, right=30, lost=9)
    base = report(ran(after, model="a"), ran(before, model="b"))
    results = compared(base, report(ran(after, model="b"), ran(after, model="a")))
    assert [(one.model, one.outcome) for one in results] == [("b", "failed"), ("a", "passed")]
    (result,) = compared(base, report(ran(after, model="c")))
    assert result.outcome == "failed"
    assert result.reason == "the baseline has this suite on 'a', 'b', and not on 'c'"


def test_results_survive_a_report() -> None:
    before, after = answers(40, right=30, lost=9)
    clusters = {str(place): str(place // 2) for place in range(40)}
    for own in (None, clusters):
        result = the_one(ran(before, clusters=own), ran(after, clusters=own))
        assert part_from_json(GateResult, json.loads(json.dumps(dataclasses.asdict(result), allow_nan=False))) == result


class ReadOnce(Sequence[Record]):
    """Records that lie on disk: they are gone through once, from the first to the last."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records, self.num_read = records, 0

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self.num_read += 1
            yield record

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("read out of order")


def test_records_are_read_once() -> None:
    before, after = answers(40, right=30, lost=9)
    sides = [
        dataclasses.replace(found, records=ReadOnce(found.records))
        for found in (report(ran(side, "a"), ran(side, "b")) for side in (before, after))
    ]
    assert [result.outcome for result in compared(sides[0], sides[1])] == ["failed", "failed"]
    assert [side.records.num_read for side in sides if isinstance(side.records, ReadOnce)] == [80, 80]


def test_labels_of_people_that_are_not_compared_refuse_nothing() -> None:
    before = {str(place): {"f1": place / 20, HUMAN: 1.0} for place in range(20)}
    after = {sample_id: {**values, HUMAN: 0.0} for sample_id, values in before.items()}
    result = the_one(ran(before, metrics=("f1",)), ran(after, metrics=("f1",)))
    assert (result.outcome, result.metric) == ("passed", "f1")
