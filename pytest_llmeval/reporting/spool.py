"""Rows that wait on disk until it is known what their tables look like."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Hashable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["Spool"]

Key = TypeVar("Key", bound=Hashable)
_ENCODER = json.JSONEncoder(check_circular=False)


class Spool(Generic[Key]):
    """Rows of builtins, kept in a temporary file and read back table by table, each in the order in which it was added.

    A report of 100,000 samples is written from one pass over them, without holding them.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (closed by __exit__)
        self._runs: dict[Key, list[tuple[int, int]]] = {}
        self._last: Key | None = None
        self._end = 0

    def __enter__(self) -> Spool[Key]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, table: Key, row: list[Any]) -> None:
        """Add a row to a table. ``TypeError`` for what JSON does not know."""
        line = _ENCODER.encode(row).encode("ascii") + b"\n"
        self._file.write(line)
        start, self._end = self._end, self._end + len(line)
        runs = self._runs.setdefault(table, [])
        if runs and self._last == table:
            runs[-1] = (runs[-1][0], self._end)
        else:
            runs.append((start, self._end))
        self._last = table

    def tables(self) -> tuple[Key, ...]:
        """The tables that have rows, in the order in which they first had one."""
        return tuple(self._runs)

    def rows(self, table: Key) -> Iterator[list[Any]]:
        """The rows of a table, none where nothing was added to it; one table at a time, after the last ``add``."""
        for start, end in self._runs.get(table, ()):
            self._file.seek(start)
            while self._file.tell() < end:
                yield json.loads(self._file.readline())
