"""Intervals of means by scipy and statsmodels, with dense matrices and a root finder in place of formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy import optimize, stats

Interval = tuple[float, float]


def skewed_interval(centre: float, error: float, skewness: float, freedom: float) -> Interval:
    """Student's t interval, and beyond it where Hall's transformation of t has t's quantile."""
    quantile = float(stats.t.ppf(0.975, freedom))

    def transformed(t: float) -> float:
        return t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6

    roots = [
        optimize.brentq(lambda t, at=at: transformed(t) - at, -1e6, 1e6, xtol=1e-12, rtol=1e-12)
        for at in (quantile, -quantile)
    ]
    return centre - error * max(quantile, roots[0]), centre - error * min(-quantile, roots[1])


def of_mean(values: Sequence[float]) -> Interval:
    """Of independent samples, with the unbiased skewness of scipy."""
    n = len(values)
    skewness = float(stats.skew(values, bias=False)) if n > 2 and np.ptp(values) > 0 else 0.0
    return skewed_interval(float(np.mean(values)), float(stats.sem(values)), skewness / math.sqrt(n), n - 1)


def of_ratio(
    numerators: Sequence[float], denominators: Sequence[float], alike: float = 1.0, least_skewness: float = 0.0
) -> tuple[float, Interval]:
    """Standard error and interval of sum(x) / sum(w): statsmodels' HC2, and the trace of a dense matrix.

    The skewness is at least ``least_skewness``, in its direction, or as much as makes it 0.8 times t's quantile.
    """
    x, w = np.array(numerators, dtype=float), np.array(denominators, dtype=float)
    fit: Any = sm.WLS(x, w, weights=1 / w).fit(cov_type="HC2")
    error, n = float(fit.bse[0]), len(x)
    leverages = w / w.sum()
    residuals = (x - fit.params[0] * w) / np.sqrt(1 - leverages) / w.sum()
    skewness = 0.0
    if n > 2 and error > 0:
        third = math.fsum(residuals**3) * n**2 / ((n - 1) * (n - 2)) * ((n - 1) / n) ** 1.5
        skewness = third / math.fsum(residuals**2) ** 1.5
    # The residuals are a linear function of x: what their weighted squares sum to is a quadratic form of x.
    hat = np.eye(n) - np.outer(leverages, np.ones(n))
    form = hat.T @ np.diag(1 / (1 - leverages)) @ hat @ np.diag((1 - alike) * w + alike * w**2)
    freedom = float(np.trace(form) ** 2 / np.trace(form @ form))
    if least_skewness:
        least = math.copysign(min(abs(least_skewness), 0.8 / float(stats.t.ppf(0.975, freedom))), least_skewness)
        skewness = max(least, skewness, key=lambda one: one / least)
    return error, skewed_interval(float(fit.params[0]), error, skewness, freedom)


def of_clustered_mean(
    values: Sequence[float], clusters: Sequence[int], *, as_samples: bool = True
) -> tuple[float, Interval]:
    """Standard error and interval of a mean over samples in clusters, whose correlation is that of scipy's F test.

    With ``as_samples`` it is as skewed as if clusters were as skewed as samples, by scipy.
    """
    groups = [np.array([v for v, c in zip(values, clusters, strict=True) if c == cluster]) for cluster in set(clusters)]
    sizes = np.array([len(group) for group in groups], dtype=float)
    n, num_groups = sizes.sum(), len(groups)
    alike = 0.0
    if n > num_groups and np.ptp(values) > 0:
        ratio = float(stats.f_oneway(*groups).statistic)
        usual = (n - (sizes**2).sum() / n) / (num_groups - 1)
        alike = 1.0 if math.isinf(ratio) else max(0.0, ratio - 1) / (max(0.0, ratio - 1) + usual)
    skewness = float(stats.skew(values)) * math.sqrt((sizes**2).sum()) / n if as_samples and np.ptp(values) > 0 else 0.0
    return of_ratio([group.sum() for group in groups], sizes.tolist(), alike, skewness)
