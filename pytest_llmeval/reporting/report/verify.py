"""Check that a report is as it was written, and compute the numbers that gates use from its records.

Reports have a digest since schema 3. It is no signature: who edits a report and writes the digest of the edited one is
not noticed, as long as records do not contradict each other. Gates use no number that is only written in a report, so
that such an editor has to change records. A report of an earlier schema has no digest: its numbers are compared with
those of its records, so that a report does not get through because its schema was lowered.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain, zip_longest

from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, records_without_texts
from pytest_llmeval.reporting.report.report import (
    SINCE_DIGEST,
    Group,
    Report,
    SuiteReport,
    compared_models,
    described_group,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.reporting.report.summaries import (
    given_clusters,
    limits_of,
    records_by_category,
    summary_of,
    with_sums,
)
from pytest_llmeval.scoring.metrics.averages import macro_average
from pytest_llmeval.scoring.metrics.calibration import reliability_of
from pytest_llmeval.scoring.metrics.corpus import corpus_formula
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.sample_values import Places, ScoreColumns, contradiction
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, places_by_category, summarize
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.text.wording import quoted

__all__ = ["report_problem", "verify_report"]

_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
"""Numbers that differ by less are the same: another processor and another order of summing give such differences."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_NOT_COMPARED = frozenset(("kind", "stderr", "ci_low", "ci_high", "skewness", "no_interval"))
"""Fields of a metric for which another version of this package or of numpy computes other values."""

_RIGHT_OR_WRONG = frozenset(
    ("choice", "continuation", "letter", "yes_no", "number", "exact", "contains", "pattern", "json", "math")
)
"""Scorers whose scores have no accuracy if accuracy is not among their metrics.

No new scorer joins them: only reports from before ``SINCE_DIGEST`` are judged by them.
"""


class _Misfit(Exception):
    """A contradiction between a report and its records, in a few words."""


def verify_report(report: Report, name: str, *, bounds_of: Collection[str] = ()) -> Report:
    """Return the report with the numbers that gates use computed from its records, which are held without their texts.

    Intervals of corpus metrics take long: they are computed for the metrics in ``bounds_of``, and for others they are
    those that the report has. Raises ``ReportError``, in one line that begins with ``name``, for a report that is not
    as it was written, for one that contradicts its records, and for a record that cannot be read.
    """
    try:
        if report.altered is not None:
            raise _Misfit(f"it was changed after it was written: {report.altered}")
        with without_collection():
            return _verified(report, frozenset(bounds_of))
    except _Misfit as error:
        raise ReportError(f"{name}: {error}; use the report file that the run wrote, unchanged") from None


def report_problem(report: Report, name: str) -> str | None:
    """Return the message of ``verify_report`` for a report that is shown as it is, or None.

    The records of a report whose digest is right are not read.
    """
    if report.schema >= SINCE_DIGEST and report.altered is None:
        return None
    try:
        verify_report(report, name)
    except ReportError as error:
        return str(error)
    return None


def _verified(report: Report, bounds_of: frozenset[str]) -> Report:
    compared = compared_models(report)
    groups = _groups(report, compared)
    unlike = {name for name, said in report.definitions.items() if said.get("version") != definition(name).version}
    suites = []
    for suite in report.suites:
        group = group_of_suite(suite, compared)
        try:
            _check_counts(suite, groups[group], report)
            computed = _computed(suite, groups[group], bounds_of)
            if report.schema < SINCE_DIGEST:
                _check_without_digest(suite, computed, groups[group], unlike)
        except _Misfit as error:
            raise _Misfit(f"its numbers and its records do not agree: {described_group(group)}: {error}") from None
        suites.append(computed)
    measured = {name for suite in report.suites for name in suite.summary.metrics}
    if report.schema < SINCE_DIGEST and (gone := sorted(report.definitions.keys() - measured)):
        raise _Misfit(f"its parts do not agree: {gone[0]} is among its definitions, and no suite has it")
    return replace(report, suites=tuple(suites), records=[record for own in groups.values() for record in own])


