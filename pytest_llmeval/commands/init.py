"""``llmeval init``: a first suite, and a CI workflow that runs it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

from pytest_llmeval.commands.output import write_out
from pytest_llmeval.errors import LLMEvalError

__all__ = ["add_parser", "run"]

_FILES = {"first.yaml": "suites/first.yaml", "llmeval.yml": ".github/workflows/llmeval.yml"}
"""The files of ``starter/``, and the paths that they are written to."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "init",
        help="write a first suite and a CI workflow",
        description=f"Write {' and '.join(_FILES.values())}. An existing file is never overwritten.",
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="project folder; default: this one")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit code. Raise ``LLMEvalError``, and then nothing was written."""
    folder: Path = options.folder
    starter = resources.files("pytest_llmeval.commands") / "starter"
    texts = {folder / place: (starter / name).read_text(encoding="utf-8") for name, place in _FILES.items()}
    for path in texts:
        if os.path.lexists(path):
            raise LLMEvalError(f"{path} exists already, and nothing was written; remove it, or name another folder")
    _write_all(texts)
    change = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    suites = "pytest suites --llm-model=demo"
    write_out(
        "".join(f"wrote {path}\n" for path in texts) + "\nNext:\n"
        f"  {change}{suites}\n"
        f"  {change}{suites} --llm-report suites/baseline.json    # what later runs are compared with; commit it\n"
    )
    return 0


def _write_all(texts: dict[Path, str]) -> None:
    """Write all files or none. Raise ``LLMEvalError``."""
    made: list[Path] = []
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
        except OSError as error:
            for other in made:
                with contextlib.suppress(OSError):
                    other.unlink()
            raise LLMEvalError(f"cannot write {path}: {error.strerror}; nothing was written") from None
