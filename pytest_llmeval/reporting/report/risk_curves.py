"""Risk over coverage of a report's suites, from the confidences of their samples."""

from __future__ import annotations

import math
from array import array

from pytest_llmeval.reporting.report.groups import Group, compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.scoring.metrics.risk_coverage import (
    RiskCoverage,
    RiskPoint,
    confidence_pair,
    risk_coverage,
    risks_at,
)

__all__ = ["points_with_intervals", "risk_curves"]


def risk_curves(report: Report) -> dict[int, RiskCoverage]:
    """The curve of each suite whose scorer gives probabilities, by the suite's identity (``id``).

    Reads the records once, where there is such a suite, and keeps two numbers of each.
    """
    suites = [suite for suite in report.suites if suite.reliability]
    if not suites:
        return {}
    compared = compared_models(report)
    held: dict[Group, tuple[array[float], array[float]]] = {}
    for suite in suites:
        held[group_of_suite(suite, compared)] = array("d"), array("d")
    for record in report.records:
        pair = confidence_pair(record.status, record.values)
        if pair is not None and (own := held.get(group_of_record(record, compared))) is not None:
            for numbers, value in zip(own, pair, strict=True):
                numbers.append(value)
    found = {}
    for suite in suites:
        curve = risk_coverage(zip(*held[group_of_suite(suite, compared)], strict=True))
        if curve is not None and math.isfinite(curve.aurc):
            found[id(suite)] = curve
    return found


def points_with_intervals(suite: SuiteReport, curve: RiskCoverage) -> list[RiskPoint]:
    """The curve at ten coverages; none where samples lie in clusters, as the interval is of independent ones."""
    return risks_at(curve) if suite.info.cluster is None else []
