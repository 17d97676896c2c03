"""``llmeval convert``: an lm-eval task file as a suite."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import write_new

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "convert",
        help="write an lm-eval task file as a suite of our own format",
        description="Write an lm-eval task file as a suite of our own format. Paths of data files are relative to the "
        "folder of the suite file; with standard output, to the task file's folder: save the suite there.",
    )
    parser.add_argument("task", type=Path, help="lm-eval's task file (.yaml)")
    parser.add_argument("-o", "--output", type=Path, help="the suite file; without it, standard output")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pytest_llmeval.suites.lm_eval.load import convert

    text = convert(options.task, None if options.output is None else options.output.parent)
    write_new(text, options.output)
    return 0
