"""Means, their standard errors and intervals, also where samples come in clusters, such as those of one passage.

Clusters are independent of each other, samples within one need not be. A mean over samples is the ratio of two sums
over clusters, of their values and of their sizes, and has the standard error of ``intervals.estimate_ratio``, which is
CR2; of clusters of equal size that of K.-Y. Liang and S. L. Zeger (1986, doi:10.1093/biomet/73.1.13; for evaluations E.
Miller, 2024, arXiv:2411.00640) with the factor G / (G - 1) for G clusters. Its degrees of freedom are those of samples
as alike within clusters as these are (G. W. Imbens and M. Kolesár, 2016, doi:10.1162/REST_a_00552): G - 1 for clusters
of equal size, and few where a few large ones decide.

All of it is too small if clusters are few, so that fewer than ``MIN_CLUSTERS`` have none: every function here raises
``ValueError`` for those, for sequences of different lengths, and for a value that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul

from pytest_llmeval.scoring.statistics import intervals
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, Estimated, mean, normal_quantile

__all__ = [
    "MIN_CLUSTERS",
    "are_too_few",
    "bootstrapped_mean",
    "bootstrapped_ratio",
    "cluster_numbers",
    "cluster_sums",
    "count_clusters",
    "estimate_in_clusters",
    "estimate_mean",
    "flips_interval",
    "is_rare",
    "mean_interval",
    "odd_ones",
    "paired_proportions_interval",
    "proportion_interval",
    "standard_error",
    "t_of",
    "worth_of",
]

MIN_CLUSTERS = 10
"""Fewer clusters give no standard error and no interval."""
_RARE = 0.1
"""A value is rare if fewer than so many samples would have it, were there one for each cluster."""
_MOST_SKEWNESS = 0.8
"""Times one over t's quantile: there Hall's transformation reaches 1.6 times as far as t, and beyond soon very far."""


def cluster_numbers(clusters: Sequence[str | None]) -> list[int] | None:
    """Return a number for each sample, the same for those of one cluster; a sample without a cluster is one of its own.

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
    """Return the sum of each cluster's values, in the order in which the clusters appear."""
    members: dict[int, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    return [math.fsum(own) for own in members.values()]


def are_too_few(clusters: Sequence[int] | None) -> bool:
    """Return whether samples of these clusters have no standard error; independent ones (None) have."""
    return clusters is not None and count_clusters(clusters) < MIN_CLUSTERS


def estimate_mean(values: Sequence[float], clusters: Sequence[int] | None = None) -> Estimated | None:
    """Return the mean over samples; ``clusters[i]`` is the cluster of ``values[i]``. None for fewer than two values.

    Without clusters, here and below, samples are independent, and its standard error is ``sqrt(sum((x - mean)²) / (n -
    1) / n)``.
    """
    if clusters is not None:
        return _as_skewed_as_samples(estimate_in_clusters(values, clusters), values)
    n = len(values)
    if n < 2:
        return None
    centre, scale = mean(values), math.sqrt(n * (n - 1))
    return intervals.estimate_sum(centre, [(value - centre) / scale for value in values], n - 1.0, float(n))


def estimate_in_clusters(values: Sequence[float], clusters: Sequence[int]) -> Estimated:
    """Return the mean of samples in clusters, as skewed as the clusters' sums are."""
    sums, sizes = _sums_and_sizes(values, clusters)
    return intervals.estimate_ratio(sums, sizes, alike=_alike(values, sums, sizes))


def _as_skewed_as_samples(found: Estimated, values: Sequence[float]) -> Estimated:
    """Return the mean with a skewness that is at least what it would be if clusters were as skewed as samples are.

    Few clusters seldom show how skewed they are, and many samples do. No more than ``_MOST_SKEWNESS`` comes of that:
    clusters can be less skewed, too.
    """
    centre = mean(values)
    scale = math.sqrt(intervals.sum_of_squares(values, centre) / len(values))
    if scale <= 0:
        return found
    third = math.fsum([((value - centre) / scale) ** 3 for value in values]) / len(values)
    most = _MOST_SKEWNESS / intervals.t_quantile(found.degrees_of_freedom, CONFIDENCE)
    least = min(abs(third) / math.sqrt(found.num_effective), most)
    return replace(found, skewness=max(found.skewness, least) if third > 0 else min(found.skewness, -least))


def standard_error(values: Sequence[float], clusters: Sequence[int] | None = None) -> float | None:
    """Return the standard error of the mean over samples, as ``estimate_mean`` has it."""
    if clusters is not None:
        return estimate_in_clusters(values, clusters).stderr
    n = len(values)
    if n < 2:
        return None
    return math.sqrt(intervals.sum_of_squares(values, mean(values)) / (n - 1) / n)


def mean_interval(
    values: Sequence[float], clusters: Sequence[int] | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return the interval of the mean of samples (``intervals.skewed_interval``), as (low, high).

    It is not cut at the limits of the metric. None for fewer than two values.
    """
    found = estimate_mean(values, clusters)
    return None if found is None else found.interval(confidence)


@dataclass(frozen=True, slots=True)
class OddOnes:
    """All samples have the value ``common``, but for those of ``number`` samples, or clusters."""

    common: float
    number: int


def odd_ones(values: Sequence[float], clusters: Sequence[int] | None = None) -> OddOnes | None:
    """Return the value that all samples have, or all but one; None where more differ.

    One value that differs does not show how much others would: a standard error by it says as good as nothing.
    """
    if math.isclose(min(values), max(values), rel_tol=1e-12, abs_tol=1e-12):
        return OddOnes(mean(values), 0)
    # Of three samples, or clusters, two have the common value: most values are seen to be others at once.
    firsts: dict[int, float] = {}
    for place, value in enumerate(values):
        firsts.setdefault(place if clusters is None else clusters[place], value)
        if len(firsts) > 2:
            break
    seen = [*firsts.values()]
    common = next((value for value in seen if seen.count(value) > 1), None)
    if common is None:
        return None
    if clusters is None:
        return OddOnes(common, 1) if values.count(common) == len(values) - 1 else None
    odd = {cluster for value, cluster in zip(values, clusters, strict=True) if value != common}
    return OddOnes(common, 1) if len(odd) == 1 else None


def proportion_interval(
    values: Sequence[float], clusters: Sequence[int] | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Wilson's score interval of the mean of zeros and ones, over as many samples as these clusters are worth.

    The quantile is that of t, not of the normal distribution. Clusters can be more skewed than Wilson's formula knows,
    where few of them are all wrong: each end lies as far out as that of ``intervals.skewed_interval``, where that is
    further, but no further than Wilson's of clusters that count as one sample each. It is that one where right or wrong
    ``is_rare``. What it covers is measured in ``benchmarks/interval_coverage.py``. Clusters of one sample each are as
    independent as none.
    """
    found = None if clusters is None else estimate_in_clusters(values, clusters)
    if found is None or clusters is None or count_clusters(clusters) == len(values):
        return intervals.wilson_interval(int(math.fsum(values)), len(values), confidence)
    observed = mean(values)
    worth, quantile = worth_of(observed * (1 - observed), found, len(values)), t_of(found, confidence)
    usual = intervals.wilson_limits(observed, worth, quantile)
    widest = intervals.wilson_limits(observed, min(worth, found.num_effective), quantile)
    if is_rare(min(observed, 1 - observed), found):
        return widest
    return _further_out(usual, found.interval(confidence), widest)


def is_rare(share: float, found: Estimated) -> bool:
    """Return whether a value of this share is so rare that clusters in which it is frequent may be missing here.

    The standard error is then far too small.
    """
    return share * found.num_effective < _RARE


def _further_out(
    usual: tuple[float, float], skewed: tuple[float, float], widest: tuple[float, float]
) -> tuple[float, float]:
    """Return the usual interval, each end moved out to the skewed one's, but no further than the widest's."""
    return min(usual[0], max(skewed[0], widest[0])), max(usual[1], min(skewed[1], widest[1]))


def bootstrapped_mean(values: Sequence[float], clusters: Sequence[int] | None = None) -> tuple[float, float] | None:
    """Return the mean's interval by a bootstrap over samples, or over clusters (``intervals.bootstrap_of_sums``).

    None for fewer than two values, and where all are equal.
    """
    return bootstrapped_ratio(values, [1.0] * len(values), clusters)


def bootstrapped_ratio(
    numerators: Sequence[float], denominators: Sequence[float], clusters: Sequence[int] | None = None
) -> tuple[float, float] | None:
    """Return ``bootstrapped_mean`` of ``sum(x) / sum(w)``; the order of samples makes no difference."""
    if clusters is not None:
        numerators, denominators = cluster_sums(numerators, clusters), cluster_sums(denominators, clusters)
    rows = sorted(zip(numerators, denominators, strict=True))
    found = intervals.bootstrap_of_sums(rows, lambda sums: sums[0] / sums[1] if sums[1] > 0 else None)
    return None if found is None else intervals.with_width((found.low, found.high))


def worth_of(variance: float, found: Estimated, n: int) -> float:
    """Return how many independent samples would have the standard error of this mean of ``n`` that lie in clusters.

    ``variance`` is that of one sample; ``variance / stderr²`` is n divided by the design effect (E. L. Korn and B. I.
    Graubard, 1998, Survey Methodology 24:193). Samples that are all the same do not show how alike those of a cluster
    are: each cluster counts as one, of unequal clusters as many as weigh as much as these. Where all clusters have the
    same mean, each sample counts.
    """
    if variance <= 0:
        return found.num_effective
    if math.isclose(found.stderr, 0.0, abs_tol=1e-12):
        return float(n)
    return variance / found.stderr**2


def t_of(found: Estimated, confidence: float = CONFIDENCE) -> float:
    """Return Student's t for the standard error of this mean.

    Where that is 0 nothing says how alike samples are: the degrees of freedom are those of clusters that count as one.
    """
    if math.isclose(found.stderr, 0.0, abs_tol=1e-12):
        return intervals.t_quantile(max(1.0, found.num_effective - 1), confidence)
    return intervals.t_quantile(found.degrees_of_freedom, confidence)


def _alike(values: Sequence[float], sums: Sequence[float], sizes: Sequence[float]) -> float:
    """Return how alike the samples of a cluster are, from 0 to 1: the intra-cluster correlation of an analysis of
    variance.

    (A. Donner, 1986, doi:10.2307/1403259.) 0 where no cluster has two samples.
    """
    n, num_clusters = len(values), len(sizes)
    if n == num_clusters:
        return 0.0
    centre = math.fsum(sums) / n
    between = math.fsum((total - centre * size) ** 2 / size for total, size in zip(sums, sizes, strict=True))
    within = max(0.0, intervals.sum_of_squares(values, centre) - between) / (n - num_clusters)
    usual_size = (n - math.fsum(map(mul, sizes, sizes)) / n) / (num_clusters - 1)
    shared = max(0.0, between / (num_clusters - 1) - within) / usual_size
    return shared / (shared + within) if shared > 0 else 0.0


def _sums_and_sizes(values: Sequence[float], clusters: Sequence[int]) -> tuple[list[float], list[float]]:
    num_clusters = count_clusters(clusters)
    if num_clusters < MIN_CLUSTERS:
        raise ValueError(f"{num_clusters} clusters are too few for a standard error, which takes {MIN_CLUSTERS}")
    return cluster_sums(values, clusters), cluster_sums([1.0] * len(values), clusters)


_NUM_HALVINGS = 60
"""The halvings after which an interval of width 2 is as narrow as a float can tell."""


def paired_proportions_interval(gained: int, lost: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Tango's score interval of the difference of two proportions over the same ``n`` pairs, as (low, high).

    ``gained`` pairs are 0 and then 1, ``lost`` pairs 1 and then 0. It holds every difference that a score test would
    not reject (T. Tango, 1998, Statistics in Medicine 17:891); of no difference, that test is McNemar's without
    continuity correction. It covers well where few pairs differ, and has a width where none do. Raises ``ValueError``
    for counts that n pairs cannot have.
    """
    if n < 1 or gained < 0 or lost < 0 or gained + lost > n:
        raise ValueError(f"{gained} gained and {lost} lost among {n} pairs have no difference")
    z = normal_quantile(confidence)
    return -_upper_limit(lost, gained, n, z), _upper_limit(gained, lost, n, z)


def flips_interval(
    differences: Sequence[float], clusters: Sequence[int] | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of the mean of differences that are -1, 0 or 1, as (low, high).

    ``paired_proportions_interval``, over as many pairs as the clusters are worth (``clustered.worth_of``) and with the
    quantile of t, where ``clusters[i]`` is the cluster of ``differences[i]``; ``ValueError`` for fewer than
    ``MIN_CLUSTERS``.
    """
    n, gained, lost = len(differences), differences.count(1.0), differences.count(-1.0)
    found = None if clusters is None else estimate_in_clusters(differences, clusters)
    if found is None or clusters is None or count_clusters(clusters) == n:
        return paired_proportions_interval(gained, lost, n, confidence)
    variance = (gained + lost) / n - ((gained - lost) / n) ** 2
    worth, quantile = worth_of(variance, found, n), t_of(found, confidence)
    usual, widest = (
        (
            -_upper_limit(lost * scale, gained * scale, n * scale, quantile),
            _upper_limit(gained * scale, lost * scale, n * scale, quantile),
        )
        for scale in (worth / n, min(worth, found.num_effective) / n)
    )
    if is_rare((gained + lost) / n, found):
        return widest
    return _further_out(usual, found.interval(confidence), widest)


def _upper_limit(gained: float, lost: float, n: float, z: float) -> float:
    """Return the greatest difference that the score test does not reject; the counts need be no whole numbers."""
    low, high = (gained - lost) / n, 1.0
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if _is_rejected(middle, gained, lost, n, z):
            high = middle
        else:
            low = middle
    return high


def _is_rejected(difference: float, gained: float, lost: float, n: float, z: float) -> bool:
    """Return whether the pairs lie more than z standard errors from ``difference``, which is above what they show.

    The standard error is that of the likeliest proportions with this difference: ``q`` is the share of pairs lost.
    """
    linear = (2 * n - gained + lost) * difference - gained - lost
    constant = -lost * difference * (1 - difference)
    root = math.sqrt(max(0.0, linear**2 - 8 * n * constant))
    q = (root - linear) / (4 * n) if linear < 0 else -2 * constant / (root + linear) if root + linear > 0 else 0.0
    variance = n * (2 * q + difference * (1 - difference))
    return (gained - lost - n * difference) ** 2 > z * z * variance
