"""Two models on the same samples: differences of metrics, sample by sample."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from pytest_llmeval.scoring.metrics.corpus import corpus_difference, pseudo_values
from pytest_llmeval.scoring.metrics.definitions import definition, is_known, split_name
from pytest_llmeval.scoring.metrics.sample_values import ingredients, value_of
from pytest_llmeval.scoring.statistics.clustered import (
    are_too_few,
    cluster_numbers,
    count_clusters,
    flips_interval,
    mean_interval,
    odd_ones,
    standard_error,
)
from pytest_llmeval.scoring.statistics.intervals import (
    CONFIDENCE,
    interval_of_common,
    mean,
    share_never_drawn,
    with_width,
)
from pytest_llmeval.types import ScoreLike

__all__ = ["Difference", "compare", "difference_of_values", "has_limits", "largest_unseen", "paired_difference"]

Pair: TypeAlias = tuple[ScoreLike, ScoreLike]
"""A sample's scores by the first and the second model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A metric of a second model against a first, over the ``n`` samples that both have a value for.

    ``first`` and ``second`` are the two means, ``difference`` is second minus first, ``stderr`` the standard error of
    the mean of the samples' differences, None for n < 2. ``ci_low`` and ``ci_high`` are the 95% interval of the
    difference: Tango's for proportions, ``intervals.skewed_interval`` for other means, None for means with n < 2. Where
    no sample's value has changed, it reaches as far as ``largest_unseen``, and is None for a metric without limits. Of
    proportions, ``num_gained`` counts the samples that only the second has, ``num_lost`` those that only the first has.
    Of pooled metrics (perplexities), ``first`` and ``second`` are the metrics themselves, and the standard error and
    interval are those of their difference by the delta method (``corpus.pseudo_values``). Of corpus metrics they are
    the metrics themselves too; their difference has the standard error and interval of a paired bootstrap.

    ``num_clusters`` is the number of clusters that the samples lie in, None where they are independent. Standard error
    and interval are then clustered, as in ``clustered.py``, and None for fewer than ``MIN_CLUSTERS``.

    ``p_value`` is two-sided, of the paired test that a gate makes of the metric (``paired_metrics.two_sided_p``); None
    where there is none or it was not made, as of a corpus metric of so many samples and classes that it takes long.
    """

    n: int
    kind: Literal["proportion", "mean", "pooled", "corpus"]
    first: float
    second: float
    difference: float
    stderr: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    num_gained: int | None = None
    num_lost: int | None = None
    num_clusters: int | None = None
    p_value: float | None = None

    @property
    def is_of_flips(self) -> bool:
        """Tell whether its test is McNemar's: of right and wrong answers in samples that are independent.

        Clusters of one sample each are as independent as none.
        """
        return self.kind == "proportion" and self.num_clusters in (None, self.n)


def compare(
    first: Mapping[str, ScoreLike],
    second: Mapping[str, ScoreLike],
    names: Sequence[str],
    clusters: Mapping[str, str | None] | None = None,
) -> dict[str, Difference]:
    """Return the named metrics of two models' scores by sample id, over the samples that both scored.

    ``clusters`` gives a sample's cluster by its id; one without is a cluster of its own, unless none has one. Left out
    are counts, metrics that no pair of scores carries, and pooled and corpus metrics that have no value.
    """
    ids = [sample_id for sample_id in first if sample_id in second]
    numbers = None if clusters is None else cluster_numbers([clusters.get(sample_id) for sample_id in ids])
    pairs = [(first[sample_id], second[sample_id]) for sample_id in ids]
    differences = {}
    for name in names:
        kind = definition(name).kind
        found = _WHOLE[kind](name, pairs, numbers) if kind in _WHOLE else None
        if found is None and kind != "count":
            found = _difference_of_means(name, pairs, numbers)
        if found is not None:
            differences[name] = found
    return differences


def has_limits(name: str) -> bool:
    return math.isfinite(definition(name).lowest) and math.isfinite(definition(name).highest)


def largest_unseen(name: str, n: int, confidence: float = CONFIDENCE) -> float:
    """Return how large a difference of the metric, either way, can be although ``n`` samples (or clusters) show none.

    The share of samples that differ can be ``share_never_drawn``, and each by ``highest - lowest``. Of a corpus metric,
    of which samples are no equal parts, it is an approximation.
    ``ValueError`` for a metric that lacks a limit.
    """
    if not has_limits(name):
        raise ValueError(f"{name} has no limits: a difference of it can be as large as any")
    return (definition(name).highest - definition(name).lowest) * share_never_drawn(n, confidence)


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    is_proportion: bool,
    clusters: Sequence[int] | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> Difference:
    """Return second minus first, value by value; of a proportion all are 0 or 1. ``clusters[i]`` is that of the two
    values i.

    ``limits`` are the lowest and the highest value: the interval is cut at the largest difference that there can be.
    ``ValueError`` for sequences of different lengths, none, and a value that is not finite or not that of a proportion.
    """
    differences = [after - before for before, after in zip(first, second, strict=True)]
    are_zeros_and_ones = {*first, *second} <= {0.0, 1.0}
    if is_proportion and not are_zeros_and_ones:
        raise ValueError("a proportion is taken over zeros and ones")
    found = Difference(
        n=len(differences),
        kind="proportion" if is_proportion else "mean",
        first=mean(first),
        second=mean(second),
        difference=mean(differences),
        num_gained=differences.count(1.0) if is_proportion else None,
        num_lost=differences.count(-1.0) if is_proportion else None,
    )
    if is_proportion or (are_zeros_and_ones and limits == (0.0, 1.0) and any(differences)):
        return _with_error(found, differences, clusters, lambda: flips_interval(differences, clusters))
    return _with_error(found, differences, clusters, lambda: _interval_of_means(differences, clusters, limits))


def _interval_of_means(
    differences: Sequence[float], clusters: Sequence[int] | None, limits: tuple[float, float]
) -> tuple[float, float] | None:
    largest = limits[1] - limits[0]
    if max(map(abs, differences)) > largest:
        largest = math.inf  # the metric is a user's that has the name of one of ours
    odd = odd_ones(differences, clusters)
    if odd is not None:
        num_units = len(differences) if clusters is None else count_clusters(clusters)
        return interval_of_common((-largest, largest), odd.common, num_units, num_odd=odd.number)
    found = with_width(mean_interval(differences, clusters))
    return None if found is None else (max(found[0], -largest), min(found[1], largest))


def _with_error(
    found: Difference,
    differences: Sequence[float],
    clusters: Sequence[int] | None,
    interval: Callable[[], tuple[float, float] | None],
) -> Difference:
    if clusters is not None:
        found = dataclasses.replace(found, num_clusters=count_clusters(clusters))
    if are_too_few(clusters):
        return found
    low, high = interval() or (None, None)
    return dataclasses.replace(found, stderr=standard_error(differences, clusters), ci_low=low, ci_high=high)


def _difference_of_means(name: str, pairs: Sequence[Pair], clusters: Sequence[int] | None) -> Difference | None:
    values = [(value_of(before, name), value_of(after, name)) for before, after in pairs]
    places = [place for place, (before, after) in enumerate(values) if before is not None and after is not None]
    if not places:
        return None
    first, second = (
        [value for value in (values[place][side] for place in places) if value is not None] for side in (0, 1)
    )
    return difference_of_values(name, first, second, _at(clusters, places))


def difference_of_values(
    name: str, first: Sequence[float], second: Sequence[float], clusters: Sequence[int] | None = None
) -> Difference:
    """Compare two models by their values of a metric that is a mean over samples.

    ``clusters[i]`` is that of ``first[i]`` and ``second[i]``.
    """
    # As in a summary: a metric that is known as a mean stays one where its values happen to be zeros and ones.
    is_open = not is_known(name) or split_name(name)[1] == "score"
    is_proportion = (is_open or definition(name).kind != "mean") and {*first, *second} <= {0.0, 1.0}
    limits = definition(name).lowest, definition(name).highest
    return paired_difference(first, second, is_proportion=is_proportion, clusters=clusters, limits=limits)


def _pooled_difference(name: str, pairs: Sequence[Pair], clusters: Sequence[int] | None) -> Difference | None:
    """Return the difference of the two models' pooled metrics; None if the scores lack the sums to pool."""
    places = [place for place, pair in enumerate(pairs) if len(ingredients(pair, name)) == 2]
    before = pseudo_values(name, ingredients((pairs[place][0] for place in places), name))
    after = pseudo_values(name, ingredients((pairs[place][1] for place in places), name))
    if before is None or after is None:
        return None
    found = paired_difference(before, after, is_proportion=False, clusters=_at(clusters, places))
    return dataclasses.replace(found, kind="pooled")


