"""Finds what samples used (money, time, tokens), for gates that name one of ``subjects.USAGE_METRICS``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pytest_llmeval.gates.sample_pairs import SamplePairs, Undecided, kept_records
from pytest_llmeval.gates.subjects import SECONDS, GateSubject
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport, compared_models, group_of_suite
from pytest_llmeval.reporting.report.summaries import given_clusters
from pytest_llmeval.scoring.metrics.summary import Metric, percentiles, within
from pytest_llmeval.scoring.statistics.clustered import (
    are_too_few,
    cluster_numbers,
    count_clusters,
    estimate_mean,
    odd_ones,
)
from pytest_llmeval.scoring.statistics.intervals import mean, with_width
from pytest_llmeval.suites.format.gates_spec import Bound
from pytest_llmeval.text.wording import counted
from pytest_llmeval.types import COSTS_NOTHING, JSON, Score, ScoreLike

__all__ = [
    "USAGE_FIELDS",
    "UnknownUsage",
    "Used",
    "UsedBySuite",
    "mean_usage",
    "usage_metric",
    "usage_of",
    "usage_pairs",
]

_ROUNDING = 1e-9
_WHY_UNTIMED = (
    "replies from a store or from a shared batch have no time of their own; "
    "--llm-store-refresh asks again, --llm-batch-size 1 times each by itself"
)
_WHY_UNKNOWN = {
    "cost": "a model or judge that was asked has no price: give price_in and price_out",
    "num_tokens": "the model does not count tokens",
    "num_prompt_tokens": "the model does not count tokens",
}


USAGE_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cost": ("cost", "judge_cost"),
        SECONDS: ("seconds", "is_timed", "is_reused"),
        "num_tokens": ("num_tokens", "num_prompt_tokens"),
        "num_prompt_tokens": ("num_tokens", "num_prompt_tokens"),
    }
)
"""Fields of a record that ``usage_of`` reads, beside those that each comparison reads."""


class UnknownUsage(Exception):
    """Some of the samples have no known value. The message says how many, and why."""


def usage_of(record: Record, name: str, report: Report) -> float | None:
    """Return the sample's value of one of ``USAGE_METRICS``; None if the report does not tell it."""
    if record.status == "unscored":
        return None
    if name == SECONDS:
        return record.seconds if _was_timed_here(record, report.created) else None
    if name == "cost":
        models = [one for one in report.models if record.model in (None, one.get("name"))]
        costs = [record.cost if record.cost is not None else _cost_of_free(models)]
        if record.num_judge_requests:
            costs.append(record.judge_cost if record.judge_cost is not None else _cost_of_free(report.judges))
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None
    if not record.has_counted_tokens:
        return None
    return float(record.num_tokens if name == "num_tokens" else record.num_prompt_tokens)


def _cost_of_free(models: Sequence[Mapping[str, JSON]]) -> float | None:
    """Return 0 if nothing is paid for any of the models, None if that is not known."""
    details = [model.get("details") for model in models]
    is_free = [isinstance(found, Mapping) and found.get(COSTS_NOTHING) is True for found in details]
    return 0.0 if is_free and all(is_free) else None


def _was_timed_here(record: Record, created: str) -> bool:
    """Tell whether the record's seconds were measured for it alone, in the session that began at ``created``.

    Replies of a store have the time of the session that asked for them. Reports of earlier versions say of such a
    record only when it was asked for.
    """
    is_older = record.asked_at is not None and record.asked_at < created
    return record.is_timed and record.seconds > 0 and not record.is_reused and not is_older


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The usage of samples, of those that have a value. ``note`` says how many have none, if so."""

    metric: Metric
    values: tuple[float, ...]
    note: str | None = None

    def number(self, bound: Bound) -> float | None:
        """Return the number that a rule is about, None for an interval that there is not."""
        if bound == "value":
            return self.metric.value
        if bound == "sum":
            return math.fsum(self.values)
        found = self.metric if bound in ("ci_low", "ci_high") else percentiles(self.values)
        number: float | None = getattr(found, bound)
        return number


class UsedBySuite:
    """The usage of a report's samples, by suite. The report's records are read once."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._compared = compared_models(report)
        self._records = kept_records(report, report.suites)

    def of(self, suite: SuiteReport, subject: GateSubject, bound: Bound) -> Used:
        """Return what the subject's samples used. Raises ``UnknownUsage`` and, of seconds, ``Undecided``."""
        records = [
            record
            for record in self._records[group_of_suite(suite, self._compared)].values()
            if record.status != "unscored" and subject.category in (None, record.category)
        ]
        if not records:
            raise UnknownUsage("nothing was scored")
        values = [usage_of(record, subject.metric, self._report) for record in records]
        least = 1.0 if bound == "sum" else suite.info.min_measurable
        note = _check_known(subject.metric, values.count(None), len(records), least)
        known = [(record, value) for record, value in zip(records, values, strict=True) if value is not None]
        numbers = tuple(value for _, value in known)
        metric = usage_metric(numbers, given_clusters([record for record, _ in known]))
        return Used(metric=metric, values=numbers, note=note)


