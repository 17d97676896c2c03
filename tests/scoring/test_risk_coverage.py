"""Risk and coverage: against a threshold at a time, scikit-learn's precision, and statsmodels' interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve
from statsmodels.stats.proportion import proportion_confint

from pytest_llmeval.scoring.metrics.calibration import COVERAGES, confidence_pair, risk_coverage, risks_at
from pytest_llmeval.types import Status

# few values of confidence, so that some are equal
CONFIDENCE = st.one_of(st.floats(0.01, 1.0), st.sampled_from((0.25, 0.5, 0.75)))
RIGHT = st.lists(st.tuples(CONFIDENCE, st.sampled_from((0.0, 1.0))), min_size=1, max_size=40)
PARTLY = st.lists(st.tuples(CONFIDENCE, st.floats(0, 1)), min_size=1, max_size=40)


def slow_curve(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Coverage and risk for every threshold, each from all samples."""
    found = []
    for threshold in sorted({confidence for confidence, _ in pairs}, reverse=True):
        answered = [1 - accuracy for confidence, accuracy in pairs if confidence >= threshold]
        found.append((len(answered) / len(pairs), sum(answered) / len(answered)))
    return found


@given(PARTLY)
def test_each_point_is_a_threshold(pairs: list[tuple[float, float]]) -> None:
    curve = risk_coverage(pairs)
    assert curve is not None
    expected = slow_curve(pairs)
    assert [point.coverage for point in curve.points] == pytest.approx([coverage for coverage, _ in expected])
    assert [point.risk for point in curve.points] == pytest.approx([risk for _, risk in expected], abs=1e-12)
    assert curve.points[-1].n == curve.n == len(pairs)


@given(PARTLY)
def test_the_area_is_the_mean_over_samples_of_the_risk_at_their_threshold(pairs: list[tuple[float, float]]) -> None:
    curve = risk_coverage(pairs)
    assert curve is not None
    risks = []
    for own, _ in pairs:
        answered = [1 - accuracy for confidence, accuracy in pairs if confidence >= own]
        risks.append(sum(answered) / len(answered))
    assert curve.aurc == pytest.approx(np.mean(risks), abs=1e-12)
    assert min(risks) - 1e-12 <= curve.aurc <= max(risks) + 1e-12


@given(RIGHT)
def test_risk_is_one_minus_scikit_learns_precision(pairs: list[tuple[float, float]]) -> None:
    curve = risk_coverage(pairs)
    assert curve is not None
    right = [accuracy for _, accuracy in pairs]
    if not any(right):
        assert all(point.risk == 1 for point in curve.points)
        return
    precision, _, thresholds = precision_recall_curve(right, [confidence for confidence, _ in pairs])
    risks = {point.confidence: point.risk for point in curve.points}
    expected = {float(threshold): 1 - value for threshold, value in zip(thresholds, precision[:-1], strict=True)}
    assert {threshold: risks[threshold] for threshold in expected} == pytest.approx(expected)


@given(PARTLY, st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_nothing(pairs: list[tuple[float, float]], random: object) -> None:
    mixed = sorted(pairs)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    first, second = risk_coverage(pairs), risk_coverage(mixed)
    assert first is not None
    assert second is not None
    assert second.aurc == pytest.approx(first.aurc, abs=1e-12)
    assert [point.n for point in second.points] == [point.n for point in first.points]


@given(RIGHT)
def test_intervals_are_wilsons(pairs: list[tuple[float, float]]) -> None:
    curve = risk_coverage(pairs)
    assert curve is not None
    points = {point.n: point for point in curve.points}
    shown = risks_at(curve)
    assert shown[-1].coverage == 1
    for point in shown:
        assert (point.risk, point.coverage) == (points[point.n].risk, points[point.n].coverage)
        low, high = proportion_confint(round(point.risk * point.n), point.n, method="wilson")
        assert point.ci_low == pytest.approx(low, abs=1e-9)
        assert point.ci_high == pytest.approx(high, abs=1e-9)
    for coverage in COVERAGES:
        first = next(point for point in curve.points if point.coverage >= coverage - 1e-9)
        assert first.n in {point.n for point in shown}


def test_by_hand() -> None:
    curve = risk_coverage([(0.9, 1.0), (0.5, 0.0), (0.5, 1.0), (0.1, 0.0)])
    assert curve is not None
    assert [(point.n, point.coverage, point.risk) for point in curve.points] == [
        (1, 0.25, 0.0),
        (3, 0.75, pytest.approx(1 / 3)),
        (4, 1.0, 0.5),
    ]
    assert curve.aurc == pytest.approx((1 * 0 + 2 * (1 / 3) + 1 * 0.5) / 4)


def test_a_perfect_order_and_one_confidence_for_all() -> None:
    ordered = risk_coverage([(0.9, 1.0), (0.8, 1.0), (0.2, 0.0), (0.1, 0.0)])
    equal = risk_coverage([(0.5, 1.0), (0.5, 0.0)])
    assert ordered is not None
    assert equal is not None
    assert ordered.aurc < 0.25 < equal.aurc == 0.5
    assert len(equal.points) == 1


def test_none_of_no_samples() -> None:
    assert risk_coverage([]) is None


@pytest.mark.parametrize(
    ("status", "values", "expected"),
    [
        ("correct", {"confidence": 0.5, "accuracy": 1.0}, (0.5, 1.0)),
        ("unscored", {"confidence": 0.5, "accuracy": 1.0}, None),
        ("correct", {"accuracy": 1.0}, None),
        ("scored", {"confidence": 0.5}, None),
        ("wrong", {"confidence": math.nan, "accuracy": 0.0}, None),
    ],
)
def test_samples_without_both_numbers_are_left_out(
    status: Status, values: dict[str, float], expected: tuple[float, float] | None
) -> None:
    assert confidence_pair(status, values) == expected
