"""BLEU of a reply against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from pytest_llmeval.scoring.metrics.sacrebleu_sums import bleu, bleu_counts, sentence_bleu
from pytest_llmeval.scoring.scorers.references.reference_scorer import LibraryScorer
from pytest_llmeval.scoring.scorers.references.scripts import bleu_warning
from pytest_llmeval.suites.format.score_settings.texts import BleuSettings
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import Sample

__all__ = ["BleuScorer"]


class BleuScorer(LibraryScorer[BleuSettings]):
    """Corpus BLEU and the mean of the samples' BLEU, for each of the orders that the suite names."""

    @classmethod
    def of(cls, settings: BleuSettings) -> Self:
        """``ValueError`` where sacrebleu, or what a tokenizer of it needs, is not installed."""
        scorer = super().of(settings)
        if settings.tokenize in ("ja-mecab", "ko-mecab"):
            try:
                bleu(max(settings.k), settings.tokenize, settings.lowercase)
            except (ImportError, RuntimeError) as error:
                raise ValueError(
                    f"score.bleu.tokenize: {settings.tokenize} cannot be used: {' '.join(str(error).split())}"
                ) from None
        return scorer

    @property
    def metrics(self) -> tuple[str, ...]:
        """The highest order first: it is the one that is usually quoted."""
        orders = sorted(self.settings.k, reverse=True)
        return (*(f"bleu_{k}" for k in orders), *(f"sentence_bleu_{k}" for k in orders), "no_answer")

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        """References without words, as its tokenizer finds them."""
        message = bleu_warning(self.settings.tokenize, samples)
        return [] if message is None else [(message, ())]

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The samples' own BLEU, and the counts that the corpus's is made of."""
        counts = bleu_counts(text, references, self.settings)
        return {**{f"sentence_bleu_{k}": sentence_bleu(counts, k) for k in self.settings.k}, **counts}
