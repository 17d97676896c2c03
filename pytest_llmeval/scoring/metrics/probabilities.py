"""From log-likelihoods to probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["softmax"]


def softmax(values: Sequence[float]) -> list[float]:
    """``exp(v) / sum(exp(v))``, stable; -inf gets 0. At least one value must be finite, and none NaN or +inf."""
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
