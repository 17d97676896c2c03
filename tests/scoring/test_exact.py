from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.api.metrics import exact_match_hf_evaluate

from pytest_llmeval.scorers.exact import ExactSettings, Normalization, Remove, normalized
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
        (("no_ascii_punctuation",), "¿don't—“stop”? $5", "¿dont—“stop” 5"),
        (("no_digits",), "a1b٣2", "ab٣"),
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


@pytest.mark.parametrize(
    ("steps", "target", "reply", "right"),
    [
        (SQUAD, "A", "A", True),
        (SQUAD, "A", "a.", True),
        (SQUAD, "A", "the", False),
        (SQUAD, "A", "", False),
        (SQUAD, "The!", "the", True),
        (SQUAD, "The!", "an", False),
        (SQUAD, "#", "#", True),
        (SQUAD, "#", "!", False),
        (SQUAD, ["A", "Paris"], "", False),
        (SQUAD, ["A", "Paris"], "the Paris", True),
        (("no_articles",), "A", "the", False),
        (("no_digits",), "42", "42", True),
        (("no_digits",), "42", "7", False),
    ],
)
def test_a_named_step_that_would_leave_nothing_of_a_target_is_left_out(
    steps: Any, target: Any, reply: str, right: bool
) -> None:
    score = judge_reply(ExactSettings(normalize=steps), target, reply)
    assert score.status == ("correct" if right else "wrong")


@pytest.mark.parametrize(
    ("settings", "target", "message"),
    [
        (ExactSettings(), "  ", "nothing is left of target '  ' after strip: an empty reply would be right"),
        (ExactSettings(normalize=(Remove(remove=".*####"),)), "6 * 7 ####", "after remove '.*####': an empty reply"),
    ],
)
def test_a_target_of_which_nothing_is_left_is_refused(settings: ExactSettings, target: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        settings.make().present(a_sample(["Paris", target]))


def test_the_version_is_raised_where_a_verdict_can_be_another_one() -> None:
    settings = [ExactSettings(), ExactSettings(normalize=SQUAD), ExactSettings(normalize=SQUAD, allow_empty=True)]
    assert [some.make().version for some in settings] == [1, 2, 1]


def test_the_report_and_few_shot_show_the_target_as_given() -> None:
    scorer = ExactSettings(normalize=SQUAD).make()
    presented = scorer.present(a_sample(["The Tower", "Tower"]))
    assert presented.target == ("The Tower", "Tower")
    assert scorer.answer_text(presented) == "The Tower"


@given(st.text(st.characters()))
def test_normalisations_never_raise_on_any_text(text: str) -> None:
    assert isinstance(normalized(text, ALL), str)


LM_EVAL_PATTERNS = [",", r"\$", r"(?s).*#### ", r"\.$", r"\s+", r"\w"]
LM_EVAL_TEXTS = st.lists(
    st.one_of(
        st.sampled_from([",", "$", "#### ", ".", " ", "\n", "12", "A", "a", "!", "—", "é", "ि", "٣"]),
        st.text(max_size=3),
    ),
    max_size=8,
).map(lambda parts: "".join(part for part in "".join(parts) if part not in "\x00İ"))
"""Texts without NUL and İ, of which numpy cuts off the end and half of the lower case: its arrays have cells of one
size."""


@given(
    reply=LM_EVAL_TEXTS,
    target=LM_EVAL_TEXTS,
    patterns=st.lists(st.sampled_from(LM_EVAL_PATTERNS), max_size=3),
    ignore_case=st.booleans(),
    ignore_punctuation=st.booleans(),
    ignore_numbers=st.booleans(),
    same=st.booleans(),
)
def test_it_can_be_the_exact_match_of_lm_eval(
    reply: str,
    target: str,
    patterns: list[str],
    ignore_case: bool,
    ignore_punctuation: bool,
    ignore_numbers: bool,
    same: bool,
) -> None:
    """Against ``lm_eval.api.metrics.exact_match_hf_evaluate``."""
    target = reply.swapcase() if same else target
    expected = exact_match_hf_evaluate(
        [reply],
        [target],
        regexes_to_ignore=patterns or None,
        ignore_case=ignore_case,
        ignore_punctuation=ignore_punctuation,
        ignore_numbers=ignore_numbers,
    )["exact_match"]
    named: list[tuple[bool, Normalization]] = [
        (ignore_case, "lower"),
        (ignore_punctuation, "no_ascii_punctuation"),
        (ignore_numbers, "no_digits"),
    ]
    steps = (*(Remove(remove=pattern) for pattern in patterns), *(name for wanted, name in named if wanted))
    score = judge_reply(ExactSettings(normalize=steps, allow_empty=True), target, reply)
    assert score.values == {"accuracy": expected}


def test_what_a_regular_expression_matches_is_removed() -> None:
    settings = ExactSettings(normalize=(Remove(remove=r"[,$]"), Remove(remove=r"(?s).*#### "), "strip"))
    score = judge_reply(settings, "a long way\n#### 1,234", "$1,234")
    assert (score.status, score.answer) == ("correct", "1234")


def test_nothing_can_be_what_is_expected() -> None:
    settings = ExactSettings(normalize=("no_ascii_punctuation",), allow_empty=True)
    assert judge_reply(settings, "!", "").status == judge_reply(settings, "!", "?!").status == "correct"
    assert judge_reply(settings, "!", "a").status == "wrong"


def test_a_removal_without_end_leaves_the_sample_unscored() -> None:
    settings = ExactSettings(normalize=(Remove(remove="(?:a|aa)+[bc]$"),))
    score = judge_reply(settings, "x", "a" * 200)
    assert (score.status, score.reason) == ("unscored", "a regular expression of normalize took longer than 1 s")
    with pytest.raises(ValueError, match="took longer than 1 s in the target"):
        settings.make().present(a_sample("a" * 200))


def test_a_removal_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        ExactSettings(normalize=(Remove(remove="("),)).make()


def test_settings_that_came_later_leave_fingerprints_as_they_were() -> None:
    assert ExactSettings().model_dump(mode="json") == {"kind": "exact", "normalize": ["strip"]}
    assert ExactSettings(allow_empty=True).model_dump(mode="json")["allow_empty"] is True
