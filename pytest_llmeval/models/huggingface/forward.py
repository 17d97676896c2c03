"""A model as the engines run it, log-likelihoods from its logits, and the plain path: padded batches, one forward
pass each.

The plain path is the reference for every faster one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from pytest_llmeval.models.encoding import Tokenizer
from pytest_llmeval.models.huggingface.batches import BatchRow

__all__ = ["Logprobs", "Outcome", "RowScores", "Runner", "logprobs_of", "padded", "score_rows", "summed"]


@dataclass(slots=True)
class Runner:
    """A model as the engines run it.

    ``batch_size`` is the most rows of a batch; None fills batches as far as memory allows.

    ``takes_padding``: padded rows give what they give alone; None asks the model's class whether padding on the left
    does that. ``pads_right``: prompts are padded on the right, where encoders expect it. ``generation_settings`` go
    into the config of transformers' ``generate``. ``ends`` are the tokens that end a text. ``parameters`` are those of
    the model's forward pass.
    """

    model: Any
    tokenizer: Tokenizer
    batch_size: int | None
    takes_padding: bool | None = None
    pads_right: bool = False
    generation_settings: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[int, ...] = field(init=False)
    pad_token: int = field(init=False)
    """A token for padding: it is masked, so any token that the model knows will do."""
    parameters: Mapping[str, inspect.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = tuple(_end_tokens(self.model, self.tokenizer))
        pad = getattr(self.tokenizer, "pad_token_id", None)
        self.pad_token = int(pad) if pad is not None else (self.ends[0] if self.ends else 0)
        self.parameters = inspect.signature(self.model.forward).parameters
        if self.takes_padding is None:  # positions can be given, and only attention, which is masked, reads the past
            self.takes_padding = "position_ids" in self.parameters and not getattr(self.model, "_is_stateful", False)

    @property
    def cache_name(self) -> str:
        """Return the parameter and the output that hold keys and values; empty if the forward pass has no such
        parameter.

        transformers 5.24 has renamed ``past_key_values`` to ``cache``.
        """
        return next((name for name in ("past_key_values", "cache") if name in self.parameters), "")

    @property
    def takes_attention(self) -> bool:
        """Return whether the model's attention function, sdpa, can be replaced by one that reads further arguments."""
        return (
            getattr(self.model.config, "_attn_implementation", None) == "sdpa"
            and bool(getattr(self.model, "_supports_attention_backend", False))
            and any(one.kind is one.VAR_KEYWORD for one in self.parameters.values())
        )

    @contextmanager
    def attending(self, name: str, attention: Callable[..., Any]) -> Iterator[None]:
        """Have the model attend, in this context, by ``attention``, registered with transformers under ``name``."""
        before = self.model.config._attn_implementation
        transformers.AttentionInterface.register(name, attention)
        self.model.set_attn_implementation(name)
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def forget_longest(self) -> None:
        """Let transformers forget the longest text so far, whose rotary angles it would lend to shorter ones.

        It forgets when it reads a text below the length from which the angles change.
        """
        pad = torch.tensor([[self.pad_token]], device=self.model.device)
        self.model(input_ids=pad, use_cache=False)


