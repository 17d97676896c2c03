"""How far two raters agree, such as people and a judge, and how far a panel of judges does.

Samples are independent of each other: where they come in clusters, the intervals here are too narrow. Every function
raises ``ValueError`` for raters who rated different numbers of samples, and for a rating that is missing (None; but see
``krippendorff_alpha``) or not finite. Samples that do not define a statistic give an ``Estimate`` without a value, and
the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pytest_llmeval.scoring.statistics.intervals import (
    CONFIDENCE,
    NUM_RESAMPLES,
    Estimate,
    bootstrap_of_counts,
    normal_quantile,
    share_never_drawn,
    undefined,
    with_width,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Label",
    "check_labels",
    "krippendorff_alpha",
    "weighted_kappa",
]

Label: TypeAlias = str | int
"""A category; True and False are 1 and 0."""


_NO_SAMPLES = "no samples"


def weighted_kappa(human: Sequence[float], judge: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Return Cohen's kappa with quadratic weights, for ordered scores: ``1 - q_o / q_e``.

    Of two labels, 0 and 1, it is the kappa without weights (J. Cohen, 1960, doi:10.1177/001316446002000104).

    ``q_o`` is the mean of ``(x - y)²`` over the samples, ``q_e`` the same over all pairs of a human's and a judge's
    score (J. Cohen, 1968, doi:10.1037/h0026256). Scores are numbers, not ranks: steps of different size count
    differently, and neither an offset nor a factor common to both raters matters.

    The standard error is the asymptotic one of J. L. Fleiss, J. Cohen and B. S. Everitt (1969, doi:10.1037/h0028106),
    for margins that are estimated too. The interval is that of ``log(1 - kappa)`` by the delta method, which gives
    ``1 - (1 - kappa) exp(± z stderr / (1 - kappa))``, at least -1: ``kappa ± z stderr`` covers 90% only where few
    samples differ. Where none does, neither has a width: the interval then reaches down to the kappa of a share of
    ``estimate.share_never_drawn`` of samples on which they differ as much as scores can, with ``q_e`` as it was found.
    All of these cover too little where a label is rare: with 5% negatives and a sensitivity and specificity of 0.9 and
    0.8, by simulation, 84% for 50 samples, 91% for 100, 92% for 200.

    Not defined where both gave all samples one and the same score; without an interval where one of them did.
    """
    _check_pairs(human, judge)
    by_human, by_judge = Counter(human), Counter(judge)
    low = min([*by_human, *by_judge], default=0.0)
    span = max([*by_human, *by_judge], default=0.0) - low
    if not math.isfinite(span):
        raise ValueError(f"scores {span} apart have no squared difference")
    if span == 0:
        return undefined(len(human), _one_rating(len(human)))
    first, second = ([(score - low) / span for score in scores] for scores in (human, judge))
    costs = [(x - y) ** 2 for x, y in zip(first, second, strict=True)]
    return _kappa(
        costs,
        _mean_squares(first, second),
        _mean_squares(second, first),
        _sole_rater(by_human, by_judge),
        confidence,
    )


