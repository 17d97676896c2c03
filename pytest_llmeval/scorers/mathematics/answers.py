r"""The answer of a mathematical text: where it stands, and what Math-Verify is given to read.

How a text is searched is the setting ``extract``; the first way that finds something decides:

===========  =========================================================================================================
boxed        the content of the last complete ``\boxed{}`` or ``\fbox{}``, nested braces and all; ``\boxed 5`` ends
             with the line or its ``$``. Boxes that only a comma, a semicolon, "and" or "or" separates are one answer
answer       after the last "answer is", "answer:" or ``####``: the expression between ``$ $``, ``\( \)`` or ``\[ \]``
             on that line; else what follows, to the end of the sentence: if words stand around its first number, that
             number, and the unit behind it
math         the last expression between ``$ $``, ``$$ $$``, ``\( \)`` or ``\[ \]``
number       the last number (see ``numerals.py``)
dollars      between the first ``$`` and the last, or the whole text with fewer than two
aime         the last ``\boxed{}`` as lm-eval's aime reads it, else dollars
minerva      between "Final Answer: The final answer is" and ". I hope it is correct."
whole        the whole text
===========  =========================================================================================================

Every search takes time in proportion to the text: a reply cannot stall it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, TypeAlias

from pytest_llmeval.scorers.mathematics.lm_eval import aime_answer, announced_answer, between_dollars
from pytest_llmeval.scorers.mathematics.quantities import (
    NO_DECIMALS,
    is_multiple,
    measured,
    quantity,
    split_unit,
    undressed,
    without_about,
)
from pytest_llmeval.scorers.reading.numerals import final_number, leading_number
from pytest_llmeval.scorers.reading.stated import MAX_ANSWER, last_box
from pytest_llmeval.scorers.reading.wordings import denied_before

__all__ = ["MAX_REPLY", "Answer", "Extract", "find_answer", "for_math_verify", "same_text"]

Extract: TypeAlias = Literal["boxed", "answer", "math", "number", "dollars", "aime", "minerva", "whole", "math_verify"]
MAX_REPLY = 100_000
"""Characters of a text that are searched, from its end: an answer stands last."""
_MARK = re.compile(r"####|\banswers?\b[^.:\n$\\]{0,60}?(?:\b(?:is|are)(?:\b|(?=n['’]t))|:|\*\*[ \t]*\n)", re.IGNORECASE)
_DELIMITER = re.compile(r"\\[\[\]()]|\\.|\$\$|\$|\n", re.DOTALL)
_CLOSING: Mapping[str, str] = MappingProxyType({"$": "$", "$$": "$$", r"\[": r"\]", r"\(": r"\)"})
_AND = re.compile(r"\s*(?:,|,?\s*and|,?\s*or)\s*")
_SENTENCE = re.compile(r"[^\n]*?(?=(?<!\.)\.(?:\s|\*|$)|\n|$)")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_BOLD = re.compile(r"(?<=\S)\*\*(?![\w({\-])|(?<![\w)}])\*\*(?=\S)")
_FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "exp", "sqrt")
_WORDS_OF_MATH = frozenset(("and", "or", "pi", *_FUNCTIONS))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer as it was written, and what ``extract`` found it."""

    text: str
    by: Extract


def find_answer(text: str, ways: Sequence[Extract]) -> Answer | None:
    """Return what the first of ``ways`` finds in the text; None where none does."""
    searched = text[-MAX_REPLY:]
    for way in ways:
        if way == "number":
            numeral = final_number(searched)
            if numeral is not None:
                return Answer(numeral.text, way)
            continue
        found = _WAYS[way](searched)
        if found is not None and 0 < len(found.strip()) <= MAX_ANSWER:
            return Answer(found if way in _AS_THEY_STAND else found.strip(), way)
    return None


