"""Attention under a tree of tokens, block by block.

The subtrees that a step packs side by side see the path above them and nothing of each other. Attention over the whole
row computes what the mask then throws away; here each block of subtrees is a call of its own, over the path and itself.
The function stands in transformers' interface for attention functions, so that projections, rotary angles and scaling
stay the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pytest_llmeval.models.huggingface.runner import Runner

__all__ = ["attend_in_blocks", "in_blocks"]

_ATTENTION = "llmeval_tree"


def in_blocks(runner: Runner) -> AbstractContextManager[None]:
    """In this context the model's attention follows the ``tree_blocks`` that its forward pass is given.

    A model that does not pass them on attends to the whole row under the mask, which is as right.
    """
    return runner.attending(_ATTENTION, attend_in_blocks)


def attend_in_blocks(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    tree_blocks: Sequence[tuple[int, int]] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What sdpa gives for ``query`` (1, heads, tokens, width) under an additive mask (1, 1, tokens, cached + tokens).

    ``tree_blocks`` are spans of tokens that see the cached ones and those of their own span; None, or a single one: all
    is one call. Returns (1, tokens, heads, width).
    """

    def attend(start: int, end: int, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = sdpa_attention_forward(
            module, query[:, :, start:end], keys, values, mask, dropout, scaling, **kwargs
        )[0]
        return found

    if attention_mask is None or not tree_blocks or len(tree_blocks) == 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    num_cached = key.shape[2] - query.shape[2]
    parts = []
    for start, end in tree_blocks:
        own = slice(num_cached + start, num_cached + end)
        mask = attention_mask[:, :, start:end]
        if start == 0:
            parts.append(attend(start, end, key[:, :, : own.stop], value[:, :, : own.stop], mask[..., : own.stop]))
            continue
        parts.append(
            attend(
                start,
                end,
                torch.cat([key[:, :, :num_cached], key[:, :, own]], dim=2),
                torch.cat([value[:, :, :num_cached], value[:, :, own]], dim=2),
                torch.cat([mask[..., :num_cached], mask[..., own]], dim=3),
            )
        )
    return torch.cat(parts, dim=1), None
