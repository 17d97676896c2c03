"""An estimate with its interval, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE

__all__ = ["Estimate", "interval_of_common", "share_never_drawn", "undefined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A statistic over ``n`` samples, with its standard error and its interval; no field is ever NaN.

    ``value`` is None where the samples do not define the statistic. Where there is no value, or a value without an
    interval, ``reason`` says why; otherwise it is None. ``ci_low`` and ``ci_high`` are both None or both numbers.
    """

    value: float | None
    n: int
    stderr: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    reason: str | None = None


def undefined(n: int, reason: str) -> Estimate:
    """Return the estimate of a statistic that ``n`` samples do not define."""
    return Estimate(value=None, n=n, reason=reason)


def share_never_drawn(n: float, confidence: float = CONFIDENCE, *, num_drawn: int = 0) -> float:
    """Return the largest share that samples of a kind may have of which none, or ``num_drawn``, were drawn in ``n``.

    The upper limit by C. J. Clopper and E. S. Pearson (1934, doi:10.1093/biomet/26.4.404), which for none of n is ``1 -
    ((1 - confidence) / 2)^(1/n)``.
    """
    if num_drawn:
        from scipy.special import betaincinv

        return float(betaincinv(num_drawn + 1, n - num_drawn, (1 + confidence) / 2))
    return -math.expm1(math.log((1 - confidence) / 2) / n)


def interval_of_common(
    limits: tuple[float, float], common: float, n: float, *, num_odd: int = 0, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return the interval of a mean over ``n`` independent samples, or clusters, whose values are all ``common``, but
    for few.

    The mean is lowest where all of the ``share_never_drawn`` that differs has the lowest value that the metric can
    take, highest where it has the highest. None where the metric has no limits, and where the value lies beyond them.
    """
    least, highest = limits
    if not (math.isfinite(least) and math.isfinite(highest) and least <= common <= highest):
        return None
    share = share_never_drawn(n, confidence, num_drawn=num_odd)
    return common - (common - least) * share, common + (highest - common) * share
