"""A value that the processes of a session share: a small JSON file, which they change under a lock."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

__all__ = ["SharedValue"]

_T = TypeVar("_T")
_POLL_S = 0.001
"""Seconds between looks at a lock that another process holds: it writes a few bytes meanwhile."""


class SharedValue(Generic[_T]):
    """A value in the file ``path``, as JSON that ``encode`` makes of it and ``decode`` reads."""

    def __init__(self, path: Path, decode: Callable[[Any], _T], encode: Callable[[_T], Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._decode, self._encode = decode, encode

    @property
    def exists(self) -> bool:
        """Tell whether a process has written it."""
        return self._path.exists()

    def read(self, known: _T) -> _T:
        """Return the present value; ``known`` if it cannot be read."""
        try:
            return self._present(known)
        except OSError:
            return known

    def _present(self, known: _T) -> _T:
        try:
            return self._decode(json.loads(self._path.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return known

    def change(self, known: _T, changed: Callable[[_T], _T]) -> _T:
        """Put ``changed`` of the present value in its place, and return it; ``known`` stands for one that is not there.

        Raises ``OSError`` if it is there and cannot be read, as other processes have changed it since it was known.
        """
        from filelock import FileLock

        with FileLock(self._path.with_suffix(".lock"), thread_local=False).acquire(poll_interval=_POLL_S):
            before = self._present(known)
            after = changed(before)
            if after != before or not self._path.exists():
                written = self._path.with_suffix(f".{os.getpid()}")
                written.write_text(json.dumps(self._encode(after)))
                os.replace(written, self._path)
        return after
