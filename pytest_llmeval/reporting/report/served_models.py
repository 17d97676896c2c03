"""Replies in a report: the models that servers name as their authors, and a baseline's replies for a scorer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    Report,
    SuiteReport,
    compared_models,
    group_of_record,
    group_of_suite,
    use_of_model,
)
from pytest_llmeval.text.names import plain_name
from pytest_llmeval.types import JSON, EarlierReply, Sample, ServerUse

if TYPE_CHECKING:
    from pytest_llmeval.suites.loading.suite import Suite

__all__ = [
    "REPLIES",
    "changed_judge",
    "earlier_replies",
    "fingerprint_texts",
    "mixtures",
    "replies_identity",
    "served_notes",
]


def mixtures(models: Iterable[Mapping[str, JSON]]) -> Iterator[str]:
    """Yield a problem for each of ``Report.models`` or ``judges`` in whose place several models answered."""
    for who, use in _uses(models):
        if len(use.served_models) > 1:
            names = " and of ".join(sorted(use.served_models))
            yield f"the replies of {who} are of {names}, as the server says: its numbers mix models"


def fingerprint_texts(models: Iterable[Mapping[str, JSON]]) -> Iterator[str]:
    """Yield a text for each model whose ``system_fingerprint`` changed in the run."""
    for who, use in _uses(models):
        if len(use.system_fingerprints) > 1:
            counts = ", ".join(f"{name} ({count:,} replies)" for name, count in use.system_fingerprints.items())
            yield f"the system_fingerprint of {who} changed in the run: {counts}"


def served_notes(suite: SuiteReport, report: Report, baseline: Report | None) -> list[str]:
    """Return the notes of a gate: changes of the models that gave the suite's replies and verdicts."""
    own = [*_answering(suite, report)]
    notes = [*fingerprint_texts(own)]
    if baseline is None:
        return notes
    before = _by_name([*baseline.models, *baseline.judges])
    for who, use in _uses(own):
        then = before.get(who)
        if then is not None:
            notes += _changes(who, "system_fingerprint", then.system_fingerprints, use.system_fingerprints)
            notes += _changes(who, "model", then.served_models, use.served_models)
    return notes


def changed_judge(suite: SuiteReport, report: Report, baseline: Report) -> str | None:
    """Return a text if a judge or embedder of the suite is now another model than in the baseline, or None."""
    if not suite.num_judge_requests:
        return None
    before = _by_name(baseline.judges)
    found = (
        _changes(who, "model", before[who].served_models, use.served_models)
        for who, use in _uses(report.judges)
        if who in before and use.served_models
    )
    changes = [text for texts in found for text in texts]
    return f"another judge: {'; '.join(changes)}" if changes else None


def _answering(suite: SuiteReport, report: Report) -> Iterator[Mapping[str, JSON]]:
    yield from (model for model in report.models if model.get("name") in suite.models)
    if suite.num_judge_requests:
        yield from report.judges


def _uses(models: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ServerUse]]:
    """Yield the name and the use of each model behind a server."""
    for model in models:
        if (use := use_of_model(model)) is not None:
            name = plain_name(str(model["name"]))
            yield f"the {model['role']} {name}" if "role" in model else name, use


def _by_name(models: Iterable[Mapping[str, JSON]]) -> dict[str, ServerUse]:
    return dict(_uses(models))


def _changes(who: str, what: str, then: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    if not then or then.keys() == now.keys():
        return []
    is_now = f" and is {' and '.join(now)}" if now else ", and now it names none"
    return [f"the {what} of {who}, as the server says, was {' and '.join(then)}{is_now}"]


REPLIES = "baseline"
"""The part of a fingerprint that tells whose replies those of the suite are compared with."""


def earlier_replies(report: Report, found: SuiteReport, suite: Suite) -> dict[str, EarlierReply]:
    """Return the reply in a report (``found`` is its suite) to each sample of ``suite``, by the sample's id.

    A sample that the report lacks has no reply. A reply to another question under the same id has a problem.
    """
    # What reads suites takes long to import, and a comparison of two saved reports needs the rest of this module only.
    from pytest_llmeval.evaluation.fingerprints import questions_hash

    compared = compared_models(report)
    group = group_of_suite(found, compared)
    samples = {sample.id: sample for sample in suite.samples}
    are_same = found.info.fingerprint_parts.get("questions") == questions_hash(suite)
    replies = dict.fromkeys(samples, EarlierReply())
    for record in report.records:
        if record.id in samples and group_of_record(record, compared) == group:
            problem = None if are_same else _other_question(record, samples[record.id])
            replies[record.id] = EarlierReply(record.output, problem)
    return replies


def _other_question(record: Record, sample: Sample) -> str | None:
    """Return the reason why a record may be about another question than this one, or None."""
    if record.question and record.question == sample.question:
        return None
    if record.question and sample.question:
        return "the baseline has another question under this id"
    return "the questions have changed since the baseline, and it does not say what it asked here"


def replies_identity(report: Report, found: SuiteReport) -> str:
    """Return a hash that tells a report's replies to the suite from those of other reports (SHA-256, hexadecimal).

    It does not hash the texts: when saved reports are compared, these have been left on disk.
    """
    known = [report.created, found.info.name, found.info.fingerprint, list(found.models)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()
