"""A baseline of several reports: each sample's mean over the last ones that have its suite, and the oldest one.

A comparison with the latest report alone does not see ten drops that are each too small to be significant. The mean
over several is less noisy than one run, and the oldest shows what has added up.
"""

from __future__ import annotations

import filecmp
import glob
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from pytest_llmeval.errors import ReportError
from pytest_llmeval.gates.options import Compare
from pytest_llmeval.gates.sample_pairs import kept_records
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import (
    Group,
    NamedReport,
    Report,
    SuiteReport,
    compared_models,
    group_of_suite,
)
from pytest_llmeval.reporting.report.served_models import REPLIES
from pytest_llmeval.reporting.report.verify import verify_report
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import HUMAN
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.paired_metrics import counted, needed_values
from pytest_llmeval.text.names import plain_name
from pytest_llmeval.text.wording import quoted

__all__ = [
    "ABSENT",
    "LAST",
    "LATEST",
    "EarlierReports",
    "EarlierRuns",
    "EarlierSide",
    "check_copies",
    "in_order",
    "other_form",
    "read_earlier",
    "report_paths",
    "suite_of_baseline",
]

ABSENT = "not in the baseline"

LAST = 5
"""The number of reports whose mean is taken, unless the user says another."""

LATEST = "latest report"
"""The name of the one report that a gate is against if it looks at no mean."""


_ASKED = ("prompt", "fewshot", "scorer")
"""Parts of a fingerprint by which a suite asks, and reads a reply."""


def other_form(base: str, parts: Mapping[str, str], earlier: Iterable[SuiteInfo]) -> str | None:
    """Return the name of the earlier suite that takes the place of one that is missing; None if there is none.

    This is the suite ``base`` without variants; else, of its variants, the first that asks in the way that the parts of
    a fingerprint say, or the only one.
    """
    forms = [one for one in earlier if one.base == base]
    if any(one.name == base for one in forms):
        return base
    for one in forms:
        if all(one.fingerprint_parts.get(part, "") == parts.get(part) for part in _ASKED):
            return one.name
    names = {one.name for one in forms}
    return names.pop() if len(names) == 1 else None


def suite_of_baseline(baseline: Report, name: str, model: str | None) -> SuiteReport | str:
    """Return the suite with which one of this name on ``model`` is compared, or why there is none (``ABSENT``, …).

    If the baseline has the suite on one model, this is the one; else the one on the same model.
    """
    partners = [one for one in baseline.suites if one.info.name == name]
    if not partners:
        return ABSENT
    if len(partners) == 1:
        return partners[0]
    for named in (str, plain_name):  # reports of schema 1 and 2 have names with arguments that decide no reply
        same = [one for one in partners if model is not None and one.models and named(one.models[0]) == named(model)]
        if len(same) == 1:
            return same[0]
    models = ", ".join(quoted(one.models[0]) for one in partners if one.models)
    own = "a model without a name" if model is None else quoted(model)
    return f"the baseline has this suite on {models}, and not on {own}"


