"""``equivalence: {form: yes_no}``: a judge that writes YES or NO."""

from __future__ import annotations

import pytest

from pytest_llmeval.scorers.equivalence import EquivalenceSettings
from pytest_llmeval.text.wording import quoted
from tests.scoring.judge.helpers import asked_of, judged, scripted

YES_NO = EquivalenceSettings(math=False, form="yes_no")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("YES", "correct"),
        ("Yes.", "correct"),
        (" **yes**\n", "correct"),
        ("NO", "wrong"),
        ('"no"', "wrong"),
        ("YES or NO", "unscored"),
        ("Yes, they are the same.", "unscored"),
        ("yesno", "unscored"),
        ("no verdict", "unscored"),
        ("know", "unscored"),
        ("", "unscored"),
        ('{"reason": "r", "equivalent": true}', "unscored"),
        ("YES" + " " * 100 + "NO", "unscored"),
    ],
)
def test_one_word_is_the_verdict(said: str, status: str) -> None:
    score, _ = judged(YES_NO, "The city of light", scripted(said))
    assert score.status == status, score.reason
    if status == "unscored":
        assert score.reason == f"no verdict: the verdict is neither YES nor NO; it began {quoted(said.strip())}"


def test_what_it_asks() -> None:
    _, rounds = judged(YES_NO, "The city of light", scripted("YES"))
    ((request,),) = rounds
    assert request.json_schema == ""
    system, user = asked_of(YES_NO, "The city of light")
    assert "Reply with one word, YES or NO, and nothing else." in system
    assert "JSON" not in system
    assert "reason" not in system
    assert "The city of light" in user


def test_no_line_of_its_prompt_is_a_verdict() -> None:
    for turn in asked_of(YES_NO, "The city of light"):
        for piece in (turn, *turn.splitlines(), *turn.split(". ")):
            assert judged(YES_NO, "The city of light", scripted(piece))[0].status == "unscored", piece


def test_a_suite_without_it_has_the_fingerprint_that_it_had() -> None:
    assert "form" not in EquivalenceSettings().model_dump(mode="json")
    assert EquivalenceSettings(form="yes_no").model_dump(mode="json")["form"] == "yes_no"
