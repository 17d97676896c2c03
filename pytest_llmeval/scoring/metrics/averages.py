"""Averages over parts: categories of a suite, or suites. Macro counts every part equally, micro every sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_llmeval.scoring.metrics.corpus_formulas import CLASSIFICATION
from pytest_llmeval.scoring.metrics.definitions import definition, split_name
from pytest_llmeval.scoring.metrics.summary import (
    ALL_EQUAL,
    NO_LIMITS,
    Limits,
    Metric,
    is_carried,
    summarize,
    within,
)
from pytest_llmeval.scoring.statistics.intervals import (
    CONFIDENCE,
    interval_of_common,
    mean,
    skewed_interval,
    t_quantile,
    wilson_limits,
    with_width,
)
from pytest_llmeval.types import ScoreLike

__all__ = ["macro_average", "micro_average"]


def macro_average(parts: Iterable[Mapping[str, Metric]], limits: Limits = NO_LIMITS) -> dict[str, Metric]:
    """Return each metric's mean over the parts, every one counting equally; ``n`` is the number of parts.

    Counts, and metrics that a part has no value for, are left out; fewer than two parts have no average. The parts hold
    different samples, and different clusters where samples lie in clusters. The standard error of k parts is
    ``sqrt(sum(stderr²)) / k``, None where a part has none. ``limits`` as ``summarize`` takes them.

    The 95% interval is that of a stratified mean, made of the parts' variances: of proportions Wilson's, over as many
    samples as these are worth (``clustered.worth_of``), of other means ``intervals.skewed_interval`` with the sum of
    the parts' third cumulants. Degrees of freedom are F. E. Satterthwaite's (1946, doi:10.2307/3002019). A part of few
    samples that are all right has a variance all the same: one degree of freedom of each part's comes from all parts
    together (as in G. K. Smyth, 2004, doi:10.2202/1544-6115.1027). What it covers is measured in
    ``benchmarks/interval_coverage.py``.

    None where a part of several samples has no standard error, and where parts of so few samples weigh so much that
    they would leave fewer than ``_LEAST_FREEDOM`` degrees of freedom of samples that are all alike.
    """
    found = list(parts)
    if len(found) < 2:
        return {}
    averages = {}
    for name, metric in found[0].items():
        own = [part[name] for part in found if name in part]
        values = [metric.value for metric in own if metric.value is not None]
        if metric.kind != "count" and len(values) == len(found):
            known = definition(name)
            averages[name] = _macro(own, values, limits.get(name, (known.lowest, known.highest)))
    return averages


def micro_average(
    suites: Iterable[Sequence[ScoreLike]],
    names: Sequence[str],
    clusters: Iterable[Sequence[str | None] | None] | None = None,
    limits: Limits = NO_LIMITS,
) -> dict[str, Metric]:
    """Return the mean of each named metric over the samples of all suites together, every one counting equally.

    Left out are metrics that scores of fewer than two suites carry, counts, and metrics of classes (``mcc``,
    ``f1_macro`` and others of ``corpus_formulas.py``), whose numbers mean another class in each suite. Perplexities are
    pooled: a text counts as much as it has words, bytes or tokens. ``clusters`` holds each suite's, as ``summarize``
    takes them, and ``limits``; a cluster is never the same as one of another suite. ``ValueError`` where their number
    is not that of the suites.
    """
    parts = [list(scores) for scores in suites]
    of_parts = [None] * len(parts) if clusters is None else list(clusters)
    together: list[str | None] = []
    for place, (scores, own) in enumerate(zip(parts, of_parts, strict=True)):
        labels = [None] * len(scores) if own is None else own
        together += [None if label is None else f"{place}:{label}" for label in labels]
    shared = [
        name
        for name in dict.fromkeys(names)
        if definition(name).kind != "count"
        and split_name(name)[1] not in CLASSIFICATION
        and sum(is_carried(scores, name) for scores in parts) > 1
    ]
    return summarize([score for scores in parts for score in scores], shared, together, limits=limits)


_LEAST_FREEDOM = 6
"""The degrees of freedom that two parts of three samples each have."""


def _macro(parts: Sequence[Metric], values: Sequence[float], limits: tuple[float, float]) -> Metric:
    errors = [part.stderr for part in parts if part.stderr is not None]
    value = mean(values)
    stderr = math.hypot(*errors) / len(parts) if len(errors) == len(parts) else None
    found = Metric(value=value, n=len(parts), kind="mean", stderr=stderr)
    strata = _strata_of(parts)
    if isinstance(strata, str):
        return replace(found, no_interval=strata)
    interval: tuple[float, float] | None
    if all(part.kind == "proportion" for part in parts):
        spread = value * (1 - value)
        worth = spread / strata.variance if spread > 0 < strata.variance else strata.num_alike
        interval = wilson_limits(value, worth, t_quantile(strata.degrees_of_freedom, CONFIDENCE))
    elif strata.variance > 0:
        error = math.sqrt(strata.variance)
        interval = with_width(skewed_interval(value, error, strata.skewness, strata.degrees_of_freedom))
    else:
        interval = interval_of_common(limits, value, strata.num_alike)
    if interval is None:
        return replace(found, no_interval=ALL_EQUAL)
    low, high = within(limits, interval, value, values)
    return replace(found, ci_low=low, ci_high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Strata:
    """The parts of the interval of a mean over parts: its variance, and the degrees of freedom of that.

    ``num_alike`` is how many samples would have a mean of the same variance, were all samples alike.
    """

    variance: float
    skewness: float
    degrees_of_freedom: float
    num_alike: float


def _strata_of(parts: Sequence[Metric]) -> _Strata | str:
    """Return what the interval of the mean over these parts is made of, or why there is none."""
    if any(part.stderr is None and (part.n > 1 or part.kind in ("pooled", "corpus")) for part in parts):
        return "not every part has one"
    counts = [part.n if part.num_clusters is None else part.num_clusters for part in parts]
    freedom = sum(counts) - len(counts)
    shares = math.fsum(1 / count for count in counts)
    if not freedom or shares**2 < _LEAST_FREEDOM * math.fsum(count**-3 for count in counts):
        return "the smallest parts have too few samples"
    # The sum of squares of each part as if its samples, or clusters, had been of equal weight.
    squares = [(part.stderr or 0.0) ** 2 * count * (count - 1) for part, count in zip(parts, counts, strict=True)]
    shared = math.fsum(squares) / freedom
    variances = [(own + shared) / count**2 for own, count in zip(squares, counts, strict=True)]
    total = math.fsum(variances)
    third = math.fsum((part.skewness or 0.0) * (part.stderr or 0.0) ** 3 for part in parts)
    weighed = math.fsum(own**2 / count for own, count in zip(variances, counts, strict=True))
    return _Strata(
        variance=total / len(parts) ** 2,
        skewness=third / total**1.5 if total > 0 else 0.0,
        degrees_of_freedom=min(freedom, total**2 / weighed) if weighed > 0 else freedom,
        num_alike=len(parts) ** 2 / shares,
    )
