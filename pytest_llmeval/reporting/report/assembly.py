"""What a report says of all its suites, from their records: of a session, of a journal, of reports that are merged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pytest_llmeval.reporting.report.groups import Group, described_group
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Averages, Comparison, Report, SuiteReport, definitions_of
from pytest_llmeval.reporting.report.summaries import average_suites, compare_models, summarize_suite
from pytest_llmeval.scoring.metrics.measurable import names_given, why_not_measurable
from pytest_llmeval.scoring.metrics.metric_forms import NOT_MEASURABLE
from pytest_llmeval.scoring.metrics.summary import expanded
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.text.wording import expected_one_of
from pytest_llmeval.types import EngineUse

__all__ = ["GroupRecords", "merged_uses", "never_named", "with_suites"]

_LOG = logging.getLogger("pytest_llmeval")
_MIXED = "; other workers passed the audit and used the tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecords:
    """The records of a suite, where several models were given on one of them, and what is known beside them.

    ``info`` is None for a suite that only hand-written tests record to: it has the metrics that its records carry.
    ``model`` is the one that was to answer it, None where only the records know.
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
    """The report with its suites, their comparisons on the models that are ``compared``, averages and definitions.

    Suites stand in the order of ``groups``, models in that of ``compared``. What cannot be computed is left out, and
    why is added to ``problems``: one suite's numbers must not cost the others' report. With ``of_session`` the log has
    the traceback as well, as it may be a defect of ours; records of a file may have been edited.
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
        averages=averages,
        definitions=definitions_of(suites),
        problems=tuple(problems),
    )


def _suite(group: Group, found: GroupRecords, explained: _Explained) -> SuiteReport:
    """``summarize_suite``; where the records' values have no metrics, without them."""
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
    """Every model against the first that has scores, suite by suite."""
    scored = {record.model for one in groups.values() for record in one.records if record.status != "unscored"}
    order = [model for model in compared if model in scored]
    for suite in dict.fromkeys(suite for suite, model in groups if model is not None):
        own = {model: groups[suite, model] for model in order if (suite, model) in groups}
        records = {model: one.records for model, one in own.items()}
        metrics = tuple(dict.fromkeys(name for one in own.values() if one.info for name in one.info.metrics))
        with explained(f"the models of suite {suite!r} could not be compared"):
            better = {name: way for one in own.values() if one.info for name, way in one.info.better.items()}
            names = expanded(metrics, [record.score for members in records.values() for record in members])
            yield from list(compare_models(suite, records, order, names, better))


def merged_uses(one: EngineUse | None, other: EngineUse) -> EngineUse:
    """What two processes found about one suite: the worse of the two, and how much was audited at the most.

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
    """Whatever is raised is a problem in one line."""
    try:
        yield
    except Exception as error:
        problems.append(f"{message}: {describe(error)}")
        if is_logged:
            _LOG.exception(message)


_Explained: TypeAlias = Callable[[str], AbstractContextManager[None]]
