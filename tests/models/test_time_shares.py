"""Shares of a call's time: they sum to it, and follow what the model reported."""

from __future__ import annotations

import math
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.inference.accounting import TimeShares

SECONDS = st.floats(0, 1e6, allow_nan=False)
CALLS = st.lists(st.tuples(SECONDS, st.dictionaries(st.sampled_from("abcdefgh"), SECONDS, min_size=1)), min_size=1)


@given(calls=CALLS)
def test_what_is_taken_from_one_is_given_to_the_others(calls: list[tuple[float, dict[Hashable, float]]]) -> None:
    shares = TimeShares()
    differences = []
    for spent_s, reported_s in calls:
        shares.share_out(spent_s, reported_s)
        differences += [shares.settle(key) for key in reported_s]
    assert math.fsum(differences) == pytest.approx(0, abs=1e-6 * math.fsum(spent_s for spent_s, _ in calls) + 1e-12)


def test_shares_follow_what_the_model_reported() -> None:
    shares = TimeShares()
    shares.share_out(10.0, {"a": 1.0, "b": 3.0, "c": 0.0})
    assert [shares.settle(key) for key in "abc"] == [2.5 - 10.0, 7.5, 0.0]


def test_shares_are_equal_where_the_model_reported_nothing() -> None:
    shares = TimeShares()
    shares.share_out(6.0, {"a": 0.0, "b": 0.0, "c": 0.0})
    assert [shares.settle(key) for key in "abc"] == [2.0 - 6.0, 2.0, 2.0]


def test_a_sample_that_was_asked_twice_has_both_shares() -> None:
    shares = TimeShares()
    shares.share_out(4.0, {"a": 1.0, "b": 1.0})
    shares.share_out(1.0, {"a": 1.0})
    assert shares.settle("a") == 2.0 + 1.0 - 5.0
    assert shares.settle("b") == 2.0


def test_a_sample_that_was_never_asked_keeps_its_time() -> None:
    assert TimeShares().settle("a") == 0.0
