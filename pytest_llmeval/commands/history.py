"""``llmeval history``: several reports of the same suites over time, and which steps between them are significant."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.commands.output import check_no_input, write_file
from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.errors import LLMEvalError

if TYPE_CHECKING:
    from pytest_llmeval.reporting.report.history import History
    from pytest_llmeval.reporting.report.report import Report

__all__ = ["add_parsers"]


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "history",
        help="show suites over time, and which steps are significant",
        description="Show several reports in the order of time: a line for each run, and a chart for each suite and "
        "metric. Each run is compared with the one before, sample by sample, if the questions are the same; steps that "
        "are significant (Holm over all) are marked, with their commits.",
        epilog="Exit codes: 0, whatever the steps are; 1 if the reports have no suite in common, or if one of them was "
        "edited or cannot be read; 2 for a usage error.",
    )
    parser.add_argument(
        "reports", nargs="+", metavar="report", help="reports (.json), in any order; a pattern such as 'runs/*.json'"
    )
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        help="only this suite with all its variants, or one variant; can be repeated",
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        help="only this metric, also one that the summary does not show, or cost, seconds, num_tokens or "
        "num_prompt_tokens; can be repeated",
    )
    parser.add_argument("--format", choices=tuple(_WRITERS), default="text", help="default: text")
    parser.add_argument("-o", "--output", type=Path, help="a file; without it, standard output")
    parser.set_defaults(run=_history)


def _history(options: argparse.Namespace) -> int:
    from pytest_llmeval.gates.history import history_of

    paths = _paths(options.reports)
    check_no_input(options.output, paths)
    with without_collection():
        reports = [(str(path), _read(path)) for path in paths]
        history = history_of(reports, suites=options.suite, metrics=options.metric)
    write_file((f"{line}\n" for line in _WRITERS[options.format](history)), options.output)
    return 0


def _paths(given: Sequence[str]) -> list[Path]:
    """Return the files that are named, and those that fit a pattern which no shell has replaced.

    Raise ``LLMEvalError`` for a pattern without files, and for a file that is named twice or copied.
    """
    from pytest_llmeval.gates.earlier_reports import check_copies, report_paths

    found: dict[Path, Path] = {}
    for text in given:
        for path in report_paths(Path(text)):
            if other := found.get(path.resolve()):
                raise LLMEvalError(f"{path} was given twice (as {other})")
            found[path.resolve()] = path
    paths = list(found.values())
    check_copies(paths)
    return paths


def _read(path: Path) -> Report:
    """Read a report. Raise ``LLMEvalError`` if it was edited: its numbers are not those that were measured."""
    from pytest_llmeval.reporting.report.verify import report_problem
    from pytest_llmeval.reporting.storage.report_file import read_report

    report = read_report(path)
    if problem := report_problem(report, f"the report {path}"):
        raise LLMEvalError(problem)
    return report


def _text(history: History) -> Iterator[str]:
    from pytest_llmeval.reporting.writers.history import history_text
    from pytest_llmeval.reporting.writers.text_layout import screen_width

    return history_text(history, width=screen_width())


def _markdown(history: History) -> Iterator[str]:
    from pytest_llmeval.reporting.writers.history import history_markdown

    return history_markdown(history)


def _html(history: History) -> Iterator[str]:
    from pytest_llmeval.reporting.writers.html.history import history_page

    yield history_page(history)


def _csv(history: History) -> Iterator[str]:
    from pytest_llmeval.reporting.writers.history import history_csv

    return history_csv(history)


_WRITERS: dict[str, Callable[[History], Iterator[str]]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "csv": _csv,
}
