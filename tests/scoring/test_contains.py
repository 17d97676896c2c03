from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scorers.contains import ContainsSettings
from pytest_llmeval.scorers.exact import Remove
from tests.scoring.helpers import a_sample, judge_reply


@pytest.mark.parametrize(
    ("settings", "target", "reply", "right"),
    [
        (ContainsSettings(), "Paris", "It is Paris.", True),
        (ContainsSettings(), "Paris", "It is paris.", False),
        (ContainsSettings(), ["Paris", "Lutetia"], "Lutetia it was", True),
        (ContainsSettings(match="all"), ["Paris", "Lutetia"], "Lutetia it was", False),
        (ContainsSettings(match="all"), ["Paris", "Lutetia"], "Paris was Lutetia", True),
        (ContainsSettings(normalize=("lower",)), "Paris", "PARIS", True),
        (ContainsSettings(normalize=(Remove(remove=","),)), "1,000", "about 1000 of them", True),
        (ContainsSettings(), 42, "42!", True),
        # a step that would leave nothing of a target is left out for it
        (ContainsSettings(normalize=("no_punctuation",)), "!", "Stop!", True),
        (ContainsSettings(normalize=("no_punctuation",)), "!", "Stop.", False),
        (ContainsSettings(normalize=("no_punctuation",), match="all"), ["!", "a-b"], "ab!", True),
    ],
)
def test_any_or_all_of_the_targets(settings: ContainsSettings, target: Any, reply: str, right: bool) -> None:
    score = judge_reply(settings, target, reply)
    assert score.status == ("correct" if right else "wrong")
    assert score.values == {"accuracy": float(right)}
    assert not score.no_answer


def test_the_answer_is_what_was_found_else_the_reply() -> None:
    found = judge_reply(ContainsSettings(), ["a", "c", "b"], "a b d")
    assert (found.answer, found.details) == ("a, b", {"found": ["a", "b"]})
    assert judge_reply(ContainsSettings(), "a", "x").answer == "x"


def test_an_empty_reply_is_no_answer() -> None:
    score = judge_reply(ContainsSettings(normalize=("strip",)), "a", " ")
    assert (score.status, score.no_answer, score.answer) == ("wrong", True, None)


@pytest.mark.parametrize(
    ("target", "message"),
    [("", "nothing is left of target '': every reply"), (" ", "nothing is left of target ' ' after strip: ")],
)
def test_a_target_that_every_reply_holds_is_refused(target: str, message: str) -> None:
    scorer = ContainsSettings(normalize=("strip",)).make()
    with pytest.raises(ValueError, match=message):
        scorer.present(a_sample(target))


@pytest.mark.slow
def test_a_removal_without_end_leaves_the_sample_unscored() -> None:
    settings = ContainsSettings(normalize=(Remove(remove="(?:a|aa)+[bc]$"),))
    assert judge_reply(settings, "x", "a" * 200).status == "unscored"


@given(target=st.text(st.characters(), min_size=1, max_size=5), before=st.text(max_size=5), after=st.text(max_size=5))
def test_a_reply_around_the_target_holds_it(target: str, before: str, after: str) -> None:
    assert judge_reply(ContainsSettings(), target, before + target + after).status == "correct"
