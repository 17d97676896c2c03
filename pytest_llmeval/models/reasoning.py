"""Splits a reply's reasoning off when the reply arrives, and has stop strings apply behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_llmeval.text.reasoning import (
    DEFAULT_TAGS,
    Split,
    Tags,
    cut_behind_reasoning,
    holds_tags,
    opened_by,
    split_reasoning,
)
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Prompt, Request

__all__ = [
    "as_asked",
    "both_paid",
    "cut_at_stop",
    "cut_whole",
    "is_asked_again",
    "opened_in",
    "stops_behind_reasoning",
    "was_cut_in_reasoning",
    "without_reasoning",
]

_R = TypeVar("_R")
_G = TypeVar("_G", bound=GenerateResponse)


def without_reasoning(request: Request, response: _R, *, continues: bool = True) -> _R:
    """Return the response to a request as it is judged: its text behind the reasoning, and the reasoning by itself.

    Nothing is split off where the request has no tags of reasoning. ``continues``: the reply goes on where the prompt
    ends, which may be inside of reasoning.
    """
    if not isinstance(request, GenerateRequest) or not isinstance(response, GenerateResponse):
        return response
    # A server that tells reasoning apart has left an answer, which may quote the tags.
    is_split = response.reasoning is not None and response.tagged is None
    is_whole = is_split or not request.reasoning
    found = Split(response.text) if is_whole else _split(request, response, continues=continues)
    if found.reasoning is None:
        return response if response.tagged is None else replace(response, tagged=None)
    known = response.reasoning  # that the model itself has told apart
    return replace(
        response,
        text=found.text,
        reasoning=found.reasoning if known is None else f"{known}\n\n{found.reasoning}".strip(),
        is_unfinished=found.is_unfinished and not response.tool_calls,
        tagged=None,
    )


def was_cut_in_reasoning(request: Request, response: object) -> bool:
    """Return whether a stop string may have ended the reply before its answer: whoever wrote it looked for such strings
    in the reasoning too, or in the white space behind it. One that was asked for twice is known to be whole.
    """
    if not isinstance(request, GenerateRequest) or not isinstance(response, GenerateResponse):
        return False
    is_known = response.reasoning is not None or response.is_unfinished or bool(response.tool_calls)
    if not request.stop or not request.reasoning or response.finish_reason != "stop" or is_known:
        return False
    return _has_no_answer(request, response)


def _has_no_answer(request: GenerateRequest, response: GenerateResponse) -> bool:
    found = _split(request, response)
    return found.reasoning is not None and not found.text.strip()


def cut_at_stop(request: GenerateRequest, text: str) -> tuple[str, bool]:
    """Return a whole text up to its first stop string behind the reasoning, and whether there was one."""
    opened = opened_in(request.prompt, request.reasoning) if request.stop else ""
    return cut_behind_reasoning(text, request.stop, request.reasoning, opened)


def opened_in(prompt: Prompt, tags: Tags) -> str:
    """Return the tag of reasoning with which a prompt ends, if the request shows it; the empty text for none."""
    if isinstance(prompt, str):
        return opened_by(prompt, tags)
    return opened_by(prompt[-1].content, tags) if prompt and prompt[-1].role == "assistant" else ""


def _split(request: GenerateRequest, response: GenerateResponse, *, continues: bool = True) -> Split:
    """Return the response's text without its reasoning. ``continues`` as ``without_reasoning`` takes it."""
    if response.tagged is not None:
        return split_reasoning(response.tagged, request.reasoning)
    is_inside = continues and response.reasoning is None
    opened = opened_in(request.prompt, request.reasoning) if is_inside else ""
    return split_reasoning(response.text, request.reasoning, opened)


def as_asked(request: Request, response: _R) -> _R:
    """Return a response that is kept under a request which says nothing of reasoning, for one that has no tags of it.

    Where that was asked with tags, a stop string may stand in the reasoning: here it ends the text, which is an answer.
    """
    if not isinstance(request, GenerateRequest) or not isinstance(response, GenerateResponse):
        return response
    has_reasoning = response.tagged is not None or holds_tags(response.text, DEFAULT_TAGS)
    if request.reasoning or not request.stop or not has_reasoning:
        return response
    text, was_cut = cut_behind_reasoning(response.text, request.stop, ())
    found = replace(response, is_unfinished=response.is_unfinished and response.reasoning is not None)
    return replace(found, text=text, finish_reason="stop") if was_cut else found


def stops_behind_reasoning(
    model: object,
    requests: Sequence[Request],
    responses: Sequence[_R],
    ask: Callable[[Sequence[GenerateRequest]], Sequence[_R]],
) -> list[_R]:
    """Return the responses, with others in the place of those that a stop string has cut inside of their reasoning.

    These are asked for once more, without stop strings, and cut here (``cut_whole``).
    """
    found = list(responses)
    again = {
        place: request
        for place, (request, response) in enumerate(zip(requests, responses, strict=True))
        if isinstance(request, GenerateRequest) and is_asked_again(model, request, response)
    }
    if again:
        whole = ask([replace(request, stop=()) for request in again.values()])
        for (place, request), response in zip(again.items(), whole, strict=True):
            found[place] = cut_whole(request, found[place], response)
    return found


def is_asked_again(model: object, request: Request, response: object) -> bool:
    """Return whether ``stops_behind_reasoning`` puts another response in this one's place.

    A model that says of itself that its stop strings apply behind reasoning only (``has_stops_behind_reasoning``) is
    believed.
    """
    return not getattr(model, "has_stops_behind_reasoning", False) and was_cut_in_reasoning(request, response)


def cut_whole(request: GenerateRequest, first: object, response: _R) -> _R:
    """Return the second reply to a request, which has had no stop strings, cut at these. It counts the first one's use.

    An error in the reply's place stays.
    """
    if not isinstance(response, GenerateResponse) or not isinstance(first, GenerateResponse):
        return response
    text, was_cut = cut_at_stop(request, response.text)
    cut = replace(response, text=text, finish_reason="stop") if was_cut else response
    return both_paid(request, first, cut)


def both_paid(request: GenerateRequest, first: GenerateResponse, second: _G) -> _G:
    """Return the second reply with the tokens, the time and the cost of both, since both were paid."""
    num_tokens = first.num_tokens + second.num_tokens
    if second.finish_reason == "length" and second.num_tokens < request.max_tokens:
        # The context was full: with as many tokens as were asked for it would be taken for a whole reply.
        num_tokens = min(num_tokens, request.max_tokens - 1)
    costs = [one.cost for one in (first, second) if one.cost is not None]
    return replace(
        second,
        num_prompt_tokens=first.num_prompt_tokens + second.num_prompt_tokens,
        num_tokens=num_tokens,
        seconds=first.seconds + second.seconds,
        cost=math.fsum(costs) if costs else None,
        is_unfinished=second.is_unfinished or _has_no_answer(request, second),
    )
