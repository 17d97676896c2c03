"""What a comparison needs of a report's records: read once each, and kept small."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pytest_llmeval.reporting.report.groups import Group, compared_models, group_of_record
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.types import Score

__all__ = ["KeptRecord", "kept_records"]


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record's judgement with the values that are compared, its fingerprint and its cluster."""

    score: Score
    fingerprint: str | None
    cluster: str | None


def kept_records(report: Report, needed: Mapping[Group, Collection[str]]) -> dict[Group, dict[str, KeptRecord]]:
    """The records of the groups, by sample id; ``needed`` gives the names of the values to keep of each group's.

    The report's records are gone through once, and need not be in memory.
    """
    compared = compared_models(report)
    kept: dict[Group, dict[str, KeptRecord]] = {group: {} for group in needed}
    for record in report.records:
        group = group_of_record(record, compared)
        if group in kept:
            values = {name: record.values[name] for name in needed[group] if name in record.values}
            score = Score(status=record.status, values=values, not_measurable=record.not_measurable)
            kept[group][record.id] = KeptRecord(score, record.fingerprint, record.cluster)
    return kept
