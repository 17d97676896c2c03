"""Writing texts row by row in batches: one forward pass for each token, over the rows that are not done.

For causal models of transformers whose attention is known. The header that prompts share is computed once, kept for
later calls, and read by all rows; each row's own part is padded on the left and masked, with explicit positions. Where
some layers attend to a window only, a padded gap after the header would be silently wrong: whole prompts are padded.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_llmeval.models.huggingface.architectures import Attention
from pytest_llmeval.models.huggingface.device import kept_bytes
from pytest_llmeval.models.huggingface.errors import is_out_of_memory
from pytest_llmeval.models.huggingface.generation.cache import Header, RowsCache, reading_headers
from pytest_llmeval.models.huggingface.generation.writer import Generated, GenerationPlan, Writer, choose_tokens
from pytest_llmeval.models.huggingface.loglikelihood.plain import padded
from pytest_llmeval.models.huggingface.planning.batches import group_by
from pytest_llmeval.models.huggingface.planning.prefix_tree import common_length
from pytest_llmeval.models.huggingface.planning.shared_headers import HeaderGroup, plan_headers
from pytest_llmeval.models.huggingface.runner import Runner

__all__ = ["MIN_HEADER_TOKENS", "RowsWriter", "can_drive"]

_LOG = logging.getLogger("pytest_llmeval")

MIN_HEADER_TOKENS = 32
"""Below this, reading the header by itself costs about what it saves."""
_NUM_HEADERS_KEPT = 2
"""One suite's, and that of the suite or subject which takes turns with it; the second only as memory allows."""
_PREFILL_TOKENS = {"cpu": 1024}
_PREFILL_TOKENS_ELSEWHERE = 16384
_ATTENDED_TO_READ = 16
"""Keys that may be spread out, for each token that may be read."""


def can_drive(runner: Runner, attention: Attention) -> bool:
    """Whether ``RowsWriter`` can run it: a causal class of transformers whose past is its attention's alone."""
    return (
        attention.kind in ("full", "windowed")
        and type(runner.model).__module__.startswith("transformers.models.")
        and bool(runner.takes_padding)
        and not getattr(runner.model.config, "is_encoder_decoder", False)
        and {"input_ids", "attention_mask", "past_key_values", "use_cache"} <= set(runner.parameters)
    )


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
        """Which of ``prompts`` are written after which header: one that they share, or one that is kept."""
        if not self.shares_headers:
            return [HeaderGroup(0, tuple(range(len(prompts))))]
        groups = plan_headers(prompts, min_tokens=MIN_HEADER_TOKENS)
        shared = [group for group in groups if group.num_tokens]
        if shared and not self._agrees([prompts[i] for i in shared[0].members], shared[0].num_tokens):
            self.shares_headers = False
            return self.plan(prompts)
        alone = [i for group in groups if not group.num_tokens for i in group.members]
        by_header = group_by((prompts[i][: self._num_kept_tokens(prompts[i])], i) for i in alone)
        return [*shared, *(HeaderGroup(len(header), tuple(members)) for header, members in by_header.items())]

    def _num_kept_tokens(self, prompt: tuple[int, ...]) -> int:
        """How much of ``prompt`` a kept header holds; 0 where that is not worth its while."""
        longest = max((min(common_length(kept.tokens, prompt), len(prompt) - 1) for kept in self.kept), default=0)
        return longest if longest >= MIN_HEADER_TOKENS else 0

    def write(
        self,
        prompts: Sequence[tuple[int, ...]],
        plans: Sequence[GenerationPlan],
        *,
        num_header_tokens: int = 0,
        on_finished: Callable[[int, Generated], None] | None = None,
    ) -> list[Generated]:
        """What the model writes after each prompt (tokens) by its plan, in order.

        The prompts share their first ``num_header_tokens``, and each has more than that. ``on_finished`` is called with
        the index of each row when its text has ended, and the text.
        """
        started, prefill_s = time.perf_counter(), None
        header = self._header(prompts[0][:num_header_tokens]) if num_header_tokens else None
        skip = len(header.tokens) if header is not None else 0
        writers = [
            Writer(self.runner.tokenizer, prompt, plan, self.runner.ends)
            for prompt, plan in zip(prompts, plans, strict=True)
        ]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        batch = _Batch(self, [prompts[i][skip:] for i in order], max(plan.max_tokens for plan in plans), header)
        with reading_headers(self.runner) if header is not None else contextlib.nullcontext():
            logits = batch.read_prompts()
            while True:
                active = [writers[i] for i in order]
                chosen = choose_tokens(logits, active)
                if prefill_s is None:  # tokens are numbers here: the device has done what it was asked to do
                    prefill_s = (time.perf_counter() - started) / len(prompts)
                for writer, token in zip(active, chosen, strict=True):
                    writer.add(token)
                for place in reversed([place for place, writer in enumerate(active) if writer.is_done]):
                    if on_finished is not None:
                        on_finished(order[place], active[place].result(prefill_s))
                    batch.drop(place)
                    order[place], chosen[place] = order[-1], chosen[-1]
                    order.pop()
                    chosen.pop()
                if not order:
                    return [writer.result(prefill_s) for writer in writers]
                logits = batch.read(chosen)

    def _agrees(self, prompts: Sequence[tuple[int, ...]], num_header_tokens: int) -> bool:
        """Whether the beginnings of two prompts give the same with a header and without; computed once."""
        if self._is_checked:
            return True
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
            _LOG.warning("texts are written without a shared header: its check failed", exc_info=error)
            return False
        alone = torch.cat([self._two_steps([(*header_tokens, *rest)], None) for rest in rests])
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.1
        self._is_checked = True
        return torch.allclose(shared, alone, atol=tolerance)

    def _two_steps(self, rests: list[tuple[int, ...]], header: Header | None) -> torch.Tensor:
        """Probabilities after all but the last token of each, and after the last."""
        order = sorted(range(len(rests)), key=lambda i: len(rests[i]))
        batch = _Batch(self, [rests[i][:-1] for i in order], 2, header)
        steps = [batch.read_prompts(), batch.read([rests[i][-1] for i in order])]
        found = torch.stack([step.float().softmax(-1) for step in steps], dim=1)
        return found[torch.tensor(order).argsort()]

    def _header(self, tokens: tuple[int, ...]) -> Header:
        """The header ``tokens`` from those that are kept, else computed, from where they end, and kept."""
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
        """Keys and values of ``tokens``, whose beginning may be ``known``."""
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
        """The logits after the last column, (rows, vocabulary)."""
        device = self.model.device
        logits: torch.Tensor = self.model(
            input_ids=input_ids.to(device),
            position_ids=position_ids.to(device),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **self._last_only,
            **({} if header is None else {"shared_header": header}),
        ).logits
        return logits[:, -1]


