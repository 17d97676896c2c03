"""A report's samples as a Parquet file."""

from __future__ import annotations

import json
import os
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.reporting.csv_report import COLUMNS
from pytest_llmeval.reporting.records import Record
from pytest_llmeval.reporting.report import Report
from pytest_llmeval.scoring.definitions import shown_order
from pytest_llmeval.types import JSON

__all__ = ["write_parquet"]

_BATCH = 5_000
"""Samples that are held at once."""

_FLOATS = ("chance", "seconds")
_INTEGERS = ("num_prompt_tokens", "num_tokens")


def write_parquet(report: Report, path: Path) -> None:
    """Write one row for each sample, with the columns of the CSV report; the values' are float64.

    Lists and mappings are JSON, as in the CSV report; lone surrogates are escaped. Needs pyarrow. Raises
    ``LLMEvalError`` where it is not installed, or the file cannot be written.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise LLMEvalError(
            "Parquet needs pyarrow, which is not installed: pip install 'pytest-llmeval-suites[datasets]'"
        ) from None
    names = sorted({name for record in report.records for name in record.values}, key=shown_order)
    columns = {name: f"values.{name}" if name in COLUMNS else name for name in names}
    kinds = {
        **dict.fromkeys(_FLOATS, pyarrow.float64()),
        **dict.fromkeys(_INTEGERS, pyarrow.int64()),
        "no_answer": pyarrow.bool_(),
    }
    schema = pyarrow.schema(
        [(name, kinds.get(name, pyarrow.string())) for name in COLUMNS]
        + [(_encoded(column), pyarrow.float64()) for column in columns.values()]
    )
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(descriptor)
        try:
            with pyarrow.parquet.ParquetWriter(temporary, schema) as writer:
                records = iter(report.records)
                while rows := [_row(record, columns) for record in islice(records, _BATCH)]:
                    writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror or error}") from None


def _row(record: Record, columns: dict[str, str]) -> dict[str, Any]:
    data = record.to_dict()
    row = {name: _cell(data[name]) for name in COLUMNS}
    return row | {_encoded(columns[name]): value for name, value in record.values.items()}


def _cell(value: JSON) -> JSON:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _encoded(value)
    return json.dumps(value, default=str) if value else None


def _encoded(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
