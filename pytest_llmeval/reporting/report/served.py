"""Notes and problems about the models that servers name as the authors of replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_llmeval.reporting.report.report import Report, SuiteReport, use_of_model
from pytest_llmeval.text.model_names import plain_name
from pytest_llmeval.types import JSON, ServerUse

__all__ = ["changed_judge", "fingerprint_texts", "mixtures", "served_notes"]


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
