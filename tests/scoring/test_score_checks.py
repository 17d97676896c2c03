"""Scores that a user's scorer may return."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from pytest_llmeval.scoring.score_checks import checked
from pytest_llmeval.types import Score, Status


def test_numbers_of_numpy_and_torch_are_pythons_own() -> None:
    values: dict[str, Any] = {"a": np.float32(0.5), "b": torch.tensor(2), "c": np.array([3.0]), "d": True, "e": 7}
    details: dict[str, Any] = {"top": np.int64(3), "of": (1, np.float64(2.5))}
    found = checked(
        Score(
            status="scored",
            values=values,
            details=details,
            chance=np.float64(0.25),
            answer=5,  # type: ignore[arg-type]
            no_answer=np.bool_(False),  # type: ignore[arg-type]
        ),
        "mine",
    )
    assert found.values == {"a": 0.5, "b": 2.0, "c": 3.0, "d": 1.0, "e": 7.0}
    assert {type(value) for value in found.values.values()} == {float}
    assert found.details == {"top": 3, "of": [1, 2.5]}
    assert (type(found.chance), found.answer, found.no_answer) == (float, "5", False)


def test_right_or_wrong_without_values_is_an_accuracy() -> None:
    assert checked(Score(status="correct"), "mine").values == {"accuracy": 1.0}
    assert checked(Score(status="wrong"), "mine").values == {"accuracy": 0.0}
    assert checked(Score(status="scored"), "mine").values == {}
    assert checked(Score(status="correct", values={"credit": 1.0}), "mine").values == {"credit": 1.0}


def test_a_usable_score_stays_what_it_is() -> None:
    score = Score(status="wrong", values={"accuracy": 0.0}, chance=0.5, details={"a": [1, {"b": None}]}, vote="x")
    assert checked(score, "mine") == score


@pytest.mark.parametrize("status", ["correct", "wrong", "scored"])
def test_partial_credit_contradicts_no_status(status: Status) -> None:
    assert checked(Score(status=status, values={"accuracy": 0.5}), "mine").status == status


def test_an_accuracy_of_one_or_none_without_a_verdict_stays() -> None:
    for accuracy in (0.0, 1.0):
        assert checked(Score(status="scored", values={"accuracy": accuracy}), "mine").status == "scored"


@pytest.mark.parametrize(
    ("score", "problem"),
    [
        ("right", "a str, expected a Score"),
        (None, "a NoneType, expected a Score"),
        (Score(status="good"), "the status 'good', expected correct, wrong, scored or unscored"),  # type: ignore[arg-type]
        (Score(status=[]), "the status []"),  # type: ignore[arg-type]
        (Score(status="correct", values={"a": math.inf}), "a = inf, expected a finite number"),
        (Score(status="correct", values={"a": np.float64("nan")}), "a = "),
        (Score(status="correct", values={"a": 10**5000}), "a = a int, expected a finite number"),
        (Score(status="correct", values={"a": "1"}), "a = '1', expected a finite number"),  # type: ignore[dict-item]
        (Score(status="correct", values={"a": torch.zeros(2)}), "a = tensor"),  # type: ignore[dict-item]
        (Score(status="correct", values={1: 1.0}), "a value under the name 1, expected a text"),  # type: ignore[dict-item]
        (Score(status="correct", values=[1.0]), "values that are a list"),  # type: ignore[arg-type]
        (
            Score(status="correct", values={"accuracy": 0.0, "wit": 1.0}),
            "the status correct and accuracy = 0.0, expected accuracy = 1.0, or the status wrong",
        ),
        (
            Score(status="wrong", values={"accuracy": 1}),
            "the status wrong and accuracy = 1.0, expected accuracy = 0.0, or the status correct",
        ),
        (Score(status="correct", chance=1.0), "chance = 1.0, expected a number of at least 0 and below 1"),
        (Score(status="correct", chance="x"), "chance = 'x', expected a finite number"),  # type: ignore[arg-type]
        (Score(status="correct", details=[]), "details that are a list"),  # type: ignore[arg-type]
        (Score(status="correct", details={"a": {1, 2}}), "details['a'] = {1, 2}, which JSON"),  # type: ignore[dict-item]
        (Score(status="correct", details={"a": 10**5000}), "details that JSON cannot hold: ValueError"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_no_score_is_unscored_and_says_whose(score: object, problem: str) -> None:
    found = checked(score, "mine")
    assert (found.status, found.values) == ("unscored", {})
    assert (found.reason or "").startswith(f"the scorer mine gave {problem}")


def test_details_without_end() -> None:
    details: dict[str, Any] = {}
    details["itself"] = details
    found = checked(Score(status="correct", details=details), "mine")
    assert found.reason == "the scorer mine gave details that JSON cannot hold: RecursionError"
