"""An estimate with its interval, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE

__all__ = ["Estimate", "share_never_drawn", "undefined"]


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
    """The estimate of a statistic that ``n`` samples do not define."""
    return Estimate(value=None, n=n, reason=reason)


def share_never_drawn(n: int, confidence: float = CONFIDENCE) -> float:
    """The largest share that samples of a kind may have of which none was drawn in ``n``.

    ``1 - ((1 - confidence) / 2)^(1/n)``, the upper limit of 0 of n by C. J. Clopper and E. S. Pearson (1934,
    doi:10.1093/biomet/26.4.404).
    """
    return -math.expm1(math.log((1 - confidence) / 2) / n)
