"""How the samples' values of a metric are spread around their mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.types import Score

__all__ = ["Distribution", "Percentiles", "distributions", "percentiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of ``n`` values, in their unit. They are interpolated linearly, as ``numpy.percentile`` does."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """Return the mean and percentiles of the values; None of none. ``ValueError`` for one that is not finite."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        raise ValueError("percentiles are taken of finite values only")
    ordered = sorted(values)
    return Percentiles(
        n=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        p50=_quantile(ordered, 0.50),
        p95=_quantile(ordered, 0.95),
        p99=_quantile(ordered, 0.99),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of R. J. Hyndman and Y. Fan (1996), definition 7."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


_OF_SAMPLES = ("mean", "proportion")
"""Kinds of metrics that are means of samples' own values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The distribution of ``n`` values. ``sd`` is the standard deviation (by N - 1), None for n < 2; percentiles are
    interpolated.
    """

    n: int
    mean: float
    sd: float | None
    min: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution | None:
        """Return the distribution of values, None of no values. ``ValueError`` for one that is not finite."""
        found = percentiles(values)
        if found is None:
            return None
        # hypot scales: squares of large values have no float.
        sd = math.hypot(*(value - found.mean for value in values)) / math.sqrt(found.n - 1) if found.n > 1 else None
        low, high = min(values), max(values)
        return cls(n=found.n, mean=found.mean, sd=sd, min=low, p50=found.p50, p95=found.p95, max=high)


def distributions(scores: Sequence[Score], metrics: Mapping[str, Metric]) -> dict[str, Distribution]:
    """Return the distribution of each of the metrics that is a mean over samples, over the scores that carry it."""
    found = {}
    for name, metric in metrics.items():
        if metric.kind in _OF_SAMPLES:
            values = [value for score in scores if (value := value_of(score, name)) is not None]
            if (own := Distribution.of(values)) is not None:
                found[name] = own
    return found
