from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_llmeval.scorers.number import NumberScorer, NumberSettings
from pytest_llmeval.scorers.reading.numerals import final_number
from tests.scoring.helpers import a_sample, judge_reply


def value_of(text: str) -> Fraction | None:
    found = final_number(text)
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # after ####, else the last number
        ("3 apples and 4 pears make 7", "7"),
        ("2 + 2 = 4\n#### 72", "72"),
        ("#### 5\nno, wait\n#### 72", "72"),
        ("####72", "72"),
        ("#### $72 in 3 days", "72"),
        ("#### **72**", "72"),
        ("#### \\boxed{72}", "72"),
        ("#### 72.\n\nQuestion: Tom has 5 apples", "72"),
        ("#### 2. Add up\n3 + 6 = 9", "9"),
        ("#### Conclusion\nThe total is 9.", "9"),
        ("The total is 9.\n####", "9"),
        # thousands separators
        ("1,234", "1234"),
        ("1,234,567.5", "1234567.5"),
        ("1\u2009234", "1234"),
        ("1\u202f234\u202f567", "1234567"),
        ("1\u00a0234", "1234"),
        ("1{,}234", "1234"),
        ("12,34,567", "1234567"),
        ("1,2,3", "3"),
        ("10,\\!000", "10000"),
        ("\\boxed{1,\\!234,\\!567}", "1234567"),
        ("$10\\,000$", "10000"),
        ("10\\;000", "10000"),
        ("10\\ 000", "10000"),
        ("10{\\,}000", "10000"),
        ("10~000", "10000"),
        ("1'000 francs", "1000"),
        ("1’000’000", "1000000"),
        ("1_000_000", "1000000"),
        ("1 000 000", "1000000"),
        ("$118 000.", "118000"),
        ("12 345,5", "12345.5"),
        ("1.234,56 €", "1234.56"),
        ("1.000.000", "1000000"),
        ("1.234", "1.234"),
        ("in 2020 500 people", "500"),
        ("1000 000", "0"),
        ("5 100-metre races", "100"),
        ("3 200 meter laps", "3200"),
        ("0,5", "0.5"),
        ("-0,25 kg", "-0.25"),
        ("0{,}125", "0.125"),
        ("10{,}125", "10125"),
        ("It is 0,5, I think.", "0.5"),
        ("(0,5)", "5"),
        ("\\boxed{0,5}", "5"),
        ("0,1,2", "2"),
        ("n = 0,1,\\ldots", "1"),
        ("4,12", "12"),
        ("3,5", "5"),
        ("100,000,", "100000"),
        # currency signs, units and a final full stop
        ("$5", "5"),
        ("£ 5", "5"),
        ("5 €", "5"),
        ("\\$1,234.50", "1234.5"),
        ("It costs $5.", "5"),
        ("It weighs 5kg.", "5"),
        # negatives
        ("-5", "-5"),
        ("−5", "-5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("x=-5", "-5"),
        ("10-5", "5"),
        ("10 - 5", "5"),
        ("3--5", "5"),
        ("The result is –5.", "-5"),
        ("＝－５", "-5"),
        ("‑5", "-5"),
        ("pages 5–10", "10"),
        ("Between 10 –15 days", "15"),
        ("10% -15%", "15"),
        ("3\n-5", "-5"),
        ("$5–$10", "10"),
        ("(5)", "5"),
        ("($5)", "5"),
        # decimals
        ("3.50", "3.5"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("$.50", "0.5"),
        ("so ...5", "5"),
        ("version 1.2.3", "3"),
        # repeating decimals
        ("0.\\overline{3}", "1/3"),
        ("0.1\\bar{6}", "1/6"),
        ("-0.\\bar 3", "-1/3"),
        ("0.\\dot{1}4285\\dot{7}", "1/7"),
        ("12.\\dot{3}", "37/3"),
        ("0.(3)", "1/3"),
        ("0.3̅", "1/3"),
        ("0.333...", "1/3"),
        ("It is 0.1666…", "1/6"),
        ("0.1212\\ldots", "4/33"),
        ("0.999...", "1"),
        ("0.33...", "0.33"),
        ("3.14...", "3.14"),
        ("0.5...", "0.5"),
        # fractions
        ("3/4", "0.75"),
        ("3 / 4", "0.75"),
        ("1 1/2", "1.5"),
        ("-1 1/2", "-1.5"),
        ("3 12/4", "3"),
        ("½", "0.5"),
        ("1½", "1.5"),
        ("3⁄4", "0.75"),
        ("\\frac{3}{4}", "0.75"),
        ("2\\frac{1}{2}", "2.5"),
        ("12/25/2020", "2020"),
        ("2 ½", "2.5"),
        ("\\frac34", "0.75"),
        ("\\frac 3 4", "0.75"),
        ("\\tfrac1{72}", "1/72"),
        ("-\\dfrac{-3}{4}", "0.75"),
        ("2\\,\\frac12", "2.5"),
        ("\\frac{10,\\!000}{3}", "10000/3"),
        # percent
        ("50%", "50"),
        ("12.5 %", "12.5"),
        # scientific
        ("1.5e3", "1500"),
        ("1e-2", "0.01"),
        ("1.5 × 10^3", "1500"),
        ("1.5 \\times 10^{-3}", "0.0015"),
        ("2x10^2", "200"),
        ("6.02 × 10²³", "602000000000000000000000"),
        ("1.5\\,\\cdot\\,10^{-3}", "0.0015"),
        ("1.5e−3", "0.0015"),
        ("3 apples and 5\n* 10^3 more", "1000"),
        # words of magnitude
        ("1 million", "1000000"),
        ("It costs $2.5 billion.", "2500000000"),
        ("12 Thousand people", "12000"),
        ("2 trillions", "2000000000000"),
        ("-1/2 million", "-500000"),
        ("½ million", "500000"),
        ("#### 3 million", "3000000"),
        ("\\boxed{1 \\text{ million}}", "1000000"),
        ("\\boxed{2\\,\\mathrm{million~people}}", "2000000"),
        ("$1.5$ million", "1500000"),
        ("**1.5** million", "1500000"),
        ("a 2.5-million-dollar house", "2500000"),
        ("3 million-dollar houses", "3"),
        ("1 millionth", "1"),
        # powers
        ("10^6", "1000000"),
        ("10^{6}", "1000000"),
        ("10^{-3}", "0.001"),
        ("10³", "1000"),
        ("2**10", "1024"),
        ("-2^2", "-4"),
        ("0.5^2", "0.25"),
        ("90^\\circ", "90"),
        ("90^{\\circ}", "90"),
        ("the 5^{th}", "5"),
        # exponents of units and variables, and indices
        ("The area is 36 m^2.", "36"),
        ("36 m²", "36"),
        ("36 cm2", "36"),
        ("36 \\text{ cm}^{2}", "36"),
        ("9 s^{-1}", "9"),
        ("9 is x^2", "9"),
        ("9 = x**2", "9"),
        ("9 = (a+b)^2", "9"),
        ("it is 9 by e^{n+1}", "9"),
        ("it is 9, not 2^n", "9"),
        ("9 = x_2", "9"),
        ("9 = x_{12}", "9"),
        ("7602_8", "7602"),
        ("9 g of H_2O", "9"),
        ("is _9_ in all", "9"),
        ("**9**", "9"),
        ("Each costs $9 **18**", "18"),
        ("2 **18 dollars**", "18"),
        ("(USD)**18 dollars**", "18"),
        ("Question 2 **15%** of them", "15"),
        ("7 " + "x^2 " * 2000, "7"),
        # digits of other scripts
        ("٣٦", "36"),
        ("۳٬۶۰۰٫۵", "3600.5"),
        ("३६", "36"),
        ("答案是３６。", "36"),
        ("１，２３４．５", "1234.5"),
        ("５０％", "50"),
        ("𝟏𝟐", "12"),
    ],
)
def test_the_final_number(text: str, value: str) -> None:
    assert value_of(text) == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "none", "####", "x", "5/0", "\x00\ud800", "x^2", "x_2", "2^{n+1}", "x^2 " * 2000, "²"),
        *("1e999999999", "1e-999999999", "9" * 1001, "10^999999999", "10^{10^9}", "10^10^10", "99999^{999}", "0^{-1}"),
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert final_number(text) is None


