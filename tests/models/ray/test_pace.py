"""How large the chunks of a model are that is called for each sample by itself."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.models.ray.schedule import Pace


def test_an_agent_of_half_a_minute_is_asked_for_one_at_a_time() -> None:
    pace = Pace(num_at_once=1, most=128)
    for _ in range(5):
        assert pace.size == 1
        pace.took(1, 30.0)


def test_calls_that_run_at_once_are_in_one_chunk() -> None:
    pace = Pace(num_at_once=4, most=128)
    pace.took(4, 30.0)
    assert pace.size == 4
    assert Pace(num_at_once=200, most=128).size == 128


@pytest.mark.parametrize(("each_s", "expected"), [(0.1, 5), (0.01, 50), (1e-5, 128), (0.0, 128)])
def test_half_a_second_of_work_is_reached_by_doubling(each_s: float, expected: int) -> None:
    pace, sizes = Pace(num_at_once=1, most=128), [1]
    for _ in range(10):
        pace.took(pace.size, pace.size * each_s)
        sizes.append(pace.size)
    assert sizes[-1] in (expected, expected - 1)  # of a division
    assert all(after <= 2 * before for before, after in pairwise(sizes))


@given(st.integers(1, 64), st.integers(1, 200), st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1e6))))
def test_it_stays_within_its_bounds(at_once: int, most: int, chunks: list[tuple[int, float]]) -> None:
    pace = Pace(num_at_once=at_once, most=most)
    for num_samples, seconds in chunks:
        pace.took(num_samples, seconds)
        assert min(at_once, most) <= pace.size <= most
