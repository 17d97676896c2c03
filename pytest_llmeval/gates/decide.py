"""Decides all gates of a session on its report, or again on a saved report."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmeval.gates.options import GateOptions, Selection
from pytest_llmeval.gates.thresholds import decide_thresholds
from pytest_llmeval.reporting.report.report import GateResult, Report
from pytest_llmeval.reporting.report.served_models import served_notes
from pytest_llmeval.reporting.report.verify import verify_report
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.suites.format.gates_spec import GateRule, GateRuleError, GivenGate
from pytest_llmeval.text.redaction import describe

if TYPE_CHECKING:
    from pytest_llmeval.gates.earlier_reports import EarlierReports

__all__ = [
    "decide",
    "decide_saved",
    "read_verified",
]


_LOG = logging.getLogger("pytest_llmeval")
_BASELINE = GateResult(name="baseline", kind="baseline", origin="option", outcome="failed", reason="")
_THRESHOLDS = GateResult(name="gates", kind="threshold", origin="option", outcome="failed", reason="")


def decide(
    report: Report,
    options: GateOptions,
    *,
    earlier: EarlierReports | None,
    selection: Selection,
) -> tuple[GateResult, ...]:
    """Return the results of all gates: thresholds, then comparisons with ``earlier`` reports, if there are some.

    A gate that cannot be decided because of a defect of ours fails, as does every gate that is not known to hold.
    """
    results: list[GateResult] = []
    try:
        results += decide_thresholds(report, options, selection)
    except Exception as error:
        results.append(_broken(_THRESHOLDS, error))
    is_for_this = selection.has_model or options.origin == "option"  # one of the ini file is for sessions with a model
    if options.comparison is not None and earlier is not None and is_for_this:
        results += _compared(report, options, earlier, selection)
    elif options.is_first:
        reason = "there is no baseline yet: --llm-update-baseline writes the first one"
        results.append(replace(_BASELINE, origin=options.origin, outcome=options.undecided, reason=reason))
    baseline = None if earlier is None else earlier.newest
    results = [_with_served(result, report, baseline) for result in results]
    if not results and options.require:
        reason = "there was no gate to decide, and --llm-require-gates requires one"
        results.append(replace(_THRESHOLDS, name="required", reason=reason))
    return tuple(results)


def _compared(
    report: Report, options: GateOptions, earlier: EarlierReports, selection: Selection
) -> Iterable[GateResult]:
    from pytest_llmeval.gates.baseline import compare_reports

    own = replace(_BASELINE, origin=options.origin)
    if selection.is_by_outcome:
        reason = "these samples were selected because they were wrong: any other answer would be an improvement"
        return [replace(own, outcome=options.undecided, reason=reason)]
    try:
        return compare_reports(earlier, report, options, selection)
    except Exception as error:
        return [_broken(own, error)]


def _with_served(result: GateResult, report: Report, baseline: Report | None) -> GateResult:
    """Return the result with notes on changes of the models that servers name as the authors of the suite's replies."""
    before = baseline if result.kind == "baseline" else None
    notes = dict.fromkeys(
        note
        for suite in report.suites
        if suite.info.name == result.suite and (result.model is None or result.model in suite.models)
        for note in served_notes(suite, report, before)
    )
    return replace(result, notes=(*result.notes, *notes)) if notes else result


def _broken(result: GateResult, error: Exception) -> GateResult:
    """Return the result with the error as its reason, and log the traceback: it may be a defect of ours."""
    reason = f"could not be decided: {describe(error)}"
    _LOG.error("%s %s", result.name, reason, exc_info=error)
    return replace(result, reason=reason)


def read_verified(path: Path, gates: Sequence[GivenGate] | None = None) -> Report:
    """Read a report with the numbers that gates use computed from its records.

    ``gates`` will be decided on it: None for no thresholds, an empty sequence for those of its own suites. Raise
    ``ReportError``, also for a report that was changed after it was written.
    """
    report = read_report(path)
    rules = [gate.rule for gate in gates or ()]
    if gates is not None and not gates:
        for text in (text for suite in report.suites for text in suite.info.gates):
            with suppress(GateRuleError):
                rules.append(GateRule.parse(text))
    names = {name for suite in report.suites for name in suite.summary.metrics}
    bounds_of = [name for name in names if any(rule.subject.endswith(name) for rule in rules)]
    return verify_report(report, f"the report {path}", bounds_of=bounds_of)


def decide_saved(report: Report, options: GateOptions, earlier: EarlierReports | None = None) -> tuple[GateResult, ...]:
    """Return the results of the given gates, or of the suites' own gates if there are none and nothing to compare with.

    A suite of the baseline that the report lacks is missing, unless the report says that it covers a selection.
    """
    if options.given or earlier is not None:
        report = replace(
            report, suites=tuple(replace(suite, info=replace(suite.info, gates={})) for suite in report.suites)
        )
    return decide(report, options, earlier=earlier, selection=Selection.of(report))
