"""Rows that wait on disk until it is known what their tables look like."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from pytest_llmeval.errors import ReportError

__all__ = ["Spool"]

Key = TypeVar("Key", bound=Hashable)
_ENCODER = json.JSONEncoder(check_circular=False)


class Spool(Generic[Key]):
    """Rows of builtins, kept in a temporary file and read back table by table, each in the order in which it was added.

    A report of 100,000 samples is written from one pass over them, without holding them. Every method raises
    ``ReportError`` where the temporary file cannot be written or read.
    """

    def __init__(self) -> None:
        with _disk_errors_explained():
            self._file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (closed by __exit__)
        self._runs: dict[Key, list[tuple[int, int]]] = {}
        self._last: Key | None = None
        self._end = 0

    def __enter__(self) -> Spool[Key]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):  # of what was still to be written, and is not needed any more
            self._file.close()

    def add(self, table: Key, row: list[Any]) -> None:
        """Add a row to a table. ``TypeError`` for what JSON does not know."""
        line = _ENCODER.encode(row).encode("ascii") + b"\n"
        with _disk_errors_explained():
            self._file.write(line)
        start, self._end = self._end, self._end + len(line)
        runs = self._runs.setdefault(table, [])
        if runs and self._last == table:
            runs[-1] = (runs[-1][0], self._end)
        else:
            runs.append((start, self._end))
        self._last = table

    def rows(self, table: Key) -> Iterator[list[Any]]:
        """The rows of a table, none where nothing was added to it; one table at a time, after the last ``add``."""
        for start, end in self._runs.get(table, ()):
            with _disk_errors_explained():
                self._file.seek(start)
            while start < end:
                with _disk_errors_explained():
                    line = self._file.readline()
                start += len(line)
                yield json.loads(line)


@contextmanager
def _disk_errors_explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # tempfile.gettempdir raises the same where it finds no folder.
        folder = tempfile.tempdir or "any folder for temporary files"
        raise ReportError(
            f"cannot write a temporary file in {folder}: {error.strerror or error}; name another place in TMPDIR"
        ) from None
