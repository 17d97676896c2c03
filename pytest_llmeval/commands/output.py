"""The output of a command: to standard output, to standard error, or to a file that it makes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.text.escaping import json_without_commands, printable, without_commands

__all__ = ["check_no_input", "counted", "say", "say_raw", "write_file", "write_new", "write_out"]


def write_out(text: str | Iterable[str], *, is_json: bool = False) -> None:
    """Write whole lines to standard output, none of them a command to GitHub Actions.

    Characters that its encoding does not have are escaped. A reader that stops reading is no error. Raise
    ``LLMEvalError`` if nothing can be written.
    """
    if sys.stdout is None:
        raise LLMEvalError("there is no standard output to write to")
    encoding = sys.stdout.encoding or "utf-8"
    guarded = json_without_commands if is_json else without_commands
    try:
        for part in map(guarded, (text,) if isinstance(text, str) else text):
            sys.stdout.write(part.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # The buffer's content cannot be written, and Python would try once more at its end.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `llmeval presets | head`
            raise LLMEvalError(f"cannot write to standard output: {error.strerror}") from None


def counted(number: int, one: str, several: str = "") -> str:
    """Return ``1 reply``, or ``2,000 replies``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def say(command: str, message: str) -> None:
    """Write a message of the command as one line on standard error."""
    say_raw(without_commands(f"llmeval {command}: {printable(message)}"))


def say_raw(line: str) -> None:
    """Write a line on standard error, as it is."""
    if sys.stderr is not None:
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(f"{line}\n".encode(encoding, "backslashreplace").decode(encoding))


def write_new(text: str | Iterable[str], path: Path | None, *, is_json: bool = False) -> None:
    """Write a file that a user goes on to edit, as ``write_file`` does; raise ``LLMEvalError`` if it exists."""
    if path is not None and path.exists():
        raise LLMEvalError(f"{path} exists already; remove it, or name another file with --output")
    write_file(text, path, is_json=is_json)


def write_file(text: str | Iterable[str], path: Path | None, *, is_json: bool = False) -> None:
    """Write to a file, whole or not at all; to standard output, as ``write_out`` does, if ``path`` is None.

    Raise ``LLMEvalError`` if it cannot be written.
    """
    if path is None:
        write_out(text, is_json=is_json)
        return
    from pytest_llmeval.reporting.storage.atomic_write import atomic_write

    try:
        with atomic_write(path, encoding="utf-8", newline="") as file:
            for part in (text,) if isinstance(text, str) else text:
                file.write(part.encode("utf-8", "backslashreplace").decode("utf-8"))
    except ReportError as error:  # about that file, which is no report, or about the report that the text is made from
        raise LLMEvalError(str(error).replace(f"the report {path}:", f"{path}:", 1)) from None


def check_no_input(output: Path | None, inputs: Iterable[Path]) -> None:
    """Raise ``LLMEvalError`` if a command would write over a file that it reads."""
    for path in inputs:
        if output is not None and os.path.exists(output) and os.path.exists(path) and output.samefile(path):
            raise LLMEvalError(f"--output {output} is one of the reports that are read: name another file")
