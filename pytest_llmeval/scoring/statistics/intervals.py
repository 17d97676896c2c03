"""Estimates, their standard errors and confidence intervals.

Sums are exact (``math.fsum``): the order of samples changes no digit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import filterfalse
from operator import mul
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "CONFIDENCE",
    "NUM_RESAMPLES",
    "Bootstrapped",
    "Estimate",
    "Estimated",
    "bootstrap_of_counts",
    "bootstrap_of_sums",
    "estimate_ratio",
    "estimate_sum",
    "interval_of_common",
    "mean",
    "normal_quantile",
    "share_never_drawn",
    "skewed_interval",
    "sum_of_squares",
    "t_quantile",
    "undefined",
    "wilson_interval",
    "wilson_limits",
    "with_width",
]

CONFIDENCE = 0.95
"""The confidence level of every interval that is reported."""
NUM_RESAMPLES = 1000
"""The number of times that a bootstrap draws as many samples as there are."""
_SEED = 0
_MOST = 1 - 1e-9
"""The largest share of a sum: one that has all of it has no residual, and divides nothing by 0."""
_MAX_HELD = 1_000_000
"""Numbers in memory at a time."""
_MAX_UNTHREADED = 1 << 14
"""Numbers that are multiplied by a narrow table faster in one thread than in several, which wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """A statistic's values over bootstrap samples: their standard deviation, and the interval between their
    percentiles.

    The percentiles are as far out as Student's t with n - 1 degrees of freedom asks for, ``sqrt(n / (n - 1)) * t`` on
    the scale of the normal distribution: plain ones cover too little for few samples (the expanded percentile interval
    of T. C. Hesterberg, 2015, doi:10.1080/00031305.2015.1089789).
    """

    stderr: float
    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean. ``ValueError`` for no values, and for a value that is not finite."""
    if not values:
        raise ValueError("the mean of no values is not defined")
    try:
        total = math.fsum(values)
    except (OverflowError, ValueError):
        _check_finite(values)
        raise
    if not math.isfinite(total):  # so that one of the values is not, and each need not be looked at
        _check_finite(values)
    return total / len(values)


def sum_of_squares(values: Sequence[float], centre: float) -> float:
    """Return ``sum((x - centre)²)``, correctly rounded as ``math.fsum`` rounds."""
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
    """Return how often each value is there, of many values of which few are distinct, and none very large; else
    None.
    """
    if len(values) < _MANY:
        return None
    distinct = set(values[:_MANY])
    if len(distinct) > _FEW or max(map(abs, distinct)) > _MAX_SQUARED:
        return None
    counts = {value: values.count(value) for value in distinct}
    return counts if sum(counts.values()) == len(values) else None


def wilson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion, without continuity correction, as (low, high).

    Solves ``|p - successes/n| = z sqrt(p (1 - p) / n)`` for p (E. B. Wilson, 1927, doi:10.1080/01621459.1927.10502953).
    Raises ``ValueError`` where ``0 <= successes <= n`` and ``1 <= n`` do not hold.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials have no proportion")
    return wilson_limits(successes / n, n, normal_quantile(confidence))


def wilson_limits(observed: float, n: float, z: float) -> tuple[float, float]:
    """Return ``wilson_interval`` of an observed share of ``n`` samples, which need be no whole number, for a
    quantile.
    """
    scale = 1 + z * z / n
    centre = (observed + z * z / (2 * n)) / scale
    half = z * math.sqrt(observed * (1 - observed) / n + z * z / (4 * n * n)) / scale
    # At the ends the formula gives 0 and 1; rounding must not put an interval outside them.
    low = 0.0 if observed <= 0 else max(0.0, centre - half)
    high = 1.0 if observed >= 1 else min(1.0, centre + half)
    return low, high


def with_width(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the interval, or None for one of no width (but for rounding).

    No width is not what is known: every sample is like the others, and a further one need not be.
    """
    if interval is None or math.isclose(*interval, rel_tol=1e-12, abs_tol=1e-12):
        return None
    return interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A mean, or a ratio of two sums, and what its interval is made of.

    ``skewness`` is that of the estimate: of a mean the values' own over the square root of their number. The standard
    error has ``degrees_of_freedom``. ``num_effective`` is how many parts of equal size weigh as much as these.
    """

    value: float
    stderr: float
    skewness: float
    degrees_of_freedom: float
    num_effective: float

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the interval of ``skewed_interval``."""
        return skewed_interval(self.value, self.stderr, self.skewness, self.degrees_of_freedom, confidence)