class _Batch:
    """Rows that are read together: their tokens after the header end in the same column, and padding comes before."""

    def __init__(
        self, writer: RowsWriter, rows: Sequence[tuple[int, ...]], max_tokens: int, header: Header | None
    ) -> None:
        self._writer = writer
        self._rows = rows
        self._header = header
        self._num_header = len(header.tokens) if header is not None else 0
        self._width = max(map(len, rows))
        capacity = self._width + max_tokens
        self._cache = RowsCache(len(rows), capacity, self._num_header)
        self._lengths = [self._num_header + len(row) for row in rows]
        self._num_read = self._width
        paddings = torch.tensor([self._width - len(row) for row in rows])
        attended = (torch.arange(capacity) >= paddings[:, None]).to(writer.model.device)
        self._is_padded = bool(paddings.any())
        if header is None:
            self._mask = attended.long()
        else:
            # Made once: what transformers makes of a mask at every token is this.
            least = torch.finfo(writer.model.dtype).min
            self._mask = torch.zeros(attended.shape, dtype=writer.model.dtype, device=writer.model.device)
            self._mask.masked_fill_(~attended, least)
        self._view: Any = None

    def read_prompts(self) -> torch.Tensor:
        """Logits after each prompt. Rows are in order of length, so that those read at once are padded little."""
        found = []
        first = 0
        while first < len(self._rows):
            last = first + 1
            while last < len(self._rows) and self._may_be_read_at_once(last + 1 - first, len(self._rows[last])):
                last += 1
            found.append(self._read_part(slice(first, last)))
            first = last
        return torch.cat(found)

    def _may_be_read_at_once(self, num_rows: int, width: int) -> bool:
        """Both what is computed and, in one layer at a time, what is attended to stay small."""
        most = self._writer.max_prefill
        return num_rows * width <= most and num_rows * (self._num_header + width) <= _ATTENDED_TO_READ * most

    def _read_part(self, part: slice) -> torch.Tensor:
        input_ids, is_real = padded(self._rows[part], self._writer.runner.pad_token, on_left=True)
        num_rows, width = input_ids.shape
        positions = (is_real.cumsum(-1) - 1).clamp(min=0) + self._num_header
        mask: torch.Tensor | None = None
        if self._header is not None and width > 1:  # a row of one token attends to all there is
            own = is_real[:, None].bool() & torch.ones(width, width, dtype=torch.bool).tril()
            mask = torch.cat([own.new_ones((num_rows, width, self._num_header)), own], dim=-1)[:, None]
        elif not bool(is_real.all()):
            mask = is_real
        view = self._cache.view(part, self._width - width, 0)
        logits = self._writer.forward(
            input_ids, positions, view, None if mask is None else mask.to(self._writer.model.device), self._header
        )
        self._cache.clear(part, self._width - width)
        return logits

    def drop(self, place: int) -> None:
        """Take a row out; the last row takes its place."""
        last = len(self._lengths) - 1
        if place != last:
            self._cache.move(last, place, self._num_read)
            self._mask[place] = self._mask[last]
            self._lengths[place] = self._lengths[last]
        self._lengths.pop()
        self._view = None

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits after one more token of each row."""
        num_rows = len(tokens)
        if self._view is None:
            self._view = self._cache.view(slice(0, num_rows), 0, self._num_read)
        self._num_read += 1
        mask: torch.Tensor | None = None
        if self._is_padded:
            mask = self._mask[:num_rows, : self._num_read]
            mask = mask[:, None, None] if self._header is not None else mask
        positions = torch.tensor(self._lengths)[:, None]
        self._lengths = [length + 1 for length in self._lengths]
        return self._writer.forward(torch.tensor(tokens)[:, None], positions, self._view, mask, self._header)
