"""Which requests run together: values in, values out, no tensors.

A row is one input that the model reads. Requests whose input is the same (the same question and another one-token
answer, or the same request twice) share a row; rows of like length share a batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_llmeval.models.encoding import EncodedPair

__all__ = ["Row", "group_by", "plan_batches", "plan_decoder_rows", "plan_rows"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Row:
    """One input, and the continuations that are read off it.

    ``tokens`` is context + continuation without the last token. Each target is ``(request index, continuation)``: the
    logits at the row's last ``len(continuation)`` positions predict it. In an encoder-decoder model the encoder reads
    ``context``, and ``tokens``, which the decoder reads, begin with the token that starts a text instead.
    """

    tokens: tuple[int, ...]
    targets: tuple[tuple[int, tuple[int, ...]], ...]
    context: tuple[int, ...] = ()

    @property
    def first_scored(self) -> int:
        """The first position whose logits are needed."""
        return len(self.tokens) - max(len(continuation) for _, continuation in self.targets)


def plan_rows(pairs: Iterable[tuple[int, EncodedPair]]) -> list[Row]:
    """The distinct inputs of ``(request index, pair)``, in order of first appearance."""
    targets = group_by(((pair.context + pair.continuation)[:-1], (index, pair.continuation)) for index, pair in pairs)
    return [Row(tokens, tuple(members)) for tokens, members in targets.items()]


def plan_decoder_rows(pairs: Mapping[int, EncodedPair], start_token: int) -> list[Row]:
    """The distinct inputs of encoder and decoder (by request index), those of one context next to each other."""
    by_context = group_by((pair.context, (index, pair.continuation)) for index, pair in pairs.items())
    rows: list[Row] = []
    for context, members in by_context.items():
        by_input = group_by(((start_token, *target[1][:-1]), target) for target in members)
        rows.extend(Row(tokens, tuple(targets), context) for tokens, targets in by_input.items())
    return rows


def group_by(items: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Values by key, keys in order of first appearance."""
    groups: dict[_K, list[_V]] = {}
    for key, value in items:
        groups.setdefault(key, []).append(value)
    return groups


def plan_batches(
    lengths: Sequence[int],
    *,
    max_rows: int | None,
    max_tokens: int,
    equal_lengths: bool = False,
) -> list[list[int]]:
    """Indices of ``lengths`` (tokens per row) in batches, longest rows first.

    A batch holds at most ``max_rows`` rows where that is given, else at most ``max_tokens`` tokens after padding (a
    longer row is alone). The longest first: running out of memory shows at once. ``equal_lengths`` puts rows of one
    length together only, for models that padding would disturb. Rows of one length keep their order.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        if batches and not (equal_lengths and length != longest):
            rows = len(batches[-1]) + 1
            if (rows <= max_rows) if max_rows is not None else (rows * longest <= max_tokens):
                batches[-1].append(index)
                continue
        batches.append([index])
        longest = length
    return batches
