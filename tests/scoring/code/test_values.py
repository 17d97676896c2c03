"""Values that go through between two sandboxes: the same comes out, and as plain data."""

from __future__ import annotations

import datetime
import decimal
import fractions
import json
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.sandbox.values import dump, load

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.times().map(lambda one: one.replace(fold=0)),
    st.datetimes().map(lambda one: one.replace(fold=0)),
    st.fractions(),
    st.decimals(allow_nan=False),
    st.sampled_from((int, str, list, ValueError)),
)
hashable = st.one_of(scalars, st.tuples(scalars, scalars), st.frozensets(st.integers(), max_size=3))
values = st.recursive(
    st.one_of(hashable, st.sets(st.integers()), st.builds(range, st.integers(-9, 9), st.integers(-9, 9))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(deque),
        st.dictionaries(hashable, inner, max_size=4),
    ),
    max_leaves=12,
)


def keep(value: object) -> int:
    raise TypeError(f"{value!r} is no plain value")


def back(value: object) -> Any:
    line = dump(value, keep)
    assert line.isascii()
    assert "\n" not in line
    return load(line, lambda number: number)


@given(values)
def test_what_comes_out_is_what_went_in(value: object) -> None:
    found = back(value)
    assert found == value
    assert type(found) is type(value)
    if "set(" not in repr(value) and "{" not in repr(value):  # whose order is that in which they were filled
        assert repr(found) == repr(value), "0.0 is not -0.0, and 1 is not True"


class Lying(list[int]):
    def __iter__(self) -> Any:
        return iter((9, 9))

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


class Number(int):
    __index__ = __int__ = lambda self: 7


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1, 2), (1, 2)),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Lying([1]), [1]),
        (Number(3), 3),
        (decimal.Decimal("0.10"), decimal.Decimal("0.10")),
        (fractions.Fraction(1, 3), fractions.Fraction(1, 3)),
        (datetime.datetime(2026, 1, 2, 3), datetime.datetime(2026, 1, 2, 3)),
        ("\ud800", "\ud800"),
    ],
    ids=repr,
)
def test_values_of_derived_classes_are_those_of_their_bases(value: object, expected: object) -> None:
    found = back(value)
    assert found == expected
    assert type(found) is type(expected)


def test_objects_stay_where_they_are() -> None:
    kept: list[object] = []

    def number_of(value: object) -> int:
        kept.append(value)
        return len(kept) - 1

    one, other = object(), object()
    line = dump([one, {"a": (other,)}, len], number_of)
    assert load(line, kept.__getitem__) == [one, {"a": (other,)}, len]


def test_too_much_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(500):
        nested = [nested]
    nested_in_itself: list[Any] = []
    nested_in_itself.append(nested_in_itself)
    for value, why in ((nested, "too deeply"), (nested_in_itself, "too deeply"), ([0] * 1_000_001, "too many")):
        with pytest.raises(ValueError, match=why):
            dump(value, keep)


@pytest.mark.parametrize(
    "line",
    ["", "{", '{"int": "x"}', '{"unknown": 1}', '{"a": 1, "b": 2}', '{"type": "os"}', '{"set": [[1]]}', '{"dict": [1]}',
     '{"datetime.datetime": [4]}', '{"fractions.Fraction": "1/0"}', "[" * 100_000],
)  # fmt: skip
def test_no_other_line_is_a_value(line: str) -> None:
    with pytest.raises(ValueError, match="not a value"):
        load(line, lambda number: number)


def test_what_is_plain_in_json_is_so_here() -> None:
    assert dump([1, "a", True, None], keep) == json.dumps([1, "a", True, None])
