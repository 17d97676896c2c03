"""Gates decided on a saved report, by the engine that a session has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmeval.gates.baseline import BaselineSettings
    from pytest_llmeval.reporting.gate_results import GateResult
    from pytest_llmeval.reporting.report import Report
    from pytest_llmeval.suites.gate_rules import GivenGate

__all__ = ["decide_saved"]


def decide_saved(
    report: Report,
    *,
    gates: Sequence[GivenGate] = (),
    baseline: Report | None = None,
    comparison: BaselineSettings | None = None,
    allow_unscored: int = 0,
    require: bool = False,
) -> tuple[GateResult, ...]:
    """The results of the gates that are given; where there are none and no baseline, of those of the report's suites.

    A suite that the baseline has and the report has not is missing, unless the report says of itself that it is of a
    selection.
    """
    from pytest_llmeval.gates.decide import GateOptions, Selection, decide

    if gates or baseline is not None:
        report = replace(
            report, suites=tuple(replace(suite, info=replace(suite.info, gates={})) for suite in report.suites)
        )
    options = GateOptions(
        given=tuple((gate, "option") for gate in gates),
        comparison=comparison,
        allow_unscored=allow_unscored,
        require=require,
    )
    selection = Selection(covers=lambda info: True, is_partial=_is_selection(report))
    return decide(report, options, baseline=baseline, selection=selection)


def _is_selection(report: Report) -> bool:
    """Whether its session is known to have left samples out."""
    if {"limit", "shard"} & report.options.keys():
        return True
    return any(
        suite.info.num_samples is not None and suite.summary.num_expected + suite.num_skipped < suite.info.num_samples
        for suite in report.suites
    )
