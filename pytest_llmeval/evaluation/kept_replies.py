"""What a record's details keep of a sample's replies, beside the one output that a record has a field for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmeval.text.traces import MOST_CHARACTERS, bounded_steps
from pytest_llmeval.types import JSON, GenerateResponse, Response

__all__ = ["MOST_DOCUMENTS", "kept_of_replies"]

MOST_DOCUMENTS = 1000
"""Of a ranking that a record keeps: as many as runs of TREC have."""


def kept_of_replies(responses: Sequence[Response]) -> dict[str, JSON]:
    """Return the details of a record that no other field has: several replies, and what came with each reply."""
    replies = [response for response in responses if isinstance(response, GenerateResponse)]
    if not replies:
        return {}
    kept: dict[str, JSON] = {"outputs": [reply.text for reply in replies]} if len(replies) > 1 else {}
    if kept and any(reply.reasoning is not None for reply in replies):
        kept["reasonings"] = [reply.reasoning for reply in replies]
    rankings = [reply.documents for reply in replies]
    beside: dict[str, list[JSON]] = {
        "contexts": [None if reply.contexts is None else [*reply.contexts] for reply in replies],
        "documents": [None if own is None else _as_lists(own[:MOST_DOCUMENTS]) for own in rankings],
    }
    for name, found in beside.items():
        if any(own is not None for own in found):
            kept[name] = found if len(found) > 1 else found[0]
    counts: list[JSON] = [None if own is None else len(own) for own in rankings]
    if any(own is not None and len(own) > MOST_DOCUMENTS for own in rankings):
        kept["num_documents"] = counts if len(counts) > 1 else counts[0]
    if (traces := _traces(replies)) is not None:
        kept["trace"] = traces
    return kept


def _traces(replies: Sequence[GenerateResponse]) -> JSON:
    """Return the steps of the reply, or of each of several, which share the room that a record has."""
    found = [reply.trace for reply in replies]
    if not any(found):
        return None
    room = max(MOST_CHARACTERS // len(found), 1_000)
    kept: list[JSON] = [None if steps is None else bounded_steps(steps, room) for steps in found]
    return kept if len(kept) > 1 else kept[0]


def _as_lists(value: Any) -> JSON:
    """Return a value with lists for its tuples, as JSON has it."""
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value
