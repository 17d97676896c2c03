"""Averages over parts: categories of a suite, or suites. Macro counts every part equally, micro every sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_llmeval.scoring.metrics.classification import CLASSIFICATION
from pytest_llmeval.scoring.metrics.definitions import definition, split_name
from pytest_llmeval.scoring.metrics.summary import Metric, is_carried, summarize
from pytest_llmeval.scoring.statistics.intervals import mean
from pytest_llmeval.types import Score

__all__ = ["macro_average", "micro_average"]


def macro_average(parts: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Each metric's mean over the parts, every one counting equally; ``n`` is the number of parts.

    Only of metrics that each part has a value for, and of no counts; none of fewer than two parts. The parts hold
    different samples, and different clusters where samples lie in clusters. The standard error of k parts is
    ``sqrt(sum(stderr²)) / k``, None where a part has none. The 95% interval is made of the parts' own: its ends lie
    ``sqrt(sum(d²)) / k`` from the mean, d the distance of a part's value from the end of its interval on that side
    (G. Y. Zou and A. Donner, 2008, doi:10.1002/sim.3095; of two proportions it is R. G. Newcombe's, 1998,
    doi:10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I). A small part that is all right, whose
    standard error is 0, has its share in it. None where a part has no interval.
    """
    found = list(parts)
    if len(found) < 2:
        return {}
    averages = {}
    for name, metric in found[0].items():
        own = [part[name] for part in found if name in part]
        values = [metric.value for metric in own if metric.value is not None]
        if metric.kind != "count" and len(values) == len(found):
            averages[name] = _macro(own, mean(values))
    return averages


def micro_average(
    suites: Iterable[Sequence[Score]],
    names: Sequence[str],
    clusters: Iterable[Sequence[str | None] | None] | None = None,
) -> dict[str, Metric]:
    """Each named metric over the samples of all suites together, every one counting equally.

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


def _macro(parts: Sequence[Metric], value: float) -> Metric:
    errors = [part.stderr for part in parts if part.stderr is not None]
    stderr = math.hypot(*errors) / len(parts) if len(errors) == len(parts) else None
    found = Metric(value=value, n=len(parts), kind="mean", stderr=stderr)
    ends = [
        (part.value - part.ci_low, part.ci_high - part.value)
        for part in parts
        if part.value is not None and part.ci_low is not None and part.ci_high is not None
    ]
    if len(ends) < len(parts):
        return found
    below, above = (math.hypot(*side) / len(parts) for side in zip(*ends, strict=True))
    return replace(found, ci_low=value - below, ci_high=value + above)
