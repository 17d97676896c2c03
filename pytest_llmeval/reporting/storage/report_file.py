"""Report files: one JSON document with a record on each line, and with a digest of all that it says at its end.

Reports of earlier schemas are read, and the journals of sessions that were killed.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any, BinaryIO

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import SCHEMA_VERSION, SINCE_DIGEST, Report
from pytest_llmeval.reporting.storage.atomic_write import atomic_path
from pytest_llmeval.reporting.storage.disk_records import DECODER, DiskRecords, file_state, record_texts
from pytest_llmeval.reporting.storage.journal import is_journal, read_journal
from pytest_llmeval.reporting.storage.json_form import (
    DamagedPart,
    finite,
    head_of,
    indented,
    record_from_json,
    report_from_json,
    without_defaults,
)
from pytest_llmeval.text.wording import describe

__all__ = ["read_report", "write_jsonl", "write_report"]

_READ = (1, 2, SCHEMA_VERSION)
_BUFFER_BYTES = 1 << 18
_MAX_FIRST_BYTES = 1 << 24
_MAX_WHOLE_BYTES = 256_000_000
"""The largest report that may have been reformatted: it has to be held in memory as a whole."""

_DIGEST = "digest"
_SINCE_DIGEST = (_DIGEST, "selection")
"""Keys that reports have since schema ``SINCE_DIGEST``."""


def write_report(report: Report, path: Path) -> None:
    """Write the report: ``path`` holds the old content or all of the new, never a part. Raises ``ReportError``.

    Records are taken one by one, so that they may lie on disk.
    """
    with atomic_path(path) as temporary, temporary.open("wb", buffering=_BUFFER_BYTES) as file:
        file.writelines(_pieces(report))


def write_jsonl(report: Report, path: Path) -> None:
    """Write each record as one line of ASCII JSON, as the JSON report has it. Raises ``ReportError``."""
    with atomic_path(path) as temporary, temporary.open("wb", buffering=_BUFFER_BYTES) as file:
        file.writelines(text + b"\n" for text in _record_lines(report))


def _pieces(report: Report) -> Iterator[bytes]:
    """Yield the report as JSON, with a record on each line, and at the end the digest of all the rest."""
    digest = _Digest()
    yield b"{"
    for name, value in head_of(report).items():
        yield f"\n {_quoted(name)}: ".encode("ascii")
        if isinstance(value, list | tuple) and value:  # suites, one at a time: there may be thousands
            digest.begin_list(name)
            for place, item in enumerate(value):
                text = indented(item, "\n  ")
                digest.add_item(_compact(json.loads(text)))
                yield f"{',' if place else '['}\n  {text}".encode("ascii")
            digest.end_list()
            yield b"\n ],"
        else:
            text = indented(value, "\n ")
            digest.add(name, json.loads(text))
            yield f"{text},".encode("ascii")
    yield b'\n "records": ['
    digest.begin_list("records")
    for place, line in enumerate(_record_lines(report)):
        digest.add_item(line)
        yield (b",\n  " if place else b"\n  ") + line
    digest.end_list()
    yield f'\n ],\n "digest": "{digest.hexdigest()}"\n}}\n'.encode("ascii")


def _record_lines(report: Report) -> Iterator[bytes]:
    """Yield the JSON of each record: of a kept baseline only what it says, since it does not know the rest."""
    if report.is_brief:
        return (_compact(finite(without_defaults(record))) for record in report.records)
    return record_texts(report.records)


class _Digest:
    """The SHA-256 of a report without its key ``digest``, as ``json.dumps`` writes it, taken piece by piece.

    Indentation, line ends and escapes make no difference to it; the order of keys does.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"{")
        self._before_key = b""
        self._before_item = b""

    def add(self, name: str, value: object) -> None:
        """Add a key with its value, as ``json.loads`` gives it."""
        self._hash.update(self._before_key + _compact(name) + b": " + _compact(value))
        self._before_key = b", "

    def begin_list(self, name: str) -> None:
        """Add a key whose value is a list; the items follow, then ``end_list``."""
        self._hash.update(self._before_key + _compact(name) + b": [")
        self._before_key, self._before_item = b", ", b""

    def add_item(self, text: bytes) -> None:
        """Add an item of the list that was begun, as ``json.dumps`` writes it."""
        self._hash.update(self._before_item)
        self._hash.update(text)
        self._before_item = b", "

    def end_list(self) -> None:
        """End the list that was begun."""
        self._hash.update(b"]")

    def hexdigest(self) -> str:
        """End the report, and return its digest."""
        self._hash.update(b"}")
        return self._hash.hexdigest()


