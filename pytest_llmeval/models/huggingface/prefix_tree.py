"""Decides which tokens are computed in which forward pass: a tree over all rows of a call, cut into steps. No tensors.

Rows with the same beginning share their first tokens, and nearly every distinct position is computed once. A step is
one forward pass over some nodes of the tree, on top of a path whose keys and values are in the cache already:

- a subtree that fits the budget is packed together with its neighbours, and leaves nothing in the cache;
- a subtree that does not fit, alone or behind its neighbours, and begins with a few tokens, is divided: each part
  computes these tokens again, which costs less than a forward pass of their own and fills the packs;
- if another subtree does not fit, its first tokens are computed first, stay in the cache while the subtree is worked
  off, and are forgotten afterwards.

A header is the common beginning of a group of prompts (the few-shot examples of a suite, a system prompt). It is
computed once for the group. Every prompt keeps at least one token of its own, whose logits begin its text.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pytest_llmeval.models.huggingface.batches import BatchRow

__all__ = ["Block", "HeaderGroup", "Step", "StepBudget", "common_length", "plan_headers", "plan_steps"]


_HEADER_TOKENS = 32
_HEADER_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudget:
    """The most that one forward pass may hold.

    ``max_tokens``: new tokens. ``max_scored``: positions whose logits are needed. ``max_rows``: rows that end in it,
    None for any number. ``max_mask``: cells of the attention mask, which are (new tokens) x (cached and new tokens). A
    single token is always allowed. ``block_tokens``: what attention treats as one block has at least so many tokens,
    but for the last one; smaller blocks attend to less that is masked, in more calls. ``max_repeated``: the most tokens
    that are computed again, in all its parts, when a subtree is divided.
    """

    max_tokens: int
    max_scored: int
    max_rows: int | None = None
    max_mask: int = 1 << 26
    block_tokens: int = 96
    max_repeated: int = 32

    def room(self, num_cached: int) -> int:
        """Return how many new tokens a step on top of ``num_cached`` may hold."""
        # the largest n with n * (num_cached + n) <= max_mask
        within_mask = (math.isqrt(num_cached * num_cached + 4 * self.max_mask) - num_cached) // 2
        return max(1, min(self.max_tokens, within_mask))

    def halved(self) -> StepBudget | None:
        """Return half of the budget; None if no smaller step can be made."""
        if self.max_tokens == 1 and self.max_scored == 1:
            return None
        return dataclasses.replace(
            self, max_tokens=max(1, self.max_tokens // 2), max_scored=max(1, self.max_scored // 2)
        )

    def fits(self, size: _Size, num_cached: int) -> bool:
        """Return whether a step of this size may stand on top of ``num_cached``."""
        return (
            size.tokens <= self.room(num_cached)
            and size.scored <= self.max_scored
            and (self.max_rows is None or size.rows <= self.max_rows)
        )


@dataclass(frozen=True, slots=True)
class _Size:
    tokens: int = 0
    scored: int = 0
    rows: int = 0

    def __add__(self, other: _Size) -> _Size:
        return _Size(self.tokens + other.tokens, self.scored + other.scored, self.rows + other.rows)


@dataclass(frozen=True, slots=True)
class Block:
    """The tokens of a step from ``start`` to ``end``: of the step's tokens they see their own and those of the spans in
    ``before`` at most.
    """

    start: int
    end: int
    before: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Step:
    """One forward pass.

    ``path``: tokens that the cache holds before it, from position 0 on. ``tokens[i]`` stands at position
    ``positions[i]`` and is seen by itself and by ``tokens[j]`` for ``i < j < ends[i]``; the path is seen by all.
    ``stays``: the tokens are a chain that later steps build on. ``blocks`` together are all tokens. The k-th number
    wanted is the logprob of ``wanted_tokens[k]`` after ``tokens[wanted_at[k]]``, and it belongs to request
    ``wanted_by[k]``.
    """

    path: tuple[int, ...]
    stays: bool = False
    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    wanted_at: list[int] = field(default_factory=list)
    wanted_tokens: list[int] = field(default_factory=list)
    wanted_by: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    """A stretch of tokens, ``row[start:end]``, in which all rows that pass through it are equal; ``row`` is one of
    them.

    Logits are needed from position ``scored_from`` on. ``ending``: index of the row that ends here. ``size`` is that of
    the subtree. ``pieces``: where its tokens are computed, as ``(first position, step, index)``.
    """

    row: tuple[int, ...]
    start: int
    end: int
    scored_from: int
    ending: int | None = None
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    size: _Size = _Size()
    pieces: list[tuple[int, Step, int]] = field(default_factory=list)

    @property
    def own_size(self) -> _Size:
        scored = max(0, self.end - max(self.start, self.scored_from))
        return _Size(self.end - self.start, scored, int(self.ending is not None))

    def can_be_divided(self, room: int, max_repeated: int, *, num_before: int = 0) -> bool:
        """Return whether its children may go into several steps of ``room`` tokens, each of which computes its own
        tokens, and ``num_before`` that are before them.
        """
        num_repeated = (num_before + self.end - self.start) * max(1, self.size.tokens // room)
        return bool(self.children) and self.scored_from >= self.end and num_repeated <= max_repeated

    def keep_children(self, children: list[_Node]) -> None:
        """Have these children alone."""
        self.children = children
        self.size = sum((child.size for child in children), self.own_size)
        for child in children:
            child.parent = self

    def split_off(self, num_children: int) -> _Node:
        """Keep the first ``num_children`` children, and return a node of the same tokens that has the others."""
        rest = _Node(self.row, self.start, self.end, self.scored_from, parent=self.parent)
        rest.keep_children(self.children[num_children:])
        self.keep_children(self.children[:num_children])
        return rest

    def lift_first(self) -> _Node:
        """Take the first child away, and return it with this node's tokens before its own."""
        child, *others = self.children
        child.size += _Size(self.end - self.start)
        child.start, child.parent = self.start, self.parent
        self.keep_children(others)
        return child


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens at the beginning ``a`` and ``b`` have in common."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] == b[:low], a[:high] != b[:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def plan_steps(rows: Sequence[BatchRow], budget: StepBudget, cached: Sequence[tuple[int, ...]] = ()) -> list[Step]:
    """Return the steps that compute every target of ``rows`` (each with other tokens), one path after the other.

    ``cached`` are paths whose keys and values are at hand: rows that begin like one of them start there. Every step's
    path is a prefix of one of those, or of what steps before it, marked ``stays``, have computed.
    """
    steps: list[Step] = []
    ordered = sorted(range(len(rows)), key=lambda i: rows[i].tokens)
    for base, members in _by_base(rows, ordered, cached):
        root, nodes = _tree(rows, members, len(base))
        _count(nodes)
        steps.extend(_steps_of(root, base, budget))
        ends = {node.ending: node for node in nodes if node.ending is not None}
        for i in members:
            _place_targets(rows[i], ends[i])
    return steps


