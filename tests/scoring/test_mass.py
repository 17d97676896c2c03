"""``score: mass``: against lm-eval's own function for TruthfulQA, and scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from pytest_llmeval.scorers.mass import MassScorer, MassSettings
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.scoring.option_scores import Normalize
from pytest_llmeval.types import LoglikelihoodRequest, Score
from tests.scoring.helpers import GENERATE, a_sample, judge_loglikelihoods
from tests.scoring.lm_eval_task import needs_lm_eval

LOGLIKELIHOODS = st.floats(-60, -0.01)


def judge(
    values: list[float], target: Any, *, num_tokens: list[int] | None = None, normalize: Normalize = "sum"
) -> Score:
    sample = a_sample(target, [f"option {index}" for index in range(len(values))])
    scorer = MassScorer(MassSettings(normalize=normalize))
    return judge_loglikelihoods(scorer, sample, values, num_tokens or [1] * len(values))


def test_by_hand() -> None:
    score = judge([math.log(0.2), math.log(0.1), math.log(0.1)], [0, 2])
    assert (score.status, score.answer, score.chance) == ("scored", "option 0", None)
    assert score.values["probability_mass"] == pytest.approx(0.75)
    assert score.values["nll"] == pytest.approx(-math.log(0.75))
    assert score.details["probabilities"] == pytest.approx([0.5, 0.25, 0.25])
    metric = summarize([score, judge([-1.0, -1.0], 0)], MassScorer(MassSettings()).metrics)["probability_mass"]
    assert metric.value == pytest.approx(0.625)
    assert (metric.kind, metric.n) == ("mean", 2)


def test_one_request_for_each_option() -> None:
    scorer = MassScorer(MassSettings())
    presented = scorer.present(a_sample([0, 1], ["a", "b", "c"]))
    assert (presented.target, scorer.answer_text(presented)) == (("a", "b"), "a")
    assert scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE) == tuple(
        LoglikelihoodRequest("Q", f" {option}") for option in "abc"
    )


@given(st.lists(LOGLIKELIHOODS, min_size=2, max_size=8), st.data())
def test_mass_is_that_of_scipys_softmax(values: list[float], data: st.DataObject) -> None:
    right = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=len(values) - 1))
    score = judge(values, sorted(right))
    probabilities = softmax(values)
    assert score.values["probability_mass"] == pytest.approx(sum(probabilities[index] for index in right))
    assert 0 <= score.values["probability_mass"] <= 1


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@given(st.lists(LOGLIKELIHOODS, min_size=2, max_size=12), st.data())
def test_it_is_lm_evals_mc2(values: list[float], data: st.DataObject) -> None:
    from lm_eval.tasks.truthfulqa.utils import process_results_mc2

    right = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=len(values) - 1))
    labels = [int(index in right) for index in range(len(values))]
    theirs = process_results_mc2({"mc2_targets": {"labels": labels}}, [(value, False) for value in values])
    assert judge(values, sorted(right)).values["probability_mass"] == pytest.approx(theirs["acc"], rel=1e-12)


def test_very_unlikely_options_do_not_underflow() -> None:
    assert judge([-5000.0, -5001.0], 0).values["probability_mass"] == pytest.approx(float(softmax([0.0, -1.0])[0]))
    excluded = judge([-math.inf, -1.0], 0)
    assert excluded.values["probability_mass"] == 0.0
    assert "nll" not in excluded.values


def test_mass_follows_normalize() -> None:
    score = judge([-3.0, -4.0], 0, num_tokens=[1, 4], normalize="token")
    assert score.values["probability_mass"] == pytest.approx(float(softmax([-3.0, -1.0])[0]))


@pytest.mark.parametrize(
    ("target", "message"),
    [([0, 1], "all 2 choices are right: there is nothing to choose"), (2, "out of range"), ([], "an empty list")],
)
def test_what_is_wrong_with_a_sample_is_said(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MassScorer(MassSettings()).present(a_sample(target, ["a", "b"]))


def test_what_cannot_be_compared_is_unscored() -> None:
    score = judge([-1.0, math.nan], 0)
    assert (score.status, score.reason) == ("unscored", "the loglikelihood of option 'option 1' is nan")
