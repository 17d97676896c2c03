from __future__ import annotations

import importlib.metadata
import json
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_llmeval.scorers.math import MathScorer, MathSettings, MathVerdict
from pytest_llmeval.scorers.mathematics.answers import Extract
from pytest_llmeval.types import Score
from tests.scoring.helpers import GENERATE, a_sample, judge_reply

EQUAL = [
    # fractions, decimals, percent, mixed and scientific numbers
    (r"\frac{1}{2}", r"\dfrac{1}{2}"),
    (r"\frac12", "0.5"),
    ("0.5", "1/2"),
    (".5", "0.5"),
    ("1./3", "1/3"),
    ("5", "5.0"),
    ("5", "+5"),
    ("1:2", r"\frac{1}{2}"),
    (r"\frac{3}{4}", r"75\%"),
    (r"50\%", "50"),
    ("7/2", r"3\frac{1}{2}"),
    ("7/2", "3 1/2"),
    ("4.5e33", r"4.5\times 10^{33}"),
    (r"10^{-3}", "0.001"),
    ("2^{10}", "1024"),
    ("-1", "−1"),
    ("35", r"35.0\%"),
    (r"35.0\%", "35"),
    ("35.5", r"35.50\%"),
    ("35", "35.0%"),
    ("12.5", r"12.5 \%"),
    (r"12.5\%", r"\frac{1}{8}"),
    ("0.355", r"35.5\%"),
    (r"35.0\%", "35%"),
    ("-2.5", r"-2.50\%"),
    ("20", r"20.\%"),
    # thousands, currencies, units
    ("1250", r"1{,}250\%"),
    ("10000", "10{,}000"),
    ("1000", "1,000"),
    ("1000", "1{,}000"),
    ("1000", r"1\,000"),
    ("2900", "x=2,900"),
    ("12", r"12\text{ cm}"),
    ("12", r"\$12"),
    ("90", r"90^\circ"),
    # roots, powers, functions
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt3}"),
    (r"2\sqrt{3}", "2*sqrt(3)"),
    ("x^2", "x**2"),
    (r"\log_2 8", "3"),
    ("3!", "6"),
    (r"\pi", "π"),
    (r"3\pi", r"3 \cdot \pi"),
    ("e^2", r"\mathrm{e}^{2}"),
    ("2+3i", "3i+2"),
    # algebra and equations
    ("(x+1)^2", "x^2+2x+1"),
    ("2x+3", "3+2x"),
    ("5", "x=5"),
    ("x=5", "5"),
    ("y=2x+3", "2x+3"),
    ("y=2x+3", "y=3+2x"),
    # sets, tuples, intervals, inequalities, matrices
    (r"\{1,2\}", r"\{2, 1\}"),
    ("1,2", "2,1"),
    (r"\pm 2", "-2, 2"),
    ("(1,2)", r"\left(1, 2\right)"),
    ("[2,5)", r"\left[2,5\right)"),
    ("[2,5)", r"2 \le x < 5"),
    (r"\{x|-2\leq x < 1\}", "[-2,1)"),
    (r"x \in (1,2)", "(1,2)"),
    ("x>1", "1<x"),
    (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)"),
    (r"\emptyset", r"\varnothing"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}"),
    ("E_{1},E_{2}", "E_{1} , E_{2}"),
    # words and letters
    (r"\text{Tuesday}", "Tuesday"),
    ("Tuesday", "tuesday"),
    ("No", "no"),
    ("A", r"\text{(A)}"),
    ("A", "(A)"),
    (r"\text{4:30 p.m.}", r"4:30 \text{ p.m.}"),
    (r"4:30 \text{ p.m.}", r"\text{4:30 p.m.}"),
    ("4:30 p.m.", r"4:30\text{ p.m}"),
    (r"9\!:\!00\text{ AM}", "9:00 am"),
    ("4:30 p.m.", "4:30pm"),
    (r"\text{Monday}.", "Monday"),
    (r"\text{(A) and (C)}", "(A)and(C)"),
    (r"\text{even}", r"\mathrm{even}."),
]

