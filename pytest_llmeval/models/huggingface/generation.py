"""Writes texts, and decides which are written together.

Our own loop writes them where it is known to be right; else transformers' ``generate`` does, in padded batches, for any
model that transformers can run.

Both choose a row's next token in the same way (``generation_writer.py``), so that the choice changes no text.

Our own loop is one forward pass for each token, over the rows that are not done, for causal models of transformers
whose attention is known. Rows that are done leave, and texts that wait take their places (``generation_rows.py``; the
continuous batching of Orca, OSDI 2022). The header that prompts share is computed once, kept for later calls, and read
by all rows; each row's own part is padded on the left and masked, with explicit positions. If some layers attend to a
window only, a padded gap after the header would be silently wrong: whole prompts are padded.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import transformers

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface.batches import group_by, plan_batches
from pytest_llmeval.models.huggingface.checkpoint import Attention
from pytest_llmeval.models.huggingface.device import empty_cache, is_out_of_memory, kept_bytes, too_little_memory
from pytest_llmeval.models.huggingface.forward import Runner, padded
from pytest_llmeval.models.huggingface.generation_rows import (
    Header,
    Rows,
    RowsCache,
    RowsCall,
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
from pytest_llmeval.models.huggingface.loading import quiet
from pytest_llmeval.models.huggingface.prefix_tree import HeaderGroup, common_length, plan_headers

__all__ = [
    "MIN_HEADER_TOKENS",
    "RowsWriter",
    "Text",
    "TextEngine",
    "Written",
    "can_drive",
    "clean_generation_config",
    "generate_rows",
]


_LOG = logging.getLogger("pytest_llmeval")

MIN_HEADER_TOKENS = 32
"""The shortest header that is read by itself: a shorter one costs about what it saves."""
_NUM_HEADERS_KEPT = 2
"""Room for one suite's header, and that of the suite or subject which takes turns with it, if memory allows."""
_PREFILL_TOKENS = {"cpu": 1024}
_PREFILL_TOKENS_ELSEWHERE = 16384


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
        """Return how much of ``prompt`` a kept header holds; 0 if that is not worth its while."""
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
        call = RowsCall(rows, owns, writers, num_rows=num_rows, seconds=seconds, on_finished=on_finished)
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


Written: TypeAlias = tuple[Generated | RequestError, float]
"""A text and the seconds that it took: its share of the time of the texts it was written with."""

_MAX_CACHE_BYTES_ON_CPU = 2 << 30
_MAX_ROWS_ON_CPU = 64
"""Rows on the CPU. With a GPT-2 of 124 million parameters 32 rows cost 5.9 ms of one core per token, 64 4.9, 128 4.1.
"""
_MAX_ROWS = 512


