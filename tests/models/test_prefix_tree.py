"""The plan of steps, run by a toy model: what a token sees is checked against the rows themselves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface.batches import BatchRow, plan_rows
from pytest_llmeval.models.huggingface.prefix_tree import Step, StepBudget, common_length, plan_steps
from tests.properties import examples

TOKENS = st.integers(0, 2)
"""Few, so that rows share their beginnings in all ways."""


@st.composite
def many_rows(draw: st.DrawFn) -> list[BatchRow]:
    """Rows as requests make them: headers, duplicates, one-token and long continuations."""
    header = draw(st.lists(TOKENS, max_size=12))
    pairs = []
    for _ in range(draw(st.integers(1, 12))):
        context = header[: draw(st.integers(0, len(header)))] + draw(st.lists(TOKENS, min_size=1, max_size=6))
        continuation = draw(st.lists(TOKENS, min_size=1, max_size=8))
        pairs.append(EncodedPair(tuple(context), tuple(continuation)))
    return plan_rows(enumerate(pairs))


def budgets() -> st.SearchStrategy[StepBudget]:
    """From one token at a time to everything at once."""
    return st.builds(
        StepBudget,
        max_tokens=st.integers(1, 40),
        max_scored=st.integers(1, 20),
        max_rows=st.none() | st.integers(1, 5),
        max_mask=st.integers(1, 2000),
        block_tokens=st.integers(1, 10),
        max_repeated=st.integers(0, 5),
    )


def seen_by(step: Step, index: int) -> tuple[int, ...]:
    """The text that token ``index`` of the step ends, by the step's own masks."""
    return (*step.path, *(step.tokens[j] for j in range(index + 1) if step.ends[j] > index))


def wanted(rows: list[BatchRow]) -> Counter[tuple[int, tuple[int, ...], int]]:
    """``(request, text before, token)`` of every logprob that the rows need."""
    found: Counter[tuple[int, tuple[int, ...], int]] = Counter()
    for row in rows:
        for request, continuation in row.targets:
            start = len(row.tokens) - len(continuation)
            for i, token in enumerate(continuation):
                found[request, row.tokens[: start + i + 1], token] += 1
    return found


def given_by(steps: list[Step]) -> Counter[tuple[int, tuple[int, ...], int]]:
    """The same, of what the steps compute."""
    found: Counter[tuple[int, tuple[int, ...], int]] = Counter()
    for step in steps:
        for at, token, request in zip(step.wanted_at, step.wanted_tokens, step.wanted_by, strict=True):
            found[request, seen_by(step, at), token] += 1
    return found


@settings(max_examples=examples(150))
@given(rows=many_rows(), budget=budgets())
def test_every_logprob_once_after_its_own_text(rows: list[BatchRow], budget: StepBudget) -> None:
    steps = plan_steps(rows, budget)
    assert given_by(steps) == wanted(rows)


@settings(max_examples=examples(150))
@given(rows=many_rows(), budget=budgets())
def test_only_short_beginnings_are_computed_again(rows: list[BatchRow], budget: StepBudget) -> None:
    steps = plan_steps(rows, budget)
    distinct = {row.tokens[:length] for row in rows for length in range(1, len(row.tokens) + 1)}
    seen: set[tuple[int, ...]] = set()
    for step in steps:
        for i in range(len(step.tokens)):
            text = seen_by(step, i)
            if text in seen:
                assert len(text) - len(step.path) <= budget.max_repeated
                assert i not in step.wanted_at
            seen.add(text)
    assert seen == distinct


@settings(max_examples=examples(100))
@given(rows=many_rows(), budget=budgets())
def test_positions_are_places_in_the_text(rows: list[BatchRow], budget: StepBudget) -> None:
    for step in plan_steps(rows, budget):
        assert [len(seen_by(step, i)) - 1 for i in range(len(step.tokens))] == step.positions


@settings(max_examples=examples(100))
@given(rows=many_rows(), budget=budgets())
def test_blocks_hold_all_that_their_tokens_see(rows: list[BatchRow], budget: StepBudget) -> None:
    for step in plan_steps(rows, budget):
        assert [block.start for block in step.blocks] == [0, *(block.end for block in step.blocks[:-1])]
        assert step.blocks[-1].end == len(step.tokens)
        for block in step.blocks:
            assert block.start < block.end
            in_reach = {i for start, end in (*block.before, (block.start, block.end)) for i in range(start, end)}
            assert len(in_reach) == block.end - block.start + sum(end - start for start, end in block.before)
            for i in range(block.start, block.end):
                assert in_reach >= {j for j in range(i + 1) if step.ends[j] > i}
            assert block.end == len(step.tokens) or block.end - block.start >= budget.block_tokens