def _groups(report: Report, compared: tuple[str, ...]) -> dict[Group, list[Record]]:
    """Return the records of each suite in their order. Raises ``_Misfit`` for parts that contradict each other."""
    groups: dict[Group, list[Record]] = {}
    for suite in report.suites:
        group = group_of_suite(suite, compared)
        if group in groups:
            raise _Misfit(f"its parts do not agree: {described_group(group)} is in it twice")
        groups[group] = []
    seen: dict[Group, set[str]] = {group: set() for group in groups}
    for record in records_without_texts(report.records):
        group = group_of_record(record, compared)
        problem = None
        if group not in groups:
            problem = f"is of {described_group(group)}, which has no summary in it"
        elif record.id in seen[group]:
            problem = f"of {described_group(group)} is in it twice"
        elif (found := contradiction(record.status, record.values)) is not None:
            problem = f"of suite {record.suite!r} has {found}"
        if problem is not None:
            raise _Misfit(f"its parts do not agree: sample {quoted(record.id)} {problem}")
        seen[group].add(record.id)
        groups[group].append(record)
    return groups


def _check_counts(suite: SuiteReport, records: Sequence[Record], report: Report) -> None:
    """Raise ``_Misfit`` if there are fewer or more records than there were samples to run."""
    num_expected, num_samples = suite.summary.num_expected, suite.info.num_samples
    is_short = report.stopped is None and len(records) < num_expected
    if is_short or len(records) > suite.num_selected:
        raise _Misfit(_differ("num_expected", num_expected, len(records)))
    if num_samples is not None and not report.problems and suite.num_selected > num_samples:
        raise _Misfit(_differ("num_samples", num_samples, suite.num_selected))


def _computed(suite: SuiteReport, records: Sequence[Record], bounds_of: frozenset[str]) -> SuiteReport:
    """Return the suite with its counts, sums and metrics computed from its records."""
    models = dict.fromkeys((*suite.models, *(record.model for record in records if record.model is not None)))
    summary = summary_of(records, suite.summary.metrics, suite.summary.num_expected)
    found = with_sums(replace(suite, summary=summary, models=tuple(models)), records)
    if not summary.metrics:  # none could be computed, and then parts of the suite have none either
        by_name = records_by_category(records)
        own = {name: by_name.get(name, ()) for name in suite.categories}
        parts = {name: summary_of(members, {}, len(members)) for name, members in own.items()}
        return replace(found, categories=parts, macro={})
    try:
        return _measured(found, records, bounds_of)
    except (ArithmeticError, ValueError) as error:
        raise _Misfit(f"no metrics can be computed from its records: {describe(error)}") from None


def _measured(suite: SuiteReport, records: Sequence[Record], bounds_of: frozenset[str]) -> SuiteReport:
    stored, info = suite.summary.metrics, suite.info
    clusters, categories = given_clusters(records), [record.category for record in records]
    columns = ScoreColumns(records)
    slow = [
        name
        for name in stored
        if definition(name).kind == "corpus" and name not in bounds_of and columns.has_ingredients(name)
    ]
    quick = [name for name in stored if name not in slow]
    limits = limits_of(info, quick)
    whole = summarize(columns, quick, clusters, info.interval, limits)
    whole |= {name: _with_bounds(_corpus(columns, name), stored.get(name)) for name in slow}
    parts = by_category(columns, categories, quick, clusters, info.interval, limits)
    for category, places in places_by_category(records, categories).items() if slow else ():
        old = suite.categories.get(category)
        bounds = {} if old is None else old.metrics
        parts[category] |= {name: _with_bounds(_corpus(columns, name, places), bounds.get(name)) for name in slow}
    macro = macro_average(parts.values(), limits)
    by_name = records_by_category(records)
    reliability = suite.reliability
    if reliability is not None:
        needed = columns.needed("ece")
        reliability = reliability_of(needed["confidence"], needed["accuracy"]) or ()
    return replace(
        suite,
        summary=replace(suite.summary, metrics={name: whole[name] for name in stored}),
        categories={name: summary_of(by_name[name], parts[name], len(by_name[name])) for name in parts},
        macro={name: _with_bounds(one, suite.macro.get(name)) if name in slow else one for name, one in macro.items()},
        reliability=reliability,
    )


