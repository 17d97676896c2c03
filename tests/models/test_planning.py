"""Rows and batches: nothing lost, nothing twice, no batch past its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface.batches import plan_batches, plan_rows

_LENGTHS = st.lists(st.integers(1, 40), max_size=40)
_TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)


@given(lengths=_LENGTHS, max_rows=st.none() | st.integers(1, 9), max_tokens=st.integers(1, 100), equal=st.booleans())
def test_batches(lengths: list[int], max_rows: int | None, max_tokens: int, equal: bool) -> None:
    batches = plan_batches(lengths, max_rows=max_rows, max_tokens=max_tokens, equal_lengths=equal)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    ordered = [lengths[i] for batch in batches for i in batch]
    assert ordered == sorted(ordered, reverse=True)
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        if max_rows is not None:
            assert len(batch) <= max_rows
        else:
            assert len(batch) == 1 or len(batch) * longest <= max_tokens
        if equal:
            assert len({lengths[i] for i in batch}) == 1


def test_batches_are_filled() -> None:
    assert plan_batches([5, 7, 7, 1, 5], max_rows=2, max_tokens=1) == [[1, 2], [0, 4], [3]]
    assert plan_batches([5, 7, 7, 1, 5], max_rows=None, max_tokens=15) == [[1, 2], [0, 4, 3]]
    assert plan_batches([5, 7, 7, 1, 5], max_rows=9, max_tokens=1, equal_lengths=True) == [[1, 2], [0, 4], [3]]


@given(pairs=st.lists(st.builds(EncodedPair, _TOKENS, _TOKENS), max_size=12))
def test_rows(pairs: list[EncodedPair]) -> None:
    rows = plan_rows(enumerate(pairs))
    assert len({row.tokens for row in rows}) == len(rows)
    assert sorted(request for row in rows for request, _ in row.targets) == list(range(len(pairs)))
    for row in rows:
        for request, continuation in row.targets:
            pair = pairs[request]
            assert row.tokens + continuation[-1:] == pair.context + pair.continuation
            assert continuation == pair.continuation
        longest = max(len(continuation) for _, continuation in row.targets)
        assert row.first_scored == len(row.tokens) - longest >= 0


def test_one_token_answers_share_a_row() -> None:
    rows = plan_rows(enumerate([EncodedPair((1, 2), (3,)), EncodedPair((1, 2), (4,)), EncodedPair((1,), (2, 5))]))
    assert [row.tokens for row in rows] == [(1, 2)]
    assert rows[0].targets == ((0, (3,)), (1, (4,)), (2, (2, 5)))
    assert rows[0].first_scored == 0
