"""How a quantity is spread: its mean and percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Percentiles", "percentiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of ``n`` values, in their unit. They are interpolated linearly, as ``numpy.percentile`` does."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """Return the mean and percentiles of the values; None of none. ``ValueError`` for one that is not finite."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        raise ValueError("percentiles are taken of finite values only")
    ordered = sorted(values)
    return Percentiles(
        n=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        p50=_quantile(ordered, 0.50),
        p95=_quantile(ordered, 0.95),
        p99=_quantile(ordered, 0.99),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of R. J. Hyndman and Y. Fan (1996), definition 7."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