def krippendorff_alpha(
    ratings: Sequence[Sequence[float | None]], *, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Estimate:
    """Return Krippendorff's alpha of a panel: ``1 - D_o / D_e``, observed over expected disagreement.

    ``ratings`` has a row for each sample with the ratings of its judges, None where one is missing; a sample that fewer
    than two judges rated is left out, of ``n`` too. ``D_o`` is the mean squared difference over pairs of ratings of one
    sample, ``D_e`` over all pairs of ratings: alpha for intervals, of two labels that for names as well (K.
    Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011).

    Interval and standard error are those of a bootstrap over samples, always the same for the same ratings and
    ``seed`` (``intervals.bootstrap_of_counts``): of the judges at hand, not of others that might have been asked. The
    interval is made to reach the value, which that of a handful of samples can miss. Where all judges agree on every
    sample, it reaches down to the alpha of a share of
    ``estimate.share_never_drawn`` of samples that differ as much as ratings do. Not defined where no sample has two
    ratings, and where all of these are equal.
    """
    panel = _panel(ratings)
    if panel is None:
        return undefined(0, "no sample was rated by two judges")
    import numpy as np

    n = len(panel.num_ratings)
    alpha = panel.alpha(np.ones(n))
    if alpha is None:
        return undefined(n, "all ratings are equal")
    if alpha == 1:
        low = max(-1.0, 1 - share_never_drawn(n) * panel.largest_over_expected())
        return Estimate(value=1.0, n=n, stderr=0.0, ci_low=low, ci_high=1.0)
    found = bootstrap_of_counts(n, panel.alpha, num_resamples=num_resamples, seed=seed)
    if found is None:
        return Estimate(value=alpha, n=n, reason="too few samples for a bootstrap")
    interval = with_width((found.low, found.high))
    if interval is None:
        return Estimate(value=alpha, n=n, stderr=found.stderr, reason="all bootstrap samples have the same value")
    low, high = min(interval[0], alpha), max(interval[1], alpha)
    return Estimate(value=alpha, n=n, stderr=found.stderr, ci_low=low, ci_high=high)


def check_labels(labels: Sequence[Label | float]) -> None:
    """Raise ``ValueError`` for a rating that is missing or not finite."""
    for label in labels:
        if label is None or (isinstance(label, float) and not math.isfinite(label)):
            raise ValueError(f"found {label} among the ratings: only what both rated can be compared")


def _check_pairs(human: Sequence[Label | float], judge: Sequence[Label | float]) -> None:
    if len(human) != len(judge):
        raise ValueError(f"people rated {len(human)} samples and the judge {len(judge)}: the same are needed")
    check_labels(human)
    check_labels(judge)


def _one_rating(n: int) -> str:
    return "all ratings by both are the same" if n else _NO_SAMPLES


def _sole_rater(by_human: Counter[Label] | Counter[float], by_judge: Counter[Label] | Counter[float]) -> str | None:
    """Return who gave all samples one rating, if one of them did."""
    return "people" if len(by_human) == 1 else "the judge" if len(by_judge) == 1 else None


def _kappa(
    costs: Sequence[float],
    chance_of_human: Sequence[float],
    chance_of_judge: Sequence[float],
    sole_rater: str | None,
    confidence: float,
) -> Estimate:
    """Kappa of what each sample's two ratings cost, between 0 for the same and 1.

    ``chance_of_human[i]`` is the mean cost of the i-th human rating against all of the judge's, and the other way
    round. The terms whose squares are summed are those of Fleiss, Cohen and Everitt, written with costs in place of
    weights (1 - weight) and by sample in place of by cell.
    """
    n = len(costs)
    observed = math.fsum(costs) / n if n else 0.0
    expected = math.fsum(chance_of_human) / n if n else 0.0
    if expected <= 0:
        return undefined(n, _one_rating(n))
    if sole_rater is not None:
        return Estimate(value=0.0, n=n, reason=f"all ratings by {sole_rater} are the same: nothing else is possible")
    kappa = max(-1.0, 1 - observed / expected)
    if observed == 0:
        low = max(-1.0, 1 - share_never_drawn(n, confidence) / expected)
        return Estimate(value=1.0, n=n, stderr=0.0, ci_low=low, ci_high=1.0)
    squares = math.fsum(
        (((human + judge - 2 * expected) * observed / expected - (cost - observed)) / expected) ** 2
        for cost, human, judge in zip(costs, chance_of_human, chance_of_judge, strict=True)
    )
    stderr = math.sqrt(squares) / n
    factor = math.exp(normal_quantile(confidence) * stderr / (1 - kappa))
    interval = with_width((max(-1.0, 1 - (1 - kappa) * factor), 1 - (1 - kappa) / factor))
    if interval is None:
        return Estimate(value=kappa, n=n, stderr=stderr, reason="the samples show no spread")
    return Estimate(value=kappa, n=n, stderr=stderr, ci_low=interval[0], ci_high=interval[1])


def _mean_squares(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return for each value the mean of its squared differences from the others."""
    n = len(others)
    centre = math.fsum(others) / n
    spread = math.fsum((other - centre) ** 2 for other in others) / n
    return [(value - centre) ** 2 + spread for value in values]


@dataclass(frozen=True, slots=True)
class _Panel:
    """The ratings of the samples that have two or more, in one row: the sample and the value of each, from 0 to 1.

    ``num_ratings`` are those of each sample, ``disagreements`` the sums of the squared differences over its ordered
    pairs of ratings, each over the number of its ratings less one.
    """

    samples: NDArray[np.intp]
    values: NDArray[np.float64]
    num_ratings: NDArray[np.float64]
    disagreements: NDArray[np.float64]

    def alpha(self, counts: NDArray[np.float64]) -> float | None:
        """Alpha of samples each of which is there so many times; None where all ratings are equal."""
        weights = counts[self.samples]
        there = self.values[weights > 0]
        if not len(there) or there.min() == there.max():
            return None
        total = float(weights.sum())
        return 1 - float(counts @ self.disagreements) * (total - 1) / (2 * total * self._spread(weights))

    def largest_over_expected(self) -> float:
        """Return the largest difference of two ratings over the mean one of all pairs, both squared."""
        import numpy as np

        weights = np.ones(len(self.values))
        return float(np.ptp(self.values)) ** 2 * (len(weights) - 1) / (2 * self._spread(weights))

    def _spread(self, weights: NDArray[np.float64]) -> float:
        """Return the sum of the squared differences from the mean."""
        centre = float(weights @ self.values) / float(weights.sum())
        return float(weights @ (self.values - centre) ** 2)


def _panel(ratings: Sequence[Sequence[float | None]]) -> _Panel | None:
    """Return the panel; None where no sample has two ratings."""
    import numpy as np

    given = [[rating for rating in row if rating is not None] for row in ratings]
    for row in given:
        check_labels(row)
    rated = [row for row in given if len(row) > 1]
    if not rated:
        return None
    low = min(map(min, rated))
    span = max(map(max, rated)) - low
    if not math.isfinite(span):
        raise ValueError(f"ratings {span} apart have no squared difference")
    samples = np.repeat(np.arange(len(rated)), [len(row) for row in rated])
    num_ratings = np.array([len(row) for row in rated], dtype=float)
    values = np.array([(rating - low) / (span or 1.0) for row in rated for rating in row])
    means = np.bincount(samples, values) / num_ratings
    within = np.bincount(samples, (values - means[samples]) ** 2)
    within[[min(row) == max(row) for row in rated]] = 0.0  # rounding is no disagreement
    return _Panel(samples, values, num_ratings, 2 * num_ratings / (num_ratings - 1) * within)
