"""METEOR against references, by NLTK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Literal, Self

from pydantic import Field

from pytest_llmeval.scorers.reading.reference_texts import LibraryScorer, ReferenceSettings

__all__ = ["MeteorScorer", "MeteorSettings"]


class MeteorSettings(ReferenceSettings):
    """METEOR against the references, by nltk."""

    kind: Literal["meteor"] = "meteor"
    synonyms: bool = Field(
        True, description="Match synonyms too, which needs WordNet's data; without them, stems still match."
    )
    stem: bool = Field(True, description="Match words with the same stem (Porter's) too, not only equal words.")
    tokenize: Literal["words", "whitespace"] = Field(
        "words",
        description="words: words and punctuation as nltk's word tokenizer finds them. whitespace: what white space "
        "separates.",
    )
    alpha: float = Field(0.9, ge=0, le=1, description="Weight of recall, against precision, in their mean.")
    beta: float = Field(3.0, ge=0, description="How steeply the penalty grows with the number of chunks.")
    gamma: float = Field(0.5, ge=0, le=1, description="The largest penalty.")

    def make(self) -> MeteorScorer:
        return MeteorScorer.of(self)


class MeteorScorer(LibraryScorer[MeteorSettings]):
    """A scorer by nltk's METEOR, the largest over the references (A. Lavie and A. Agarwal, 2007): words match as they
    are, then by their stems (Porter's), then as synonyms in WordNet, all in lower case; the suite can do without stems
    and synonyms.

    Words are those of nltk's word tokenizer on the text as a whole, as ``nltk.word_tokenize`` finds them but for a full
    stop inside the text, which stays with its word: splitting sentences would need data of its own.
    """

    library = ("nltk", "nltk")
    metrics = ("meteor", "no_answer")

    @classmethod
    def of(cls, settings: MeteorSettings) -> Self:
        """Raise ``ValueError`` where nltk is not installed, or its WordNet data where synonyms are to match."""
        scorer = super().of(settings)
        if settings.synonyms and not _has_wordnet():
            raise ValueError(
                "score: meteor needs WordNet's data to match synonyms, which is not installed; run python -m "
                "nltk.downloader wordnet, or do without synonyms by score: {meteor: {synonyms: false}}"
            )
        return scorer

    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """Return the sample's METEOR, from 0 to 1."""
        from nltk.corpus import wordnet
        from nltk.stem.porter import PorterStemmer
        from nltk.translate.meteor_score import meteor_score

        found = meteor_score(
            [self._words(reference) for reference in references],
            self._words(text),
            stemmer=PorterStemmer() if self.settings.stem else SimpleNamespace(stem=str),
            wordnet=wordnet if self.settings.synonyms else SimpleNamespace(synsets=lambda word: ()),
            alpha=self.settings.alpha,
            beta=self.settings.beta,
            gamma=self.settings.gamma,
        )
        return {"meteor": float(found)}

    def _words(self, text: str) -> list[str]:
        if self.settings.tokenize == "whitespace":
            return text.split()
        from nltk.tokenize import NLTKWordTokenizer

        return list(NLTKWordTokenizer().tokenize(text))


def _has_wordnet() -> bool:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        return False
    return True
