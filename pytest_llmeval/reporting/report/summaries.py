"""From records to what a report says of their suites: metrics, comparisons of models, averages over suites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType

from pytest_llmeval.reporting.report.groups import Group, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Averages, Comparison, PerSample, Phases, SuiteReport, Summary
from pytest_llmeval.scoring.comparison.differences import Difference, compare
from pytest_llmeval.scoring.comparison.flipped_samples import FlippedSamples, flipped_samples
from pytest_llmeval.scoring.metrics.averages import macro_average, micro_average
from pytest_llmeval.scoring.metrics.calibration import reliability
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.distribution import distributions
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.metrics.measurable import count_not_measurable
from pytest_llmeval.scoring.metrics.metric_forms import metric_form, metric_limits
from pytest_llmeval.scoring.metrics.percentiles import percentiles
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, expanded, summarize
from pytest_llmeval.types import EngineUse, Score

__all__ = [
    "average_suites",
    "compare_models",
    "given_clusters",
    "grouped",
    "limits_of",
    "records_by_category",
    "summarize_suite",
    "summary_of",
    "with_sums",
]


def limits_of(info: SuiteInfo, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """The lowest and the highest value of those metrics of a suite whose settings say it."""
    found = ((name, metric_limits(name, info.scorer, info.settings)) for name in names)
    return {name: limits for name, limits in found if limits is not None}


def summarize_suite(
    info: SuiteInfo,
    records: Sequence[Record],
    *,
    num_expected: int,
    num_skipped: int = 0,
    model: str | None = None,
    engine: EngineUse | None = None,
    has_metrics: bool = True,
) -> SuiteReport:
    """One suite's part of the report, broken down by category where its samples have one.

    ``model`` names the one that was to answer it, whether it did or not; None where only the records know. Raises
    ``ValueError`` and others for values that are no scorer's of ours, unless ``has_metrics`` is False: then the records
    are counted, and nothing is computed of their values.
    """
    scores, clusters = [record.score for record in records], given_clusters(records)
    names = expanded(info.metrics, scores) if has_metrics else ()
    categories = [record.category if has_metrics else None for record in records]
    limits = limits_of(info, names)
    metrics = summarize(scores, names, clusters, info.interval, limits)
    only, *others = {*categories} or {None}
    if only is not None and not others:
        parts = {only: metrics}  # all samples are of one category, whose numbers are those of the suite
    else:
        parts = by_category(scores, categories, names, clusters, info.interval, limits)
    by_name = records_by_category(records)
    answered = [record.model for record in records if record.model is not None]
    timed = [record for record in records if record.status != "unscored" and record.is_timed and record.seconds > 0]
    found = SuiteReport(
        info=replace(info, metrics=names),
        summary=summary_of(records, metrics, num_expected),
        categories={name: summary_of(by_name[name], own, len(by_name[name])) for name, own in parts.items()},
        macro=macro_average(parts.values(), limits),
        num_skipped=num_skipped,
        models=tuple(dict.fromkeys(answered if model is None else (model, *answered))),
        engine=engine,
        reliability=reliability(scores) if "ece" in names else None,
        latency=percentiles([record.seconds for record in timed]),
        tokens_per_second=percentiles(
            [tokens / record.seconds for record in timed if (tokens := record.num_prompt_tokens + record.num_tokens)]
        ),
        phases=_phases(records),
        num_priced=sum(record.cost is not None for record in records),
        per_sample=_per_sample([record for record in records if record.status != "unscored"]),
        distributions=distributions(scores, metrics),
    )
    return with_sums(found, records)


def with_sums(suite: SuiteReport, records: Sequence[Record]) -> SuiteReport:
    """Return the suite with the sums of its records' tokens, seconds and costs."""
    return replace(
        suite,
        num_prompt_tokens=sum(record.num_prompt_tokens for record in records),
        num_tokens=sum(record.num_tokens for record in records),
        seconds=math.fsum(record.seconds for record in records),
        num_judge_requests=sum(record.num_judge_requests for record in records),
        num_judge_tokens=sum(record.num_judge_tokens for record in records),
        judge_seconds=math.fsum(record.judge_seconds for record in records),
        cost=_cost_of(records),
    )


