"""Which samples the audit takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.inference.chunks import choose_audited, choose_spares


@given(st.dictionaries(st.text(), st.integers(0, 100)))
def test_the_longest_is_always_among_them(sizes: dict[str, int]) -> None:
    chosen = choose_audited(sizes)
    assert len(set(chosen)) == len(chosen)
    assert bool(chosen) == bool(sizes)
    if sizes:
        assert sizes[chosen[0]] == max(sizes.values())


def test_one_in_two_hundred_and_not_too_many() -> None:
    assert [len(choose_audited({str(i): i for i in range(n)})) for n in (1, 199, 200, 1000, 100_000)] == [
        1,
        1,
        2,
        6,
        17,
    ]


@given(st.dictionaries(st.text(), st.integers(0, 100)))
def test_spares_are_ever_shorter(sizes: dict[str, int]) -> None:
    spares = choose_spares(sizes)
    lengths = [sizes[one] for one in spares]
    assert lengths == sorted(lengths, reverse=True)
    if len(sizes) > 1:
        assert lengths[-1] == min(sizes.values())


def test_the_choice_does_not_follow_the_order() -> None:
    sizes = {str(i): 5 for i in range(1000)}
    assert choose_audited(sizes) == choose_audited(dict(reversed(sizes.items())))