def _after_mark(text: str) -> str | None:
    mark = None
    for mark in _MARK.finditer(text):  # noqa: B007 - the last match is wanted
        pass
    if mark is None:
        return None
    rest = text[mark.end() :].lstrip(" \t\r\n:*_=")
    spans = _spans(rest[:MAX_ANSWER])
    first = next(spans, None)
    before = None if first is None else rest[: first[0]]
    if (
        first is not None
        and before is not None
        and not (re.search(r"\n|\.\s", before) or denied_before(before, len(before)))
    ):
        contents, end = [first[1]], first[2]
        for start, content, stop in spans:
            if not _AND.fullmatch(rest, end, start):
                break
            contents.append(content)
            end = stop
        return ", ".join(contents)
    sentence = _SENTENCE.match(rest[:MAX_ANSWER])
    return None if sentence is None else _plain(sentence[0])


def _plain(sentence: str) -> str:
    """Return the answer in a sentence without delimited mathematics."""
    answer = _BOLD.sub("", sentence.split("I hope it is correct")[0]).strip(" \t*_`\"',;")
    if not answer.endswith("..."):  # 0.333...
        answer = answer.strip(" \t*_`\"'.,;")
    words = [word for word in _WORD.findall(re.sub(r"\\text\s*\{[^{}]*\}", "", answer)) if word not in _WORDS_OF_MATH]
    return (measured(answer[answer.rfind("=") + 1 :]) if words else None) or answer


def _last_math(text: str) -> str | None:
    found = None
    for _, content, _ in _spans(text):
        found = content
    return found


def _spans(text: str) -> Iterator[tuple[int, str, int]]:
    """Return the start, the content and the end of each expression between delimiters. An inline ``$`` does not cross a
    line.
    """
    opened: tuple[str, int, int] | None = None
    for token in _DELIMITER.finditer(text):
        mark = token[0]
        if opened is not None and mark == _CLOSING[opened[0]]:
            content = text[opened[2] : token.start()]
            if mark == "$" and content[-1:].isspace() and not content[:1].isspace():  # "costs $5 and $6"
                opened = (mark, token.start(), token.end())
                continue
            if content.strip():
                yield opened[1], content.strip(), token.end()
            opened = None
        elif opened is not None and opened[0] == "$" and mark in ("\n", "$$"):
            opened = None
        elif mark in _CLOSING and (opened is None or opened[0] != "$$"):
            opened = (mark, token.start(), token.end())


_WAYS: Mapping[Extract, Callable[[str], str | None]] = MappingProxyType(
    {
        "boxed": last_box,
        "answer": _after_mark,
        "math": _last_math,
        "dollars": between_dollars,
        "aime": aime_answer,
        "minerva": announced_answer,
        "whole": lambda text: text,
    }
)

_AS_THEY_STAND = frozenset(("dollars", "aime", "whole"))
"""Not stripped: the comparison that reads them does what it has to."""

_CHARACTERS = str.maketrans(
    {
        "−": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "÷": r"\div ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "°": r"^\circ ",
        "±": r"\pm ",
        "²": "^{2}",
        "³": "^{3}",
        "½": r"\frac{1}{2}",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
    }
)

