"""Writes reports: one JSON document with a schema version, one record a line; or the records alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.disk_records import DiskRecords
from pytest_llmeval.types import JSON

__all__ = ["finite", "head_to_json", "record_to_json", "write_jsonl", "write_report"]


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
    """The report as JSON, one record a line: ``read.py`` reads it line by line."""
    yield "{"
    for name in _HEAD:
        value = getattr(report, name)
        yield f"\n {_quoted(name)}: "
        if isinstance(value, list | tuple) and value:  # suites, one at a time: there may be thousands
            for place, item in enumerate(value):
                yield ("," if place else "[") + "\n  " + _indented(item, "\n  ")
            yield "\n ],"
        else:
            yield _indented(value, "\n ") + ","
    yield '\n "records": ['
    records = report.records
    texts = records.texts(record_to_json) if isinstance(records, DiskRecords) else map(record_to_json, records)
    for place, text in enumerate(texts):
        yield ("," if place else "") + "\n  " + text
    yield "\n ]\n}\n"


def head_to_json(report: Report) -> dict[str, JSON]:
    """All of the report but its records. A number that JSON cannot hold (an infinite loglikelihood) is null."""
    return {name: finite(getattr(report, name)) for name in _HEAD}


_HEAD = tuple(field.name for field in fields(Report) if field.name != "records")


def record_to_json(record: Record) -> str:
    """The record as one line of ASCII JSON. A number that JSON cannot hold is null."""
    values = record.to_dict()
    try:
        return _STRICT.encode(values)
    except (TypeError, ValueError):
        return json.dumps(finite(values))


_STRICT = json.JSONEncoder(allow_nan=False)


def finite(value: object) -> JSON:
    """``value`` as JSON: a mapping for a dataclass, a list for a tuple, null for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return {name: finite(item) for name, item in _members(value).items()} if is_dataclass(value) else str(value)


def _indented(value: object, margin: str) -> str:
    """``finite(value)`` as ``json.dumps`` writes it with an indent of 1, which takes it five times as long.

    ``margin`` is a line feed and the spaces before the text that ``value`` stands in.
    """
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else "null"
    inner = f"{margin} "
    if isinstance(value, list | tuple):
        items = f",{inner}".join([_indented(item, inner) for item in value])
        return f"[{inner}{items}{margin}]" if items else "[]"
    members: Mapping[Any, object]
    if isinstance(value, dict):  # as nearly all are: to ask for a Mapping takes longer
        members = value
    elif is_dataclass(value):
        members = _members(value)
    elif isinstance(value, Mapping):
        members = value
    else:
        return _quoted(str(value))
    items = f",{inner}".join([f"{_quoted(str(name))}: {_indented(item, inner)}" for name, item in members.items()])
    return f"{{{inner}{items}{margin}}}" if items else "{}"


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _members(value: Any) -> dict[str, Any]:
    """The fields of a dataclass. Those of a suite's info and counts stand side by side, as its readers know them."""
    kind: Any = type(value)
    found = {name: getattr(value, name) for name in _names(kind)}
    if isinstance(value, SuiteReport):
        del found["info"], found["summary"]
        return {**_members(value.info), **_members(value.summary), **found}
    return found
