from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.scorers.replies.number import NumberScorer
from pytest_llmeval.scoring.scorers.replies.numerals import final_number
from pytest_llmeval.suites.format.score_settings.replies import NumberSettings
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
        ("(5)", "5"),
        ("($5)", "5"),
        # decimals
        ("3.50", "3.5"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("$.50", "0.5"),
        ("so ...5", "5"),
        ("version 1.2.3", "3"),
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
        # percent
        ("50%", "50"),
        ("12.5 %", "12.5"),
        # scientific
        ("1.5e3", "1500"),
        ("1e-2", "0.01"),
        ("1.5 × 10^3", "1500"),
        ("1.5 \\times 10^{-3}", "0.0015"),
        ("2x10^2", "200"),
    ],
)
def test_the_final_number(text: str, value: str) -> None:
    assert value_of(text) == Fraction(value)


@pytest.mark.parametrize(
    "text",
    ["", "none", "####", "½".replace("½", "x"), "5/0", "1e999999999", "1e-999999999", "9" * 1001, "٣", "\x00\ud800"],
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


@given(st.integers(-999, 999), st.integers(1, 999))
def test_fractions_round_trip(top: int, bottom: int) -> None:
    assert value_of(f"{top}/{bottom}") == Fraction(top, bottom)


@given(st.text(alphabet=st.sampled_from("0123456789.,/-−$% e^{}#×½\u202f\\frac x"), max_size=60))
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
