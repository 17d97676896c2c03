"""Settings of the scorers that compare a reply with reference texts."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from pytest_llmeval.data.spec import FROM_LIST, each_once, refuse_here
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings

__all__ = [
    "BleuSettings",
    "ChrfSettings",
    "F1Settings",
    "MeteorSettings",
    "ReferenceSettings",
    "RougeSettings",
    "RougeType",
    "Smoothing",
    "TerSettings",
]

Smoothing: TypeAlias = Literal["exp", "floor", "add-k", "none"]
RougeType: TypeAlias = Literal["1", "2", "3", "4", "5", "6", "7", "8", "9", "L", "Lsum", "S", "S1", "S2", "S3", "S4"]


def _as_text(type: object) -> object:
    """YAML reads ``1`` as a number and ``L`` as text."""
    if isinstance(type, int) and not isinstance(type, bool):
        return str(type)
    return _LOWER.get(type, type) if isinstance(type, str) else type


_LOWER = {"l": "L", "lsum": "Lsum", "s": "S", "s1": "S1", "s2": "S2", "s3": "S3", "s4": "S4"}
_EACH_ONCE: JsonDict = {"minItems": 1, "uniqueItems": True}


class ReferenceSettings(ScorerSettings):
    """What the scorers share that compare a reply with reference texts by a library."""

    kind: str
    max_reply_chars: int = Field(
        100_000,
        ge=1,
        description="Characters of a reply that are judged, from its start; the record says where it was longer.",
    )
    timeout_s: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds of processor time that one comparison may take; a sample that needs more is unscored.",
    )


class F1Settings(ScorerSettings):
    """Token F1 and exact match against the references, as the SQuAD 1.1 script computes them."""

    kind: Literal["f1"] = "f1"
    scorer = "scorers.references.f1:F1Scorer"


class BleuSettings(ReferenceSettings):
    """BLEU against the references, by sacrebleu."""

    kind: Literal["bleu"] = "bleu"
    scorer = "scorers.references.translation:BleuScorer"
    k: Annotated[tuple[Annotated[int, Field(ge=1, le=9)], ...], FROM_LIST, AfterValidator(each_once("entry"))] = Field(
        (1, 2, 3, 4),
        json_schema_extra=_EACH_ONCE,
        description="BLEU of n-grams up to each of these orders: 4 is what is usually called BLEU.",
    )
    max_order: int | None = Field(
        None, ge=1, le=9, description="All orders up to this one, in place of k: max_order: 2 is k: [1, 2]."
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


class RougeSettings(ReferenceSettings):
    """ROUGE against the references, as F1, by rouge_score; ROUGE-S by its formula."""

    kind: Literal["rouge"] = "rouge"
    scorer = "scorers.references.rouge:RougeScorer"
    types: Annotated[
        tuple[
            Annotated[
                RougeType,
                BeforeValidator(_as_text),
                WithJsonSchema({"enum": [*get_args(RougeType), *_LOWER, *range(1, 10)]}),
            ],
            ...,
        ],
        FROM_LIST,
        AfterValidator(each_once("entry")),
    ] = Field(
        ("1", "2", "L"),
        json_schema_extra=_EACH_ONCE,
        description="ROUGE-N for a number, L, Lsum (by lines), or S: pairs of words in their order, with any words "
        "between them, with S4 at most four.",
    )
    stemmer: bool = Field(False, description="Compare stems (Porter's) of words.")


class ChrfSettings(ReferenceSettings):
    """chrF against the references, by sacrebleu."""

    kind: Literal["chrf"] = "chrf"
    scorer = "scorers.references.translation:ChrfScorer"
    word_order: Annotated[tuple[Literal[0, 1, 2], ...], FROM_LIST, AfterValidator(each_once("entry"))] = Field(
        (0, 2),
        json_schema_extra=_EACH_ONCE,
        description="Words in an n-gram, beside characters: 0 is chrF, 2 is chrF++.",
    )
    beta: int = Field(2, ge=1, description="How much more recall weighs than precision.")
    lowercase: bool = Field(False, description="Compare without regard to case.")
    whitespace: bool = Field(False, description="Count white space as characters.")


class TerSettings(ReferenceSettings):
    """Translation edit rate against the references, by sacrebleu."""

    kind: Literal["ter"] = "ter"
    scorer = "scorers.references.translation:TerScorer"
    normalized: bool = Field(False, description="Split punctuation off, and resolve XML's characters.")
    no_punct: bool = Field(False, description="Leave punctuation out.")
    asian_support: bool = Field(False, description="Treat Chinese, Japanese and Korean characters as words.")
    case_sensitive: bool = Field(False, description="Compare with regard to case.")


class MeteorSettings(ReferenceSettings):
    """METEOR against the references, by nltk."""

    kind: Literal["meteor"] = "meteor"
    scorer = "scorers.references.meteor:MeteorScorer"
    synonyms: bool = Field(
        True, description="Match synonyms too, which needs WordNet's data; without, stems still match."
    )
    stem: bool = Field(True, description="Match words of one stem (Porter's) too; without, words as they are.")
    tokenize: Literal["words", "whitespace"] = Field(
        "words", description="Words and punctuation as nltk's word tokenizer finds them, or what white space separates."
    )
    alpha: float = Field(0.9, ge=0, le=1, description="Weight of recall, against precision, in their mean.")
    beta: float = Field(3.0, ge=0, description="How steeply the penalty grows with the number of chunks.")
    gamma: float = Field(0.5, ge=0, le=1, description="The largest penalty.")
