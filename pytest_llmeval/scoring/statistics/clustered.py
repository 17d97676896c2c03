"""Standard errors and intervals where samples come in clusters, such as those of one passage.

Clusters are independent of each other, samples within one need not be. A mean over samples is the ratio of two sums
over clusters, of their values and of their sizes, so that its variance is that of ``intervals.ratio_standard_error``::

    G / (G - 1) * sum over clusters of (sum over its samples of (x - mean))² / n²

of G clusters and n samples (K.-Y. Liang and S. L. Zeger, 1986, doi:10.1093/biomet/73.1.13; with the factor CR1 of A. C.
Cameron and D. L. Miller, 2015, doi:10.3368/jhr.50.2.317; for evaluations E. Miller, 2024, arXiv:2411.00640), with
Student's t of G - 1 degrees of freedom. Of few clusters it is too small, so that there is none of fewer than
``MIN_CLUSTERS``: every function here raises ``ValueError`` for those, for sequences of different lengths, and for a
value that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.scoring.statistics import intervals
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, mean

__all__ = [
    "MIN_CLUSTERS",
    "are_too_few",
    "bootstrapped_mean",
    "bootstrapped_ratio",
    "cluster_numbers",
    "cluster_sums",
    "count_clusters",
    "interval_around",
    "mean_interval",
    "proportion_interval",
    "standard_error",
    "worth_of",
]

MIN_CLUSTERS = 10
"""Fewer clusters give no standard error and no interval."""


def cluster_numbers(clusters: Sequence[str | None]) -> list[int] | None:
    """A number for each sample, the same for those of one cluster; a sample without a cluster is one of its own.

    None where no sample has a cluster: all are independent.
    """
    if all(cluster is None for cluster in clusters):
        return None
    numbers: dict[str | int, int] = {}
    return [
        numbers.setdefault(place if cluster is None else cluster, len(numbers))
        for place, cluster in enumerate(clusters)
    ]


def count_clusters(clusters: Sequence[int]) -> int:
    return len(set(clusters))


def cluster_sums(values: Sequence[float], clusters: Sequence[int]) -> list[float]:
    """The sum of each cluster's values, in the order in which the clusters appear."""
    members: dict[int, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    return [math.fsum(own) for own in members.values()]


def are_too_few(clusters: Sequence[int] | None) -> bool:
    """Whether samples of these clusters have no standard error; independent ones (None) have."""
    return clusters is not None and count_clusters(clusters) < MIN_CLUSTERS


def standard_error(values: Sequence[float], clusters: Sequence[int] | None = None) -> float | None:
    """Standard error of the mean over samples; ``clusters[i]`` is the cluster of ``values[i]``.

    Without clusters, here and below, samples are independent, and it is ``sqrt(sum((x - mean)²) / (n - 1) / n)``. None
    for fewer than two values.
    """
    if clusters is not None:
        return intervals.ratio_standard_error(*_sums_and_sizes(values, clusters))
    n = len(values)
    if n < 2:
        intervals.check_finite(values)
        return None
    return math.sqrt(intervals.sum_of_squares(values, mean(values)) / (n - 1) / n)


def mean_interval(
    values: Sequence[float], clusters: Sequence[int] | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Student's t interval of the mean over samples, as (low, high). It is not cut at the limits of the metric.

    n - 1 degrees of freedom, of n samples or clusters; None for fewer than two values.
    """
    if clusters is not None:
        return intervals.ratio_interval(*_sums_and_sizes(values, clusters), confidence)
    error = standard_error(values)
    return None if error is None else interval_around(mean(values), error, len(values), confidence)


def interval_around(centre: float, error: float, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Student's t interval of a mean over ``n`` independent samples, from the mean and its standard error."""
    half = intervals.t_quantile(n - 1, confidence) * error
    return centre - half, centre + half


def proportion_interval(
    values: Sequence[float], clusters: Sequence[int] | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Wilson's score interval of the mean of zeros and ones, over as many samples as these clusters are worth.

    The quantile is that of t, not of the normal distribution. Simulated over proportions from 0.05 to 0.95 it covers
    within a point of 95% for 20 clusters and more (``benchmarks/interval_coverage.py``). Student's t of the mean does
    not: of 20 clusters of 5 samples that are correlated by 0.3 it covers 92%.
    """
    if clusters is None:
        return intervals.wilson_interval(int(math.fsum(values)), len(values), confidence)
    observed, num_clusters = mean(values), count_clusters(clusters)
    error = intervals.ratio_standard_error(*_sums_and_sizes(values, clusters))
    worth = worth_of(observed * (1 - observed), error, len(values), num_clusters)
    return intervals.wilson_limits(observed, worth, intervals.t_quantile(num_clusters - 1, confidence))


def bootstrapped_mean(values: Sequence[float], clusters: Sequence[int] | None = None) -> tuple[float, float] | None:
    """The mean's interval by a bootstrap over samples, or over clusters (``intervals.bootstrap_of_sums``).

    None for fewer than two values, and where all are equal.
    """
    return bootstrapped_ratio(values, [1.0] * len(values), clusters)


def bootstrapped_ratio(
    numerators: Sequence[float], denominators: Sequence[float], clusters: Sequence[int] | None = None
) -> tuple[float, float] | None:
    """``bootstrapped_mean`` of ``sum(x) / sum(w)``; the order of samples makes no difference."""
    if clusters is not None:
        numerators, denominators = cluster_sums(numerators, clusters), cluster_sums(denominators, clusters)
    rows = sorted(zip(numerators, denominators, strict=True))
    found = intervals.bootstrap_of_sums(rows, lambda sums: sums[0] / sums[1] if sums[1] > 0 else None)
    return None if found is None else intervals.with_width((found.low, found.high))


def worth_of(variance: float, error: float | None, n: int, num_clusters: int) -> float:
    """How many independent samples would have the standard error of the mean of ``n`` that lie in clusters.

    ``variance`` is that of one sample; ``variance / error²`` is n divided by the design effect (E. L. Korn and B. I.
    Graubard, 1998, Survey Methodology 24:193). Samples that are all the same do not show how alike those of a cluster
    are: each cluster counts as one. Where all clusters have the same mean, each sample counts.
    """
    if variance <= 0:
        return float(num_clusters)
    if error is None or math.isclose(error, 0.0, abs_tol=1e-12):
        return float(n)
    return variance / error**2


def _sums_and_sizes(values: Sequence[float], clusters: Sequence[int]) -> tuple[list[float], list[float]]:
    intervals.check_finite(values)
    num_clusters = count_clusters(clusters)
    if num_clusters < MIN_CLUSTERS:
        raise ValueError(f"{num_clusters} clusters are too few for a standard error, which takes {MIN_CLUSTERS}")
    return cluster_sums(values, clusters), cluster_sums([1.0] * len(values), clusters)
