"""What a record's details keep of a sample's replies, beside the one output that a record has a field for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmeval.text.traces import MOST_CHARACTERS, bounded_steps
from pytest_llmeval.types import JSON, GenerateResponse, Response

__all__ = ["kept_of_replies"]


def kept_of_replies(responses: Sequence[Response]) -> dict[str, JSON]:
    """What no other field of a record has: several replies, and what came with a reply, of each if several."""
    replies = [response for response in responses if isinstance(response, GenerateResponse)]
    kept: dict[str, JSON] = {"outputs": [reply.text for reply in replies]} if len(replies) > 1 else {}
    for name in _BESIDE_TEXT:
        found: list[JSON] = [_as_lists(getattr(reply, name)) for reply in replies]
        if any(own is not None for own in found):
            kept[name] = found if len(found) > 1 else found[0]
    if (traces := _traces(replies)) is not None:
        kept["trace"] = traces
    return kept


_BESIDE_TEXT = ("contexts", "documents")


def _traces(replies: Sequence[GenerateResponse]) -> JSON:
    """The steps of the reply, or of each of several, which share the room that a record has."""
    found = [reply.trace for reply in replies]
    if not any(found):
        return None
    room = max(MOST_CHARACTERS // len(found), 1_000)
    kept: list[JSON] = [None if steps is None else bounded_steps(steps, room) for steps in found]
    return kept if len(kept) > 1 else kept[0]


def _as_lists(value: Any) -> JSON:
    """A value with lists for its tuples, as JSON has it."""
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value
