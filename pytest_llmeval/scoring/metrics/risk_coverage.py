"""Risk and coverage: how often answers are wrong, where only those that a model is most sure of are given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, normal_quantile, wilson_limits
from pytest_llmeval.types import Status

__all__ = ["COVERAGES", "RiskCoverage", "RiskPoint", "confidence_pair", "risk_coverage", "risks_at"]

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
    """Return the risk-coverage curve of samples given as (confidence, accuracy); None of none.

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
