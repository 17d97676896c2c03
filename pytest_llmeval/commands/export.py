"""``llmeval export``: the samples of a report for other programs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import check_no_input, write_file, write_out
from pytest_llmeval.errors import ReportError

__all__ = ["add_parser", "run"]

_CHUNK_CHARACTERS = 1 << 16


def add_parser(commands: Any) -> None:
    """Add the command to argparse's sub-parsers."""
    parser = commands.add_parser(
        "export",
        help="write a report as CSV, JSON lines, Markdown, Parquet, or questions and answers",
        description="Write a report for other programs. csv, jsonl and parquet hold a row for each sample; md is the "
        "report to read; questions is JSON, {benchmark, metrics: {accuracy, credit, correct, total, unscored}, "
        "questions: [{qid, question, gold, pred, correct}]}, of several suites a list of these. Missing folders are "
        "made.",
    )
    parser.add_argument("report", type=Path, help="a report (.json), or a journal")
    parser.add_argument(
        *("--to", "--format"), dest="to", choices=("csv", "jsonl", "md", "parquet", "questions"), required=True
    )
    parser.add_argument("-o", "--output", type=Path, help="the file; without it, standard output (not for parquet)")
    parser.set_defaults(run=run, wrong_call=parser.error)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns its exit code. Raises ``LLMEvalError``."""
    if options.to == "parquet" and options.output is None:
        options.wrong_call("--to parquet needs a file: name one with --output")
    check_no_input(options.output, [options.report])
    from pytest_llmeval.reporting.storage.read import read_report

    report = read_report(options.report)
    if options.to == "parquet":
        from pytest_llmeval.reporting.writers.parquet import write_parquet

        write_parquet(report, options.output)
    elif options.to == "questions":
        from pytest_llmeval.reporting.writers.questions_json import questions_json

        write_file(questions_json(report), options.output)
    else:
        from pytest_llmeval.reporting.writers.targets import WRITERS

        write = WRITERS[f".{options.to}"]
        if options.output is not None:
            write(report, options.output)
            return 0
        with _temporary_folder() as folder:
            path = folder / "report"
            write(report, path)
            write_out(_chunks(path))
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


def _chunks(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="") as file:
        while chunk := file.read(_CHUNK_CHARACTERS):
            yield chunk