@dataclass(frozen=True, slots=True)
class Text:
    """One text to write: its prompt (tokens), and how."""

    prompt: tuple[int, ...]
    plan: GenerationPlan

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens of the prompt and of what is written at most."""
        return len(self.prompt) + self.plan.max_tokens


@dataclass(frozen=True, slots=True)
class _Batch:
    """Texts (indices) that are written together, ``num_rows`` at a time, after a common header."""

    members: list[int]
    num_rows: int
    num_header_tokens: int = 0


class TextEngine:
    """Writes the texts of one model.

    Without a batch size there are as many rows at a time as memory for keys and values allows; out of memory halves
    them. Rows of several lengths are written together where the model takes padding. ``max_tokens`` is what rows may
    hold, prompts (without what they share) and texts together. ``refill``: where our own loop writes, a text that ended
    makes room for the next one; else the rows of a batch begin together.
    """

    def __init__(self, runner: Runner, attention: Attention, *, refill: bool = True) -> None:
        self._runner = runner
        self._attention = attention
        self._device = runner.model.device
        self._refill = refill
        self._max_rows = _MAX_ROWS_ON_CPU if self._device.type == "cpu" else _MAX_ROWS
        self.rows_writer = RowsWriter(runner, attention) if can_drive(runner, attention) else None
        self.max_tokens = _max_tokens_written(runner, is_driven=self.rows_writer is not None)

    def write(
        self,
        texts: Sequence[Text],
        *,
        on_finished: Callable[[int, Written], None] | None = None,
    ) -> list[Written]:
        """Return what was written for each text, in order. ``on_finished`` gets each, with its index, as soon as it has
        ended.

        A text's seconds are its share of those in which its prompt was read, and of those of each of its tokens.
        """
        results: dict[int, Written] = {}

        def finish(index: int, outcome: Generated | RequestError) -> None:
            results[index] = (outcome, outcome.seconds if isinstance(outcome, Generated) else 0.0)
            if on_finished is not None:
                on_finished(index, results[index])

        for batch in self._batches(texts):
            num_rows = batch.num_rows
            while waiting := [i for i in batch.members if i not in results]:
                num_rows = min(num_rows, len(waiting))
                if self._fits(texts, replace(batch, members=waiting, num_rows=num_rows), finish):
                    break
                if num_rows > 1:
                    num_rows //= 2
                    continue
                finish(next(i for i in waiting if i not in results), too_little_memory(self._device))
                num_rows = batch.num_rows  # it was that text; the others may fit together
        return [results[i] for i in range(len(texts))]

    def _fits(
        self, texts: Sequence[Text], batch: _Batch, on_finished: Callable[[int, Generated | RequestError], None]
    ) -> bool:
        """Write a batch; False if the device ran out of memory before all of it was written."""

        def tell(place: int, generated: Generated) -> None:
            on_finished(batch.members[place], generated)

        try:
            with torch.inference_mode(), quiet():
                self._compute([texts[i] for i in batch.members], batch, tell)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            return True
        empty_cache()  # outside of the handler, whose traceback would keep the failed rows' tensors alive
        return False

    def _batches(self, texts: Sequence[Text]) -> list[_Batch]:
        # Rotary angles that follow the longest position of a call must not follow a neighbour's.
        above = [i for i, text in enumerate(texts) if self._reaches_switch(text)]
        below = [i for i, text in enumerate(texts) if not self._reaches_switch(text)]
        parts = _of_equal_lengths(texts, above)
        if self.rows_writer is None:
            parts += [below] if self._runner.takes_padding else _of_equal_lengths(texts, below)
        batches = [batch for part in parts for batch in self._begun_together(texts, part, 0)]
        if self.rows_writer is None:
            return batches
        with torch.inference_mode(), quiet():
            groups = self.rows_writer.plan([texts[i].prompt for i in below])
        plan = self._refilled if self._refill else self._begun_together
        for group in groups:
            batches += plan(texts, [below[k] for k in group.members], group.num_tokens)
        return batches

    def _reaches_switch(self, text: Text) -> bool:
        """Return whether the text may grow so long that the angles of all its tokens change, for which transformers
        cares.
        """
        limit = self._attention.max_positions
        return limit is not None and text.num_tokens > limit

    def _begun_together(self, texts: Sequence[Text], members: Sequence[int], num_header_tokens: int) -> list[_Batch]:
        """Return batches of as many texts as there are rows."""
        least = self.max_tokens // self._max_rows
        planned = plan_batches(
            [max(least, texts[i].num_tokens - num_header_tokens) for i in members],
            max_rows=self._runner.batch_size,
            max_tokens=self.max_tokens,
        )
        return [_Batch([members[place] for place in batch], len(batch), num_header_tokens) for batch in planned]

    def _refilled(self, texts: Sequence[Text], members: Sequence[int], num_header_tokens: int) -> list[_Batch]:
        """Return batches of texts that wait for a row, the longest first: running out of memory shows at once.

        A batch ends where the texts that follow are so short that there can be twice as many rows.
        """
        lengths = {i: texts[i].num_tokens - num_header_tokens for i in members}
        batches: list[_Batch] = []
        for i in sorted(members, key=lambda i: -lengths[i]):
            fitting = self.max_tokens // num_columns(lengths[i], refilled=True)
            num_rows = max(1, min(self._runner.batch_size or self._max_rows, fitting))
            if batches and num_rows < 2 * batches[-1].num_rows:
                batches[-1].members.append(i)
            else:
                batches.append(_Batch([i], num_rows, num_header_tokens))
        return batches

    def _compute(self, texts: Sequence[Text], batch: _Batch, on_finished: Callable[[int, Generated], None]) -> None:
        prompts, plans = [text.prompt for text in texts], [text.plan for text in texts]
        if self._attention.max_positions is not None:  # a short text makes transformers forget the longest one so far
            self._runner.forget_longest()
        if self.rows_writer is None or any(map(self._reaches_switch, texts)):
            for first in range(0, len(texts), batch.num_rows):
                part = slice(first, first + batch.num_rows)

                def tell(row: int, generated: Generated, first: int = first) -> None:
                    on_finished(first + row, generated)

                generate_rows(self._runner, prompts[part], plans[part], on_finished=tell)
            return
        try:
            self.rows_writer.write(
                prompts,
                plans,
                num_header_tokens=batch.num_header_tokens,
                num_rows=batch.num_rows,
                on_finished=on_finished,
            )
        except Exception:
            self.rows_writer.forget()  # memory, should it have been that
            raise


def _of_equal_lengths(texts: Sequence[Text], members: Sequence[int]) -> list[list[int]]:
    by_length = group_by((len(texts[i].prompt), i) for i in members)
    return [by_length[length] for length in sorted(by_length, reverse=True)]


def _max_tokens_written(runner: Runner, *, is_driven: bool) -> int:
    """Return how many tokens a batch may hold with keys and values: 2 GiB on the CPU, elsewhere three times what may be
    kept.
    """
    model = runner.model
    limit = _MAX_CACHE_BYTES_ON_CPU if model.device.type == "cpu" else 3 * kept_bytes(model.device)
    return max(1, limit // ((_bytes_found(runner) if is_driven else None) or _bytes_by_config(model)))


def _bytes_found(runner: Runner) -> int | None:
    """Return the bytes of one token's keys and values, found by reading one; None if there is no memory for it.

    Not every config says it: heads may share one key, or what is kept may be smaller than keys and values are.
    """
    model = runner.model
    try:
        with torch.inference_mode(), quiet():
            token = torch.zeros((1, 1), dtype=torch.long, device=model.device)
            layers = model(input_ids=token, use_cache=True)[runner.cache_name].layers
            kept: list[torch.Tensor] = [one for layer in layers for one in (layer.keys, layer.values)]
            return sum(one.numel() * one.element_size() for one in kept)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return None


def _bytes_by_config(model: Any) -> int:
    """Return the bytes of one token's keys and values in all layers, as they mostly are; at least one byte."""
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


