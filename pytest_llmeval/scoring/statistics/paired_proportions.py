"""The interval of a difference of two proportions over the same samples, some of them gained and some lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.scoring.statistics.clustered import (
    count_clusters,
    estimate_in_clusters,
    further_out,
    is_rare,
    t_of,
    worth_of,
)
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, normal_quantile

__all__ = ["flips_interval", "paired_proportions_interval"]

_NUM_HALVINGS = 60
"""After which an interval of width 2 is as narrow as a float can tell."""


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
    return further_out(usual, found.interval(confidence), widest)


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
