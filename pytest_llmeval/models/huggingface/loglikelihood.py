"""Computes log-likelihoods: by the tree of tokens if that is known to be right for the model, else plain.

Both ways take the same rows and fill the same responses; they differ in time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface.batches import BatchRow, plan_batches, plan_rows
from pytest_llmeval.models.huggingface.checkpoint import Attention, attention_of
from pytest_llmeval.models.huggingface.device import (
    empty_cache,
    is_out_of_memory,
    kept_bytes,
    tokens_in_memory,
    too_little_memory,
)
from pytest_llmeval.models.huggingface.forward import Logprobs, Outcome, Runner, score_rows, summed
from pytest_llmeval.models.huggingface.loading import quiet
from pytest_llmeval.models.huggingface.loglikelihood_tree import TreeScorer
from pytest_llmeval.models.huggingface.prefix_tree import Step, StepBudget

__all__ = ["Engine"]


_T = TypeVar("_T")
_SMALLEST_STEP = 16
"""Tokens of a step that is not divided: if so few do not fit into memory, their pieces will not fit either."""
_TREE_TOKENS_ON_CPU = 512
"""Tokens of a step. With a model of 124 million parameters, 384 to 1536 took the same time within a tenth."""
_BLOCK_TOKENS_ON_CPU = 144
"""Tokens of a block. With models of 124 and 135 million parameters, 96 took some 4% longer, and 256 no less."""
_BLOCK_TOKENS = 512
"""Tokens of a block: a call of attention costs more than some masked cells. On an H100, 128 took nearly twice as long
as 512 or more."""
_PLAIN_TOKENS_ON_CPU = 1024
"""Tokens of a batch. With models of 1 to 40 million parameters 512 to 2048 is fastest: activations fit the cache."""
_MAX_LOGITS_ON_CPU = 1 << 25
"""The most logits at once (positions x vocabulary): 128 MiB in float32."""
_MAX_LOGITS = 1 << 28
_RUNNABLE = frozenset({"sdpa", "eager"})
"""Attention code that takes a mask of any shape. Flash attention does not."""


def _attention_of(runner: Runner) -> Attention:
    """Return what a loaded model's class and config say of its attention, and of the way in which it was loaded."""
    model, config, parameters = runner.model, runner.model.config, runner.parameters
    attention = attention_of(config.to_dict())
    if attention.kind == "other":
        return attention
    problem = None
    if not type(model).__module__.startswith("transformers."):
        problem = f"{type(model).__name__} is not a class of transformers"
    elif missing := [name for name in ("position_ids", "logits_to_keep") if name not in parameters]:
        problem = f"{type(model).__name__} takes no {missing[0]}"
    elif not runner.cache_name:
        problem = f"{type(model).__name__} takes no cache"
    elif config._attn_implementation not in _RUNNABLE:
        problem = f"attn_implementation {config._attn_implementation} takes no mask"
    elif len(set(map(str, (getattr(model, "hf_device_map", None) or {}).values()))) > 1:
        problem = "the layers lie on several devices"
    return attention if problem is None else dataclasses.replace(attention, kind="other", reason=problem)


