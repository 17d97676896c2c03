"""Writing texts row by row: one forward pass for each token, over the rows that are not done.

For causal models of transformers whose attention is known. Rows that are done leave, and texts that wait take their
places (``generation_rows.py``; the continuous batching of Orca, OSDI 2022). The header that prompts share is computed
once, kept for later calls, and read by all rows; each row's own part is padded on the left and masked, with explicit
positions. Where some layers attend to a window only, a padded gap after the header would be silently wrong: whole
prompts are padded.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_llmeval.models.huggingface.batches import group_by
from pytest_llmeval.models.huggingface.checkpoint import Attention
from pytest_llmeval.models.huggingface.device import is_out_of_memory, kept_bytes
from pytest_llmeval.models.huggingface.forward import Runner
from pytest_llmeval.models.huggingface.generation_rows import (
    Header,
    Rows,
    RowsCache,
    UnsupportedHeader,
    num_columns,
    reading_headers,
)
from pytest_llmeval.models.huggingface.generation_writer import (
    Generated,
    GenerationPlan,
    Seconds,
    Writer,
    choose_tokens,
)
from pytest_llmeval.models.huggingface.prefix_tree import HeaderGroup, common_length, plan_headers

__all__ = [
    "MIN_HEADER_TOKENS",
    "RowsWriter",
    "can_drive",
]


_LOG = logging.getLogger("pytest_llmeval")

MIN_HEADER_TOKENS = 32
"""Below this, reading the header by itself costs about what it saves."""
_NUM_HEADERS_KEPT = 2
"""One suite's, and that of the suite or subject which takes turns with it; the second only as memory allows."""
_PREFILL_TOKENS = {"cpu": 1024}
_PREFILL_TOKENS_ELSEWHERE = 16384
_REFILLED_PART = 8
"""Once an eighth of the rows is free, they are refilled: in between, what stands empty costs about what reading prompts
one by one would (with R rows and texts of L tokens, the least of both is where R * sqrt(2 / L) rows are free)."""


def can_drive(runner: Runner, attention: Attention) -> bool:
    """Return whether ``RowsWriter`` can run it: a causal class of transformers whose past is its attention's alone."""
    return (
        attention.kind in ("full", "windowed")
        and type(runner.model).__module__.startswith("transformers.models.")
        and bool(runner.takes_padding)
        and not getattr(runner.model.config, "is_encoder_decoder", False)
        and bool(runner.cache_name)
        and {"input_ids", "attention_mask", "use_cache"} <= set(runner.parameters)
    )


