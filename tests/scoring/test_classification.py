"""Matthews correlation and F1 over classes: against scikit-learn and lm-eval's aggregations."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from pytest_llmeval.scoring.metrics.summary import by_category, summarize
from pytest_llmeval.types import Score
from tests.properties import examples

NAMES = ("mcc", "f1_binary", "f1_macro", "f1_micro")

ANSWERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)
BINARY = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40)

Answers = Sequence[tuple[int, int]]


def scores_of(answers: Answers) -> list[Score]:
    return [
        Score(
            status="correct" if gold == predicted else "wrong",
            values={"accuracy": float(gold == predicted), "gold": float(gold), "predicted": float(predicted)},
        )
        for gold, predicted in answers
    ]


def values_of(answers: Answers) -> dict[str, float | None]:
    return {name: metric.value for name, metric in summarize(scores_of(answers), NAMES).items()}


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(ANSWERS)
@settings(max_examples=examples(40))
def test_values_are_those_of_scikit_learn(answers: Answers) -> None:
    gold, predicted = zip(*answers, strict=True)
    found = values_of(answers)
    assert found["mcc"] == pytest.approx(float(matthews_corrcoef(gold, predicted)), abs=1e-12)
    assert found["f1_macro"] == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    assert found["f1_micro"] == pytest.approx(f1_score(gold, predicted, average="micro", zero_division=0))
    assert found["f1_micro"] == pytest.approx(np.mean(np.array(gold) == np.array(predicted)))


@given(BINARY)
@settings(max_examples=examples(40))
def test_f1_of_two_classes_is_that_of_class_1(answers: Answers) -> None:
    gold, predicted = zip(*answers, strict=True)
    assert values_of(answers)["f1_binary"] == pytest.approx(f1_score(gold, predicted, zero_division=0))


def test_f1_of_two_classes_is_nothing_for_three() -> None:
    metric = summarize(scores_of([(0, 1), (1, 1), (2, 1)]), ["f1_binary"])["f1_binary"]
    assert (metric.value, metric.n, metric.ci_low) == (None, 3, None)


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@given(BINARY)
def test_values_are_those_of_lm_evals_aggregations(answers: Answers) -> None:
    from lm_eval.api import metrics

    found = values_of(answers)
    assert found["mcc"] == pytest.approx(float(metrics.matthews_corrcoef(answers)), abs=1e-12)
    assert found["f1_binary"] == pytest.approx(float(metrics.f1_score(answers)))


def test_answers_of_one_class_have_no_correlation() -> None:
    metric = summarize(scores_of([(0, 1), (1, 1), (0, 1)]), ["mcc"])["mcc"]
    assert (metric.value, metric.n, metric.kind) == (0.0, 3, "corpus")
    assert metric.ci_low is None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "f1_macro" else pytest.mark.slow) for name in NAMES]
)
def test_an_interval_is_near_scipys_bootstrap(name: str) -> None:
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 2, 200)
    predicted = np.where(rng.random(200) < 0.75, gold, 1 - gold)
    found = summarize(scores_of(list(zip(gold.tolist(), predicted.tolist(), strict=True))), [name])[name]
    average = name.removeprefix("f1_")

    def statistic(one: np.ndarray, other: np.ndarray) -> float:
        if name == "f1_macro":  # sklearn takes a hundred times as long
            both = [2 * np.sum((one == label) & (other == label)) for label in (0, 1)]
            either = [np.sum(one == label) + np.sum(other == label) for label in (0, 1)]
            return float(np.mean(np.divide(both, either)))
        return float(matthews_corrcoef(one, other) if name == "mcc" else f1_score(one, other, average=average))

    expected = stats.bootstrap(
        (gold, predicted), statistic, paired=True, vectorized=False, n_resamples=999, method="percentile", rng=5
    )
    assert found.stderr == pytest.approx(expected.standard_error, rel=0.12)
    assert found.ci_low == pytest.approx(expected.confidence_interval.low, abs=0.3 * expected.standard_error)
    assert found.ci_high == pytest.approx(expected.confidence_interval.high, abs=0.3 * expected.standard_error)


def test_samples_without_an_answer_are_left_out_and_categories_stand_alone() -> None:
    answers = [(0, 0), (1, 1), (1, 0), (2, 2)]
    scores = [*scores_of(answers), Score(status="wrong", no_answer=True, values={"accuracy": 0.0, "gold": 1.0})]
    assert summarize(scores, NAMES) == summarize(scores[:4], NAMES)
    assert summarize(scores, ["mcc"])["mcc"].n == 4
    assert by_category(scores, ["a", "a", "a", "b", "b"], NAMES)["a"] == summarize(scores[:3], NAMES)
