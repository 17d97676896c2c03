"""Token F1 and exact match against references, as the scripts of SQuAD 1.1 and of DROP compute them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.types import Response, Score

__all__ = ["F1Scorer", "F1Settings"]


class F1Settings(ScorerSettings):
    """Token F1 and exact match against the references, as the SQuAD 1.1 script computes them, or that of DROP."""

    kind: Literal["f1"] = "f1"
    rule: Literal["squad", "drop"] = Field(
        "squad",
        description="squad: as the script of SQuAD 1.1. drop: as that of DROP, by which numbers are compared by value, "
        "and a target of several lines is an answer of several spans.",
    )

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the key of the rule, if it is the one that was the only one once: older reports do not name it."""
        return ("rule",) if self.rule == "squad" else ()

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


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def drop_normalized(text: str) -> str:
    """Return what ``_normalize`` of DROP's script does: hyphens separate words, too, and each number is written as a
    float.
    """
    words = []
    for word in re.split(" |-", text.lower()):
        bare = word if _number(word) is not None else word.translate(_PUNCTUATION)
        number = _number(bare)
        words += _ARTICLES.sub(" ", bare if number is None else str(number)).split()
    return " ".join(words)


def drop_match(bare: str, reference: str) -> tuple[bool, float]:
    """Return exact match and F1 of a normalised reply, which is one span, and a reference with a span on each line, as
    ``get_metrics`` of DROP's script does.

    F1 compares sets of words, and is 0 for a span with numbers of which the reply has none. The reply is aligned to
    the span that it fits best; each other span counts as 0.
    """
    words = {*bare.split()}
    spans = [drop_normalized(span) for span in reference.split("\n")]
    best = 0.0
    for span in spans:
        expected = {*span.split()}
        numbers = {word for word in expected if _number(word) is not None}
        if numbers and numbers.isdisjoint(words):
            continue
        num_shared = len(words & expected)
        precision = num_shared / len(words) if words else 1.0
        recall = num_shared / len(expected) if expected else 1.0
        if precision or recall:
            best = max(best, 2 * precision * recall / (precision + recall))
    # Rounded as numpy does, which the script uses: Python's own rounding differs in the last place.
    return spans == [bare], round(best / len(spans) * 100) / 100


class F1Scorer(SettingsScorer[F1Settings]):
    """A scorer that is right if the normalised reply is one of the normalised references; F1 is that of the nearest
    reference.
    """

    version = 2  # 2: a reference of which normalisation leaves nothing is compared as it is written
    metrics = ("accuracy", "f1", "no_answer")

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the first target; its spans, if it has several, with commas between them."""
        first = super().answer_text(presented)
        return first.replace("\n", ", ") if self.settings.rule == "drop" else first

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge right or wrong by exact match; an empty reply is no answer, unless an empty one was expected.

        Both numbers are the largest over the references.
        """
        text = reply(responses).strip()
        if self.settings.rule == "drop":
            form = drop_normalized(text)
            matches = [drop_match(form, reference) for reference in presented.references]
        else:
            pairs = [compared(text, reference) for reference in presented.references]
            matches = [(bare == expected, word_f1(bare, expected)) for bare, expected in pairs]
            form = squad_normalized(text)
        correct = any(is_match for is_match, _ in matches)
        values = {"f1": max(f1 for _, f1 in matches)}
        if not text and not correct:
            return right_or_wrong(False, None, values=values)
        return right_or_wrong(correct, text, values=values, vote=form or text)
