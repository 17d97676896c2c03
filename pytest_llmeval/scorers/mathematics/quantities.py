r"""Answers that are one rational number, with what a person writes around it; they are compared exactly.

``0.75``, ``\frac{3}{4}``, ``7.5\times10^{-1}``, ``x = 0.75``, ``75\%``, ``\approx 0.75 \text{ cm}``, ``0.75 dollars``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import regex

from pytest_llmeval.scorers.mathematics.units import GAP, MONTHS, WRAPPER, Unit, unit_of
from pytest_llmeval.scorers.reading.numerals import first_number, leading_number
from pytest_llmeval.scorers.reading.wordings import denied_before

__all__ = [
    "NO_DECIMALS",
    "Quantity",
    "are_equal",
    "in_one_base",
    "is_multiple",
    "measured",
    "quantity",
    "undressed",
    "without_about",
]

_MAX_UNITS = 100
"""Characters behind the number in ``2 hours 30 minutes``."""
_MAX_SENTENCE = 2000
"""Characters of a sentence that are searched for a number."""


_OUTER = regex.compile(r"(\$\$?)([^$]+)\1|\\\((.+)\\\)|\\\[(.+)\\\]", regex.DOTALL)


_BRACE = regex.compile(rf"(?:(?:{WRAPPER}|\\boldsymbol)\s*)?\{{")


_BRACES = regex.compile(r"\\.|[{}]", regex.DOTALL)


_MAX_LAYERS = 10


_ABOUT = r"(?:about|approximately|approx\.?|around|roughly|nearly|almost|circa)"


_APPROXIMATELY = regex.compile(
    rf"\s*(?:\\(?:approx|simeq|sim)(?![A-Za-z])|[≈~∼]|{_ABOUT}\s|{WRAPPER}\s*\{{\s*{_ABOUT}\s*\}}){GAP}",
    regex.IGNORECASE,
)


_APPROXIMATE = regex.compile(r"\\(?:approx|simeq)(?![A-Za-z])|≈")


_NAME = regex.compile(
    r"\s*(?:(?P<symbol>(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:[A-Za-z0-9]|\{[^{}]*\}))?'*)\s*(?:=|(?=≈|\\approx))"
    rf"|(?:[A-Za-z ]{{2,40}}|{WRAPPER}\s*\{{[^{{}}]*\}})\s*(?:[=:]|(?=≈|\\approx))|[A-Za-z ]{{1,40}}\bis\s"
    rf"|{WRAPPER}\s*\{{[^{{}}]*(?:[=:]|\bis)\s*\}})"
)


_CURRENCY = regex.compile(r"US\s?(?=\\?\$)|(?P<code>USD|EUR|GBP|INR|Rs)\.?\s*(?=[-\d])")


_MINUS = rf"[-−–]|(?:negative|minus)\b|{WRAPPER}\s*\{{\s*(?:negative|minus)\s*\}}"


_SIGN = regex.compile(rf"(?:\+|(?P<minus>{_MINUS})){GAP}(?=[\d.\\$€£¥₹])")


_STOP = regex.compile(r"(?<!\.)[.,;]\s*\Z")


_MONTH = regex.compile(rf"({'|'.join(MONTHS)})\.?\s+(?=\d)(.*)", regex.IGNORECASE)


_FURTHER = regex.compile(r"(?P<unit>\D+?)(?:,|\band\b|\\text\s*\{\s*and\s*\})?[\s}]*(?P<rest>\d.*)")


_WORD = regex.compile(r"\S++")


_IN_DIGITS = r"\(?(?P<digits>[0-9][0-9A-Fa-f]*(?:\.[0-9A-Fa-f]+)?)\)?"


_DIGITS = regex.compile(_IN_DIGITS)


_BASE = regex.compile(
    rf"{_IN_DIGITS}(?:_(?:[\s{{]|{WRAPPER})*(?P<base>[0-9]{{1,2}}|(?<=\{{\s*)[a-z]+)[\s}}]*"
    rf"|(?:[\s~({{]|\\[,;:!\s]|{WRAPPER})*base[\s~}}$]*(?P<base>[0-9]{{1,2}}|[a-z]+)[\s$)}}]*)"
)


_BASES = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen"),
)


NO_DECIMALS = regex.compile(r"(?<=\d)\.(?=\s*(?:/|\\?%|\}|$))")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A rational number, of one of ``units``. ``symbol`` is whose value it is said to be (None: nothing, or a word)."""

    value: Fraction
    units: tuple[Unit, ...] = ()
    symbol: str | None = None


