"""BLEU against references, by sacrebleu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from pytest_llmeval.data.spec import EACH_ONCE_SCHEMA, FROM_LIST, each_once, refuse_here
from pytest_llmeval.scorers.reading.reference_texts import LibraryScorer, ReferenceSettings, bleu_warning
from pytest_llmeval.scoring.metrics.corpus_formulas import (
    SMOOTHINGS,
    bleu,
    sentence_bleu,
    smooth_value,
)
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import Sample

__all__ = ["BleuScorer", "BleuSettings"]

Smoothing: TypeAlias = Literal["exp", "floor", "add-k", "none"]


class BleuSettings(ReferenceSettings):
    """BLEU against the references, by sacrebleu."""

    kind: Literal["bleu"] = "bleu"
    k: Annotated[tuple[Annotated[int, Field(ge=1, le=9)], ...], FROM_LIST, AfterValidator(each_once("entry"))] = Field(
        (1, 2, 3, 4),
        json_schema_extra=EACH_ONCE_SCHEMA,
        description="BLEU of n-grams up to each of these orders: 4 is what is usually called BLEU.",
    )
    max_order: int | None = Field(
        None, ge=1, le=9, description="All orders up to this one, instead of k: max_order: 2 is k: [1, 2]."
    )
    smoothing: Smoothing = Field("exp", description="What to do if no n-gram of an order matches.")
    smooth_value: float | None = Field(
        None, gt=0, description="The value that smoothing floor (0.1) or add-k (1) puts in."
    )
    tokenize: Literal["13a", "none", "zh", "intl", "char", "ja-mecab", "ko-mecab"] = Field(
        "13a", description="How text is cut into tokens: sacrebleu's tokenizers that need no download."
    )
    lowercase: bool = Field(False, description="Compare without regard to case.")

    @property
    def unsaid(self) -> tuple[str, ...]:
        return ("max_order",)  # k says the same, however it was written

    @model_validator(mode="after")
    def _max_order_is_k(self) -> BleuSettings:
        if self.max_order is None:
            return self
        orders = tuple(range(1, self.max_order + 1))
        if "k" in self.model_fields_set and self.k != orders:
            raise refuse_here("k names the orders already; remove max_order, or k", "max_order")
        object.__setattr__(self, "k", orders)  # it is frozen
        return self

    @model_validator(mode="after")
    def _a_value_is_for_floor_or_add_k(self) -> BleuSettings:
        if self.smooth_value is not None and self.smoothing not in ("floor", "add-k"):
            raise refuse_here(
                f"smoothing {self.smoothing!r} takes no value; remove it, or use smoothing: floor or add-k",
                "smooth_value",
            )
        return self

    def make(self) -> BleuScorer:
        return BleuScorer.of(self)


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


def bleu_counts(text: str, references: Sequence[str], settings: BleuSettings) -> dict[str, float]:
    """Return what BLEU of each order is made of: the lengths of reply and nearest reference in tokens, and for each n
    the n-grams of the reply and those that match. The smoothing rides along: it is the same for all samples.
    """
    order = max(settings.k)
    found = bleu(order, settings.tokenize, settings.lowercase).sentence_score(text, references)
    counts = {
        "bleu_length": float(found.sys_len),
        "bleu_reference_length": float(found.ref_len),
        "bleu_smoothing": float(SMOOTHINGS.index(settings.smoothing)),
        "bleu_smooth_value": smooth_value(settings.smoothing, settings.smooth_value),
    }
    for n in range(order):
        counts[f"bleu_matches_{n + 1}"] = float(found.counts[n])
        counts[f"bleu_ngrams_{n + 1}"] = float(found.totals[n])
    return counts
