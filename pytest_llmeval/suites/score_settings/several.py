"""Settings of several scorers on one reply."""

from __future__ import annotations

from typing import Literal

from pytest_llmeval.suites.spec import Spec

__all__ = ["SeveralSettings"]


class SeveralSettings(Spec):
    """Several scorers judge one reply; the first decides whether it is right."""

    kind: Literal["several"] = "several"
