"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from pytest_llmeval.data.temporary_files import temporary_file
from pytest_llmeval.errors import ReportError

__all__ = ["atomic_path", "atomic_write", "check_writable"]

_PREFIX = ".llmeval-"
"""Of temporary files: short, as a report's own name may be as long as the file system takes."""


def check_writable(path: Path) -> None:
    """Find out before a long run that its report could not be written; its folder is made. Raises ``ReportError``."""
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
    """A text file that takes the place of ``path`` as ``atomic_path``'s does. Raises ``ReportError`` likewise."""
    with atomic_path(path) as temporary, temporary.open("w", encoding=encoding, newline=newline) as file:
        yield file


@contextmanager
def atomic_path(path: Path, *, suffix: str = ".tmp") -> Iterator[Path]:
    """A file to write that takes the place of ``path`` once the block is done: until then ``path`` holds what it held.

    Its own name ends in ``suffix``. Its folder is made where there is none. A link stays, and what it points to is
    replaced. A pipe or a device is the file itself. What killed processes have left in the folder is removed. Raises
    ``ReportError`` where it cannot be written.
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
    """Hold a pipe open while it is opened to be written to, which would wait for a reader without end; nothing for what
    is no pipe. Raises ``ReportError`` where there is no reader.
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
    """Mode that a plain ``open`` would have given: mkstemp's files are private to the user."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
