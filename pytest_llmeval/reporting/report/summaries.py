"""Computes the numbers of a report from its records: metrics, comparisons of models, averages over suites.

A session, a journal and reports that are merged all use this code.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias

from pytest_llmeval.reporting.report.records import (
    NOT_ASKED,
    Record,
    SuiteInfo,
    are_replies_to_another_prompt,
    judging_change,
)
from pytest_llmeval.reporting.report.report import (
    Averages,
    Comparison,
    Group,
    PerSample,
    Phases,
    Report,
    SuiteReport,
    Summary,
    VariantComparison,
    definitions_of,
    described_group,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.scoring.metrics.averages import macro_average, micro_average
from pytest_llmeval.scoring.metrics.calibration import reliability
from pytest_llmeval.scoring.metrics.definitions import NOT_MEASURABLE, definition, metric_form, metric_limits
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.metrics.summary import (
    Metric,
    by_category,
    count_not_measurable,
    distributions,
    expanded,
    names_given,
    percentiles,
    summarize,
    why_not_measurable,
)
from pytest_llmeval.scoring.model_differences import Difference, compare
from pytest_llmeval.scoring.paired_metrics import FlippedSamples, flipped_samples, two_sided_p
from pytest_llmeval.scoring.statistics.paired_tests import holm
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.text.wording import counted, expected_one_of
from pytest_llmeval.types import JSON, EngineUse

__all__ = [
    "GroupRecords",
    "average_suites",
    "compare_models",
    "given_clusters",
    "grouped",
    "leading_metric",
    "limits_of",
    "merged_uses",
    "never_named",
    "records_by_category",
    "summarize_suite",
    "summary_of",
    "with_suites",
    "with_sums",
]


def limits_of(info: SuiteInfo, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest possible value of each metric for which the suite's settings set these."""
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
    """Return one suite's part of the report, broken down by category if its samples have one.

    ``model`` names the one that was to answer it, whether it did or not; None if only the records know. Raises
    ``ValueError`` and others for values that no scorer of this package gives, unless ``has_metrics`` is False: then the
    records are counted, and nothing is computed from their values.
    """
    clusters = given_clusters(records)
    names = expanded(info.metrics, records) if has_metrics else ()
    categories = [record.category if has_metrics else None for record in records]
    limits = limits_of(info, names)
    metrics = summarize(records, names, clusters, info.interval, limits)
    only, *others = {*categories} or {None}
    if only is not None and not others:
        parts = {only: metrics}  # all samples are of one category, whose numbers are those of the suite
    else:
        parts = by_category(records, categories, names, clusters, info.interval, limits)
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
        reliability=reliability(records) if "ece" in names else None,
        latency=percentiles([record.seconds for record in timed]),
        tokens_per_second=percentiles(
            [tokens / record.seconds for record in timed if (tokens := record.num_prompt_tokens + record.num_tokens)]
        ),
        phases=_phases(records),
        num_priced=sum(record.cost is not None for record in records),
        per_sample=_per_sample([record for record in records if record.status != "unscored"]),
        distributions=distributions(records, metrics),
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
        cost=_sum_of_known(record.cost for record in records),
        judge_cost=_sum_of_known(record.judge_cost for record in records),
    )


