"""``llmeval gate``: gates on a saved report, nothing rerun."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.gate_options import (
    add_baseline_options,
    add_gate_option,
    add_output_options,
    gate_options,
    parsed_by,
    used_baseline_options,
)
from pytest_llmeval.commands.gate_output import conclude
from pytest_llmeval.commands.output import check_no_input
from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.gates.saved import decide_saved, read_verified

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "gate",
        help="decide gates on a saved report",
        description="Decide gates on a saved report: those of --gate and --baseline; without either, those of its "
        "own suites again. Nothing is run.",
        epilog="Exit codes: 0 if no gate failed; 1 if a gate failed, if none was decided, or if the report has "
        "problems; 2 for a usage error.",
    )
    parser.add_argument("report", type=Path, help="a report (.json)")
    add_gate_option(
        parser,
        "--gate",
        action="append",
        type=parsed_by("suites.format.gate_rules:GivenGate.parse"),
        metavar="'SUITE: RULE'",
        help="a gate: 'boolq: accuracy >= 0.6', or 'ci_low(accuracy) > 0.5' for every suite with the metric; "
        "can be repeated",
    )
    add_gate_option(parser, "--baseline", type=Path, help="an earlier report (.json) to compare with")
    add_baseline_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run, wrong_call=parser.error)


def run(options: argparse.Namespace) -> int:
    if options.baseline is None and (used := used_baseline_options(options)):
        options.wrong_call(f"{used[0]} applies to a comparison only: name the other report with --baseline")
    inputs = [options.report, *([] if options.baseline is None else [options.baseline])]
    check_no_input(options.output, inputs)
    with without_collection():
        report = read_verified(options.report, options.gate or (() if options.baseline is None else None))
        baseline = None if options.baseline is None else read_verified(options.baseline)
        results = decide_saved(report, gate_options(options, compares=baseline is not None), baseline)
    nothing = (
        "no gate was decided: the suites have no gates of their own that the report can decide, and gates of the "
        "command line or the ini file are not saved in a report; give them as --gate 'boolq: accuracy >= 0.6'"
    )
    return conclude(report, results, options, nothing=nothing)
