"""Rows whose tokens are read together, where rows leave when they are done and others come in their places.

All rows end in the same column, and padding comes before a row's beginning, so that every row writes its next token
into one column. Columns that no row needs any longer are not read; when the last column is reached, what is needed
moves back to the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from pytest_llmeval.models.huggingface.generation.cache import Header, RowsCache
from pytest_llmeval.models.huggingface.loglikelihood.plain import padded
from pytest_llmeval.models.huggingface.runner import Runner

__all__ = ["Reader", "Rows", "num_columns"]

_ATTENDED_TO_READ = 16
"""Keys that may be spread out, for each token that may be read."""


class Reader(Protocol):
    """The model as rows need it. ``max_prefill``: tokens of prompts that are read at once."""

    runner: Runner
    max_prefill: int

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cache: Any,
        mask: torch.Tensor | None,
        header: Header | None = None,
    ) -> torch.Tensor:
        """Return the logits after the last column, (rows, vocabulary)."""


def num_columns(longest: int, *, refilled: bool) -> int:
    """Columns for rows of up to ``longest`` tokens, prompt and text.

    Rows that are refilled get an eighth more, so that what is needed moves back once in so many tokens.
    """
    return longest + max(8, longest // 8) if refilled else longest


class Rows:
    """Up to ``num_rows`` rows of ``num_columns`` tokens after ``header``; prompts have up to ``longest_prompt``.

    ``longest_to_come`` is the length of the longest prompt that is still to be added.
    """

    def __init__(
        self, reader: Reader, header: Header | None, *, num_rows: int, num_columns: int, longest_prompt: int
    ) -> None:
        self._reader = reader
        self._header = header
        self._num_header = len(header.tokens) if header is not None else 0
        self._num_columns = num_columns
        self.longest_to_come = longest_prompt
        self._cache = RowsCache(num_rows, num_columns, self._num_header)
        self._starts: list[int] = []
        """The first column of each row."""
        self._begin = self._end = longest_prompt
        """The columns that are read: from the first one of any row to the last that was written."""
        model = reader.runner.model
        self._device, self._dtype = model.device, model.dtype
        self._mask: torch.Tensor | None = None
        self._view: Any = None

    def add(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Return logits after each of ``prompts`` (without the header), which are rows from now on.

        They are to be in order of length, so that those read at once are padded little.
        """
        num_before = len(self._starts)
        first_start = self._end - len(prompts[-1])
        if first_start < self._begin:
            self._cache.clear(slice(0, num_before), slice(first_start, self._begin))
            self._begin = first_start
        found = []
        first = 0
        while first < len(prompts):
            last = first + 1
            while last < len(prompts) and self._may_be_read_at_once(last + 1 - first, len(prompts[last])):
                last += 1
            found.append(self._read_prompts(prompts[first:last]))
            first = last
        self._settle()
        return torch.cat(found)

    def _may_be_read_at_once(self, num_rows: int, width: int) -> bool:
        """Both what is computed and, in one layer at a time, what is attended to stay small."""
        most = self._reader.max_prefill
        return num_rows * width <= most and num_rows * (self._num_header + width) <= _ATTENDED_TO_READ * most

    def _read_prompts(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        input_ids, is_real = padded(prompts, self._reader.runner.pad_token, on_left=True)
        num_rows, width = input_ids.shape
        positions = (is_real.cumsum(-1) - 1).clamp(min=0) + self._num_header
        mask: torch.Tensor | None = None
        if self._header is not None and width > 1:  # a row of one token attends to all there is
            own = is_real[:, None].bool() & torch.ones(width, width, dtype=torch.bool).tril()
            mask = torch.cat([own.new_ones((num_rows, width, self._num_header)), own], dim=-1)[:, None]
        elif not bool(is_real.all()):
            mask = is_real
        rows = slice(len(self._starts), len(self._starts) + num_rows)
        view = self._cache.view(rows, self._end - width, 0)
        logits = self._reader.forward(
            input_ids, positions, view, None if mask is None else mask.to(self._device), self._header
        )
        self._cache.clear(rows, slice(self._begin, self._end - width))
        self._starts += [self._end - len(prompt) for prompt in prompts]
        return logits

    def drop(self, places: Sequence[int]) -> None:
        """Take rows out, the last place first; each time the last row takes the place."""
        for place in places:
            last = len(self._starts) - 1
            if place != last:
                self._cache.move(last, place, slice(self._begin, self._end))
                self._starts[place] = self._starts[last]
            self._starts.pop()
        self._settle()

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return logits after one more token of each row."""
        if self._end == self._num_columns:
            self._move_back()
        if self._view is None:
            self._view = self._cache.view(slice(0, len(tokens)), self._begin, self._end - self._begin)
        positions = torch.tensor([self._end - start + self._num_header for start in self._starts])[:, None]
        self._end += 1
        mask = None
        if self._mask is not None:
            mask = self._mask[:, : self._end - self._begin]
            mask = mask[:, None, None] if self._header is not None else mask
        return self._reader.forward(torch.tensor(tokens)[:, None], positions, self._view, mask, self._header)

    def _move_back(self) -> None:
        """Free the last columns: prompts that are still to come fit before the new end."""
        end = max(self._end - self._begin, self.longest_to_come)
        moved = self._end - end
        self._cache.move_back(slice(0, len(self._starts)), slice(self._begin, self._end), moved)
        self._starts = [start - moved for start in self._starts]
        self._end = end
        self._settle()

    def _settle(self) -> None:
        """Compute what follows from the rows' beginnings."""
        self._view = self._mask = None
        self._begin = min(self._starts, default=self._end)
        starts = torch.tensor(self._starts)[:, None]
        if not bool((starts > self._begin).any()):
            return
        is_real = (torch.arange(self._begin, self._num_columns) >= starts).to(self._device)
        if self._header is None:
            self._mask = is_real.long()
        else:
            # Made once: what transformers makes of a mask at every token is this.
            self._mask = torch.zeros(is_real.shape, dtype=self._dtype, device=self._device)
            self._mask.masked_fill_(~is_real, torch.finfo(self._dtype).min)
