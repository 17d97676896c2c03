"""Writing text with transformers' ``generate``: any model that transformers can run, in padded batches.

Models that our own loop can drive (``loop.py``) are faster there. What both share is how a row's
next token is chosen (``writer.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from pytest_llmeval.models.huggingface.generation.seconds import Seconds
from pytest_llmeval.models.huggingface.generation.writer import Generated, GenerationPlan, Writer, choose_tokens
from pytest_llmeval.models.huggingface.loglikelihood.plain import padded
from pytest_llmeval.models.huggingface.runner import Runner

__all__ = ["clean_generation_config", "generate_rows"]


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
