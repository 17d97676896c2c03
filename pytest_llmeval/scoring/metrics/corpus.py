"""Metrics that are computed from all samples at once, with intervals by a bootstrap over samples.

A sample's ingredients lie in ``Score.values`` beside its metrics, under names that are no metrics, and under
``several`` with the same prefix as the metric: ``flexible.bleu_4`` is made of ``flexible.bleu_matches_1`` and so on.

Metrics that are pooled over samples (``POOLED``) are one ratio of two sums. All others have a ``CorpusFormula``: a
module with formulas of its own gives a table of them, and the tables are merged into ``CORPUS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, pairwise
from types import MappingProxyType
from typing import Any, TypeVar

from pytest_llmeval.scoring.metrics.calibration import CALIBRATION_FORMULAS
from pytest_llmeval.scoring.metrics.corpus_formulas import (
    CLASSIFICATION,
    CorpusFormula,
    FormulaEstimate,
    Ingredients,
    is_translation_ingredient,
    translation_formula,
)
from pytest_llmeval.scoring.metrics.definitions import is_known, split_name
from pytest_llmeval.scoring.metrics.judged import JUDGED, corrected_formula, is_judged_ingredient
from pytest_llmeval.scoring.statistics.clustered import are_too_few, bootstrapped_ratio, cluster_sums
from pytest_llmeval.scoring.statistics.intervals import (
    Bootstrapped,
    bootstrap_of_sums,
    estimate_ratio,
    with_width,
)

__all__ = [
    "CORPUS",
    "POOLED",
    "bootstrapped_pooled",
    "corpus_difference",
    "corpus_formula",
    "corpus_value",
    "ingredients_among",
    "pooled",
    "pseudo_values",
]


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
    independent parts, and none are given for fewer than ``clustered.MIN_CLUSTERS``.
    """
    formula = POOLED[split_name(name)[1]]
    nats = [-sample["loglikelihood"] for sample in values]
    units = [sample[formula.unit] for sample in values]
    total = math.fsum(units)
    if total <= 0:
        return FormulaEstimate(None)
    rate = math.fsum(nats) / total
    value = _finite_at(formula.of_rate, rate)
    if are_too_few(clusters):
        return FormulaEstimate(value)
    if clusters is not None:
        nats, units = cluster_sums(nats, clusters), cluster_sums(units, clusters)
    if value is None or len(nats) < 2:
        return FormulaEstimate(value)
    found = estimate_ratio(nats, units)
    stderr = _finite_at(lambda at: formula.slope(at) * found.stderr, rate)
    interval = with_width(found.interval())
    if interval is None:
        return FormulaEstimate(value, stderr=stderr)
    low, high = (_finite_at(formula.of_rate, end) for end in interval)
    return FormulaEstimate(value, stderr=stderr, interval=None if low is None or high is None else (low, high))


def bootstrapped_pooled(
    name: str, values: Sequence[Mapping[str, float]], clusters: Sequence[int] | None = None
) -> tuple[float, float] | None:
    """Return the interval of ``pooled`` by a bootstrap over samples, or over clusters."""
    formula = POOLED[split_name(name)[1]]
    nats, units = ([sample[key] for sample in values] for key in ("loglikelihood", formula.unit))
    found = bootstrapped_ratio([-value for value in nats], units, clusters)
    ends = [] if found is None else [_finite_at(formula.of_rate, end) for end in found]
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


def _finite_at(function: Callable[[float], float], rate: float) -> float | None:
    try:
        value = function(rate)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


T = TypeVar("T")
CORPUS: Mapping[str, CorpusFormula] = MappingProxyType({**CALIBRATION_FORMULAS, **CLASSIFICATION, **JUDGED})
"""Corpus metrics by name, but for sacrebleu's, some of which have a number in their names, and for
the corrected ones, which have the name of another metric. Each has a definition of kind ``corpus`` in
``definitions.py``."""


def corpus_formula(name: str) -> CorpusFormula | None:
    """Return the formula of a metric's name, with or without a prefix (``flexible.bleu_4``); None if it is of another
    kind.
    """
    base = split_name(name)[1]
    return CORPUS.get(base) or translation_formula(base) or corrected_formula(base)


def ingredients_among(names: Collection[str]) -> set[str]:
    """Return those of the names, with or without a prefix, that are no metrics and only what others are made of.

    A name that could be a user's own metric (``words``) is one of them only where all stand beside it that a pooled or
    corpus metric needs.
    """
    found = {name for name in names if is_translation_ingredient(name.rpartition(".")[2])}
    formulas = [formula.needs for formula in CORPUS.values()]
    formulas += [("loglikelihood", formula.unit) for formula in POOLED.values()]
    for prefix in {"".join(name.rpartition(".")[:2]) for name in names}:
        for needs in formulas:
            if all(prefix + need in names for need in needs):
                found.update(prefix + need for need in needs if not is_known(need))
    return found | {name for name in names if is_judged_ingredient(name)}


