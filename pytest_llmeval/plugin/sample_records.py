"""What a record says of a sample, from its question, its responses and its score."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.inference.accounting import JudgeUse
from pytest_llmeval.models.base import answers_in_background, answers_samples, identify
from pytest_llmeval.plugin.stash import model_key
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.types import (
    JSON,
    EmbeddingRequest,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Prompt,
    Response,
    Role,
    Score,
    who_served,
)

__all__ = [
    "asked_at",
    "cost_of_replies",
    "describe",
    "kept_as",
    "model_of",
    "num_prompt_tokens",
    "num_truncated",
    "phases_of",
    "seconds_of",
    "served_by",
    "shown_details",
    "shown_prompt",
    "shown_target",
]


def shown_details(presented: PreparedSample, score: Score, prompts: str) -> Mapping[str, JSON]:
    """Return the score's; where options are equal also which are right: the target's text is that of wrong ones too.

    The steps of an agent repeat what it was asked: they are there only where ``--llm-report-prompts`` wants
    ``prompts`` in full.
    """
    details = score.details
    if prompts != "full" and "trace" in details:
        details = {name: value for name, value in details.items() if name != "trace"}
    options = presented.labels or presented.choices
    if len(set(options)) == len(options):
        return details
    return {**details, "right": list(presented.right)}


def model_of(item: pytest.Item, model: object) -> ModelIdentity:
    """Return the fields of a record that name the model which answered ``item``.

    Where several models are given, its name is as it was written, also if a conftest.py wrapped the model: two records
    of one sample must not have one key.
    """
    given = item.stash.get(model_key, None)
    identity = identify(model)
    return identity if given is None else replace(identity, name=given)


def describe(error: BaseException) -> str:
    """Return one line for a record's ``reason``."""
    text = str(error) if isinstance(error, LLMEvalError) else f"{type(error).__name__}: {error}"
    return first_line(redact(text))


def shown_prompt(prompt: Any, how: str) -> Any:
    """Return the prompt as ``--llm-report-prompts`` wants it in the report."""
    if how == "none":
        return None
    shown = prompt if isinstance(prompt, str) else [{"role": turn.role, "content": turn.content} for turn in prompt]
    if how == "full":
        return shown
    text = shown if isinstance(shown, str) else json.dumps(shown)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def seconds_of(model: object, responses: Sequence[Response]) -> float:
    """Return the model's time for a sample. One that answers in the background is asked all of a sample's requests at
    once.
    """
    seconds = [response.seconds for response in responses]
    return max(seconds, default=0.0) if answers_in_background(model) else sum(seconds, 0.0)


def phases_of(responses: Sequence[Response]) -> dict[str, Any]:
    """Return the seconds of reading prompts and of writing after the first token, if the model tells them apart."""
    written = [response for response in responses if isinstance(response, GenerateResponse)]
    prefill = [reply.prefill_seconds for reply in written if reply.prefill_seconds is not None]
    if not written or len(prefill) < len(responses):
        return {}
    return {"prefill_seconds": sum(prefill), "num_decoded": sum(max(0, reply.num_tokens - 1) for reply in written)}


def cost_of_replies(responses: Sequence[Response]) -> float | None:
    """Return the cost of all replies; None unless the model says it of each."""
    costs = [response.cost if isinstance(response, GenerateResponse) else None for response in responses]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known and len(known) == len(costs) else None


def served_by(name: str, responses: Sequence[Response], use: JudgeUse) -> tuple[Mapping[str, JSON], ...]:
    """Who gave the replies of the model ``name``, and the verdicts, as far as servers say so; each once."""
    own = dict.fromkeys(map(who_served, responses))
    found: list[tuple[Role | None, str, str | None, str | None]] = [(None, name, *one) for one in own]
    return tuple(
        {key: value for key, value in zip(("role", "name", "model", "system_fingerprint"), one, strict=True) if value}
        for one in (*found, *use.served)
        if one[2] is not None or one[3] is not None
    )


def asked_at(model: object, responses: Sequence[Response], use: JudgeUse) -> str | None:
    """Return when the last reply of model and judge was asked; None where one of them is not in the store.

    A model that has its answers at hand was not asked.
    """
    found = [*(() if answers_samples(model) else (response.asked_at for response in responses)), *use.asked_at]
    times = [time for time in found if time is not None]
    if not times or len(times) < len(found):
        return None
    return datetime.fromtimestamp(max(times), UTC).isoformat(timespec="microseconds")


def kept_as(replies: Iterable[str | None]) -> str | None:
    """Return what a record says of its replies' ``kept_as``; None where one of them is not kept, and where none is."""
    found = set(replies)
    known = sorted(one for one in found if one is not None)
    return hashlib.sha256("|".join(known).encode()).hexdigest()[:16] if known and None not in found else None


def num_prompt_tokens(question: PreparedSample, responses: Sequence[Response]) -> int:
    """Return tokens of the sample's distinct prompts: options that follow the same prompt share it."""
    prompts: dict[Prompt, int] = {}
    for request, response in zip(question.requests, responses, strict=True):
        prompt: Prompt
        match request:
            case GenerateRequest():
                prompt = request.prompt
            case LoglikelihoodRequest():
                prompt = request.context
            case LoglikelihoodRollingRequest() | EmbeddingRequest():
                prompt = request.text
        if isinstance(response, LoglikelihoodResponse):
            prompts[prompt] = response.num_context_tokens
        else:
            prompts[prompt] = response.num_prompt_tokens
    return sum(prompts.values())


def num_truncated(responses: Sequence[Response]) -> int:
    """Return how many of the replies ended at their limit of tokens."""
    return sum(isinstance(response, GenerateResponse) and response.finish_reason == "length" for response in responses)


def shown_target(presented: PreparedSample) -> JSON:
    """Return the expected text, or a list of several of which each is right."""
    return list(presented.target) if isinstance(presented.target, tuple) else presented.target
