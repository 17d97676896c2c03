"""chrF against references, by sacrebleu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pytest_llmeval.data.spec import EACH_ONCE_SCHEMA, FROM_LIST, each_once
from pytest_llmeval.scorers.reading.reference_texts import LibraryScorer, ReferenceSettings
from pytest_llmeval.scoring.metrics.corpus_formulas import (
    CHRF_NAMES,
    chrf_beta,
    chrf_metric,
    chrf_sums,
    sentence_chrf,
)

__all__ = ["ChrfScorer", "ChrfSettings"]


class ChrfSettings(ReferenceSettings):
    """chrF against the references, by sacrebleu."""

    kind: Literal["chrf"] = "chrf"
    word_order: Annotated[tuple[Literal[0, 1, 2], ...], FROM_LIST, AfterValidator(each_once("entry"))] = Field(
        (0, 2),
        json_schema_extra=EACH_ONCE_SCHEMA,
        description="How many words an n-gram may have, beside characters: 0 is chrF, 2 is chrF++.",
    )
    beta: int = Field(2, ge=1, description="How much more recall weighs than precision.")
    lowercase: bool = Field(False, description="Compare without regard to case.")
    whitespace: bool = Field(False, description="Count white space as characters.")

    def make(self) -> ChrfScorer:
        return ChrfScorer.of(self)


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


def chrf_counts(text: str, references: Sequence[str], settings: ChrfSettings, word_order: int) -> dict[str, float]:
    """Return what chrF is made of: for each order the n-grams of the reply, of its best reference, and those that
    match.
    """
    # sacrebleu gives these counts to its own significance tests, and has no public name for them.
    metric = chrf_metric(word_order, settings.beta, settings.lowercase, settings.whitespace)
    (found,) = metric._extract_corpus_statistics([text], [[reference] for reference in references])
    counts = dict(zip(chrf_sums(word_order), map(float, found), strict=True))
    return {**counts, chrf_beta(word_order): float(settings.beta)}
