"""Where a session ran: versions of what its numbers can depend on."""

from __future__ import annotations

import platform
from importlib import metadata

from pytest_llmeval.types import JSON

__all__ = ["describe_environment"]

_VERSIONED = (
    *("pytest-llmeval-suites", "pytest", "pytest-xdist"),
    *("torch", "transformers", "tokenizers", "peft"),
    *("sacrebleu", "rouge-score", "nltk", "math-verify"),
)
"""Distributions that decide what a model answers, or what number an answer gets."""


def describe_environment() -> dict[str, JSON]:
    """Versions of what a number can depend on, read without importing any of it."""
    versions: dict[str, JSON] = {}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "platform": platform.platform(), "versions": versions}
