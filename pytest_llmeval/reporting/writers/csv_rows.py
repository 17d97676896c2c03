"""Reports for spreadsheets: one row for a sample."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.scoring.metrics.definitions import shown_order
from pytest_llmeval.text.escaping import csv_text
from pytest_llmeval.types import JSON

__all__ = ["COLUMNS", "value_columns", "write_csv"]

COLUMNS = (
    *("suite", "model", "id", "category", "cluster", "status", "answer", "target", "no_answer", "chance"),
    *("num_prompt_tokens", "num_tokens", "seconds", "cost"),
    *("question", "choices", "prompt", "output", "reason", "details", "nodeid", "fingerprint"),
    *("reasoning", "num_truncated"),
)
"""Fields of a record that are columns, before those of its values."""


def write_csv(report: Report, path: Path) -> None:
    """Write one row for each sample: RFC 4180, in UTF-8, with a head. Raises ``ReportError``.

    A sample's values follow ``COLUMNS`` under the metrics' names; one with the name of a column has ``values.`` before
    it. Cells of no value, and of values that are no finite number, are empty. Lists and mappings are JSON. No text is a
    formula (see ``csv_text``).
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
    """The columns of the samples' values, by the names of these, in the order in which they are shown."""
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
