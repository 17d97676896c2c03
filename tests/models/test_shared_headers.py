"""Which prompts share a header: against every way of dividing them, and on lists where the answer is plain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.models.huggingface.prefix_tree import HeaderGroup, common_length, plan_headers
from tests.properties import examples

_FEW_SHOT = tuple(range(900))


@given(a=st.lists(st.integers(0, 2), max_size=12), b=st.lists(st.integers(0, 2), max_size=12))
def test_common_length(a: list[int], b: list[int]) -> None:
    assert common_length(a, b) == _common_length([a, b])


def test_one_header_for_a_suite() -> None:
    prompts = [(*_FEW_SHOT, 1000 + i, 7) for i in range(32)]
    assert plan_headers(prompts, min_tokens=32) == [HeaderGroup(900, tuple(range(32)))]


def test_questions_that_begin_alike_by_chance_stay_with_the_others() -> None:
    prompts = [(*_FEW_SHOT, 1000, 1000 + i // 2, i) for i in range(32)]
    assert plan_headers(prompts, min_tokens=32) == [HeaderGroup(901, tuple(range(32)))]


def test_a_header_for_each_subject_though_all_begin_alike() -> None:
    instructions = tuple(range(50))
    prompts = [(*instructions, *(1000 * (i % 2 + 1) + n for n in range(800)), i) for i in range(8)]
    assert plan_headers(prompts, min_tokens=32) == [HeaderGroup(850, (0, 2, 4, 6)), HeaderGroup(850, (1, 3, 5, 7))]


def test_prompts_that_share_little_are_together() -> None:
    prompts = [(1, 2, i) for i in range(5)]
    assert plan_headers(prompts, min_tokens=3) == [HeaderGroup(0, (0, 1, 2, 3, 4))]


def test_equal_prompts_keep_a_token_of_their_own() -> None:
    assert plan_headers([(1, 2, 3, 4)] * 3, min_tokens=2) == [HeaderGroup(3, (0, 1, 2))]


def test_prompts_that_continue_each_other() -> None:
    """Hundreds of turns of one conversation: nothing recurses, and each keeps a token of its own."""
    prompts = [tuple(range(100 + n)) for n in range(2000)]
    (group,) = plan_headers(prompts, min_tokens=32)
    assert group == HeaderGroup(99, tuple(range(2000)))


def test_nothing() -> None:
    assert plan_headers([], min_tokens=4) == []


@settings(max_examples=examples(100), deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=7).map(tuple), min_size=1, max_size=7),
    min_tokens=st.integers(1, 4),
)
def test_groups_divide_the_prompts_and_save_nearly_the_most(prompts: list[tuple[int, ...]], min_tokens: int) -> None:
    groups = plan_headers(prompts, min_tokens=min_tokens)
    assert sorted(i for group in groups for i in group.members) == list(range(len(prompts)))
    for group in groups:
        header = prompts[group.members[0]][: group.num_tokens]
        assert all(prompts[i][: len(header)] == header and len(prompts[i]) > len(header) for i in group.members)
        assert group.num_tokens == 0 or (group.num_tokens >= min_tokens and len(group.members) > 1)
    saved = sum((len(group.members) - 1) * group.num_tokens for group in groups)
    # Keeping a group whole forgoes at most a fifth at each level of common beginnings, of which there are seven here.
    assert saved >= 0.8**7 * _most_saved(sorted(prompts), min_tokens)


def _common_length(sequences: Sequence[Sequence[int]]) -> int:
    return len(list(takewhile(lambda column: len(set(column)) == 1, zip(*sequences, strict=False))))


def _most_saved(ordered: list[tuple[int, ...]], min_tokens: int) -> int:
    """The best of all divisions of sorted prompts into runs, by trying each."""
    best = [0]
    for last in range(1, len(ordered) + 1):
        options = []
        for first in range(last):
            run = ordered[first:last]
            length = min(_common_length(run), *(len(prompt) - 1 for prompt in run), 99)
            options.append(best[first] + ((len(run) - 1) * length if length >= min_tokens else 0))
        best.append(max(options))
    return best[-1]
