"""Log-likelihoods from logits, and the plain path: padded batches, one forward pass each.

The plain path is the reference for every faster one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_llmeval.models.planning import Row

__all__ = ["Logprobs", "Scored", "logprobs_of", "score_rows", "summed"]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """``values[k]`` in nats, and whether that token is the likeliest at its place."""

    values: list[float]
    is_top: list[bool]


@dataclass(frozen=True, slots=True)
class Scored:
    """``loglikelihood`` in nats of one continuation: NaN where the model's logits are."""

    loglikelihood: float
    is_greedy: bool


def logprobs_of(logits: torch.Tensor, rows: Sequence[int], tokens: Sequence[int]) -> Logprobs:
    """The logprob of ``tokens[k]`` by ``logits[rows[k]]`` (positions x vocabulary), which are overwritten.

    A log-softmax in float32 whatever the model's dtype, of which no more is computed than the numbers wanted need.
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


def score_rows(model: Any, rows: Sequence[Row], *, pad_token: int, takes_logits_to_keep: bool) -> list[list[Scored]]:
    """Every target of every row, scored in one forward pass.

    Rows are padded on the right and masked. ``takes_logits_to_keep``: the model can leave out the vocabulary projection
    where nothing is scored.
    """
    longest = max(len(row.tokens) for row in rows)
    first = min(row.first_scored for row in rows)
    input_ids = torch.full((len(rows), longest), pad_token, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for i, row in enumerate(rows):
        input_ids[i, : len(row.tokens)] = torch.tensor(row.tokens)
        mask[i, : len(row.tokens)] = 1
    keep = {"logits_to_keep": longest - first} if takes_logits_to_keep else {}
    logits = model(
        input_ids=input_ids.to(model.device), attention_mask=mask.to(model.device), use_cache=False, **keep
    ).logits
    logits = logits[:, -(longest - first) :]
    scored = []
    for row_logits, row in zip(logits, rows, strict=True):
        start, end = row.first_scored - first, len(row.tokens) - first
        scored.append(_read(row_logits[start:end], row))
    return scored


def _read(logits: torch.Tensor, row: Row) -> list[Scored]:
    """``logits`` of the row's last positions, as many as its longest continuation has."""
    at: list[int] = []
    tokens: list[int] = []
    for _, continuation in row.targets:
        at.extend(range(len(logits) - len(continuation), len(logits)))
        tokens.extend(continuation)
    logprobs = logprobs_of(logits, at, tokens)
    scored, offset = [], 0
    for _, continuation in row.targets:
        part = slice(offset, offset + len(continuation))
        scored.append(Scored(summed(logprobs.values[part]), all(logprobs.is_top[part])))
        offset += len(continuation)
    return scored


def summed(logprobs: Sequence[float]) -> float:
    """The exact sum. Minus infinity for a token that the model excludes; NaN where a logprob is none."""
    if any(math.isnan(logprob) or logprob == math.inf for logprob in logprobs):
        return math.nan
    return -math.inf if -math.inf in logprobs else math.fsum(logprobs)
