"""What a session has reused of its store, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from pytest_llmeval.reporting.report.report import Report, StoreUse
from pytest_llmeval.text.quantities import time_text

__all__ = ["store_texts"]


_WITHOUT_NEED = ("replay", "guessing")
"""Backends that have their answers at hand."""


def store_texts(report: Report) -> Iterator[str]:
    """How many samples the store answered, how old their replies are, and what is odd. Not yet ``printable``."""
    store = report.store
    if store is None or not store.num_samples:
        return
    text = f"store {store.folder}: {store.num_reused:,} of {store.num_samples:,} samples reused"
    if store.oldest is not None and store.newest is not None:
        ages = list(dict.fromkeys(_age(report.created, asked_at) for asked_at in (store.newest, store.oldest)))
        text += f", asked {' to '.join(ages)} before this session; times and speed were measured then"
    yield text
    if flaws := "; ".join(_flaws(store)):
        yield f"store {store.folder}: {flaws}"
    for model in (*report.models, *report.judges):
        details = model.get("details")
        stored = details.get("store") if isinstance(details, Mapping) else None
        name = f"{model['role']} {model['name']}" if "role" in model else str(model["name"])
        if stored is None and model.get("backend") not in (*_WITHOUT_NEED, None):  # None: an older report's judge
            yield f"store: {name}: is not asked through the store"
        elif isinstance(stored, str) and "not reused" in stored:
            yield f"store: {name}: {stored}; --llm-store-max-age 7d reuses those of the last 7 days"
    if store.problem is not None:
        yield f"store: replies could no longer be kept: {store.problem}"


def _flaws(store: StoreUse) -> Iterator[str]:
    if number := store.num_unreadable:
        yield f"{number:,} {'file' if number == 1 else 'files'} cannot be read ({store.why_unreadable})"
    if number := store.num_damaged:
        lines, them = ("line is", "it") if number == 1 else ("lines are", "them")
        yield f"{number:,} damaged {lines} not used, llmeval store compact removes {them}"


def _age(created: str, asked_at: str) -> str:
    """Of a reply at the start of the session; nothing where one of the two is no time."""
    try:
        return time_text(max(0.0, (datetime.fromisoformat(created) - datetime.fromisoformat(asked_at)).total_seconds()))
    except (TypeError, ValueError):
        return asked_at
