"""Metrics that are pooled over samples: one ratio of two sums, not a mean of the samples' own ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pytest_llmeval.scoring.metrics.corpus_formulas import FormulaEstimate
from pytest_llmeval.scoring.metrics.definitions import split_name
from pytest_llmeval.scoring.statistics.clustered import are_too_few, bootstrapped_ratio, cluster_sums
from pytest_llmeval.scoring.statistics.intervals import check_finite, estimate_ratio, with_width

__all__ = ["POOLED", "PooledFormula", "bootstrapped_pooled", "pooled", "pseudo_values"]


@dataclass(frozen=True, slots=True)
class PooledFormula:
    """A metric is ``of_rate(rate)``, where ``rate = -sum(loglikelihood) / sum(unit)`` over samples, in nats per unit.

    ``loglikelihood`` and ``unit`` are names in ``Score.values``. ``of_rate`` grows with the rate; ``slope`` is its
    derivative.
    """

    unit: str
    of_rate: Callable[[float], float]
    slope: Callable[[float], float]


POOLED: Mapping[str, PooledFormula] = MappingProxyType(
    {
        "word_perplexity": PooledFormula("words", math.exp, math.exp),
        "byte_perplexity": PooledFormula("bytes", math.exp, math.exp),
        "bits_per_byte": PooledFormula("bytes", lambda nats: nats / math.log(2), lambda _: 1 / math.log(2)),
        "token_perplexity": PooledFormula("tokens", math.exp, math.exp),
        "perplexity": PooledFormula("samples", math.exp, math.exp),
    }
)
"""Pooled metrics by name. Word and byte perplexity and bits per byte are those of lm-eval 0.4.13:
``weighted_perplexity`` and ``bits_per_byte`` of ``lm_eval/api/metrics.py``; ``perplexity`` is that of the name there,
of which every sample is one unit (``samples`` is 1)."""


def pooled(name: str, values: Sequence[Mapping[str, float]], clusters: Sequence[int] | None = None) -> FormulaEstimate:
    """Return the metric ``name`` over samples whose ``values`` hold ``loglikelihood`` (nats) and the formula's unit.

    Its standard error and 95% interval are those of a ratio of two sums, of which samples are the independent parts
    (``intervals.estimate_ratio``; a text's words are taken to be alike): the interval of the rate, carried over by
    ``of_rate``, so that it is not symmetric for perplexities; and the standard error of the rate times the slope (delta
    method). None for fewer than two samples. Where ``clusters[i]`` is the cluster of ``values[i]``, clusters are the
    independent parts, and none are given for fewer than ``clustered.MIN_CLUSTERS``. ``ValueError`` for a value that is
    not finite.
    """
    formula = POOLED[split_name(name)[1]]
    nats = [-sample["loglikelihood"] for sample in values]
    units = [sample[formula.unit] for sample in values]
    check_finite(nats)
    check_finite(units)
    total = math.fsum(units)
    if total <= 0:
        return FormulaEstimate(None)
    rate = math.fsum(nats) / total
    value = _finite(formula.of_rate, rate)
    if are_too_few(clusters):
        return FormulaEstimate(value)
    if clusters is not None:
        nats, units = cluster_sums(nats, clusters), cluster_sums(units, clusters)
    if value is None or len(nats) < 2:
        return FormulaEstimate(value)
    found = estimate_ratio(nats, units)
    stderr = _finite(lambda at: formula.slope(at) * found.stderr, rate)
    interval = with_width(found.interval())
    if interval is None:
        return FormulaEstimate(value, stderr=stderr)
    low, high = (_finite(formula.of_rate, end) for end in interval)
    return FormulaEstimate(value, stderr=stderr, interval=None if low is None or high is None else (low, high))


def bootstrapped_pooled(
    name: str, values: Sequence[Mapping[str, float]], clusters: Sequence[int] | None = None
) -> tuple[float, float] | None:
    """Return the interval of ``pooled`` by a bootstrap over samples, or over clusters."""
    formula = POOLED[split_name(name)[1]]
    nats, units = ([sample[key] for sample in values] for key in ("loglikelihood", formula.unit))
    found = bootstrapped_ratio([-value for value in nats], units, clusters)
    ends = [] if found is None else [_finite(formula.of_rate, end) for end in found]
    low, high = ends or (None, None)
    return None if low is None or high is None else (low, high)


def pseudo_values(name: str, values: Sequence[Mapping[str, float]]) -> list[float] | None:
    """Return one number for each sample, whose mean is the metric ``name`` and whose standard error is about the
    metric's.

    ``value + n * slope * (x - r w) / sum(w)``: the sample's influence on the metric (the infinitesimal jackknife: L. A.
    Jaeckel, 1972; the delta method in another form). The difference of two models on the same samples is the mean of
    the differences of these. None where the metric has no value, and where one of these is too large for a float.
    """
    formula, whole = POOLED[split_name(name)[1]], pooled(name, values)
    if whole.value is None:
        return None
    total = math.fsum(sample[formula.unit] for sample in values)
    rate = -math.fsum(sample["loglikelihood"] for sample in values) / total
    scale = len(values) * formula.slope(rate) / total
    found = [whole.value + scale * (-sample["loglikelihood"] - rate * sample[formula.unit]) for sample in values]
    return found if all(map(math.isfinite, found)) else None


def _finite(function: Callable[[float], float], rate: float) -> float | None:
    try:
        value = function(rate)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