def in_order(reports: Sequence[NamedReport]) -> list[NamedReport]:
    """Return the reports in the order of time; those of one second stay in the order in which they were given."""
    return sorted(reports, key=lambda named: named[1].created)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRuns:
    """The scores of a suite, by sample id, whose means a report has; it has no means of values ``without_mean``."""

    scores: Sequence[Mapping[str, Record]]
    without_mean: Collection[str]

    def of_metric(self, metric: str) -> Sequence[Mapping[str, Record]]:
        """Return the scores; none if the metric has no mean."""
        return () if metric in self.without_mean or metric == HUMAN else self.scores


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSide:
    """A report that suites of a session are compared with, what gates call it, and ``notes`` on it for each suite.

    ``suites`` are names of suites. ``runs`` are those whose means the report has, by its own groups; none if it is a
    report as it was written.
    """

    name: str
    report: Report
    suites: tuple[str, ...]
    notes: Mapping[str, tuple[str, ...]]
    runs: Mapping[Group, EarlierRuns] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReports:
    """The reports that a session is compared with, in the order of time; ``num_last`` of them are averaged."""

    reports: tuple[NamedReport, ...]
    num_last: int = LAST

    @classmethod
    def of(
        cls,
        reports: Sequence[NamedReport],
        num_last: int = LAST,
        check: Callable[[str, Report], Report] = lambda name, report: report,
    ) -> EarlierReports:
        """Return the reports of a session's past, given in any order.

        ``check`` returns a report as it is to be used, and is called once for each that is.
        """
        found = cls(reports=tuple(in_order(reports)), num_last=num_last)
        suites = dict.fromkeys(suite for _, report in reports for suite in report.suite_names)
        used = {found.reports[-1][0]}
        for suite in suites:
            first, *others = _with_suite(found.reports, suite)
            used |= {first[0], *(name for name, _ in others[-num_last:])}
        checked = ((name, check(name, report) if name in used else report) for name, report in found.reports)
        return replace(found, reports=tuple(checked))

    @property
    def newest(self) -> Report:
        return self.reports[-1][1]

    def partners(self, suites: Sequence[SuiteReport], compare: Compare = "all") -> dict[str, str]:
        """Return the earlier suites with which suites of a session are compared, by name; others have none.

        If no report has the name, ``questions`` lets another form of the suite take its place: itself without variants,
        or one of its variants.
        """
        found: dict[str, str] = {}
        for suite in suites:
            name, reports = suite.info.name, self._reports_for(suite)
            earlier = [one.info for _, report in reversed(reports) for one in report.suites]
            if any(one.name == name for one in earlier):
                found[name] = name
            elif compare == "questions" and (
                other := other_form(suite.info.base, suite.info.fingerprint_parts, earlier)
            ):
                found[name] = other
        return found

    def _reports_for(self, suite: SuiteReport) -> Sequence[NamedReport]:
        """Return the newest report alone if the suite's replies were judged against those of that one."""
        return self.reports[-1:] if REPLIES in suite.info.fingerprint_parts else self.reports

    def sides(self, suites: Sequence[SuiteReport], compare: Compare = "all") -> Iterator[EarlierSide]:
        """Yield the reports to compare these suites of a session with: the means of the last ones, then the oldest.

        A suite that one report has is compared with this one, and a suite that none has with the newest, which says
        so. Replies that were judged against those of the newest report are compared with no other.
        """
        partner_of = self.partners(suites, compare)
        means: dict[tuple[str, ...], tuple[list[NamedReport], dict[str, str]]] = {}
        oldest: dict[str, tuple[Report, list[str]]] = {}
        for suite in suites:
            name = suite.info.name
            before = partner_of.get(name, name)
            is_judged = REPLIES in suite.info.fingerprint_parts
            own = _with_suite(self._reports_for(suite), before)
            last = own[-self.num_last :] or [self.reports[-1]]
            if len(own) != 1 or is_judged:
                means.setdefault(tuple(file for file, _ in last), (last, {}))[1][name] = before
            if own and not is_judged:
                oldest.setdefault(own[0][0], (own[0][1], []))[1].append(name)
        for last, partners in means.values():
            what = LATEST if len(last) == 1 else f"mean of {len(last)} reports"
            report, runs, found = _mean_of_reports([report for _, report in last], set(partners.values()))
            notes = {name: found[before] for name, before in partners.items() if before in found}
            yield EarlierSide(name=what, report=report, suites=tuple(partners), notes=notes, runs=runs)
        for file, (report, names) in oldest.items():
            note = (f"the oldest report is {file} ({report.created})",)
            yield EarlierSide(
                name="oldest report", report=report, suites=tuple(names), notes=dict.fromkeys(names, note)
            )


def _with_suite(reports: Sequence[NamedReport], suite: str) -> list[NamedReport]:
    return [(name, report) for name, report in reports if suite in report.suite_names]


def report_paths(name: Path) -> list[Path]:
    """Return the file of this name, or if there is none the files that fit it as a pattern (``runs/*.json``), by name.

    Raise ``ReportError`` if no file fits a pattern, and for files that are copies.
    """
    if os.path.exists(name) or not glob.has_magic(str(name)):  # False for a name that is too long, and no error
        return [name]
    found = sorted(map(Path, glob.glob(str(name), recursive=True)))
    if not found:
        raise ReportError(f"no file fits {name}")
    check_copies(found)
    return found


def check_copies(paths: Sequence[Path]) -> None:
    """Raise ``ReportError`` for a file with the contents of another (``latest.json``): its run would count twice."""
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        if not path.is_file():  # the error of reading it says more
            continue
        alike = by_size.setdefault(path.stat().st_size, [])
        if (other := next((one for one in alike if filecmp.cmp(one, path, shallow=False)), None)) is not None:
            raise ReportError(f"{path} is a copy of {other}, and each run counts once: leave one of the two out")
        alike.append(path)


