"""The journal: what a session has finished, on disk as it finishes it. A killed session loses at most its last line.

The file has one JSON object on each line: the head of a report, then ``{"suite": …}``, ``{"model": …}``, ``{"use":
…}``, ``{"engine": …}``, ``{"expected": …}`` and ``{"record": …}`` in the order in which they arrived. A record has the
same text as in a report, and one reader (``disk_records.record_from_line``) reads both.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import SCHEMA_VERSION, Group, Report, compared_models
from pytest_llmeval.reporting.report.summaries import GroupRecords, grouped, with_suites
from pytest_llmeval.reporting.storage.disk_records import (
    DECODER,
    RECORD_PREFIX,
    DiskRecords,
    file_state,
    record_from_line,
)
from pytest_llmeval.reporting.storage.json_form import (
    DamagedPart,
    finite,
    part_from_json,
    record_from_json,
    record_to_json,
    report_from_json,
)
from pytest_llmeval.text.wording import describe as describe_value
from pytest_llmeval.types import JSON, EngineUse, ServerUse

__all__ = ["KILLED", "Journal", "JournalError", "Kind", "is_journal", "journal_path", "read_journal"]


Kind: TypeAlias = Literal["suite", "model", "judge", "use", "engine", "expected"]
"""A ``SuiteInfo``; a model as ``Report.models`` has it; with ``model``, ``process`` and of a judge its ``role``, a
``ServerUse``; with ``suite`` and ``model`` of the group, the fields of an ``EngineUse``, or ``num_expected``, how many
samples are to run."""

JOURNAL_VERSION = 1
_SUFFIX = ".journal"
_SYNC_AFTER_S = 5.0
"""The time after which the disk is made to hold what the kernel has: a power failure loses as much."""


class JournalError(ReportError):
    """The journal can no longer be written.

    The record at ``place`` and all later ones are kept in memory, without their texts.
    """

    def __init__(self, message: str, place: int) -> None:
        self.place = place
        super().__init__(message)


class Journal:
    """A file that takes records as they arrive, and gives them back.

    :param path: the name that ``journal_path`` gives. If there is such a file, the next number is taken; the attribute
        ``path`` is the name that was taken.
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
        if not self._add_line(_line(finite(known))):
            self.close(discard=True)
            raise ReportError(str(self._problem))

    def __len__(self) -> int:
        return len(self._offsets)

    def add_fact(self, kind: Kind, value: object) -> None:
        """Write what is known beside records. Of two facts about the same thing the later one is right."""
        self._add_line(_line({kind: finite(value)}))

    def add(self, record: Record) -> int:
        """Write a record, and return its place, from 0. After that the death of this process does not lose it.

        Raises ``JournalError``, once, when the disk has failed: that record and all later ones are kept in memory,
        without their texts, and have places too.
        """
        place = len(self._offsets)
        self._offsets.append(self._end)
        line = RECORD_PREFIX + record_to_json(record).encode("ascii") + b"}\n"
        self._checksums.append(zlib.crc32(line))
        if not self._add_line(line):
            self._kept[place] = without_texts(record)
            if not self._is_reported:
                self._is_reported = True
                raise JournalError(str(self._problem), place)
        return place

    def holds(self, place: int) -> bool:
        """Tell whether the record at ``place`` is in the file."""
        return place not in self._kept

    def records(self, places: Sequence[int]) -> Sequence[Record]:
        """Return the records at these places, in this order; they are read from disk whenever they are asked for.

        Records that could not be written are without their texts. The journal may be closed, but not discarded. Until
        it is closed, its file is read even if it has been removed.
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
        """Stop writing. ``discard``: a report has all of it, and the file is removed."""
        for file in (self._file, self._reader):
            with suppress(OSError):
                file.close()
        if discard:
            with suppress(OSError):
                self.path.unlink()

    def _add_line(self, line: bytes) -> bool:
        if self._problem is not None:
            return False
        data = memoryview(line)
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


def _line(value: JSON) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def journal_path(report: Path, *, is_folder: bool = False) -> Path:
    """Return the path of a report's journal: ``out.json.journal``, or ``eval_report.journal`` in a folder.

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
    """Open a new file to write and to read, and return its name, with a number if killed runs have left such files.

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


KILLED = "killed before its end"
"""The value of ``Report.stopped`` in a report from a journal."""

_EXIT_CODE = 2  # pytest's own for a run that was interrupted
_KINDS = ("record", "suite", "model", "judge", "use", "engine", "expected")
_FIRST_LINE = re.compile(rb'\{"schema": .*"journal": \d+\}\s*')


@dataclass(slots=True)
class _JournalContents:
    """The contents of a journal. Of two lines about the same thing the later one is right."""

    infos: dict[str, SuiteInfo] = field(default_factory=dict)
    models: dict[str, Mapping[str, JSON]] = field(default_factory=dict)
    judges: dict[tuple[str, str], Mapping[str, JSON]] = field(default_factory=dict)
    uses: dict[tuple[str, str], dict[str, ServerUse]] = field(default_factory=dict)
    engines: dict[Group, EngineUse] = field(default_factory=dict)
    expected: dict[Group, int] = field(default_factory=dict)
    records: dict[tuple[str, str | None, str], tuple[int, Record]] = field(default_factory=dict)

    def add_record(self, offset: int, record: Record) -> None:
        self.records[record.suite, record.model, record.id] = (offset, without_texts(record))

    def use(self, role: str, name: str) -> dict[str, JSON]:
        """Return what all processes have sent to a model behind a server; ``role`` is empty for an evaluated model."""
        return asdict(sum(self.uses[role, name].values(), ServerUse()))


def is_journal(first_line: bytes) -> bool:
    """Tell whether a file that begins with this line is a journal."""
    return _FIRST_LINE.fullmatch(first_line) is not None


def read_journal(path: Path) -> Report:
    """Return the report of what the session had finished. A last line that was cut in the middle is left out.

    ``exit_code`` is that of an interrupted run; ``seconds`` is the model's time, since the session's is not known.
    Raises ``ReportError``, and ``OSError`` if the file cannot be read.
    """
    state = file_state(path)
    found = _JournalContents()
    head: dict[str, Any] = {}
    for number, (offset, line) in enumerate(_lines(path), 1):
        try:
            if number > 1 and line.startswith(RECORD_PREFIX):
                found.add_record(offset, record_from_line(line))
                continue
            data = DECODER.decode(line.decode())
            if number == 1:
                head = data
            else:
                _take(found, offset, data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"the key {error} is missing" if isinstance(error, KeyError) else error
            raise ReportError(f"cannot read the journal {path}:{number}: {reason}") from None
    begin = {
        "exit_code": _EXIT_CODE,
        **head,
        "seconds": 0.0,
        "stopped": KILLED,
        "models": [
            {**model, "use": found.use("", name)} if ("", name) in found.uses else model
            for name, model in found.models.items()
        ],
        "judges": [
            {
                **found.judges.get((role, name), {"role": role, "name": name}),
                **({"use": found.use(role, name)} if (role, name) in found.uses else {}),
            }
            for role, name in sorted({*found.judges, *(whose for whose in found.uses if whose[0])})
        ],
        "suites": [],
    }
    offsets = array("Q", [offset for offset, _ in found.records.values()])
    try:
        report = report_from_json(begin, DiskRecords(path, offsets, state=state))
    except DamagedPart as error:
        raise ReportError(f"cannot read the journal {path}:1: {error}") from None
    return _summarized(report, found)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their offsets, without a last one that is not whole."""
    offset = 0
    with path.open("rb", buffering=1 << 18) as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield offset, line
            offset += len(line)


