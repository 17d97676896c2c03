"""ROUGE of a reply against references."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_llmeval.scoring.libraries import require
from pytest_llmeval.scoring.reference_scorer import ReferenceScorer, TooLongError
from pytest_llmeval.suites.score_settings.texts import RougeSettings

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer as Rouge

__all__ = ["RougeScorer"]

MAX_PAIRS = 25_000_000
"""Words of the reply times words of a reference, which is what the longest common subsequence takes: seconds."""

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class RougeScorer(ReferenceScorer):
    """ROUGE as F1, of each type the largest over the references, by Google's ``rouge_score``.

    Its words are runs of ASCII letters and digits in lower case: texts in other scripts have none, and score 0.
    """

    settings: RougeSettings

    @classmethod
    def of(cls, settings: RougeSettings) -> RougeScorer:
        """``ValueError`` where rouge_score is not installed."""
        require("rouge", "rouge_score", package="rouge-score", extra="metrics")
        return cls(settings)

    @property
    def name(self) -> str:
        return "rouge"

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*(f"rouge_{type.lower()}" for type in self.settings.types), "no_answer")

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The sample's ROUGE of each type, from 0 to 1. ``TooLongError`` for more than ``MAX_PAIRS`` words."""
        TooLongError.check("ROUGE", text, references, _num_words, MAX_PAIRS)
        types = tuple(f"rouge{type}" for type in self.settings.types)
        found = _rouge(types, self.settings.stemmer).score_multi(references, text)
        return {
            f"rouge_{type.lower()}": float(found[own].fmeasure)
            for type, own in zip(self.settings.types, types, strict=True)
        }


def _num_words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text.lower()))


@lru_cache(maxsize=8)
def _rouge(types: tuple[str, ...], stemmer: bool) -> Rouge:
    from rouge_score.rouge_scorer import RougeScorer as Rouge

    return Rouge(list(types), use_stemmer=stemmer)
