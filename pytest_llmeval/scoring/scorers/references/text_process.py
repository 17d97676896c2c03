"""The process that compares long texts, with a bound on time: what exceeds it costs one sample."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pytest_llmeval.scoring.processes.bounded_process import BoundedProcess, Bounds
from pytest_llmeval.suites.format.score_settings.texts import ReferenceSettings

__all__ = ["TextTooLongError", "values_in_time"]


class TextTooLongError(Exception):
    """What a scorer refuses to compare; the text says why."""


def values_in_time(settings: ReferenceSettings, text: str, references: Sequence[str]) -> Mapping[str, float]:
    """The numbers that the scorer with these settings gives a text.

    ``ProcessError`` where that took longer than ``settings.timeout_s``; ``TextTooLongError`` where the scorer refused.
    """
    written = [settings.kind, settings.model_dump(mode="json", exclude={"kind"})]
    arguments = {"settings": written, "text": text, "references": list(references), "data_folders": _data_folders()}
    bounds = Bounds(settings.timeout_s, None, f"score.{settings.kind}")
    answer = _shared_process().compute("values", arguments, bounds)
    if "too_long" in answer:
        raise TextTooLongError(answer["too_long"])
    values: dict[str, float] = answer["values"]
    return values


def _data_folders() -> list[str]:
    """Where nltk looks for its data, to which a conftest.py may have added a folder; empty if it was not imported."""
    module = sys.modules.get("nltk.data")
    return [] if module is None else [os.path.abspath(str(folder)) for folder in module.path if folder]


@cache
def _shared_process() -> BoundedProcess:
    """The one of this process, as for mathematics: it holds no result."""
    return BoundedProcess(lambda: str(Path(__file__).parents[2] / "text_worker.py"), "compares texts")
