"""The history of suites over several reports: which differences between neighbours are more than chance.

Neighbours are paired where the questions are the same, by the rules of ``--llm-compare questions``. All two-sided tests
of a history are one family under Holm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_llmeval.errors import ReportError
from pytest_llmeval.gates.earlier_reports import in_order
from pytest_llmeval.gates.regressions import numeric_noise
from pytest_llmeval.gates.sample_pairs import Pairing, Refusal, SamplePairs, Undecided, kept_records, pair_samples
from pytest_llmeval.gates.subjects import USAGE_METRICS, no_variant
from pytest_llmeval.gates.usage import mean_usage, usage_pairs
from pytest_llmeval.reporting.report.history import History, HistoryPoint, HistoryRun, HistorySeries, HistoryStep
from pytest_llmeval.reporting.report.origin import ReportOrigin
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import NamedReport, Report, SuiteReport, compared_models, group_of_suite
from pytest_llmeval.reporting.report.served_models import REPLIES, changed_judge
from pytest_llmeval.reporting.tables.suites import higher_is_better, metrics_shown, suite_row
from pytest_llmeval.scoring.metrics.judged import HUMAN
from pytest_llmeval.scoring.paired_metrics import PairedMetric, PairingError, needed_values, pair_metric
from pytest_llmeval.scoring.statistics.paired_tests import draws_for, holm
from pytest_llmeval.text.names import plain_name
from pytest_llmeval.text.wording import expected_one_of, quoted

__all__ = ["history_of"]

_Key = tuple[str, str | None]
"""A suite, and a model if a report has the suite on several."""

_FEW_DRAWS, _USUAL_DRAWS, _MOST_DRAWS = 1_000, 20_000, 200_000
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A suite in one run, with its records."""

    place: int
    suite: SuiteReport
    report: Report
    records: Mapping[str, Record]


@dataclass(slots=True, kw_only=True)
class _OpenPoint:
    """A point whose step from the run at the place ``before`` is tested when all points are known."""

    point: HistoryPoint
    higher_is_better: bool | None
    is_usage: bool
    before: int = 0
    paired: PairedMetric | None = None


def history_of(
    reports: Sequence[NamedReport],
    *,
    suites: Collection[str] = (),
    metrics: Collection[str] = (),
    alpha: float = 0.05,
) -> History:
    """Return the history of reports, each with a name for messages, in any order; of one time, in this order.

    ``suites`` and ``metrics`` are those to show, all if there are none. Raise ``ReportError`` if several reports have
    no suite in common, and for a suite or metric that none has.
    """
    ordered = in_order(reports)
    _check_shared(ordered)
    _check_named(ordered, suites, metrics)
    several = {
        name
        for _, report in ordered
        for name, number in Counter(suite.info.name for suite in report.suites).items()
        if number > 1
    }
    opened: dict[tuple[str, str | None, str], list[_OpenPoint]] = {}
    last: dict[_Key, _Seen] = {}
    for place, (_, report) in enumerate(ordered):
        shown = [suite for suite in report.suites if not suites or suite.info.is_called(suites)]
        records, compared = kept_records(report, shown), compared_models(report)
        for suite in shown:
            key = _key(suite, several)
            seen = _Seen(place=place, suite=suite, report=report, records=records[group_of_suite(suite, compared)])
            for name, found in _points(last.get(key), seen, metrics):
                opened.setdefault((*key, name), []).append(found)
            last[key] = seen
    num_tests = _test_steps([one for points in opened.values() for one in points], alpha)
    return History(
        runs=tuple(_run(path, report) for path, report in ordered),
        series=tuple(
            HistorySeries(
                suite=suite,
                model=model,
                metric=metric,
                higher_is_better=points[-1].higher_is_better,
                points=tuple(one.point for one in points),
                is_usage=points[-1].is_usage,
            )
            for (suite, model, metric), points in opened.items()
        ),
        alpha=alpha,
        num_tests=num_tests,
    )


def _run(path: str, report: Report) -> HistoryRun:
    is_short = report.stopped is not None or bool(report.selected.by)
    return HistoryRun(
        path=path,
        created=report.created,
        models=report.model_names,
        exit_code=report.exit_code,
        is_partial=is_short or any(suite.is_selection for suite in report.suites),
        origin=report.origin or ReportOrigin(),
    )


def _check_shared(reports: Sequence[NamedReport]) -> None:
    if not any(report.suites for _, report in reports):
        raise ReportError("there is no history to show: no report has a suite")
    numbers = Counter(name for _, report in reports for name in report.suite_names)
    if len(reports) > 1 and max(numbers.values()) == 1:
        told = [f"{path} has {', '.join(map(quoted, one.suite_names)) or 'none'}" for path, one in reports]
        more = f"; and {len(told) - _MAX_NAMED} more" if len(told) > _MAX_NAMED else ""
        raise ReportError(f"the reports have no suite in common: {'; '.join(told[:_MAX_NAMED])}{more}")


def _check_named(reports: Sequence[NamedReport], suites: Collection[str], metrics: Collection[str]) -> None:
    infos = [suite.info for _, report in reports for suite in report.suites]
    known = list(dict.fromkeys(name for info in infos for name in (info.base, info.name)))
    for name in suites:
        if name not in known:
            problem = no_variant(name, infos)
            raise ReportError(problem or f"no report has a suite {quoted(name)}{expected_one_of(name, known)}")
    shown = [suite for _, report in reports for suite in report.suites if not suites or suite.info.is_called(suites)]
    names = list(dict.fromkeys([*(name for suite in shown for name in _measured(suite)), *USAGE_METRICS]))
    for name in metrics:
        if name not in names:
            raise ReportError(f"no suite has a metric {quoted(name)}{expected_one_of(name, names)}")