UNEQUAL = [
    ("5", "6"),
    ("3", "-3"),
    ("12", "1 2"),
    ("10^3", "103"),
    ("7/2", "31/2"),
    (r"\frac{1}{3}", "0.33"),
    (r"\frac{1}{3}", "0.333333"),
    (r"\sqrt2", "1.41"),
    (r"\pi", "3.14"),
    ("0", r"\infty"),
    ("x", "5"),
    ("2x", "2y"),
    ("x=5", "y=5"),
    ("x=5", "x=6"),
    ("(1,2)", "[1,2]"),
    ("(1,2)", "(2,1)"),
    (r"\{1,2\}", r"\{1,3\}"),
    (r"\{1,2\}", "1"),
    ("1,2", "1,2,3"),
    ("2900", "2,9"),
    ("x>1", "x<1"),
    ("x>1", r"x \ge 1"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    ("A", "B"),
    ("Tuesday", "Monday"),
    ("35", r"3.50\%"),
    ("35.5", r"35\%"),
    (r"35.5\%", r"0.355\%"),
    ("100", r"1.0\%"),
    ("x", r"x\%"),
    (r"\text{4:30 p.m.}", r"\text{4:30 a.m.}"),
    ("4:30 p.m.", r"5:30 \text{ p.m.}"),
    (r"4:30 \text{ a.m.}", r"4:30 \text{ p.m.}"),
]


def boxed(answer: str) -> str:
    return f"So we get $\\boxed{{{answer}}}$."


@pytest.mark.parametrize(("target", "answer"), EQUAL)
def test_equal(target: str, answer: str) -> None:
    score = judge_reply(MathSettings(), target, boxed(answer))
    assert (score.status, score.answer, score.values) == ("correct", answer, {"accuracy": 1.0})


@pytest.mark.parametrize(("target", "answer"), UNEQUAL)
def test_unequal(target: str, answer: str) -> None:
    score = judge_reply(MathSettings(), target, boxed(answer))
    assert (score.status, score.answer, score.no_answer) == ("wrong", answer, False)
    assert score.values == {"accuracy": 0.0}
    assert score.chance is None


@pytest.mark.parametrize(("target", "answer"), EQUAL + UNEQUAL)
def test_equality_is_symmetric(target: str, answer: str) -> None:
    statuses = {
        judge_reply(MathSettings(), one, boxed(other)).status for one, other in ((target, answer), (answer, target))
    }
    assert len(statuses) == 1


@pytest.mark.parametrize("answer", sorted({text for pair in EQUAL + UNEQUAL for text in pair}))
def test_every_answer_equals_itself(answer: str) -> None:
    assert judge_reply(MathSettings(), answer, boxed(answer)).status == "correct"


@pytest.mark.parametrize(
    ("target", "right"),
    [
        (72, True),
        (72.0, True),
        ("$72$", True),
        (r"Twice 36 is $\boxed{72}$.", True),
        (r"First \boxed{36}, then $2 \cdot 36 = \fbox{72}$", True),
        ("So the answer is 72.", True),
        ("48 + 24 = 72\n#### 72", True),
        ([1, "72"], True),
        ([1, 2], False),
        (27, False),
    ],
)
def test_targets(target: Any, right: bool) -> None:
    assert judge_reply(MathSettings(), target, boxed("72")).status == ("correct" if right else "wrong")


def test_details_say_how_the_answer_was_found_and_read() -> None:
    score = judge_reply(MathSettings(), r"\frac{3}{2}", boxed("x=1.5"))
    assert score == Score(
        status="correct",
        answer="x=1.5",
        values={"accuracy": 1.0},
        details={"extracted_by": "boxed", "parsed": "3/2", "parsed_target": "3/2"},
        vote="3/2",
    )


def test_details_are_those_of_the_target_that_is_right() -> None:
    score = judge_reply(MathSettings(), ["7", "8"], boxed("16/2"))
    assert (score.status, score.details["parsed_target"]) == ("correct", "8")


def test_details_say_why_there_is_no_answer() -> None:
    score = judge_reply(MathSettings(), 5, "I do not know.")
    assert (score.status, score.answer, score.no_answer) == ("wrong", None, True)
    assert score.details == {"why": "no answer found by boxed, answer, math, number"}


def test_details_say_where_a_reply_was_longer_than_what_is_searched() -> None:
    for reply, status in ((boxed("5"), "correct"), ("none", "wrong")):
        score = judge_reply(MathSettings(), 5, "so " * 100_000 + reply)
        assert score.status == status
        assert score.details["judged_chars"] == 100_000
        assert score.details["reply_chars"] == 300_000 + len(reply)
    assert "reply_chars" not in judge_reply(MathSettings(), 5, boxed("5")).details


def test_details_say_what_could_not_be_read() -> None:
    score = judge_reply(MathSettings(), "5", boxed("3 ) + ( 2"))
    assert (score.status, score.details["parsed_target"]) == ("wrong", "5")
    assert score.details["why"] == "no mathematics could be read in the reply"


@pytest.mark.parametrize("extract", [("boxed",), ("answer",), ("math",), ("minerva",)])
def test_only_where_the_suite_says(extract: tuple[Extract, ...]) -> None:
    assert judge_reply(MathSettings(extract=extract), 5, "It is 5").no_answer


def test_the_order_of_extract_decides() -> None:
    reply = r"The answer is 3. Or \boxed{4}?"
    assert judge_reply(MathSettings(), 4, reply).status == "correct"
    assert judge_reply(MathSettings(extract=("answer", "boxed")), 3, reply).status == "correct"


@pytest.mark.parametrize(
    ("settings", "target", "reply", "status"),
    [
        # lm-eval's hendrycks_math: texts, between the first and the last $
        (MathSettings(compare="hendrycks"), r"$\boxed{\frac{1}{2}}$", r"It is $\dfrac12$.", "correct"),
        (MathSettings(compare="hendrycks"), r"\boxed{\frac{1}{2}}", "1/2", "correct"),
        (MathSettings(compare="hendrycks"), r"\boxed{\frac{1}{4}}", "0.25", "wrong"),
        (MathSettings(compare="hendrycks"), r"\boxed{5}", r"\boxed{5}", "wrong"),
        (MathSettings(compare="hendrycks", extract=("boxed",)), r"\boxed{5}", r"\boxed{5}", "correct"),
        # lm-eval's minerva_math: its closing sentence, then texts, then sympy
        (
            MathSettings(compare="minerva"),
            r"\boxed{\frac{1}{4}}",
            "Final Answer: The final answer is $0.25$. I hope it is correct.",
            "correct",
        ),
        (
            MathSettings(compare="minerva"),
            r"\boxed{[2,5)}",
            "Final Answer: The final answer is $[2,5)$. I hope it is correct.",
            "correct",
        ),
        (
            MathSettings(compare="minerva"),
            r"\boxed{(5,2)}",
            "Final Answer: The final answer is $(2,5)$. I hope it is correct.",
            "wrong",
        ),
        (MathSettings(compare="minerva"), r"\boxed{24}", "The final answer is 24.", "wrong"),
        # its metric math_verify: Math-Verify searches both
        (MathSettings(extract=("math_verify",)), r"So $x = \boxed{24}$.", "The final answer is $24$.", "correct"),
        (MathSettings(extract=("math_verify",)), r"So $x = \boxed{24}$.", "The final answer is $25$.", "wrong"),
    ],
)
def test_published_comparisons(settings: MathSettings, target: str, reply: str, status: str) -> None:
    assert judge_reply(settings, target, reply).status == status


def test_what_math_verify_searched_is_shown_as_it_was_read() -> None:
    settings = MathSettings(extract=("math_verify",))
    assert judge_reply(settings, "$5$", "First $3$, so it is $2$.").answer == "2"
    assert judge_reply(settings, "$5$", "no idea").answer is None
    assert judge_reply(settings, "$5$", "  ").no_answer


def test_the_report_shows_the_answer_of_the_target_and_few_shot_all_of_it() -> None:
    scorer = MathScorer.of(MathSettings())
    presented = scorer.present(a_sample(r"Twice 36 is $\boxed{72}$."))
    assert (presented.target, presented.references) == ("72", ("72",))
    assert scorer.answer_text(presented) == r"Twice 36 is $\boxed{72}$."
    assert scorer.metrics == ("accuracy", "no_answer")


def test_one_reply_is_asked_for() -> None:
    scorer = MathScorer.of(MathSettings())
    (request,) = scorer.requests(scorer.present(a_sample(1)), "1 + 0 =", delimiter=" ", generate=GENERATE)
    assert request.max_tokens == 77  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "no target"),
        (True, "the target is true"),
        ("", "target '' has no answer to compare with"),
        (r"\boxed{}", "has no answer to compare with"),
        ("1" * 10_001, "is longer than the 10000 characters that an answer can have"),
    ],
)
def test_targets_that_are_refused(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MathScorer.of(MathSettings()).present(a_sample(target))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extract": []}, "score.math.extract: found an empty list"),
        ({"extract": ["math_verify", "boxed"]}, "use it alone"),
        ({"extract": ["math_verify"], "compare": "hendrycks"}, "use it alone"),
        ({"compare": "sympy"}, "math_verify"),
        ({"timeout_s": 0}, "greater than 0"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MathSettings.model_validate(settings)


def test_a_scorer_is_a_value() -> None:
    scorer = MathScorer.of(MathSettings(timeout_s=7))
    presented = scorer.present(a_sample("1/2"))
    assert pickle.loads(pickle.dumps(scorer)) == scorer
    assert pickle.loads(pickle.dumps(presented)) == presented


def test_published_comparisons_keep_their_fingerprints() -> None:
    settings = [
        MathSettings(compare="hendrycks"),
        MathSettings(compare="minerva"),
        MathSettings(extract=("math_verify",)),
    ]
    assert [MathScorer.of(some).version for some in (MathSettings(), *settings)] == [3, 1, 1, 1]


def test_scores_are_json() -> None:
    for reply in (boxed("1/2"), "none", boxed("\ud800")):
        score = judge_reply(MathSettings(), "0.5", reply)
        json.dumps([score.answer, dict(score.details)])


def _without(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr("importlib.metadata.version", version)


def test_without_math_verify_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, {})
    with pytest.raises(ValueError, match=r"needs Math-Verify; .*pip install 'pytest-llmeval-suites\[math\]'"):
        MathScorer.of(MathSettings())
    assert judge_reply(MathSettings(compare="hendrycks"), "5", "$5$").status == "correct"


def test_minerva_names_the_parser_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, {"math-verify": "0.9.0", "antlr4-python3-runtime": "4.9.3"})
    MathScorer.of(MathSettings())
    with pytest.raises(ValueError, match=r"antlr4-python3-runtime 4.11 to 4.13, and not 4\.9\.3"):
        MathScorer.of(MathSettings(compare="minerva"))


@pytest.mark.parametrize(("last", "status"), [("y^{41}", "wrong"), ("x^{41}", "correct")])
def test_a_reply_that_takes_too_long_is_compared_by_value_once(
    last: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with each of several targets; as a text with all of them."""
    compared: list[str] = []

    class Slow:
        def compare(self, comparison: str, target: str, reply: str, bounds: object, rel_tol: None) -> MathVerdict:
            compared.append(reply)
            return MathVerdict(False) if reply == "1" else MathVerdict(False, problem="it took longer than 5 s")

    monkeypatch.setattr("pytest_llmeval.scorers.math.shared_process", Slow)
    score = judge_reply(MathSettings(), ["a^2", "b^3", last], "\\boxed{x^{41}}")
    assert score.status == status
    assert compared == ["x^{41}", "1"]
    if status == "wrong":
        assert score.details["why"] == "it took longer than 5 s"