def _take(found: _JournalContents, offset: int, data: object) -> None:
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"found {describe_value(data)}, expected a mapping with one key")
    ((kind, value),) = data.items()
    if kind not in _KINDS:
        return  # of a later version
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_value(value)}, expected a {kind}")
    match kind:
        case "record":
            found.add_record(offset, record_from_json(value))
        case "suite":
            info = part_from_json(SuiteInfo, value, kind)
            found.infos[info.name] = info
        case "model":
            found.models[str(value["name"])] = value
        case "judge":
            found.judges[str(value["role"]), str(value["name"])] = value
        case "use":
            use = {key: part for key, part in value.items() if key not in ("model", "process", "role")}
            whose = str(value.get("role", "")), str(value["model"])
            found.uses.setdefault(whose, {})[str(value["process"])] = part_from_json(ServerUse, use, kind)
        case "engine":
            found.engines[_group(value)] = part_from_json(EngineUse, value, kind)
        case "expected":
            num_expected = value["num_expected"]
            if isinstance(num_expected, bool) or not isinstance(num_expected, int) or num_expected < 0:
                raise ValueError(f"num_expected: found {describe_value(num_expected)}, expected a whole number")
            found.expected[_group(value)] = num_expected


def _group(value: Mapping[str, Any]) -> Group:
    suite, model = value["suite"], value["model"]
    if not isinstance(suite, str) or not isinstance(model, str | None):
        raise ValueError(f"found {describe_value(suite)} and {describe_value(model)}, expected a suite and a model")
    return suite, model


def _summarized(report: Report, found: _JournalContents) -> Report:
    compared, problems = compared_models(report), list[str]()
    by_group: dict[Group, list[Record]] = {group: [] for group in found.expected}
    by_group |= grouped((record for _, record in found.records.values()), compared)
    groups = {
        group: GroupRecords(
            records=records,
            info=found.infos.get(group[0]),
            num_expected=found.expected.get(group, len(records)),
            model=group[1],
            engine=found.engines.get(group),
        )
        for group, records in by_group.items()
    }
    report = with_suites(report, groups, compared, problems, of_session=False)
    num_expected, num_finished = sum(found.expected.values()), sum(len(by_group[group]) for group in found.expected)
    if num_finished < num_expected:
        problems.append(f"{num_finished} of {num_expected} samples of the suites that had begun were finished")
    return replace(report, seconds=sum(suite.seconds for suite in report.suites), problems=tuple(problems))
