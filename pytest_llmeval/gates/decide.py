"""All gates of a session, decided on its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_llmeval.gates.thresholds import decide_thresholds
from pytest_llmeval.reporting.report.gate_results import GateResult
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.suites.format.gate_rules import GivenGate
from pytest_llmeval.text.redaction import describe

if TYPE_CHECKING:
    from pytest_llmeval.gates.baseline.compare import BaselineSettings

__all__ = ["GateOptions", "Selection", "decide"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What was asked for. ``given`` are gates from outside of suites, with where they come from.

    ``origin`` says where the baseline comes from. ``allow_unscored`` is how many samples of the session may be
    unscored; ``require`` has undecided gates fail.
    """

    given: tuple[tuple[GivenGate, Literal["ini", "option"]], ...] = ()
    comparison: BaselineSettings | None = None
    origin: Literal["ini", "option"] = "option"
    allow_unscored: int = 0
    require: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of everything that there is the session was to run.

    ``covers`` says of a suite of the baseline whether it stands where the session looked for suites; ``is_partial``,
    whether tests were left out there (``-k``, ``-m``, …), ``is_by_outcome``, whether they were chosen by how they came
    out the last time (``--lf``). ``is_whole``: it looked at the whole project, and nothing was left out. ``absent`` are
    suites that were collected and have no sample that was to run. ``has_model`` is False where nobody was there to
    answer the suites.
    """

    covers: Callable[[SuiteInfo], bool]
    is_partial: bool = False
    is_by_outcome: bool = False
    is_whole: bool = False
    absent: Sequence[SuiteInfo] = ()
    has_model: bool = True


def decide(
    report: Report, options: GateOptions, *, baseline: Report | None, selection: Selection
) -> tuple[GateResult, ...]:
    """The results of all gates: thresholds, then comparisons with the baseline.

    A gate that cannot be decided for a defect of ours fails, as does everything else that is not known to hold.
    """
    results: list[GateResult] = []
    try:
        results += decide_thresholds(
            report,
            options.given,
            allow_unscored=options.allow_unscored,
            require=options.require,
            absent=selection.absent,
            is_selection=selection.is_partial,
            has_model=selection.has_model,
            is_whole=selection.is_whole,
        )
    except Exception as error:
        results.append(_broken("gates", "threshold", "option", error))
    is_for_this = selection.has_model or options.origin == "option"  # one of the ini file is for whoever has a model
    if options.comparison is not None and baseline is not None and is_for_this:
        results += _compared(report, options, options.comparison, baseline, selection)
    if not results and options.require:
        reason = "there was no gate to decide, and --llm-require-gates requires one"
        results.append(GateResult(name="required", kind="threshold", origin="option", outcome="failed", reason=reason))
    return tuple(results)


def _compared(
    report: Report, options: GateOptions, comparison: BaselineSettings, baseline: Report, selection: Selection
) -> Sequence[GateResult]:
    from pytest_llmeval.gates.baseline.compare import compare_reports

    if selection.is_by_outcome:
        reason = "these samples were selected because they were wrong: any other answer would be an improvement"
        return [
            GateResult(
                name="baseline",
                kind="baseline",
                origin=options.origin,
                outcome="failed" if options.require else "skipped",
                reason=reason,
            )
        ]
    try:
        return compare_reports(
            baseline,
            report,
            comparison,
            covers=selection.covers,
            is_selection=selection.is_partial,
            allow_unscored=options.allow_unscored,
            require=options.require,
            origin=options.origin,
        )
    except Exception as error:
        return [_broken("baseline", "baseline", options.origin, error)]


def _broken(
    name: str, kind: Literal["threshold", "baseline"], origin: Literal["ini", "option"], error: Exception
) -> GateResult:
    reason = f"could not be decided: {describe(error)}"
    return GateResult(name=name, kind=kind, origin=origin, outcome="failed", reason=reason)
