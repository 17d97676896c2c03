"""How a model's texts are written: by our own loop where that is known to be right, else by transformers' ``generate``.

Here it is decided which texts share a batch. What is in a batch does not change what is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface.architectures import Attention
from pytest_llmeval.models.huggingface.device import kept_bytes
from pytest_llmeval.models.huggingface.generation.loop import RowsWriter, can_drive
from pytest_llmeval.models.huggingface.generation.transformers_generate import generate_rows
from pytest_llmeval.models.huggingface.generation.writer import Generated, GenerationPlan
from pytest_llmeval.models.huggingface.loading import quiet
from pytest_llmeval.models.huggingface.loglikelihood.engine import in_halves
from pytest_llmeval.models.huggingface.planning.batches import group_by, plan_batches
from pytest_llmeval.models.huggingface.runner import Runner

__all__ = ["Text", "TextEngine", "Written"]

Written: TypeAlias = tuple[Generated | RequestError, float]
"""One text and the seconds that it took: its share of its batch's."""

_MAX_CACHE_BYTES_ON_CPU = 1 << 30
_MAX_ROWS_ON_CPU = 64
"""Measured with a GPT-2 of 124 million parameters: 32 rows cost 5.9 ms of one core per token, 64 4.9, 128 4.1."""
_MAX_ROWS = 512


@dataclass(frozen=True, slots=True)
class Text:
    """One text to write: its prompt (tokens), and how."""

    prompt: tuple[int, ...]
    plan: GenerationPlan

    @property
    def num_tokens(self) -> int:
        """Prompt and what is written at most."""
        return len(self.prompt) + self.plan.max_tokens


class TextEngine:
    """Writes the texts of one model.

    Without a batch size batches are filled as far as memory for keys and values allows; out of memory halves a batch.
    Rows of several lengths share a batch where the model takes padding. ``max_tokens`` is what a batch may hold,
    prompts (without what they share) and texts together.
    """

    def __init__(self, runner: Runner, attention: Attention) -> None:
        self._runner = runner
        self._attention = attention
        self._device = runner.model.device
        self.max_tokens = _max_tokens_written(runner.model)
        self.rows_writer = RowsWriter(runner, attention) if can_drive(runner, attention) else None

    def write(
        self,
        texts: Sequence[Text],
        *,
        on_finished: Callable[[int, Written], None] | None = None,
    ) -> list[Written]:
        """What was written for each text, in order. ``on_finished`` gets each, with its index, as soon as it has ended.

        The rows of a batch that are not done share its seconds, so that a text's seconds are known at its end.
        """
        results: dict[int, Written] = {}

        def finish(index: int, outcome: Generated | RequestError, seconds: float) -> None:
            if index in results:  # written before its batch ran out of memory
                return
            results[index] = (outcome, seconds)
            if on_finished is not None:
                on_finished(index, results[index])

        for part, num_header_tokens, equal_lengths in self._parts(texts):
            for batch in self._batches([texts[i] for i in part], num_header_tokens, equal_lengths):

                def compute(members: Sequence[int], num_header_tokens: int = num_header_tokens) -> list[Generated]:
                    shares = _Shares(len(members))

                    def tell(row: int, generated: Generated) -> None:
                        finish(members[row], generated, shares.end_row())

                    return self._compute([texts[i] for i in members], num_header_tokens, tell)

                for i, outcome, seconds in in_halves([part[place] for place in batch], compute, self._device):
                    finish(i, outcome, seconds)
        return [results[i] for i in range(len(texts))]

    def _parts(self, texts: Sequence[Text]) -> list[tuple[list[int], int, bool]]:
        """Texts that may share batches: their indices, the tokens of their common header, whether only those of one
        length may.
        """
        # Rotary angles that follow the longest position of a call must not follow a neighbour's.
        above = [i for i, text in enumerate(texts) if self._reaches_switch(text)]
        below = [i for i, text in enumerate(texts) if not self._reaches_switch(text)]
        parts = [(above, 0, True)] if above else []
        if self.rows_writer is None:
            return [*parts, (below, 0, not self._runner.takes_padding)]
        with torch.inference_mode(), quiet():
            groups = self.rows_writer.plan([texts[i].prompt for i in below])
        return [*parts, *(([below[k] for k in group.members], group.num_tokens, False) for group in groups)]

    def _reaches_switch(self, text: Text) -> bool:
        """Whether the text may grow so long that the angles of all its tokens change, for which transformers cares."""
        limit = self._attention.max_positions
        return limit is not None and text.num_tokens > limit

    def _batches(self, texts: Sequence[Text], num_header_tokens: int, equal_lengths: bool) -> list[list[int]]:
        if equal_lengths:
            by_length = group_by((len(text.prompt), i) for i, text in enumerate(texts))
            groups = [by_length[length] for length in sorted(by_length, reverse=True)]
        else:
            groups = [list(range(len(texts)))]
        max_rows = _MAX_ROWS_ON_CPU if self._device.type == "cpu" else _MAX_ROWS
        least = self.max_tokens // max_rows
        return [
            [group[place] for place in batch]
            for group in groups
            for batch in plan_batches(
                [max(least, texts[i].num_tokens - num_header_tokens) for i in group],
                max_rows=self._runner.batch_size,
                max_tokens=self.max_tokens,
            )
        ]

    def _compute(
        self, texts: Sequence[Text], num_header_tokens: int, on_finished: Callable[[int, Generated], None]
    ) -> list[Generated]:
        prompts, plans = [text.prompt for text in texts], [text.plan for text in texts]
        if self._attention.max_positions is not None:  # a short text makes transformers forget the longest one so far
            self._runner.forget_longest()
        if self.rows_writer is None or any(map(self._reaches_switch, texts)):
            return generate_rows(self._runner, prompts, plans, on_finished=on_finished)
        try:
            return self.rows_writer.write(prompts, plans, num_header_tokens=num_header_tokens, on_finished=on_finished)
        except Exception:
            self.rows_writer.forget()  # memory, should it have been that
            raise


class _Shares:
    """The seconds of a batch, shared at each moment by the rows that are not done."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._last = time.perf_counter()
        self._share_s = 0.0

    def end_row(self) -> float:
        """What a row took that is done now."""
        now = time.perf_counter()
        self._share_s += (now - self._last) / self._num_rows
        self._last = now
        self._num_rows -= 1
        return self._share_s


def _max_tokens_written(model: Any) -> int:
    """Tokens whose keys and values a batch may hold: 1 GiB on the CPU, elsewhere three times what may be kept."""
    limit = _MAX_CACHE_BYTES_ON_CPU if model.device.type == "cpu" else 3 * kept_bytes(model.device)
    return max(1, limit // _bytes_per_token(model))


def _bytes_per_token(model: Any) -> int:
    """Memory that the keys and values of one token take in all layers; at least one byte."""
    config = model.config.get_text_config()
    hidden = getattr(config, "hidden_size", None) or 1024
    layers = getattr(config, "num_hidden_layers", None) or 32
    heads = getattr(config, "num_attention_heads", None) or 1
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or hidden // heads
    numbers = [layers, key_heads, width]
    if not all(isinstance(number, int) for number in numbers):  # one of each for every layer, in some configs
        numbers = [layers if isinstance(layers, int) else 32, 1, hidden]
    return max(1, 2 * numbers[0] * numbers[1] * numbers[2] * (torch.finfo(model.dtype).bits // 8))