_COMMANDS = ((r"\varnothing", r"\emptyset"), (r"\mathrm{e}", "e"), ("**", "^"))
_SCIENTIFIC = re.compile(r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,4})(?![\d.A-Za-z])")
_MIXED = re.compile(r"(?<![\d.,/])(\d{1,9})[ ]+(\d{1,9})/(\d{1,9})(?![\d./])")
_SET_OF_ALL = re.compile(r"\\\{\s*([a-z])\s*(?:\\mid|\\vert|\\,?\||\||:)\s*(.*?)\s*\\\}", re.DOTALL)
_THOUSANDS = re.compile(r"((?:[A-Za-z]\s*=\s*)?[-+]?)([1-9]\d{0,2}(?:(?:,|\{,\}|\\,|\\!)\d{3})+)((?:\.\d+)?)")
_GROUPS = re.compile(r"(?<=\d)(?:,\\!|\{,\}|\\[,;!])(?=\d{3}(?!\d))")
_REPEATING = re.compile(r"\d*\.\d*\\(?:overline|bar)\s?(?:\{\d+\}|\d)")
_BRACKETS = re.compile(
    r"((?:^|[=,;({:|]|\\cup|\\cap|\\in)\s*)(?:\\left)?([\[\](])([^\[\]()]*(?:\([^\[\]()]*\)[^\[\]()]*)*?)(?:\\right)?([\[\])])"
)
_IMAGINARY = re.compile(r"(?<=\d)i(?![A-Za-z])")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?")
_WORDS = re.compile(r"(?i:yes|no|odd|even|true|false)|[A-Za-z][a-z]{3,}(?: [a-z]+)*")
_SPACES_OF_LATEX = re.compile(r"\\left(?![A-Za-z])|\\right(?![A-Za-z])|\\[!,;: ]|~")
_IDLE_SPACE = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")


def same_text(one: str, other: str) -> bool:
    r"""Return whether answers differ at most in spaces, ``\left`` and ``\right``, and the size of their fractions."""
    return _bare_text(one) == _bare_text(other) != ""


def _bare_text(text: str) -> str:
    text = _SPACES_OF_LATEX.sub(" ", text).replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac")
    return _IDLE_SPACE.sub("", text)


def for_math_verify(answer: str) -> str:
    r"""Return the answer as LaTeX that Math-Verify reads as it was meant, without its unit.

    Signs of Unicode become commands; 4.5e33 is a power of ten and no multiple of Euler's number; "3 1/2" is a mixed
    number and "x=2,900" no pair; "1./3" has no decimals; "]1,2]" is an interval that is open on its left; the set of
    all x with a condition is its condition; words are text and no product of their letters.
    """
    number = quantity(answer)
    if number is not None and number.symbol is None and not is_multiple(number.units):
        return _fraction(number.value)
    text = undressed(answer).translate(_CHARACTERS)
    for written, read in _COMMANDS:
        text = text.replace(written, read)
    if _WORDS.fullmatch(text):
        return f"\\text{{{text}}}"
    text = without_about(text)
    bare, units = split_unit(text)
    if not is_multiple(units) and not _TRIGONOMETRIC.search(text):
        text = bare
    thousands = _THOUSANDS.fullmatch(text)
    if thousands is not None:
        return thousands[1] + re.sub(r"\D", "", thousands[2]) + thousands[3]
    text = _GROUPS.sub("", text)
    text = _REPEATING.sub(_as_fraction, text)
    text = NO_DECIMALS.sub("", text)
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text)
    text = _IMAGINARY.sub(" i", text)
    if _TRIGONOMETRIC.search(text):
        text = _DEGREES.sub(r"(\1 \\cdot \\frac{\\pi}{180})", text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = _BRACKETS.sub(_with_round_brackets, text)
    every = _SET_OF_ALL.fullmatch(text.replace(r"\left", "").replace(r"\right", ""))
    return text if every is None else every[2]


def _as_fraction(found: re.Match[str]) -> str:
    number = leading_number(found[0])
    return found[0] if number is None else _fraction(number[0].value)


def _fraction(number: Fraction) -> str:
    top, bottom = number.as_integer_ratio()
    return str(top) if bottom == 1 else f"\\frac{{{top}}}{{{bottom}}}"


def _with_round_brackets(found: re.Match[str]) -> str:
    """Return ``(1,2]`` for ``]1,2]``: a bracket turned outwards leaves the end out. ``[1,5;2]`` is ``[1.5,2]``."""
    before, left, inner, right = found.groups()
    if "," not in inner and ";" not in inner:
        return found[0]
    if ";" in inner:
        inner = re.sub(r"(?<=\d),(?=\d)", ".", inner).replace(";", ",")
    return f"{before}{'(' if left == ']' else left}{inner}{')' if right == '[' else right}"