def _measured(suite: SuiteReport) -> list[str]:
    return [name for name, metric in suite.summary.metrics.items() if metric.kind != "count"]


def _is_usage(name: str, suite: SuiteReport) -> bool:
    """Tell whether the metric is one of usage: a metric of the suite's own that has such a name hides it."""
    return name in USAGE_METRICS and name not in suite.summary.metrics


def _key(suite: SuiteReport, several: Collection[str]) -> _Key:
    """Return a suite's key: a model that goes by another name in each run is one series, if there is one of each."""
    name = suite.info.name
    return name, plain_name(suite.models[0]) if name in several and suite.models else None


def _points(before: _Seen | None, now: _Seen, wanted: Collection[str]) -> Iterator[tuple[str, _OpenPoint]]:
    """Yield the points of a suite's metrics, with what is tested against the run before, or why nothing is.

    Metrics of usage are shown only if they are wanted, since no summary has them: means over the samples of which they
    are known.
    """
    names = [name for name in metrics_shown([suite_row(now.suite, {})]) if not wanted]
    names += [name for name in _measured(now.suite) if name in wanted]
    names += [name for name in USAGE_METRICS if name in wanted and _is_usage(name, now.suite)]
    pairs = None if before is None else _pairs(before, now, names)
    for name in names:
        is_usage = _is_usage(name, now.suite)
        metric = mean_usage(now.records.values(), name, now.report) if is_usage else now.suite.summary.metrics[name]
        point = HistoryPoint(
            run=now.place,
            value=metric.value,
            n=metric.n,
            ci_low=metric.ci_low,
            ci_high=metric.ci_high,
            models=now.suite.models,
        )
        is_higher = False if is_usage else higher_is_better(name, now.suite)
        found = _OpenPoint(point=point, higher_is_better=is_higher, is_usage=is_usage)
        if before is not None and pairs is not None:
            paired = pairs if isinstance(pairs, str) else _paired(name, before, now, pairs)
            if isinstance(paired, str):
                found.point = replace(point, untested=paired)
            else:
                found.before, found.paired = before.place, paired
        yield name, found


def _pairs(before: _Seen, now: _Seen, names: Sequence[str]) -> SamplePairs | str:
    """Return the samples that both runs asked alike, or why they are not compared."""
    if REPLIES in now.suite.info.fingerprint_parts:
        return "each reply was judged against a baseline's"
    if (changed := changed_judge(now.suite, now.report, before.report)) is not None:
        return changed
    pairing = Pairing(
        compare="questions",
        is_selection=bool(now.report.selected.by),
        num_unscored=0,
        num_unscored_before=0,
        allow_unscored=0,
        require=False,
        reports=(before.report, now.report),
    )
    are_rated = any(HUMAN in needed_values(name) for name in names)
    try:
        return pair_samples(before.suite, now.suite, before.records, now.records, pairing, are_rated=are_rated)
    except (Refusal, Undecided) as error:
        return str(error)


def _paired(name: str, before: _Seen, now: _Seen, pairs: SamplePairs) -> PairedMetric | str:
    if _is_usage(name, now.suite):
        try:
            pairs = usage_pairs(pairs, name, (before.report, now.report), now.suite.info.min_measurable)
        except Undecided as error:
            return str(error)
        return _paired_metric(name, pairs)
    meanings = [seen.report.definitions.get(name) for seen in (before, now)]
    if name not in before.suite.summary.metrics:
        return f"the run before has no {name}"
    if None not in meanings and meanings[0] != meanings[1]:
        return f"{name} has another definition in the run before"
    return _paired_metric(name, pairs)


def _paired_metric(name: str, pairs: SamplePairs) -> PairedMetric | str:
    try:
        return pair_metric(name, pairs.first, pairs.second, higher_is_better=True, clusters=pairs.clusters)
    except PairingError as error:
        return f"{name} {error}"


def _test_steps(points: Sequence[_OpenPoint], alpha: float) -> int:
    """Give the points their steps, tested as one family, and return the number of tests.

    A test that is not exact is made with few draws first: if their p-value is far above alpha, no more are made, since
    Holm's procedure makes no p-value smaller.
    """
    tests = [(one, one.paired) for one in points if one.paired is not None]
    most = min(_MOST_DRAWS, max(_USUAL_DRAWS, 2 * draws_for(max(1, len(tests)), alpha)))
    p_values = []
    for _, metric in tests:
        found = metric.paired.test(_FEW_DRAWS)
        if found.num_draws is not None and found.p_two_sided <= 2 * alpha:
            found = metric.paired.test(most)
        p_values.append(found.p_two_sided)
    for (one, metric), p_value, p_adjusted in zip(tests, p_values, holm(p_values), strict=True):
        difference = metric.difference
        is_change = abs(difference.difference) > numeric_noise(difference.first)
        is_known = one.higher_is_better is not None and difference.difference != 0
        step = HistoryStep(
            before=one.before,
            n=difference.n,
            difference=difference.difference,
            ci_low=difference.ci_low,
            ci_high=difference.ci_high,
            p_value=p_value,
            p_adjusted=p_adjusted,
            is_significant=is_change and p_adjusted <= alpha,
            is_better=(difference.difference > 0) == one.higher_is_better if is_known else None,
        )
        one.point = replace(one.point, step=step)
    return len(tests)
