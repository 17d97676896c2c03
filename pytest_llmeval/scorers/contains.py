"""The reply holds one or all of the targets, after the same normalisations of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pytest_llmeval.scorers.exact import Normalizations, NormalizingScorer, checked_steps, shown_steps
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import right_or_wrong
from pytest_llmeval.types import Score

__all__ = ["ContainsScorer", "ContainsSettings"]


class ContainsSettings(ScorerSettings):
    """The reply contains one of the targets, or all of them."""

    kind: Literal["contains"] = "contains"
    match: Literal["any", "all"] = Field("any", description="How many of the targets the reply has to contain.")
    normalize: Normalizations = Field(
        (), description="Steps applied to the reply and to the targets, in this order, before they are compared."
    )

    def make(self) -> ContainsScorer:
        return ContainsScorer(self, checked_steps(self.kind, self.normalize))


class ContainsScorer(NormalizingScorer[ContainsSettings]):
    """A scorer that is right if the normalised reply holds a normalised target, or all of them."""

    def _check_empty(self, target: str) -> None:
        after = f" after {shown_steps(self.steps)}" if target else ""
        raise ValueError(f"nothing is left of target {quote(target)}{after}: every reply would contain it")

    def _judged(self, bare: str, pairs: Sequence[tuple[str, str]]) -> Score:
        """Judge a reply; an empty one is no answer. The answer is what it holds of the targets, else all of it."""
        found = [reference for text, reference in pairs if reference in text]
        correct = len(found) == len(pairs) if self.settings.match == "all" else bool(found)
        return right_or_wrong(correct, ", ".join(found) or bare or None, details={"found": [*found]})
