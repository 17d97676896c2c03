r"""The final number of a text: found, and read as an exact fraction.

What counts as a number, by example:

========================  =====================================================================================
written                   read as
========================  =====================================================================================
``1,234`` ``1 234``       1234: commas, LaTeX's ``{,}``, and thin or no-break spaces between groups of three digits
``12,34,567``             1234567: Indian groups too. A comma is never a decimal mark: ``3,5`` ends with 5
``3.50`` ``.5`` ``5.``    7/2, 1/2, 5: a full stop at the end belongs to the sentence
``$5`` ``5 €`` ``\$5``     5: currency signs are left out
``-5`` ``−5`` ``-$5``     minus 5, also ``$-5``; after a letter, digit or bracket a hyphen is none: ``10-5`` is 5
``(5)``                   5: round brackets do not make it negative
``3/4`` ``1 1/2`` ``½``   0.75, 1.5, 0.5, also ``\frac{3}{4}``; a date as ``12/25/2020`` is three numbers
``50%``                   50: the sign is a unit like any other; it is not 0.5
``1.5e3`` ``1.5 × 10^3``  1500
========================  =====================================================================================

A number of more than 1,000 characters, with an exponent beyond ±1,000, or divided by zero is none.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from fractions import Fraction

import regex

__all__ = ["Numeral", "final_number"]

_MARK = "####"
_MAX_CHARACTERS = 1000
_MAX_EXPONENT = 1000
_VULGAR = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_FRACTION_SLASH = "\u2044"
_SEPARATOR = r"(?:[,\u2009\u202f\u00a0]|\{,\})"
_INTEGER = (
    rf"(?:[0-9]{{1,3}}(?:{_SEPARATOR}[0-9]{{3}})++(?![0-9])"
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])"
    r"|[0-9]++)"
)
# A point that follows a letter, a digit or another point starts no number: "file.5", "1.2.3", "...5".
_DECIMAL = rf"(?:{_INTEGER}(?:\.[0-9]++)?+|(?<![\w.])\.[0-9]++)"
_POWER = "[-+−]?[0-9]++"
_NUMBER = regex.compile(
    rf"""
    (?:(?<![\w)\]}}\-−])(?P<sign>[-−]))?
    (?:\\?\p{{Sc}}\s?(?P<inner_sign>[-−])?)?
    (?:
        (?:(?P<latex_whole>[0-9]{{1,9}})\s?)?\\[dt]?frac\{{(?P<latex_top>{_DECIMAL})\}}\{{(?P<latex_bottom>{_DECIMAL})\}}
      | (?<![0-9.,/])(?P<whole>[0-9]{{1,3}})[ \u00a0](?P<mixed_top>[0-9]++)/(?P<mixed_bottom>[0-9]++)(?![./][0-9])
      | (?<![0-9]/)(?P<top>{_DECIMAL})[ ]?/[ ]?(?P<bottom>{_DECIMAL})(?!/[0-9])
      | (?P<plain>{_DECIMAL})
        (?:[eE](?P<exponent>{_POWER})(?!\w)
          |[ ]?(?:×|x|\*|\\times|\\cdot)[ ]?10[ ]?(?:\^|\*\*)[ ]?(?:\{{(?P<power>{_POWER})\}}|(?P<power>{_POWER}))
        )?+
    )
    """,
    regex.VERBOSE,
)
_LAST_DIGIT = regex.compile(rf"(?r)[0-9{_VULGAR}]")
_BEFORE_MARKED = regex.compile(r"[\s*_(:=]*+(?:\\boxed\{)?")
# "#### 2. Compute the total" is a numbered heading, not the answer 2.
_HEADING = regex.compile(r"[.):][ \t*_]*+\w")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number as it was written, and its exact value."""

    text: str
    value: Fraction


def final_number(text: str) -> Numeral | None:
    """The number that a text ends with, or None where it has none. Never raises, and never computes with huge numbers.

    After the last ``####`` of the text (GSM8K's mark): the number that follows it at once, else the last one after
    it. Without the mark, or where no number follows it: the last one of the text.
    """
    mark = text.rfind(_MARK)
    if mark >= 0:
        after = text[mark + len(_MARK) :]
        numeral = _leading(after) or _last(after)
        if numeral is not None:
            return numeral
    return _last(text)


def _leading(text: str) -> Numeral | None:
    """The number that a text begins with, unless it counts a heading."""
    head = _plain_fractions(text[: 2 * _MAX_CHARACTERS])
    before = _BEFORE_MARKED.match(head)
    found = _NUMBER.match(head, before.end() if before is not None else 0)
    if found is None or _HEADING.match(head, found.end()):
        return None
    return _read(found)


def _last(text: str) -> Numeral | None:
    """The last number of a text, looked for around its last digit: a long text costs no more than a short one."""
    last_digit = _LAST_DIGIT.search(text)
    if last_digit is None:
        return None
    start = max(0, last_digit.start() - _MAX_CHARACTERS)
    window = _plain_fractions(text[start : last_digit.end() + 1])
    found = None
    for found in _NUMBER.finditer(window):  # noqa: B007 - the last match is wanted
        pass
    # A number that begins before the window fills it, and is then too long to be read.
    return None if found is None else _read(found)


def _plain_fractions(text: str) -> str:
    """``1½`` as ``1 1/2``, and the fraction slash as a slash."""
    if not any(character in text for character in _VULGAR + _FRACTION_SLASH):
        return text
    parts: list[str] = []
    for character in text:
        if character in _VULGAR:
            joined = parts and parts[-1][-1:].isdecimal()
            parts.append((" " if joined else "") + unicodedata.normalize("NFKC", character))
        else:
            parts.append(character)
    return "".join(parts).replace(_FRACTION_SLASH, "/")


def _read(found: regex.Match[str]) -> Numeral | None:
    part = found.groupdict()
    value: Fraction | None
    if part["plain"] is not None:
        value = _scaled(_decimal(part["plain"]), part["exponent"] or part["power"] or "0")
    elif part["latex_top"] is not None:
        value = _mixed(part["latex_whole"], part["latex_top"], part["latex_bottom"])
    elif part["mixed_top"] is not None:
        value = _mixed(part["whole"], part["mixed_top"], part["mixed_bottom"])
    else:
        value = _mixed(None, part["top"], part["bottom"])
    if value is None or len(found[0]) > _MAX_CHARACTERS:
        return None
    negative = part["sign"] is not None or part["inner_sign"] is not None
    return Numeral(found[0].strip(), -value if negative else value)


def _mixed(whole: str | None, top: str, bottom: str) -> Fraction | None:
    divisor = _decimal(bottom)
    if divisor == 0:
        return None
    fraction = _decimal(top) / divisor
    # "3 12/4" is a number and a fraction, not a mixed number; the fraction stands last.
    return fraction + int(whole) if whole is not None and fraction < 1 else fraction


def _scaled(value: Fraction, exponent: str) -> Fraction | None:
    digits = exponent.replace("−", "-")
    if len(digits.lstrip("+-").lstrip("0")) > len(str(_MAX_EXPONENT)):
        return None
    power = int(digits)
    return value * Fraction(10) ** power if abs(power) <= _MAX_EXPONENT else None


def _decimal(text: str) -> Fraction:
    return Fraction("".join(character for character in text if character in "0123456789."))
