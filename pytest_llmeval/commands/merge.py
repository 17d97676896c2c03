"""``llmeval merge``: the report of a whole run from those of its shards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import check_no_input, counted, say
from pytest_llmeval.errors import ReportError

__all__ = ["add_parsers"]


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "merge",
        help="merge the reports of a run's shards",
        description="Merge the reports of a run that was made in parts (pytest --llm-shard 1/5, 2/5, …), on one "
        "machine or several, into one report. Suites, models and metrics have to be the same, and no sample may be in "
        "two of them. Every number is computed from the samples again. Afterwards, decide gates: llmeval gate.",
        epilog="Exit codes: 0; 1 if the parts do not make up a whole run, or, without --partial, if one of them has "
        "problems; 2 for a usage error.",
    )
    parser.add_argument("reports", type=Path, nargs="+", metavar="report", help="the parts' reports (.json)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the merged report (.json)")
    parser.add_argument(
        "--partial",
        action="store_true",
        help="merge even if shards are missing, did not end well or lack a suite; the merged report says so",
    )
    parser.set_defaults(run=_merge)


def _merge(options: argparse.Namespace) -> int:
    from pytest_llmeval.reporting.report.merge import merge_reports
    from pytest_llmeval.reporting.storage.atomic_write import check_writable
    from pytest_llmeval.reporting.storage.report_file import read_report, write_report

    if options.output.suffix.lower() != ".json":
        raise ReportError(f"cannot write the report {options.output}: expected a file name that ends in .json")
    check_no_input(options.output, options.reports)
    check_writable(options.output)
    parts: dict[Path, str] = {}
    for path in options.reports:
        if other := parts.get(path.resolve()):
            raise ReportError(f"{path} was given twice (as {other}): a part counts once")
        parts[path.resolve()] = str(path)
    reports = [(str(path), read_report(path)) for path in options.reports]
    merged = merge_reports(reports, partial=options.partial)
    write_report(merged, options.output)
    for problem in merged.problems:
        say("merge", f"problem: {problem}")
    suites = counted(len(merged.suite_names), "suite")
    samples = counted(len(merged.records), "sample")
    say("merge", f"{counted(len(parts), 'report')}, {suites} and {samples}: {options.output}")
    if any(report.gates or (report.exit_code, merged.exit_code) == (1, 0) for _, report in reports):
        subject = "is about problems and unscored samples, not about the parts' gates: decide those"
        if not merged.exit_code:
            subject = "means no problem and no unscored sample; the parts' gates are not in it: decide them"
        say("merge", f"its exit code {merged.exit_code} {subject} on the whole with llmeval gate {options.output}")
    return 1 if merged.problems and not options.partial else 0