def _sum_of_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the costs that are known, or None if none is."""
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None


def _per_sample(records: Sequence[Record]) -> PerSample | None:
    n, num_priced = len(records), sum(record.cost is not None for record in records)
    if not n:
        return None
    cost = _sum_of_known(record.cost for record in records)
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
    """Yield the suite on each of ``models`` against the first of them, with the paired test of each metric.

    ``records`` are those of the suite, by model. ``better`` gives the better direction of metrics that are not known
    here.
    """
    if len(models) < 2:
        return
    by_id = {model: {record.id: record for record in members} for model, members in records.items()}
    clusters = {record.id: record.cluster for members in records.values() for record in members if record.cluster}
    for second in models[1:]:
        sides = by_id.get(models[0], {}), by_id.get(second, {})
        differences = {}
        for name, found in compare(*sides, metrics, clusters or None).items():
            is_higher = definition(name, better).higher_is_better is not False
            p_value = two_sided_p(name, *sides, found, clusters or None, higher_is_better=is_higher)
            differences[name] = replace(found, p_value=p_value)
        if differences:
            moved = dict(_moved(*sides, differences, better))
            yield Comparison(suite=suite, first=models[0], second=second, differences=differences, movers=moved)


def _moved(
    first: Mapping[str, Record],
    second: Mapping[str, Record],
    differences: Mapping[str, Difference],
    better: Mapping[str, str],
) -> Iterator[tuple[str, FlippedSamples]]:
    for name, difference in differences.items():
        higher_is_better = definition(name, better).higher_is_better
        if difference.kind not in ("mean", "proportion") or higher_is_better is None:
            continue
        values = {
            id_: (before, now)
            for id_, record in first.items()
            if id_ in second
            and (before := value_of(record, name)) is not None
            and (now := value_of(second[id_], name)) is not None
        }
        sides = [one for one, _ in values.values()], [one for _, one in values.values()]
        yield name, flipped_samples([*values], *sides, higher_is_better=higher_is_better)


def average_suites(suites: Sequence[SuiteReport], records: Sequence[Record]) -> tuple[Averages, ...]:
    """Return averages over the suites of each model that has two or more, from their numbers and all records."""
    compared = _compared(suites)
    groups = grouped(records, compared)
    by_model: dict[str | None, list[SuiteReport]] = {}
    firsts: dict[str, str] = {}
    for suite in suites:
        if firsts.setdefault(suite.info.base, suite.info.name) == suite.info.name:
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
    clusters = [given_clusters(own) for own in records]
    by_having: dict[tuple[int, ...], list[str]] = {}
    limits: dict[str, tuple[float, float]] = {}
    for name in alike:
        having = [place for place, suite in enumerate(suites) if _value(suite, name) is not None]
        for place in having[:1]:  # suites with different settings of a metric are ``unlike``: the others agree
            limits |= limits_of(suites[place].info, [name])
        macro |= macro_average([{name: suites[place].summary.metrics[name]} for place in having], limits)
        by_having.setdefault(tuple(having), []).append(name)
    found: dict[str, Metric] = {}
    for places, own in by_having.items():
        # Suites without the metric do not count. Scores of pass@k, for example, are right or wrong without an accuracy.
        in_clusters = [clusters[place] for place in places]
        found |= micro_average([records[place] for place in places], own, in_clusters, limits)
    micro = {name: found[name] for name in alike if name in found}
    return Averages(model=model, macro=macro, micro=micro, unlike=unlike)


def _forms(name: str, suites: Sequence[SuiteReport]) -> dict[str, str]:
    """Return the settings on which the metric depends, by suite, for the suites that have a value of it."""
    return {
        suite.info.name: metric_form(name, suite.info.scorer, suite.info.settings)
        for suite in suites
        if _value(suite, name) is not None
    }


def _value(suite: SuiteReport, name: str) -> float | None:
    metric = suite.summary.metrics.get(name)
    return None if metric is None else metric.value


def _compared(suites: Iterable[SuiteReport]) -> tuple[str, ...]:
    """Return the models if several were compared: only then is a suite there more than once."""
    named = [(suite.info.name, suite.models[0]) for suite in suites if suite.models]
    if len({name for name, _ in named}) == len(named):
        return ()
    return tuple(dict.fromkeys(model for _, model in named))


def grouped(records: Iterable[Record], compared: tuple[str, ...]) -> dict[Group, list[Record]]:
    """Return the records by suite, and by model if models are ``compared``."""
    groups: dict[Group, list[Record]] = {}
    for record in records:
        groups.setdefault(group_of_record(record, compared), []).append(record)
    return groups


def records_by_category(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each category, without those that have none."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.category is not None:
            found.setdefault(record.category, []).append(record)
    return found


def given_clusters(records: Sequence[Record]) -> list[str | None] | None:
    """Return the cluster of each record, or None if no record lies in one."""
    clusters = [record.cluster for record in records]
    return clusters if any(cluster is not None for cluster in clusters) else None


def summary_of(records: Sequence[Record], metrics: Mapping[str, Metric], num_expected: int) -> Summary:
    """Return the counts of these records, with the metrics that were computed from them."""
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


_LOG = logging.getLogger("pytest_llmeval")
_MIXED = "; other workers passed the audit and used the tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecords:
    """The records of a suite (on one model, if several are compared), with what else is known of it.

    ``info`` is None for a suite to which only hand-written tests record: it has the metrics that its records carry.
    ``model`` is the one that was to answer it, None if only the records know.
    """

    records: Sequence[Record]
    info: SuiteInfo | None
    num_expected: int
    num_skipped: int = 0
    model: str | None = None
    engine: EngineUse | None = None


def with_suites(
    report: Report,
    groups: Mapping[Group, GroupRecords],
    compared: tuple[str, ...],
    problems: list[str],
    *,
    of_session: bool = True,
) -> Report:
    """Return the report with its suites, comparisons of the models that are ``compared``, averages and definitions.

    Suites stand in the order of ``groups``, models in the order of ``compared``. What cannot be computed is left out,
    and the reason is added to ``problems``: one suite's numbers must not cost the report of the others. With
    ``of_session`` the log has the traceback as well, as this may be a defect of ours; records of a file may have been
    edited.
    """
    explained = partial(_problem, problems=problems, is_logged=of_session)
    places = {suite: place for place, suite in enumerate(dict.fromkeys(suite for suite, _ in groups))}
    models_in_order = [None, *compared]
    order = sorted(
        (group for group in groups if group[1] in models_in_order),
        key=lambda group: (places[group[0]], models_in_order.index(group[1])),
    )
    suites = tuple(_suite(group, groups[group], explained) for group in order)
    averages: tuple[Averages, ...] = ()
    with explained("there are no averages over suites"):
        averages = average_suites(suites, [record for group in groups.values() for record in group.records])
    return replace(
        report,
        suites=suites,
        comparisons=tuple(_comparisons(groups, compared, explained)),
        variants=_compared_variants(suites, groups, compared, explained, report.models),
        averages=averages,
        definitions=definitions_of(suites),
        problems=tuple(problems),
    )


def _suite(group: Group, found: GroupRecords, explained: _Explained) -> SuiteReport:
    """Return ``summarize_suite``, without metrics if none can be computed from the records' values."""
    summarized = partial(
        summarize_suite,
        found.info or SuiteInfo(name=group[0], metrics=()),
        found.records,
        num_expected=found.num_expected,
        num_skipped=found.num_skipped,
        model=found.model,
        engine=found.engine,
    )
    made: SuiteReport | None = None
    with explained(f"{described_group(group)} has no metrics"):
        made = summarized()
    return made or summarized(has_metrics=False)


