"""Standard errors and confidence intervals. Sums are exact (``math.fsum``): the order of samples changes no digit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

__all__ = ["CONFIDENCE", "mean", "mean_interval", "standard_error", "wilson_interval"]

CONFIDENCE = 0.95
"""The confidence level of every interval that is reported."""


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. ``ValueError`` for no values, and for a value that is not finite."""
    _check_finite(values)
    if not values:
        raise ValueError("the mean of no values is not defined")
    return math.fsum(values) / len(values)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean, ``sqrt(sum((x - mean)²) / (n - 1) / n)``; None for fewer than two values.

    ``ValueError`` for a value that is not finite.
    """
    _check_finite(values)
    n = len(values)
    if n < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1) / n)


def wilson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a proportion, without continuity correction, as (low, high).

    Solves ``|p - successes/n| = z sqrt(p (1 - p) / n)`` for p (E. B. Wilson, 1927,
    doi:10.1080/01621459.1927.10502953). Raises ``ValueError`` where ``0 <= successes <= n`` and ``1 <= n`` do not
    hold.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials have no proportion")
    z = _normal_quantile(confidence)
    observed = successes / n
    scale = 1 + z * z / n
    centre = (observed + z * z / (2 * n)) / scale
    half = z * math.sqrt(observed * (1 - observed) / n + z * z / (4 * n * n)) / scale
    # At the ends the formula gives 0 and 1; rounding must not put an interval outside them.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Student's t interval of the mean with n - 1 degrees of freedom, as (low, high); None for fewer than two values.

    It is not cut at the limits of the metric. ``ValueError`` for a value that is not finite.
    """
    error = standard_error(values)
    if error is None:
        return None
    # scipy.special holds the quantile and loads in half the time of scipy.stats.
    from scipy.special import stdtrit

    _check_confidence(confidence)
    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * error
    centre = mean(values)
    return centre - half, centre + half


def _normal_quantile(confidence: float) -> float:
    _check_confidence(confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {confidence}")


def _check_finite(values: Sequence[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"found {value} among the values: nothing is averaged over it")
