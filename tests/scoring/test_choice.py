from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import brier_score_loss

from pytest_llmeval.errors import ModelError
from pytest_llmeval.scorers.choice import ChoiceScorer, ChoiceSettings
from pytest_llmeval.scoring.option_scores import Normalize, rank, rank_by_each
from pytest_llmeval.types import GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse, Message, Score
from tests.scoring.helpers import GENERATE, a_sample, judge_loglikelihoods

LOGLIKELIHOODS = st.floats(-60, -0.01)


def judge(
    values: list[float],
    target: Any,
    *,
    choices: list[str] | None = None,
    num_tokens: list[int] | None = None,
    normalize: Normalize = "token",
) -> Score:
    sample = a_sample(target, choices or [f"option {index}" for index in range(len(values))])
    scorer = ChoiceScorer(ChoiceSettings(normalize=normalize))
    return judge_loglikelihoods(scorer, sample, values, num_tokens or [1] * len(values))


def test_one_request_for_each_option_after_the_delimiter() -> None:
    scorer = ChoiceScorer(ChoiceSettings())
    presented = scorer.present(a_sample(1, ["Rome", "Paris"]))
    assert scorer.requests(presented, "Capital of France: ", delimiter=" ", generate=GENERATE) == (
        LoglikelihoodRequest("Capital of France: ", " Rome"),
        LoglikelihoodRequest("Capital of France: ", " Paris"),
    )
    chat = (Message(role="user", content="Capital of France?"),)
    assert scorer.requests(presented, chat, delimiter="", generate=GENERATE)[1] == LoglikelihoodRequest(chat, "Paris")


@given(
    texts=st.lists(st.text(min_size=1, max_size=4), min_size=2, max_size=4),
    measure=st.sampled_from(["loglikelihood", "score"]),
    draw=st.data(),
)
def test_rankings_by_each_normalization_are_those_by_one(texts: list[str], measure: Any, draw: st.DataObject) -> None:
    responses = [
        LoglikelihoodResponse(
            loglikelihood=draw.draw(LOGLIKELIHOODS), num_tokens=draw.draw(st.integers(1, 3)), measure=measure
        )
        for _ in texts
    ]
    names: tuple[Normalize, ...] = ("token", "sum", "char", "byte")
    found = rank_by_each(texts, responses, names)
    assert found == {name: rank(texts, responses, name) for name in names}
    assert (found["char"] is found["byte"]) == (measure == "score" or all(text.isascii() for text in texts))


def test_two_options_by_hand() -> None:
    # Mean logprobs ln 0.6 and ln 0.2: p = 0.75 and 0.25. The second is right: squares 0.75² and 0.75².
    score = judge([2 * math.log(0.6), math.log(0.2)], 1, num_tokens=[2, 1])
    assert score.status == "wrong"
    assert score.answer == "option 0"
    assert score.chance == 0.5
    assert score.details["probabilities"] == pytest.approx([0.75, 0.25])
    assert score.details["loglikelihoods"] == [2 * math.log(0.6), math.log(0.2)]
    assert score.details["num_tokens"] == [2, 1]
    assert score.values["brier"] == pytest.approx(0.5625)
    assert score.values["brier_sum"] == pytest.approx(1.125)
    assert score.values["skill"] == -1.0


def test_several_right_options_by_hand() -> None:
    # p = 0.5, 0.3, 0.2; right are the first two: (0.5² + 0.7² + 0.2²) / 3 = 0.78 / 3.
    score = judge([math.log(0.5), math.log(0.3), math.log(0.2)], [0, 1])
    assert score.status == "correct"
    assert score.values["brier"] == pytest.approx(0.26)
    assert score.chance == pytest.approx(2 / 3)
    assert score.values["skill"] == pytest.approx(1.0)


def test_four_normalisations_by_hand() -> None:
    # "ab" and "ü€": 2 characters each; 2 and 5 bytes; 1 and 4 tokens. Logprobs -3 and -4.
    score = judge([-3.0, -4.0], 1, choices=["ab", "ü€"], num_tokens=[1, 4])
    assert {name: score.values[f"accuracy_{name}"] for name in ("token", "sum", "char", "byte")} == {
        "token": 1.0,  # -3/1 against -4/4
        "sum": 0.0,  # -3 against -4
        "char": 0.0,  # -3/2 against -4/2
        "byte": 1.0,  # -3/2 against -4/5
    }


