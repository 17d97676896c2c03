"""Gates decided on a saved report, by the same code as in a session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import GateOptions
    from pytest_llmeval.reporting.report.report import GateResult, Report
    from pytest_llmeval.suites.format.gates_spec import GivenGate

__all__ = ["decide_saved", "read_verified"]


def read_verified(path: Path, gates: Sequence[GivenGate] | None = None) -> Report:
    """Read a report with the numbers that gates use computed from its records.

    ``gates`` are what will be decided on it: None for no threshold, none of them for those of its own suites. Raises
    ``ReportError``, also for a report that is not as it was written.
    """
    from pytest_llmeval.reporting.report.verify import verify_report
    from pytest_llmeval.reporting.storage.report_file import read_report
    from pytest_llmeval.suites.format.gates_spec import GateRule, GateRuleError

    report = read_report(path)
    rules = [gate.rule for gate in gates or ()]
    if gates is not None and not gates:
        for text in (text for suite in report.suites for text in suite.info.gates):
            with suppress(GateRuleError):
                rules.append(GateRule.parse(text))
    names = {name for suite in report.suites for name in suite.summary.metrics}
    bounds_of = [name for name in names if any(rule.subject.endswith(name) for rule in rules)]
    return verify_report(report, f"the report {path}", bounds_of=bounds_of)


def decide_saved(report: Report, options: GateOptions, baseline: Report | None = None) -> tuple[GateResult, ...]:
    """Return the results of the gates that are given; where there are none and no baseline, of those of the report's
    suites.

    A suite that the baseline has and the report has not is missing, unless the report says of itself that it is of a
    selection.
    """
    from pytest_llmeval.data.garbage import without_collection
    from pytest_llmeval.gates.decide import decide
    from pytest_llmeval.gates.options import Selection

    if options.given or baseline is not None:
        report = replace(
            report, suites=tuple(replace(suite, info=replace(suite.info, gates={})) for suite in report.suites)
        )
    selection = Selection.of(report)
    with without_collection():
        return decide(report, options, baseline=baseline, selection=selection)
