"""Metrics: what is taken over the scores of a suite, of a category, or of any other selection of samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from pytest_llmeval.scoring.metrics.columns import COUNTED, Places, ScoreColumns
from pytest_llmeval.scoring.metrics.corpus import corpus_value, ingredients_among
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, Kind, definition, is_known, shown_order, split_name
from pytest_llmeval.scoring.metrics.pooled import bootstrapped_pooled, pooled
from pytest_llmeval.scoring.metrics.sample_values import ScoreLike, ingredients
from pytest_llmeval.scoring.metrics.skill import lowest_skill, skill_interval
from pytest_llmeval.scoring.statistics.clustered import (
    MIN_CLUSTERS,
    are_too_few,
    bootstrapped_mean,
    cluster_numbers,
    count_clusters,
    interval_around,
    mean_interval,
    proportion_interval,
    standard_error,
)
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, mean, with_width
from pytest_llmeval.types import Score

__all__ = [
    "Interval",
    "Limits",
    "Metric",
    "by_category",
    "expanded",
    "is_carried",
    "names_in",
    "places_by_category",
    "summarize",
    "why_no_interval",
]

Interval: TypeAlias = Literal["bootstrap"]

Limits: TypeAlias = Mapping[str, tuple[float, float]]
"""The lowest and the highest value of metrics, by their names."""

_NO_LIMITS: Limits = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A statistic over ``n`` scores. ``value`` is None where there was nothing to take it over.

    ``stderr`` is the standard error of the mean (of others see ``pooled.py`` and ``corpus.py``), None for counts and
    for n < 2. ``ci_low`` and ``ci_high`` are the 95% interval: Wilson's for proportions, Student's t for other means
    and for pooled metrics, a bootstrap's for corpus metrics, None for counts and, but for proportions, for n < 2. A
    mean of values that are all the same has the interval of ``_interval_of_equal_values`` where its metric has limits,
    else none. A perplexity too large for a float is None too, and so is a corpus metric that these samples have none
    of.

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


def why_no_interval(metric: Metric) -> str | None:
    """Why no interval of the metric is shown; None where one is, and of counts, which have none.

    One sample's says nothing, though a proportion has one: averages are made of it.
    """
    if metric.kind == "count" or metric.value is None:
        return None
    if metric.n == 1:
        return "n is 1"
    if metric.ci_low is not None:
        return None
    if metric.num_clusters is not None and metric.num_clusters < MIN_CLUSTERS:
        return f"{metric.num_clusters} clusters, and {MIN_CLUSTERS} are needed"
    if metric.kind == "corpus":
        return "these samples define none"
    return "all values are equal"


def names_in(scores: Iterable[Score]) -> tuple[str, ...]:
    """Names of the metrics that scores of any origin carry: known ones first, in their order, then others by name.

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


