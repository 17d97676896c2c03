"""Writes reports: one JSON document with a schema version, one record a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Averages, Comparison, Report, SuiteReport, Summary
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.disk_records import DiskRecords
from pytest_llmeval.scoring.metrics.summary import Metric, why_no_interval
from pytest_llmeval.types import JSON

__all__ = ["finite", "head_to_json", "record_to_json", "write_report"]


def write_report(report: Report, path: Path) -> None:
    """Write the report: ``path`` holds the old content or all of the new, never a part. Raises ``ReportError``.

    Records are taken one by one, so that they may lie on disk.
    """
    with atomic_write(path) as file:
        file.writelines(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    """The report as JSON, one record a line: ``read.py`` reads it line by line."""
    yield json.dumps(head_to_json(report), indent=1).removesuffix("\n}") + ',\n "records": ['
    records = report.records
    texts = records.texts(record_to_json) if isinstance(records, DiskRecords) else map(record_to_json, records)
    for place, text in enumerate(texts):
        yield ("," if place else "") + "\n  " + text
    yield "\n ]\n}\n"


def head_to_json(report: Report) -> dict[str, JSON]:
    """All of the report but its records. A number that JSON cannot hold (an infinite loglikelihood) is null."""
    return {
        "schema": report.schema,
        "created": report.created,
        "seconds": finite(report.seconds),
        "exit_code": report.exit_code,
        "num_failed_tests": report.num_failed_tests,
        "stopped": report.stopped,
        "problems": list(report.problems),
        "environment": finite(report.environment),
        "models": finite(report.models),
        "options": finite(report.options),
        "collected": finite(report.collected),
        "definitions": finite(report.definitions),
        "suites": finite([_suite_to_json(suite) for suite in report.suites]),
        "comparisons": finite([_comparison_to_json(comparison) for comparison in report.comparisons]),
        "averages": finite([_averages_to_json(averages) for averages in report.averages]),
        "gates": finite([gate.to_dict() for gate in report.gates]),
    }


def record_to_json(record: Record) -> str:
    """The record as one line of ASCII JSON. A number that JSON cannot hold is null."""
    values = record.to_dict()
    try:
        return _STRICT.encode(values)
    except (TypeError, ValueError):
        return json.dumps(finite(values))


_STRICT = json.JSONEncoder(allow_nan=False)


def _suite_to_json(suite: SuiteReport) -> dict[str, JSON]:
    return {
        **suite.info.to_dict(),
        **_summary_to_json(suite.summary),
        "categories": {name: _summary_to_json(summary) for name, summary in suite.categories.items()},
        "macro": _metrics_to_json(suite.macro),
        "num_skipped": suite.num_skipped,
        "models": list(suite.models),
        "num_prompt_tokens": suite.num_prompt_tokens,
        "num_tokens": suite.num_tokens,
        "seconds": suite.seconds,
        "engine": None if suite.engine is None else asdict(suite.engine),
        "reliability": None if suite.reliability is None else [part.to_dict() for part in suite.reliability],
        "latency": None if suite.latency is None else suite.latency.to_dict(),
        "tokens_per_second": None if suite.tokens_per_second is None else suite.tokens_per_second.to_dict(),
        "phases": None if suite.phases is None else asdict(suite.phases),
    }


def _comparison_to_json(comparison: Comparison) -> dict[str, JSON]:
    return {
        "suite": comparison.suite,
        "first": comparison.first,
        "second": comparison.second,
        "differences": {name: difference.to_dict() for name, difference in comparison.differences.items()},
    }


def _averages_to_json(averages: Averages) -> dict[str, JSON]:
    return {
        "model": averages.model,
        "macro": _metrics_to_json(averages.macro),
        "micro": _metrics_to_json(averages.micro),
        "unlike": finite(averages.unlike),
    }


def _summary_to_json(summary: Summary) -> dict[str, JSON]:
    return {
        "num_expected": summary.num_expected,
        "num_scored": summary.num_scored,
        "num_unscored": summary.num_unscored,
        "num_no_answer": summary.num_no_answer,
        "metrics": _metrics_to_json(summary.metrics),
        "not_measurable": finite(summary.not_measurable),
    }


def _metrics_to_json(metrics: Mapping[str, Metric]) -> dict[str, JSON]:
    return {name: _metric_to_json(metric) for name, metric in metrics.items()}


def _metric_to_json(metric: Metric) -> dict[str, JSON]:
    why = why_no_interval(metric) if metric.ci_low is None else None
    return {**metric.to_dict(), **({} if why is None else {"no_interval": why})}


def finite(value: object) -> JSON:
    """``value`` as JSON, lists for tuples and null for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