def _cost_of(records: Iterable[Record]) -> float | None:
    """The sum over those that have one; None where none has."""
    costs = [record.cost for record in records if record.cost is not None]
    return math.fsum(costs) if costs else None


def _per_sample(records: Sequence[Record]) -> PerSample | None:
    n, num_priced = len(records), sum(record.cost is not None for record in records)
    if not n:
        return None
    cost = _cost_of(records)
    counted = [record for record in records if record.num_prompt_tokens + record.num_tokens > 0]
    return PerSample(
        n=n,
        num_prompt_tokens=sum(record.num_prompt_tokens for record in counted) / max(len(counted), 1),
        num_tokens=sum(record.num_tokens for record in counted) / max(len(counted), 1),
        seconds=math.fsum(record.seconds for record in records) / n,
        cost=None if cost is None else cost / num_priced,
        num_priced=num_priced,
        num_counted=len(counted),
    )


def _phases(records: Sequence[Record]) -> Phases | None:
    known = [
        (record, record.prefill_seconds, record.num_decoded)
        for record in records
        if record.prefill_seconds is not None and record.num_decoded is not None
    ]
    if not known:
        return None
    return Phases(
        prefill_tokens=sum(record.num_prompt_tokens for record, _, _ in known),
        prefill_seconds=math.fsum(prefill for _, prefill, _ in known),
        decode_tokens=sum(decoded for _, _, decoded in known),
        decode_seconds=math.fsum(max(0.0, record.seconds - prefill) for record, prefill, _ in known),
    )


def compare_models(
    suite: str,
    records: Mapping[str, Sequence[Record]],
    models: Sequence[str],
    metrics: Sequence[str],
    better: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Comparison]:
    """The suite on each of ``models`` against the first of them, with the paired test of each metric; ``records`` are
    those of the suite, by model.

    ``better`` says of metrics that are not known here which way is better.
    """
    if len(models) < 2:
        return
    from pytest_llmeval.scoring.comparison.paired_metrics import two_sided_p  # not what every session needs

    scores = {model: {record.id: record.score for record in members} for model, members in records.items()}
    clusters = {record.id: record.cluster for members in records.values() for record in members if record.cluster}
    for second in models[1:]:
        sides = scores.get(models[0], {}), scores.get(second, {})
        differences = {}
        for name, found in compare(*sides, metrics, clusters or None).items():
            is_higher = definition(name, better).higher_is_better is not False
            p_value = two_sided_p(name, *sides, found, clusters or None, higher_is_better=is_higher)
            differences[name] = replace(found, p_value=p_value)
        if differences:
            moved = dict(_moved(scores[models[0]], scores[second], differences, better))
            yield Comparison(suite=suite, first=models[0], second=second, differences=differences, movers=moved)


def _moved(
    first: Mapping[str, Score],
    second: Mapping[str, Score],
    differences: Mapping[str, Difference],
    better: Mapping[str, str],
) -> Iterator[tuple[str, FlippedSamples]]:
    for name, difference in differences.items():
        higher_is_better = definition(name, better).higher_is_better
        if difference.kind not in ("mean", "proportion") or higher_is_better is None:
            continue
        values = {
            id_: (before, now)
            for id_, score in first.items()
            if id_ in second
            and (before := value_of(score, name)) is not None
            and (now := value_of(second[id_], name)) is not None
        }
        sides = [one for one, _ in values.values()], [one for _, one in values.values()]
        yield name, flipped_samples([*values], *sides, higher_is_better=higher_is_better)


