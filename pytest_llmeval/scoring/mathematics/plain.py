r"""Answers that are equal though Math-Verify does not say so: percentages, and texts that are no mathematics."""

from __future__ import annotations

import re
from fractions import Fraction

from pytest_llmeval.scoring.scorers.replies.numerals import final_number

__all__ = ["same_percentage", "same_words", "time_of_day"]

_PERCENT = re.compile(r"(.*?)\s*\\?%", re.DOTALL)
_NO_DECIMALS = re.compile(r"(?<=\d)\.$")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}")
_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{2,}|[AaPp]\.?\s?[Mm]\b)")
_TIME = re.compile(r"(?:at)?(\d{1,2}:\d{2})([ap])\.?m\.?")
_SPACES = re.compile(r"\\(?:left|right|q?quad)(?![A-Za-z])|\\[!,;: ]|[\s~$]")


def same_percentage(one: str, other: str) -> bool:
    r"""Whether one of two answers is a percentage and the other its number, with the sign read as a unit or as 1/100.

    So ``35.0\%`` equals 35, 0.35, ``35\%`` and ``\frac{7}{20}``, as Math-Verify has it for whole numbers.
    """
    first, second = _PERCENT.fullmatch(one.strip()), _PERCENT.fullmatch(other.strip())
    if first is None and second is None:
        return False
    values = [_number(one if match is None else match[1]) for one, match in ((one, first), (other, second))]
    if values[0] is None or values[1] is None:
        return False
    if values[0] == values[1]:
        return True
    percentage, number = (values[0], values[1]) if second is None else (values[1], values[0])
    return (first is None or second is None) and percentage / 100 == number


def same_words(one: str, other: str) -> bool:
    r"""Whether two answers, one of them no mathematics, are one text but for ``\text``, spaces, case and a full stop.

    No mathematics is what holds a word of letters, in ``\text`` or without: ``4:30 \text{ p.m.}``, ``Monday.``
    """
    first, second = _unwrapped(one), _unwrapped(other)
    if not (_WORD.search(first) or _WORD.search(second)):
        return False
    return _bare(first) == _bare(second) != ""


def time_of_day(text: str) -> str | None:
    """``4:30p`` of an answer such as ``4:30 p.m.``, which Math-Verify takes for 4/30 of a unit; None of any other."""
    found = _TIME.fullmatch(_SPACES.sub("", _unwrapped(text)).casefold())
    return None if found is None else found[1] + found[2]


def _unwrapped(text: str) -> str:
    return _TEXT_COMMAND.sub(r" \1 ", text)


def _bare(text: str) -> str:
    return _SPACES.sub("", text).rstrip(".").casefold()


def _number(text: str) -> Fraction | None:
    """The value of a text that is a number and nothing else."""
    bare = _NO_DECIMALS.sub("", text.strip().strip("$").strip())
    numeral = final_number(bare)
    return numeral.value if numeral is not None and numeral.text == bare else None
