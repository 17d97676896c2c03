"""Compares long texts in a process of its own (see ``bounded_worker.py``), by scorers of texts with their settings."""

from __future__ import annotations

import json
from typing import Any

from pytest_llmeval.scorers import ONE_SCORER
from pytest_llmeval.scorers.reading.reference_texts import LibraryScorer, TooLongError

_SCORERS: dict[str, LibraryScorer[Any]] = {}


def services() -> dict[str, Any]:
    """Return the service ``values``: the numbers of a text by its references, by a scorer with these settings."""
    return {"values": _values}


def prepare(service: str, arguments: dict[str, Any]) -> None:
    """Load the scorer's libraries, which is no part of the time that a comparison may take."""
    if arguments["data_folders"]:
        import nltk.data

        nltk.data.path = arguments["data_folders"]
    key = json.dumps(arguments["settings"])
    if key not in _SCORERS:
        kind, settings = arguments["settings"]
        scorer = ONE_SCORER[kind].model_validate(settings).make()
        assert isinstance(scorer, LibraryScorer)
        scorer.values("word", ["word"])
        _SCORERS[key] = scorer


def _values(settings: Any, text: str, references: list[str], data_folders: list[str]) -> dict[str, Any]:
    try:
        return {"values": dict(_SCORERS[json.dumps(settings)].values(text, references))}
    except TooLongError as error:
        return {"too_long": str(error)}
