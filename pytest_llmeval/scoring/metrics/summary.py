"""Summaries: the metrics over the scores of a suite, of a category, or of any other selection of samples.

Beside them: the scores that lack a metric and why, and how the samples' values are spread around their mean.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from pytest_llmeval.scoring.metrics.corpus import (
    bootstrapped_pooled,
    corpus_formula,
    corpus_value,
    ingredients_among,
    pooled,
)
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, Kind, definition, is_known, shown_order, split_name
from pytest_llmeval.scoring.metrics.judged import RATED_METRICS
from pytest_llmeval.scoring.metrics.sample_values import COUNTED, Places, ScoreColumns, ingredients, value_of
from pytest_llmeval.scoring.metrics.skill import lowest_skill, skill_interval
from pytest_llmeval.scoring.statistics.clustered import (
    MIN_CLUSTERS,
    are_too_few,
    bootstrapped_mean,
    cluster_numbers,
    count_clusters,
    estimate_mean,
    odd_ones,
    proportion_interval,
    standard_error,
)
from pytest_llmeval.scoring.statistics.intervals import interval_of_common, mean, with_width
from pytest_llmeval.types import Score, ScoreLike

__all__ = [
    "ALL_EQUAL",
    "NO_LIMITS",
    "Distribution",
    "Interval",
    "Limits",
    "Metric",
    "Percentiles",
    "by_category",
    "count_not_measurable",
    "distributions",
    "expanded",
    "is_carried",
    "names_given",
    "names_in",
    "num_missing",
    "percentiles",
    "places_by_category",
    "summarize",
    "why_no_interval",
    "why_not_measurable",
    "with_numbers",
    "within",
]

Interval: TypeAlias = Literal["bootstrap"]
Limits: TypeAlias = Mapping[str, tuple[float, float]]
"""The lowest and the highest value of metrics, by their names."""
NO_LIMITS: Limits = MappingProxyType({})
ALL_EQUAL = "all values are equal"
_ALL_BUT_ONE = "all values but one are equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A statistic over ``n`` scores. ``value`` is None where there was nothing to take it over.

    ``stderr`` is the standard error of the mean (of others see ``corpus.py``), None for counts and
    for n < 2, ``skewness`` that of the estimate (``intervals.Estimated``) where it is known. ``ci_low`` and ``ci_high``
    are the 95% interval: Wilson's for proportions, ``intervals.skewed_interval`` for other means and for pooled
    metrics, a bootstrap's for corpus metrics, None for counts and, but for proportions, for n < 2. A mean of values
    that are all the same, or all but one, has that of ``intervals.interval_of_common`` where its metric has limits,
    else none. A perplexity too large for a float is None too, and so is a corpus metric that these samples have none
    of. ``no_interval`` says why there is none of a metric that has a value.

    ``num_clusters`` is the number of clusters that the samples lie in, None where they are independent. Standard error
    and interval are then those of ``clustered.py``, of corpus metrics those of a bootstrap that draws clusters; None
    for fewer than ``MIN_CLUSTERS``.
    """

    value: float | None
    n: int
    kind: Kind
    stderr: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    num_clusters: int | None = None
    skewness: float | None = None
    no_interval: str | None = None


def why_no_interval(metric: Metric) -> str | None:
    """Return why no interval of the metric is shown; None if one is, and for counts, which have none.

    The interval of one sample says nothing, though a proportion has one.
    """
    if metric.kind == "count" or metric.value is None:
        return None
    return "n is 1" if metric.n == 1 else metric.no_interval


def _explained(metric: Metric) -> Metric:
    """Return the metric with the reason why there is no interval, where there is none and no reason yet."""
    if metric.kind == "count" or metric.value is None or metric.ci_low is not None or metric.no_interval is not None:
        return metric
    why = ALL_EQUAL
    if metric.n == 1:
        why = "n is 1"
    elif metric.num_clusters is not None and metric.num_clusters < MIN_CLUSTERS:
        why = f"{metric.num_clusters} clusters, and {MIN_CLUSTERS} are needed"
    elif metric.kind == "corpus":
        why = "these samples define none"
    return replace(metric, no_interval=why)


def names_in(scores: Iterable[ScoreLike]) -> tuple[str, ...]:
    """Return names of the metrics that scores of any origin carry: known ones first, in their order, then others by
    name.

    What pooled and corpus metrics are made of is no metric, and not among them.
    """
    found: set[str] = set()
    for score in scores:
        if score.status == "unscored":
            continue
        if score.no_answer:
            found.add("no_answer")
        found.update(score.values)
    return tuple(sorted(found - ingredients_among(found), key=shown_order))


