r"""Answers that are one rational number, with what a person writes around it; they are compared exactly.

``0.75``, ``\frac{3}{4}``, ``7.5\times10^{-1}``, ``x = 0.75``, ``75\%``, ``\approx 0.75 \text{ cm}``, ``0.75 dollars``.

A unit of measurement (``cm``, ``m s^{-2}``, ``square feet``) is a factor and powers of a few base units, so that 5 kJ
are 5000 J and not 5 J. A name of several units (pounds, degrees, C) is any of them. Words that are no units of
measurement (18 apples) say nothing that could be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from types import MappingProxyType

import regex

from pytest_llmeval.scorers.reading.numerals import first_number, leading_number
from pytest_llmeval.scorers.reading.wordings import denied_before

__all__ = [
    "NO_DECIMALS",
    "WRAPPER",
    "are_equal",
    "in_one_base",
    "is_multiple",
    "measured",
    "quantity",
    "split_unit",
    "undressed",
    "unit_of",
    "without_about",
]

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


_NAMES_OF_SEVERAL = {"B": "", "C": "C celsius", "F": "F fahrenheit", "pound": "lb gbp", "pounds": "lb gbp"}


_NAMES_OF_SEVERAL |= dict.fromkeys(("°", "degree", "degrees", "deg"), "degree celsius fahrenheit")


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
    found = [_look_up(each) for each in _NAMES_OF_SEVERAL.get(name, name).split()]
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