# transformers' own loop


def clean_generation_config(runner: Runner) -> transformers.GenerationConfig:
    """Return what a model generates by when the request says all: no sampling, penalties or lengths of its author's."""
    create: Any = transformers.GenerationConfig  # untyped, while the rest of transformers is typed
    config: transformers.GenerationConfig = create(
        do_sample=False, num_beams=1, eos_token_id=list(runner.ends) or None, pad_token_id=runner.pad_token
    )
    return config


def generate_rows(
    runner: Runner,
    prompts: Sequence[tuple[int, ...]],
    plans: Sequence[GenerationPlan],
    *,
    on_finished: Callable[[int, Generated], None] | None = None,
) -> list[Generated]:
    """Return what the model writes after each prompt (tokens) by its plan, in order.

    Prompts are padded and masked. ``on_finished`` gets the index of each row when its text has ended, and the text.
    """
    model = runner.model
    input_ids, mask = padded(prompts, runner.pad_token, on_left=not runner.pads_right)
    config = clean_generation_config(runner)
    config.max_new_tokens = max(plan.max_tokens for plan in plans)
    for name, value in runner.generation_settings.items():
        setattr(config, name, value)
    start = runner.generation_settings.get("decoder_start_token_id")  # the reply of a decoder begins with it alone
    rows = [
        Writer(runner.tokenizer, prompt, plan, runner.ends, before=None if start is None else (start,))
        for prompt, plan in zip(prompts, plans, strict=True)
    ]
    seconds = Seconds()
    results: dict[int, Generated] = {}

    def end(place: int) -> None:
        results[place] = rows[place].result(*seconds.end(place))
        if on_finished is not None:
            on_finished(place, results[place])

    model.generate(
        input_ids=input_ids.to(model.device),
        attention_mask=mask.to(model.device),
        generation_config=config,
        stopping_criteria=transformers.StoppingCriteriaList([_Writers(rows, end)]),
        logits_processor=transformers.LogitsProcessorList([_Chooser(rows, seconds)]),
    )
    for place in range(len(rows)):
        if place not in results:  # ``generate`` has limits of its own
            end(place)
    return [results[place] for place in range(len(rows))]


class _Chooser(transformers.LogitsProcessor):
    """Leaves one token in each row's logits, ours, for ``generate`` to find: it has one generator for a whole call."""

    def __init__(self, rows: Sequence[Writer], seconds: Seconds) -> None:
        self._rows = rows
        self._seconds = seconds
        self._has_begun = False

    def __deepcopy__(self, memo: dict[int, Any]) -> _Chooser:
        return self

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = torch.tensor(choose_tokens(scores, self._rows), device=scores.device)
        if not self._has_begun:
            self._has_begun = True
            self._seconds.read(range(len(self._rows)))
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class _Writers(transformers.StoppingCriteria):
    """Gives each row its token, and tells ``generate`` which rows are done."""

    def __init__(self, rows: Sequence[Writer], on_finished: Callable[[int], None]) -> None:
        self._rows = rows
        self._on_finished = on_finished
        self._finished: set[int] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Writers:
        return self

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        for i, (row, token) in enumerate(zip(self._rows, input_ids[:, -1].tolist(), strict=True)):
            row.add(token)
            if row.is_done and i not in self._finished:
                self._finished.add(i)
                self._on_finished(i)
        return torch.tensor([row.is_done for row in self._rows], device=input_ids.device)