def corpus_value(
    name: str, samples: Sequence[Ingredients], clusters: Sequence[int] | None = None, *, bootstraps: bool = False
) -> FormulaEstimate:
    """Return the corpus metric ``name`` over samples, whose ingredients are finite.

    If the formula has an ``estimate``, the standard error and the interval are its own, unless samples lie in clusters
    or ``bootstraps`` says otherwise. All others are those of a bootstrap, as follows.

    Where ``clusters[i]`` is the cluster of ``samples[i]``, the bootstrap draws clusters, as many as there are; fewer
    than ``clustered.MIN_CLUSTERS`` have no standard error and no interval. The standard error is the standard deviation
    over bootstrap samples, the interval lies between their percentiles: None for fewer than two samples, where
    bootstrap samples have no value, where all have the same, and of a formula with ``no_interval``.
    """
    formula = _formula(name)
    value = _finite(formula.compute(samples))
    if value is None or formula.no_interval is not None or are_too_few(clusters):
        return FormulaEstimate(value)
    if formula.estimate is not None and clusters is None and not bootstraps:
        found = formula.estimate(samples)
        return FormulaEstimate(value, found.stderr, found.interval)
    return _with_error(value, _resampled(formula, [samples], clusters))


def corpus_difference(
    name: str,
    first: Sequence[Ingredients],
    second: Sequence[Ingredients],
    clusters: Sequence[int] | None = None,
) -> tuple[float, float, FormulaEstimate] | None:
    """Compare two models on the same samples, sample by sample: return both values, and second minus first by a paired
    bootstrap.

    ``clusters`` as in ``corpus_value``. None where one of the two has no value. ``ValueError`` for sequences of two
    lengths.
    """
    formula = _formula(name)
    before, after = (_finite(formula.compute(samples)) for samples in (first, second))
    if before is None or after is None:
        return None
    if len(first) != len(second):
        raise ValueError(f"found {len(first)} and {len(second)} samples of two models: each pair is one sample")
    if formula.no_interval is not None or are_too_few(clusters):
        return before, after, FormulaEstimate(after - before)
    return before, after, _with_error(after - before, _resampled(formula, [first, second], clusters))


def _resampled(
    formula: CorpusFormula, sides: Sequence[Sequence[Ingredients]], clusters: Sequence[int] | None
) -> Bootstrapped | None:
    """Return the bootstrap of one model's metric, or of what the second of two models has more, over the same
    samples.
    """
    pairs = list(zip(*sides, strict=True))
    units = _units(pairs, clusters, lambda pair: _order_in(formula, pair))
    sums = [formula.sums(side) for side in zip(*chain.from_iterable(units), strict=True)]
    if len(sums) == 1:
        return bootstrap_of_sums(_unit_sums(sums[0].rows, units), sums[0].value)
    rows = [list(chain.from_iterable(parts)) for parts in zip(*(own.rows for own in sums), strict=True)]
    edges = list(pairwise(accumulate((len(own.rows[0]) for own in sums), initial=0)))
    return bootstrap_of_sums(
        _unit_sums(rows, units),
        lambda total: _gain(own.value(total[low:high]) for own, (low, high) in zip(sums, edges, strict=True)),
    )


def _order_in(formula: CorpusFormula, pair: Sequence[Ingredients]) -> list[list[tuple[bool, float]]]:
    """Return the key by which a pair of samples is sorted; one that lacks an ingredient comes before all that have
    it.
    """
    names = (*formula.needs, *formula.may_have)
    return [[(name in sample, sample.get(name, 0.0)) for name in names] for sample in pair]


def _units(things: Sequence[T], clusters: Sequence[int] | None, key: Callable[[T], Any]) -> list[list[T]]:
    """Return what a bootstrap draws: the things one by one, or in clusters. The same ones have the same order."""
    if clusters is None:
        return [[thing] for thing in sorted(things, key=key)]
    members: dict[int, list[T]] = {}
    for thing, cluster in zip(things, clusters, strict=True):
        members.setdefault(cluster, []).append(thing)
    return sorted((sorted(own, key=key) for own in members.values()), key=lambda own: [key(thing) for thing in own])


def _unit_sums(rows: Sequence[Sequence[float]], units: Sequence[Sequence[object]]) -> Sequence[Sequence[float]]:
    """Return the sums of the columns over each unit's rows; ``rows`` lie in the order of the units."""
    if len(rows) == len(units):
        return rows
    rest = iter(rows)
    return [[math.fsum(column) for column in zip(*islice(rest, len(unit)), strict=True)] for unit in units]


def _formula(name: str) -> CorpusFormula:
    formula = corpus_formula(name)
    if formula is None:
        raise ValueError(f"{name} is not a corpus metric")
    return formula


def _gain(values: Iterable[float | None]) -> float | None:
    """Return the one value, or the second less the first; None where one is missing."""
    *earlier, last = values
    if last is None or None in earlier:
        return None
    return last - math.fsum(value for value in earlier if value is not None)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with_error(value: float, found: Bootstrapped | None) -> FormulaEstimate:
    if found is None or with_width((found.low, found.high)) is None:
        return FormulaEstimate(value)
    return FormulaEstimate(value, found.stderr, (found.low, found.high))