def _compact(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


def read_report(path: Path) -> Report:
    """Read the report in a file; its records are read from there whenever they are asked for.

    Raises ``ReportError``, in one line, for a file that is not a report, was cut off, or has a schema that is not read
    here; ``Report.records`` raises it for a record that cannot be read. A report whose digest is missing or wrong is
    read, and ``Report.altered`` says so. Unknown keys are left alone. A journal gives what its session had finished,
    summarised, with ``stopped`` set.
    """
    try:
        if path.is_dir():
            raise ReportError(f"cannot read the report {path}: it is a folder; name a file in it")
        if path.exists() and not path.is_file():
            raise ReportError(f"cannot read the report {path}: it is a pipe or a device; save it in a file first")
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            first = file.readline(_MAX_FIRST_BYTES)
            if is_journal(first):
                if not first.endswith(b"\n"):
                    raise ReportError(_cut_off(path, 1))
                _check_schema(path, DECODER.decode(first.decode()))
                return read_journal(path)
            if first.rstrip() == b"{":
                found = _by_line(path, file, first)
                if found is not None:
                    return found
            return _whole(path, file)
    except FileNotFoundError:
        raise ReportError(f"cannot read the report {path}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise ReportError(f"cannot read the report {path}: {reason}") from None


def _by_line(path: Path, file: BinaryIO, first: bytes) -> Report | None:
    """Read a report as ``write_report`` lays it out: a head, and every record on a line. None for another layout.

    Of records only the digest is computed. Raises ``ReportError`` if the file ends before the report does.
    """
    state = file_state(file.fileno())
    lines, end = [first], len(first)
    for line in file:
        end += len(line)
        if line.rstrip() == b' "records": [':
            break
        lines.append(line)
    else:
        return None
    try:
        head = DECODER.decode(b"".join(lines).decode().rstrip().removesuffix(",") + "}")
    except (ValueError, RecursionError):
        return None
    digest = _Digest()
    for name, value in head.items():
        digest.add(name, value)
    digest.begin_list("records")
    offsets = array("Q")
    num_lines = len(lines) + 1
    for line in file:
        num_lines += 1
        text = line.strip()
        if text in (b"]", b"],") and (tail := _tail(file.read(), is_open=text == b"],")) is not None:
            break
        if not text.endswith((b"}", b"},", b"],")) and not line.endswith(b"\n"):
            raise ReportError(_cut_off(path, num_lines))
        text = text.removesuffix(b",")
        if not line.startswith(b"  {") or not text.endswith(b"}") or text == b"{}":
            return None
        digest.add_item(text)
        offsets.append(end)
        end += len(line)
    else:
        raise ReportError(_cut_off(path, num_lines))
    digest.end_list()
    records = DiskRecords(path, offsets, state=state, are_together=True)
    return _report(path, {**head, **tail}, records, digest.hexdigest())


def _tail(text: bytes, *, is_open: bool) -> Mapping[str, Any] | None:
    """Return what a report has after its records, or None if that is neither its end nor its digest alone."""
    if not is_open:
        return {} if text.strip() == b"}" else None
    try:
        found = DECODER.decode("{" + text.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() == {_DIGEST} else None


def _whole(path: Path, file: BinaryIO) -> Report:
    """Read a report in any other layout."""
    if file.seek(0, 2) > _MAX_WHOLE_BYTES:
        raise ReportError(
            f"cannot read the report {path}: it was reformatted and is larger than {_MAX_WHOLE_BYTES // 1_000_000} MB; "
            "take the file as it was written, with a record on each line"
        )
    file.seek(0)
    data = file.read()
    try:
        text = data.decode(json.detect_encoding(data)).removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ReportError(f"cannot read the report {path}: it is not JSON, and not text") from None
    if not text.strip():
        raise ReportError(f"cannot read the report {path}: it is empty")
    try:
        head = DECODER.decode(text)
    except json.JSONDecodeError as error:
        whole = text.rstrip()
        if (place := f"\n{whole}".find("\n<<<<<<< ")) >= 0:
            hint = "it has a conflict that git left there; take one side, or write the file anew"
            raise ReportError(f"cannot read the report {path}:{whole[:place].count(chr(10)) + 1}: {hint}") from None
        if whole.lstrip().startswith("<"):
            hint = "it is a page, not JSON; name the report (.json) that it was made from"
            raise ReportError(f"cannot read the report {path}: {hint}") from None
        if whole.lstrip().startswith("{") and (error.pos >= len(whole) or not whole.endswith("}")):
            raise ReportError(_cut_off(path, whole.count("\n") + 1)) from None
        raise ReportError(f"cannot read the report {path}:{error.lineno}: it is not JSON ({error.msg})") from None
    except RecursionError:
        raise ReportError(f"cannot read the report {path}: it is nested too deeply for a report") from None
    _check_schema(path, head)
    if not isinstance(head.get("records"), list):
        found = describe(head.get("records"))
        raise ReportError(f"cannot read the report {path}: records: found {found}, expected a list")
    records = []
    for number, data in enumerate(head["records"]):
        try:
            records.append(record_from_json(data))
        except ValueError as error:
            raise ReportError(f"cannot read the report {path}: records[{number}]: {error}") from None
    return _report(path, head, tuple(records), _digest_of(head))


def _digest_of(document: Mapping[str, Any]) -> str:
    digest = _Digest()
    for name, value in document.items():
        if isinstance(value, list):  # item by item: the text of all records at once would take as much memory again
            digest.begin_list(name)
            for item in value:
                digest.add_item(_compact(item))
            digest.end_list()
        elif name != _DIGEST:
            digest.add(name, value)
    return digest.hexdigest()


def _report(path: Path, head: Mapping[str, Any], records: Sequence[Record], digest: str) -> Report:
    _check_schema(path, head)
    try:
        report = report_from_json(head, records)
    except DamagedPart as error:
        raise ReportError(f"cannot read the report {path}: {error}") from None
    return replace(report, altered=_altered(head, digest))


def _altered(head: Mapping[str, Any], digest: str) -> str | None:
    """Return how it is known that a report is not as it was written, or None."""
    if head["schema"] < SINCE_DIGEST:
        newer = [name for name in _SINCE_DIGEST if name in head]
        return f"its schema is {head['schema']}, and it has {newer[0]!r}, which is newer" if newer else None
    if _DIGEST not in head:
        return "it has no digest"
    return None if head[_DIGEST] == digest else "its digest is not the one of its contents"


def _check_schema(path: Path, head: object) -> None:
    if not isinstance(head, Mapping) or not {"schema", "created"} <= head.keys():
        what = "found JSON without a schema" if isinstance(head, Mapping) else f"found {describe(head)}"
        raise ReportError(f"cannot read the report {path}: it is not a report of this plugin: {what}")
    schema = head["schema"]
    if isinstance(schema, bool) or schema not in _READ:
        shown = schema if isinstance(schema, int) else describe(schema)
        newer = isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA_VERSION
        advice = "; a newer version of pytest-llmeval-suites wrote it: install that" if newer else ""
        raise ReportError(
            f"cannot read the report {path}: its schema is {shown}, and this version reads "
            f"{', '.join(map(str, _READ[:-1]))} and {SCHEMA_VERSION}{advice}"
        )


def _cut_off(path: Path, line: int) -> str:
    return f"cannot read the report {path}:{line}: the file ends before the report does: it was cut off; copy it again"