def _check_known(name: str, num_unknown: int, num_all: int, least: float) -> str | None:
    """Return a note on the samples without a value, if there are some. Raise ``UnknownUsage`` and ``Undecided``.

    ``least`` is the share of samples that have to be timed.
    """
    if not num_unknown:
        return None
    of = f"{num_unknown:,} of {counted(num_all, 'sample')}"
    if name != SECONDS:
        raise UnknownUsage(f"{name} is not known for {of}: {_WHY_UNKNOWN[name]}")
    found = f"{of} {'was not timed by itself' if num_unknown == 1 else 'were not timed by themselves'}"
    if num_unknown == num_all or num_unknown > (1 - least) * num_all + _ROUNDING:
        raise Undecided(f"{found}: {_WHY_UNTIMED}")
    return f"{found}: left out"


def usage_pairs(pairs: SamplePairs, name: str, reports: tuple[Report, Report], min_measurable: float) -> SamplePairs:
    """Return the pairs with what their samples used. Those that were not both timed are left out of seconds.

    Raises ``Undecided`` if too many are.
    """
    sides: list[dict[str, ScoreLike]] = []
    for side, report in zip((pairs.first, pairs.second), reports, strict=True):
        own: dict[str, ScoreLike] = {}
        for sample_id, record in side.items():
            assert isinstance(record, Record)
            value = usage_of(record, name, report)
            own[sample_id] = Score(status="scored", values={} if value is None else {name: value})
        sides.append(own)
    if name == SECONDS:
        timed = [one for one in pairs.second if sides[0][one].values and sides[1][one].values]
        num_untimed = len(pairs.second) - len(timed)
        if (note := _check_known(name, num_untimed, len(pairs.second), min_measurable)) is not None:
            sides = [{one: side[one] for one in timed} for side in sides]
            pairs = replace(
                pairs,
                notes=(*pairs.notes, f"in one of the two runs {note}"),
                num_left_out=pairs.num_left_out + num_untimed,
            )
    return replace(pairs, first=sides[0], second=sides[1])


def mean_usage(records: Iterable[Record], name: str, report: Report) -> Metric:
    """Return the mean of one of ``USAGE_METRICS`` over the records that have a value; without one if none has."""
    known = [(record, value) for record in records if (value := usage_of(record, name, report)) is not None]
    if not known:
        return Metric(value=None, n=0, kind="mean")
    return usage_metric([value for _, value in known], given_clusters([record for record, _ in known]))


def usage_metric(values: Sequence[float], clusters: Sequence[str | None] | None = None) -> Metric:
    """Return the mean of at least one value, with its interval, as ``summary.summarize`` has it of any other metric."""
    numbers = None if clusters is None else cluster_numbers(clusters)
    found = Metric(
        value=mean(values),
        n=len(values),
        kind="mean",
        num_clusters=None if numbers is None else count_clusters(numbers),
    )
    estimate = None if are_too_few(numbers) else estimate_mean(values, numbers)
    if estimate is None:
        return found
    found = replace(found, stderr=estimate.stderr, skewness=estimate.skewness)
    interval = None if odd_ones(values, numbers) else with_width(estimate.interval())
    if interval is None:
        return found
    low, high = within((0.0, math.inf), interval, mean(values), values)
    return replace(found, ci_low=low, ci_high=high)
