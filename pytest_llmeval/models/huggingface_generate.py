"""Writing text with transformers' ``generate``: greedy in padded batches, sampled one request at a time."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import transformers

from pytest_llmeval.models.encoding import Tokenizer

__all__ = ["Generated", "GenerationPlan", "cut_at_stop", "end_tokens", "generate_rows", "seed_of"]


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What requests of one batch share. ``temperature`` above 0 samples, and then the batch is one request."""

    max_tokens: int
    stop: tuple[str, ...]
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Generated:
    """``num_tokens`` counts all that the model wrote, the end-of-text token and the stop string's tokens included."""

    text: str
    finish_reason: Literal["stop", "length"]
    num_tokens: int
    saw_nan: bool


def end_tokens(model: Any, tokenizer: Tokenizer) -> list[int]:
    """The tokens that end a text: those of the checkpoint's generation config, else config; and the tokenizer's EOS."""
    found: set[int] = set()
    declared = getattr(model.generation_config, "eos_token_id", None)
    if declared is None:
        declared = getattr(model.config, "eos_token_id", None)
    for token in (*(declared if isinstance(declared, list | tuple) else [declared]), tokenizer.eos_token_id):
        if isinstance(token, int):
            found.add(token)
    return sorted(found)


def clean_generation_config(ends: Sequence[int], pad_token: int) -> transformers.GenerationConfig:
    """What a model generates by when the request says all: no sampling, penalties or lengths of its author's."""
    create: Any = transformers.GenerationConfig  # untyped, while the rest of transformers is typed
    config: transformers.GenerationConfig = create(
        do_sample=False, num_beams=1, eos_token_id=list(ends) or None, pad_token_id=pad_token
    )
    return config


def generate_rows(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[tuple[int, ...]],
    plan: GenerationPlan,
    *,
    ends: Sequence[int],
    pad_token: int,
) -> list[Generated]:
    """What the model writes after each prompt (tokens), in order. Prompts are padded on the left and masked."""
    longest = max(map(len, prompts))
    input_ids = torch.full((len(prompts), longest), pad_token, dtype=torch.long)
    mask = torch.zeros((len(prompts), longest), dtype=torch.long)
    for i, prompt in enumerate(prompts):
        input_ids[i, longest - len(prompt) :] = torch.tensor(prompt)
        mask[i, longest - len(prompt) :] = 1
    config = clean_generation_config(ends, pad_token)
    config.max_new_tokens = plan.max_tokens
    if plan.temperature > 0:
        config.do_sample, config.temperature, config.top_k, config.top_p = True, plan.temperature, 0, 1.0
    writers = _Writers(tokenizer, [_Written() for _ in prompts], plan.stop, frozenset(ends))
    watch = _NaNWatch(len(prompts))
    with _seeded(seed_of(plan.seed, prompts[0]), model.device) if plan.temperature > 0 else contextlib.nullcontext():
        model.generate(
            input_ids=input_ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=config,
            stopping_criteria=transformers.StoppingCriteriaList([writers]),
            logits_processor=transformers.LogitsProcessorList([watch]),
        )
    return [
        Generated(
            text=cut_at_stop(_text(tokenizer, written.tokens), plan.stop)[0],
            finish_reason="stop" if written.is_done else "length",
            num_tokens=len(written.tokens),
            saw_nan=watch.saw_nan(i, len(written.tokens)),
        )
        for i, written in enumerate(writers.rows)
    ]


def cut_at_stop(text: str, stop: Collection[str]) -> tuple[str, bool]:
    """``text`` up to where the first stop string begins, and whether there was one. Empty stop strings never stop."""
    starts = [start for s in stop if s and (start := text.find(s)) >= 0]
    return (text[: min(starts)], True) if starts else (text, False)


def seed_of(seed: int, prompt: Sequence[int]) -> int:
    """The generator's seed for a prompt: questions of one suite share a seed, and must not share their luck."""
    digest = hashlib.sha256(f"{seed}:{','.join(map(str, prompt))}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators, and put their states back afterwards."""
    if device.type == "cpu":
        fork = torch.random.fork_rng(devices=[])
    else:
        fork = torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)
    with fork:
        torch.manual_seed(seed)
        yield


def _text(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    return tokenizer.decode(list(tokens), skip_special_tokens=True)


@dataclass(slots=True)
class _Written:
    tokens: list[int] = field(default_factory=list)
    is_done: bool = False


class _Writers(transformers.StoppingCriteria):
    """Follows each row while it is written; ends it at an end-of-text token, or once its text holds a stop string."""

    def __init__(self, tokenizer: Tokenizer, rows: list[_Written], stop: Sequence[str], ends: frozenset[int]) -> None:
        self.rows = rows
        self._tokenizer = tokenizer
        self._stop = [s for s in stop if s]
        self._ends = ends
        # A token writes at least one byte, so a stop string that has just been completed lies within so many tokens;
        # the rest is room for tokens that write nothing. What this misses is found when the finished text is cut.
        self._window = max((len(s.encode("utf-8", "surrogatepass")) for s in self._stop), default=0) + 8

    def __deepcopy__(self, memo: dict[int, Any]) -> _Writers:
        return self

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        for row, token in zip(self.rows, input_ids[:, -1].tolist(), strict=True):
            if not row.is_done:
                row.tokens.append(token)
                row.is_done = token in self._ends or self._has_stopped(row)
        return torch.tensor([row.is_done for row in self.rows], device=input_ids.device)

    def _has_stopped(self, row: _Written) -> bool:
        if not self._stop:
            return False
        recent = _text(self._tokenizer, row.tokens[-self._window :])
        return any(s in recent for s in self._stop) and cut_at_stop(_text(self._tokenizer, row.tokens), self._stop)[1]


class _NaNWatch(transformers.LogitsProcessor):
    """Notes the step at which a row's logits are first not a number: greedy decoding would go on with any token."""

    def __init__(self, num_rows: int) -> None:
        self._steps: list[torch.Tensor] = []
        self._num_rows = num_rows

    def __deepcopy__(self, memo: dict[int, Any]) -> _NaNWatch:
        return self

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._steps.append(scores.isnan().any(-1))
        return torch.nan_to_num(scores, nan=0.0) if bool(self._steps[-1].any()) else scores

    def saw_nan(self, row: int, num_tokens: int) -> bool:
        """Whether any of the row's first ``num_tokens`` steps had such logits."""
        return any(bool(step[row]) for step in self._steps[:num_tokens])
