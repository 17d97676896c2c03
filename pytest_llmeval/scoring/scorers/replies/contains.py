"""The reply holds one of the targets, or all of them, after the same normalisations of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_llmeval.scoring.base import Presented, SettingsScorer
from pytest_llmeval.scoring.scorers.replies.exact import (
    compile_steps,
    normalized_reply,
    normalized_targets,
    shown_steps,
)
from pytest_llmeval.scoring.scorers.replies.regular_expressions import PythonRegex
from pytest_llmeval.scoring.targets import quote, several_or_one, target_texts
from pytest_llmeval.suites.format.score_settings.replies import ContainsSettings, Normalization
from pytest_llmeval.types import JSON, Response, Sample, Score

__all__ = ["ContainsScorer"]


@dataclass(frozen=True, slots=True)
class ContainsScorer(SettingsScorer[ContainsSettings]):
    """Right if the normalised reply holds a normalised target, or all of them. Made by ``of``."""

    steps: tuple[Normalization | PythonRegex, ...] = field(repr=False)

    @classmethod
    def of(cls, settings: ContainsSettings) -> ContainsScorer:
        """``SettingsError`` for a regular expression that cannot be used."""
        return cls(settings, compile_steps(settings.kind, settings.normalize))

    def present(self, sample: Sample) -> Presented:
        """A target is a text or a list of texts.

        ``ValueError`` for another kind of target, and for one of which nothing is left: every reply would hold it.
        """
        texts = target_texts(sample)
        references = normalized_targets(texts, self.steps)
        for text, reference in zip(texts, references, strict=True):
            if not reference:
                after = f" after {shown_steps(self.steps)}" if text else ""
                raise ValueError(f"nothing is left of target {quote(text)}{after}: every reply would contain it")
        return Presented(sample=sample, references=references, target=several_or_one(texts))

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy; an empty reply is no answer. The answer is what was found of the targets, else the whole reply."""
        text = normalized_reply(responses, self.steps)
        if isinstance(text, Score):
            return text
        found = [reference for reference in presented.references if reference in text]
        correct = len(found) == len(presented.references) if self.settings.match == "all" else bool(found)
        answer = ", ".join(found) or text
        shown: list[JSON] = [*found]
        return Score(
            status="correct" if correct else "wrong",
            answer=answer or None,
            no_answer=not answer,
            values={"accuracy": float(correct)},
            details={"found": shown},
        )