def _corpus_difference(name: str, pairs: Sequence[Pair], clusters: Sequence[int] | None) -> Difference | None:
    """Return the difference of the two models' corpus metrics; None if the scores lack what they are made of."""
    places = [place for place, pair in enumerate(pairs) if len(ingredients(pair, name)) == 2]
    first, second = (ingredients((pairs[place][side] for place in places), name) for side in (0, 1))
    own = _at(clusters, places)
    found = corpus_difference(name, first, second, own)
    if found is None:
        return None
    before, after, between = found
    low, high = between.interval or (None, None)
    difference = Difference(
        n=len(places),
        kind="corpus",
        first=before,
        second=after,
        difference=after - before,
        stderr=between.stderr,
        ci_low=low,
        ci_high=high,
        num_clusters=None if own is None else count_clusters(own),
    )
    return _with_unseen(name, difference, own) if first == second else difference


def _with_unseen(name: str, found: Difference, clusters: Sequence[int] | None) -> Difference:
    """Return the difference with an interval of some width, also where no sample has changed."""
    if found.ci_low is not None or are_too_few(clusters) or not has_limits(name):
        return found
    reach = largest_unseen(name, found.n if found.num_clusters is None else found.num_clusters)
    return dataclasses.replace(found, ci_low=found.difference - reach, ci_high=found.difference + reach)


def _at(clusters: Sequence[int] | None, places: Sequence[int]) -> list[int] | None:
    return None if clusters is None else [clusters[place] for place in places]


_WHOLE: Mapping[str, Callable[[str, Sequence[Pair], Sequence[int] | None], Difference | None]] = MappingProxyType(
    {"pooled": _pooled_difference, "corpus": _corpus_difference}
)
"""Differences of metrics that are no means over samples, by kind."""
