r"""Units of measurement behind a number: ``cm``, ``\text{ km/h}``, ``m s^{-2}``, ``square feet``, ``\%``, ``dollars``.

A unit is a factor and powers of a few base units, so that 5 kJ are 5000 J and not 5 J. A name of several units (pounds,
degrees, C) is any of them. Words that are no units of measurement (18 apples) say nothing that could be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import regex

__all__ = ["GAP", "MONTHS", "WRAPPER", "Unit", "split_unit", "unit_of"]

WRAPPER = r"\\(?:text(?:rm|normal|it|bf|sf|up)?|math(?:rm|it|bf|sf)|mbox|hbox|operatorname|rm|bf|it)(?![A-Za-z])"
"""Commands of LaTeX whose argument is text, or upright as a unit is."""


MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november"),
    *("december", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
)


GAP = r"(?:\s|~|\\[,;:!\s])*"
"""Spaces, as LaTeX writes them."""


_MAX_UNIT = 100


_MAX_MEANT = 9


_MAX_EXPRESSION = 500
"""Characters: what is longer is searched for no unit."""


_WITH_PREFIX = {
    "m meter metre": "1 m",
    "g gram gramme": "1 g",
    "s sec second": "1 s",
    "A amp ampere": "1 A",
    "K kelvin": "1 K",
    "mol mole": "1 mol",
    "N newton": "1000 g m s^-2",
    "Pa pascal": "1000 g m^-1 s^-2",
    "J joule": "1000 g m^2 s^-2",
    "W watt": "1000 g m^2 s^-3",
    "Wh": "3600000 g m^2 s^-2",
    "C coulomb": "1 A s",
    "V volt": "1000 g m^2 s^-3 A^-1",
    "Ω ohm": "1000 g m^2 s^-3 A^-2",
    "F farad": "1/1000 g^-1 m^-2 s^4 A^2",
    "T tesla": "1000 g s^-2 A^-1",
    "Hz hertz": "1 s^-1",
    "L l liter litre": "1/1000 m^3",
    "eV electronvolt": "1 eV",
    "cal calorie": "1 cal",
    "bit": "1 bit",
    "B byte": "8 bit",
}


_OTHERS = {
    "min minute": "60 s",
    "h hr hour": "3600 s",
    "day": "86400 s",
    "week wk": "604800 s",
    "month": "1 month",
    "year yr": "12 month",
    "in inch": "0.0254 m",
    "ft foot feet": "0.3048 m",
    "yd yard": "0.9144 m",
    "mi mile": "1609.344 m",
    "cc": "0.000001 m^3",
    "gal gallon": "0.003785411784 m^3",
    "acre": "4046.8564224 m^2",
    "ha hectare": "10000 m^2",
    "mph": "0.44704 m s^-1",
    "kmh kmph kph": "5/18 m s^-1",
    "lb": "453.59237 g",
    "oz ounce": "28.349523125 g",
    "tonne": "1000000 g",
    "rad radian": "1 rad",
    "° degree deg": "1 degree",
    "celsius centigrade": "1 celsius",
    "fahrenheit": "1 fahrenheit",
    "am": "1 am",
    "pm": "1 pm",
    "$ dollar usd buck": "1 dollar",
    "¢ cent": "1/100 dollar",
    "€ euro eur": "1 euro",
    "£ gbp": "1 gbp",
    "¥ yen": "1 yen",
    "₹ rupee rs inr": "1 rupee",
    "% percent percentage pct": "1/100",
    "dozen": "12",
    "hundred": "100",
}


_SYMBOLS = {"": 0, "k": 3, "K": 3, "c": -2, "m": -3, "d": -1, "µ": -6, "u": -6, "n": -9, "p": -12, "M": 6, "G": 9}


_SYMBOLS |= {"T": 12}


_NAMES = {"": 0, "kilo": 3, "centi": -2, "milli": -3, "deci": -1, "micro": -6, "nano": -9, "pico": -12, "mega": 6}


_NAMES |= {"giga": 9, "tera": 12, "hecto": 2}


_OF_SEVERAL = {"B": "", "C": "C celsius", "F": "F fahrenheit", "pound": "lb gbp", "pounds": "lb gbp"}


_OF_SEVERAL |= dict.fromkeys(("°", "degree", "degrees", "deg"), "degree celsius fahrenheit")


_NO_NOUNS = frozenset(
    (
        *("and", "or", "if", "when", "where", "for", "not", "no", "is", "are", "more", "less", "fewer", "than", "base"),
        *("half", "halves", "third", "thirds", "quarter", "quarters", "fourths", "fifth", "fifths", "tenth", "tenths"),
        *("plus", "minus", "over", "mod", "choose", "squared", "cubed", "factorial", "infinity", "root", "sqrt"),
        *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "exp", "inf"),
        *("pi", "tau", "phi", "theta", "alpha", "beta", "gamma", "delta", "lambda", "mu", "sigma", "omega", "epsilon"),
    )
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measurement: ``factor`` times powers of base units, of which a percentage or a dozen has none."""

    factor: Fraction
    powers: Mapping[str, int]

    def times(self, other: Unit, power: int = 1) -> Unit:
        """Return the unit of a product with a power of another."""
        powers = dict(self.powers)
        for name, number in other.powers.items():
            powers[name] = powers.get(name, 0) + power * number
        return Unit(self.factor * other.factor**power, {name: number for name, number in powers.items() if number})


