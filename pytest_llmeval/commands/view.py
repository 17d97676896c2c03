"""``llmeval view``: a report as a page in the browser."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import check_no_input, say, say_raw
from pytest_llmeval.errors import LLMEvalError

__all__ = ["add_parser", "run"]

_HEAD_BYTES = 4096


def add_parser(commands: Any) -> None:
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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    page: Path = options.report
    if _is_page(page):
        if options.output is not None:
            raise LLMEvalError(f"{page} is a page already: open it, or name the report that it was made from")
    else:
        page = options.output or _beside(options.report)
        check_no_input(page, [options.report])
        if options.output is None and page.exists() and not _is_page(page):
            raise LLMEvalError(f"{page} exists, and is no page of a report: name another file with --output")
        from pytest_llmeval.reporting.storage.read import read_report
        from pytest_llmeval.reporting.writers.html.page import write_html

        write_html(read_report(options.report), page)
    say_raw(str(page))
    if not options.no_open and not webbrowser.open(page.absolute().as_uri()):
        say(options.command, "no browser could be started: open the file yourself")
    return 0


def _beside(report: Path) -> Path:
    """The report's name, or that of the report whose journal it is, with the suffix of a page."""
    name = report.name.removesuffix(".journal").removesuffix(".json")
    return report.with_name(f"{name}.html")


def _is_page(path: Path) -> bool:
    """Whether it is a file that ``write_html`` wrote."""
    from pytest_llmeval.reporting.writers.html.page import GENERATOR

    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return f'<meta name="generator" content="{GENERATOR}'.encode() in head
