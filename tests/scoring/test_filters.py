"""What filters leave of a reply, and what a scorer makes of it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval.filters import extraction
from lm_eval.filters.extraction import MultiChoiceRegexFilter
from lm_eval.filters.extraction import RegexFilter as LmEvalRegexFilter
from lm_eval.filters.transformation import MapFilter as LmEvalMapFilter
from pydantic import TypeAdapter

from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.choice import ChoiceSettings
from pytest_llmeval.scorers.exact import ExactSettings
from pytest_llmeval.scorers.letter import LetterSettings
from pytest_llmeval.scorers.number import NumberSettings
from pytest_llmeval.scoring.base import SettingsError
from pytest_llmeval.scoring.filters import Filters, make_filters
from pytest_llmeval.types import GenerateResponse, Score
from tests.properties import examples
from tests.scoring.helpers import GENERATE, a_sample

_FILTERS: TypeAdapter[Any] = TypeAdapter(Filters)
DIGITS = {"regex": r"\d+"}


def left_of(text: str, *filters: object, choices: Sequence[str] = ()) -> str | None:
    return make_filters(_FILTERS.validate_python(list(filters)))(text, choices)


def judge(settings: ScoreSettings, target: Any, reply: str, *filters: object, choices: Sequence[str] = ()) -> Score:
    scorer = suite_scorer(settings, filters=_FILTERS.validate_python(list(filters)))
    return scorer.score(scorer.present(a_sample(target, choices)), [GenerateResponse(text=reply)])


@pytest.mark.parametrize(
    ("step", "text", "left"),
    [
        ("strip", " a b \n", "a b"),
        ("lstrip", " a \n", "a \n"),
        ("lower", "AbC", "abc"),
        ("upper", "AbC", "ABC"),
        ("first_line", "\n  \n a \r\nb", " a "),
        ("last_line", "a\n b\n \n", " b"),
        ("last_line", " \n\n", None),
        ("first_line", "", None),
        ({"after": "####"}, "1 #### 2 #### 3", " 3"),
        ({"after": {"marker": "####", "match": "first"}}, "1 #### 2 #### 3", " 2 #### 3"),
        ({"after": "####"}, "3", None),
        ({"after": {"marker": "####", "missing": "keep"}}, "3", "3"),
        ({"before": "\n\n"}, "1\n\n2\n\n3", "1"),
        ({"before": {"marker": "\n\n", "match": "last"}}, "1\n\n2\n\n3", "1\n\n2"),
        ({"before": "\n\n"}, "1", "1"),
        ({"before": {"marker": ".", "missing": "no_answer"}}, "1", None),
        (DIGITS, "a 12 b 3", "12"),
        (DIGITS, "a", None),
        ({"regex": {"pattern": r"\d+", "match": "last"}}, "a 12 b 3", "3"),
        ({"regex": {"pattern": r"\d+", "match": -2}}, "a 12 b 3", "12"),
        ({"regex": {"pattern": r"\d+", "match": 2}}, "a 12 b 3", None),
        ({"regex": {"pattern": r"\d+", "fallback": "none"}}, "a", "none"),
        ({"regex": {"pattern": r"(\w)=(\w)", "group": 2}}, "a=b", "b"),
        ({"regex": {"pattern": r"(\w)=(?P<right>\w)", "group": "right"}}, "a=b", "b"),
        ({"regex": {"pattern": r"(\w)=(\w)"}}, "a=b", "a"),
        ({"regex": {"pattern": "ANSWER (.)", "ignore_case": True}}, "the answer b", "b"),
        ({"map": {"1": "yes", "0": "no"}}, "1", "yes"),
        ({"map": {"1": "yes", "0": 5}}, "0", "5"),
        ({"map": {"1": "yes"}}, "2", None),
        ({"map": {"values": {"1": "yes"}, "default": "?"}}, "2", "?"),
        ("drop_reasoning", "<think>1 or 2?</think>\n\n2", "2"),
        ("drop_reasoning", " 2 ", " 2 "),
        ("drop_reasoning", "1 or 2?</think> 2", "2"),
        ("drop_reasoning", "<think>a</think>b<think>c</think>d", "bd"),
        ("drop_reasoning", "<think>a<think>b</think>c</think>d", "d"),
        ("drop_reasoning", "<think>1 or", None),
        ("drop_reasoning", "2<think>or 1", None),
        ("drop_reasoning", "<think>a</think>", ""),
        ({"drop_reasoning": {"begin": "[[", "end": "]]"}}, "[[x]]y", "y"),
    ],
)
def test_one_filter(step: object, text: str, left: str | None) -> None:
    assert left_of(text, step) == left


def test_filters_are_applied_in_their_order() -> None:
    assert left_of("so: <b>Yes</b>", {"after": "<b>"}, {"before": "</b>"}, "lower") == "yes"
    assert left_of("Yes", "lower", {"after": "Y"}, "upper") is None


PATTERNS = [r"#### (\-?[0-9\.\,]+)", r"(-?[$0-9.,]{2,})|(-?[0-9]+)", r"(a)?(b)?", r"\w+", r"(\s+)", "never"]
REPLIES = st.lists(
    st.sampled_from(["#### ", "12", "3,4", "$", "a", "b", " ", "\n", ".", "\x1c", "é", "ि"]), max_size=12
).map("".join)


@given(
    pattern=st.sampled_from(PATTERNS),
    text=REPLIES,
    place=st.sampled_from([0, -1]),
    fallback=st.sampled_from(["[invalid]", "", " x "]),
)
def test_regex_is_that_of_lm_eval(pattern: str, text: str, place: int, fallback: str) -> None:
    """Against ``lm_eval.filters.extraction.RegexFilter``."""
    (expected,) = LmEvalRegexFilter(pattern, place, fallback).apply([[text]], [{}])
    assert [left_of(text, {"regex": {"pattern": pattern, "match": place, "fallback": fallback}})] == expected


CHOICES = st.lists(
    st.lists(st.sampled_from(["Guilty", " of", " Romance", "!", "a", "(", ".", "B"]), min_size=1, max_size=4).map(
        "".join
    ),
    min_size=1,
    max_size=4,
)


@given(
    pattern=st.sampled_from([r"(\([A-Z]\))", r"\(([A-Z])\)", "(a)|(b)", "never"]),
    choices=CHOICES,
    parts=st.lists(st.integers(0, 9), max_size=5),
    place=st.sampled_from([0, -1]),
    ignore_case=st.booleans(),
    ignore=st.sampled_from([[], ["l"], [r"\s", "G"]]),
)
@settings(max_examples=examples(20))
def test_choice_regex_is_that_of_lm_eval(
    pattern: str, choices: list[str], parts: list[int], place: int, ignore_case: bool, ignore: list[str]
) -> None:
    """Against ``lm_eval.filters.extraction.MultiChoiceRegexFilter``."""
    pieces = [*choices, "(A)", "(B)", ": A", ":\n B", " ", "x", "guilty"]
    text = "".join(pieces[part % len(pieces)] for part in parts)
    lm_eval = MultiChoiceRegexFilter(pattern, place, "[invalid]", ignore_case, False, ignore or None)
    with pytest.MonkeyPatch.context() as patch:
        # Each call looks for punctuation among all characters of Unicode: a second. Texts here have none above this.
        patch.setattr(extraction, "sys", SimpleNamespace(maxunicode=0x3000))
        (expected,) = lm_eval.apply([[text]], [{"choices": choices}])
    settings = {"pattern": pattern, "match": place, "fallback": "[invalid]", "ignore_case": ignore_case}
    assert [left_of(text, {"choice_regex": {**settings, "ignore": ignore}}, choices=choices)] == expected


def test_choice_regex_without_punctuation_is_that_of_lm_eval() -> None:
    choices = ["It's right.", "It's wrong…"]
    settings = {"pattern": "never", "ignore_punctuation": True, "fallback": "[invalid]"}
    lm_eval = MultiChoiceRegexFilter("never", 0, "[invalid]", False, True)
    for text in ("Its right", "I say: it’s", "It's «wrong»", ": B"):
        assert [left_of(text, {"choice_regex": settings}, choices=choices)] == lm_eval.apply(
            [[text]], [{"choices": choices}]
        )[0]


def test_map_is_that_of_lm_eval() -> None:
    values = {"A": "0", "B": "1"}
    expected = LmEvalMapFilter(values, "-").apply([["A", "B", "C"]], [{}])[0]
    assert [left_of(text, {"map": {"values": values, "default": "-"}}) for text in "ABC"] == expected


def test_a_scorer_judges_what_is_left() -> None:
    score = judge(ExactSettings(), "42", "It is 17. Or 42.", {"regex": {"pattern": r"\d+", "match": "last"}})
    assert (score.status, score.answer) == ("correct", "42")
    wrong = judge(NumberSettings(), 42, "42 it is, not #### 17", {"after": "####"})
    assert (wrong.status, wrong.answer, wrong.details["filtered"]) == ("wrong", "17", " 17")


def test_no_match_is_no_answer_and_wrong() -> None:
    score = judge(ExactSettings(), "42", "I do not know", DIGITS)
    assert (score.status, score.no_answer, score.answer) == ("wrong", True, None)
    assert score.values == {"accuracy": 0.0}


def test_no_match_is_wrong_even_where_nothing_is_expected() -> None:
    assert judge(ExactSettings(), "", "I do not know", DIGITS).status == "wrong"
    assert judge(ExactSettings(), "", "I do not know", DIGITS).values == {"accuracy": 0.0}
    empty = judge(ExactSettings(), "", "so: ", {"after": ":"})
    assert (empty.status, empty.no_answer) == ("correct", False)


def test_a_fallback_is_an_answer() -> None:
    score = judge(ExactSettings(), "42", "no", {"regex": {"pattern": r"\d+", "fallback": "[invalid]"}})
    assert (score.status, score.no_answer, score.answer) == ("wrong", False, "[invalid]")


def test_a_search_without_end_leaves_the_sample_unscored() -> None:
    slow = {"regex": {"pattern": "(?:a|aa)+[bc]$", "timeout_s": 0.05}}
    score = judge(ExactSettings(), "a", "a" * 200, "strip", slow)
    assert score.status == "unscored"
    assert score.reason == "filters.1.regex: the search took longer than its timeout_s"


def test_a_letter_is_read_from_what_is_left() -> None:
    settings = LetterSettings(shuffle=False)
    score = judge(settings, 1, "A? No.\nAnswer: B", {"after": "Answer:"}, choices=["x", "y"])
    assert (score.status, score.answer) == ("correct", "B")


def test_without_a_reply_there_is_nothing_to_filter() -> None:
    scorer = suite_scorer(ChoiceSettings(), filters=_FILTERS.validate_python(["strip"]))
    presented = scorer.present(a_sample(0, ["a", "b"]))
    with pytest.raises(SettingsError, match="the scorer choice uses no reply that could be filtered") as caught:
        scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE)
    assert caught.value.keys == ("filters",)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"regex": "(["}, "is not a regular expression"),
        ({"regex": {"pattern": "(a)", "group": 2}}, "the pattern has 1 groups, and no group 2"),
        ({"regex": {"pattern": "(a)", "group": "x"}}, "the pattern has no group named 'x'"),
        ({"choice_regex": {"pattern": "a", "ignore": ["("]}}, "is not a regular expression"),
    ],
)
def test_a_filter_that_cannot_be_used_is_named_with_its_place(step: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        make_filters(_FILTERS.validate_python(["strip", step]))
    assert caught.value.keys == ("filters", 1, *step)


def test_a_sample_without_choices_and_a_filter_that_looks_at_them() -> None:
    with pytest.raises(ValueError, match=r"^filters\.0\.choice_regex looks at the sample's choices, and it has none$"):
        judge(ExactSettings(), "(A)", "(A)", {"choice_regex": "(x)"})


def test_a_filtered_scorer_travels_to_workers() -> None:
    steps = ["strip", DIGITS, {"map": {"1": "2"}}, {"choice_regex": "x"}, "drop_reasoning", {"after": "x"}]
    scorer = suite_scorer(ExactSettings(), filters=_FILTERS.validate_python(steps))
    assert pickle.loads(pickle.dumps(scorer)) == scorer


@given(st.text(st.characters(), max_size=60))
def test_any_reply_is_judged(reply: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = judge(ExactSettings(), "1", reply, "drop_reasoning", "last_line", {"regex": r"\w+"}, "lower")
    assert score.status in ("correct", "wrong")
    assert score.no_answer == (score.answer is None)


def test_what_no_filter_found_has_the_lowest_accuracy() -> None:
    score = judge(ExactSettings(allow_empty=True), "", "no digits", DIGITS)
    assert (score.status, score.values) == ("wrong", {"accuracy": 0.0})
