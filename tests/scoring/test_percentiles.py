"""Percentiles against numpy's."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scoring.metrics.summary import Percentiles, percentiles

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


@given(VALUES)
def test_they_are_numpys(values: list[float]) -> None:
    found = percentiles(values)
    assert found is not None
    expected = np.percentile(values, [50, 95, 99])
    assert (found.p50, found.p95, found.p99) == pytest.approx(tuple(expected), rel=1e-12, abs=1e-6)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert found.n == len(values)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_changes_no_digit_and_they_survive_json(values: list[float], random: object) -> None:
    found = percentiles(values)
    assert found is not None
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert percentiles(shuffled) == found
    assert part_from_json(Percentiles, json.loads(json.dumps(asdict(found)))) == found


@given(VALUES)
def test_they_lie_in_order_among_the_values(values: list[float]) -> None:
    found = percentiles(values)
    assert found is not None
    assert min(values) <= found.p50 <= found.p95 <= found.p99 <= max(values)


def test_by_hand() -> None:
    # Of 1 ... 101 the values stand at every hundredth: the 51st, the 96th and the 100th.
    found = percentiles([float(value) for value in range(101, 0, -1)])
    assert found == Percentiles(n=101, mean=51.0, p50=51.0, p95=96.0, p99=100.0)
    assert percentiles([7.0]) == Percentiles(n=1, mean=7.0, p50=7.0, p95=7.0, p99=7.0)


def test_of_nothing_there_are_none() -> None:
    assert percentiles([]) is None
