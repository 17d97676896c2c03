"""Decides which requests run together, and cuts texts longer than the model's context into windows. No tensors.

A row is one input that the model reads. Requests whose input is the same (the same question and another one-token
answer, or the same request twice) share a row; rows of similar length share a batch. In windows every token is scored
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.types import LoglikelihoodResponse, LoglikelihoodRollingRequest

__all__ = [
    "BatchRow",
    "Outcome",
    "group_by",
    "plan_batches",
    "plan_decoder_rows",
    "plan_rows",
    "rolling_windows",
    "score_texts",
    "sum_of_windows",
]


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


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


Outcome: TypeAlias = LoglikelihoodResponse | RequestError

_MAX_TOKENS_PLANNED = 1 << 20
"""The most tokens of windows that are scored in one call: a small stride makes many times the tokens of the texts."""


def score_texts(
    requests: Sequence[LoglikelihoodRollingRequest],
    *,
    encode: Callable[[str], tuple[int, tuple[int, ...]]],
    max_length: int | None,
    score: Callable[
        [Mapping[int, EncodedPair], Callable[[Mapping[int, Outcome]], None]],
        Mapping[int, Outcome],
    ],
    on_progress: Callable[[int, int], None] | None = None,
    on_finished: Callable[[Mapping[int, Outcome]], None] | None = None,
    max_tokens_planned: int = _MAX_TOKENS_PLANNED,
) -> list[Outcome]:
    """Return one response (or ``RequestError``) for each text: the sums over its windows.

    ``encode`` gives the token before a text, and the text's tokens; ``score`` returns an outcome for each window under
    its key, and gives them meanwhile to what it is passed, as they are known. ``on_progress`` is that of ``Backend``;
    texts count as the windows are done. ``on_finished`` gets each text that is done while others are not. A text
    without tokens has a log-likelihood of 0, as in lm-eval.
    """
    outcomes: list[list[Outcome]] = [[] for _ in requests]
    told: set[int] = set()

    def score_portion(windows: Sequence[tuple[int, EncodedPair]]) -> None:
        keys_of = group_by((index, key) for key, (index, _) in enumerate(windows))
        scored: dict[int, Outcome] = {}
        first, last = windows[0][0], windows[-1][0]

        def on_scored(found: Mapping[int, Outcome]) -> None:
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
    outcomes: Sequence[list[Outcome]],
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


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a text: the first error of its windows, else the sums."""
    windows: list[LoglikelihoodResponse] = []
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            return outcome
        windows.append(outcome)
    return sum_of_windows(windows)


def sum_of_windows(windows: Sequence[LoglikelihoodResponse]) -> LoglikelihoodResponse:
    """Return the log-likelihood of a text, from those of its windows. A text without tokens has 0, as in lm-eval."""
    return LoglikelihoodResponse(
        loglikelihood=math.fsum(window.loglikelihood for window in windows),
        num_tokens=sum(window.num_tokens for window in windows),
        is_greedy=bool(windows) and all(window.is_greedy for window in windows),
        num_context_tokens=1 if windows else 0,
        seconds=math.fsum(window.seconds for window in windows),
        is_timed=bool(windows) and all(window.is_timed for window in windows),
    )


def rolling_windows(
    tokens: tuple[int, ...], *, prefix_token: int, max_length: int | None, stride: int | None = None
) -> Iterator[EncodedPair]:
    """Return the windows of a text, in order: each scores its continuation, and these together are ``tokens``.

    The first window is up to ``max_length`` tokens after ``prefix_token``. Every later one scores the next ``stride``
    tokens (fewer at the end) after as much of the text as the model holds beside them. The model is fed a window
    without its last token, so one of ``max_length + 1`` tokens fits: a token has ``max_length - stride + 1`` before it
    at least, and the last window is as full as the others. ``stride`` None is ``max_length``: disjoint windows.

    These are ``get_rolling_token_windows`` of lm-eval 0.4.13 (``lm_eval/utils.py``) with ``max_seq_len=max_length``
    and ``context_len=max_length - stride + 1``; with ``stride`` None what its ``loglikelihood_rolling`` scores. With a
    stride they are the windows of the guide «Perplexity of fixed-length models» of transformers' documentation, but for
    its last window, which is shorter, and its first token, which it does not score.

    Raises ``RequestError`` for a stride that is not from 1 to ``max_length``, and where the model has no
    ``max_length``: the result depends on it, so it is not guessed.
    """
    if max_length is None:
        raise RequestError(
            "the size of the model's context is not known, and the windows of a long text depend on it; "
            "give --llm-model-arg max_length=N (lm-eval takes 2048)"
        )
    step = max_length if stride is None else stride
    if not 1 <= step <= max_length:
        raise RequestError(f"the stride is {stride}: expected a number from 1 to {max_length}, the size of the context")
    return _windows((prefix_token, *tokens), max_length, step)


def _windows(fed: tuple[int, ...], max_length: int, step: int) -> Iterator[EncodedPair]:
    start, end = 1, min(1 + max_length, len(fed))
    while start < end:
        yield EncodedPair(fed[max(0, end - max_length - 1) : start], fed[start:end])
        start, end = end, min(end + step, len(fed))