def expanded(names: Sequence[str], scores: Sequence[Score]) -> tuple[str, ...]:
    """The names with those of the scores in place of what stands for names that are not known in advance.

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
    """Whether one of the scores, unscored ones aside, has what the metric ``name`` is taken over."""
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
    limits: Limits = _NO_LIMITS,
) -> dict[str, Metric]:
    """Each named metric over the scores that carry it; the order of scores makes no difference.

    Unscored ones are left out of every metric and of its n. A metric that we define keeps its kind; another one is a
    proportion where all of its values are 0 or 1, else a mean. ``clusters[i]`` is that of ``scores[i]``: one without
    (None) is a cluster of its own, unless none has one. With ``interval`` "bootstrap" every interval is that of
    ``intervals.bootstrap_of_sums``, over samples, or clusters of them; where all values are equal, it is as without.
    ``limits`` are the lowest and highest values of metrics whose definition does not know them.
    Raises ``ValueError`` for a value that is not finite (``checking.checked`` lets none pass): nothing is averaged over
    NaN; and for sequences of two lengths.
    """
    samples = _samples(scores, clusters, interval, limits)
    return _summarize(samples, _kinds(samples.columns, names))


def by_category(
    scores: Sequence[ScoreLike] | ScoreColumns,
    categories: Sequence[str | None],
    names: Sequence[str],
    clusters: Sequence[str | None] | None = None,
    interval: Interval | None = None,
    limits: Limits = _NO_LIMITS,
) -> dict[str, dict[str, Metric]]:
    """``summarize`` for each category, by name; ``categories[i]`` is that of ``scores[i]``.

    Scores without a category (None) are in no part. A metric has the kind that it has over all scores, so that one
    column never mixes two kinds of interval. ``ValueError`` where the sequences differ in length.
    """
    samples = _samples(scores, clusters, interval, limits)
    places = places_by_category(samples.columns.scores, categories)
    kinds = _kinds(samples.columns, names)
    return {category: _summarize(replace(samples, places=own), kinds) for category, own in places.items()}


def places_by_category(scores: Sequence[ScoreLike], categories: Sequence[str | None]) -> dict[str, Places]:
    """Where the scores of each category are, by its name, in the order of the names."""
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
        """No value of the metric lies beyond these."""
        metric = definition(name)
        return self.limits.get(name, (metric.lowest, metric.highest))

    def values(self, name: str) -> tuple[list[float], list[int] | None]:
        """The values of the metric, and the clusters of those that have one."""
        return self.columns.values(name, self.places, self.clusters)

    def chances_of_skill(self) -> list[float | None]:
        return self.columns.chances("skill", self.places)


def _samples(
    scores: Sequence[ScoreLike] | ScoreColumns,
    clusters: Sequence[str | None] | None,
    interval: Interval | None = None,
    limits: Limits = _NO_LIMITS,
) -> _Samples:
    columns = scores if isinstance(scores, ScoreColumns) else ScoreColumns(scores)
    if clusters is not None and len(clusters) != len(columns.scores):
        raise ValueError(f"found {len(clusters)} clusters of {len(columns.scores)} scores: each score has one, or None")
    numbers = None if clusters is None else cluster_numbers(clusters)
    return _Samples(columns, numbers, interval == "bootstrap", limits)


def _summarize(samples: _Samples, kinds: Mapping[str, Kind]) -> dict[str, Metric]:
    return {name: _metric(samples, name, kind) for name, kind in kinds.items()}


def _metric(samples: _Samples, name: str, kind: Kind) -> Metric:
    if kind == "count":
        values, _ = samples.values(name)
        return Metric(value=math.fsum(values), n=len(values), kind=kind)
    if kind not in ("pooled", "corpus"):
        return _mean(samples, name, kind)
    parts, clusters = samples.columns.ingredients(name, samples.places, samples.clusters)
    if kind == "pooled":
        whole = pooled(name, parts, clusters)
        if samples.bootstraps and whole.interval is not None:
            whole = replace(whole, interval=bootstrapped_pooled(name, parts, clusters))
    else:
        whole = corpus_value(name, parts, clusters, bootstraps=samples.bootstraps)
    low, high = _within(samples.limits_of(name), whole.interval) if whole.interval is not None else (None, None)
    return Metric(
        value=whole.value,
        n=len(parts),
        kind=kind,
        stderr=whole.stderr,
        ci_low=low,
        ci_high=high,
        num_clusters=None if clusters is None else count_clusters(clusters),
    )


def _mean(samples: _Samples, name: str, kind: Kind) -> Metric:
    values, clusters = samples.values(name)
    num_clusters = None if clusters is None else count_clusters(clusters)
    if not values:
        return Metric(value=None, n=0, kind=kind, num_clusters=num_clusters)
    found = Metric(value=mean(values), n=len(values), kind=kind, num_clusters=num_clusters)
    if are_too_few(clusters):
        return found
    lowest = -math.inf
    if name == "skill":
        lowest = lowest_skill(samples.chances_of_skill())
    stderr = standard_error(values, clusters)
    interval = bootstrapped_mean(values, clusters) if samples.bootstraps else None
    if interval is None:  # of equal values all resamples are equal, too
        interval = _by_formula(samples, name, kind, values, clusters, stderr)
    if interval is None and len(values) > 1 and math.isclose(min(values), max(values), rel_tol=1e-12, abs_tol=1e-12):
        interval = _interval_of_equal_values(samples.limits_of(name), mean(values), lowest, num_clusters or len(values))
    low, high = (None, None) if interval is None else _within(samples.limits_of(name), interval, lowest)
    return replace(found, stderr=stderr, ci_low=low, ci_high=high)


def _by_formula(
    samples: _Samples,
    name: str,
    kind: Kind,
    values: Sequence[float],
    clusters: Sequence[int] | None,
    stderr: float | None,
) -> tuple[float, float] | None:
    if kind == "proportion":
        return proportion_interval(values, clusters)
    of_skill = skill_interval(values, samples.chances_of_skill(), clusters) if name == "skill" else None
    if of_skill is not None:
        return with_width(of_skill)
    if clusters is not None:
        return with_width(mean_interval(values, clusters))
    return None if stderr is None else with_width(interval_around(mean(values), stderr, len(values)))


def _interval_of_equal_values(
    limits: tuple[float, float], value: float, lowest: float, n: int
) -> tuple[float, float] | None:
    """The 95% interval of a mean over ``n`` independent samples, or clusters, whose values are all ``value``.

    Of samples that differ none was drawn in n, so that their share is at most ``1 - 0.025^(1/n)``, the upper limit of 0
    of n by C. J. Clopper and E. S. Pearson (1934, doi:10.1093/biomet/26.4.404). The mean is lowest where all of those
    have the lowest value that the metric can take, highest where they have the highest. None where it has no limits.
    """
    least, highest = max(limits[0], lowest), limits[1]
    if not (math.isfinite(least) and math.isfinite(highest)):
        return None
    share = 1 - ((1 - CONFIDENCE) / 2) ** (1 / n)
    return value - (value - least) * share, value + (highest - value) * share


def _within(
    limits: tuple[float, float], interval: tuple[float, float], lowest: float = -math.inf
) -> tuple[float, float]:
    """Student's t knows no limits, so the interval of few samples can reach beyond what the metric can be."""
    return max(interval[0], limits[0], lowest), min(interval[1], limits[1])


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
