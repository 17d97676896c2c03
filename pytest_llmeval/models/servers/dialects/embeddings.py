"""Reading what a server answers to ``/embeddings``: what is not one list of numbers for each text is an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytest_llmeval.errors import RequestError
from pytest_llmeval.text.redaction import one_line

__all__ = ["embedding_entries", "vector_in"]


def embedding_entries(reply: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return one entry for each of ``count`` texts, in the order in which they were sent. Raises ``RequestError``."""
    data = reply.get("data")
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise RequestError(f"the server's reply has no embeddings: {_shown(reply)}")
    if len(data) != count:
        raise RequestError(f"the server gave {len(data)} embeddings for {count} text{'' if count == 1 else 's'}")
    places = [entry.get("index") for entry in data]
    if not all(type(place) is int for place in places) or {*places} != {*range(count)}:
        raise RequestError(f"the server's embeddings have the index {_shown(places)}, expected 0 to {count - 1}")
    return sorted(data, key=lambda entry: int(entry["index"]))


def vector_in(entry: Mapping[str, Any], length: int | None) -> tuple[float, ...]:
    """Return the numbers of one embedding, ``length`` of them where that is known. Raises ``RequestError``."""
    found = entry.get("embedding")
    if isinstance(found, str):
        raise RequestError("the server gave an embedding as text (base64?), and was asked for numbers")
    if not isinstance(found, list):
        raise RequestError(f"the server gave {_shown(found)} in an embedding's place")
    numbers = tuple(map(_number, found))
    if not numbers:
        raise RequestError("the server gave an embedding without numbers")
    if length is not None and len(numbers) != length:
        raise RequestError(f"the server gave an embedding of {len(numbers)} numbers, and others have {length}")
    return numbers


def _number(value: object) -> float:
    try:
        number = float(value) if type(value) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise RequestError(f"the server gave {_shown(value)} in an embedding, expected finite numbers")
    return number


def _shown(value: object) -> str:
    return one_line(repr(value), 60)
