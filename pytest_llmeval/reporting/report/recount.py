"""A report's numbers, computed from its records anew: a report that was edited, or lost records, is not believed.

It cannot be found out where numbers and records were changed together. Not compared are how long a sample took
and how log-likelihoods were computed, since no gate is about them; nor intervals and standard errors: another version
of this package or of numpy has others, from the same records. A gate on an interval gets one that is computed here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from operator import attrgetter
from typing import NoReturn

from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.errors import ReportError
from pytest_llmeval.metrics.averages import macro_average
from pytest_llmeval.metrics.calibration import reliability_of
from pytest_llmeval.metrics.columns import Places, ScoreColumns
from pytest_llmeval.metrics.corpus import corpus_formula
from pytest_llmeval.metrics.definitions import definition
from pytest_llmeval.metrics.sample_values import contradiction
from pytest_llmeval.metrics.summary import Metric, by_category, places_by_category, summarize
from pytest_llmeval.reporting.report.groups import (
    Group,
    compared_models,
    described_group,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.reporting.report.records import Record, records_without_texts
from pytest_llmeval.reporting.report.report import Report, SuiteReport, Summary
from pytest_llmeval.reporting.report.summaries import (
    average_suites,
    cost_of,
    given_clusters,
    limits_of,
    records_by_category,
    summary_of,
)
from pytest_llmeval.scoring.comparison.differences import compare
from pytest_llmeval.statistics.paired_tests import mcnemar
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.text.wording import quoted

__all__ = ["fitting", "misfit"]

_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
"""Numbers that differ by less are the same: of another processor, or of another order of summing."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_OF_RIGHT_AND_WRONG = frozenset(
    ("choice", "continuation", "letter", "yes_no", "number", "exact", "contains", "pattern", "json", "math")
)
"""Scorers whose scores have no accuracy that their metrics do not have too."""


class _Misfit(Exception):
    """What of a report does not agree with its records, in a few words."""


def fitting(report: Report, name: str, *, bounds_of: Collection[str] = ()) -> Report:
    """The report with its metrics computed from its records anew, and these in memory without their texts.

    Intervals of corpus metrics take long, and are computed for those in ``bounds_of``; others keep what they have.
    Raises ``ReportError``, in one line that begins with ``name``, where the report's numbers and its records do not
    agree, and for a record that cannot be read.
    """
    try:
        with without_collection():
            return _fitting(report, frozenset(bounds_of))
    except _Misfit as error:
        raise ReportError(
            f"{name}: its numbers and its records do not agree: {error}; "
            "use the report file that the run wrote, unchanged"
        ) from None


def misfit(report: Report, name: str) -> str | None:
    """The message of ``fitting``; None where everything agrees."""
    try:
        fitting(report, name)
    except ReportError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class _Recount:
    """How numbers of one report are computed and compared.

    ``unlike`` are metrics that meant something else when it was made.
    """

    bounds_of: frozenset[str]
    unlike: frozenset[str]

    def is_slow(self, name: str) -> bool:
        """Whether the metric's interval is a bootstrap's that was not requested."""
        return definition(name).kind == "corpus" and name not in self.bounds_of

    def check(self, stored: Mapping[str, Metric], found: Mapping[str, Metric], where: str = "") -> None:
        """Raise ``_Misfit`` for the first of the metrics whose n, number of clusters or value is not what was found."""
        for name in dict.fromkeys((*stored, *found)):
            if name in self.unlike:
                continue
            if name not in stored or name not in found:
                raise _Misfit(f"{where}{name} is only in its {'records' if name in found else 'summary'}")
            _check_metric(stored[name], found[name], f"{where}{name}")
            _check_fields(stored[name], found[name], ("num_clusters",), f"{where}{name}: ")


def _fitting(report: Report, bounds_of: frozenset[str]) -> Report:
    compared = compared_models(report)
    groups = _groups(report, compared)
    recount = _Recount(
        bounds_of,
        unlike=frozenset(
            name for name, said in report.definitions.items() if said.get("version") != definition(name).version
        ),
    )
    suites = tuple(_suite(suite, groups[group_of_suite(suite, compared)], report, recount) for suite in report.suites)
    _check_definitions(report)
    _check_comparisons(report, groups)
    _check_averages(report, suites, groups)
    return replace(report, suites=suites, records=[record for own in groups.values() for record in own])


def _groups(report: Report, compared: tuple[str, ...]) -> dict[Group, list[Record]]:
    """The records of each suite, in their order."""
    groups: dict[Group, list[Record]] = {}
    for suite in report.suites:
        group = group_of_suite(suite, compared)
        if group in groups:
            raise _Misfit(f"{described_group(group)} is in it twice")
        groups[group] = []
    seen: dict[Group, set[str]] = {group: set() for group in groups}
    for record in records_without_texts(report.records):
        group = group_of_record(record, compared)
        if group not in groups:
            raise _Misfit(f"sample {quoted(record.id)} is of {described_group(group)}, which has no summary in it")
        ids = seen[group]
        if record.id in ids:
            raise _Misfit(f"sample {quoted(record.id)} of {described_group(group)} is in it twice")
        ids.add(record.id)
        if (found := contradiction(record.status, record.values)) is not None:
            raise _Misfit(f"sample {quoted(record.id)} of suite {record.suite!r} has {found}")
        groups[group].append(record)
    return groups


