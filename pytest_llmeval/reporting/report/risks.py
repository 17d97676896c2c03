"""Risk and coverage: how often a suite's most confident answers are wrong, from the records of a report."""

from __future__ import annotations

import math
from array import array

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    Group,
    Report,
    SuiteReport,
    compared_models,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.scoring.metrics.calibration import RiskCoverage, RiskPoint, confidence_pair, risk_coverage, risks_at

__all__ = ["RiskReader", "points_with_intervals", "risk_curves"]


class RiskReader:
    """Collects the confidence and the right or wrong of each record, in suites whose scorer gives probabilities."""

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
        """Return the curve of each suite that has one, by ``id(suite)``, since suites cannot be hashed."""
        found = {}
        for suite in self._suites:
            curve = risk_coverage(zip(*self._held[group_of_suite(suite, self._compared)], strict=True))
            if curve is not None and math.isfinite(curve.aurc):
                found[id(suite)] = curve
        return found


def risk_curves(report: Report) -> dict[int, RiskCoverage]:
    """Return the curves of ``RiskReader``; the records are read once, if a suite has such a curve."""
    reader = RiskReader(report)
    if reader.needs_records:
        for record in report.records:
            reader.add(record)
    return reader.curves()


def points_with_intervals(suite: SuiteReport, curve: RiskCoverage) -> list[RiskPoint]:
    """Return the curve at ten coverages; none if samples lie in clusters: the interval needs independent samples."""
    return risks_at(curve) if suite.info.cluster is None else []