def _comparisons(
    groups: Mapping[Group, GroupRecords], compared: tuple[str, ...], explained: _Explained
) -> Iterator[Comparison]:
    """Yield the comparisons of every model with the first that has scores, suite by suite."""
    scored = {record.model for one in groups.values() for record in one.records if record.status != "unscored"}
    order = [model for model in compared if model in scored]
    for suite in dict.fromkeys(suite for suite, model in groups if model is not None):
        own = {model: groups[suite, model] for model in order if (suite, model) in groups}
        records = {model: one.records for model, one in own.items()}
        metrics = tuple(dict.fromkeys(name for one in own.values() if one.info for name in one.info.metrics))
        with explained(f"the models of suite {suite!r} could not be compared"):
            better = {name: way for one in own.values() if one.info for name, way in one.info.better.items()}
            names = expanded(metrics, [record for members in records.values() for record in members])
            yield from list(compare_models(suite, records, order, names, better))


def _compared_variants(
    suites: Sequence[SuiteReport],
    groups: Mapping[Group, GroupRecords],
    compared: tuple[str, ...],
    explained: _Explained,
    models: Sequence[Mapping[str, JSON]],
) -> tuple[VariantComparison, ...]:
    """Return the comparisons of every variant with the first of its suite that has scores, on each model."""
    by_name = {one.get("name"): one for one in models}
    variants: dict[Group, list[SuiteReport]] = {}
    for suite in suites:
        variants.setdefault((suite.info.base, group_of_suite(suite, compared)[1]), []).append(suite)
    found: list[VariantComparison] = []
    for (base, model), members in variants.items():
        order = [one.info.name for one in members if one.summary.num_scored]
        if len(order) < 2:
            continue
        infos = {one.info.name: one.info for one in members}
        names = tuple(dict.fromkeys(name for one in members for name in one.info.metrics))
        better = {name: way for one in members for name, way in one.info.better.items()}
        first = order[0]
        for second in order[1:]:
            pair = {name: groups[name, model].records for name in (first, second)}
            with explained(f"the variants of {described_group((base, model))} could not be compared"):
                asked_alike, note = _same_questions(infos[first], infos[second], pair)
                nothing = Comparison(suite=base, first=first, second=second, differences={})
                one = next(compare_models(base, asked_alike, [first, second], names, better), nothing)
                if one is nothing and note is None:
                    continue
                answered = by_name.get(members[0].models[0], {}) if members[0].models else {}
                if are_replies_to_another_prompt(infos[first], infos[second], answered):
                    note = NOT_ASKED if note is None else f"{note}; {NOT_ASKED}"
                metric = leading_metric(members[0].info, list(one.differences)) if one.differences else None
                tested = one.differences.get(metric or "")
                shared = {field.name: getattr(one, field.name) for field in fields(one)}
                p_value = None if tested is None else tested.p_value
                found.append(VariantComparison(**shared, model=model, metric=metric, p_value=p_value, note=note))
    p_values = [one.p_value for one in found if one.p_value is not None]
    adjusted = iter(holm(p_values))
    return tuple(
        one if one.p_value is None else replace(one, p_adjusted=next(adjusted), family=len(p_values)) for one in found
    )