def average_suites(suites: Sequence[SuiteReport], records: Sequence[Record]) -> tuple[Averages, ...]:
    """Averages over the suites of each model that has two or more, from their numbers and from all of their records."""
    compared = _compared(suites)
    groups = grouped(records, compared)
    by_model: dict[str | None, list[SuiteReport]] = {}
    for suite in suites:
        by_model.setdefault(group_of_suite(suite, compared)[1], []).append(suite)
    found = [
        _averages(model, own, [groups.get((suite.info.name, model), []) for suite in own])
        for model, own in by_model.items()
        if len(own) > 1
    ]
    return tuple(averages for averages in found if averages.macro or averages.micro or averages.unlike)


def _averages(model: str | None, suites: Sequence[SuiteReport], records: Sequence[Sequence[Record]]) -> Averages:
    macro: dict[str, Metric] = {}
    names = dict.fromkeys(name for suite in suites for name in suite.summary.metrics if not is_of_trust(name))
    forms = {name: _forms(name, suites) for name in names}
    unlike = {name: own for name, own in forms.items() if len(set(own.values())) > 1}
    alike = [name for name in names if name not in unlike]
    scores = [[record.score for record in members] for members in records]
    clusters = [given_clusters(own) for own in records]
    by_having: dict[tuple[int, ...], list[str]] = {}
    limits: dict[str, tuple[float, float]] = {}
    for name in alike:
        having = [place for place, suite in enumerate(suites) if _value(suite, name) is not None]
        for place in having[:1]:  # of one metric they are the same in all suites, since settings are that decide them
            limits |= limits_of(suites[place].info, [name])
        macro |= macro_average([{name: suites[place].summary.metrics[name]} for place in having], limits)
        by_having.setdefault(tuple(having), []).append(name)
    found: dict[str, Metric] = {}
    for places, own in by_having.items():
        # A score is right or wrong also where its suite has no accuracy, as of pass@k: such suites are no part of it.
        in_clusters = [clusters[place] for place in places]
        found |= micro_average([scores[place] for place in places], own, in_clusters, limits)
    micro = {name: found[name] for name in alike if name in found}
    return Averages(model=model, macro=macro, micro=micro, unlike=unlike)


def _forms(name: str, suites: Sequence[SuiteReport]) -> dict[str, str]:
    """By suite, what of its settings the metric depends on; of the suites that have a value of it."""
    return {
        suite.info.name: metric_form(name, suite.info.scorer, suite.info.settings)
        for suite in suites
        if _value(suite, name) is not None
    }


def _value(suite: SuiteReport, name: str) -> float | None:
    metric = suite.summary.metrics.get(name)
    return None if metric is None else metric.value


def _compared(suites: Iterable[SuiteReport]) -> tuple[str, ...]:
    """The models of a session of several: then, and only then, a suite is there more than once."""
    named = [(suite.info.name, suite.models[0]) for suite in suites if suite.models]
    if len({name for name, _ in named}) == len(named):
        return ()
    return tuple(dict.fromkeys(model for _, model in named))


def grouped(records: Iterable[Record], compared: tuple[str, ...]) -> dict[Group, list[Record]]:
    """Records by suite, and where models are ``compared`` by model."""
    groups: dict[Group, list[Record]] = {}
    for record in records:
        groups.setdefault(group_of_record(record, compared), []).append(record)
    return groups


def records_by_category(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each category, without those that have none."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.category is not None:
            found.setdefault(record.category, []).append(record)
    return found


def given_clusters(records: Sequence[Record]) -> list[str | None] | None:
    """Those of the records; None where none of them lies in one."""
    clusters = [record.cluster for record in records]
    return clusters if any(cluster is not None for cluster in clusters) else None


def summary_of(records: Sequence[Record], metrics: Mapping[str, Metric], num_expected: int) -> Summary:
    """The counts of these records, beside the metrics that were computed of them."""
    num_unscored = list(map(attrgetter("status"), records)).count("unscored")
    return Summary(
        num_expected=num_expected,
        num_scored=len(records) - num_unscored,
        num_unscored=num_unscored,
        num_no_answer=sum(map(attrgetter("no_answer"), records)),
        num_truncated=sum(map(attrgetter("num_truncated"), records)),
        metrics=metrics,
        not_measurable=count_not_measurable((record for record in records if record.not_measurable), [*metrics]),
    )
