from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.pattern import PatternSettings, compile_pattern
from tests.scoring.helpers import a_sample, judge_reply


@pytest.mark.parametrize(
    ("settings", "target", "reply", "status", "answer"),
    [
        ({"pattern": r"answer is (\w+)"}, "Paris", "The answer is Paris.", "correct", "Paris"),
        ({"pattern": r"answer is (\w+)"}, "Paris", "The answer is Rome.", "wrong", "Rome"),
        ({"pattern": r"answer is (\w+)"}, "Paris", "Paris", "wrong", None),
        ({"pattern": r"\((.)\)"}, "A", "(A) or (B)", "correct", "A"),
        ({"pattern": r"\((.)\)", "match": "last"}, "B", "(A) or (B)", "correct", "B"),
        ({"pattern": r"is(.*)"}, " Paris ", "is  Paris  ", "correct", "Paris"),
        ({"pattern": r"IS (\w+)", "ignore_case": True}, "Paris", "is PARIS", "correct", "PARIS"),
        ({"pattern": r"is (\w+)"}, "Paris", "is PARIS", "wrong", "PARIS"),
        ({"pattern": r"(?P<answer>\d+)"}, [7, 8], "8", "correct", "8"),
        ({"pattern": r"(?:a|(b))"}, "b", "a", "wrong", None),
        ({"pattern": r"x(.*)"}, "", "x", "correct", ""),
    ],
)
def test_the_group_is_one_of_the_targets(
    settings: dict[str, Any], target: Any, reply: str, status: str, answer: str | None
) -> None:
    score = judge_reply(PatternSettings(**settings), target, reply)
    assert (score.status, score.answer, score.no_answer) == (status, answer, answer is None)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", r"pattern '\(a' is not a regular expression: missing \) at position 2"),
        ("a)(", "is not a regular expression: .* at position"),
        ("[a", "is not a regular expression"),
        ("(?au)(a)", "is not a regular expression: ASCII, LOCALE and UNICODE flags are mutually incompatible"),
        (r"\d+", r"has 0 groups; expected exactly one"),
        ("(a)(b)", r"has 2 groups; expected exactly one, around the answer \(write other brackets as \(\?:…\)\)"),
        ("(" * 5000 + ")" * 5000, "too large to compile"),
        ("((?:(?:a{300}){300}){300})", "repeats more than 100000 things"),
        (f"(a{{{'9' * 5000}}})", "repeats more than 100000 things"),
    ],
)
def test_a_pattern_is_checked_when_the_scorer_is_made(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_scorer(PatternSettings(pattern=pattern))


@pytest.mark.parametrize(
    "pattern", [r"(\d{4}-\d{2}-\d{2})", r"([A-Z]{1,9}){3}", r"[^]{99999}]{2}(a)", r"\({2}(x{500}){100}", r"(a{99999,})"]
)
def test_counts_in_sane_patterns_are_no_obstacle(pattern: str) -> None:
    assert compile_pattern(pattern, ignore_case=False).groups == 1


def refusal(pattern: str) -> str | None:
    try:
        compiled = compile_pattern(pattern, ignore_case=True)
    except ValueError as error:
        return str(error)
    return None if compiled.groups == 1 else "not refused"


@given(st.text(alphabet=st.sampled_from("ab(){}[]\\^|*+?{2}{3}:<>=!.,-&~"), max_size=25))
def test_any_pattern_compiles_or_is_refused_without_a_warning(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = refusal(pattern)
    assert message is None or (message.isprintable() and message.startswith("pattern "))


@pytest.mark.parametrize("match", ["first", "last"])
@pytest.mark.parametrize("pattern", [r"(?:a|aa)+([bc])$", r"^(?:\w|\w\w|\w\w\w)*([.!])$"])
def test_a_catastrophic_pattern_ends_as_unscored(match: Any, pattern: str) -> None:
    # Each has more ways to split 200 letters than could be tried in the age of the universe.
    score = judge_reply(PatternSettings(pattern=pattern, match=match, timeout_s=0.05), "x", "a" * 200)
    assert score.status == "unscored"
    assert score.reason == "the pattern took longer than 0.05 s (score.pattern.timeout_s)"
    assert score.values == {}


def test_the_time_limit_holds_for_all_matches_together() -> None:
    settings = PatternSettings(pattern=r"([ab])", match="last", timeout_s=0.001)
    assert judge_reply(settings, "a", "ab" * 2_000_000).status == "unscored"


def test_the_report_and_few_shot_show_the_target_as_given() -> None:
    scorer = make_scorer(PatternSettings(pattern="(a)", ignore_case=True))
    presented = scorer.present(a_sample(["The Tower", "X"]))
    assert presented.target == ("The Tower", "X")
    assert scorer.answer_text(presented) == "The Tower"
