"""The results of gates on saved reports as they are printed, and the exit code that follows."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmeval.commands.output import say, say_raw, write_file
from pytest_llmeval.text.escaping import printable

if TYPE_CHECKING:
    from pytest_llmeval.reporting.report.report import GateResult, Report

__all__ = ["conclude"]


def conclude(report: Report, results: Sequence[GateResult], options: argparse.Namespace, *, nothing: str) -> int:
    """Write the results; in GitHub Actions also the job summary and annotations. Returns the exit code.

    1 where a gate failed, where the report is not that of a whole run (it has problems, or its run stopped early: what
    is missing, no gate knows), and where no gate was decided, which ``nothing`` explains in one line.
    """
    decided = any(result.outcome != "skipped" for result in results)
    failed = any(result.outcome == "failed" for result in results)
    exit_code = 1 if failed or not decided or any(_problems(report)) else 0
    report = replace(report, gates=tuple(sorted(results, key=_is_about_a_number)), exit_code=exit_code)
    lines = (f"{line}\n" for line in _lines(report, options.format))
    write_file(lines, options.output, is_json=options.format == "json")
    _tell_github(report, options.command)
    if not decided:
        say(options.command, nothing)
    return exit_code


def _problems(report: Report) -> Iterator[str]:
    """Why the report passes no gate, whatever its numbers are."""
    yield from report.problems
    if report.stopped is not None:
        yield f"the run stopped early: {report.stopped}"


def _is_about_a_number(result: GateResult) -> bool:
    """Not so what is wrong with the call, such as a margin of a metric that no suite has: these come first."""
    return result.outcome != "failed" or result.metric is not None


def _lines(report: Report, form: str) -> Iterator[str]:
    if form == "json":
        from pytest_llmeval.reporting.storage.json_form import finite

        found = {
            "exit_code": report.exit_code,
            "problems": list(_problems(report)),
            "gates": report.gates,
        }
        yield json.dumps(finite(found), indent=1)
    elif form == "markdown":
        from pytest_llmeval.reporting.writers.github import MAX_CHARACTERS
        from pytest_llmeval.reporting.writers.markdown.report import markdown_summary

        yield markdown_summary(report, limit=MAX_CHARACTERS).rstrip("\n")
    else:
        from pytest_llmeval.reporting.tables.suites import short_model_names
        from pytest_llmeval.reporting.writers.text_layout import screen_width, wrapped_lines
        from pytest_llmeval.reporting.writers.text_report import gate_flip_lines, gate_lines

        width = screen_width()
        names = short_model_names(report)
        if flipped := [*gate_flip_lines(report.gates, names, width=width)]:
            yield from (*flipped[1:], "")
        yield from gate_lines(report.gates, names, width=width)
        problems = list(_problems(report))
        for problem in problems:
            yield from wrapped_lines(f"problem: {printable(problem)}", width=width)
        if problems:
            yield "a report with problems does not pass, whatever its gates say"


def _tell_github(report: Report, command: str) -> None:
    from pytest_llmeval.reporting.writers.github import annotation_lines, append_job_summary

    if problem := append_job_summary(report, os.environ):
        say(command, problem)
    for line in annotation_lines(report, os.environ, root=Path.cwd()):
        say_raw(line)  # the runner reads both streams; standard output holds the results, which can be JSON
