"""Statistics of raters: how far people and a judge agree, and estimates of what people would have found.

The share of right answers that a judge finds is biased if it errs more often in one direction than in the other.
``rogan_gladen`` corrects it for labels, ``ppi_mean`` for scores (and for labels, as 0 and 1). Both take samples that
are independent of each other, and that the judge treats alike whether people rated them or not:

- ``rogan_gladen`` needs the same sensitivity and specificity on both sets of samples, not the same base rate, so that
  people may rate more of what is rare; no sample may be in both sets.
- ``ppi_mean`` needs the rated samples to be a random part of all; then it never has to know why the judge errs, and is
  the safer of the two.

Samples are independent of each other: where they come in clusters, the intervals here are too narrow. Functions of
agreement raise ``ValueError`` for raters who rated different numbers of samples, and for a rating that is missing
(None; but see ``krippendorff_alpha``) or not finite. Samples that do not define a statistic give an ``Estimate``
without a value, and the reason.
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
    mean,
    normal_quantile,
    share_never_drawn,
    undefined,
    with_width,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["JudgeCounts", "judge_counts", "krippendorff_alpha", "ppi_mean", "rogan_gladen", "weighted_kappa"]

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
    ``intervals.share_never_drawn`` of samples on which they differ as much as scores can, with ``q_e`` as it was found.
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
    ``intervals.share_never_drawn`` of samples that differ as much as ratings do. Not defined where no sample has two
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


def _check_labels(labels: Sequence[Label | float]) -> None:
    """Raise ``ValueError`` for a rating that is missing or not finite."""
    for label in labels:
        if label is None or (isinstance(label, float) and not math.isfinite(label)):
            raise ValueError(f"found {label} among the ratings: only what both rated can be compared")


def _check_pairs(human: Sequence[Label | float], judge: Sequence[Label | float]) -> None:
    if len(human) != len(judge):
        raise ValueError(f"people rated {len(human)} samples and the judge {len(judge)}: the same are needed")
    _check_labels(human)
    _check_labels(judge)


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
    """Return kappa of what each sample's two ratings cost, between 0 for the same and 1.

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
        """Return alpha of samples each of which is there so many times; None if all ratings are equal."""
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
        _check_labels(row)
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


