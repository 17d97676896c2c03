"""One text while it is written: its settings, its stop strings, its own random numbers. Whatever runs the model, a
row's next token is chosen here from its logits alone, so that neighbours and batch sizes cannot change it.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from pytest_llmeval.models.encoding import Tokenizer
from pytest_llmeval.text.reasoning import Tags, cut_behind_reasoning, split_reasoning

__all__ = ["Generated", "GenerationPlan", "Seconds", "Writer", "choose_tokens", "seed_of"]


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """The settings by which one text is written. ``temperature`` 0 is greedy; above 0 the same seed, epoch and prompt
    give the same text.

    ``top_p`` below 1 leaves the likeliest tokens whose probabilities, at that temperature, reach it. Stop strings apply
    behind what stands between tags of ``reasoning``; the prompt has ``opened`` one. ``tag_tokens`` are special tokens
    that tags are made of, with their texts. ``top_k`` and ``repetition_penalty`` are as in transformers; 0 and 1 do
    nothing.
    """

    max_tokens: int
    stop: tuple[str, ...]
    temperature: float = 0.0
    seed: int = 0
    top_p: float = 1.0
    epoch: int = 0
    reasoning: Tags = ()
    opened: str = ""
    tag_tokens: tuple[tuple[int, str], ...] = ()
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Generated:
    """A text that was written. ``num_tokens`` counts all of its tokens, the end-of-text token and a stop string
    included.

    ``tagged`` is the text with the tags of reasoning that it lacks; None if it lacks none.
    ``seconds``: its share of the time of those it was written with. ``prefill_seconds`` of them went by until they had
    their first tokens, which is the time of reading prompts.
    """

    text: str
    finish_reason: Literal["stop", "length"]
    num_tokens: int
    saw_nan: bool
    seconds: float = 0.0
    prefill_seconds: float | None = None
    tagged: str | None = None


def seed_of(seed: int, prompt: Sequence[int], epoch: int = 0) -> int:
    """Return the generator's seed for a prompt: questions of one suite share a seed, and draw different random numbers.

    So do the epochs of one question.
    """
    own = f"{seed}" if epoch == 0 else f"{seed}/{epoch}"
    digest = hashlib.sha256(f"{own}:{','.join(map(str, prompt))}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class Writer:
    """Follows one row until an end-of-text token, a stop string, its limit, or logits that are not numbers."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        plan: GenerationPlan,
        ends: Collection[int],
        *,
        before: Sequence[int] | None = None,
    ) -> None:
        """Begin a reply. ``before`` are the tokens before it that a repetition penalty counts; by default the
        prompt's.
        """
        self.tokens: list[int] = []
        self.is_done = False
        self.saw_nan = False
        self.temperature = plan.temperature
        self.top_p, self.top_k = plan.top_p, plan.top_k
        self.repetition_penalty = plan.repetition_penalty
        self._before = tuple(prompt if before is None else before)
        self._tokenizer = tokenizer
        self._plan = plan
        self._has_stopped = False
        self._stop = [s for s in plan.stop if s]
        # A special token has no text, so a stop string that is one would never be found there.
        special = {tokenizer.decode([token]): token for token in tokenizer.all_special_ids} if self._stop else {}
        self._ends = frozenset(ends)
        self._stop_tokens = {special[s] for s in plan.stop if s in special}
        self._tag_tokens = dict(plan.tag_tokens)
        self._has_tag_token = self._is_inside = False
        # A token writes at least one byte, so a stop string that has just been completed lies within so many tokens;
        # the rest is room for tokens that write nothing. What this misses is found when the finished text is cut.
        closing = [end for _, end in plan.reasoning]
        self._window = max((len(s.encode("utf-8", "surrogatepass")) for s in (*self._stop, *closing)), default=0) + 8
        self._random = random.Random(seed_of(plan.seed, prompt, plan.epoch)) if plan.temperature > 0 else None

    def draw(self) -> float:
        """Return the row's next random number in [0, 1); only for rows that sample."""
        if self._random is None:
            raise ValueError("a greedy row draws nothing")
        return self._random.random()

    @property
    def context(self) -> list[int]:
        """Return the tokens that a repetition penalty counts."""
        return [*self._before, *self.tokens]

    def add(self, token: int) -> None:
        """Add the model's next token; it is ignored once the text has ended."""
        if self.is_done:
            return
        self.tokens.append(token)
        self._has_tag_token = self._has_tag_token or token in self._tag_tokens
        self._has_stopped = token in self._ends or self._is_stop_token(token) or self._ends_with_stop()
        self.is_done = self._has_stopped or len(self.tokens) >= self._plan.max_tokens

    def fail(self) -> None:
        """Note that the model's logits were not numbers."""
        self.saw_nan = self.is_done = True

    def result(self, seconds: float = 0.0, prefill_seconds: float | None = None) -> Generated:
        """Return what was written, in so many seconds."""
        plan = self._plan
        tagged, was_cut = cut_behind_reasoning(self._tagged(self.tokens), self._stop, plan.reasoning)
        text = tagged.removeprefix(plan.opened)
        if self._has_tag_token:
            for tag in self._tag_tokens.values():
                text = text.replace(tag, "")
        return Generated(
            text=text,
            tagged=None if text == tagged else tagged,
            finish_reason="stop" if self._has_stopped or was_cut else "length",
            num_tokens=len(self.tokens),
            saw_nan=self.saw_nan,
            seconds=seconds,
            prefill_seconds=prefill_seconds,
        )

    def _ends_with_stop(self) -> bool:
        if not self._stop:
            return False
        reasoning = self._plan.reasoning
        recent = self._shown(self.tokens[-self._window :])
        # Within reasoning nothing can stop before it is closed, however long that takes.
        wanted = [end.lower() for _, end in reasoning] if self._is_inside else self._stop
        if not any(text in (recent.lower() if self._is_inside else recent) for text in wanted):
            return False
        tagged = self._tagged(self.tokens)
        if reasoning:
            self._is_inside = split_reasoning(tagged, reasoning).is_unfinished
        return cut_behind_reasoning(tagged, self._stop, reasoning)[1]

    def _is_stop_token(self, token: int) -> bool:
        """Return whether it is a special token at which the text stops: it has no text, and is not looked for there."""
        if token not in self._stop_tokens:
            return False
        found = split_reasoning(self._tagged(self.tokens), self._plan.reasoning)
        return found.reasoning is None or bool(found.text.strip())

    def _tagged(self, tokens: list[int]) -> str:
        """Return the text of all tokens, from the tag that the prompt has opened on."""
        return self._plan.opened + self._shown(tokens)

    def _shown(self, tokens: list[int]) -> str:
        """Return the text of tokens with those of which tags are made."""
        if not self._has_tag_token:
            return self._text(tokens)
        parts: list[str] = []
        start = 0
        for place, token in enumerate(tokens):
            if token in self._tag_tokens:
                parts += [self._text(tokens[start:place]) if place > start else "", self._tag_tokens[token]]
                start = place + 1
        return "".join(parts) + (self._text(tokens[start:]) if start < len(tokens) else "")

    def _text(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=True)