def skewed_interval(
    centre: float, error: float, skewness: float, degrees_of_freedom: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Student's t interval, made longer on the side on which values of this skewness make it too short.

    There it ends where P. Hall's transformation of the t statistic (1992, Journal of the Royal Statistical Society B
    54:221), ``t + g t² / 3 + g² t³ / 27 + g / 6`` with the skewness g of the estimate, has t's quantile. The other end
    stays that of t: Hall's would be nearer, and of a symmetric distribution with long tails, whose sample is skewed by
    chance, too near. What it covers is measured in ``benchmarks/interval_coverage.py``.
    """
    reach = t_quantile(degrees_of_freedom, confidence)
    below, above = (max(reach, _hall(reach, own)) for own in (skewness, -skewness))
    return centre - error * below, centre + error * above


def _hall(quantile: float, skewness: float) -> float:
    """Return the t statistic whose transformation by Hall is ``quantile``."""
    if abs(skewness) < 1e-9:
        return quantile
    return 3 / skewness * (math.cbrt(1 + skewness * (quantile - skewness / 6)) - 1)


def estimate_sum(
    value: float, residuals: Sequence[float], degrees_of_freedom: float, num_effective: float
) -> Estimated:
    """Estimate a sum, ``value``, of independent parts that lie so far from what is expected of each: ``residuals``.

    The standard error is ``sqrt(sum(r²))``, the skewness ``sqrt(n (n - 1)) / (n - 2) * sum(r³) / sum(r²)^1.5``, 0 for
    fewer than three: of a mean the usual unbiased third moment over the cube of the standard deviation and ``sqrt(n)``.
    ``OverflowError`` where squares are too large for a float.
    """
    squares, n = math.fsum(map(mul, residuals, residuals)), len(residuals)
    if not math.isfinite(squares):
        raise OverflowError("the squares of the values are too large for a float")
    error, skewness = math.sqrt(squares), 0.0
    if n > 2 and error > 0:
        scaled = [residual / error for residual in residuals]
        skewness = math.sqrt(n * (n - 1)) / (n - 2) * math.fsum(map(mul, map(mul, scaled, scaled), scaled))
    return Estimated(
        value=value,
        stderr=error,
        skewness=skewness,
        degrees_of_freedom=degrees_of_freedom,
        num_effective=num_effective,
    )


def estimate_ratio(numerators: Sequence[float], denominators: Sequence[float], *, alike: float = 1.0) -> Estimated:
    """Return ``sum(x) / sum(w)`` over pairs that are independent of each other: the ratio estimator.

    (W. G. Cochran, Sampling Techniques, 3rd ed., 1977, chapter 6.) With the ratio r and each pair's share h of sum(w)
    the standard error is ``sqrt(sum((x - r w)² / (1 - h))) / sum(w)``: HC2 of a regression of x on w through the origin
    with weights 1/w (J. G. MacKinnon and H. White, 1985, doi:10.1016/0304-4076(85)90158-7), and where x and w are sums
    over a cluster's samples CR2 (R. M. Bell and D. F. McCaffrey, 2002, Survey Methodology 28:169). For equal w it is
    that of a mean, ``sqrt(n / (n - 1) * sum((x - r w)²)) / sum(w)``.

    The degrees of freedom are Bell's and McCaffrey's, n - 1 for equal w, for pairs of which x has a variance of ``(1 -
    alike) w + alike w²``: 0 where a pair is a sum of independent parts, 1 where all of its parts are the same.

    ``ValueError`` for fewer than two pairs, for a value that is not finite, and for w that do not sum to more than 0;
    ``OverflowError`` where squares are too large for a float.
    """
    _check_finite(numerators)
    _check_finite(denominators)
    total, n = math.fsum(denominators), len(denominators)
    if total <= 0:
        raise ValueError(f"a ratio needs denominators that sum to more than 0, found {total}")
    if n < 2:
        raise ValueError(f"{n} pairs are too few for a standard error, which takes 2")
    shares = [min(w / total, _MOST) for w in denominators]
    ratio = math.fsum(numerators) / total
    residuals = [
        (x - ratio * w) / math.sqrt(1 - share) / total
        for x, w, share in zip(numerators, denominators, shares, strict=True)
    ]
    num_effective = 1 / math.fsum(map(mul, shares, shares))
    return estimate_sum(ratio, residuals, _degrees_of_freedom(denominators, total, alike), num_effective)


def _degrees_of_freedom(sizes: Sequence[float], total: float, alike: float) -> float:
    """Return the degrees of freedom of the sum of ``(x - r w)² / (1 - h)``: ``trace(A)² / trace(A²)``, A its matrix
    times the covariance of x.

    The matrix has one row for each pair, and its traces are sums over the pairs, each distinct size being taken once.
    """
    counts = Counter(sizes)
    if len(counts) == 1:
        return len(sizes) - 1.0
    found = [
        (count, min(size / total, _MOST), (1 - alike) * size / total + alike * size * (size / total))
        for size, count in counts.items()
    ]
    variance = math.fsum(count * own for count, _, own in found)
    terms = []
    for count, share, own in found:
        scale = 1 / (1 - share)
        shared = share * (share * variance - 2 * own)  # what the ratio, which all pairs share, adds to the diagonal
        terms.append(
            (
                count * scale * (own + shared),
                count * scale * share * share,
                count * scale * share * own,
                count * scale * own * own,
                count * scale * scale * ((own + shared) ** 2 - shared**2),
            )
        )
    trace, of_shares, of_both, of_own, diagonal = (math.fsum(column) for column in zip(*terms, strict=True))
    everywhere = (
        2 * of_shares * of_own + 2 * of_both**2 + (variance * of_shares) ** 2 - 4 * variance * of_shares * of_both
    )
    square = everywhere + diagonal
    return trace**2 / square if square > 0 else 1.0  # one pair holds all of w: the estimate stands on that alone


def bootstrap_of_sums(
    rows: Sequence[Sequence[float]],
    statistic: Callable[[Sequence[float]], float | None],
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = _SEED,
) -> Bootstrapped | None:
    """Return the percentile bootstrap of a statistic of column sums (B. Efron, 1979, doi:10.1214/aos/1176344552).

    ``rows`` holds one row of numbers for each sample; ``statistic`` takes the sums of the columns over samples drawn
    with replacement, as many as there are. The result depends on the rows, their order and ``seed`` alone. None for
    fewer than two samples, where the statistic is None, or not finite, for more than one resample in twenty (those
    resamples are left out), and where its standard error is too large for a float.
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
        values += map(statistic, sums.tolist())
    return _bootstrapped(values, n)


