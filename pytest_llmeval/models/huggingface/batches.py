"""Decides which requests run together, and scores long texts window by window. No tensors.

A row is one input that the model reads. Requests whose input is the same (the same question and another one-token
answer, or the same request twice) share a row; rows of similar length share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.models.encoding import EncodedPair, rolling_windows, sum_of_windows
from pytest_llmeval.types import LoglikelihoodResponse, LoglikelihoodRollingRequest

__all__ = [
    "BatchRow",
    "group_by",
    "plan_batches",
    "plan_decoder_rows",
    "plan_rows",
    "score_texts",
]


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_Scored: TypeAlias = LoglikelihoodResponse | Failed


@dataclass(frozen=True, slots=True)
class BatchRow:
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
        """Return the first position whose logits are needed."""
        return len(self.tokens) - max(len(continuation) for _, continuation in self.targets)


def plan_rows(pairs: Iterable[tuple[int, EncodedPair]]) -> list[BatchRow]:
    """Return the distinct inputs of ``(request index, pair)``, in order of first appearance."""
    targets = group_by(((pair.context + pair.continuation)[:-1], (index, pair.continuation)) for index, pair in pairs)
    return [BatchRow(tokens, tuple(members)) for tokens, members in targets.items()]


def plan_decoder_rows(pairs: Mapping[int, EncodedPair], start_token: int) -> list[BatchRow]:
    """Return the distinct inputs of encoder and decoder (by request index), those of one context next to each other."""
    by_context = group_by((pair.context, (index, pair.continuation)) for index, pair in pairs.items())
    rows: list[BatchRow] = []
    for context, members in by_context.items():
        by_input = group_by(((start_token, *target[1][:-1]), target) for target in members)
        rows.extend(BatchRow(tokens, tuple(targets), context) for tokens, targets in by_input.items())
    return rows


def group_by(items: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Return the values by key, with the keys in order of first appearance."""
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
    """Return the indices of ``lengths`` (tokens per row) in batches, longest rows first.

    A batch holds at most ``max_rows`` rows if that is given, else at most ``max_tokens`` tokens after padding (a
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


_MAX_TOKENS_PLANNED = 1 << 20
"""The most tokens of windows that are scored in one call: a small stride makes many times the tokens of the texts."""


def score_texts(
    requests: Sequence[LoglikelihoodRollingRequest],
    *,
    encode: Callable[[str], tuple[int, tuple[int, ...]]],
    max_length: int | None,
    score: Callable[
        [Mapping[int, EncodedPair], Callable[[Mapping[int, _Scored]], None]],
        Mapping[int, _Scored],
    ],
    on_progress: Callable[[int, int], None] | None = None,
    on_finished: Callable[[Mapping[int, _Scored]], None] | None = None,
    max_tokens_planned: int = _MAX_TOKENS_PLANNED,
) -> list[_Scored]:
    """Return one response (or ``RequestError``) for each text: the sums over its windows.

    ``encode`` gives the token before a text, and the text's tokens; ``score`` returns an outcome for each window under
    its key, and gives them meanwhile to what it is passed, as they are known. ``on_progress`` is that of ``Backend``;
    texts count as the windows are done. ``on_finished`` gets each text that is done while others are not. A text
    without tokens has a log-likelihood of 0, as in lm-eval.
    """
    outcomes: list[list[_Scored]] = [[] for _ in requests]
    told: set[int] = set()

    def score_portion(windows: Sequence[tuple[int, EncodedPair]]) -> None:
        keys_of = group_by((index, key) for key, (index, _) in enumerate(windows))
        scored: dict[int, _Scored] = {}
        first, last = windows[0][0], windows[-1][0]

        def on_scored(found: Mapping[int, _Scored]) -> None:
            scored.update(found)
            if on_finished is not None:
                # The last text may go on in windows that have not been cut yet.
                untold = [index for index in range(last) if index not in told]
                done = [index for index in untold if all(key in scored for key in keys_of.get(index, ()))]
                told.update(done)
                own = {index: [scored[key] for key in keys_of.get(index, ())] for index in done}
                on_finished({index: _joined([*outcomes[index], *own[index]]) for index in done})
            if on_progress is not None:
                on_progress(first + (last + 1 - first) * len(scored) // len(windows), len(requests))

        found = score(dict(enumerate(pair for _, pair in windows)), on_scored)
        for key, (index, _) in enumerate(windows):
            outcomes[index].append(found[key])

    for windows in _portions(requests, encode, max_length, outcomes, max_tokens_planned):
        score_portion(windows)
    return [_joined(own) for own in outcomes]


def _portions(
    requests: Sequence[LoglikelihoodRollingRequest],
    encode: Callable[[str], tuple[int, tuple[int, ...]]],
    max_length: int | None,
    outcomes: Sequence[list[_Scored]],
    max_tokens: int,
) -> Iterator[list[tuple[int, EncodedPair]]]:
    """Return ``(request, window)`` of all texts, in portions of up to ``max_tokens`` tokens; errors go to
    ``outcomes``.
    """
    portion: list[tuple[int, EncodedPair]] = []
    size = 0
    for index, request in enumerate(requests):
        try:
            prefix_token, tokens = encode(request.text)
            windows = rolling_windows(tokens, prefix_token=prefix_token, max_length=max_length, stride=request.stride)
        except RequestError as error:
            outcomes[index].append(error)
            continue
        for pair in windows:
            length = len(pair.context) + len(pair.continuation)
            if portion and size + length > max_tokens:
                yield portion
                portion, size = [], 0
            portion.append((index, pair))
            size += length
    if portion:
        yield portion


def _joined(outcomes: Sequence[_Scored]) -> _Scored:
    """Return the outcome of a text: the first error of its windows, else the sums."""
    windows: list[LoglikelihoodResponse] = []
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            return outcome
        windows.append(outcome)
    return sum_of_windows(windows)
