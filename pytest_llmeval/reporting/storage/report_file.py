"""Reads reports from disk: the current schema, those before it, and journals of runs that were killed."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any, BinaryIO

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import SCHEMA_VERSION, Report
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.disk_records import DECODER, DiskRecords, file_state
from pytest_llmeval.reporting.storage.journal import is_journal, read_journal
from pytest_llmeval.reporting.storage.json_form import (
    HEAD,
    DamagedPart,
    indented,
    record_from_json,
    record_to_json,
    report_from_json,
)
from pytest_llmeval.text.wording import describe

__all__ = ["read_report", "write_jsonl", "write_report"]

_READ = (1, 2, SCHEMA_VERSION)
_BUFFER_BYTES = 1 << 18
_MAX_FIRST_BYTES = 1 << 24
_MAX_WHOLE_BYTES = 256_000_000
"""A report that was reformatted has to be held in memory as a whole."""


def write_report(report: Report, path: Path) -> None:
    """Write the report: ``path`` holds the old content or all of the new, never a part. Raises ``ReportError``.

    Records are taken one by one, so that they may lie on disk.
    """
    with atomic_write(path) as file:
        file.writelines(_lines(report))


def write_jsonl(report: Report, path: Path) -> None:
    """Write each record as one line of ASCII JSON, as the JSON report has it. Raises ``ReportError``."""
    with atomic_write(path) as file:
        file.writelines(record_to_json(record) + "\n" for record in report.records)


def _lines(report: Report) -> Iterator[str]:
    """The report as JSON, one record a line, so that it can be read line by line."""
    yield "{"
    for name in HEAD:
        value = getattr(report, name)
        yield f"\n {_quoted(name)}: "
        if isinstance(value, list | tuple) and value:  # suites, one at a time: there may be thousands
            for place, item in enumerate(value):
                yield ("," if place else "[") + "\n  " + indented(item, "\n  ")
            yield "\n ],"
        else:
            yield indented(value, "\n ") + ","
    yield '\n "records": ['
    records = report.records
    texts = records.texts(record_to_json) if isinstance(records, DiskRecords) else map(record_to_json, records)
    for place, text in enumerate(texts):
        yield ("," if place else "") + "\n  " + text
    yield "\n ]\n}\n"


def read_report(path: Path) -> Report:
    """The report in a file; its records are read from there whenever they are asked for.

    Raises ``ReportError``, in one line, for a file that is not a report, was cut off, or has a schema that is not read
    here; ``Report.records`` raises it for a record that cannot be read. Unknown keys are left alone. A journal gives
    what its session had finished, summarised, with ``stopped`` set.
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

    Only the head is parsed. ``ReportError`` where the file ends before the report does.
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
    offsets = array("Q")
    num_lines = len(lines) + 1
    for line in file:
        num_lines += 1
        text = line.strip()
        if text == b"]" and file.read().strip() == b"}":
            break
        if not text.endswith((b"}", b"},")) and not line.endswith(b"\n"):
            raise ReportError(_cut_off(path, num_lines))
        if not line.startswith(b"  {") or not text.endswith((b"}", b"},")) or text == b"{}":
            return None
        offsets.append(end)
        end += len(line)
    else:
        raise ReportError(_cut_off(path, num_lines))
    try:
        head = DECODER.decode(b"".join(lines).decode().rstrip().removesuffix(",") + "}")
    except (ValueError, RecursionError):
        return None
    return _report(path, head, DiskRecords(path, offsets, state=state, are_together=True))


def _whole(path: Path, file: BinaryIO) -> Report:
    """A report in any other layout."""
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
    return _report(path, head, tuple(records))


def _report(path: Path, head: Mapping[str, Any], records: Sequence[Record]) -> Report:
    _check_schema(path, head)
    try:
        return report_from_json(head, records)
    except DamagedPart as error:
        raise ReportError(f"cannot read the report {path}: {error}") from None


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