def bootstrap_of_counts(
    n: int,
    statistic: Callable[[NDArray[np.float64]], float | None],
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = _SEED,
) -> Bootstrapped | None:
    """Return ``bootstrap_of_sums`` for a statistic that sums do not give: it takes how often each of ``n`` samples is
    drawn.

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
    """Return how often each of ``n`` samples is drawn, a row for each resample; so many rows at a time as memory may
    hold.
    """
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
    """Return the same for few samples, kept: a suite's categories have the same few sizes again and again."""
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
    with np.errstate(over="ignore"):  # values near a float's limit, whose squares are beyond it
        stderr = float(np.std(found, ddof=1))
    return Bootstrapped(stderr=stderr, low=float(low), high=float(high)) if math.isfinite(stderr) else None


def t_quantile(degrees_of_freedom: float, confidence: float) -> float:
    """Return how many standard errors an interval of Student's t reaches to either side of its centre."""
    # scipy.special holds the quantile and loads in half the time of scipy.stats.
    from scipy.special import stdtrit

    _check_confidence(confidence)
    return float(stdtrit(degrees_of_freedom, (1 + confidence) / 2))


def normal_quantile(confidence: float) -> float:
    """Return how many standard errors an interval of the normal distribution reaches to either side of its centre."""
    _check_confidence(confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {confidence}")


def _check_finite(values: Sequence[float]) -> None:
    """Raise ``ValueError`` for a value that is not finite: nothing is averaged over it."""
    for value in filterfalse(math.isfinite, values):
        raise ValueError(f"found {value} among the values: nothing is averaged over it")


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
