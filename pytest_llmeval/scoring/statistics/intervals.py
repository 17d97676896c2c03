"""Standard errors and confidence intervals. Sums are exact (``math.fsum``): the order of samples changes no digit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import filterfalse
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "CONFIDENCE",
    "NUM_RESAMPLES",
    "Bootstrapped",
    "bootstrap_of_counts",
    "bootstrap_of_sums",
    "check_finite",
    "mean",
    "normal_quantile",
    "ratio_interval",
    "ratio_standard_error",
    "sum_of_squares",
    "t_quantile",
    "wilson_interval",
    "wilson_limits",
    "with_width",
]

CONFIDENCE = 0.95
"""The confidence level of every interval that is reported."""

NUM_RESAMPLES = 1000
"""How often a bootstrap draws as many samples as there are."""

_SEED = 0
_MAX_HELD = 1_000_000
"""Numbers in memory at a time."""
_MAX_UNTHREADED = 1 << 14
"""Numbers that are multiplied by a narrow table faster in one thread than in several, which wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """What a statistic's values over bootstrap samples say: their mean, their standard deviation, and the interval
    between their percentiles.

    The percentiles are as far out as Student's t with n - 1 degrees of freedom asks for, ``sqrt(n / (n - 1)) * t`` on
    the scale of the normal distribution: plain ones cover too little for few samples (the expanded percentile interval
    of T. C. Hesterberg, 2015, doi:10.1080/00031305.2015.1089789).
    """

    mean: float
    stderr: float
    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. ``ValueError`` for no values, and for a value that is not finite."""
    if not values:
        raise ValueError("the mean of no values is not defined")
    try:
        total = math.fsum(values)
    except (OverflowError, ValueError):
        check_finite(values)
        raise
    if not math.isfinite(total):  # so that one of the values is not, and each need not be looked at
        check_finite(values)
    return total / len(values)


def sum_of_squares(values: Sequence[float], centre: float) -> float:
    """``sum((x - centre)²)``, correctly rounded as ``math.fsum`` rounds."""
    counts = _counts_of_few(values)
    if counts is None:
        return math.fsum([(value - centre) ** 2 for value in values])
    # Right and wrong answers: each distinct square is computed once, and the sum of the copies is exact.
    return float(sum(Fraction((value - centre) ** 2) * count for value, count in counts.items()))


_FEW = 4
"""Distinct values that are counted one by one."""
_MANY = 64
"""Values below which counting saves nothing."""
_MAX_SQUARED = 1e100
"""Squares of larger values could overflow, which ``math.fsum`` tells in its own way."""


def _counts_of_few(values: Sequence[float]) -> dict[float, int] | None:
    """How often each value is there, of many values of which few are distinct, and none very large; else None."""
    if len(values) < _MANY:
        return None
    distinct = set(values[:_MANY])
    if len(distinct) > _FEW or max(map(abs, distinct)) > _MAX_SQUARED:
        return None
    counts = {value: values.count(value) for value in distinct}
    return counts if sum(counts.values()) == len(values) else None


def wilson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a proportion, without continuity correction, as (low, high).

    Solves ``|p - successes/n| = z sqrt(p (1 - p) / n)`` for p (E. B. Wilson, 1927, doi:10.1080/01621459.1927.10502953).
    Raises ``ValueError`` where ``0 <= successes <= n`` and ``1 <= n`` do not hold.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials have no proportion")
    return wilson_limits(successes / n, n, normal_quantile(confidence))


def wilson_limits(observed: float, n: float, z: float) -> tuple[float, float]:
    """``wilson_interval`` of an observed share of ``n`` samples, which need be no whole number, for a quantile."""
    scale = 1 + z * z / n
    centre = (observed + z * z / (2 * n)) / scale
    half = z * math.sqrt(observed * (1 - observed) / n + z * z / (4 * n * n)) / scale
    # At the ends the formula gives 0 and 1; rounding must not put an interval outside them.
    low = 0.0 if observed <= 0 else max(0.0, centre - half)
    high = 1.0 if observed >= 1 else min(1.0, centre + half)
    return low, high


def with_width(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """The interval, or None for one of no width (but for rounding).

    No width is not what is known: every sample is like the others, and a further one need not be.
    """
    if interval is None or math.isclose(*interval, rel_tol=1e-12, abs_tol=1e-12):
        return None
    return interval


def ratio_standard_error(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Standard error of ``sum(x) / sum(w)`` over pairs that are independent of each other; None for fewer than two.

    ``sqrt(n / (n - 1) * sum((x - r w)²)) / sum(w)`` with ``r`` the ratio: the ratio estimator (W. G. Cochran, Sampling
    Techniques, 3rd ed., 1977, chapter 6), of which the mean's is the case of equal denominators. It equals the HC1
    standard error of a regression of x on w through the origin with weights 1/w. ``ValueError`` for a value that is not
    finite, and for denominators that do not sum to more than 0.
    """
    check_finite(numerators)
    check_finite(denominators)
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
    half = t_quantile(len(denominators) - 1, confidence) * error
    centre = math.fsum(numerators) / math.fsum(denominators)
    return centre - half, centre + half


