"""Translation edit rate of a reply against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.metrics.sacrebleu_sums import ter_counts, ter_of, ter_words
from pytest_llmeval.scoring.scorers.references.libraries import require
from pytest_llmeval.scoring.scorers.references.reference_scorer import LibraryScorer, TooLongError
from pytest_llmeval.suites.format.score_settings.texts import TerSettings

__all__ = ["TerScorer"]

MAX_PAIRS = 400_000
"""Words of the reply times words of a reference: TER takes some ten seconds for as many, and for ten times as many
minutes.
"""


@dataclass(frozen=True, slots=True)
class TerScorer(LibraryScorer):
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
        """The sample's own TER, and the edits and lengths that the corpus's is made of.

        ``TooLongError`` for more than ``MAX_PAIRS`` words, as sacrebleu's tokenizer with these settings finds them.
        """
        TooLongError.check("TER", text, references, self._num_words, MAX_PAIRS)
        counts = ter_counts(
            text,
            references,
            normalized=self.settings.normalized,
            no_punct=self.settings.no_punct,
            asian_support=self.settings.asian_support,
            case_sensitive=self.settings.case_sensitive,
        )
        return {"sentence_ter": ter_of(tuple(counts.values())), **counts}

    def _num_words(self, text: str) -> int:
        settings = self.settings
        return len(
            ter_words(
                text,
                normalized=settings.normalized,
                no_punct=settings.no_punct,
                asian_support=settings.asian_support,
                case_sensitive=settings.case_sensitive,
            )
        )