def _defined(definition: str) -> Unit:
    factor, *names = definition.split()
    powers = (name.partition("^") for name in names)
    return Unit(Fraction(factor), {name: int(power or 1) for name, _, power in powers})


def _table() -> Mapping[str, Unit]:
    found: dict[str, Unit] = {}
    for spellings, definition in _WITH_PREFIX.items():
        unit = _defined(definition)
        for spelling in spellings.split():
            is_symbol = len(spelling) < 3 or spelling in ("sec", "mol", "cal", "bit")
            for prefix, power in (_SYMBOLS if is_symbol else _NAMES).items():
                found[prefix + spelling] = Unit(unit.factor * Fraction(10) ** power, unit.powers)
    for spellings, definition in _OTHERS.items():
        found |= dict.fromkeys(spellings.split(), _defined(definition))
    found |= {month: Unit(Fraction(1), {month[:3]: 1}) for month in MONTHS}
    for name, unit in tuple(found.items()):
        if len(name) > 1:
            found.setdefault(name.lower(), unit)
    return MappingProxyType(found)


_UNITS = _table()


_SHORT = frozenset(("mol", *(prefix + symbol for prefix in ("", "c", "k", "m") for symbol in "mgsAKNJWCVL")))
"""Symbols that are written without a space between them and a negative power behind: ``kms^{-1}``."""


_SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


_WRAPPER = regex.compile(WRAPPER)


_REWRITTEN = tuple(
    (regex.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)\$([^$]*[A-Za-z][^$]*)\$", r" \1 "),
        (r"(?<=[^\s\\])\$\s*\Z", ""),
        (r"\\[dt]?frac\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r" \1 / \2 "),
        (r"\{\s*([^{}^]*?)\s*\}\s*(?=\^)", r"\1"),
        (r"\^?\s*\{?\s*\\circ\s*\}?|\\degree|\^?\s*°", " ° "),
        (r"\s*\^\s*\{?\s*(-?\d)\s*\}?", r"^\1 "),
        (r"\^\s*\{?\s*(st|nd|rd|th)\s*\}?", r" \1"),
        (r"\\([%$])", r"\1"),
        (r"\\mu(?![A-Za-z])[\s{]*|μ", "µ"),
        (r"\\Omega(?![A-Za-z])|Ω", "Ω"),
        (r"\\(?:cdot|times)(?![A-Za-z])|[·⋅*]|\\[,;:!\s]|[~{}()]|(?<=[A-Za-z])-(?=[A-Za-z])", " "),
        (r"(?<![A-Za-z])(?:a\.?\s?m|A\.?\s?M)\.?(?![A-Za-z])", "am"),
        (r"(?<![A-Za-z])(?:p\.?\s?m|P\.?\s?M)\.?(?![A-Za-z])", "pm"),
        (r"(?i)(?:°|\bdegrees?)\s*(?:c|celsius)\b", "celsius"),
        (r"(?i)(?:°|\bdegrees?)\s*(?:f|fahrenheit)\b", "fahrenheit"),
        (r"(?i)\b(?:square|sq\.?)\s+([a-z]+)|([a-z]+)\s+squared\b", r"\1\2^2"),
        (r"(?i)\b(?:cubic|cu\.?)\s+([a-z]+)|([a-z]+)\s+cubed\b", r"\1\2^3"),
        (r"/", " per "),
        (r"(?i)\bper cent\b", "percent"),
        (r"[$€£¥₹%°¢]", r" \g<0> "),
    )
)


_TOKEN = regex.compile(r"([A-Za-zµΩ°%$€£¥₹¢][A-Za-zµΩ'’]*)\.?(?:\^(-?\d))?")


_CLOSE = regex.compile(r"(?:[ck]?ms\^-|[cdkm]m|kg|kJ|kW|kN|ft|st|nd|rd|th)(?![A-Za-z])|[A-Za-zµ]{3,}")