def bootstrap_of_sums(
    rows: Sequence[Sequence[float]],
    statistic: Callable[[Sequence[float]], float | None],
    *,
    of_many: Callable[[NDArray[np.float64]], Sequence[float | None]] | None = None,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = _SEED,
) -> Bootstrapped | None:
    """The percentile bootstrap of a statistic of column sums (B. Efron, 1979, doi:10.1214/aos/1176344552).

    ``rows`` holds one row of numbers for each sample; ``statistic`` takes the sums of the columns over samples drawn
    with replacement, as many as there are; ``of_many`` does the same for an array of such sums, a row each. The result
    depends on the rows, their order and ``seed`` alone. None for fewer than two samples, and where the statistic is
    None, or not finite, for more than one resample in twenty: those resamples are left out.
    """
    import numpy as np

    n = len(rows)
    if n < 2:
        return None
    table = np.asarray(rows, dtype=float)
    drawn = _kept_resamples if n * num_resamples <= _MAX_HELD else _resamples
    values: list[float | None] = []
    for counts in drawn(n, num_resamples, seed):
        sums = counts.astype(float) @ table
        values += map(statistic, sums.tolist()) if of_many is None else of_many(sums)
    return _bootstrapped(values, n)


def bootstrap_of_counts(
    n: int,
    statistic: Callable[[NDArray[np.float64]], float | None],
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = _SEED,
) -> Bootstrapped | None:
    """``bootstrap_of_sums`` for a statistic that sums do not give: it takes how often each of ``n`` samples is drawn.

    The draws are the same as those for a table of as many rows.
    """
    if n < 2:
        return None
    drawn = _kept_resamples if n * num_resamples <= _MAX_HELD else _resamples
    values: list[float | None] = []
    for counts in drawn(n, num_resamples, seed):
        values += map(statistic, counts.astype(float))
    return _bootstrapped(values, n)


def _resamples(n: int, num_resamples: int, seed: int) -> Iterator[NDArray[np.integer]]:
    """How often each of ``n`` samples is drawn, a row for each resample; so many rows at a time as memory may hold."""
    import numpy as np

    at_once = max(1, _MAX_HELD // n)
    random = np.random.default_rng(seed)
    for start in range(0, num_resamples, at_once):
        count = min(at_once, num_resamples - start)
        drawn = random.integers(n, size=(count, n), dtype=np.int32)  # the numbers of int64, in half the time
        counts = np.bincount((drawn + n * np.arange(count)[:, None]).ravel(), minlength=count * n)
        yield counts.reshape(count, n)


@lru_cache(maxsize=4)
def _kept_resamples(n: int, num_resamples: int, seed: int) -> tuple[NDArray[np.integer], ...]:
    """The same for few samples, kept: a suite's categories have the same few sizes again and again."""
    (counts,) = _resamples(n, num_resamples, seed)
    at_once = max(1, _MAX_UNTHREADED // n)
    return tuple(counts[start : start + at_once].astype("int32") for start in range(0, num_resamples, at_once))


def _bootstrapped(values: Sequence[float | None], n: int) -> Bootstrapped | None:
    import numpy as np

    found: NDArray[np.float64] = np.array(
        [value for value in values if value is not None and math.isfinite(value)], dtype=float
    )
    if len(found) < 2 or len(found) < 0.95 * len(values):
        return None
    above = NormalDist().cdf(math.sqrt(n / (n - 1)) * t_quantile(n - 1, CONFIDENCE))
    low, high = np.quantile(found, [1 - above, above])
    return Bootstrapped(
        mean=float(np.mean(found)), stderr=float(np.std(found, ddof=1)), low=float(low), high=float(high)
    )


def t_quantile(degrees_of_freedom: float, confidence: float) -> float:
    """How many standard errors an interval of Student's t reaches to either side of its centre."""
    # scipy.special holds the quantile and loads in half the time of scipy.stats.
    from scipy.special import stdtrit

    _check_confidence(confidence)
    return float(stdtrit(degrees_of_freedom, (1 + confidence) / 2))


def normal_quantile(confidence: float) -> float:
    """How many standard errors an interval of the normal distribution reaches to either side of its centre."""
    _check_confidence(confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {confidence}")


def check_finite(values: Sequence[float]) -> None:
    """``ValueError`` for a value that is not finite: nothing is averaged over it."""
    for value in filterfalse(math.isfinite, values):
        raise ValueError(f"found {value} among the values: nothing is averaged over it")
