"""The numbers of retrieval-augmented answers, of verdicts and vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["average_precision", "cosine", "share"]


def share(verdicts: Sequence[bool]) -> float:
    """Share of the claims that are supported. ``ZeroDivisionError`` for none."""
    return sum(verdicts) / len(verdicts)


def average_precision(relevant: Sequence[bool]) -> float:
    """Of chunks in rank order: the precision at each relevant rank, as a mean over the relevant ranks; 0 without any.

    The sum is divided by the relevant chunks that were retrieved: how many there are beyond them is not known. ragas
    (``LLMContextPrecisionWithReference``) has the same number, but for the 1e-10 that it adds to the divisor.
    """
    precisions: list[float] = []
    for rank, is_relevant in enumerate(relevant, 1):
        if is_relevant:
            precisions.append((len(precisions) + 1) / rank)
    return math.fsum(precisions) / len(precisions) if precisions else 0.0


def cosine(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The cosine of the angle between two vectors of finite numbers; None where one of them is zero and has no angle.

    ``ValueError`` where their lengths differ.
    """
    left, right = _of_unit_length(one), _of_unit_length(other)
    if left is None or right is None:
        return None
    product = math.fsum(x * y for x, y in zip(left, right, strict=True))
    return min(1.0, max(-1.0, product))  # rounding alone goes beyond


def _of_unit_length(vector: Sequence[float]) -> list[float] | None:
    largest = max(map(abs, vector), default=0.0)
    if not largest:
        return None
    scaled = [x / largest for x in vector]  # the squares of what is left neither overflow nor vanish
    length = math.sqrt(math.fsum(x * x for x in scaled))
    return [x / length for x in scaled]