@pytest.mark.parametrize(
    ("normalize", "expected"),
    [("token", [-3.0, -1.0]), ("sum", [-3.0, -4.0]), ("char", [-1.5, -2.0]), ("byte", [-1.5, -0.8])],
)
def test_the_distribution_follows_normalize(normalize: Normalize, expected: list[float]) -> None:
    score = judge([-3.0, -4.0], 1, choices=["ab", "ü€"], num_tokens=[1, 4], normalize=normalize)
    assert score.details["probabilities"] == pytest.approx(softmax(expected))
    assert score.values["accuracy"] == score.values[f"accuracy_{normalize}"]


@given(st.lists(LOGLIKELIHOODS, min_size=2, max_size=8), st.data())
def test_brier_is_that_of_scikit_learn_over_a_softmax_of_scipy(values: list[float], data: st.DataObject) -> None:
    right = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=len(values) - 1))
    score = judge(values, sorted(right))
    probabilities = softmax(values)
    assert score.details["probabilities"] == pytest.approx(list(probabilities), abs=1e-12)
    labels = [int(index in right) for index in range(len(values))]
    assert score.values["brier"] == pytest.approx(brier_score_loss(labels, probabilities), abs=1e-12)
    assert score.values["brier_sum"] == pytest.approx(len(values) * score.values["brier"])


@given(st.lists(LOGLIKELIHOODS, min_size=2, max_size=8, unique_by=lambda value: round(value, 6)), st.data())
def test_the_order_of_options_makes_no_difference(values: list[float], data: st.DataObject) -> None:
    options = [f"option {index}" for index in range(len(values))]
    right = data.draw(st.integers(0, len(values) - 1))
    order = data.draw(st.permutations(range(len(values))))
    score = judge(values, options[right], choices=options)
    moved = judge([values[i] for i in order], options[right], choices=[options[i] for i in order])
    assert (moved.status, moved.answer) == (score.status, score.answer)
    assert moved.values == pytest.approx(score.values, abs=1e-12)


def test_an_option_that_the_model_excludes_has_probability_0() -> None:
    score = judge([-math.inf, -1.0], 1)
    assert score.status == "correct"
    assert score.details["probabilities"] == [0.0, 1.0]
    assert score.details["loglikelihoods"] == [None, -1.0]
    assert score.values["brier"] == 0.0


@pytest.mark.parametrize(
    ("values", "num_tokens", "reason"),
    [
        ([-1.0, math.nan], [1, 1], "the loglikelihood of option 'option 1' is nan"),
        ([math.inf, -1.0], [1, 1], "the loglikelihood of option 'option 0' is inf"),
        ([-math.inf, -math.inf], [1, 1], "the loglikelihood of every option is -inf"),
        ([-1.0, -1.0], [1, 0], "the model reports 0 tokens in option 'option 1'"),
    ],
)
def test_what_cannot_be_compared_is_unscored(values: list[float], num_tokens: list[int], reason: str) -> None:
    score = judge(values, 0, num_tokens=num_tokens)
    assert (score.status, score.reason, score.values) == ("unscored", reason, {})


def test_very_unlikely_options_do_not_underflow() -> None:
    score = judge([-5000.0, -5001.0], 0, normalize="sum")
    assert score.details["probabilities"] == pytest.approx(softmax([0.0, -1.0]))


def test_an_empty_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="choice 1 is empty"):
        ChoiceScorer(ChoiceSettings()).present(a_sample(0, ["a", " "]))


def test_options_may_hold_anything() -> None:
    assert judge([-1.0, -2.0], 0, choices=["\ud800\x00", "b" * 100_000]).status == "correct"


def test_target_and_few_shot_answer_are_the_texts_of_the_right_options() -> None:
    scorer = ChoiceScorer(ChoiceSettings())
    one = scorer.present(a_sample(1, ["Rome", "Paris", "Lyon"]))
    two = scorer.present(a_sample([2, 1], ["Rome", "Paris", "Lyon"]))
    assert (one.target, scorer.answer_text(one)) == ("Paris", "Paris")
    assert (two.target, scorer.answer_text(two)) == (("Paris", "Lyon"), "Paris")


def test_a_model_that_answers_something_else_is_named() -> None:
    scorer = ChoiceScorer(ChoiceSettings())
    presented = scorer.present(a_sample(0, ["a", "b"]))
    with pytest.raises(ModelError, match="expected 2 LoglikelihoodResponse from the model, found GenerateResponse"):
        scorer.score(presented, [GenerateResponse(text="a")])
