"""What both sides of a comparison give back, and how far apart their responses are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Outcome", "equal_texts", "largest_difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One whole process. ``responses`` by prompt id: the log-likelihood of each choice in nats, or a text.

    ``engine_seconds`` are those of the model's own work, without imports and loading, where the side says them;
    ``session_seconds`` those of pytest's last line: of all but pytest's start, in which the model is loaded.
    """

    process_seconds: float
    engine_seconds: float | None
    peak_mib: float
    responses: Mapping[str, tuple[float, ...] | str]
    session_seconds: float | None = None


def largest_difference(ours: Outcome, theirs: Outcome, *, relative: bool = False) -> float:
    """Largest absolute difference of a request's log-likelihood, in nats; ``relative``: by the larger of the two.

    Infinite where a request is missing on a side, or a number is not finite.
    """
    if ours.responses.keys() != theirs.responses.keys():
        return math.inf
    largest = 0.0
    for key, a in ours.responses.items():
        b = theirs.responses[key]
        if isinstance(a, str) or isinstance(b, str) or len(a) != len(b):
            return math.inf
        for x, y in zip(a, b, strict=True):
            if not (math.isfinite(x) and math.isfinite(y)):
                return math.inf
            scale = max(abs(x), abs(y)) or 1.0 if relative else 1.0
            largest = max(largest, abs(x - y) / scale)
    return largest


def equal_texts(ours: Outcome, theirs: Outcome) -> int:
    """How many texts are the same on both sides."""
    return sum(theirs.responses.get(key) == text for key, text in ours.responses.items())