@settings(max_examples=examples(100))
@given(rows=many_rows(), budget=budgets())
def test_no_step_is_larger_than_the_budget(rows: list[BatchRow], budget: StepBudget) -> None:
    for step in plan_steps(rows, budget):
        assert step.tokens
        assert len(step.tokens) <= budget.room(len(step.path))
        assert len(set(step.wanted_at)) <= budget.max_scored
        if budget.max_rows is not None and not step.stays:
            ends = {row.tokens for row in rows}
            assert sum(seen_by(step, i) in ends for i in range(len(step.tokens))) <= budget.max_rows


@settings(max_examples=examples(150))
@given(rows=many_rows(), budget=budgets(), cached=st.lists(st.lists(TOKENS, max_size=14).map(tuple), max_size=3))
def test_paths_are_at_hand_when_they_are_needed(
    rows: list[BatchRow], budget: StepBudget, cached: list[tuple[int, ...]]
) -> None:
    """Every step builds on what is cached, or on the chain that the steps before it left."""
    steps = plan_steps(rows, budget, cached)
    assert given_by(steps) == wanted(rows)
    chain: tuple[int, ...] = ()
    for step in steps:
        known = [*cached, chain]
        assert any(path[: len(step.path)] == step.path for path in known), (step.path, known)
        if step.stays:
            chain = (*step.path, *step.tokens)


def test_cached_tokens_are_not_computed_again() -> None:
    header = tuple(range(100))
    rows = plan_rows(enumerate([EncodedPair((*header, 200), (1,)), EncodedPair((*header, 201), (2, 3))]))
    budget = StepBudget(max_tokens=1000, max_scored=1000)
    assert sum(len(step.tokens) for step in plan_steps(rows, budget)) == 103
    assert sum(len(step.tokens) for step in plan_steps(rows, budget, [header])) == 3
    assert sum(len(step.tokens) for step in plan_steps(rows, budget, [(*header, 200, 5, 6)])) == 3


def test_a_row_that_is_cached_to_its_end_is_still_scored() -> None:
    """Keys and values are kept, logits are not."""
    rows = plan_rows(enumerate([EncodedPair((1, 2, 3), (4,))]))
    (step,) = plan_steps(rows, StepBudget(max_tokens=10, max_scored=10), [(1, 2, 3, 4, 5)])
    assert (step.path, step.tokens, step.wanted_tokens) == ((1, 2), [3], [4])


def test_a_header_whose_questions_do_not_fit_is_computed_first() -> None:
    header = tuple(range(50))
    pairs = [EncodedPair((*header, 100 + i, 7), (1, 2)) for i in range(30)]
    steps = plan_steps(plan_rows(enumerate(pairs)), StepBudget(max_tokens=30, max_scored=100))
    assert [step.stays for step in steps[:2]] == [True, True]
    assert [len(step.tokens) for step in steps[:2]] == [30, 20]
    assert all(step.path == header for step in steps[2:])
    assert [len(step.tokens) for step in steps[2:]] == [30, 30, 30]


def test_a_thousand_nested_rows_need_no_recursion() -> None:
    rows = plan_rows(enumerate(EncodedPair(tuple([1] * n), (2,)) for n in range(1, 3000)))
    steps = plan_steps(rows, StepBudget(max_tokens=64, max_scored=64))
    assert sum(len(step.tokens) for step in steps) == 2999


@given(a=st.lists(TOKENS), b=st.lists(TOKENS))
def test_common_length(a: list[int], b: list[int]) -> None:
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_length(tuple(a), tuple(b)) == expected


def test_half_a_budget() -> None:
    budget = StepBudget(max_tokens=5, max_scored=1)
    half = budget.halved()
    assert half == StepBudget(max_tokens=2, max_scored=1)
    assert StepBudget(max_tokens=1, max_scored=1).halved() is None


@pytest.mark.parametrize("num_cached", [0, 100, 5000])
def test_room_keeps_the_mask_small(num_cached: int) -> None:
    budget = StepBudget(max_tokens=512, max_scored=512, max_mask=100_000)
    assert 1 <= budget.room(num_cached) <= 512
    assert budget.room(num_cached) * (num_cached + budget.room(num_cached)) <= 100_000