class Engine:
    """Scores the encoded requests of one model.

    ``requested`` is ``--llm-engine``: auto (or None), tree or plain. Without a batch size forward passes are filled up
    to a number of tokens that memory allows; out of memory halves it, and what was not computed is computed in smaller
    parts.
    """

    def __init__(self, runner: Runner, requested: str | None = None) -> None:
        self._runner = runner
        self._model = model = runner.model
        self.attention = _attention_of(runner)
        self._rotary_is_stretched = self.attention.max_positions is not None
        self.name: Literal["tree", "plain"] = "plain"
        self.reason = "requested with --llm-engine plain"
        if requested == "tree" and self.attention.kind == "other":
            raise ModelError(
                f"--llm-engine tree: the tree cannot compute this model ({self.attention.reason}); use auto or plain"
            )
        if requested != "plain":
            self.name = "plain" if self.attention.kind == "other" else "tree"
            self.reason = self.attention.reason
        on_cpu = model.device.type == "cpu"
        vocabulary = getattr(model.config.get_text_config(), "vocab_size", None) or 1
        in_memory = tokens_in_memory(model)
        max_scored = max(1, (_MAX_LOGITS_ON_CPU if on_cpu else _MAX_LOGITS) // vocabulary)
        self._plain_tokens = _PLAIN_TOKENS_ON_CPU if on_cpu else in_memory
        self._budget = StepBudget(
            max_tokens=_TREE_TOKENS_ON_CPU if on_cpu else in_memory,
            max_scored=max_scored,
            max_rows=runner.batch_size,
            block_tokens=_BLOCK_TOKENS_ON_CPU if on_cpu else _BLOCK_TOKENS,
        )
        self._tree = TreeScorer(runner, self.attention, kept_bytes=kept_bytes(model.device))

    @contextlib.contextmanager
    def in_small_steps(self, max_tokens: int) -> Iterator[None]:
        """Have the tree work, in this context, as for a large call: on top of what is cached, in several blocks.

        Nothing is computed again, so that a short header is cached.
        """
        before = self._budget
        self._budget = dataclasses.replace(before, max_tokens=max_tokens, block_tokens=2, max_repeated=0)
        try:
            yield
        finally:
            self._budget = before
            self._tree.clear()

    def use_plain(self, reason: str) -> None:
        """Score everything plain from now on, and trust what is known of the model's attention no more."""
        self.name, self.reason = "plain", reason
        self.attention = dataclasses.replace(self.attention, kind="other", reason=reason)
        self._tree.clear()

    def score(
        self,
        pairs: Mapping[int, EncodedPair],
        *,
        plain: bool = False,
        alone: bool = False,
        on_scored: Callable[[Mapping[int, Outcome | RequestError]], None] | None = None,
    ) -> dict[int, Outcome | RequestError]:
        """Return the outcome of every pair, by its key. ``on_scored`` gets those of each batch as soon as they are
        known.

        One that is not a number may be computed again, with its neighbours.

        ``plain`` leaves the tree aside; ``alone`` also padding: every row is a forward pass of its own.
        """
        self._rotary_is_stretched = self.attention.max_positions is not None  # by texts that were written
        rows = self._plan(pairs)
        by_tree: list[BatchRow] = []
        by_plain = rows
        if self.name == "tree" and not plain:
            limit = self.attention.max_positions or math.inf
            by_tree = [row for row in rows if len(row.tokens) <= limit]
            by_plain = [row for row in rows if len(row.tokens) > limit]
        outcomes: dict[int, Outcome | RequestError] = {}

        def take(found: Mapping[int, Outcome | RequestError]) -> None:
            outcomes.update(found)
            if on_scored is not None:
                on_scored(found)

        self._score_by_tree(by_tree, outcomes, take)
        # In a packed row, what is not a number spreads to neighbours that are masked: nothing times NaN is NaN.
        poisoned = [row for row in by_tree if any(_is_nan(outcomes[request]) for request, _ in row.targets)]
        if poisoned:
            self._tree.clear()
            by_plain = [*by_plain, *poisoned]
        self._score_plain(by_plain, take, max_rows=1 if alone else self._runner.batch_size)
        return outcomes

    def _plan(self, pairs: Mapping[int, EncodedPair]) -> list[BatchRow]:
        return plan_rows(pairs.items())

    # The tree

    def _score_by_tree(
        self,
        rows: Sequence[BatchRow],
        outcomes: dict[int, Outcome | RequestError],
        take: Callable[[Mapping[int, Outcome | RequestError]], None],
    ) -> None:
        remaining = list(rows)
        budget = self._budget
        while remaining:
            requests = _Requests(remaining)
            with torch.inference_mode(), quiet(), self._tree.running():
                failed = self._run_steps(self._tree.steps(remaining, self._budget), requests, take)
            remaining = [row for row in remaining if any(request not in outcomes for request, _ in row.targets)]
            if failed is not None:
                remaining = self._after_out_of_memory(failed, remaining, outcomes, budget)

    def _run_steps(
        self,
        steps: Iterable[Step],
        requests: _Requests,
        take: Callable[[Mapping[int, Outcome | RequestError]], None],
    ) -> Step | None:
        """Run the steps; the one that the device had no memory for, if there was one, and none after it."""
        for step in steps:
            started = time.perf_counter()
            try:
                self._reset_rotary()
                logprobs = self._tree.run(step)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                return step
            take(requests.add(step, logprobs, time.perf_counter() - started))
        return None

    def _after_out_of_memory(
        self, step: Step, remaining: list[BatchRow], outcomes: dict[int, Outcome | RequestError], budget: StepBudget
    ) -> list[BatchRow]:
        """Score what remains in smaller steps; what does not fit into the smallest fails, and ``budget`` is tried
        again.
        """
        self._tree.clear()
        empty_cache()
        smaller = self._budget.halved()
        if smaller is not None and self._budget.max_tokens > _SMALLEST_STEP:
            self._budget = smaller
            return remaining
        # Nothing of it may be left to wait for, or this would never end.
        head = (*step.path, *(step.tokens if step.stays else ()))
        blamed = set(step.wanted_by)
        unfit = [
            row
            for row in remaining
            if (any(request in blamed for request, _ in row.targets) if blamed else row.tokens[: len(head)] == head)
        ]
        for row in unfit:
            for request, _ in row.targets:
                outcomes.setdefault(request, too_little_memory(self._model.device))
        self._budget = budget
        return [row for row in remaining if row not in unfit]

    # Plain

    def _score_plain(
        self,
        rows: Sequence[BatchRow],
        take: Callable[[Mapping[int, Outcome | RequestError]], None],
        *,
        max_rows: int | None,
    ) -> None:
        for part, equal_lengths in self._plain_parts(rows):
            lengths = self._lengths(part)
            for batch in plan_batches(
                lengths, max_rows=max_rows, max_tokens=self._plain_tokens, equal_lengths=equal_lengths
            ):
                found: dict[int, Outcome | RequestError] = {}
                for row, scored, seconds in _in_halves([part[i] for i in batch], self._run_plain, self._model.device):
                    found.update(_outcomes_of(row, scored, seconds))
                take(found)

    def _lengths(self, rows: Sequence[BatchRow]) -> list[int]:
        """Return what each row takes of a batch, in tokens."""
        return [len(row.tokens) for row in rows]

    def _plain_parts(self, rows: Sequence[BatchRow]) -> list[tuple[list[BatchRow], bool]]:
        """Return rows that may share a batch, and whether only those of one length may.

        Padding on the right comes after everything that is scored, so it disturbs no causal model, whatever its layers
        are; but rotary angles that follow the longest position of a call must not follow a neighbour's.
        """
        limit = self.attention.max_positions
        if limit is None:
            return [(list(rows), False)]
        below = [row for row in rows if len(row.tokens) <= limit]
        above = [row for row in rows if len(row.tokens) > limit]
        return [(below, False), (above, True)]

    def _run_plain(self, rows: Sequence[BatchRow]) -> list[list[Outcome]]:
        self._reset_rotary()
        limit = self.attention.max_positions
        self._rotary_is_stretched = limit is not None and any(len(row.tokens) > limit for row in rows)
        return score_rows(self._runner, rows, max_scored=self._budget.max_scored)

    def _reset_rotary(self) -> None:
        if self._rotary_is_stretched:
            self._rotary_is_stretched = False
            self._runner.forget_longest()


@dataclass(slots=True)
class _Request:
    """A request with the logprobs that are known; ``num_missing`` are still to come."""

    num_missing: int
    values: list[float] = field(default_factory=list)
    is_greedy: bool = True
    seconds: float = 0.0


class _Requests:
    """Gathers the logprobs of requests until each has all of its own."""

    def __init__(self, rows: Iterable[BatchRow]) -> None:
        self._waiting = {request: _Request(len(tokens)) for row in rows for request, tokens in row.targets}
        self._count = max(1, len(self._waiting))
        self._shared_seconds = 0.0

    def add(self, step: Step, logprobs: Logprobs, seconds: float) -> dict[int, Outcome]:
        """Add the logprobs of a step, and return the outcomes that are now known.

        The seconds of a step that no request asked for are shared by all requests.
        """
        asking = set(step.wanted_by)
        if not asking:
            self._shared_seconds += seconds
        for index in asking:
            self._waiting[index].seconds += seconds / len(asking)
        for index, value, is_top in zip(step.wanted_by, logprobs.values, logprobs.is_top, strict=True):
            request = self._waiting[index]
            request.values.append(value)
            request.num_missing -= 1
            request.is_greedy &= is_top
        finished = {index: self._waiting.pop(index) for index in asking if not self._waiting[index].num_missing}
        shared = self._shared_seconds / self._count
        return {
            index: Outcome(summed(request.values), request.is_greedy, request.seconds + shared)
            for index, request in finished.items()
        }


def _outcomes_of(
    row: BatchRow, scored: Sequence[Outcome] | RequestError, seconds: float
) -> dict[int, Outcome | RequestError]:
    """Return what the requests of one row got, which share its seconds."""
    requests = [request for request, _ in row.targets]
    if isinstance(scored, RequestError):
        return dict.fromkeys(requests, scored)
    share = seconds / len(requests)
    return {request: dataclasses.replace(one, seconds=share) for request, one in zip(requests, scored, strict=True)}


def _in_halves(
    batch: Sequence[_T], compute: Callable[[Sequence[_T]], Sequence[Any]], device: Any
) -> list[tuple[_T, Any, float]]:
    """Return ``(member, outcome, seconds)`` of a batch, halved as long as the device runs out of memory.

    The outcome of a member that does not fit alone is a ``RequestError``.
    """
    started = time.perf_counter()
    try:
        with torch.inference_mode(), quiet():
            outcomes = compute(batch)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    else:
        seconds = (time.perf_counter() - started) / len(batch)
        return [(member, outcome, seconds) for member, outcome in zip(batch, outcomes, strict=True)]
    # Outside of the handler, whose traceback would keep the failed batch's tensors alive.
    empty_cache()
    if len(batch) == 1:
        return [(batch[0], too_little_memory(device), 0.0)]
    middle = len(batch) // 2
    return _in_halves(batch[:middle], compute, device) + _in_halves(batch[middle:], compute, device)


def _is_nan(outcome: Outcome | RequestError) -> bool:
    return isinstance(outcome, Outcome) and math.isnan(outcome.loglikelihood)
