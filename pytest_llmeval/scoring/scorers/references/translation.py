"""BLEU, chrF and TER of a reply against references, by sacrebleu: of the corpus, and the mean of the samples' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from pytest_llmeval.metrics.sacrebleu_sums import (
    CHRF_NAMES,
    bleu,
    bleu_counts,
    chrf_counts,
    sentence_bleu,
    sentence_chrf,
    ter_counts,
    ter_of,
    ter_words,
)
from pytest_llmeval.scoring.scorers.references.reference_scorer import LibraryScorer, TooLongError
from pytest_llmeval.scoring.scorers.references.scripts import bleu_warning
from pytest_llmeval.suites.format.score_settings.texts import BleuSettings, ChrfSettings, TerSettings
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import Sample

__all__ = ["BleuScorer", "ChrfScorer", "TerScorer"]

MAX_PAIRS = 400_000
"""Words of the reply times words of a reference: TER takes some ten seconds for as many, and minutes for ten times as
many.
"""


class BleuScorer(LibraryScorer[BleuSettings]):
    """A scorer by BLEU, for each of the orders that the suite names."""

    @classmethod
    def of(cls, settings: BleuSettings) -> Self:
        """Raise ``ValueError`` where sacrebleu, or what a tokenizer of it needs, is not installed."""
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
        """Name the metric of the highest order first: it is the one that is usually quoted."""
        orders = sorted(self.settings.k, reverse=True)
        return (*(f"bleu_{k}" for k in orders), *(f"sentence_bleu_{k}" for k in orders), "no_answer")

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        message = bleu_warning(self.settings.tokenize, samples)
        return [] if message is None else [(message, ())]

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        counts = bleu_counts(text, references, self.settings)
        return {**{f"sentence_bleu_{k}": sentence_bleu(counts, k) for k in self.settings.k}, **counts}


class ChrfScorer(LibraryScorer[ChrfSettings]):
    """A scorer by chrF, for each order of words that the suite names: chrF, chrF+, chrF++."""

    @property
    def metrics(self) -> tuple[str, ...]:
        names = [CHRF_NAMES[order] for order in self.settings.word_order]
        return (*names, *(f"sentence_{name}" for name in names), "no_answer")

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        values: dict[str, float] = {}
        for order in self.settings.word_order:
            counts = chrf_counts(text, references, self.settings, order)
            values |= {f"sentence_{CHRF_NAMES[order]}": sentence_chrf(counts, order), **counts}
        return values


class TerScorer(LibraryScorer[TerSettings]):
    """A scorer by translation edit rate: the lower the better."""

    metrics = ("ter", "sentence_ter", "no_answer")

    @property
    def version(self) -> int:
        """Return 2, which keeps the punctuation of a reference that is nothing else."""
        return 2 if self.settings.no_punct else 1

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """Raise ``TooLongError`` for more than ``MAX_PAIRS`` words, as sacrebleu finds them with these settings.

        Punctuation stays where ``no_punct`` would leave nothing of a reference, to which an empty reply would be equal.
        """
        settings = self.settings
        if settings.no_punct and any(part.strip() and not ter_words(part, settings) for part in references):
            settings = settings.model_copy(update={"no_punct": False})
        TooLongError.check("TER", text, references, lambda part: len(ter_words(part, settings)), MAX_PAIRS)
        counts = ter_counts(text, references, settings)
        return {"sentence_ter": ter_of(tuple(counts.values())), **counts}
