"""Token F1 and exact match against references, as the SQuAD 1.1 script computes them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.types import Response, Score

__all__ = ["F1Scorer", "F1Settings"]


class F1Settings(ScorerSettings):
    """Token F1 and exact match against the references, as the SQuAD 1.1 script computes them."""

    kind: Literal["f1"] = "f1"

    def make(self) -> F1Scorer:
        return F1Scorer.of(self)


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_normalized(text: str) -> str:
    """Return what ``normalize_answer`` of SQuAD's ``evaluate-v1.1.py`` does: lower case, no ASCII punctuation, no
    articles, one space between words.
    """
    return " ".join(_ARTICLES.sub(" ", _without_punctuation(text)).split())


def _without_punctuation(text: str) -> str:
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def _in_lower_case(text: str) -> str:
    return " ".join(text.lower().split())


def compared(text: str, reference: str) -> tuple[str, str]:
    """Normalise both texts, but for the steps that would leave nothing of the reference: ``A`` is no article there, and
    ``#`` no punctuation.
    """
    for normalized in (squad_normalized, _without_punctuation, _in_lower_case):
        expected = normalized(reference)
        if expected:
            return normalized(text), expected
    return squad_normalized(text), ""


def word_f1(text: str, reference: str) -> float:
    """Return the F1 of the words of two normalised texts, repeated words counted as often as both have them
    (``f1_score``).

    It is 0 where they share none. For an empty reference it is 1 for an empty text, as in SQuAD 2.0's script, and else
    0.
    """
    words, expected = text.split(), reference.split()
    if not expected:
        return float(not words)
    num_shared = (Counter(words) & Counter(expected)).total()
    if num_shared == 0:
        return 0.0
    precision, recall = num_shared / len(words), num_shared / len(expected)
    return (2 * precision * recall) / (precision + recall)


class F1Scorer(SettingsScorer[F1Settings]):
    """A scorer that is right if the normalised reply is one of the normalised references; F1 is that of the nearest
    reference.
    """

    version = 2  # 2: a reference of which normalisation leaves nothing is compared as it is written
    metrics = ("accuracy", "f1", "no_answer")

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge right or wrong by SQuAD's exact match; an empty reply is no answer, unless an empty one was expected.

        Both numbers are the largest over the references.
        """
        text = reply(responses).strip()
        pairs = [compared(text, reference) for reference in presented.references]
        correct = any(bare == expected for bare, expected in pairs)
        values = {"f1": max(word_f1(bare, expected) for bare, expected in pairs)}
        if not text and not correct:
            return right_or_wrong(False, None, values=values)
        return right_or_wrong(correct, text, values=values, vote=squad_normalized(text) or text)