def _end_tokens(model: Any, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens that end a text: those of the checkpoint's generation config, else config; and the tokenizer's
    EOS.
    """
    declared = getattr(model.generation_config, "eos_token_id", None)
    if declared is None:
        declared = getattr(model.config, "eos_token_id", None)
    found = (*(declared if isinstance(declared, list | tuple) else [declared]), tokenizer.eos_token_id)
    return sorted({token for token in found if isinstance(token, int)})


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The logprobs of some tokens (``values``, in nats), and whether each token is the likeliest at its place."""

    values: list[float]
    is_top: list[bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The log-likelihood (nats) of one continuation, NaN if the logits are NaN, and the seconds that it took."""

    loglikelihood: float
    is_greedy: bool
    seconds: float = 0.0


def logprobs_of(logits: torch.Tensor, rows: Sequence[int], tokens: Sequence[int]) -> Logprobs:
    """Return the logprob of ``tokens[k]`` by ``logits[rows[k]]`` (positions x vocabulary), which are overwritten.

    A log-softmax in float32 whatever the model's dtype, computed only as far as the wanted numbers need it.
    """
    logits = logits.float()
    at = torch.tensor(rows, device=logits.device)
    wanted = torch.tensor(tokens, device=logits.device)
    top = logits.max(-1)
    logits.sub_(top.values[:, None])
    chosen = logits[at, wanted]
    normalizer = logits.exp_().sum(-1).log_()
    both = torch.stack([chosen - normalizer[at], (top.indices[at] == wanted).float()]).tolist()  # one transfer
    return Logprobs(both[0], [value == 1.0 for value in both[1]])


def padded(
    rows: Sequence[tuple[int, ...]], pad_token: int, *, on_left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens (rows, positions), padded on the right or on the left, and the mask that is 1 where they are."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), pad_token, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for i, row in enumerate(rows):
        own = slice(longest - len(row), longest) if on_left else slice(0, len(row))
        tokens[i, own] = torch.tensor(row)
        mask[i, own] = 1
    return tokens, mask


def score_rows(runner: Runner, rows: Sequence[BatchRow], *, max_scored: int) -> list[list[Outcome]]:
    """Score every target of every row in one forward pass.

    Rows are padded on the right and masked. A model that can leaves out the vocabulary projection where nothing is
    scored. Beyond ``max_scored`` positions the projection is made in pieces, so that memory does not grow with them.
    """
    model = runner.model
    input_ids, mask = padded([row.tokens for row in rows], runner.pad_token)
    first = min(row.first_scored for row in rows)
    num_kept = input_ids.shape[1] - first
    keep = {"logits_to_keep": num_kept} if "logits_to_keep" in runner.parameters else {}
    inputs = {"input_ids": input_ids.to(model.device), "attention_mask": mask.to(model.device), "use_cache": False}
    size = max(1, max_scored // len(rows))
    found = [RowScores(row, first) for row in rows]
    for start, logits in _logits(model, {**inputs, **keep}, num_kept=num_kept, size=size):
        for row_logits, of_row in zip(logits, found, strict=True):
            of_row.read(row_logits, start)
    return [of_row.scored() for of_row in found]


def _logits(model: Any, inputs: dict[str, Any], *, num_kept: int, size: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Return the logits (rows, positions, vocabulary) of the last ``num_kept`` positions, in pieces that start at a
    position.

    For more than one piece the model runs once, and what it would project is held back; then its head, and what the
    model does to logits afterwards, run on each piece, behind a forward pass over a single token.
    """
    head = model.get_output_embeddings()
    if num_kept <= size or head is None:
        yield 0, model(**inputs).logits[:, -num_kept:]
        return
    held: list[torch.Tensor] = []

    def hold(module: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        held.append(arguments[0][:, -num_kept:])
        return (arguments[0][:, -1:],)

    handle = head.register_forward_pre_hook(hold)
    try:
        model(**inputs)
    finally:
        handle.remove()
    (hidden,) = held
    for start in range(0, num_kept, size):
        piece = hidden[:, start : start + size]
        handle = head.register_forward_pre_hook(lambda module, arguments, piece=piece: (piece,))
        try:
            yield start, model(input_ids=inputs["input_ids"][:1, :1], use_cache=False).logits
        finally:
            handle.remove()


class RowScores:
    """The logprobs of one row's targets, from pieces of logits whose position 0 is the row's ``first``."""

    def __init__(self, row: BatchRow, first: int = 0) -> None:
        self._row = row
        self._first = first
        self._logprobs: list[tuple[list[float], list[bool]]] = [([], []) for _ in row.targets]

    def read(self, logits: torch.Tensor, start: int = 0) -> None:
        """Take what ``logits`` (positions, vocabulary) from position ``start`` on say; they are overwritten."""
        begin, length = self._first + start, len(self._row.tokens)
        at: list[int] = []
        tokens: list[int] = []
        counts = []
        for _, continuation in self._row.targets:
            scored_from = length - len(continuation)
            low, high = max(begin, scored_from), min(begin + len(logits), length)
            counts.append(max(0, high - low))
            at.extend(range(low - begin, high - begin))
            tokens.extend(continuation[low - scored_from : max(low, high) - scored_from])
        if not at:
            return
        logprobs = logprobs_of(logits, at, tokens)
        offset = 0
        for (values, is_top), count in zip(self._logprobs, counts, strict=True):
            values.extend(logprobs.values[offset : offset + count])
            is_top.extend(logprobs.is_top[offset : offset + count])
            offset += count

    def scored(self) -> list[Outcome]:
        """Return the targets, in order."""
        return [Outcome(summed(values), all(is_top)) for values, is_top in self._logprobs]


def summed(logprobs: Sequence[float]) -> float:
    """Return the exact sum. Minus infinity for a token that the model excludes; NaN where a logprob is none."""
    if any(math.isnan(logprob) or logprob == math.inf for logprob in logprobs):
        return math.nan
    return -math.inf if -math.inf in logprobs else math.fsum(logprobs)
