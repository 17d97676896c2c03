"""The scores of turns: what they make of a sample."""

from __future__ import annotations

import pytest

from pytest_llmeval.scoring.turns import score_of_turns
from pytest_llmeval.types import Score, Status


def right(chance: float | None = None) -> Score:
    values = {"accuracy": 1.0} if chance is None else {"accuracy": 1.0, "skill": 1.0}
    return Score(status="correct", answer="A", values=values, chance=chance)


def wrong(chance: float | None = None) -> Score:
    values = {"accuracy": 0.0} if chance is None else {"accuracy": 0.0, "skill": -chance / (1 - chance)}
    return Score(status="wrong", answer="B", values=values, chance=chance)


def number(value: float) -> Score:
    return Score(status="scored", values={"aspects": value})


@pytest.mark.parametrize(
    ("scores", "status", "values"),
    [
        ([right(), None, right()], "correct", {"accuracy": 1.0}),
        ([wrong(), None, right()], "wrong", {"accuracy": 0.0}),
        ([right(), wrong()], "wrong", {"accuracy": 0.0}),
        ([number(2.0), number(5.0)], "scored", {"aspects": 3.5}),
        # Skill is that of who guesses both turns: chance is 1/4 * 1/2.
        ([right(0.25), right(0.5)], "correct", {"accuracy": 1.0, "skill": 1.0}),
        ([right(0.25), wrong(0.5)], "wrong", {"accuracy": 0.0, "skill": -(1 / 8) / (7 / 8)}),
    ],
)
def test_status_and_numbers(scores: list[Score | None], status: Status, values: dict[str, float]) -> None:
    own = [place for place, score in enumerate(scores) if score is not None]
    found = score_of_turns(scores, own)
    assert found.status == status
    assert found.values == pytest.approx(values)
    assert found.answer == scores[-1].answer  # type: ignore[union-attr]
    assert [turn and turn["status"] for turn in found.details["turns"]] == [one and one.status for one in scores]  # type: ignore[union-attr, call-overload, index]


def test_a_turn_of_another_scorer_decides_the_status_and_gives_no_number() -> None:
    other = Score(status="wrong", values={"accuracy": 0.0, "f1": 0.5})
    found = score_of_turns([other, number(4.0)], [1])
    assert (found.status, found.values) == ("wrong", {"aspects": 4.0})
    found = score_of_turns([Score(status="wrong", values={"f1": 0.5}), right(0.25)], [1])
    assert (found.status, found.values, found.chance) == ("wrong", {"accuracy": 0.0}, None)
    assert found.not_measurable == {"skill": "the reply to one of its turns cannot be guessed"}


def test_an_unscored_turn_leaves_the_sample_unscored_and_is_named() -> None:
    found = score_of_turns([right(), Score(status="unscored", reason="no verdict"), right()], [0, 1, 2])
    assert (found.status, found.reason) == ("unscored", "turn 2 of 3: no verdict")
