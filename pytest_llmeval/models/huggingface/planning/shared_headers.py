"""Which prompts have the same beginning, and how long it is: values in, values out, no tensors.

A header is what a group of prompts begins with (the few-shot examples of a suite, a system prompt): it is computed once
for the group. Every prompt keeps at least one token of its own, whose logits begin its text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval.models.huggingface.planning.prefix_tree import common_length

__all__ = ["HeaderGroup", "plan_headers"]


@dataclass(frozen=True, slots=True)
class HeaderGroup:
    """``members`` (indices of prompts) share their first ``num_tokens`` tokens; 0: nothing worth computing apart."""

    num_tokens: int
    members: tuple[int, ...]


def plan_headers(prompts: Sequence[tuple[int, ...]], *, min_tokens: int) -> list[HeaderGroup]:
    """Each prompt in one group, so that headers save as many tokens as they can. Prompts may be equal, not empty.

    A group of n prompts with a header of h tokens saves (n - 1) * h. Groups are parts of the sorted prompts: two groups
    of one header each are taken instead of what they share only where that saves a quarter more, since rows that
    share a batch save time too. Headers below ``min_tokens`` do not count; prompts without one are together.
    """
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    shared = [_shared(prompts[a], prompts[b]) for a, b in itertools.pairwise(order)]
    groups, alone = [], []
    for first, last, num_tokens in _best_spans(shared, min_tokens):
        members = sorted(order[first : last + 1])
        if num_tokens:
            groups.append(HeaderGroup(num_tokens, tuple(members)))
        else:
            alone.extend(members)
    groups.sort(key=lambda group: group.members)
    return [*groups, HeaderGroup(0, tuple(sorted(alone)))] if alone else groups


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return min(common_length(a, b), len(a) - 1, len(b) - 1)


@dataclass(slots=True)
class _Span:
    """The best known way to divide the sorted prompts ``first`` to ``last``, and the tokens that it saves."""

    first: int
    last: int
    saved: int
    groups: list[tuple[int, int, int]]


def _best_spans(shared: Sequence[int], min_tokens: int) -> list[tuple[int, int, int]]:
    """``(first, last, header)`` of groups of sorted prompts; ``shared[i]`` tokens are common to prompts i and i + 1.

    Walks the tree of common beginnings from its leaves (the usual stack over such lengths), so that nothing recurses.
    """
    open_nodes: list[tuple[int, list[_Span]]] = [(0, [])]
    for i in range(len(shared) + 1):
        span = _Span(i, i, 0, [(i, i, 0)])
        after = shared[i] if i < len(shared) and shared[i] >= min_tokens else 0
        while open_nodes[-1][0] > after:
            length, children = open_nodes.pop()
            span = _close(length, [*children, span])
        if open_nodes[-1][0] < after:
            open_nodes.append((after, []))
        open_nodes[-1][1].append(span)
    return [group for span in open_nodes[0][1] for group in span.groups]


def _close(length: int, children: list[_Span]) -> _Span:
    """All children under one header of ``length`` tokens, or each as it is."""
    first, last = children[0].first, children[-1].last
    together, apart = (last - first) * length, sum(child.saved for child in children)
    if apart > 1.25 * together:
        return _Span(first, last, apart, [group for child in children for group in child.groups])
    return _Span(first, last, together, [(first, last, length)])
