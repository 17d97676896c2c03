"""Translation edit rate against references, by sacrebleu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pytest_llmeval.scorers.reading.reference_texts import LibraryScorer, ReferenceSettings, TooLongError
from pytest_llmeval.scoring.metrics.corpus_formulas import TER_NEEDS, ter_of

if TYPE_CHECKING:
    from sacrebleu.metrics.ter import TER

__all__ = ["TerScorer", "TerSettings"]


class TerSettings(ReferenceSettings):
    """Translation edit rate against the references, by sacrebleu."""

    kind: Literal["ter"] = "ter"
    normalized: bool = Field(False, description="Split punctuation off, and resolve XML's characters.")
    no_punct: bool = Field(False, description="Leave punctuation out.")
    asian_support: bool = Field(False, description="Treat Chinese, Japanese and Korean characters as words.")
    case_sensitive: bool = Field(False, description="Compare with regard to case.")

    def make(self) -> TerScorer:
        return TerScorer.of(self)


MAX_PAIRS = 400_000
"""Words of the reply times words of a reference: TER takes some ten seconds for as many, and minutes for ten times as
many.
"""


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


@lru_cache(maxsize=8)
def _ter(settings: TerSettings) -> TER:
    from sacrebleu.metrics.ter import TER

    return TER(**settings.model_dump(include={"normalized", "no_punct", "asian_support", "case_sensitive"}))


def ter_counts(text: str, references: Sequence[str], settings: TerSettings) -> dict[str, float]:
    """Return what TER is made of: the fewest edits that lead to a reference, and the references' mean length in
    words.
    """
    found = _ter(settings).sentence_score(text, references)
    return dict(zip(TER_NEEDS, (float(found.num_edits), float(found.ref_length)), strict=True))


def ter_words(text: str, settings: TerSettings) -> list[str]:
    tokenized: str = _ter(settings).tokenizer(text.rstrip())
    return tokenized.split()
