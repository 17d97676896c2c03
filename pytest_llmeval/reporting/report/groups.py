"""Which suite of a report a record belongs to: with several models, which model's too."""

from __future__ import annotations

from typing import TypeAlias

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport

__all__ = ["Group", "compared_models", "described_group", "group_of_record", "group_of_suite"]

Group: TypeAlias = tuple[str, str | None]
"""What numbers are taken over: a suite, and where several models were given one of them."""


def compared_models(report: Report) -> tuple[str, ...]:
    """The models of a session that was given several, in their order; none for a session of one."""
    models = report.options.get("model")
    return tuple(map(str, models)) if isinstance(models, list | tuple) and len(models) > 1 else ()


def group_of_record(record: Record, compared: tuple[str, ...]) -> Group:
    """The group that counts the record, in a report whose ``compared_models`` are these."""
    return record.suite, record.model if record.model in compared else None


def group_of_suite(suite: SuiteReport, compared: tuple[str, ...]) -> Group:
    """The group that the suite's numbers are taken over, in a report whose ``compared_models`` are these."""
    first = suite.models[0] if suite.models else None
    return suite.info.name, first if first in compared else None


def described_group(group: Group) -> str:
    suite, model = group
    return f"suite {suite!r}" if model is None else f"suite {suite!r} on {model}"
