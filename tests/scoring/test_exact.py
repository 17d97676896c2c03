from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.exact import ExactScorer, normalized
from pytest_llmeval.suites.schema import ExactSettings, Normalization
from tests.scoring.helpers import a_sample, judge_reply

SQUAD: tuple[Normalization, ...] = ("lower", "no_punctuation", "no_articles", "collapse_whitespace")
ALL: tuple[Normalization, ...] = ("unicode", *SQUAD, "strip")


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        ((), " Paris ", " Paris "),
        (("strip",), " Paris \n", "Paris"),
        (("lower",), "PaRis", "paris"),
        (("collapse_whitespace",), "  a \t\n b ", "a b"),
        (("no_punctuation",), "¿don't—“stop”? $5", "dontstop 5"),
        (("no_articles",), "The cat, an owl and a theme", "  cat,   owl and   theme"),
        (("unicode",), "ﬁn①２", "fin12"),
        (SQUAD, "The  Eiffel Tower!", "eiffel tower"),
    ],
)
def test_named_normalisations(names: tuple[Normalization, ...], text: str, expected: str) -> None:
    assert normalized(text, names) == expected


def test_normalisations_are_applied_in_the_order_given() -> None:
    # The apostrophe's removal makes an article of "a'", or comes too late for it.
    assert normalized("th'e end", ("no_punctuation", "no_articles", "strip")) == "end"
    assert normalized("th'e end", ("no_articles", "no_punctuation", "strip")) == "the end"


@pytest.mark.parametrize(
    ("target", "reply", "right"),
    [
        ("Paris", "Paris", True),
        ("Paris", " Paris\n", True),
        ("Paris", "paris", False),
        ("Paris", "Paris.", False),
        (["Paris", "Lutetia"], "Lutetia", True),
        (["Paris", "Lutetia"], "Rome", False),
        (42, "42", True),
    ],
)
def test_one_of_the_targets(target: Any, reply: str, right: bool) -> None:
    score = judge_reply(ExactSettings(), target, reply)
    assert score.status == ("correct" if right else "wrong")
    assert score.answer == reply.strip()
    assert not score.no_answer


def test_both_sides_are_normalised() -> None:
    settings = ExactSettings(normalize=SQUAD)
    assert judge_reply(settings, "The Eiffel Tower", "eiffel tower!").status == "correct"


def test_an_empty_reply_is_no_answer_unless_it_is_expected() -> None:
    none, expected = judge_reply(ExactSettings(), "Paris", " \n"), judge_reply(ExactSettings(), ["", "-"], " \n")
    assert (none.status, none.no_answer, none.answer) == ("wrong", True, None)
    assert (expected.status, expected.no_answer, expected.answer) == ("correct", False, "")


def test_a_target_of_which_nothing_is_left_is_refused() -> None:
    scorer = ExactScorer(ExactSettings(normalize=SQUAD))
    with pytest.raises(ValueError, match="nothing is left of target 'The!' after lower, no_punctuation, no_articles"):
        scorer.present(a_sample(["Paris", "The!"]))


def test_the_report_and_few_shot_show_the_target_as_given() -> None:
    scorer = ExactScorer(ExactSettings(normalize=SQUAD))
    presented = scorer.present(a_sample(["The Tower", "Tower"]))
    assert presented.target == ("The Tower", "Tower")
    assert scorer.answer_text(presented) == "The Tower"


@given(st.text(st.characters()))
def test_normalisations_never_raise_on_any_text(text: str) -> None:
    assert isinstance(normalized(text, ALL), str)