def expanded(names: Sequence[str], scores: Sequence[ScoreLike]) -> tuple[str, ...]:
    """Return the names with those of the scores in place of what stands for names that are not known in advance.

    ``b.*`` are all that begin with ``b.``, those of a scorer ``b`` that names none; ``*`` are all that begin with no
    other scorer's name; no names at all are all of them.
    """
    if not names:
        return names_in(scores)
    if not any(name == WILDCARD or name.endswith(f".{WILDCARD}") for name in names):
        return tuple(names)
    carried = names_in(scores)
    prefixes = tuple({f"{name.partition('.')[0]}." for name in names if "." in name})
    found: list[str] = []
    for name in names:
        if name == WILDCARD:
            found += [own for own in carried if not own.startswith(prefixes)]
        elif name.endswith(f".{WILDCARD}"):
            found += [own for own in carried if own.startswith(name.removesuffix(WILDCARD))]
        else:
            found.append(name)
    return tuple(dict.fromkeys(found))


def is_carried(scores: Iterable[ScoreLike], name: str) -> bool:
    """Return whether one of the scores, unscored ones aside, has what the metric ``name`` is taken over."""
    return any(_carries(score, name) for score in scores)


def _carries(score: ScoreLike, name: str) -> bool:
    if score.status == "unscored" or ingredients((score,), name):
        return score.status != "unscored"
    return name in COUNTED or bool(ScoreColumns((score,)).values(name)[0])


def summarize(
    scores: Sequence[ScoreLike] | ScoreColumns,
    names: Sequence[str],
    clusters: Sequence[str | None] | None = None,
    interval: Interval | None = None,
    limits: Limits = NO_LIMITS,
) -> dict[str, Metric]:
    """Return each named metric over the scores that carry it; the order of scores makes no difference.

    Unscored ones are left out of every metric and of its n. A metric that we define keeps its kind; another one is a
    proportion where all of its values are 0 or 1, else a mean. ``clusters[i]`` is that of ``scores[i]``: one without
    (None) is a cluster of its own, unless none has one. With ``interval`` "bootstrap" every interval is that of
    ``intervals.bootstrap_of_sums``, over samples, or clusters of them; where all values are equal, it is as without.
    ``limits`` are the lowest and highest values of metrics whose definition does not know them.
    Raises ``ValueError`` for a value that is not finite, none of which passes ``score_checks.checked``, and if the
    sequences differ in length.
    """
    samples = _samples(scores, clusters, interval, limits)
    return _summarize(samples, _kinds(samples.columns, names))


def by_category(
    scores: Sequence[ScoreLike] | ScoreColumns,
    categories: Sequence[str | None],
    names: Sequence[str],
    clusters: Sequence[str | None] | None = None,
    interval: Interval | None = None,
    limits: Limits = NO_LIMITS,
) -> dict[str, dict[str, Metric]]:
    """Return ``summarize`` for each category, by name; ``categories[i]`` is that of ``scores[i]``.

    Scores without a category (None) are in no part. A metric has the kind that it has over all scores, so that one
    column never mixes two kinds of interval. ``ValueError`` where the sequences differ in length.
    """
    samples = _samples(scores, clusters, interval, limits)
    places = places_by_category(samples.columns.scores, categories)
    kinds = _kinds(samples.columns, names)
    return {category: _summarize(replace(samples, places=own), kinds) for category, own in places.items()}


def places_by_category(scores: Sequence[ScoreLike], categories: Sequence[str | None]) -> dict[str, Places]:
    """Return where the scores of each category are, by its name, in the order of the names."""
    places: dict[str, list[int]] = {}
    for place, (_, category) in enumerate(zip(scores, categories, strict=True)):
        if category is not None:
            places.setdefault(category, []).append(place)
    return {category: Places(places[category]) for category in sorted(places)}


@dataclass(frozen=True, slots=True)
class _Samples:
    """Scores at some places, all for None; the cluster of each score, None where all are independent.

    ``bootstraps``: so are their intervals made.
    """

    columns: ScoreColumns
    clusters: Sequence[int] | None
    bootstraps: bool = False
    limits: Limits = field(default_factory=dict)
    places: Places | None = None

    def limits_of(self, name: str) -> tuple[float, float]:
        """Return the limits beyond which no value of the metric lies."""
        metric = definition(name)
        return self.limits.get(name, (metric.lowest, metric.highest))

    def values(self, name: str) -> tuple[list[float], list[int] | None]:
        """Return the values of the metric, and the clusters of those that have one."""
        return self.columns.values(name, self.places, self.clusters)


