"""chrF and chrF++ of a reply against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmeval.scoring.metrics.sacrebleu_sums import CHRF_NAMES, chrf_counts, sentence_chrf
from pytest_llmeval.scoring.scorers.references.reference_scorer import LibraryScorer
from pytest_llmeval.suites.format.score_settings.texts import ChrfSettings

__all__ = ["ChrfScorer"]


class ChrfScorer(LibraryScorer[ChrfSettings]):
    """Corpus chrF and the mean of the samples' chrF, for each order of words that the suite names."""

    @property
    def metrics(self) -> tuple[str, ...]:
        names = [CHRF_NAMES[order] for order in self.settings.word_order]
        return (*names, *(f"sentence_{name}" for name in names), "no_answer")

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The sample's own chrF, and the counts that the corpus's is made of."""
        values: dict[str, float] = {}
        for order in self.settings.word_order:
            counts = chrf_counts(text, references, self.settings, order)
            values |= {f"sentence_{CHRF_NAMES[order]}": sentence_chrf(counts, order), **counts}
        return values
