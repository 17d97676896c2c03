"""``llmeval compare``: a report against a baseline, with the tests and exit codes of the gate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.commands.gate import add_baseline_options, add_output_options, conclude, gate_options
from pytest_llmeval.commands.output import check_no_input, say
from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.gates.saved import decide_saved, read_verified

if TYPE_CHECKING:
    from pytest_llmeval.reporting.report.report import Report

__all__ = ["add_parser", "run"]

_MAX_SHOWN = 60
"""Characters of the suites' names in a message."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare a report with a baseline, as the gate does",
        description="Compare every suite of a report with the same suite of a baseline, sample by sample, as "
        "pytest --llm-baseline does.",
        epilog="Exit codes: 0 if no gate failed; 1 if a gate failed, if the two cannot be compared, or if the report "
        "has problems; 2 for a usage error.",
    )
    parser.add_argument("baseline", type=Path, help="the earlier report (.json)")
    parser.add_argument("report", type=Path, help="the report that is judged (.json)")
    add_baseline_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    check_no_input(options.output, [options.baseline, options.report])
    with without_collection():
        baseline, report = read_verified(options.baseline), read_verified(options.report)
        _tell_what_is_odd(options, baseline, report)
        results = decide_saved(report, gate_options(options, compares=True), baseline)
    return conclude(report, results, options, nothing="no suite was compared: the two reports have none in common")


def _tell_what_is_odd(options: argparse.Namespace, baseline: Report, report: Report) -> None:
    """Say if there is a slip in the call that the results alone would not show."""
    if options.baseline.resolve() == options.report.resolve():
        say("compare", f"{options.report} is compared with itself: nothing in it can have changed")
    before, now = ({suite.info.name: None for suite in one.suites} for one in (baseline, report))
    if before and now and not before.keys() & now.keys():
        texts = (", ".join(names) for names in (before, now))
        first, second = (text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…" for text in texts)
        say("compare", f"{options.baseline} ({first}) and {options.report} ({second}) have no suite in common")