def quantity(text: str) -> Quantity | None:
    """Return the one rational number that an answer is; None where it is anything else."""
    text = _STOP.sub("", undressed(text))
    name = _NAME.match(text)
    if name is not None:
        text = text[name.end() :]
    text = NO_DECIMALS.sub("", without_about(text)).strip()
    sign = _SIGN.match(text)
    if sign is not None:
        text = ("-" if sign["minus"] else "") + text[sign.end() :]
    currency = _CURRENCY.match(text)
    if currency is not None:
        text = text[currency.end() :]
    month = _MONTH.fullmatch(text)
    found = leading_number(text if month is None else f"{month[2]} {month[1]}")
    if found is None or found[0].text.startswith(("0,", "-0,")):  # in mathematics "0,5" are two numbers
        return None
    numeral, rest = found
    is_noun, units = unit_of(rest)
    if not is_noun:
        return _with_further_units(numeral.value, rest)
    sign_of_money = (currency and currency["code"]) or regex.sub(r"[^\p{Sc}]", "", numeral.text)
    for money in unit_of(f" {sign_of_money}")[1]:
        units = (money,) if not units or money in units else tuple(money.times(unit) for unit in units)
    return Quantity(numeral.value, units, None if name is None else name["symbol"])


def measured(sentence: str) -> str | None:
    """Return the first number of a sentence as it is written, with the units behind it: ``3 hours and 20 minutes``.

    A number that is denied is left out: in "not 12 but 13" it is 13.
    """
    rest = sentence[:_MAX_SENTENCE]
    while True:
        counted = first_number(rest)
        if counted is None:
            return None
        before, number, rest = counted
        if not denied_before(before, len(before)):
            break
    for end in reversed([word.end() for word in _WORD.finditer(rest[:_MAX_UNITS])]):
        is_noun, units = unit_of(rest[:end])
        if units or (not is_noun and _with_further_units(number.value, rest[:end]) is not None):
            return number.text + rest[:end].rstrip(" .,;:")
        if is_noun:
            break
    return number.text


def _with_further_units(value: Fraction, rest: str) -> Quantity | None:
    """Return the value of ``2 hours 30 minutes`` in the first unit; None where no smaller ones follow it."""
    parts = _FURTHER.fullmatch(rest) if len(rest) <= _MAX_UNITS else None
    further = None if parts is None else quantity(parts["rest"])
    if parts is None or further is None or value < 0 or further.value < 0:
        return None
    for unit, smaller in product(unit_of(parts["unit"])[1], further.units):
        if unit.powers == smaller.powers and further.value * smaller.factor < unit.factor:
            return Quantity(value + further.value * smaller.factor / unit.factor, (unit,))
    return None


def without_about(text: str) -> str:
    r"""Return an answer without ``\approx``, "about" and the like before it; ``x \approx 2`` is ``x = 2``."""
    return str(_APPROXIMATE.sub("=", _APPROXIMATELY.sub("", text, count=1) if _APPROXIMATELY.match(text) else text))


def undressed(text: str) -> str:
    r"""Return an answer without ``$ $``, ``\( \)``, ``\[ \]``, ``\mathbf{}`` and the like around all of it."""
    text = text.strip()
    for _ in range(_MAX_LAYERS):
        outer, brace = _OUTER.fullmatch(text), _BRACE.match(text)
        if outer is not None:
            text = next(part for part in outer.groups()[1:] if part is not None).strip()
        elif brace is not None and text.endswith("}") and _is_balanced(text[brace.end() : -1]):
            text = text[brace.end() : -1].strip()
        else:
            break
    return text


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in _BRACES.finditer(text):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth < 0:
            return False
    return depth == 0


def are_equal(one: Quantity, other: Quantity, rel_tol: float | None) -> bool | None:
    """Return whether two quantities are equal, or differ by at most ``rel_tol`` of the larger; None where they have
    names.

    Two units of measurement must be of one kind, and count; a name of several is any of them. Where one is missing
    numbers are compared; where it is a percentage or a dozen, with it and without it.
    """
    if one.symbol is not None and other.symbol is not None and one.symbol != other.symbol:
        return None
    if one.units and other.units:
        return any(
            its.powers == others.powers and are_close(one.value * its.factor, other.value * others.factor, rel_tol)
            for its, others in product(one.units, other.units)
        )
    if are_close(one.value, other.value, rel_tol):
        return True
    scaled = [each.value * each.units[0].factor if is_multiple(each.units) else each.value for each in (one, other)]
    return are_close(scaled[0], scaled[1], rel_tol)


def is_multiple(units: tuple[Unit, ...]) -> bool:
    """Return whether what stands behind a number is a percentage or a dozen, and no unit of measurement."""
    return bool(units) and not units[0].powers


def are_close(one: Fraction, other: Fraction, rel_tol: float | None) -> bool:
    """Return whether two exact numbers are equal, or close as ``math.isclose`` has it."""
    return one == other or (rel_tol is not None and abs(one - other) <= Fraction(rel_tol) * max(abs(one), abs(other)))


def in_one_base(one: str, other: str) -> bool | None:
    """Return whether two numerals have the same digits, and no two bases; None where neither says its base
    (``2021_3``).
    """
    found = [_BASE.fullmatch(undressed(text)) or _DIGITS.fullmatch(undressed(text)) for text in (one, other)]
    if found[0] is None or found[1] is None:
        return None
    parts = [match.groupdict() for match in found if match is not None]
    bases = {_base(part["base"]) for part in parts if "base" in part}
    return len({part["digits"].lower() for part in parts}) == 1 and len(bases) == 1 if bases else None


def _base(text: str) -> str:
    return str(_BASES.index(text) + 2) if text in _BASES else text
