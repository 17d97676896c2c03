"""Risk over coverage of a report's suites, from the confidences of their samples."""

from __future__ import annotations

import math
from array import array

from pytest_llmeval.reporting.report.groups import Group, compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.scoring.metrics.risk_coverage import (
    RiskCoverage,
    RiskPoint,
    confidence_pair,
    risk_coverage,
    risks_at,
)

__all__ = ["RiskReader", "points_with_intervals", "risk_curves"]


class RiskReader:
    """Takes two numbers of each record of a suite whose scorer gives probabilities."""

    def __init__(self, report: Report) -> None:
        self._compared = compared_models(report)
        self._suites = [suite for suite in report.suites if suite.reliability]
        self._held: dict[Group, tuple[array[float], array[float]]] = {
            group_of_suite(suite, self._compared): (array("d"), array("d")) for suite in self._suites
        }

    @property
    def needs_records(self) -> bool:
        return bool(self._held)

    def add(self, record: Record) -> None:
        pair = confidence_pair(record.status, record.values) if self._held else None
        own = self._held.get(group_of_record(record, self._compared))
        if pair is not None and own is not None:
            for numbers, value in zip(own, pair, strict=True):
                numbers.append(value)

    def curves(self) -> dict[int, RiskCoverage]:
        """The curve of each suite that has one, by the suite's identity (``id``)."""
        found = {}
        for suite in self._suites:
            curve = risk_coverage(zip(*self._held[group_of_suite(suite, self._compared)], strict=True))
            if curve is not None and math.isfinite(curve.aurc):
                found[id(suite)] = curve
        return found


def risk_curves(report: Report) -> dict[int, RiskCoverage]:
    """Those of ``RiskReader``; reads the records once, where a suite has such a curve."""
    reader = RiskReader(report)
    if reader.needs_records:
        for record in report.records:
            reader.add(record)
    return reader.curves()


def points_with_intervals(suite: SuiteReport, curve: RiskCoverage) -> list[RiskPoint]:
    """The curve at ten coverages; none where samples lie in clusters, as the interval is of independent ones."""
    return risks_at(curve) if suite.info.cluster is None else []
