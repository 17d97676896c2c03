"""Distributions of metrics against numpy, and the samples that moved most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.metrics.summary import Distribution, distributions, summarize
from pytest_llmeval.scoring.paired_metrics import FlippedSample, FlippedSamples, flipped_samples
from pytest_llmeval.types import Score

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(VALUES, min_size=1, max_size=40))
def test_against_numpy(values: list[float]) -> None:
    found = Distribution.of(values)
    assert found is not None
    p50, p95 = np.percentile(values, [50, 95])
    expected = (len(values), np.mean(values), min(values), p50, p95, max(values))
    own = (found.n, found.mean, found.min, found.p50, found.p95, found.max)
    assert own == pytest.approx(expected, rel=1e-9, abs=1e-6)
    if len(values) == 1:
        assert found.sd is None
    else:
        assert found.sd == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-6)


def test_of_what_samples_have_values_of() -> None:
    values: list[dict[str, float]] = [{"accuracy": 1.0, "brier": 0.25}, {"accuracy": 0.0}]
    scores = [Score(status="correct" if one["accuracy"] else "wrong", values=one) for one in values]
    scores.append(Score(status="unscored", reason="no reply"))
    found = distributions(scores, summarize(scores, ["accuracy", "brier", "correct", "f1"]))
    assert {name: (one.n, one.mean) for name, one in found.items()} == {"accuracy": (2, 0.5), "brier": (1, 0.25)}


@given(st.lists(st.tuples(VALUES, VALUES), max_size=40), st.booleans())
def test_flipped_samples_are_all_samples_and_the_largest_changes(
    pairs: list[tuple[float, float]], higher: bool
) -> None:
    ids = [f"q{number}" for number in range(len(pairs))]
    before, now = [one for one, _ in pairs], [one for _, one in pairs]
    found = flipped_samples(ids, before, now, higher_is_better=higher, limit=3)
    gains = [(new - old if higher else old - new) for old, new in pairs]
    assert found.num_worse == sum(gain < -1e-9 for gain in gains)
    assert found.num_better == sum(gain > 1e-9 for gain in gains)
    assert found.num_worse + found.num_better + found.num_same == len(pairs)
    largest = sorted((-gain for gain in gains if gain < -1e-9), reverse=True)[:3]
    assert [abs(one.difference) for one in found.worse] == largest


def test_equal_changes_keep_the_order_of_samples() -> None:
    found = flipped_samples(["b", "a", "c"], [1.0, 1.0, 0.0], [0.0, 0.0, 1e-10], higher_is_better=True)
    worse = tuple(FlippedSample(id=id_, before=1.0, now=0.0, difference=-1.0) for id_ in ("b", "a"))
    assert found == FlippedSamples(num_worse=2, num_better=0, num_same=1, worse=worse)


def test_a_small_change_is_one() -> None:
    found = flipped_samples(["a", "b", "c"], [0.5] * 3, [0.4995, 0.5005, 0.5 + 5e-10], higher_is_better=True)
    assert (found.num_worse, found.num_better, found.num_same) == (1, 1, 1)
