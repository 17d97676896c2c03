"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from pytest_llmeval.data.files import temporary_file
from pytest_llmeval.errors import ReportError

__all__ = ["atomic_path", "atomic_write", "check_writable"]

_PREFIX = ".llmeval-"
"""Begins the names of temporary files. It is short: a report's own name may be as long as the file system takes."""


def check_writable(path: Path) -> None:
    """Raise ``ReportError`` before a long run if its report could not be written. The report's folder is made."""
    try:
        if path.is_dir():
            raise ReportError(f"cannot write the report {path}: it is a folder; name a file in it")
        with suppress(FileNotFoundError):
            os.lstat(path)  # tells of a name that is too long
        if _is_special(path):
            return
        target = _target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
        if target.exists():
            with target.open("ab"):
                pass
    except OSError as error:
        raise ReportError(f"cannot write the report {path}: {error.strerror or error}") from None


@contextmanager
def atomic_write(path: Path, *, encoding: str = "ascii", newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file that takes the place of ``path``, as ``atomic_path`` does. Raises ``ReportError``."""
    with atomic_path(path) as temporary, temporary.open("w", encoding=encoding, newline=newline) as file:
        yield file


@contextmanager
def atomic_path(path: Path, *, suffix: str = ".tmp") -> Iterator[Path]:
    """Give the path of a file to write, which takes the place of ``path`` when the block is done.

    Until then ``path`` holds what it held. The file's own name ends in ``suffix``. Missing folders are made, and files
    that killed processes have left in the folder are removed. If ``path`` is a link, the file that it points to is
    replaced; if it is a pipe or a device, that is the file to write. Raises ``ReportError`` if the file cannot be
    written.
    """
    try:
        if _is_special(path):
            with _open_pipe(path):
                yield path
            return
        target = _target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(target.parent, prefix=_PREFIX, suffix=suffix) as temporary:
            yield temporary
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            temporary.chmod(_file_mode(target))
            temporary.replace(target)
    except OSError as error:
        raise ReportError(f"cannot write the report {path}: {error.strerror or error}") from error


def _target(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _open_pipe(path: Path) -> Iterator[None]:
    """Hold a pipe open, since to open it for writing would wait for a reader without end. Other files are left alone.

    Raises ``ReportError`` if no process reads from the pipe.
    """
    if not path.is_fifo():
        yield
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        reason = "no process reads from this pipe" if error.errno == errno.ENXIO else error.strerror
        raise ReportError(f"cannot write the report {path}: {reason}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _file_mode(path: Path) -> int:
    """Return the mode that ``open`` would have given: the files of mkstemp are private to the user."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
