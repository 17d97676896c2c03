r"""The final number of a text: found, and read as an exact fraction.

What counts as a number, by example:

=========================  ====================================================================================
written                    read as
=========================  ====================================================================================
``1,234`` ``1 234``         1234. Between groups of three digits may stand a comma, a space (thin, no-break or plain),
                           ``'``, ``_``, ``~``, and LaTeX's ``{,}`` ``\,`` ``,\!`` ``\;`` ``\:`` and ``\ ``. The
                           price of the plain space: ``3 200 meter laps`` is 3200 too
``12,34,567``              1234567: Indian groups too
``1.234,56`` ``1.234.567`` 1234.56, 1234567: where nothing else can be meant, as in ``0,5``, which is 0.5. Else a comma
                           is no decimal mark: ``3,5`` and the pair ``(0,5)`` end with 5, but ``3{,}5`` is 3.5
``3.50`` ``.5`` ``5.``     7/2, 1/2, 5: a full stop at the end belongs to the sentence
``0.\overline{3}``         1/3, also ``0.\bar{3}``, ``0.\dot{3}``, ``0.(3)``, ``0.333...``
``$5`` ``5 €`` ``\$5``     5: currency signs are left out
``-5`` ``−5`` ``–5``       minus 5, also ``-$5`` and ``$-5``; after a letter, digit or bracket a dash is none, nor after
                           a digit and blanks: ``10-5`` is 5, ``5–10`` and ``5 –10`` are 10
``(5)``                    5: round brackets do not make it negative
``3/4`` ``1 1/2`` ``½``    0.75, 1.5, 0.5, also ``\frac{3}{4}`` and ``\frac34``; a date as ``12/25/2020`` is three
                           numbers
``50%``                    50: the sign is a unit like any other; it is not 0.5
``1.5e3`` ``1.5 × 10^3``   1500, also ``1.5 \times 10^{3}`` and ``1.5 × 10³``
``2.5 million``            2500000, also ``2.5 \text{ million}``; thousand, billion and trillion too
``10^6`` ``2**10`` ``10³``  1000000, 1024, 1000; ``2^{n+1}`` is no number
``36 m^2`` ``x_2 = 36``    36: the exponent of anything but a number, and an index, are no numbers
``٣٦`` ``３６``              36: digits of any script
=========================  ====================================================================================

A number of more than 1,000 characters, with an exponent beyond ±1,000, or divided by zero is none.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from fractions import Fraction

import regex

from pytest_llmeval.text.escaping import plain_characters

__all__ = ["Numeral", "final_number", "first_number", "leading_number"]

_MARK = "####"
_MAX_CHARACTERS = 1000
_MAX_EXPONENT = 1000
_MAX_DIGITS = 4000
"""Digits of a power, below what Python writes of an integer."""
_MAX_BEHIND = 40
"""Characters behind the last digit that can belong to its number: the end of a repeating decimal, small exponents."""
_SIGNS = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2212\ufe63－＋，．％／＄（）\u066a\u066b\u066c\u2044", "-" * 7 + "+,.%/$()%.,/"
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_VULGAR = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_GAP = r"(?:[^\S\n]|~|\\[!,;:\ ]){0,3}"
_SEPARATOR = r"(?:,?[ ]?\\[!,;:\ ]|\{,\}|\{\\,\}|[,'’_~\u2009\u202f\u00a0])"
_SPACED = r"(?<![0-9][ ])[1-9][0-9]{0,2}(?:[ ][0-9]{3})++(?![ ]?[0-9]|-[A-Za-z])"

_INTEGER = (
    rf"(?:[0-9]{{1,3}}(?:{_SEPARATOR}[0-9]{{3}})++(?![0-9])"
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])"
    rf"|{_SPACED}"
    r"|[0-9]++)"
)


# A point that follows a letter, a digit or another point starts no number: "file.5", "1.2.3", "...5".
_DECIMAL = rf"(?:{_INTEGER}(?:\.[0-9]++)?+|(?<![\w.])\.[0-9]++)"

_EUROPEAN = (
    r"[0-9]{1,3}(?:(?:\.[0-9]{3})++|(?:[ '’\u2009\u202f\u00a0][0-9]{3})++),[0-9]{1,2}(?![0-9,])"
    r"|[0-9]{1,3}(?:\.[0-9]{3}){2,}+(?![.0-9])"
    r"|(?:0\{,\}|[0-9]++\{,\}(?![0-9]{3}(?![0-9])))[0-9]++"
    # No group of thousands begins with 0. But "(0,5)" and \boxed{0,5} are pairs, and "0,1,2" and "0,1,…" are lists.
    r"|(?<![.,(\[{])0,[0-9]++(?!\.?[0-9]|,\s?(?:[0-9]|\\|\.\.|…))"
)

_REPEATING = (
    rf"(?P<before>{_INTEGER}?\.[0-9]*)"
    r"(?:\\(?:overline|bar)\s?(?:\{(?P<period>[0-9]++)\}|(?P<period>[0-9]))"
    r"|(?P<period>\\dot\s?(?:\{[0-9]\}|[0-9])(?:[0-9]*+\\dot\s?(?:\{[0-9]\}|[0-9]))?+)"
    r"|(?<=\.)\((?P<period>[0-9]++)\)"
    r"|(?P<period>(?:[0-9][\u0304\u0305])++)"
    r"|(?P<open>\.\.\.|…|\\[lc]?dots))"
)

_PERIOD = regex.compile(r"([0-9])\1\1++\Z|([0-9]{2,}?)\2++\Z")
_POWER = "[-+]?[0-9]++"


# Two asterisks raise to a power only between digits and where none close them: "it costs **18 dollars**" is bold.
_RAISES = rf"(?:{_GAP}\^{_GAP}|(?<=(?<!\*\*[0-9]*)[0-9])\*\*(?=[-+{{0-9])(?![^\n]*?\*\*))"

_EXPONENT = (
    rf"(?:{_RAISES}(?:\{{\s?(?P<NAME>{_POWER})\s?\}}|(?P<NAME>{_POWER}))(?P<tower>{_GAP}(?:\^|\*\*)[0-9^{{}}]++)?"
    r"|(?P<NAME>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++))"
)

_MAGNITUDES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_WORD = rf"(?P<magnitude>(?i:{'|'.join(_MAGNITUDES)}))"


# "3 million-dollar houses" are three, and a "2.5-million-dollar house" costs millions.
_MAGNITUDE = (
    rf"(?:{_GAP}(?:\*\*|\$)?{_GAP}(?:{_WORD}s?(?![\w\-])|\\[a-z]++\s?\{{\s?{_WORD}(?!\w)(?:\s?\}})?+)|-{_WORD}(?!\w))"
)
_TOP, _BOTTOM = (
    rf"(?:\{{\s?(?P<{name}>-?{_DECIMAL})\s?\}}|\s?(?P<{name}>[0-9]))" for name in ("latex_top", "latex_bottom")
)

_NUMBER = regex.compile(
    rf"""
    (?:(?<![\w)\]}}\-]|[0-9%][^\S\n]{{1,3}})(?P<sign>-))?
    (?:\\?\p{{Sc}}\s?(?P<inner_sign>-)?)?
    (?<![0-9])
    (?:
        (?:(?P<latex_whole>[0-9]{{1,9}}){_GAP})?\\[dtc]?frac{_TOP}{_BOTTOM}
      | (?<![0-9.,/])(?P<whole>[0-9]{{1,3}})[ \u00a0](?P<mixed_top>[0-9]++)/(?P<mixed_bottom>[0-9]++)(?![./][0-9])
      | (?P<vulgar_whole>[0-9]{{1,9}})?[ ]?(?P<vulgar>[{_VULGAR}])
      | (?P<european>{_EUROPEAN})
      | {_REPEATING}
      | (?<![0-9]/)(?P<top>{_DECIMAL})[ ]?/[ ]?(?P<bottom>{_DECIMAL})(?!/[0-9])
      | (?P<plain>{_DECIMAL})
        (?:[eE](?P<tens>{_POWER})(?!\w)
          |{_GAP}(?:×|x|\*|·|⋅|\\times|\\cdot){_GAP}10{_EXPONENT.replace("NAME", "tens")}
          |{_EXPONENT.replace("NAME", "power")}
        )?+
    )
    {_MAGNITUDE}?+
    """,
    regex.VERBOSE,
)

_LAST_DIGIT = regex.compile(rf"(?r)[\p{{Nd}}{_VULGAR}]")

_NO_NUMBER = regex.compile(
    rf"""
    (?<![0-9]{_GAP})\^\s?(?:\{{[^{{}}]{{0,60}}\}}|{_POWER})                    # an exponent of no number: x^2
    | [0-9.,]++\s?\^\s?(?:\{{(?!\s?(?:{_POWER}|\\circ|[a-z]{{1,2}})\s?\}})[^{{}}]{{0,60}}\}}|[a-z](?<!o))  # 2^{{n+1}}
    | (?<=[A-Za-z0-9)}}\]])_(?:\{{[^{{}}]{{0,60}}\}}|(?<![0-9]_(?=[0-9]{{3}}(?![0-9])))[0-9]++)  # an index: x_2
    | (?<=(?<![A-Za-z])[A-Za-z]|\))\*\*[0-9]++(?![^\n]*?\*\*)                 # x**2
    | (?<=[0-9]\s?(?:[kcdm]?m|ft|in|yd|mi))[23](?!\w)                         # 36 m2
    """,
    regex.VERBOSE,
)

_BEFORE_MARKED = regex.compile(r"[\s*_(:=]*+(?:\\boxed\{)?")


# "#### 2. Compute the total" is a numbered heading, not the answer 2.
_HEADING = regex.compile(r"[.):][ \t*_]*+\w")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number as it was written, and its exact value."""

    text: str
    value: Fraction


