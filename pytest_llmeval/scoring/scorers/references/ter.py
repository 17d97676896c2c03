"""Translation edit rate of a reply against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmeval.scoring.metrics.sacrebleu_sums import ter_counts, ter_of, ter_words
from pytest_llmeval.scoring.scorers.references.reference_scorer import LibraryScorer, TooLongError
from pytest_llmeval.suites.format.score_settings.texts import TerSettings

__all__ = ["TerScorer"]

MAX_PAIRS = 400_000
"""Words of the reply times words of a reference: TER takes some ten seconds for as many, and for ten times as many
minutes.
"""


class TerScorer(LibraryScorer[TerSettings]):
    """Corpus TER and the mean of the samples' TER: the lower the better."""

    metrics = ("ter", "sentence_ter", "no_answer")

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The sample's own TER, and the edits and lengths that the corpus's is made of.

        ``TooLongError`` for more than ``MAX_PAIRS`` words, as sacrebleu's tokenizer with these settings finds them.
        """
        TooLongError.check("TER", text, references, lambda part: len(ter_words(part, self.settings)), MAX_PAIRS)
        counts = ter_counts(text, references, self.settings)
        return {"sentence_ter": ter_of(tuple(counts.values())), **counts}