_NOUN = regex.compile(r"^(?:[BCF°]|per|st|nd|rd|th|in|of|on|at|(?=.*[aeiou]).{3,})$", regex.IGNORECASE)


_START = regex.compile(rf"{WRAPPER}|(?<![A-Za-z\\])[A-Za-zµΩ]{{2,}}|\\?[%°]|\\degree|\^\s*\{{?\s*\\circ")


_VALUE = regex.compile(r"\d|\\pi(?![A-Za-z])")


_GAPS = regex.compile(rf"{GAP}\Z")


_BEFORE = regex.compile(rf"[\w)}}\]|!]{_GAPS.pattern}")


def unit_of(text: str) -> tuple[bool, tuple[Unit, ...]]:
    """Return whether a text behind a number is a unit or another noun, and the units that it can mean.

    Of a noun that names no unit there are none, and empty text is such a noun. Letters that are written to the number,
    and not as text, are variables (``2m``, ``2mg``), unless they are a unit that is often written so (``2cm``) or the
    end of an ordinal (``2nd``).
    """
    if len(text) > _MAX_UNIT:
        return False, ()
    plain = _WRAPPER.sub(" ", text).translate(_SMALL)
    for pattern, replacement in _REWRITTEN:
        plain = pattern.sub(replacement, plain)
    words = plain.strip(" .,;").split()
    tokens = [_TOKEN.fullmatch(word) for word in words]
    is_text = _WRAPPER.search(text) is not None
    if not all(tokens) or (text[:1].isalpha() and not is_text and not _CLOSE.match(words[0])):
        return False, ()
    units, rest = _known([(token[1], int(token[2] or 1)) for token in tokens if token is not None])
    if any(name.lower() in _NO_NOUNS or not (is_text or _NOUN.search(name)) for name in rest):
        return False, ()
    return True, () if "per" in rest else units


def _known(tokens: list[tuple[str, int]]) -> tuple[tuple[Unit, ...], list[str]]:
    """Return the units that the first words can mean, and the other words."""
    units: tuple[Unit, ...] = ()
    sign = 1
    for place, (name, power) in enumerate(tokens):
        if name.lower() == "per":
            sign = -1
            continue
        is_word = name == "in" and place + 1 < len(tokens)  # "18 in total" are no inches
        meant = () if is_word else _meanings(name, power)
        if not meant:
            return units, [other for other, _ in tokens[place - (sign < 0) :]]
        units = tuple(one.times(other, sign) for one in units or (Unit(Fraction(1), {}),) for other in meant)[
            :_MAX_MEANT
        ]
        sign = 1
    return units, []


def _meanings(name: str, power: int) -> tuple[Unit, ...]:
    """Return the units that a name with a power can mean.

    With a negative power ``ms`` is metres per second, and so is all that is written of two symbols: ``Jkg^{-1}``.
    """
    one = Unit(Fraction(1), {})
    for cut in range(len(name) - 1, 0, -1) if power < 0 else ():
        head, last = name[:cut], name[cut:]
        if {head, last} <= _SHORT and (last == "s" or _look_up(name) is None):
            return (_UNITS[head].times(_UNITS[last], power),)
    found = [_look_up(each) for each in _OF_SEVERAL.get(name, name).split()]
    return tuple(one.times(unit, power) for unit in found if unit is not None)


def _look_up(name: str) -> Unit | None:
    """Return the unit of this name, in lower case and without the ending of a plural where that is needed."""
    for spelling in (name, name.lower()) if len(name) > 1 else (name,):
        for ending in ("", "s", "es"):
            if spelling.endswith(ending) and len(spelling) > len(ending) + bool(ending):
                found = _UNITS.get(spelling[: len(spelling) - len(ending)])
                if found is not None:
                    return found
    return None


def split_unit(text: str) -> tuple[str, tuple[Unit, ...]]:
    r"""Return an expression without the unit or other noun that it ends with, and the units that this can mean.

    ``2\sqrt{3} \text{ cm}``, ``\frac{\pi}{2}^\circ``, ``(1, 2) units``.
    """
    for start in _starts(text) if len(text) <= _MAX_EXPRESSION else ():
        is_noun, units = unit_of(text[start:])
        if is_noun:
            return _GAPS.sub("", text[:start]), units
    return text, ()


def _starts(text: str) -> Iterator[int]:
    """Yield the places where a unit can begin: behind a whole expression that has no text itself."""
    for begin in _START.finditer(text):
        head = text[: begin.start()]
        are_closed = all(head.count(opening) == head.count(closing) for opening, closing in ("{}", "()", "[]"))
        if are_closed and _BEFORE.search(head) and _VALUE.search(head):
            yield begin.start()
        if begin[0].startswith("\\") and _WRAPPER.match(begin[0]):
            return