def _samples(
    scores: Sequence[ScoreLike] | ScoreColumns,
    clusters: Sequence[str | None] | None,
    interval: Interval | None = None,
    limits: Limits = NO_LIMITS,
) -> _Samples:
    columns = scores if isinstance(scores, ScoreColumns) else ScoreColumns(scores)
    if clusters is not None and len(clusters) != len(columns.scores):
        raise ValueError(f"found {len(clusters)} clusters of {len(columns.scores)} scores: each score has one, or None")
    numbers = None if clusters is None else cluster_numbers(clusters)
    return _Samples(columns, numbers, interval == "bootstrap", limits)


def _summarize(samples: _Samples, kinds: Mapping[str, Kind]) -> dict[str, Metric]:
    return {name: _explained(_metric(samples, name, kind)) for name, kind in kinds.items()}


def _metric(samples: _Samples, name: str, kind: Kind) -> Metric:
    if kind == "count":
        values, _ = samples.values(name)
        return Metric(value=math.fsum(values), n=len(values), kind=kind)
    if kind not in ("pooled", "corpus"):
        return _mean(samples, name, kind)
    parts, clusters = samples.columns.ingredients(name, samples.places, samples.clusters)
    why = None
    if kind == "pooled":
        whole = pooled(name, parts, clusters)
        if samples.bootstraps and whole.interval is not None:
            whole = replace(whole, interval=bootstrapped_pooled(name, parts, clusters))
    else:
        whole = corpus_value(name, parts, clusters, bootstraps=samples.bootstraps)
        why = None if (formula := corpus_formula(name)) is None else formula.no_interval
    low, high = None, None
    if whole.interval is not None and whole.value is not None:
        low, high = within(samples.limits_of(name), whole.interval, whole.value)
    return Metric(
        value=whole.value,
        n=len(parts),
        kind=kind,
        stderr=whole.stderr,
        ci_low=low,
        ci_high=high,
        num_clusters=None if clusters is None else count_clusters(clusters),
        no_interval=None if whole.value is None else why,
    )


def _mean(samples: _Samples, name: str, kind: Kind) -> Metric:
    values, clusters = samples.values(name)
    num_clusters = None if clusters is None else count_clusters(clusters)
    if not values:
        return Metric(value=None, n=0, kind=kind, num_clusters=num_clusters)
    found = Metric(value=mean(values), n=len(values), kind=kind, num_clusters=num_clusters)
    if are_too_few(clusters):
        return found
    limits = samples.limits_of(name)
    chances = samples.columns.chances("skill", samples.places) if name == "skill" else None
    if chances is not None:
        limits = lowest_skill(chances), limits[1]
    interval: tuple[float, float] | None
    if kind == "proportion" or (limits == (0.0, 1.0) and {0.0, 1.0}.issuperset(values) and len({*values}) > 1):
        found = replace(found, stderr=standard_error(values, clusters))
        interval = proportion_interval(values, clusters)
    else:
        estimate = estimate_mean(values, clusters)
        if estimate is None:
            return found
        found = replace(found, stderr=estimate.stderr, skewness=estimate.skewness)
        odd = odd_ones(values, clusters)
        interval = None if chances is None else with_width(skill_interval(values, chances, clusters))
        if interval is None and odd is not None:
            interval = interval_of_common(limits, odd.common, num_clusters or len(values), num_odd=odd.number)
            found = replace(found, no_interval=_ALL_BUT_ONE if interval is None and odd.number else None)
        elif interval is None:
            interval = with_width(estimate.interval())
    if samples.bootstraps:  # of equal values all resamples are equal, too
        interval = bootstrapped_mean(values, clusters) or interval
    if interval is None:
        return found
    low, high = within(limits, interval, mean(values), values if chances is None else ())
    return replace(found, ci_low=low, ci_high=high, no_interval=None)


