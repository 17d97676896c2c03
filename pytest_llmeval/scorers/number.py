"""The final number of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from pytest_llmeval.scorers.reading.numerals import Numeral, final_number
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.references import quote, several_or_one, target_texts
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["NumberScorer", "NumberSettings"]


class NumberSettings(ScorerSettings):
    """The final number of the reply."""

    kind: Literal["number"] = "number"

    def make(self) -> NumberScorer:
        return NumberScorer.of(self)


class NumberScorer(SettingsScorer[NumberSettings]):
    """A scorer that is right if the reply's final number equals the target's; 0.5, .50 and 1/2 are equal, 0.33 and 1/3
    are not.
    """

    version = 2  # 2 reads more ways to write a number

    def present(self, sample: Sample) -> PreparedSample:
        """Read a target: a number, a text that ends with one (a worked solution, say), or a list of these, any of which
        is right.

        Raise ``ValueError`` for a target without a number.
        """
        numerals = [_numeral(text) for text in target_texts(sample)]
        return PreparedSample(
            sample=sample,
            references=tuple(str(numeral.value) for numeral in numerals),
            target=several_or_one([numeral.text for numeral in numerals]),
        )

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge accuracy; a reply without a number is no answer, and wrong."""
        numeral = final_number(reply(responses))
        right = {Fraction(reference) for reference in presented.references}
        if numeral is None:
            return right_or_wrong(False, None)
        # In hexadecimal, which Python writes of a number of any length.
        vote = f"{numeral.value.numerator:x}/{numeral.value.denominator:x}"
        return right_or_wrong(numeral.value in right, numeral.text, vote=vote)


def _numeral(text: str) -> Numeral:
    numeral = final_number(text)
    if numeral is None:
        raise ValueError(f"target {quote(text)} has no number to compare with")
    return numeral
