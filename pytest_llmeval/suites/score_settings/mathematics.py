"""Settings of the scorer of mathematical answers."""

from __future__ import annotations

from typing import Literal

from pytest_llmeval.suites.spec import Spec

__all__ = ["MathSettings"]


class MathSettings(Spec):
    """The final mathematical expression of the reply equals that of the target."""

    kind: Literal["math"] = "math"