def choose_tokens(logits: torch.Tensor, writers: Sequence[Writer]) -> list[int]:
    """Return the next token of each row of ``logits`` (rows, vocabulary): the likeliest, or drawn at the row's
    temperature.

    Draws invert the distribution function in float64 on the CPU with one number of the row's own. A row whose logits
    are not numbers (NaN, or infinitely likely) fails, and its token means nothing; rows that are done are left alone.
    A penalty of repetition is done before the choice, ``top_k`` and ``top_p`` after the temperature, by transformers'
    own classes and in their order.
    """
    logits = _penalized(logits, writers)
    best = logits.argmax(-1)  # torch takes NaN for the largest number
    tokens: list[int] = best.tolist()
    largest: list[float] = logits.gather(-1, best[:, None])[:, 0].tolist()
    sampled = []
    for i, (writer, value) in enumerate(zip(writers, largest, strict=True)):
        if writer.is_done:
            continue
        if not math.isfinite(value):
            writer.fail()
        elif writer.temperature > 0:
            sampled.append(i)
    if sampled:
        rows = logits[sampled].cpu().double()
        temperatures = torch.tensor([[writers[i].temperature] for i in sampled], dtype=torch.float64)
        rows = (rows - rows.amax(-1, keepdim=True)) / temperatures
        for place, i in enumerate(sampled):
            rows[place] = _warped(rows[place], writers[i])
        sums = rows.softmax(-1).cumsum(-1)
        draws = torch.tensor([[writers[i].draw()] for i in sampled], dtype=torch.float64)
        total = sums[:, -1:].contiguous()
        found = torch.searchsorted(sums, draws * total, right=True)
        last = torch.searchsorted(sums, total)  # the last token that can be drawn, should rounding reach the end
        for i, token in zip(sampled, torch.minimum(found, last)[:, 0].tolist(), strict=True):
            tokens[i] = token
    return tokens


def _penalized(logits: torch.Tensor, writers: Sequence[Writer]) -> torch.Tensor:
    """Return the logits (rows, vocabulary) with each row's repetition penalty; the same tensor if no row has one."""
    places = [place for place, one in enumerate(writers) if one.repetition_penalty != 1 and not one.is_done]
    if not places:
        return logits
    logits = logits.float().clone()
    for place in places:
        one = writers[place]
        penalize: Any = RepetitionPenaltyLogitsProcessor(one.repetition_penalty)
        context = torch.tensor([one.context], dtype=torch.long, device=logits.device)
        logits[place] = penalize(context, logits[place][None])[0]
    return logits


def _warped(row: torch.Tensor, writer: Writer) -> torch.Tensor:
    """Return the row's logits (vocabulary,), -inf for tokens that ``top_k`` and ``top_p`` leave out."""
    kept = row[None]
    if writer.top_k:
        keep_likeliest: Any = TopKLogitsWarper(writer.top_k)
        kept = keep_likeliest(None, kept)
    if writer.top_p < 1:
        keep_nucleus: Any = TopPLogitsWarper(writer.top_p)
        kept = keep_nucleus(None, kept)
    return kept[0]


class Seconds:
    """Shares out the time since it was made: reading prompts to those that are read, writing to all rows of the moment.

    All rows' seconds add up to the time until the last of them ended.
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._written_s = 0.0
        """The seconds of writing that a row would have, had it been there from the beginning."""
        self._rows: dict[int, tuple[float, float]] = {}

    def write(self) -> None:
        """Count the time until now as writing, where there are rows."""
        if self._rows:
            self._written_s += self._passed_s() / len(self._rows)

    def read(self, rows: Collection[int]) -> None:
        """Count the time until now as reading the prompts of these ``rows``, which begin to be written."""
        share_s = self._passed_s() / len(rows)
        self._rows.update(dict.fromkeys(rows, (share_s, self._written_s)))

    def end(self, row: int) -> tuple[float, float]:
        """Return the seconds of a row that is done now: all, and those of its prompt."""
        self.write()
        prefill_s, written_before_s = self._rows.pop(row)
        return prefill_s + self._written_s - written_before_s, prefill_s

    def _passed_s(self) -> float:
        now = time.perf_counter()
        passed_s, self._last = now - self._last, now
        return passed_s
