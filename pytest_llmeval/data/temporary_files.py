"""Temporary files and folders that do not outlive a killed process for ever: the next one removes them.

A process holds a lock on each that it uses, which the system gives up with the process, however that ends. What is not
locked has been abandoned. Where the system has no such locks (Windows) nothing is known to be abandoned, and it stays.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["temporary_file", "temporary_folder"]

_LOCK = ".lock"


@contextmanager
def temporary_file(folder: Path, *, prefix: str, suffix: str) -> Iterator[Path]:
    """Make a new empty file for this user alone, which is removed at the end unless it was renamed. Raises ``OSError``.

    Files of the same prefix that killed processes of this machine have left in the folder are removed first.
    """
    own = f"{prefix}{_machine()}-"
    _remove_abandoned(folder, own)
    descriptor, path = _new_file(folder, own, suffix)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def temporary_folder(*, prefix: str) -> Iterator[Path]:
    """Make a new folder for this user alone, which is removed at the end with all that is in it."""
    with temporary_file(Path(tempfile.gettempdir()), prefix=prefix, suffix=_LOCK) as lock:
        folder = lock.with_suffix("")
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _machine() -> str:
    """Return a name of this machine: on a network disk, machines need not see each other's locks."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _new_file(folder: Path, prefix: str, suffix: str) -> tuple[int | None, Path]:
    """Return a file that this process has locked by the descriptor; None where there are no locks."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=suffix)
        if sys.platform == "win32":  # a file that is open could not be renamed there
            os.close(descriptor)
            return None, Path(name)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _remove_abandoned(folder: Path, prefix: str) -> None:
    if sys.platform == "win32":
        return
    names: list[str] = []
    with suppress(OSError):  # a folder may be there to be written to, and not to be read
        names = os.listdir(folder)
    for name in names:
        if name.startswith(prefix):
            with suppress(OSError), _abandoned(folder / name):
                if name.endswith(_LOCK):
                    shutil.rmtree(folder / name.removesuffix(_LOCK), ignore_errors=True)
                (folder / name).unlink()


@contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Lock a file that no process uses. Raises ``OSError`` for another one, and for one of another user."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
