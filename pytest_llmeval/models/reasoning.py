"""A reply's reasoning: split off when the reply arrives, and never taken for the answer's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_llmeval.errors import RequestError
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
    "cut_at_stop",
    "is_asked_again",
    "opened_in",
    "stops_behind_reasoning",
    "was_cut_in_reasoning",
    "without_reasoning",
]

_R = TypeVar("_R")


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
        is_unfinished=found.is_unfinished,
        tagged=None,
    )


def was_cut_in_reasoning(request: Request, response: object) -> bool:
    """Return whether a stop string may have ended the reply before its answer: whoever wrote it looked for such strings
    in the reasoning too, or in the white space behind it.
    """
    if not isinstance(request, GenerateRequest) or not isinstance(response, GenerateResponse):
        return False
    if not request.stop or not request.reasoning or response.finish_reason != "stop" or response.reasoning is not None:
        return False
    found = _split(request, response)
    return found.reasoning is not None and not found.text.strip()


def cut_at_stop(request: GenerateRequest, text: str) -> tuple[str, bool]:
    """Return a whole text up to its first stop string behind the reasoning, and whether there was one."""
    opened = opened_in(request.prompt, request.reasoning) if request.stop else ""
    return cut_behind_reasoning(text, request.stop, request.reasoning, opened)


def opened_in(prompt: Prompt, tags: Tags) -> str:
    """Return the tag of reasoning with which a prompt ends, as far as the request shows it; the empty text for none."""
    if isinstance(prompt, str):
        return opened_by(prompt, tags)
    return opened_by(prompt[-1].content, tags) if prompt and prompt[-1].role == "assistant" else ""


def _split(request: GenerateRequest, response: GenerateResponse, *, continues: bool = True) -> Split:
    if response.tagged is not None:
        return split_reasoning(response.tagged, request.reasoning)
    is_inside = continues and response.reasoning is None
    opened = opened_in(request.prompt, request.reasoning) if is_inside else ""
    return split_reasoning(response.text, request.reasoning, opened)


def as_asked(request: Request, response: _R) -> _R:
    """Return a response that is kept under a request which says nothing of reasoning, for one that has no tags of it.

    Where that was asked with tags, a stop string may stand in the reasoning: here it ends the text.
    """
    if not isinstance(request, GenerateRequest) or not isinstance(response, GenerateResponse):
        return response
    has_reasoning = response.tagged is not None or holds_tags(response.text, DEFAULT_TAGS)
    if request.reasoning or not request.stop or not has_reasoning:
        return response
    text, was_cut = cut_behind_reasoning(response.text, request.stop, ())
    return replace(response, text=text, finish_reason="stop") if was_cut else response


def stops_behind_reasoning(
    model: object,
    requests: Sequence[Request],
    responses: Sequence[_R],
    ask: Callable[[Sequence[GenerateRequest]], Sequence[_R]],
) -> list[_R]:
    """Return the responses, with others in the place of those that a stop string has cut inside of their reasoning.

    These are asked for once more, without stop strings, and cut here.
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
            found[place] = _cut(request, response)
    return found


def is_asked_again(model: object, request: Request, response: object) -> bool:
    """Return whether ``stops_behind_reasoning`` puts another response in this one's place.

    A model that says of itself that its stop strings apply behind reasoning only (``has_stops_behind_reasoning``) is
    believed.
    """
    return not getattr(model, "has_stops_behind_reasoning", False) and was_cut_in_reasoning(request, response)


def _cut(request: GenerateRequest, response: _R) -> _R:
    if isinstance(response, RequestError) or not isinstance(response, GenerateResponse):
        return response
    text, was_cut = cut_at_stop(request, response.text)
    return replace(response, text=text, finish_reason="stop") if was_cut else response
