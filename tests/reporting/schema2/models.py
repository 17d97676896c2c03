"""A judge and a model for the suites of this folder, whose replies never change."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pytest_llmeval.types import GenerateRequest, GenerateResponse, ModelIdentity

__all__ = ["Fixed", "Judge", "function"]


class Fixed:
    """Answers every question with the number that it ends with."""

    identity = ModelIdentity(name="fixed", backend="models.py", fingerprint="fixed, version 1")

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        """A reply for each request."""
        return [GenerateResponse(text=function(str(request.prompt))) for request in requests]


def function(prompt: str) -> str:
    """Return the last word of the prompt."""
    return prompt.split()[-1]


class Judge:
    """Finds every reply right."""

    identity = ModelIdentity(name="judge", backend="models.py", fingerprint="judge, version 1")
    answers_one_by_one = True

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        """A verdict for each request."""
        return [GenerateResponse(text=json.dumps({"reason": "It is.", "equivalent": True})) for _ in requests]
