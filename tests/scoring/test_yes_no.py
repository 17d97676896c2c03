from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.special import softmax
from sklearn.metrics import brier_score_loss

from pytest_llmeval.scoring.metrics import summarize
from pytest_llmeval.scoring.yes_no import YesNoScorer
from pytest_llmeval.suites.schema import GenerateSpec, YesNoSettings
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest
from tests.scoring.helpers import GENERATE, a_sample, judge_loglikelihoods, judge_reply

BY_GENERATION = YesNoScorer(YesNoSettings())
BY_LOGLIKELIHOOD = YesNoScorer(YesNoSettings(by="loglikelihood"))


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("yes", "yes"),
        ("Yes, it is.", "yes"),
        (" \n\tYES", "yes"),
        ("yesterday", "yes"),
        ("no", "no"),
        ("No.", "no"),
        ("  NOT at all", "no"),
        ("none", "no"),
        ("n", None),
        ("y", None),
        ("ye", None),
        ("", None),
        ("   ", None),
        ("  n ", None),  # two characters, and no start of "no"
        ("It is: yes", None),
        ("'yes'", None),
        ("**No**", None),
        ("\x00no", None),
        ("\ud800yes", None),
    ],
)
def test_the_first_three_characters_decide(reply: str, answer: str | None) -> None:
    score = judge_reply(YesNoSettings(), "yes", reply)
    assert (score.answer, score.no_answer) == (answer, answer is None)
    assert score.status == ("correct" if answer == "yes" else "wrong")
    assert score.values["yes_predicted"] == float(answer == "yes")
    assert score.values["no_predicted"] == float(answer == "no")


@pytest.mark.parametrize(
    ("target", "answer"),
    [(True, "yes"), (False, "no"), ("yes", "yes"), (" No ", "no"), ("TRUE", "yes"), ("False", "no")],
)
def test_targets(target: Any, answer: str) -> None:
    presented = BY_GENERATION.present(a_sample(target))
    assert (presented.target, BY_GENERATION.answer_text(presented)) == (answer, answer)


@pytest.mark.parametrize("target", [1, 0, "maybe", "", ["yes"], 1.0])
def test_other_targets_are_refused(target: Any) -> None:
    with pytest.raises(ValueError, match="is neither yes nor no; expected yes, no, true or false"):
        BY_GENERATION.present(a_sample(target))


def test_no_target_is_refused() -> None:
    with pytest.raises(ValueError, match="the sample has no target; expected yes, no, true or false"):
        BY_GENERATION.present(a_sample(None))


def test_a_short_reply_unless_the_suite_sets_its_length() -> None:
    presented = BY_GENERATION.present(a_sample(True))
    assert BY_GENERATION.requests(presented, "Q", delimiter=" ", generate=GENERATE) == (
        GenerateRequest("Q", max_tokens=77, stop=("\n",), temperature=0.5, seed=3),
    )
    (short,) = BY_GENERATION.requests(presented, "Q", delimiter=" ", generate=GenerateSpec(seed=3))
    assert short == GenerateRequest("Q", max_tokens=10, seed=3)


def test_both_answers_follow_the_delimiter() -> None:
    presented = BY_LOGLIKELIHOOD.present(a_sample(True))
    assert BY_LOGLIKELIHOOD.requests(presented, "Q", delimiter=" ", generate=GENERATE) == (
        LoglikelihoodRequest("Q", " yes"),
        LoglikelihoodRequest("Q", " no"),
    )


@pytest.mark.parametrize(
    ("yes", "no", "answer"), [(-1.0, -2.0, "yes"), (-2.0, -1.0, "no"), (-1.0, -1.0, "no"), (-math.inf, -3.0, "no")]
)
def test_yes_if_it_is_strictly_likelier(yes: float, no: float, answer: str) -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(True), [yes, no], [1, 3])
    assert score.answer == answer
    assert score.status == ("correct" if answer == "yes" else "wrong")


def test_brier_is_that_of_scikit_learn() -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(False), [-1.0, -1.5], [1, 1])
    assert score.values["brier"] == pytest.approx(brier_score_loss([0, 1], softmax([-1.0, -1.5])))
    assert score.details["probabilities"] == pytest.approx(softmax([-1.0, -1.5]))


@pytest.mark.parametrize("values", [[math.nan, -1.0], [-1.0, math.inf], [-math.inf, -math.inf]])
def test_what_cannot_be_compared_is_unscored(values: list[float]) -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(True), values, [1, 1])
    assert score.status == "unscored"
    assert score.reason is not None
    assert score.values == {}


def test_totals_of_a_suite() -> None:
    replies = [(True, "yes"), (True, "No"), (False, "no"), (False, "hm"), (True, ""), (False, "Yes")]
    scores = [judge_reply(YesNoSettings(), target, reply) for target, reply in replies]
    totals = {name: metric.value for name, metric in summarize(scores, BY_GENERATION.metrics).items()}
    assert totals == {
        "accuracy": pytest.approx(2 / 6),
        "skill": pytest.approx((2 / 6 - 0.5) / 0.5),
        "correct": 2,
        "total": 6,
        "yes_predicted": 2,
        "no_predicted": 2,
        "no_answer": 2,
    }


def test_brier_is_a_metric_only_by_loglikelihood() -> None:
    assert "brier" not in BY_GENERATION.metrics
    assert "brier" in BY_LOGLIKELIHOOD.metrics
