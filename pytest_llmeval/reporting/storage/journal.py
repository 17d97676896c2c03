"""What a session has finished, on disk as it finishes it: a killed session loses its last line at most.

The file has one JSON object a line: the head of a report, then ``{"suite": …}``, ``{"model": …}``, ``{"use": …}``,
``{"engine": …}``, ``{"expected": …}`` and ``{"record": …}`` in the order in which they arrived. ``read.read_report``
reads it.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, without_texts
from pytest_llmeval.reporting.report.report import SCHEMA_VERSION
from pytest_llmeval.reporting.storage.disk_records import RECORD_PREFIX, DiskRecords
from pytest_llmeval.reporting.storage.json_report import finite, record_to_json
from pytest_llmeval.types import JSON

__all__ = ["JOURNAL_VERSION", "Journal", "JournalError", "Kind", "journal_path"]

Kind: TypeAlias = Literal["suite", "model", "judge", "use", "engine", "expected"]
"""A ``SuiteInfo``; a model as ``Report.models`` has it; with ``model``, ``process`` and of a judge its ``role``, a
``ServerUse``; with ``suite`` and ``model`` of the group, the fields of an ``EngineUse``, or ``num_expected``, how many
samples are to run."""

JOURNAL_VERSION = 1
_SUFFIX = ".journal"
_SYNC_AFTER_S = 5.0
"""How often the disk is made to hold what the kernel has: a power failure loses as much."""


class JournalError(ReportError):
    """The journal can no longer be written. The record at ``place`` is kept without its texts, as later ones are."""

    def __init__(self, message: str, place: int) -> None:
        self.place = place
        super().__init__(message)


class Journal:
    """Writes records as they arrive, and gives them back.

    :param path: as ``journal_path`` gives it. Where there is a file of that name, the next number is taken: ``path`` of
        the journal is the one that it has.
    :param head: keys of a report that are known at its start: ``created``, ``environment``, ``options``, …
    """

    def __init__(self, path: Path, head: Mapping[str, JSON]) -> None:
        """Make the file. Raises ``ReportError``."""
        self._offsets = array("Q")
        self._checksums = array("Q")
        self._kept: dict[int, Record] = {}
        self._end = 0
        self._synced = time.monotonic()
        self._problem: str | None = None
        self._is_reported = False
        self._file, self._reader, self.path = _opened(path)
        # Keys as a report's, in its order: schema and created tell what file this is.
        known = {"schema": SCHEMA_VERSION, "created": None, **head, "journal": JOURNAL_VERSION}
        if not self._add_line(json.dumps(finite(known))):
            self.close(discard=True)
            raise ReportError(str(self._problem))

    def __len__(self) -> int:
        return len(self._offsets)

    def add_fact(self, kind: Kind, value: object) -> None:
        """What is known beside records, in the form in which ``read_journal`` takes it; the later one is right."""
        self._add_line(json.dumps({kind: finite(value)}))

    def add(self, record: Record) -> int:
        """Write a record; its place, from 0. Once this has returned, the death of this process does not lose it.

        Raises ``JournalError``, once, when the disk has failed: that record and all later ones are kept in memory,
        without their texts, and have places too.
        """
        place = len(self._offsets)
        self._offsets.append(self._end)
        line = RECORD_PREFIX + record_to_json(record) + "}"
        self._checksums.append(zlib.crc32(line.encode("ascii") + b"\n"))
        if not self._add_line(line):
            self._kept[place] = without_texts(record)
            if not self._is_reported:
                self._is_reported = True
                raise JournalError(str(self._problem), place)
        return place

    def records(self, places: Sequence[int]) -> Sequence[Record]:
        """The records at these places, in this order, read from disk whenever they are asked for.

        Those that could not be written are without their texts. The journal may be closed, but not discarded; until it
        is closed its file is read even if it has been removed.
        """
        return DiskRecords(
            self.path,
            self._offsets,
            places=array("Q", places),
            kept=self._kept,
            checksums=self._checksums,
            file=self._reader,
            what="journal",
        )

    def close(self, *, discard: bool) -> None:
        """Stop writing. ``discard``: what was finished is in a report, and the file is not needed any more."""
        for file in (self._file, self._reader):
            with suppress(OSError):
                file.close()
        if discard:
            with suppress(OSError):
                self.path.unlink()

    def _add_line(self, text: str) -> bool:
        if self._problem is not None:
            return False
        data = memoryview(text.encode("ascii") + b"\n")
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
            now = time.monotonic()
            if now - self._synced > _SYNC_AFTER_S:
                os.fsync(self._file.fileno())
                self._synced = now
        except (OSError, ValueError) as error:
            reason = error.strerror or error if isinstance(error, OSError) else error
            self._problem = f"cannot write the journal {self.path}: {reason}"
            with suppress(OSError, ValueError):
                self._file.truncate(self._end)
            return False
        self._end += len(data)
        return True


def journal_path(report: Path, *, is_folder: bool = False) -> Path:
    """Where the journal of a report goes: ``out.json.journal``; in a folder, ``eval_report.journal``.

    A long name is cut to what the file system takes.
    """
    name = "eval_report" if is_folder else report.name
    folder = report if is_folder else report.parent
    most = _max_name_bytes(folder) - len(f".9999{_SUFFIX}")
    return folder / f"{os.fsdecode(os.fsencode(name)[:most])}{_SUFFIX}"


def _max_name_bytes(folder: Path) -> int:
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):  # another system; no such folder, which is reported on open
        return 255


def _opened(path: Path) -> tuple[FileIO, BinaryIO, Path]:
    """A new file to write and to read, and its name: with a number, beside those that killed runs left there.

    Raises ``ReportError``.
    """
    name = path.name.removesuffix(_SUFFIX)
    number = 1
    while True:
        try:
            # Unbuffered: every line is with the kernel, which a killed process does not take with it.
            return path.open("xb", buffering=0), path.open("rb"), path
        except FileExistsError:
            number += 1
            path = path.with_name(f"{name}.{number}{_SUFFIX}")
        except OSError as error:
            raise ReportError(f"cannot write the journal {path}: {error.strerror or error}") from None