def _suite(suite: SuiteReport, records: Sequence[Record], report: Report, recount: _Recount) -> SuiteReport:
    try:
        _check_counts(suite, records, report)
        _check_fingerprint(suite, records)
        return _measured(suite, records, recount) if suite.summary.metrics else suite
    except _Misfit as error:
        raise _Misfit(f"{described_group(group_of_suite(suite, compared_models(report)))}: {error}") from None


_SUMS = (
    *("num_prompt_tokens", "num_tokens", "seconds"),
    *("num_judge_requests", "num_judge_tokens", "judge_seconds"),
)


def _check_counts(suite: SuiteReport, records: Sequence[Record], report: Report) -> None:
    summary, info = suite.summary, suite.info
    is_short = report.stopped is None and len(records) < summary.num_expected
    if is_short or len(records) > suite.num_selected:
        _differ("num_expected", summary.num_expected, len(records))
    if info.num_samples is not None and not report.problems and suite.num_selected > info.num_samples:
        _differ("num_samples", info.num_samples, suite.num_selected)
    _check_summary(summary, records)
    own = records_by_category(records)
    if summary.metrics and suite.categories.keys() != own.keys():
        raise _Misfit(f"its categories are {_listed(suite.categories)}, and those of its records {_listed(own)}")
    for name, part in suite.categories.items():
        with_name = f"category {name}: "
        _check_summary(part, own.get(name, ()), with_name)
        if part.num_expected != len(own.get(name, ())):
            _differ(f"{with_name}num_expected", part.num_expected, len(own.get(name, ())))
    models = {record.model for record in records if record.model is not None}
    if not models <= set(suite.models):
        raise _Misfit(f"its models are {_listed(suite.models)}, and those of its records {_listed(models)}")
    for name in _SUMS:
        value, found = getattr(suite, name), math.fsum(map(attrgetter(name), records))
        if not _same(value, found):
            _differ(name, value, found)
    if not _same(suite.cost, cost := cost_of(records)):
        _differ("cost", suite.cost, cost)


def _check_summary(stored: Summary, records: Sequence[Record], where: str = "") -> None:
    found = summary_of(records, stored.metrics, stored.num_expected)
    _check_fields(stored, found, ("num_scored", "num_unscored", "num_no_answer", "num_truncated"), where)
    if found.not_measurable != stored.not_measurable:
        raise _Misfit(f"{where}not_measurable differs from its records")


def _check_fingerprint(suite: SuiteReport, records: Sequence[Record]) -> None:
    """A suite's fingerprint hashes those of its samples (``Evaluation.fingerprints``), which are checked where all of
    them are there.
    """
    info = suite.info
    if info.fingerprint is None or _SHA256.fullmatch(info.fingerprint) is None or len(records) != info.num_samples:
        return
    parts = [(record.id, record.fingerprint, record.category or "") for record in records]
    if any(fingerprint is None for _, fingerprint, _ in parts):
        return  # of a sample whose process died nothing is known
    if hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest() != info.fingerprint:
        raise _Misfit("its fingerprint does not match its samples")


def _measured(suite: SuiteReport, records: Sequence[Record], recount: _Recount) -> SuiteReport:
    """The suite with its metrics computed anew. Raises ``_Misfit`` where they are not those that it has."""
    names, stored = tuple(suite.summary.metrics), suite.summary.metrics
    has_right_and_wrong = "accuracy" not in names and suite.info.scorer in _OF_RIGHT_AND_WRONG
    if has_right_and_wrong and any("accuracy" in record.values for record in records if record.status != "unscored"):
        raise _Misfit("it has no accuracy, and its records have one")
    clusters, categories = given_clusters(records), [record.category for record in records]
    columns = ScoreColumns(records)
    slow = [name for name in names if recount.is_slow(name) and columns.has_ingredients(name)]
    quick = [name for name in names if name not in slow]
    try:
        limits = limits_of(suite.info, quick)
        whole = summarize(columns, quick, clusters, suite.info.interval, limits) | {
            name: _corpus(columns, name, stored) for name in slow
        }
        parts = by_category(columns, categories, quick, clusters, suite.info.interval, limits)
        for category, places in places_by_category(records, categories).items() if slow else ():
            own_stored = suite.categories[category].metrics
            parts[category] |= {name: _corpus(columns, name, own_stored, places) for name in slow}
    except (ArithmeticError, ValueError) as error:
        raise _Misfit(f"no metrics can be computed from its records: {describe(error)}") from None
    macro = macro_average(parts.values(), limits)
    recount.check(stored, whole)
    for category, metrics in parts.items():
        recount.check(suite.categories[category].metrics, metrics, f"category {category}: ")
    recount.check(suite.macro, macro, "mean over categories: ")
    _check_reliability(suite, columns)
    return replace(
        suite,
        summary=replace(suite.summary, metrics={name: whole[name] for name in names}),
        categories={name: replace(part, metrics=parts[name]) for name, part in suite.categories.items()},
        macro={name: suite.macro[name] if name in slow else metric for name, metric in macro.items()},
    )


