"""Standard errors and confidence intervals. Sums are exact (``math.fsum``): the order of samples changes no digit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import filterfalse
from statistics import NormalDist

__all__ = [
    "CONFIDENCE",
    "mean",
    "mean_interval",
    "ratio_interval",
    "ratio_standard_error",
    "standard_error",
    "wilson_interval",
]

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
    half = _t_quantile(len(values) - 1, confidence) * error
    centre = mean(values)
    return centre - half, centre + half


def ratio_standard_error(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Standard error of ``sum(x) / sum(w)`` over pairs that are independent of each other; None for fewer than two.

    ``sqrt(n / (n - 1) * sum((x - r w)²)) / sum(w)`` with ``r`` the ratio: the ratio estimator (W. G. Cochran, Sampling
    Techniques, 3rd ed., 1977, chapter 6), of which the mean's is the case of equal denominators. It equals the HC1
    standard error of a regression of x on w through the origin with weights 1/w. ``ValueError`` for a value that is not
    finite, and for denominators that do not sum to more than 0.
    """
    _check_finite(numerators)
    _check_finite(denominators)
    total = math.fsum(denominators)
    if total <= 0:
        raise ValueError(f"a ratio needs denominators that sum to more than 0, found {total}")
    n = len(denominators)
    if n < 2:
        return None
    ratio = math.fsum(numerators) / total
    squares = math.fsum((x - ratio * w) ** 2 for x, w in zip(numerators, denominators, strict=True))
    return math.sqrt(squares * n / (n - 1)) / total


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Student's t interval of ``sum(x) / sum(w)`` with n - 1 degrees of freedom; see ``ratio_standard_error``."""
    error = ratio_standard_error(numerators, denominators)
    if error is None:
        return None
    half = _t_quantile(len(denominators) - 1, confidence) * error
    centre = math.fsum(numerators) / math.fsum(denominators)
    return centre - half, centre + half


def _t_quantile(degrees_of_freedom: int, confidence: float) -> float:
    # scipy.special holds the quantile and loads in half the time of scipy.stats.
    from scipy.special import stdtrit

    _check_confidence(confidence)
    return float(stdtrit(degrees_of_freedom, (1 + confidence) / 2))


def _normal_quantile(confidence: float) -> float:
    _check_confidence(confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {confidence}")


def _check_finite(values: Sequence[float]) -> None:
    for value in filterfalse(math.isfinite, values):
        raise ValueError(f"found {value} among the values: nothing is averaged over it")