def _same_questions(
    first: SuiteInfo, second: SuiteInfo, records: Mapping[str, Sequence[Record]]
) -> tuple[Mapping[str, Sequence[Record]], str | None]:
    """Return the records of two variants that ask and expect the same, and a note if that is not all of them.

    A variant may change any key: its data, its targets and how it is judged. There are no records if it judges in
    another way, since its scores then are no measure of the prompt.
    """
    reason = "the judge differs" if first.judge != second.judge else judging_change(first, second)
    if reason is not None:
        return {}, f"not compared: {reason}"
    sides = [{record.id: record for record in records[info.name]} for info in (first, second)]
    both = [id_ for id_ in sides[0] if id_ in sides[1]]
    same = {id_ for id_ in both if sides[0][id_].is_same_question(sides[1][id_])}
    if not same:
        return {}, "not compared: no question is the same in both"
    if len(same) == len(both):
        return records, None
    kept = {name: [record for record in own if record.id in same] for name, own in records.items()}
    number = f"{len(both) - len(same):,} of {counted(len(both), 'sample')}"
    return kept, f"{number} left out, whose question or target differs"


def leading_metric(info: SuiteInfo, metrics: Sequence[str]) -> str | None:
    """Return the metric of comparisons: the one that the suite names, else accuracy, else the first one, if possible
    with a known direction.
    """
    if info.primary_metric is not None:
        return info.primary_metric
    if "accuracy" in metrics:
        return "accuracy"
    values = [name for name in metrics if definition(name).kind != "count"]
    directions = {name: definition(name, info.better).higher_is_better for name in values}
    return next((name for name in values if directions[name] is not None), values[0] if values else None)


def merged_uses(one: EngineUse | None, other: EngineUse) -> EngineUse:
    """Return the worse of two processes' audits of one suite, with the larger number of audited samples.

    Both audited the same samples, so their counts are not added.
    """
    if one is None:
        return other
    worse = max(one, other, key=lambda use: (use.engine == "plain", use.largest_difference or 0.0))
    mixed = "" if one.engine == other.engine or _MIXED in worse.reason else _MIXED
    return replace(worse, reason=worse.reason + mixed, num_audited=max(one.num_audited, other.num_audited))


def never_named(report: Report) -> Iterator[str]:
    """Yield a problem for each name in a suite's ``not_measurable`` for which none of its scores has a value or reason.

    The metrics of a user's own scorer or test are known from its scores alone. Suites that did not run whole are left
    out: a part of a suite may lack a metric.
    """
    if report.stopped is not None:
        return
    given: dict[str, list[str]] = {}
    known: dict[str, set[str]] = {}
    expected: dict[str, set[str]] = {}
    for suite in report.suites:
        numbers = suite.info.settings.get(NOT_MEASURABLE)
        is_part = bool(report.selected.by) if suite.info.num_samples is None else suite.is_selection
        if isinstance(numbers, Mapping) and not is_part:
            name = suite.info.name
            given[name], known[name], expected[name] = [*map(str, numbers)], set(), set()
    for record in report.records if given else ():
        if (names := given.get(record.suite)) is not None and record.status != "unscored":
            known[record.suite].update(names_given(record, names))
            # A score that says that nothing can be measured does not have to name each metric.
            expected[record.suite].update(name for name in names if why_not_measurable(record, name) is None)
    for suite_name, names in given.items():
        for name in names:
            if name in expected[suite_name] - known[suite_name]:
                hint = expected_one_of(name, sorted(known[suite_name]))
                yield f"suite {suite_name!r}: not_measurable has {name!r}, and no score has such a metric{hint}"


@contextmanager
def _problem(message: str, *, problems: list[str], is_logged: bool) -> Iterator[None]:
    """Turn whatever is raised into a problem in one line."""
    try:
        yield
    except Exception as error:
        problems.append(f"{message}: {describe(error)}")
        if is_logged:
            _LOG.exception(message)


_Explained: TypeAlias = Callable[[str], AbstractContextManager[None]]
