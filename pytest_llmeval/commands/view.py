"""``llmeval view``: a report as a page in the browser."""

from __future__ import annotations

import argparse
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import check_no_input, say, say_raw
from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.text.escaping import printable, without_commands

__all__ = ["add_parsers"]

_HEAD_BYTES = 4096
_PAGE_SUFFIXES = (".html", ".htm")


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "view",
        help="look at a report in the browser: numbers, figures, and every sample",
        description="Write a report as one HTML file and open it in the browser. The file needs nothing else, also no "
        "network: it can be mailed, or kept by CI. Missing folders are created.",
    )
    parser.add_argument("report", type=Path, help="a report (.json), a journal, or a page that was written before")
    parser.add_argument(
        "-o", "--output", type=Path, help="the file to write; without it, beside the report, with the suffix .html"
    )
    parser.add_argument("--no-open", action="store_true", help="write the file, and open no browser")
    parser.set_defaults(run=_view)


def _view(options: argparse.Namespace) -> int:
    page: Path = options.report
    if _is_page(page):
        if options.output is not None:
            raise LLMEvalError(f"{page} is a page already: open it, or name the report that it was made from")
        if not _is_whole(page):
            raise LLMEvalError(f"cannot view {page}: the file ends before the page does: it was cut off; copy it again")
    else:
        if options.report.suffix.lower() in _PAGE_SUFFIXES and options.report.is_file():
            raise LLMEvalError(f"cannot view {options.report}: it is not the page of a report; name a report (.json)")
        page = options.output or _beside(options.report)
        check_no_input(page, [options.report])
        if page.suffix.lower() not in _PAGE_SUFFIXES:
            raise LLMEvalError(f"--output {page}: expected a name that ends in .html")
        if options.output is None and page.exists() and not _is_page(page):
            raise LLMEvalError(f"{page} exists, and is not the page of a report: name another file with --output")
        from pytest_llmeval.reporting.report.verify import report_problem
        from pytest_llmeval.reporting.storage.report_file import read_report
        from pytest_llmeval.reporting.writers.html.page import write_html

        report = read_report(options.report)
        if problem := report_problem(report, f"the report {options.report}"):
            say(options.command, problem)
            report = replace(report, problems=(*report.problems, problem))
        write_html(report, page)
    say_raw(without_commands(printable(str(page))))
    if not options.no_open and not webbrowser.open(page.absolute().as_uri()):
        say(options.command, "no browser could be started: open the file yourself")
    return 0


def _beside(report: Path) -> Path:
    """Return the path of the page beside a report or a journal; that of ``r.json.2.journal`` keeps the 2."""
    name = report.name.removesuffix(".journal")
    return report.with_name(f"{name.removesuffix('.json')}.html")


def _is_whole(page: Path) -> bool:
    with page.open("rb") as file:
        file.seek(max(0, page.stat().st_size - _HEAD_BYTES))
        return file.read().rstrip().endswith(b"</html>")


def _is_page(path: Path) -> bool:
    """Tell whether this is a file that ``write_html`` wrote."""
    from pytest_llmeval.reporting.writers.html.page import GENERATOR

    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return f'<meta name="generator" content="{GENERATOR}'.encode() in head