def _by_base(
    rows: Sequence[BatchRow], ordered: Sequence[int], cached: Sequence[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Yield neighbours that begin with the same cached tokens, which are never positions that are scored."""
    group: list[int] = []
    group_base: tuple[int, ...] = ()
    for i in ordered:
        tokens = rows[i].tokens
        length = max((common_length(path, tokens) for path in cached), default=0)
        base = tokens[: min(length, rows[i].first_scored)]
        if group:
            shared = base[: common_length(base, group_base)]
            # One base for both, unless that gives up most of what is at hand for either.
            if 2 * len(shared) >= max(len(base), len(group_base)):
                group.append(i)
                group_base = shared
                continue
            yield group_base, group
        group, group_base = [i], base
    if group:
        yield group_base, group


def _tree(rows: Sequence[BatchRow], ordered: Sequence[int], depth: int) -> tuple[_Node, list[_Node]]:
    """Return the tree of the rows below ``depth``, where they are all equal; nodes in preorder. Rows are sorted."""
    first = rows[ordered[0]].tokens
    root = _Node(first, depth, depth, len(first))
    nodes = [root]
    stack: list[tuple[_Node, int, int]] = [(root, 0, len(ordered))]
    while stack:
        parent, low, high = stack.pop()
        depth = parent.end
        spans = []
        while low < high:
            begin, row = low, rows[ordered[low]]
            token = row.tokens[depth]
            low = _end_of_run(rows, ordered, low, high, depth, token)
            last = rows[ordered[low - 1]].tokens
            end = depth + common_length(row.tokens[depth:], last[depth:])
            node = _Node(row.tokens, depth, end, len(row.tokens), parent=parent)
            if len(row.tokens) == end:
                node.ending = ordered[begin]
                begin += 1
            spans.append((node, begin, low))
        parent.children = [node for node, _, _ in spans]
        nodes.extend(parent.children)
        stack.extend(spans)
    for node in nodes:
        if node.ending is not None:
            first_scored = rows[node.ending].first_scored
            above: _Node | None = node
            while above is not None and first_scored < above.end:
                above.scored_from = min(above.scored_from, first_scored)
                above = above.parent
    return root, nodes


def _end_of_run(rows: Sequence[BatchRow], ordered: Sequence[int], low: int, high: int, depth: int, token: int) -> int:
    """Return where, in the sorted rows from ``low`` on, ``token`` no longer stands at ``depth``."""
    while low < high:
        middle = (low + high) // 2
        if rows[ordered[middle]].tokens[depth] == token:
            low = middle + 1
        else:
            high = middle
    return low


def _count(nodes: Sequence[_Node]) -> None:
    for node in reversed(nodes):  # children come after their parents
        node.size += node.own_size
        if node.parent is not None:
            node.parent.size += node.size


def _steps_of(root: _Node, path: tuple[int, ...], budget: StepBudget) -> Iterator[Step]:
    stack: list[tuple[_Node, tuple[int, ...]]] = [(root, path)]
    while stack:
        node, path = stack.pop()
        yield from _chain(node, path, budget)
        path = (*path, *node.row[node.start : node.end])
        waiting = deque(node.children)
        too_big: list[_Node] = []
        while waiting:
            if packed := _next_pack(waiting, too_big, len(path), budget, keeps_headers=node is root):
                yield _pack(packed, path, budget.block_tokens)
        stack.extend((child, path) for child in reversed(too_big))


def _next_pack(
    waiting: deque[_Node], too_big: list[_Node], num_cached: int, budget: StepBudget, *, keeps_headers: bool
) -> list[_Node]:
    """Take subtrees that fit into one step from the left of ``waiting``, and move those that need a path of their own
    to ``too_big``.

    A subtree that does not fit and begins with few tokens is divided, and each part computes its beginning.
    """
    packed: list[_Node] = []
    size, room = _Size(), budget.room(num_cached)
    while waiting:
        first = waiting[0]
        is_kept = keeps_headers and _is_header(first)
        if not is_kept and budget.fits(size + first.size, num_cached):
            packed.append(waiting.popleft())
            size += first.size
        elif not is_kept and first.can_be_divided(room, budget.max_repeated):
            part, num_children = size + first.own_size, 0
            while budget.fits(part + first.children[num_children].size, num_cached):
                part += first.children[num_children].size
                num_children += 1
            if num_children:
                waiting[0] = first.split_off(num_children)
                packed.append(first)
                size, first = part, waiting[0]
            num_before = first.end - first.start
            if packed and not first.children[0].can_be_divided(room, budget.max_repeated, num_before=num_before):
                break
            waiting[0] = first.lift_first()
            if first.children:
                waiting.insert(1, first)
        elif is_kept or not budget.fits(first.size, num_cached):
            too_big.append(waiting.popleft())
        else:
            break
    return packed


def _is_header(node: _Node) -> bool:
    """Return whether many rows begin with these tokens: others that come later will, too, and find them in the
    cache.
    """
    is_scored = node.scored_from < node.end
    return not is_scored and node.end - node.start >= _HEADER_TOKENS and node.size.rows >= _HEADER_ROWS


def _chain(node: _Node, path: tuple[int, ...], budget: StepBudget) -> Iterator[Step]:
    """Return the node's own tokens, in pieces that fit; each stays in the cache."""
    position = node.start
    while position < node.end:
        room = budget.room(len(path))
        end = min(node.end, position + room, max(position, node.scored_from) + budget.max_scored)
        step = Step(path, stays=True)
        node.pieces.append((position, step, 0))
        step.tokens = list(node.row[position:end])
        step.positions = list(range(position, end))
        step.ends = [end - position] * (end - position)
        step.blocks = [Block(0, end - position)]
        yield step
        path = (*path, *step.tokens)
        position = end


def _pack(subtrees: Sequence[_Node], path: tuple[int, ...], block_tokens: int) -> Step:
    """Return all tokens of the subtrees, depth first."""
    step = Step(path)
    stack = list(reversed(subtrees))
    start = 0
    before: tuple[tuple[int, int], ...] = ()
    while stack:
        node = stack.pop()
        index = len(step.tokens)
        if index - start >= block_tokens:
            step.blocks.append(Block(start, index, before))
            start, before = index, _ancestors(node, step)
        node.pieces.append((node.start, step, index))
        step.tokens.extend(node.row[node.start : node.end])
        step.positions.extend(range(node.start, node.end))
        step.ends.extend([index + node.size.tokens] * (node.end - node.start))
        stack.extend(reversed(node.children))
    step.blocks.append(Block(start, len(step.tokens), before))
    return step


def _ancestors(node: _Node, step: Step) -> tuple[tuple[int, int], ...]:
    """Return the spans of the node's ancestors in this step: of all tokens before the node, it and the nodes after it
    see these alone.
    """
    spans: list[tuple[int, int]] = []
    above = node.parent
    while above is not None and above.pieces and above.pieces[-1][1] is step:
        _, _, index = above.pieces[-1]
        spans.append((index, index + above.end - above.start))
        above = above.parent
    return tuple(reversed(spans))


def _place_targets(row: BatchRow, ending: _Node) -> None:
    """Note with each step which logprobs of the row's targets it gives."""
    length = len(row.tokens)
    for request, continuation in row.targets:
        node: _Node | None = ending
        end = length
        first = length - len(continuation)
        while node is not None and end > first:
            for start, step, index in reversed(node.pieces):
                begin = max(start, first)
                if begin < end:
                    step.wanted_at.extend(range(index + begin - start, index + end - start))
                    step.wanted_tokens.extend(continuation[begin - first : end - first])
                    step.wanted_by.extend([request] * (end - begin))
                    end = begin
            node = node.parent


@dataclass(frozen=True, slots=True)
class HeaderGroup:
    """Prompts (``members``, by index) that share their first ``num_tokens`` tokens; 0 if nothing is worth computing
    apart.
    """

    num_tokens: int
    members: tuple[int, ...]


def plan_headers(prompts: Sequence[tuple[int, ...]], *, min_tokens: int) -> list[HeaderGroup]:
    """Put each prompt into one group, so that headers save as many tokens as they can. Prompts may be equal, not empty.

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
    """Return ``(first, last, header)`` of groups of sorted prompts; ``shared[i]`` tokens are common to prompts i and i
    + 1.

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
    """Put all children under one header of ``length`` tokens, or leave each as it is."""
    first, last = children[0].first, children[-1].last
    together, apart = (last - first) * length, sum(child.saved for child in children)
    if apart > 1.25 * together:
        return _Span(first, last, apart, [group for child in children for group in child.groups])
    return _Span(first, last, together, [(first, last, length)])