def _least_refilled(num_rows: int) -> int:
    return max(1, num_rows // _REFILLED_PART)


class _Call:
    """The texts of one call, by their indices: which wait, which have a row, and what those that ended say.

    ``owns`` are their prompts after the header.
    """

    def __init__(
        self,
        rows: Rows,
        owns: Sequence[tuple[int, ...]],
        writers: Sequence[Writer],
        *,
        num_rows: int,
        seconds: Seconds,
        on_finished: Callable[[int, Generated], None] | None,
    ) -> None:
        self.results: dict[int, Generated] = {}
        self._rows = rows
        self._owns = owns
        self._writers = writers
        self._num_rows = num_rows
        self._seconds = seconds
        self._on_finished = on_finished
        self._waiting = deque(range(len(owns)))
        self._written: list[int] = []
        """The text that each row writes."""
        self._tokens: list[int] = []
        """The next token of each row."""

    @property
    def has_more(self) -> bool:
        """Return whether a text is waited for."""
        return bool(self._waiting or self._written)

    def step(self) -> None:
        """Write one token for each row; or, where enough rows are free, the first one of those that get them."""
        num_free = self._num_rows - len(self._written)
        if self._waiting and num_free >= min(_least_refilled(self._num_rows), len(self._waiting)):
            self._begin(min(num_free, len(self._waiting)))
        else:
            self._tokens = self._choose(self._rows.read(self._tokens), self._written)
        self._end()

    def _begin(self, num_newcomers: int) -> None:
        self._seconds.write()
        newcomers = [self._waiting.popleft() for _ in range(num_newcomers)]
        newcomers.sort(key=lambda i: len(self._owns[i]))
        tokens = self._choose(self._rows.add([self._owns[i] for i in newcomers]), newcomers)
        self._seconds.read(newcomers)  # tokens are numbers: the device has done what it was asked to do
        self._rows.longest_to_come = max((len(self._owns[i]) for i in self._waiting), default=0)
        self._written += newcomers
        self._tokens += tokens

    def _choose(self, logits: torch.Tensor, members: Sequence[int]) -> list[int]:
        writers = [self._writers[i] for i in members]
        tokens = choose_tokens(logits, writers)
        for writer, token in zip(writers, tokens, strict=True):
            writer.add(token)
        return tokens

    def _end(self) -> None:
        """Take texts that are done out of their rows; the last row takes the place of each, as ``Rows.drop`` does
        it.
        """
        places = [place for place in reversed(range(len(self._written))) if self._writers[self._written[place]].is_done]
        for place in places:
            i = self._written[place]
            self.results[i] = self._writers[i].result(*self._seconds.end(i))
            if self._on_finished is not None:
                self._on_finished(i, self.results[i])
            self._written[place], self._tokens[place] = self._written[-1], self._tokens[-1]
            self._written.pop()
            self._tokens.pop()
        if places:
            self._rows.drop(places)


class RowsWriter:
    """Writes the texts of one model that ``can_drive`` allows, and keeps the headers that it has computed last.

    ``shares_headers`` says whether ``write`` may be given a header: attention is full in every layer, by a function
    that can be replaced, and the model was not found to disagree with itself (its first header).
    """

    def __init__(self, runner: Runner, attention: Attention) -> None:
        self.shares_headers = attention.kind == "full" and runner.takes_attention
        self.runner = runner
        self.model = model = runner.model
        self.kept: list[Header] = []
        """The headers that are kept, the last used first."""
        self._is_checked = False
        self._max_kept_bytes = kept_bytes(model.device)
        self.max_prefill = _PREFILL_TOKENS.get(model.device.type, _PREFILL_TOKENS_ELSEWHERE)
        self._last_only: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in runner.parameters else {}

    def forget(self) -> None:
        """Let go of the headers and their memory."""
        self.kept.clear()

    def plan(self, prompts: Sequence[tuple[int, ...]]) -> list[HeaderGroup]:
        """Return which of ``prompts`` are written after which header: one that they share, or one that is kept."""
        together = [HeaderGroup(0, tuple(range(len(prompts))))]
        if not self.shares_headers:
            return together
        groups = plan_headers(prompts, min_tokens=MIN_HEADER_TOKENS)
        shared = [group for group in groups if group.num_tokens]
        if shared and not self._is_checked:
            try:
                self.shares_headers = self._agrees([prompts[i] for i in shared[0].members], shared[0].num_tokens)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                return together  # which finds out whose text has no room; the next call checks again
            self._is_checked = True
            if not self.shares_headers:
                return together
        alone = [i for group in groups if not group.num_tokens for i in group.members]
        by_header = group_by((prompts[i][: self._num_kept_tokens(prompts[i])], i) for i in alone)
        return [*shared, *(HeaderGroup(len(header), tuple(members)) for header, members in by_header.items())]

    def _num_kept_tokens(self, prompt: tuple[int, ...]) -> int:
        """Return how much of ``prompt`` a kept header holds; 0 where that is not worth its while."""
        longest = max((min(common_length(kept.tokens, prompt), len(prompt) - 1) for kept in self.kept), default=0)
        return longest if longest >= MIN_HEADER_TOKENS else 0

    def write(
        self,
        prompts: Sequence[tuple[int, ...]],
        plans: Sequence[GenerationPlan],
        *,
        num_header_tokens: int = 0,
        num_rows: int | None = None,
        on_finished: Callable[[int, Generated], None] | None = None,
    ) -> list[Generated]:
        """Return what the model writes after each prompt (tokens) by its plan, in order.

        The prompts share their first ``num_header_tokens``, and each has more than that. At most ``num_rows`` are
        written at a time (None: all), the first ones first. ``on_finished`` is called with the index of each when its
        text has ended, and the text.
        """
        seconds = Seconds()
        header = self._header(prompts[0][:num_header_tokens]) if num_header_tokens else None
        owns = [prompt[num_header_tokens:] for prompt in prompts]
        writers = [
            Writer(self.runner.tokenizer, prompt, plan, self.runner.ends)
            for prompt, plan in zip(prompts, plans, strict=True)
        ]
        num_rows = min(num_rows or len(prompts), len(prompts))
        longest = max(len(own) + plan.max_tokens for own, plan in zip(owns, plans, strict=True))
        rows = Rows(
            self,
            header,
            num_rows=num_rows,
            num_columns=num_columns(longest, refilled=num_rows < len(prompts)),
            longest_prompt=max(map(len, owns)),
        )
        call = _Call(rows, owns, writers, num_rows=num_rows, seconds=seconds, on_finished=on_finished)
        with reading_headers(self.runner) if header is not None else contextlib.nullcontext():
            while call.has_more:
                call.step()
        return [call.results[i] for i in range(len(prompts))]

    def _agrees(self, prompts: Sequence[tuple[int, ...]], num_header_tokens: int) -> bool:
        """Return whether the beginnings of two prompts give the same with a header and without."""
        header_tokens = prompts[0][: min(num_header_tokens, 24)]
        own = [prompt[num_header_tokens:][:size] for prompt, size in zip(prompts, (3, 7), strict=False)]
        rests = [(*tokens, *header_tokens[:2]) for tokens in own]
        try:
            header = self._read_header(header_tokens)
            with reading_headers(self.runner):
                shared = self._two_steps(rests, header)
        except Exception as error:  # the model's code met what only we give it
            if is_out_of_memory(error):
                raise
            is_known = isinstance(error, UnsupportedHeader)
            _LOG.warning("texts are written without a shared header: %s", error, exc_info=None if is_known else error)
            return False
        alone = torch.cat([self._two_steps([(*header_tokens, *rest)], None) for rest in rests])
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.1
        return torch.allclose(shared, alone, atol=tolerance)

    def _two_steps(self, rests: list[tuple[int, ...]], header: Header | None) -> torch.Tensor:
        """Return probabilities after all but the last token of each, and after the last."""
        order = sorted(range(len(rests)), key=lambda i: len(rests[i]))
        longest = max(map(len, rests))
        rows = Rows(self, header, num_rows=len(rests), num_columns=longest, longest_prompt=longest - 1)
        steps = [rows.add([rests[i][:-1] for i in order]), rows.read([rests[i][-1] for i in order])]
        found = torch.stack([step.float().softmax(-1) for step in steps], dim=1)
        return found[torch.tensor(order).argsort()]

    def _header(self, tokens: tuple[int, ...]) -> Header:
        """Return the header ``tokens`` from those that are kept, else computed, from where they end, and kept."""
        best, length = None, 0
        for kept in self.kept:
            if (n := common_length(kept.tokens, tokens)) > length:
                best, length = kept, n
        others = [kept for kept in self.kept if kept is not best]
        if best is not None and length == len(tokens):
            self.kept = [best, *others]
            return best.cut(length)
        header = self._read_header(tokens, best.cut(length) if best is not None else None)
        if best is not None and length < 0.9 * len(best.tokens):  # else the new one serves as well
            others.insert(0, best)
        self.kept = [header]
        for other in others:
            if len(self.kept) < _NUM_HEADERS_KEPT and other.num_bytes + header.num_bytes <= self._max_kept_bytes:
                self.kept.append(other)
        return header

    def _read_header(self, tokens: tuple[int, ...], known: Header | None = None) -> Header:
        """Return keys and values of ``tokens``, whose beginning may be ``known``."""
        cache = RowsCache(1, len(tokens))
        begin = 0
        if known is not None:
            cache.fill(known)
            begin = len(known.tokens)
        for start in range(begin, len(tokens), self.max_prefill):
            part = torch.tensor([tokens[start : start + self.max_prefill]])
            positions = torch.arange(start, start + part.shape[1])[None]
            self.forward(part, positions, cache.view(slice(0, 1), 0, start), None)
        return cache.header(tokens)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cache: Any,
        mask: torch.Tensor | None,
        header: Header | None = None,
    ) -> torch.Tensor:
        """Return the logits after the last column, (rows, vocabulary)."""
        device = self.model.device
        logits: torch.Tensor = self.model(
            input_ids=input_ids.to(device),
            position_ids=position_ids.to(device),
            attention_mask=mask,
            use_cache=True,
            **{self.runner.cache_name: cache},
            **self._last_only,
            **({} if header is None else {"shared_header": header}),
        ).logits
        return logits[:, -1]
