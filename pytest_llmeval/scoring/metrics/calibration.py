"""Measures of a model's confidence: calibration, and risk at a coverage.

Calibration asks whether what a model calls 80% likely is right in 80% of the cases; risk and coverage, how often
answers are wrong if only those are given that the model is most sure of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from operator import sub
from types import MappingProxyType

from pytest_llmeval.scoring.metrics.corpus_formulas import CorpusFormula, Ingredients, Sums
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, normal_quantile, wilson_limits
from pytest_llmeval.types import ScoreLike, Status

__all__ = [
    "CALIBRATION",
    "CALIBRATION_FORMULAS",
    "COVERAGES",
    "NUM_BINS",
    "ReliabilityBin",
    "RiskCoverage",
    "RiskPoint",
    "calibration_values",
    "confidence_pair",
    "negative_loglikelihood",
    "reliability",
    "reliability_of",
    "risk_coverage",
    "risks_at",
    "softmax",
]

CALIBRATION = ("nll", "ece")
"""The metrics that a scorer with ``calibration_values`` carries."""
NUM_BINS = 15
"""Bins of equal width over confidence, as C. Guo et al. (2017, arXiv:1706.04599) take for their tables."""
_INNER_EDGES = tuple(edge / NUM_BINS for edge in range(1, NUM_BINS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Samples whose confidence lies in (``low``, ``high``]; the means are None where there are none."""

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


def softmax(values: Sequence[float]) -> list[float]:
    """Return ``exp(v) / sum(exp(v))``, stable; -inf gets 0. At least one value must be finite, and none NaN or +inf."""
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def negative_loglikelihood(scores: Sequence[float], right: Collection[int]) -> float:
    """Return ``-ln`` of the probability that a softmax over ``scores`` gives to the right options together, in nats, >=
    0.

    Computed from logarithms: a probability that is 0 as a float has a finite one all the same. Infinite where the model
    excludes every right option. At least one score must be finite, and none NaN or +inf.
    """
    of_right = _log_sum_exp([score for index, score in enumerate(scores) if index in right])
    return max(0.0, _log_sum_exp(scores) - of_right)


def calibration_values(
    scores: Sequence[float], right: Collection[int], probabilities: Sequence[float] | None = None
) -> dict[str, float]:
    """Return a sample's numbers that calibration is measured by, from the scores of its options.

    ``probabilities`` are their softmax, where it is known.

    ``confidence`` is the probability of the likeliest option, from a softmax over ``scores``; ``nll`` see
    ``negative_loglikelihood``: a sample whose right options the model excludes (probability 0, not merely small) has
    none, so that it is missing from the metric's n.
    """
    values = {"confidence": max(softmax(scores) if probabilities is None else probabilities)}
    nll = negative_loglikelihood(scores, right)
    return {**values, "nll": nll} if math.isfinite(nll) else values


def reliability(scores: Iterable[ScoreLike]) -> tuple[ReliabilityBin, ...] | None:
    """Return the reliability diagram (A. Niculescu-Mizil and R. Caruana, 2005) of the likeliest options, as
    ``NUM_BINS`` bins.

    Over the scores, unscored ones aside, whose values hold ``confidence`` and ``accuracy``; None where none do.
    """
    having = [
        score.values for score in scores if score.status != "unscored" and all(name in score.values for name in _NEEDS)
    ]
    return reliability_of([values["confidence"] for values in having], [values["accuracy"] for values in having])


def reliability_of(confidences: Sequence[float], accuracies: Sequence[float]) -> tuple[ReliabilityBin, ...] | None:
    """Return ``reliability`` of samples by the confidence and the accuracy of each; None if there are no samples."""
    if not confidences:
        return None
    return tuple(
        ReliabilityBin(
            low=place / NUM_BINS,
            high=(place + 1) / NUM_BINS,
            n=len(inside),
            confidence=_mean(inside),
            accuracy=_mean(right),
        )
        for place, (inside, right) in enumerate(
            zip(_binned(confidences, confidences), _binned(confidences, accuracies), strict=True)
        )
    )


def _bin_of(confidence: float) -> int:
    return bisect_left(_INNER_EDGES, confidence)


def _binned(confidences: Sequence[float], values: Iterable[float]) -> list[list[float]]:
    """Return the values of the samples in each bin."""
    found: list[list[float]] = [[] for _ in range(NUM_BINS)]
    for place, value in zip(map(bisect_left, repeat(_INNER_EDGES), confidences), values, strict=True):
        found[place].append(value)
    return found


def _expected_calibration_error(samples: Sequence[Ingredients]) -> Sums:
    """Return the sum over bins of ``n_b / n * |accuracy_b - confidence_b|``, each ``|sum of (accuracy - confidence)| /
    n``.
    """
    rows = []
    for sample in samples:
        row = [0.0] * (NUM_BINS + 1)
        row[_bin_of(sample["confidence"])] = sample["accuracy"] - sample["confidence"]
        row[NUM_BINS] = 1.0
        rows.append(row)
    return Sums(rows, lambda total: math.fsum(map(abs, total[:NUM_BINS])) / total[NUM_BINS])


