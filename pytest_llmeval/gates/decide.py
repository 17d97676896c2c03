"""All gates of a session, decided on its report."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from pytest_llmeval.gates.options import GateOptions, Selection
from pytest_llmeval.gates.thresholds import decide_thresholds
from pytest_llmeval.reporting.report.replies import served_notes
from pytest_llmeval.reporting.report.report import GateResult, Report
from pytest_llmeval.text.redaction import describe

__all__ = ["decide"]

_LOG = logging.getLogger("pytest_llmeval")
_BASELINE = GateResult(name="baseline", kind="baseline", origin="option", outcome="failed", reason="")
_THRESHOLDS = GateResult(name="gates", kind="threshold", origin="option", outcome="failed", reason="")


def decide(
    report: Report, options: GateOptions, *, baseline: Report | None, selection: Selection
) -> tuple[GateResult, ...]:
    """Return the results of all gates: thresholds, then comparisons with the baseline.

    A gate that cannot be decided for a defect of ours fails, as does everything else that is not known to hold.
    """
    results: list[GateResult] = []
    try:
        results += decide_thresholds(report, options, selection)
    except Exception as error:
        results.append(_broken(_THRESHOLDS, error))
    is_for_this = selection.has_model or options.origin == "option"  # one of the ini file is for sessions with a model
    if options.comparison is not None and baseline is not None and is_for_this:
        results += _compared(report, options, baseline, selection)
    results = [_with_served(result, report, baseline) for result in results]
    if not results and options.require:
        reason = "there was no gate to decide, and --llm-require-gates requires one"
        results.append(replace(_THRESHOLDS, name="required", reason=reason))
    return tuple(results)


def _compared(report: Report, options: GateOptions, baseline: Report, selection: Selection) -> Iterable[GateResult]:
    from pytest_llmeval.gates.baseline.compare import compare_reports

    own = replace(_BASELINE, origin=options.origin)
    if selection.is_by_outcome:
        reason = "these samples were selected because they were wrong: any other answer would be an improvement"
        return [replace(own, outcome=options.undecided, reason=reason)]
    try:
        return compare_reports(baseline, report, options, selection)
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
