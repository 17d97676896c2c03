"""``llmeval export``: the samples of a report for other programs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import check_no_input, write_out
from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.reporting.writers.formats import FORMATS, ReportFormat, export_formats

__all__ = ["add_parsers"]


def add_parsers(commands: Any) -> None:
    ours = [one for one in FORMATS if one.is_export]
    described = "; ".join(f"{one.name} is {one.description}" for one in ours)
    binary = ", ".join(one.name for one in ours if not one.is_text)
    parser = commands.add_parser(
        "export",
        help="write a report for other programs: CSV, JSON lines, Markdown, Parquet, questions and answers, …",
        description=f"Write a report for other programs. {described}. Packages can add formats. "
        "Missing folders are created.",
    )
    parser.add_argument("report", type=Path, help="a report (.json), or a journal")
    parser.add_argument(
        *("--to", "--format"),
        dest="to",
        type=_format,
        required=True,
        metavar="|".join(one.name for one in ours),
        help="the format to write",
    )
    parser.add_argument("-o", "--output", type=Path, help=f"the file; without it, standard output (not for {binary})")
    parser.set_defaults(run=_export, wrong_call=parser.error)


def _format(name: str) -> ReportFormat:
    """Return the format of this name. It is no ``choices`` of argparse, so that only this command looks packages up."""
    known = export_formats()
    if (found := known.get(name.lower())) is None:
        raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(known)})")
    found.check()
    return found


def _export(options: argparse.Namespace) -> int:
    to: ReportFormat = options.to
    if options.output is None and not to.is_text:
        options.wrong_call(f"--to {to.name} needs a file: name one with --output")
    check_no_input(options.output, [options.report])
    from pytest_llmeval.reporting.storage.report_file import read_report

    report = read_report(options.report)
    if options.output is not None:
        to.write(report, options.output)
        return 0
    with _temporary_folder() as folder:
        path = folder / "report"
        to.write(report, path)
        try:
            write_out(_lines(path), is_json=to.is_json)
        except UnicodeDecodeError:
            raise LLMEvalError(f"--to {to.name} is no text: name a file with --output") from None
    return 0


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory()
    except OSError as error:
        raise ReportError(
            f"cannot make a temporary folder: {error.strerror}; name another place in TMPDIR, or a file with --output"
        ) from None
    with folder as name:
        yield Path(name)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from file
