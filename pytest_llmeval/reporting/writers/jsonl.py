"""Reports for programs that read line by line: one record a line, without a head."""

from __future__ import annotations

from pathlib import Path

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.json_report import record_to_json

__all__ = ["write_jsonl"]


def write_jsonl(report: Report, path: Path) -> None:
    """Write each record as one line of ASCII JSON, as the JSON report has it. Raises ``ReportError``."""
    with atomic_write(path) as file:
        file.writelines(record_to_json(record) + "\n" for record in report.records)
