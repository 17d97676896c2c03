"""Translation edit rate of a reply against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.libraries import require
from pytest_llmeval.scoring.reference_scorer import ReferenceScorer
from pytest_llmeval.scoring.translation import ter_counts, ter_of
from pytest_llmeval.suites.score_settings.texts import TerSettings

__all__ = ["TerScorer"]


@dataclass(frozen=True, slots=True)
class TerScorer(ReferenceScorer):
    """Corpus TER and the mean of the samples' TER: the lower the better."""

    settings: TerSettings

    @classmethod
    def of(cls, settings: TerSettings) -> TerScorer:
        """``ValueError`` where sacrebleu is not installed."""
        require("ter", "sacrebleu", package="sacrebleu", extra="metrics")
        return cls(settings)

    @property
    def name(self) -> str:
        return "ter"

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("ter", "sentence_ter", "no_answer")

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The sample's own TER, and the edits and lengths that the corpus's is made of."""
        counts = ter_counts(
            text,
            references,
            normalized=self.settings.normalized,
            no_punct=self.settings.no_punct,
            asian_support=self.settings.asian_support,
            case_sensitive=self.settings.case_sensitive,
        )
        return {"sentence_ter": ter_of(tuple(counts.values())), **counts}
