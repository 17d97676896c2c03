"""BLEU of a reply against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.metrics.sacrebleu_sums import bleu, bleu_counts, sentence_bleu
from pytest_llmeval.scoring.scorers.references.libraries import require
from pytest_llmeval.scoring.scorers.references.reference_scorer import LibraryScorer
from pytest_llmeval.suites.format.score_settings.texts import BleuSettings

__all__ = ["BleuScorer"]


@dataclass(frozen=True, slots=True)
class BleuScorer(LibraryScorer):
    """Corpus BLEU and the mean of the samples' BLEU, for each of the orders that the suite names."""

    settings: BleuSettings

    @classmethod
    def of(cls, settings: BleuSettings) -> BleuScorer:
        """``ValueError`` where sacrebleu, or what a tokenizer of it needs, is not installed."""
        require("bleu", "sacrebleu", package="sacrebleu", extra="metrics")
        if settings.tokenize in ("ja-mecab", "ko-mecab"):
            try:
                bleu(max(settings.k), settings.tokenize, settings.lowercase)
            except (ImportError, RuntimeError) as error:
                raise ValueError(
                    f"score.bleu.tokenize: {settings.tokenize} cannot be used: {' '.join(str(error).split())}"
                ) from None
        return cls(settings)

    @property
    def name(self) -> str:
        return "bleu"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The highest order first: it is the one that is usually quoted."""
        orders = sorted(self.settings.k, reverse=True)
        return (*(f"bleu_{k}" for k in orders), *(f"sentence_bleu_{k}" for k in orders), "no_answer")

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The samples' own BLEU, and the counts that the corpus's is made of."""
        counts = bleu_counts(
            text,
            references,
            order=max(self.settings.k),
            tokenize=self.settings.tokenize,
            lowercase=self.settings.lowercase,
            smoothing=self.settings.smoothing,
            smooth_value=self.settings.smooth_value,
        )
        return {**{f"sentence_bleu_{k}": sentence_bleu(counts, k) for k in self.settings.k}, **counts}