def within(
    limits: tuple[float, float], interval: tuple[float, float], value: float, values: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the interval of a metric's ``value``, cut where it reaches beyond what the metric can be.

    It is not cut where one of ``values`` lies beyond, too: then they are another metric's, of a user, that has this
    name. A bootstrap's can miss the value, and is made to reach it.
    """
    low, high = min(interval[0], value), max(interval[1], value)
    if low < limits[0] <= min(values, default=value):
        low = limits[0]
    if high > limits[1] >= max(values, default=value):
        high = limits[1]
    return low, high


def _kinds(columns: ScoreColumns, names: Sequence[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for name in names:
        kind = definition(name).kind
        if columns.has_ingredients(name):
            kinds[name] = kind
            continue
        if kind != "count" and split_name(name)[1] != "skill":
            values, _ = columns.values(name)
            is_open = not is_known(name) or split_name(name)[1] == "score"
            if values and (is_open or kind in ("proportion", "pooled", "corpus")):
                # A user may record any value under any name; only zeros and ones have a proportion's interval.
                kind = "proportion" if {0.0, 1.0}.issuperset(values) else "mean"
        kinds[name] = kind
    return kinds


_IS_THERE_OR_NONE = "no_answer"
"""A count that several scorers give only where there is one."""


def why_not_measurable(score: ScoreLike, metric: str) -> str | None:
    """Return the reason that the score's scorer gives for the metric's having no meaning; None where it gives none.

    ``*`` is for all metrics, ``b.*`` for those of a scorer ``b``.
    """
    said = score.not_measurable
    if not said:
        return None
    prefix = metric.partition(".")[0]
    return next((said[name] for name in (metric, f"{prefix}.{WILDCARD}", WILDCARD) if name in said), None)


def with_numbers(score: Score, numbers: Mapping[str, float]) -> Score:
    """Return the score with the ``numbers`` of those metrics that it says to have no meaning; the reasons stay."""
    if not numbers or not score.not_measurable or score.status == "unscored":
        return score
    counted = {
        name: float(number)
        for name, number in numbers.items()
        if name not in score.values and why_not_measurable(score, name) is not None
    }
    return replace(score, values={**score.values, **counted})


def names_given(score: ScoreLike, numbers: Collection[str]) -> Iterator[str]:
    """Yield the metrics for which the scorer gave a value or a reason: not those that only ``with_numbers`` added."""
    yield from (name for name in score.values if name not in numbers or why_not_measurable(score, name) is None)
    yield from (name for name in score.not_measurable if name.rpartition(".")[2] != WILDCARD)


def count_not_measurable(scores: Iterable[ScoreLike], metrics: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return for each of the metrics that some of the scores, unscored ones aside, are said to have no value of, how
    many, by reason.

    A name that is none of the metrics, as no score has a value of it, is counted as its scorer gives it:
    ``*`` and ``b.*`` too where that stands for none of the metrics.
    """
    found: dict[str, dict[str, int]] = {}
    for score in scores:
        if score.status == "unscored" or not score.not_measurable:
            continue
        for name, reason in _lacking(score, metrics):
            reasons = found.setdefault(name, {})
            reasons[reason] = reasons.get(reason, 0) + 1
    return found


def _lacking(score: ScoreLike, metrics: Sequence[str]) -> Iterator[tuple[str, str]]:
    for metric in metrics:
        reason = why_not_measurable(score, metric)
        if reason is not None and not is_carried((score,), metric):
            yield metric, reason
    for name, reason in score.not_measurable.items():
        if name == WILDCARD or name.endswith(f".{WILDCARD}"):
            prefix = name.removesuffix(WILDCARD)
            is_named = any(one.startswith(prefix) for one in (*metrics, *score.values))
        else:
            is_named = name in metrics
        if not is_named:
            yield name, reason


def num_missing(name: str, metric: Metric, num_scored: int, not_measurable: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many of the samples that were scored have no value of the metric, and nothing that says why."""
    if split_name(name)[1] == _IS_THERE_OR_NONE or name in RATED_METRICS:
        return 0
    return max(0, num_scored - metric.n - sum(not_measurable.get(name, {}).values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of ``n`` values, in their unit. They are interpolated linearly, as ``numpy.percentile`` does."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """Return the mean and percentiles of finite values; None if there are none."""
    if not values:
        return None
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


_MEANS = ("mean", "proportion")
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
        """Return the distribution of finite values; None if there are none."""
        found = percentiles(values)
        if found is None:
            return None
        # hypot scales: squares of large values have no float.
        sd = math.hypot(*(value - found.mean for value in values)) / math.sqrt(found.n - 1) if found.n > 1 else None
        low, high = min(values), max(values)
        return cls(n=found.n, mean=found.mean, sd=sd, min=low, p50=found.p50, p95=found.p95, max=high)


def distributions(scores: Sequence[ScoreLike], metrics: Mapping[str, Metric]) -> dict[str, Distribution]:
    """Return the distribution of each of the metrics that is a mean over samples, over the scores that carry it."""
    found = {}
    for name, metric in metrics.items():
        if metric.kind in _MEANS:
            values = [value for score in scores if (value := value_of(score, name)) is not None]
            if (own := Distribution.of(values)) is not None:
                found[name] = own
    return found