_TOO_FEW = "people rated too few samples to tell the judge from a coin"
_LARGEST = 1e100
"""Larger scores have squares that a sum of floats cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCounts:
    """The labels that a judge gave samples which people labelled: the counts behind its sensitivity and specificity.

    ``true_positives`` are those of the ``positives`` (by people) that the judge calls positive too, ``true_negatives``
    those of the ``negatives`` that it does not; one that it is of two minds about is half of each. ``ValueError`` for
    counts that cannot be.
    """

    true_positives: float
    positives: int
    true_negatives: float
    negatives: int

    def __post_init__(self) -> None:
        if not (0 <= self.true_positives <= self.positives and 0 <= self.true_negatives <= self.negatives):
            raise ValueError(
                f"{self.true_positives} of {self.positives} positives and {self.true_negatives} of {self.negatives} "
                "negatives are no counts of a judge's labels"
            )


def judge_counts(human: Sequence[Label], judge: Sequence[Label], positive: Label) -> JudgeCounts:
    """Return the counts over samples that people and a judge labelled.

    ``ValueError`` where they labelled different numbers of samples, and for a label that is missing.
    """
    if len(human) != len(judge):
        raise ValueError(f"people rated {len(human)} samples and the judge {len(judge)}: the same are needed")
    _check_labels(human)
    _check_labels(judge)
    positives = [own for people, own in zip(human, judge, strict=True) if people == positive]
    negatives = [own for people, own in zip(human, judge, strict=True) if people != positive]
    return JudgeCounts(
        true_positives=sum(label == positive for label in positives),
        positives=len(positives),
        true_negatives=sum(label != positive for label in negatives),
        negatives=len(negatives),
    )


def rogan_gladen(judged_positive: float, n: int, counts: JudgeCounts, *, confidence: float = CONFIDENCE) -> Estimate:
    """Return the share of ``n`` samples that people would call positive, of which the judge calls ``judged_positive``
    so.

    ``(p + sp - 1) / (se + sp - 1)`` within 0 and 1, with the judge's share p, sensitivity se and specificity sp (W. J.
    Rogan and B. Gladen, 1978, doi:10.1093/oxfordjournals.aje.a112510). No value without samples, without positives or
    negatives that people found, and where ``se + sp <= 1``: such a judge says nothing.

    The interval is that of Z. Lang and J. Reiczigel (2014, doi:10.1016/j.prevetmed.2013.09.015), which C. Lee et al.
    (2025, arXiv:2511.21140) recommend for judges. With z the normal quantile, p over ``n + z²`` samples after z²/2
    more of either kind, se and sp over two samples more, one of either kind, and x the share that follows from these::

        x + 2 z² (x v_se - (1 - x) v_sp) ± z sqrt(v_p + x² v_se + (1 - x)² v_sp) / (se + sp - 1)

    where ``v = q (1 - q) / m`` of a share q over m samples; ``stderr`` is what z is multiplied by. Both limits are
    within 0 and 1, and the interval is made to reach the value, which that of a handful of samples can miss. There is
    none where it lies beyond 0 or 1 as a whole: the judge then calls more, or fewer, samples positive than any base
    rate explains, and does not treat the two sets alike, or people rated a handful. Nor is there one where these se and
    sp add up to 1 or less; where they hardly do to more, the formula (a delta method) is not to be trusted.
    ``ValueError`` where ``0 <= judged_positive <= n`` does not hold.
    """
    if not 0 <= judged_positive <= n:
        raise ValueError(f"{judged_positive} positives among {n} samples have no proportion")
    reason = _why_uncorrected(n, counts)
    if reason is not None:
        return undefined(n, reason)
    observed = judged_positive / n
    se = counts.true_positives / counts.positives
    sp = counts.true_negatives / counts.negatives
    is_possible = 1 - sp <= observed <= se
    value = _within_one((observed + sp - 1) / (se + sp - 1))
    z = normal_quantile(confidence)
    p, v_p = _adjusted(judged_positive, n, z * z / 2)
    se, v_se = _adjusted(counts.true_positives, counts.positives, 1)
    sp, v_sp = _adjusted(counts.true_negatives, counts.negatives, 1)
    slope = se + sp - 1
    if slope <= 0:
        return Estimate(value=value, n=n, reason=_TOO_FEW)
    share = (p + sp - 1) / slope
    centre = share + 2 * z * z * (share * v_se - (1 - share) * v_sp)
    stderr = math.sqrt(v_p + share**2 * v_se + (1 - share) ** 2 * v_sp) / slope
    low, high = centre - z * stderr, centre + z * stderr
    if low >= 1 or high <= 0:
        reason = _TOO_FEW
        if not is_possible:
            reason = "the judge's share is not one that its sensitivity and specificity could give: the two sets differ"
        return Estimate(value=value, n=n, stderr=stderr, reason=reason)
    low, high = min(_within_one(low), value), max(_within_one(high), value)
    return Estimate(value=value, n=n, stderr=stderr, ci_low=low, ci_high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPowered(Estimate):
    """A mean of ``n`` human scores, made narrower by the judge's on those samples and on ``num_judged_only`` others.

    ``weight`` is lambda: how far the judge is relied on, from 0 (people's mean alone) to 1 (its scores count fully).
    """

    weight: float | None = None
    num_judged_only: int = 0


def ppi_mean(
    human: Sequence[float],
    judge: Sequence[float],
    judge_only: Sequence[float],
    *,
    weight: float | None = None,
    confidence: float = CONFIDENCE,
) -> PredictionPowered:
    """Return the mean of human scores by prediction-powered inference (PPI++, A. N. Angelopoulos et al.,
    arXiv:2311.01453).

    ``human[i]`` and ``judge[i]`` are scores of one of n samples, ``judge_only`` the judge's of N others. With lambda
    the ``weight``::

        mean(human) + lambda (mean(judge_only) - mean(judge)) ± z stderr
        stderr² = var(human - lambda judge) / n + lambda² var(judge_only) / N

    It is unbiased for every lambda that is given; by default lambda is the one of least variance, ``cov(human, judge)
    / ((1 + n / N) var(judge and judge_only together))`` within 0 and 1 (section 6 of the paper), at the price of a bias
    that falls as 1 / n. Variances and the covariance have a divisor of one less than the number of samples. Lambda is
    0 where the judge's scores are all equal, and where fewer than two are beyond the labelled ones.
    The interval is a normal one: for 50 labelled samples of 0 and 1 it covers 93% to 94% by simulation.

    No value for fewer than two human scores, no interval where it would have no width. ``ValueError`` for ``human`` and
    ``judge`` of different lengths, for a score that is missing, not finite or beyond ±1e100, for a weight outside of 0
    to 1, and for one above 0 without two scores in ``judge_only``.
    """
    if len(human) != len(judge):
        raise ValueError(f"people rated {len(human)} samples and the judge {len(judge)}: the same are needed")
    for scores in (human, judge, judge_only):
        _check_labels(scores)
        for score in scores:
            if abs(score) > _LARGEST:
                raise ValueError(f"found {score} among the scores: its square is too large")
    n, others = len(human), len(judge_only)
    if weight is not None and not 0 <= weight <= 1:
        raise ValueError(f"the weight of a judge lies between 0 and 1, found {weight}")
    if weight and others < 2:
        raise ValueError(f"a weight of {weight} needs two scores by the judge alone, found {others}")
    if n < 2:
        reason = "people rated one sample, and two are needed" if n else "people rated no sample"
        return PredictionPowered(value=None, n=n, reason=reason, num_judged_only=others)
    relied = _tuned_weight(human, judge, judge_only) if weight is None else float(weight)
    value = mean(human)
    variance = _covariance(*[[people - relied * own for people, own in zip(human, judge, strict=True)]] * 2) / n
    if relied:
        value += relied * (mean(judge_only) - mean(judge))
        variance += relied**2 * _covariance(judge_only, judge_only) / others
    stderr = math.sqrt(variance)
    half = normal_quantile(confidence) * stderr
    low, high = with_width((value - half, value + half)) or (None, None)
    return PredictionPowered(
        value=value,
        n=n,
        stderr=stderr,
        ci_low=low,
        ci_high=high,
        reason="all values are equal" if low is None else None,
        weight=relied,
        num_judged_only=others,
    )


def _why_uncorrected(n: int, counts: JudgeCounts) -> str | None:
    if n == 0:
        return "the judge labelled no sample"
    if counts.positives == 0:
        return "people found no positive sample, so that the judge's sensitivity is not known"
    if counts.negatives == 0:
        return "people found no negative sample, so that the judge's specificity is not known"
    right = counts.true_positives * counts.negatives + counts.true_negatives * counts.positives
    if right <= counts.positives * counts.negatives:  # in whole numbers: no rounding decides
        return "the judge's sensitivity and specificity add up to 1 or less: its labels say nothing"
    return None


def _adjusted(successes: float, n: int, more: float) -> tuple[float, float]:
    """Return a share after as many ``more`` successes as failures, and its variance."""
    share = (successes + more) / (n + 2 * more)
    return share, share * (1 - share) / (n + 2 * more)


def _within_one(share: float) -> float:
    return min(1.0, max(0.0, share))


def _tuned_weight(human: Sequence[float], judge: Sequence[float], judge_only: Sequence[float]) -> float:
    if len(judge_only) < 2:
        return 0.0
    pooled = [*judge, *judge_only]
    variance = _covariance(pooled, pooled)
    if variance <= 0 or math.isclose(min(pooled), max(pooled), rel_tol=1e-12):
        return 0.0
    return _within_one(_covariance(human, judge) / ((1 + len(human) / len(judge_only)) * variance))


def _covariance(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the covariance, with a divisor of n - 1."""
    centre, other_centre = mean(values), mean(others)
    products = ((x - centre) * (y - other_centre) for x, y in zip(values, others, strict=True))
    return math.fsum(products) / (len(values) - 1)
