"""The replies of a report to the samples of a suite, for a scorer that compares with them those of now."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from pytest_llmeval.reporting.report.groups import compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.types import EarlierReply, Sample

if TYPE_CHECKING:
    from pytest_llmeval.suites.loading.suite import Suite

__all__ = ["REPLIES", "earlier_replies", "replies_identity"]

REPLIES = "baseline"
"""Among the parts of a fingerprint: whose replies those of a suite are compared with."""


def earlier_replies(report: Report, found: SuiteReport, suite: Suite) -> dict[str, EarlierReply]:
    """What ``found`` in the report has of each sample of ``suite``, by id. A sample that it has not, has no reply.

    A reply to another question under the same id has a problem.
    """
    # What reads suites takes long to import, and a comparison of two saved reports needs the rest of this module only.
    from pytest_llmeval.evaluation.fingerprints import fingerprint_parts

    compared = compared_models(report)
    group = group_of_suite(found, compared)
    samples = {sample.id: sample for sample in suite.samples}
    are_same = found.info.fingerprint_parts.get("questions") == fingerprint_parts(suite, None)["questions"]
    replies = dict.fromkeys(samples, EarlierReply())
    for record in report.records:
        if record.id in samples and group_of_record(record, compared) == group:
            problem = None if are_same else _other_question(record, samples[record.id])
            replies[record.id] = EarlierReply(record.output, problem)
    return replies


def _other_question(record: Record, sample: Sample) -> str | None:
    """Why it is not known that a record is of this question."""
    if record.question and record.question == sample.question:
        return None
    if record.question and sample.question:
        return "the baseline has another question under this id"
    return "the questions have changed since the baseline, and it does not say what it asked here"


def replies_identity(report: Report, found: SuiteReport) -> str:
    """What tells the replies of a suite in a report from those of another report, SHA-256 in hexadecimal.

    Not of the texts: what is compared with a saved report has left those on disk.
    """
    known = [report.created, found.info.name, found.info.fingerprint, list(found.models)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()
