"""ROUGE against references, by rouge-score."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from pytest_llmeval.data.spec import EACH_ONCE_SCHEMA, FROM_LIST, each_once
from pytest_llmeval.scorers.reading.reference_texts import (
    LibraryScorer,
    ReferenceSettings,
    TooLongError,
    rouge_warning,
)
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import Sample

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer as Rouge

__all__ = ["RougeScorer", "RougeSettings"]

RougeType: TypeAlias = Literal["1", "2", "3", "4", "5", "6", "7", "8", "9", "L", "Lsum", "S", "S1", "S2", "S3", "S4"]


def _as_text(type: object) -> object:
    """Return a type of ROUGE as text: YAML reads ``1`` as a number and ``L`` as text."""
    if isinstance(type, int) and not isinstance(type, bool):
        return str(type)
    return _LOWER.get(type, type) if isinstance(type, str) else type


_LOWER = {"l": "L", "lsum": "Lsum", "s": "S", "s1": "S1", "s2": "S2", "s3": "S3", "s4": "S4"}


class RougeSettings(ReferenceSettings):
    """ROUGE against the references, as F1, by rouge_score; ROUGE-S by its formula."""

    kind: Literal["rouge"] = "rouge"
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
        json_schema_extra=EACH_ONCE_SCHEMA,
        description="A number is ROUGE-N; L and Lsum (by lines) are ROUGE-L; S is pairs of words in their order, "
        "with any number of words between them, S4 with at most four.",
    )
    stemmer: bool = Field(False, description="Compare stems (Porter's) of words.")

    def make(self) -> RougeScorer:
        return RougeScorer.of(self)


MAX_PAIRS = 25_000_000
"""Words of the reply times words of a reference, which is what the longest common subsequence takes: seconds."""
MAX_WORDS_SKIPPING = 2_000
"""Words of a text whose pairs with any gap are counted: two million."""
_WORD = re.compile(r"[a-z0-9]+")


class RougeScorer(LibraryScorer[RougeSettings]):
    """A scorer by ROUGE as F1, of each type the largest over the references, by Google's ``rouge_score``.

    Its words are runs of ASCII letters and digits in lower case: texts in other scripts have none, and score 0. A
    reference without words is compared as it is written: an equal reply has 1.
    """

    version = 2  # 2: an equal reply has 1, whatever it is written in
    library = ("rouge_score", "rouge-score")

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*(f"rouge_{type.lower()}" for type in self.settings.types), "no_answer")

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        message = rouge_warning(samples)
        return [] if message is None else [(message, ())]

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """Return the sample's ROUGE of each type, from 0 to 1. Raise ``TooLongError`` for more than ``MAX_PAIRS``
        words.
        """
        bare = _bare(text)
        if bare and any(bare == _bare(reference) and not _num_words(reference) for reference in references):
            return {f"rouge_{type.lower()}": 1.0 for type in self.settings.types}
        TooLongError.check("ROUGE", text, references, _num_words, MAX_PAIRS)
        theirs = tuple(f"rouge{type}" for type in self.settings.types if not type.startswith("S"))
        found = _rouge(theirs, self.settings.stemmer).score_multi(references, text) if theirs else {}
        skipping = self._skipping(text, references)
        return {
            f"rouge_{type.lower()}": skipping[type] if type in skipping else float(found[f"rouge{type}"].fmeasure)
            for type in self.settings.types
        }

    def _skipping(self, text: str, references: Sequence[str]) -> dict[str, float]:
        """Return ROUGE-S, which rouge_score does not have, of its words."""
        types = [type for type in self.settings.types if type.startswith("S")]
        if not types:
            return {}
        if "S" in types:
            longest = max(map(_num_words, (text, *references)))
            if longest > MAX_WORDS_SKIPPING:
                raise TooLongError(
                    f"a text has {longest:,} words: ROUGE-S is computed for at most {MAX_WORDS_SKIPPING:,}"
                )
        words, *expected = (_words(each, self.settings.stemmer) for each in (text, *references))
        return {
            type: max(rouge_s(words, each, int(type[1:]) if type[1:] else None) for each in expected) for type in types
        }


def rouge_s(words: Sequence[str], reference: Sequence[str], max_gap: int | None) -> float:
    """Return the F1 of the skip-bigrams of two texts: pairs of words with at most ``max_gap`` words between (None: any
    number).

    C.-Y. Lin, 2004, section 5.
    ``2PR / (P + R)`` with P and R the share of matching pairs among those of the text and of the reference, each pair
    counted as often as it stands in both; 0 where none matches. Equal to ROUGE-1.5.5 with beta 1, without ``-u``.
    """
    matches = (_pairs(words, set(reference), max_gap) & _pairs(reference, set(words), max_gap)).total()
    if not matches:
        return 0.0
    precision, recall = matches / _num_pairs(len(words), max_gap), matches / _num_pairs(len(reference), max_gap)
    return 2 * precision * recall / (precision + recall)


def _num_pairs(length: int, max_gap: int | None) -> int:
    furthest = length - 1 if max_gap is None else min(max_gap + 1, length - 1)
    return sum(length - distance for distance in range(1, furthest + 1))


def _pairs(words: Sequence[str], known: set[str], max_gap: int | None) -> Counter[tuple[str, str]]:
    """Yield the pairs of known words, which alone can match."""
    places = [(place, word) for place, word in enumerate(words) if word in known]
    found: Counter[tuple[str, str]] = Counter()
    for number, (place, word) in enumerate(places):
        for other_place, other in places[number + 1 :]:
            if max_gap is not None and other_place - place > max_gap + 1:
                break
            found[word, other] += 1
    return found


def _bare(text: str) -> str:
    return " ".join(text.lower().split())


def _num_words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text.lower()))


def _words(text: str, stemmer: bool) -> list[str]:
    """Return the words as ``rouge_score`` finds them."""
    from rouge_score import tokenizers

    words: list[str] = tokenizers.DefaultTokenizer(stemmer).tokenize(text)
    return words


@lru_cache(maxsize=8)
def _rouge(types: tuple[str, ...], stemmer: bool) -> Rouge:
    from rouge_score.rouge_scorer import RougeScorer as Rouge

    return Rouge(list(types), use_stemmer=stemmer)