def read_earlier(paths: Sequence[Path], num_last: int | None = None, *, until: str | None = None) -> EarlierReports:
    """Read the reports that a session is compared with; those that are used are verified. Raise ``ReportError``.

    Reports that were begun after ``until`` are left out.
    """

    def verified(name: str, report: Report) -> Report:
        # Its records stay in the file: they are needed only when the session is over.
        return replace(verify_report(report, f"the report {name}"), records=report.records)

    found = [(str(path), read_report(path)) for path in paths]
    earlier = [one for one in found if until is None or one[1].created <= until]
    if not earlier:
        raise ReportError(f"none of the {len(found)} other reports is earlier than this one, of {until}")
    return EarlierReports.of(earlier, num_last or LAST, verified)


def _mean_of_reports(
    reports: Sequence[Report], suites: Collection[str]
) -> tuple[Report, Mapping[Group, EarlierRuns], Mapping[str, tuple[str, ...]]]:
    """Return the last one of the reports with each sample's values as means over all that asked and judged it alike,
    and the runs that these are of.

    It has the records of the suites with these names alone.

    What a corpus metric is made of (counts, classes) and ratings by people stay those of the last report: they have no
    mean. So do samples that the last report could not score. Notes say, by suite, how many means are of fewer reports.
    """
    newest, *earlier = reversed(reports)
    compared = compared_models(newest)
    averaged = [suite for suite in newest.suites if suite.info.name in suites]
    own = kept_records(newest, averaged)
    others: dict[Group, list[Mapping[str, Record]]] = {group: [] for group in own}
    for report in earlier:
        partners = {group_of_suite(suite, compared): partner for suite, partner in _partners(newest, averaged, report)}
        records = kept_records(report, partners.values())
        for group, partner in partners.items():
            others[group].append(records[group_of_suite(partner, compared_models(report))])
    without_mean = {
        group_of_suite(suite, compared): {
            part for name in suite.summary.metrics if definition(name).kind == "corpus" for part in needed_values(name)
        }
        for suite in averaged
    }
    means: list[Record] = []
    runs: dict[Group, EarlierRuns] = {}
    num_fewer: Counter[str] = Counter()
    for group, members in own.items():
        alike = [
            {id_: found for id_, record in members.items() if (found := one.get(id_)) and _is_same(record, found)}
            for one in others[group]
        ]
        if alike:
            runs[group] = EarlierRuns(scores=(members, *alike), without_mean=without_mean[group])
        for sample_id, record in members.items():
            same = [one[sample_id] for one in alike if sample_id in one]
            num_fewer[record.suite] += record.status != "unscored" and len(same) < len(earlier)
            means.append(_with_means(record, same, without_mean[group]))
    why = "others asked or judged them in another way, or had no score"
    notes = {
        suite: (f"the mean of {counted(number)} is over fewer reports: {why}",)
        for suite, number in num_fewer.items()
        if number
    }
    return replace(newest, records=tuple(means)), runs, notes


def _partners(
    newest: Report, suites: Sequence[SuiteReport], report: Report
) -> Iterator[tuple[SuiteReport, SuiteReport]]:
    """Yield suites of the newest report with those of another report whose judge and metrics are the same."""
    for suite in suites:
        partner = suite_of_baseline(report, suite.info.name, suite.models[0] if suite.models else None)
        if isinstance(partner, SuiteReport):
            one, other = suite.info, partner.info
            meanings = ([each.definitions.get(name) for each in (newest, report)] for name in suite.summary.metrics)
            has_same_metrics = all(then is None or now is None or then == now for now, then in meanings)
            if one.judge == other.judge and one.splits_reasoning == other.splits_reasoning and has_same_metrics:
                yield suite, partner


def _is_same(record: Record, other: Record) -> bool:
    """Tell whether both are scores of one sample, which was asked and judged in one way as far as that is known."""
    are_unknown = record.fingerprint is None and other.fingerprint is None
    return "unscored" not in (record.status, other.status) and (are_unknown or record.is_same_sample(other))


def _with_means(record: Record, others: Sequence[Record], without_mean: set[str]) -> Record:
    values = dict(record.values)
    for name in dict.fromkeys((*record.values, "accuracy")):
        found = [value for one in (record, *others) if (value := value_of(one, name)) is not None]
        if others and name not in without_mean and name != HUMAN and value_of(record, name) is not None:
            values[name] = fmean(found)
    return replace(record, values=values)
