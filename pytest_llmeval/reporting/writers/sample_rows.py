"""One row for each sample: CSV for spreadsheets, and Parquet."""

from __future__ import annotations

import csv
import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.atomic_write import atomic_path, atomic_write
from pytest_llmeval.scoring.metrics.definitions import shown_order
from pytest_llmeval.text.escaping import csv_text, encodable, printable
from pytest_llmeval.types import JSON

__all__ = [
    "COLUMNS",
    "value_columns",
    "write_csv",
    "write_parquet",
]


COLUMNS = (
    *("suite", "model", "id", "category", "cluster", "status", "answer", "target", "no_answer", "chance"),
    *("num_prompt_tokens", "num_tokens", "seconds", "cost"),
    *("question", "choices", "prompt", "output", "reason", "details", "nodeid", "fingerprint"),
    *("reasoning", "num_truncated"),
)
"""Fields of a record that are columns, before the columns of its values."""


def write_csv(report: Report, path: Path) -> None:
    """Write one row for each sample as CSV (RFC 4180), in UTF-8, with a head. Raise ``ReportError``.

    A sample's values follow ``COLUMNS`` under the metrics' names; one with the name of a column has ``values.`` before
    it. A cell without a value is empty, and so is one whose value is no finite number. Lists and mappings are JSON. No
    text is a formula (see ``csv_text``).
    """
    columns = value_columns(report)
    with atomic_write(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *map(csv_text, columns.values())])
        for record in report.records:
            data = record.to_dict()
            values = (record.values.get(name) for name in columns)
            writer.writerow([*(_csv_cell(data[name]) for name in COLUMNS), *map(_csv_cell, values)])


def value_columns(report: Report) -> dict[str, str]:
    """Map the names of the samples' values to their columns, in the order in which they are shown."""
    names = sorted({name for record in report.records for name in record.values}, key=shown_order)
    return {name: f"values.{name}" if name in COLUMNS else name for name in names}


def _csv_cell(value: JSON) -> JSON:
    if isinstance(value, str):
        return csv_text(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return csv_text(_ENCODER.encode(value)) if value else None


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


_BATCH = 5_000
"""The most samples that are held at once."""

_FLOATS = ("chance", "seconds", "cost")
_INTEGERS = ("num_prompt_tokens", "num_tokens", "num_truncated")
_OTHERS = (*_FLOATS, *_INTEGERS, "no_answer")
"""Columns that are no text."""


def write_parquet(report: Report, path: Path) -> None:
    """Write one row for each sample as Parquet, with the columns of the CSV report; those of values are float64.

    Lists and mappings are JSON, as in the CSV report, and so is a target that is no text; lone surrogates are escaped.
    Raise ``LLMEvalError`` if pyarrow is not installed or refuses a value, or if the file cannot be written.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise LLMEvalError(
            "Parquet needs pyarrow, which is not installed: pip install 'pytest-llmeval-suites[datasets]'"
        ) from None
    columns = value_columns(report)
    kinds = {
        **dict.fromkeys(_FLOATS, pyarrow.float64()),
        **dict.fromkeys(_INTEGERS, pyarrow.int64()),
        "no_answer": pyarrow.bool_(),
    }
    schema = pyarrow.schema(
        [(name, kinds.get(name, pyarrow.string())) for name in COLUMNS]
        + [(encodable(column), pyarrow.float64()) for column in columns.values()]
    )
    with atomic_path(path) as file:
        try:
            with pyarrow.parquet.ParquetWriter(str(file), schema) as writer:
                records = iter(report.records)
                while rows := [_row(record, columns) for record in islice(records, _BATCH)]:
                    writer.write_table(pyarrow.Table.from_pylist(rows, schema))
        except (pyarrow.ArrowException, OverflowError) as error:
            if isinstance(error, OSError):
                raise
            reason = printable(str(error))
            raise LLMEvalError(
                f"cannot write {path}: a value does not fit into a column of Parquet: {reason}"
            ) from None


def _row(record: Record, columns: dict[str, str]) -> dict[str, Any]:
    data = record.to_dict()
    row = {name: _parquet_cell(name, data[name]) for name in COLUMNS}
    return row | {encodable(columns[metric]): value for metric, value in record.values.items()}


def _parquet_cell(name: str, value: JSON) -> JSON:
    if value is None or name in _OTHERS:
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list | tuple | dict) and not value:
        return None
    return json.dumps(value, default=str)
