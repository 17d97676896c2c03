"""The final number of the reply, compared exactly with that of the target. See ``numerals.py`` for what a number is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pytest_llmeval.scoring.base import Presented, SettingsScorer
from pytest_llmeval.scoring.scorers.replies.numerals import Numeral, final_number
from pytest_llmeval.scoring.scorers.responses import reply
from pytest_llmeval.scoring.targets import quote, several_or_one, target_texts
from pytest_llmeval.suites.format.score_settings.replies import NumberSettings
from pytest_llmeval.types import Response, Sample, Score

__all__ = ["NumberScorer"]


class NumberScorer(SettingsScorer[NumberSettings]):
    """Right if the reply's final number equals the target's; 0.5, .50 and 1/2 are equal, 0.33 and 1/3 are not."""

    def present(self, sample: Sample) -> Presented:
        """A target is a number, a text that ends with one (a worked solution, say), or a list of these: any is right.

        ``ValueError`` for a target without a number.
        """
        numerals = [_numeral(text) for text in target_texts(sample)]
        return Presented(
            sample=sample,
            references=tuple(str(numeral.value) for numeral in numerals),
            target=several_or_one([numeral.text for numeral in numerals]),
        )

    def answer_text(self, presented: Presented) -> str:
        """The first target, whole: a few-shot example shows the solution, not only its number."""
        return target_texts(presented.sample)[0]

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy; a reply without a number is no answer, and wrong."""
        numeral = final_number(reply(responses))
        right = {Fraction(reference) for reference in presented.references}
        correct = numeral is not None and numeral.value in right
        return Score(
            status="correct" if correct else "wrong",
            answer=None if numeral is None else numeral.text,
            no_answer=numeral is None,
            values={"accuracy": float(correct)},
            # In hexadecimal, which Python writes of a number of any length.
            vote=None if numeral is None else f"{numeral.value.numerator:x}/{numeral.value.denominator:x}",
        )


def _numeral(text: str) -> Numeral:
    numeral = final_number(text)
    if numeral is None:
        raise ValueError(f"target {quote(text)} has no number to compare with")
    return numeral