def test_the_answer_is_shown_as_written() -> None:
    score = judge_reply(NumberSettings(), 1234.5, "So it is $1,234.50.")
    assert (score.status, score.answer) == ("correct", "$1,234.50")


@given(st.integers(-(10**15), 10**15))
def test_formatted_integers_round_trip(number: int) -> None:
    for text in (
        f"{number}",
        f"{number:,}",
        f"The answer is {number:,}.",
        f"${number:,}",
        f"{number}%",
        f"#### {number}",
    ):
        assert value_of(text) == number
    sign, magnitude = ("-" if number < 0 else ""), abs(number)
    for text in (f"{sign}${magnitude:,}", f"{'−' if sign else ''}{magnitude:,} €", f"{sign}{magnitude:,}.00"):
        assert value_of(text) == number
    assert value_of(f"{number:,}".replace(",", "\u202f")) == number


@given(st.decimals(-(10**9), 10**9, allow_nan=False, places=4))
def test_formatted_decimals_round_trip(number: Decimal) -> None:
    for text in (f"{number}", f"{number:,}", f"It is {number:,}.", f"${number}", f"{number}%"):
        assert value_of(text) == Fraction(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_as_python_writes_them(number: float) -> None:
    assert value_of(repr(number)) == Fraction(repr(number))


@given(st.integers(-(10**12), 10**12), st.sampled_from(["٠", "०", "０", "𝟎"]), st.sampled_from([",", "'", " ", "\\,"]))
def test_every_script_and_separator_round_trips(number: int, zero: str, separator: str) -> None:
    text = f"{number:,}".replace(",", separator)
    assert value_of("".join(chr(ord(zero) + int(mark)) if mark.isdigit() else mark for mark in text)) == number


@given(st.integers(0, 99), st.integers(0, 999), st.integers(1, 9999))
def test_repeating_decimals_are_the_quotients_that_they_come_from(whole: int, top: int, bottom: int) -> None:
    """Against long division, written out here."""
    top %= bottom
    digits, places, rest = "", {}, top
    while rest not in places and len(digits) < 400:
        places[rest] = len(digits)
        digits += str(rest * 10 // bottom)
        rest = rest * 10 % bottom
    assume(rest in places)
    text = f"{whole}.{digits[: places[rest]]}\\overline{{{digits[places[rest] :]}}}"
    assert value_of(text) == whole + Fraction(top, bottom)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_fractions_round_trip(top: int, bottom: int) -> None:
    assert value_of(f"{top}/{bottom}") == Fraction(top, bottom)


@given(st.text(alphabet=st.sampled_from("0123456789.,/-−$% e^{}#×½\u202f\\frac x_'()²…*٣"), max_size=60))
def test_number_like_text_never_raises(text: str) -> None:
    found = final_number(text)
    assert found is None or isinstance(found.value, Fraction)


@pytest.mark.parametrize(
    ("target", "reply", "right"),
    [
        ("#### 72", "72", True),
        ("Natalia sold 48/2 = <<48/2=24>>24 clips.\n#### 72", "... so 72.0 clips", True),
        (72, "72.", True),
        (0.1, "1/10", True),
        (0.5, ".50", True),
        ("1/3", "0.33", False),
        ("1,000", "1000", True),
        ("50%", "50", True),
        ("50%", "0.5", False),
        (72, "27", False),
        (-3, "3", False),
        ([3, "four: 4"], "4", True),
        (10**30 + 1, str(10**30), False),
        (1e16, "10000000000000000", True),
        ("0", "\\boxed{10,\\!000}", False),
        ("2", "The area is 36 m^2.", False),
        ("٣٦", "36", True),
        ("１２", "٣٦", False),
        (10**6, "10^6", True),
        (10**6, "1 million", True),
        ("1 million", "1", False),
        ("10^{1000}", "1" + "0" * 999, False),
    ],
)
def test_compared_as_numbers(target: Any, reply: str, right: bool) -> None:
    score = judge_reply(NumberSettings(), target, reply)
    assert score.status == ("correct" if right else "wrong")
    assert score.values == {"accuracy": float(right)}
    assert score.chance is None


def test_a_reply_without_a_number_is_no_answer() -> None:
    score = judge_reply(NumberSettings(), 72, "I do not know.")
    assert (score.status, score.answer, score.no_answer) == ("wrong", None, True)


def test_the_report_shows_the_targets_number_and_few_shot_all_of_it() -> None:
    scorer = NumberScorer(NumberSettings())
    presented = scorer.present(a_sample("48 + 24 = 72\n#### 72"))
    assert presented.target == "72"
    assert scorer.answer_text(presented) == "48 + 24 = 72\n#### 72"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("many", "target 'many' has no number to compare with"),
        (float("inf"), "target 'inf' has no number"),
        (float("nan"), "target 'nan' has no number"),
        ("1" * 5000, "has no number"),
        (True, "the target is true"),
        (None, "no target"),
    ],
)
def test_a_target_without_a_number_is_refused(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NumberScorer(NumberSettings()).present(a_sample(target))