def final_number(text: str) -> Numeral | None:
    """Return the number that a text ends with, or None where it has none. It never raises, and never computes with huge
    numbers.

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


def leading_number(text: str) -> tuple[Numeral, str] | None:
    """Return the number that a text begins with, and what follows it."""
    found = _NUMBER.match(_plain(text[: _MAX_CHARACTERS + _MAX_BEHIND]))
    numeral = None if found is None else _numeral(text, found)
    return None if found is None or numeral is None else (numeral, text[found.end() :])


def first_number(text: str) -> tuple[str, Numeral, str] | None:
    """Return what stands before the first number of a text, the number, and what follows it."""
    found = _NUMBER.search(_plain(text[: 2 * _MAX_CHARACTERS]))
    numeral = None if found is None else _numeral(text, found)
    return None if found is None or numeral is None else (text[: found.start()], numeral, text[found.end() :])


def _leading(text: str) -> Numeral | None:
    """Return the number that a text begins with, unless it counts a heading."""
    head = text[: 2 * _MAX_CHARACTERS]
    plain = _plain(head)
    before = _BEFORE_MARKED.match(plain)
    found = _NUMBER.match(plain, before.end() if before is not None else 0)
    if found is None or _HEADING.match(plain, found.end()):
        return None
    return _numeral(head, found)


def _last(text: str) -> Numeral | None:
    """Return the last number of a text, looked for around its last digits: a long text costs no more."""
    end = len(text)
    while (last_digit := _LAST_DIGIT.search(text, 0, end)) is not None:
        start = max(0, last_digit.start() - _MAX_CHARACTERS)
        window = text[start : min(last_digit.end() + _MAX_BEHIND, end)]
        found = None
        for found in _NUMBER.finditer(_plain(window)):  # noqa: B007 - the last match is wanted
            pass
        if found is None:
            end = start  # all of it are exponents
        elif found.start() == 0 < start and start + found.end() <= last_digit.start():
            end = start + found.end()  # it may begin before the window
        else:
            # A number that begins before the window fills it, and is then too long to be read.
            return _numeral(window, found)
    return None


def _plain(text: str) -> str:
    """Return the text, character for character, with ASCII digits and signs, and blanks for what looks like a number
    only.
    """
    return str(_NO_NUMBER.sub(lambda found: " " * len(found[0]), plain_characters(text).translate(_SIGNS)))


def _numeral(text: str, found: regex.Match[str]) -> Numeral | None:
    value = _value(found)
    return None if value is None else Numeral(text[found.start() : found.end()].strip(), value)


def _value(found: regex.Match[str]) -> Fraction | None:
    part = found.groupdict()
    value: Fraction | None
    if len(found[0]) > _MAX_CHARACTERS or part["tower"] is not None:
        return None
    if part["plain"] is not None:
        value = _decimal(part["plain"])
        if part["tens"] is not None:
            value = _times(value, Fraction(10), part["tens"])
        elif part["power"] is not None:
            value = _times(Fraction(1), value, part["power"])
    elif part["european"] is not None:
        value = _decimal(part["european"].replace(".", "").replace(",", ".").replace("{", ""))
    elif part["before"] is not None:
        value = _repeating(part["before"], part["period"])
    elif part["vulgar"] is not None:
        top, bottom = unicodedata.normalize("NFKC", part["vulgar"]).split("\u2044")
        value = int(part["vulgar_whole"] or 0) + Fraction(int(top), int(bottom))
    elif part["latex_top"] is not None:
        value = _mixed(part["latex_whole"], part["latex_top"], part["latex_bottom"])
    elif part["mixed_top"] is not None:
        value = _mixed(part["whole"], part["mixed_top"], part["mixed_bottom"])
    else:
        value = _mixed(None, part["top"], part["bottom"])
    if value is not None and part["magnitude"] is not None:
        value *= 10 ** _MAGNITUDES[part["magnitude"].lower()]
    negative = part["sign"] is not None or part["inner_sign"] is not None
    return -value if negative and value is not None else value


def _mixed(whole: str | None, top: str, bottom: str) -> Fraction | None:
    divisor = _decimal(bottom)
    if divisor == 0:
        return None
    fraction = _decimal(top) / divisor
    # "3 12/4" is a number and a fraction, not a mixed number; the fraction stands last.
    return fraction + int(whole) if whole is not None and 0 <= fraction < 1 else fraction


def _repeating(before: str, period: str | None) -> Fraction:
    r"""Return ``0.1\overline{6}`` with 0.1 before the period, whose digits count over as many nines.

    Of ``0.1666...`` it is what the digits end with three times, or twice if it is longer than a digit.
    """
    if period is None:
        again = _PERIOD.search(before)
        period = "0" if again is None else again[1] or again[2]
    digits = "".join(character for character in period if character in "0123456789")
    places = len(before.rpartition(".")[2])
    return _decimal(f"0{before}0") + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)


def _times(value: Fraction, base: Fraction, exponent: str) -> Fraction | None:
    """Return ``value * base ** exponent``; None for an exponent, or a number, that is too large."""
    digits = exponent.translate(_RAISED)
    if len(digits.lstrip("+-").lstrip("0")) > len(str(_MAX_EXPONENT)):
        return None
    power = int(digits)
    size = len(str(base.numerator)) + len(str(base.denominator))
    if abs(power) > _MAX_EXPONENT or abs(power) * size > _MAX_DIGITS or (power < 0 and base == 0):
        return None
    return value * base**power


def _decimal(text: str) -> Fraction:
    return Fraction("".join(character for character in text if character in "-0123456789."))