def _calibration_error_of_columns(columns: Mapping[str, Sequence[float]]) -> float | None:
    """Return the same from the differences of each bin alone: in an exact sum the zeros of a row have no part."""
    confidences, accuracies = columns["confidence"], columns["accuracy"]
    if not confidences:
        return None
    gaps = _binned(confidences, map(sub, accuracies, confidences))
    return math.fsum(abs(math.fsum(gap)) for gap in gaps) / len(confidences)


_NEEDS = ("confidence", "accuracy")

CALIBRATION_FORMULAS: Mapping[str, CorpusFormula] = MappingProxyType(
    {
        "ece": CorpusFormula(
            _NEEDS,
            _expected_calibration_error,
            no_interval="chance makes it larger than it is",
            of_columns=_calibration_error_of_columns,
        )
    }
)
"""Corpus metrics of calibration. ``ece``: expected calibration error of the likeliest option (Guo et al., 2017, eq. 3),
with ``NUM_BINS`` bins of equal width, each open below and closed above. It is biased upwards (A. Kumar et al.,
2019, arXiv:1909.10155): of a perfectly calibrated model it is about 0.08 over 200 samples, 0.04 over 1,000. So it has
no interval: one by a bootstrap holds the 0 of that model nearly never, at any n."""


def _log_sum_exp(values: Sequence[float]) -> float:
    """Return ``ln(sum(exp(v)))``, stable; -inf for no values, and where all are -inf."""
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return -math.inf
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


COVERAGES = tuple(tenth / 10 for tenth in range(1, 11))
"""Shares of the samples at which a table shows the risk."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskPoint:
    """The ``n`` samples with the highest confidence, the lowest of them being ``confidence``.

    ``coverage`` is their share of all samples, ``risk`` is 1 - their accuracy, from ``ci_low`` to ``ci_high`` with 95%
    confidence where that was asked for: Wilson's interval, of samples that are independent of each other.
    """

    n: int
    coverage: float
    confidence: float
    risk: float
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskCoverage:
    """The curve of ``n`` samples: a point for each confidence that occurs, coverage growing up to 1.

    ``aurc`` is the area under it, each point's risk being that of the samples that it adds: 0 is perfect. What is
    expected of confidences that say nothing is the risk at coverage 1.
    """

    n: int
    points: tuple[RiskPoint, ...]
    aurc: float


def confidence_pair(status: Status, values: Mapping[str, float]) -> tuple[float, float] | None:
    """Return the confidence and accuracy of a sample with this score; None where it is unscored, or has not both as
    finite numbers.
    """
    if status == "unscored":
        return None
    confidence, accuracy = values.get("confidence", math.nan), values.get("accuracy", math.nan)
    return (confidence, accuracy) if math.isfinite(confidence) and math.isfinite(accuracy) else None


def risk_coverage(pairs: Iterable[tuple[float, float]]) -> RiskCoverage | None:
    """Return the risk-coverage curve of samples given as (confidence, accuracy); None if there are none.

    After Y. Geifman and R. El-Yaniv (2017, arXiv:1705.08500): the selective risk, with a loss of 1 - accuracy, of the
    samples whose confidence is at least a threshold. Samples of equal confidence are answered together or not at all.
    """
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    total = len(ordered)
    if not total:
        return None
    points: list[RiskPoint] = []
    areas: list[float] = []
    count, lost = 0, 0.0
    for confidence, members in groupby(ordered, key=lambda pair: pair[0]):
        losses = [1.0 - accuracy for _, accuracy in members]
        count, lost = count + len(losses), math.fsum((lost, *losses))
        points.append(RiskPoint(n=count, coverage=count / total, confidence=confidence, risk=lost / count))
        areas.append(len(losses) * (lost / count))
    return RiskCoverage(n=total, points=tuple(points), aurc=math.fsum(areas) / total)


def risks_at(curve: RiskCoverage, coverages: Sequence[float] = COVERAGES) -> list[RiskPoint]:
    """Return for each coverage the first point that covers as much, with its interval; points that are the same
    once.
    """
    z = normal_quantile(CONFIDENCE)
    found: dict[int, RiskPoint] = {}
    points = iter(curve.points)
    point = next(points)
    for coverage in sorted(coverages):
        while point.coverage < coverage - _ROUNDING and point.n < curve.n:
            point = next(points)
        low, high = wilson_limits(min(1.0, max(0.0, point.risk)), point.n, z)
        found[point.n] = RiskPoint(
            n=point.n,
            coverage=point.coverage,
            confidence=point.confidence,
            risk=point.risk,
            ci_low=low,
            ci_high=high,
        )
    return list(found.values())
