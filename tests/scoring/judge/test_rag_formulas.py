"""Average precision and cosine: against numpy, and by the properties that make them what they are."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_llmeval.scorers.judging.embeddings import cosine
from pytest_llmeval.scorers.judging.rag_verdicts import average_precision, share

VERDICTS = st.lists(st.booleans(), max_size=30)
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False).filter(lambda number: number == 0 or abs(number) > 1e-3)


@pytest.mark.parametrize(
    ("relevant", "expected"),
    [
        ([True], 1.0),
        ([False], 0.0),
        ([], 0.0),
        ([True, True, True], 1.0),
        ([False, True], 1 / 2),
        ([True, False, True], (1 / 1 + 2 / 3) / 2),
        ([False, True, True, False, True], (1 / 2 + 2 / 3 + 3 / 5) / 3),
        ([False, False, False, True], 1 / 4),
    ],
)
def test_by_hand(relevant: list[bool], expected: float) -> None:
    assert average_precision(relevant) == pytest.approx(expected)


@given(relevant=VERDICTS)
def test_average_precision_as_numpy_has_it(relevant: list[bool]) -> None:
    ranks = numpy.flatnonzero(relevant) + 1
    expected = numpy.mean(numpy.arange(1, len(ranks) + 1) / ranks) if len(ranks) else 0.0
    assert average_precision(relevant) == pytest.approx(expected)
    assert 0 <= average_precision(relevant) <= 1


@given(relevant=VERDICTS, num_more=st.integers(0, 5))
def test_what_is_irrelevant_at_the_end_changes_nothing(relevant: list[bool], num_more: int) -> None:
    assert average_precision([*relevant, *[False] * num_more]) == average_precision(relevant)


@given(relevant=VERDICTS, data=st.data())
def test_a_relevant_chunk_that_moves_up_never_lowers_it(relevant: list[bool], data: st.DataObject) -> None:
    places = [i for i in range(1, len(relevant)) if relevant[i] and not relevant[i - 1]]
    assume(places)
    place = data.draw(st.sampled_from(places))
    moved = [*relevant]
    moved[place - 1], moved[place] = True, False
    assert average_precision(moved) > average_precision(relevant)


@given(relevant=VERDICTS)
def test_it_is_perfect_where_all_that_is_relevant_comes_first(relevant: list[bool]) -> None:
    is_sorted = sorted(relevant, reverse=True) == relevant
    assert (average_precision(relevant) == 1) == (is_sorted and any(relevant))


@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_cosine_as_numpy_has_it(pairs: list[tuple[float, float]]) -> None:
    one, other = ([*column] for column in zip(*pairs, strict=True))
    found, length = cosine(one, other), numpy.linalg.norm(one) * numpy.linalg.norm(other)
    if not length:
        assert found is None
        return
    assert found == pytest.approx(float(numpy.dot(one, other) / length), abs=1e-9)
    assert cosine(other, one) == pytest.approx(found)


@given(vector=st.lists(NUMBERS, min_size=1, max_size=12).filter(any), exponent=st.integers(-280, 280))
def test_the_length_of_a_vector_makes_no_difference(vector: list[float], exponent: int) -> None:
    scaled = [number * 10.0**exponent for number in vector]
    assert cosine(vector, scaled) == pytest.approx(1)
    assert cosine(vector, [-number for number in scaled]) == pytest.approx(-1)
    for found in (cosine(vector, scaled), cosine(scaled, scaled)):
        assert found is not None
        assert found <= 1


def test_a_vector_without_direction_has_no_cosine() -> None:
    assert cosine([0.0, 0.0], [1.0, 0.0]) is None
    assert cosine([1.0, 0.0], [0.0, -0.0]) is None
    assert cosine([1.0, 0.0], [0.0, 5.0]) == 0
    with pytest.raises(ValueError, match="zip"):
        cosine([1.0, 0.0], [1.0])


def test_a_share_of_nothing_is_no_number() -> None:
    assert share([True, False, True]) == pytest.approx(2 / 3)
    with pytest.raises(ZeroDivisionError):
        share([])
