"""Averages over parts: categories of a suite, or suites. Macro counts every part alike, micro every sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_llmeval.scoring.classification import CLASSIFICATION
from pytest_llmeval.scoring.definitions import definition, split_name
from pytest_llmeval.scoring.metrics import Metric, is_carried, summarize
from pytest_llmeval.scoring.statistics import CONFIDENCE, mean, t_quantile, with_width
from pytest_llmeval.types import Score

__all__ = ["macro_average", "micro_average"]


def macro_average(parts: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Each metric's mean over the parts, every one counting alike; ``n`` is the number of parts.

    Only of metrics that each part has a value for, and of no counts; none of fewer than two parts. The parts hold
    different samples, and different clusters where samples lie in clusters. The standard error of k parts is
    ``sqrt(sum(stderr²)) / k``, None where a part has none. The 95% interval is Student's t with the degrees of freedom
    of B. L. Welch (1947, doi:10.1093/biomet/34.1-2.28) and F. E. Satterthwaite (1946, doi:10.2307/3002019),
    ``sum(stderr²)² / sum(stderr⁴ / df)``, where a part's df are its samples, or clusters, less one: the normal
    distribution's covers too little of a few small parts, and of many it is the same. It is cut at the limits of the
    metric.
    """
    found = list(parts)
    if len(found) < 2:
        return {}
    averages = {}
    for name, metric in found[0].items():
        own = [part[name] for part in found if name in part]
        values = [metric.value for metric in own if metric.value is not None]
        if metric.kind != "count" and len(values) == len(found):
            averages[name] = _macro(name, own, mean(values))
    return averages


def micro_average(
    suites: Iterable[Sequence[Score]],
    names: Sequence[str],
    clusters: Iterable[Sequence[str | None] | None] | None = None,
) -> dict[str, Metric]:
    """Each named metric over the samples of all suites together, every one counting alike.

    Only of metrics that scores of at least two suites carry. Left out are counts, and metrics of classes (``mcc``,
    ``f1_macro`` and others of ``classification.py``), whose numbers mean another class in each suite. Perplexities are
    pooled: a text counts as much as it has words, bytes or tokens. ``clusters`` holds each suite's, as ``summarize``
    takes them; a cluster is never the same as one of another suite. ``ValueError`` where their number is not that of
    the suites.
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
    return summarize([score for scores in parts for score in scores], shared, together)


def _macro(name: str, parts: Sequence[Metric], value: float) -> Metric:
    found = Metric(value=value, n=len(parts), kind="mean")
    known = [(part.stderr**2, _degrees_of_freedom(part)) for part in parts if part.stderr is not None]
    if len(known) < len(parts):
        return found
    variance = math.fsum(own for own, _ in known)
    found = replace(found, stderr=math.sqrt(variance) / len(parts))
    if found.stderr is None or variance == 0:
        return found
    # As shares of the whole: the square of a small variance can be too small for a float.
    degrees = 1 / math.fsum((own / variance) ** 2 / degrees for own, degrees in known)
    half = t_quantile(degrees, CONFIDENCE) * found.stderr
    interval = with_width((value - half, value + half))
    if interval is None:
        return found
    metric = definition(name)
    return replace(found, ci_low=max(interval[0], metric.lowest), ci_high=min(interval[1], metric.highest))


def _degrees_of_freedom(part: Metric) -> int:
    """At least one: a metric with a standard error has two samples or more."""
    return max(1, (part.n if part.num_clusters is None else part.num_clusters) - 1)
