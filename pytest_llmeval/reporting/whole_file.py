"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pytest_llmeval.errors import ReportError

__all__ = ["check_writable", "whole_file"]


def check_writable(path: Path) -> None:
    """Find out before a long run that its report could not be written. Raises ``ReportError``."""
    if path.is_dir():
        raise ReportError(f"cannot write the report {path}: it is a folder; name a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise ReportError(f"cannot write the report {path}: there is no folder {folder}; create it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path.exists():
            with path.open("ab"):
                pass
    except OSError as error:
        raise ReportError(f"cannot write the report {path}: {error.strerror}") from None


@contextmanager
def whole_file(path: Path, *, encoding: str = "ascii", newline: str | None = None) -> Iterator[TextIO]:
    """A text file that takes the place of ``path`` once it is complete: until then ``path`` holds what it held.

    Raises ``ReportError`` where it cannot be written.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "w", encoding=encoding, newline=newline) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, _file_mode(path))
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ReportError(f"cannot write the report {path}: {error.strerror}") from error


def _file_mode(path: Path) -> int:
    """Mode that a plain ``open`` would have given: mkstemp's files are private to the user."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
