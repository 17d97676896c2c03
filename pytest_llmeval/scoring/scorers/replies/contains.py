"""The reply holds one of the targets, or all of them, after the same normalisations of both."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmeval.scoring.scorers.replies.exact import NormalizingScorer, shown_steps
from pytest_llmeval.scoring.scorers.responses import right_or_wrong
from pytest_llmeval.scoring.targets import quote
from pytest_llmeval.suites.format.score_settings.replies import ContainsSettings
from pytest_llmeval.types import Score

__all__ = ["ContainsScorer"]


class ContainsScorer(NormalizingScorer[ContainsSettings]):
    """Right if the normalised reply holds a normalised target, or all of them."""

    def _check_empty(self, target: str) -> None:
        after = f" after {shown_steps(self.steps)}" if target else ""
        raise ValueError(f"nothing is left of target {quote(target)}{after}: every reply would contain it")

    def _judged(self, text: str, references: Sequence[str]) -> Score:
        """An empty reply is no answer. The answer is what was found of the targets, else the whole reply."""
        found = [reference for reference in references if reference in text]
        correct = len(found) == len(references) if self.settings.match == "all" else bool(found)
        return right_or_wrong(correct, ", ".join(found) or text or None, details={"found": [*found]})
