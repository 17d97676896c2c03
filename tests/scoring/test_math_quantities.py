r"""Numbers of math: exact where both sides are rational, relative beyond; units, bases, times of day.

Equality of rational numbers is tested against ``fractions.Fraction``, and tolerance against ``math.isclose``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_llmeval.scorers.math import MathSettings
from pytest_llmeval.scorers.mathematics.quantities import are_close, quantity, split_unit, unit_of
from tests.properties import examples
from tests.scoring.helpers import judge_reply

SETTINGS = MathSettings()


def equal(target: str, answer: str, settings: MathSettings = SETTINGS) -> bool:
    return judge_reply(settings, f"\\boxed{{{target}}}", f"So we get $\\boxed{{{answer}}}$.").status == "correct"


# Rational numbers in their notations


def long_division(number: Fraction) -> tuple[str, str, str]:
    """The whole part, and the digits behind the point before and in the period."""
    whole, rest = divmod(abs(number.numerator), number.denominator)
    digits, places = "", {}
    while rest not in places and rest:
        places[rest] = len(digits)
        digits += str(rest * 10 // number.denominator)
        rest = rest * 10 % number.denominator
    start = places[rest] if rest else len(digits)
    return str(whole), digits[:start], digits[start:]


def repeating(number: Fraction, draw: Callable[..., int]) -> str:
    whole, head, period = long_division(number)
    if not period:
        return f"{whole}.{head}" if head else whole
    command = ("\\overline", "\\bar")[draw(st.integers(0, 1))]
    return f"{whole}.{head}{command}{{{period}}}"


def scientific(number: Fraction, draw: Callable[..., int]) -> str:
    whole, head, _ = long_division(number)
    power = draw(st.integers(-30, 30))
    shifted = Decimal(f"{whole}.{head or 0}").scaleb(-power)
    form = ("{:f}e{}", "{:f}E{:+}", "{:f}\\times 10^{{{}}}", "{:f} \\cdot 10^{{{}}}", "{:f} × 10^{}")[
        draw(st.integers(0, 4))
    ]
    return form.format(shifted, power)


def quotient(number: Fraction, draw: Callable[..., int]) -> str:
    factor = draw(st.integers(1, 99))
    top, bottom = abs(number.numerator) * factor, number.denominator * factor
    return ("{}/{}", "\\frac{{{}}}{{{}}}", "\\dfrac{{{}}}{{{}}}", "{} / {}")[draw(st.integers(0, 3))].format(
        top, bottom
    )


def mixed(number: Fraction, draw: Callable[..., int]) -> str:
    whole, rest = divmod(abs(number), 1)
    if not 0 < whole < 1000 or not rest:
        return quotient(number, draw)
    form = ("{} {}/{}", "{}\\frac{{{}}}{{{}}}", "{}\\,\\tfrac{{{}}}{{{}}}")[draw(st.integers(0, 2))]
    return form.format(whole, rest.numerator, rest.denominator)


def grouped(number: Fraction, draw: Callable[..., int]) -> str:
    text = repeating(number, draw)
    whole, point, rest = text.partition(".")
    separator = (",", "{,}", "\\,", ",\\!", "\u202f", "'", " ")[draw(st.integers(0, 6))]
    return f"{int(whole):,}".replace(",", separator) + point + rest


@st.composite
def written(draw: Callable[..., int], number: Fraction) -> str:
    """One of the ways to write a number, with what a person may write around it."""
    ways = [repeating, quotient, mixed, grouped, *([] if long_division(number)[2] else [scientific])]
    text = ways[draw(st.integers(0, len(ways) - 1))](number, draw)
    sign = ("-", "−", "–")[draw(st.integers(0, 2))] if number < 0 else ("", "+")[draw(st.integers(0, 1))]
    around = ("{}", "x = {}", "\\approx {}", "{} \\text{{ cm}}", "\\mathbf{{{}}}", "$ {} $")
    return around[draw(st.integers(0, 5))].format(sign + text)


small = st.fractions(-(10**6), 10**6, max_denominator=999)
decimals = st.decimals(-(10**9), 10**9, allow_nan=False, places=6).map(Fraction)
numbers = small | decimals | st.integers(-(10**12), 10**12).map(Fraction)


@st.composite
def pairs(draw: Callable[..., Fraction]) -> tuple[Fraction, Fraction]:
    """Two numbers: often equal, or nearly so."""
    one = draw(numbers)
    near = [one, one, -one, one + Fraction(1, 10**6), one * Fraction(10**7 + 1, 10**7), one / 10, one + 1]
    return one, draw(st.sampled_from(near) | numbers)


@given(st.data(), pairs())
@hypothesis_settings(max_examples=examples(500))
def test_rational_numbers_are_equal_where_their_fractions_are(data: Any, pair: tuple[Fraction, Fraction]) -> None:
    assume(all(len("".join(long_division(number))) < 200 for number in pair))
    texts = [data.draw(written(number)) for number in pair]
    assert equal(texts[0], texts[1]) == (pair[0] == pair[1]), texts
    assert equal(texts[1], texts[0]) == (pair[0] == pair[1]), texts
    assert equal(texts[0], texts[0])


@given(st.decimals(Decimal("1e-300"), Decimal("1e300"), allow_nan=False), st.integers(-2, 2))
@example(Decimal("3.89e-10"), 1)
def test_powers_of_ten_are_compared_exactly(number: Decimal, shift: int) -> None:
    digits, power = "".join(map(str, number.as_tuple().digits)), int(number.as_tuple().exponent)
    forms = (
        f"{digits}e{power}",
        f"{digits}\\times 10^{{{power}}}",
        f"{digits[0]}.{digits[1:]}0 \\cdot 10^{{{power + len(digits) - 1}}}",
    )
    other = f"{digits}E{power + shift}"
    for form in forms:
        assert equal(form, other) == (shift == 0 or not int(digits))
        assert equal(other, form) == (shift == 0 or not int(digits))


@given(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300), st.floats(0, 0.999))
@example(1.0, 1.01, 0.01)
@example(100.0, 99.0, 0.01)
@example(0.0, 1e-300, 0.5)
def test_a_tolerance_is_that_of_isclose(one: float, other: float, rel_tol: float) -> None:
    exact = abs(Fraction(one) - Fraction(other)), Fraction(rel_tol) * max(Fraction(one), Fraction(other))
    assume(abs(exact[0] - exact[1]) > exact[1] / 10**12)  # where isclose itself rounds
    assert are_close(Fraction(one), Fraction(other), rel_tol) == math.isclose(one, other, rel_tol=rel_tol)


@pytest.mark.parametrize(
    ("target", "answer", "rel_tol", "right"),
    [
        (r"\frac{1}{3}", "0.33", 0.02, True),
        (r"\frac{1}{3}", "0.33", 0.001, False),
        ("9.81", "9.8", 0.01, True),
        ("1.6e-19", "1.62e-19", 0.02, True),
        ("1.6e-19", "9.9e-20", 0.02, False),
        (r"\sqrt{2}", "1.41", 0.01, True),
        (r"\sqrt{2}", "1.414214", 0, False),
        (r"\pi", "3.14", 0.001, True),
        (r"(0.5, \sqrt{2})", "(0.501, 1.41)", 0.01, True),
        (r"(0.5, \sqrt{2})", "(0.501, 1.3)", 0.01, False),
        ("[0,1/3]", "[0,0.33]", 0.02, True),
        (r"\begin{pmatrix}1/3\\2\end{pmatrix}", r"\begin{pmatrix}0.33\\2\end{pmatrix}", 0.02, True),
        ("35.1%", "35%", 0.01, True),
        ("2 m", "201 cm", 0.01, True),
        ("2 m", "2.01 cm", 0.01, False),
        ("x+1", "x+1.001", 0.01, False),
    ],
)
def test_a_suite_can_allow_numbers_to_differ(target: str, answer: str, rel_tol: float, right: bool) -> None:
    assert equal(target, answer, MathSettings(rel_tol=rel_tol)) is right
    assert equal(answer, target, MathSettings(rel_tol=rel_tol)) is right


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rel_tol": 0.1, "compare": "hendrycks"}, "score.math.rel_tol: found a tolerance with a published comparison"),
        ({"rel_tol": 0.1, "compare": "minerva"}, "which has its own rule; remove it"),
        ({"rel_tol": 0.1, "extract": ["math_verify"]}, "which has its own rule; remove it"),
        ({"rel_tol": 1}, "less than 1"),
        ({"rel_tol": -0.1}, "greater than or equal to 0"),
    ],
)
def test_tolerances_that_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MathSettings.model_validate(settings)


def test_a_suite_without_a_tolerance_keeps_its_fingerprint() -> None:
    assert "rel_tol" not in MathSettings().model_dump()
    assert MathSettings(rel_tol=0.1).model_dump()["rel_tol"] == 0.1


RATIONAL = [
    # what is written around a number
    ("18", "18 dollars", True),
    ("18", "approximately 18", True),
    ("18", r"\text{about } 18", True),
    ("18", "18 m^2", True),
    ("18", "18 apples", True),
    ("18", r"\text{18 apples}", True),
    ("18", r"\text{Total} = 18", True),
    ("18", "The area is 18 square metres", True),
    ("18", r"\text{The answer is } 18", True),
    ("18", "18.", True),
    ("18", "18th", True),
    ("18 feet", "18 in all", True),
    ("18 feet", "18 in", False),
    ("2/3", "2/3 of the cake", True),
    ("18", "18^{th}", True),
    ("-18", "minus 18", True),
    ("-18", "– 18", True),
    ("18", "18 or 19", False),
    ("18", "more than 18", False),
    ("18", "18 or more", False),
    ("18", "18 x", False),
    ("18", r"18\pi", False),
    ("1/3", "a third of 1", False),
    # variables are no units
    ("2", "2m", False),
    ("2", "2t", False),
    ("2", "2ab", False),
    ("2", "2mg", False),
    ("3t", "3s", False),
    # units
    (r"5~\text{cm}", "5", True),
    ("5", r"5~\text{cm}", True),
    (r"2 \text{ hours}", r"2 \text{ minutes}", False),
    ("2 hours", "120 minutes", True),
    ("2.5 hours", "2 hours 30 minutes", True),
    ("2.5 hours", r"2 \text{ h and } 30 \text{ min}", True),
    ("2 hours", "2 hours 30 minutes", False),
    ("2", "2 days", True),
    (r"5\text{ J}", r"5\text{ kJ}", False),
    ("5 kJ", "5000 J", True),
    (r"5~\mathrm{nm}", r"5~\mathrm{mm}", False),
    ("5 mm", "0.5 cm", True),
    ("12 cm", r"12 \text{ cm}^2", False),
    ("12 square centimeters", "12 cm^{2}", True),
    ("12 m/s", r"12~\mathrm{m}\,\mathrm{s}^{-1}", True),
    ("12 km/h", "12 kilometres per hour", True),
    ("12 km/h", "12 miles per hour", False),
    (r"12 \frac{\text{m}}{\text{s}}", "12 m/s", True),
    ("5 N", r"5~\text{kg}\cdot\text{m}/\text{s}^2", True),
    (r"5\,\mu\text{m}", "0.005 mm", True),
    ("9.8 m/s^2", "9.8 m s^{-2}", True),
    ("9.8 m/s^2", "9.8 ms^{-2}", True),
    ("12 m/s", r"12 \text{ ms}^{-1}", True),
    ("12 m/s", "12ms^{-1}", True),
    ("5 km/s", r"5\,\mathrm{kms^{-1}}", True),
    ("12 ms", "12 ms^{-1}", False),
    ("12 ms", "0.012 s", True),
    ("3 J/kg", r"3~\mathrm{Jkg}^{-1}", True),
    ("5 cm^{-1}", "500 m^{-1}", True),
    ("5 feet 11 inches", "71 inches", True),
    # names of several units
    ("3 C", "3 F", False),
    ("3 C", r"3^\circ\text{C}", True),
    ("3 C", "3 degrees", True),
    ("3 F", "3", True),
    ("3 pounds", r"3^\circ", False),
    ("3 pounds", "3 lb", True),
    ("3 pounds", "£3", True),
    ("3 pounds", "3 kg", False),
    ("3 pounds 5 ounces", "53 ounces", True),
    (r"90^\circ", r"90 \text{ radians}", False),
    ("12 students", "12 people", True),
    # money, percentages, multiples
    (r"\$5", "5 dollars", True),
    (r"\$5", "€5", False),
    ("50 cents", r"\$0.50", True),
    ("5 cents", "5 dollars", False),
    ("USD 5", r"\$5", True),
    ("12.5%", "1/8", True),
    ("12.5%", "12.5 percent", True),
    ("12.5%", "1.25", False),
    ("2.5 million", "2500000", True),
    ("2.5", "2.5 million", False),
    ("1000000", r"1 \text{ million}", True),
    ("2500000", "2.5 million dollars", True),
    ("12000", "12 thousand", True),
    ("3 billion people", "3000000000", True),
    ("3 thousand km", "3000000 m", True),
    ("24", "2 dozen", True),
    ("2", "2 dozen", True),
    ("12.5%", "12.5 per cent", True),
    (r"\$2.5 million", r"\$2,500,000", True),
    ("2.5 million", "2.5 billion", False),
    # degrees, temperatures
    (r"90^\circ", "90", True),
    (r"90^\circ", "90 degrees", True),
    (r"25^\circ\text{C}", "25°C", True),
    (r"25^\circ\text{C}", "25 degrees Celsius", True),
    (r"25^\circ\text{C}", r"25^\circ\text{F}", False),
    # bases
    ("2021_3", "2021_{3}", True),
    ("2021_3", "2021_4", False),
    ("2021_3", "2021", True),
    ("2021_3", r"2021_{\text{three}}", True),
    ("2021_3", r"2021 \text{ (base 3)}", True),
    ("2A_{16}", "2a_{16}", True),
    ("2A_{16}", "2A_{12}", False),
    ("1010_2", "10", False),
    # times, dates
    ("10 a.m.", r"10 \text{ p.m.}", False),
    ("10 a.m.", "10:00 AM", True),
    ("10 a.m.", "10", True),
    ("4:30 p.m.", "16:30", True),
    ("4:30 p.m.", "4:30", True),
    ("4:30 p.m.", "5:30", False),
    ("May 3", "3 May", True),
    ("May 3", "June 3", False),
    ("3 May", "3 June", False),
    # notations
    (r"0.\overline{3}", r"\frac13", True),
    ("1/3", "0.333...", True),
    ("1/3", "0.(3)", True),
    ("0.5", "0{,}5", True),
    ("0.5", "0,5", False),
    ("5, 0", "0,5", True),
    ("245", "0,245", False),
    ("0.245", "0{,}245", True),
    (r"$90^{\circ}$,$60^{\circ}$", r"90^{\circ}, 60^{\circ}", True),
    (r"$90^{\circ}$,$60^{\circ}$", r"90^{\circ}$,$60^{\circ}", True),
    ("1234.56", "1.234,56", True),
    ("10000", "10.000", False),
    ("5/2", "2½", True),
    ("1000", "10³", True),
    ("7", "٧", True),
    # near, and not equal
    ("3.89e-10", "0.0000000038900", False),
    (r"1.6\times 10^{-19}", r"9.9\times 10^{-20}", False),
    ("0.0000005", "0.0000001", False),
    ("0", "1e-300", False),
    (r"\frac{1000001}{6000000}", r"\frac{1}{6}", False),
    (r"\frac{1}{6000000}", "0", False),
    ("1", "0.9999999", False),
    ("1", "0.999...", True),
    ("10^{20}", "100000000000000000001", False),
]


BEYOND = [
    # irrational numbers, and numbers inside of something
    (r"\sqrt{2}", "1.414214", True),
    (r"\sqrt{2}", "1.4142", False),
    (r"1000\pi", "3141.593", True),
    (r"\sqrt{2}\times 10^{-9}", r"1.414214\times 10^{-9}", True),
    (r"\sqrt{2}\times 10^{-9}", r"2.4\times 10^{-9}", False),
    (r"\frac{\pi}{10^{8}}", "0", False),
    (r"10^{20}+\sqrt{2}", r"10^{20}+\sqrt{3}", False),
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", True),
    (r"(10^{-9}, 1)", r"(2\times 10^{-9}, 1)", False),
    (r"(3.89\times10^{-10}, 2)", r"(3.890\times 10^{-10}, 2)", True),
    (r"\{1/3, 1\}", r"\{0.333333, 1\}", False),
    (r"\{1/3, 1\}", r"\{0.\overline{3}, 1\}", True),
    (r"(0.5,1)", r"(\frac12,1)", True),
    (r"\begin{pmatrix}10^{-9}\\1\end{pmatrix}", r"\begin{pmatrix}2\times10^{-9}\\1\end{pmatrix}", False),
    (r"\begin{pmatrix}0.5\\1\end{pmatrix}", r"\begin{pmatrix}1/2\\1\end{pmatrix}", True),
    (r"10^{-20}x", r"2\cdot 10^{-20}x", False),
    (r"\frac{x}{2}", "0.5x", True),
    (r"\frac{1}{2}i", "0.5i", True),
    (r"35\%, 20\%", "35, 20", True),
    (r"\{10\,000, 5\}", r"\{10000, 5\}", True),
    # units behind them
    (r"2\sqrt{3}\text{ cm}", r"2\sqrt{3}", True),
    (r"2\sqrt{3}\text{ cm}", r"2\sqrt{3}\text{ m}", False),
    (r"2\sqrt3", r"\sqrt{12}\ \text{units}", True),
    (r"36\pi", r"36\pi \text{ square units}", True),
    (r"\approx 2\sqrt{2}", r"2\sqrt{2}", True),
    (r"\sin 30^\circ", "0.5", True),
    # intervals as they are written in other countries
    ("(1,2]", "]1,2]", True),
    ("[1,2)", "[1,2[", True),
    ("(1,2)", "]1;2[", True),
    ("[1,2]", "]1,2]", False),
    ("[1.5,2]", "[1,5;2]", True),
    (r"(-\infty,1)\cup(2,\infty)", r"\left]-\infty,1\right[ \cup \left]2,+\infty\right[", True),
    (r"x \in (1,2)", r"x \in ]1,2[", True),
]


@pytest.mark.parametrize(("target", "answer", "right"), [*RATIONAL, *BEYOND])
def test_what_a_person_calls_equal(target: str, answer: str, right: bool) -> None:
    assert equal(target, answer) is right
    assert equal(answer, target) is right


@pytest.mark.parametrize(
    ("target", "reply", "right"),
    [
        ("3 hours 20 minutes", "The answer is 3 hours 20 minutes.", True),
        ("200 minutes", "The answer is 3 hours 20 minutes.", True),
        ("3 hours 30 minutes", "The answer is 3 hours 20 minutes.", False),
        ("18", "The answer is **$18** per day.", True),
        ("12", "The answer is not 12.", False),
        ("12", "The answer is not $12$.", False),
    ],
)
def test_answers_in_prose(target: str, reply: str, right: bool) -> None:
    assert (judge_reply(SETTINGS, target, reply).status == "correct") is right


def test_details_say_that_units_differ() -> None:
    score = judge_reply(SETTINGS, r"2\sqrt{3}\text{ cm}", r"\boxed{2\sqrt{3}\text{ m}}")
    assert (score.status, score.details["why"]) == ("wrong", "their units differ")


@pytest.mark.parametrize(
    "text", ["10^{10^9}", "10^{-999999999}", "1e999999999", "9" * 5000, "9^{9^{9}}", "1" + ",000" * 2000, "2^{9999}"]
)
def test_a_huge_number_is_none_here(text: str) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("1 h " * 2500, "$" * 9_999, r"\(" * 5_000, "{" * 9_999, "(1," * 3_000, "5 " + "cm " * 3_000, "=[" * 5_000),
        *("x=" * 5_000, "1 " + "m/" * 5_000, r"\text{" * 1_600, "0." + "3" * 9_000 + "...", "~" * 9_999, "," * 9_999),
    ],
)
def test_a_hostile_answer_takes_no_time(text: str) -> None:
    """Were the reading quadratic, or recursive, this test would not end well."""
    quantity(text)
    split_unit(text)
    unit_of(text)
    judge_reply(MathSettings(timeout_s=0.5), "5", text)


@given(st.text(alphabet=st.sampled_from("0123456789.,/-^_{}()[]\\ textcmh%$°=~"), max_size=60))
@hypothesis_settings(max_examples=examples(500))
def test_reading_never_raises_and_equality_is_reflexive(text: str) -> None:
    found = quantity(text)
    split_unit(text)
    if found is not None:
        assert equal(text, text) or "boxed" in text
