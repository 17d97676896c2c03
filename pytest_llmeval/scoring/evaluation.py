"""The earlier place of ``Evaluation``."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("Evaluation", "Question", "QuestionMemory"):
        raise ImportError(f"{__name__}.{name} moved; write: from pytest_llmeval import Evaluation")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