def _corpus(columns: ScoreColumns, name: str, places: Places | None = None) -> Metric:
    """Compute a corpus metric without its interval, which takes long."""
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
    is_number = value is not None and math.isfinite(value)
    return Metric(value=value if is_number else None, n=n, kind="corpus", no_interval=formula.no_interval)


def _with_bounds(found: Metric, stored: Metric | None) -> Metric:
    """Return a computed metric with the interval of the stored one, unless its formula has none."""
    if stored is None:
        return found
    kept = replace(stored, value=found.value, n=found.n)
    if found.no_interval is None:
        return kept
    return replace(kept, stderr=None, ci_low=None, ci_high=None, no_interval=found.no_interval)


def _check_without_digest(
    suite: SuiteReport, computed: SuiteReport, records: Sequence[Record], unlike: Collection[str]
) -> None:
    """Raise ``_Misfit`` for the first number of a suite that its records do not give."""
    names = suite.summary.metrics
    lacks_accuracy = names and "accuracy" not in names and suite.info.scorer in _RIGHT_OR_WRONG
    if lacks_accuracy and any("accuracy" in record.values for record in records if record.status != "unscored"):
        raise _Misfit("it has no accuracy, and its records have one")
    if (difference := next(_differences(suite, computed, unlike), None)) is not None:
        raise _Misfit(difference)
    _check_fingerprint(suite, records)


def _differences(stored: object, found: object, unlike: Collection[str], place: str = "") -> Iterator[str]:
    """Yield a text for each value that differs, by its keys in the report; metrics in ``unlike`` may differ."""
    if stored is found:
        return
    if is_dataclass(found) and type(stored) is type(found):
        for name in (field.name for field in fields(found) if field.name not in _NOT_COMPARED):
            inner = place if name == "summary" else f"{place}{name}."  # counts stand beside the suite's other keys
            yield from _differences(getattr(stored, name), getattr(found, name), unlike, inner)
    elif isinstance(stored, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*stored, *found)):
            if key not in stored or key not in found:
                yield f"{place}{key} is only in its {'records' if key in found else 'summary'}"
            elif not (key in unlike and isinstance(found[key], Metric)):
                yield from _differences(stored[key], found[key], unlike, f"{place}{key}.")
    elif isinstance(stored, tuple) and isinstance(found, tuple):
        for number, (one, other) in enumerate(zip_longest(stored, found)):
            yield from _differences(one, other, unlike, f"{place.removesuffix('.')}[{number}].")
    elif not _is_same(stored, found):
        yield _differ(place.removesuffix("."), stored, found)


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return one == other


def _differ(place: str, stored: object, found: object) -> str:
    return f"{place} is {_shown(stored)}, and its records give {_shown(found)}"


def _shown(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:.10g}"
    return "none" if value is None else quoted(value) if isinstance(value, str) else "something else"


def _check_fingerprint(suite: SuiteReport, records: Sequence[Record]) -> None:
    """Raise ``_Misfit`` if the samples are known not to be the suite's.

    A suite's fingerprint hashes those of its samples (``Evaluation.fingerprints``). Nothing is known if some samples
    are missing, or if the process of a sample died before it told the sample's fingerprint.
    """
    info = suite.info
    if info.fingerprint is None or _SHA256.fullmatch(info.fingerprint) is None or len(records) != info.num_samples:
        return
    parts = [(record.id, record.fingerprint, record.category or "") for record in records]
    if any(fingerprint is None for _, fingerprint, _ in parts):
        return
    if hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest() != info.fingerprint:
        raise _Misfit("its fingerprint does not match its samples")