def _check_reliability(suite: SuiteReport, columns: ScoreColumns) -> None:
    if suite.reliability is None:
        return
    found = columns.needed("ece")
    bins = reliability_of(found["confidence"], found["accuracy"]) or ()
    for place, (one, other) in enumerate(zip_longest(suite.reliability, bins)):
        if one is None or other is None:
            raise _Misfit(f"its reliability has {len(suite.reliability)} bins, and its records have others")
        _check_fields(one, other, ("n", "confidence", "accuracy"), after=f" of reliability[{place}]")


def _corpus(columns: ScoreColumns, name: str, stored: Mapping[str, Metric], places: Places | None = None) -> Metric:
    """The metric's value computed anew, with the interval that it has."""
    formula = corpus_formula(name)
    if formula is None:
        raise ValueError(f"{name} is not a corpus metric")
    if formula.of_columns is not None:
        needed = columns.needed(name, places)
        n, numbers = len(needed[formula.needs[0]]), chain.from_iterable(needed.values())
    else:
        parts, _ = columns.ingredients(name, places)
        n, numbers = len(parts), chain.from_iterable(part.values() for part in parts)
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{name} is made of a number that is not finite")
    value = formula.compute(parts) if formula.of_columns is None else formula.of_columns(needed)
    found = stored.get(name) or Metric(value=None, n=0, kind="corpus")
    if formula.no_interval is not None:  # which a report of an earlier version can have
        found = replace(found, stderr=None, ci_low=None, ci_high=None, no_interval=formula.no_interval)
    return replace(found, value=value if value is not None and math.isfinite(value) else None, n=n)


def _check_definitions(report: Report) -> None:
    """A metric that the report defines is one of its suites': else it had it once."""
    measured = {name for suite in report.suites for name in suite.summary.metrics}
    if gone := report.definitions.keys() - measured:
        raise _Misfit(f"{_listed(gone)} is among its definitions, and no suite has it")


def _check_comparisons(report: Report, groups: Mapping[Group, Sequence[Record]]) -> None:
    """The values of models that are compared; not those that take long, such as p-values that are no closed form."""
    for found in report.comparisons:
        first, second = (
            {record.id: record.score for record in groups.get((found.suite, model), ())}
            for model in (found.first, found.second)
        )
        names = [name for name in found.differences if definition(name).kind != "corpus"]
        try:
            again = compare(first, second, names)
        except (ArithmeticError, ValueError):
            again = {}
        for name in names:
            where = f"suite {found.suite!r}, {found.second} against {found.first}: {name}"
            if name not in again:
                raise _Misfit(f"{where} is only in its summary")
            stored, one = found.differences[name], again[name]
            _check_fields(stored, one, ("n", "first", "second", "difference"), f"{where}: ")
            # That samples lie in clusters is known of the stored one, since the other was made without them.
            if stored.p_value is not None and replace(one, num_clusters=stored.num_clusters).is_of_flips:
                one = replace(one, p_value=mcnemar(one.num_lost or 0, one.num_gained or 0).p_two_sided)
                _check_fields(stored, one, ("num_gained", "num_lost", "p_value"), f"{where}: ")


def _check_averages(report: Report, suites: Sequence[SuiteReport], groups: Mapping[Group, Sequence[Record]]) -> None:
    """The means over suites, of the metrics that they are still taken of; not those that take long."""
    if not report.averages:
        return
    quick = []
    for suite in suites:
        metrics = {name: one for name, one in suite.summary.metrics.items() if definition(name).kind != "corpus"}
        quick.append(replace(suite, summary=replace(suite.summary, metrics=metrics)))
    again = {one.model: one for one in average_suites(quick, [record for own in groups.values() for record in own])}
    for found in report.averages:
        if (other := again.get(found.model)) is None:
            continue
        for kind, stored, own in (("macro", found.macro, other.macro), ("micro", found.micro, other.micro)):
            for name in stored.keys() & own.keys():
                _check_metric(stored[name], own[name], f"{kind} average over suites: {name}")


def _check_metric(stored: Metric, found: Metric, where: str) -> None:
    _check_fields(stored, found, ("n",), f"{where}: ")
    if not _same(stored.value, found.value):
        _differ(where, stored.value, found.value)


def _check_fields(stored: object, found: object, names: Iterable[str], before: str = "", after: str = "") -> None:
    """Raise ``_Misfit`` for the first of these numbers that differs; ``before`` and ``after`` stand around its name."""
    for name in names:
        value, other = getattr(stored, name), getattr(found, name)
        if not _same(value, other):
            _differ(f"{before}{name}{after}", value, other)


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _differ(what: str, value: float | None, found: float | None) -> NoReturn:
    shown = ["none" if number is None else f"{number:.10g}" for number in (value, found)]
    raise _Misfit(f"{what} is {shown[0]}, and its records give {shown[1]}")


def _listed(names: Iterable[str | None]) -> str:
    shown = sorted(str(name) for name in names)
    return ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "") or "none"
