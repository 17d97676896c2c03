"""The plain path for log-likelihoods: padded batches, one forward pass each. The reference for every faster path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_llmeval.models.planning import Row

__all__ = ["Scored", "score_rows"]


@dataclass(frozen=True, slots=True)
class Scored:
    """``loglikelihood`` in nats of one request's continuation: NaN where the model's logits are."""

    request: int
    loglikelihood: float
    is_greedy: bool


def score_rows(model: Any, rows: Sequence[Row], *, pad_token: int, takes_logits_to_keep: bool) -> list[Scored]:
    """Score every target of ``rows`` in one forward pass.

    Rows are padded on the right and masked. Logprobs are a log-softmax in float32 whatever the model's dtype, and their
    sum is exact. ``takes_logits_to_keep``: the model can leave out the vocabulary projection where nothing is scored.
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
    return _read(logits, rows, first)


def _read(logits: torch.Tensor, rows: Sequence[Row], first: int) -> list[Scored]:
    """``logits[i, p]`` follows position ``first + p`` of row ``i``."""
    gathered: list[torch.Tensor] = []
    greedy: list[torch.Tensor] = []
    spans: list[tuple[int, int]] = []
    for row_logits, row in zip(logits, rows, strict=True):
        start, end = row.first_scored - first, len(row.tokens) - first
        logprobs = row_logits[start:end].float().log_softmax(-1)
        top = logprobs.argmax(-1)
        for request, continuation in row.targets:
            tokens = torch.tensor(continuation, device=logits.device)
            gathered.append(logprobs[-len(continuation) :].gather(1, tokens[:, None])[:, 0])
            greedy.append(top[-len(continuation) :] == tokens)
            spans.append((request, len(continuation)))
    all_logprobs = torch.cat(gathered).tolist()  # one transfer from the device for the whole batch
    all_greedy = torch.cat(greedy).tolist()
    scored, offset = [], 0
    for request, length in spans:
        part = slice(offset, offset + length)
        scored.append(Scored(request, _sum(all_logprobs[part]), all(all_greedy[part])))
        offset += length
    return scored


def _sum(logprobs: list[float]) -> float:
    """Minus infinity for a token that the model excludes; NaN where a logprob is none."""
    if any(math.isnan(logprob) or logprob == math.inf for logprob in logprobs):
        return math.nan
    return -math.inf if -math.inf in logprobs else math.fsum(logprobs)
