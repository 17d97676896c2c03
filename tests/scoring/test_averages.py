"""Macro and micro averages, against statsmodels' interval of Newcombe and against summaries of all samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep

from pytest_llmeval.scoring.metrics.averages import macro_average, micro_average
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, summarize
from pytest_llmeval.scoring.statistics.intervals import wilson_interval
from pytest_llmeval.types import Score

EIGHTHS = st.integers(-400, 400).map(lambda number: number / 8)
VALUES = st.lists(EIGHTHS, min_size=2, max_size=30).filter(lambda values: len(set(values)) > 1)


def scored(**values: float) -> Score:
    return Score(status="scored", values=values)


def right(is_right: bool, **values: float) -> Score:
    return Score(status="correct" if is_right else "wrong", values={"accuracy": float(is_right), **values})


def text(loglikelihood: float, words: float) -> Score:
    return scored(loglikelihood=loglikelihood, words=words)


@given(VALUES, VALUES)
def test_value_and_standard_error(first: list[float], second: list[float]) -> None:
    parts = [summarize([scored(rating=value) for value in values], ["rating"]) for values in (first, second)]
    found = macro_average(parts)["rating"]
    assert (found.n, found.kind, found.num_clusters) == (2, "mean", None)
    assert found.value == pytest.approx((np.mean(first) + np.mean(second)) / 2, abs=1e-9)
    assert found.stderr == pytest.approx(math.hypot(stats.sem(first), stats.sem(second)) / 2)


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_of_two_proportions_the_interval_is_newcombes(first: int, second: int, data: st.DataObject) -> None:
    """The mean of p and q is half of 1 + (p - (1 - q)), and statsmodels knows Newcombe's interval of a difference."""
    right_first, right_second = data.draw(st.integers(0, first)), data.draw(st.integers(0, second))
    parts = [
        summarize([right(place < num_right) for place in range(n)], ["accuracy"])
        for num_right, n in ((right_first, first), (right_second, second))
    ]
    found = macro_average(parts)["accuracy"]
    low, high = confint_proportions_2indep(right_first, first, second - right_second, second, method="newcomb")
    assert (found.ci_low, found.ci_high) == pytest.approx(((1 + low) / 2, (1 + high) / 2), abs=1e-9)


def test_by_hand() -> None:
    parts = [
        {"f1": Metric(value=0.2, n=5, kind="mean", stderr=0.03, ci_low=0.17, ci_high=0.24)},
        {"f1": Metric(value=0.4, n=9, kind="mean", stderr=0.04, ci_low=0.36, ci_high=0.43)},
        {"f1": Metric(value=0.9, n=300, kind="mean", stderr=0.12, ci_low=0.78, ci_high=0.98, num_clusters=17)},
    ]
    found = macro_average(parts)["f1"]
    # Squares of ten-thousandths: 9 + 16 + 144 = 169 below, 16 + 9 + 64 = 89 above.
    assert found.value == pytest.approx(0.5)
    assert found.stderr == pytest.approx(0.13 / 3)
    assert (found.ci_low, found.ci_high) == pytest.approx((0.5 - 0.13 / 3, 0.5 + math.sqrt(0.0089) / 3))


def test_macro_is_of_what_every_part_has() -> None:
    scores = [right(number % 3 > 0, brier=number / 40) for number in range(20)]
    scores += [right(True), right(False)]
    parts = by_category(scores, ["a"] * 10 + ["b"] * 10 + ["c"] * 2, ["accuracy", "brier", "correct", "total"])
    found = macro_average(parts.values())
    assert list(found) == ["accuracy"], "the third category has no Brier score, and counts are no averages"
    assert found["accuracy"].n == 3
    assert macro_average([parts["a"]]) == {}
    assert macro_average([]) == {}
    assert list(macro_average([parts["a"], {}])) == []


def test_a_part_of_one_sample_has_an_interval_and_no_standard_error() -> None:
    parts = [summarize([right(True), right(False)], ["accuracy"]), summarize([right(True)], ["accuracy"])]
    found = macro_average(parts)["accuracy"]
    assert (found.value, found.stderr) == (0.75, None)
    assert found.ci_low is not None
    assert found.ci_low < 0.6


def test_parts_that_are_all_right_have_a_width() -> None:
    found = macro_average([summarize([right(True)] * 4, ["accuracy"])] * 2)["accuracy"]
    assert (found.value, found.stderr, found.ci_high) == (1.0, 0.0, 1.0)
    assert found.ci_low == pytest.approx(1 - (1 - wilson_interval(4, 4)[0]) / math.sqrt(2))


def test_a_part_without_an_interval_leaves_the_average_without() -> None:
    parts = [summarize([scored(rating=value) for value in values], ["rating"]) for values in ((0.5, 0.5), (0.2, 0.9))]
    found = macro_average(parts)["rating"]
    assert (found.ci_low, found.ci_high) == (None, None)


SUITES = (
    [right(True, brier=0.1), right(False, brier=0.3), right(True, brier=0.2)],
    [right(False, brier=0.4), Score(status="unscored", reason="no")],
    [text(-10.0, 4.0), text(-30.0, 5.0)],
    [text(-12.0, 6.0)],
)


def test_micro_counts_every_sample_alike() -> None:
    found = micro_average(SUITES, ["accuracy", "brier", "word_perplexity", "correct", "total"])
    assert list(found) == ["accuracy", "brier", "word_perplexity"]
    together = [score for suite in SUITES for score in suite]
    assert found == summarize(together, ["accuracy", "brier", "word_perplexity"])
    assert (found["accuracy"].value, found["accuracy"].n) == (0.5, 4)
    assert found["word_perplexity"].value == pytest.approx(math.exp(52 / 15)), "pooled by the sums"


def test_micro_is_of_what_two_suites_have() -> None:
    first, second = [right(True, rating=1.0)], [right(False), scored(length=3.0)]
    assert list(micro_average([first, second], ["accuracy", "rating", "length", "nobodys"])) == ["accuracy"]
    assert micro_average([first], ["accuracy"]) == {}
    assert micro_average([], ["accuracy"]) == {}
    unscored = [Score(status="unscored", reason="no", values={"rating": 1.0})]
    assert micro_average([first, unscored], ["rating"]) == {}


def test_classes_of_two_suites_are_not_the_same_classes() -> None:
    suites = [[scored(gold=1.0, predicted=float(place % 2)) for place in range(4)] for _ in range(2)]
    assert micro_average(suites, ["mcc", "f1_macro", "strict.mcc"]) == {}


def test_calibration_is_that_of_all_samples() -> None:
    suites = [[right(place % 3 > 0, confidence=0.3 + place / 40) for place in range(20)] for _ in range(2)]
    assert micro_average(suites, ["ece"]) == summarize([*suites[0], *suites[1]], ["ece"])


def test_a_cluster_of_another_suite_is_another_cluster() -> None:
    suites = [[right((place + number) % 3 > 0) for place in range(20)] for number in range(3)]
    names: list[str | None] = [f"text {place // 4}" for place in range(20)]
    found = micro_average(suites, ["accuracy"], [names, names, None])["accuracy"]
    assert found.num_clusters == 5 + 5 + 20, "samples of a suite without clusters are clusters of their own"
    assert found.ci_low is not None
    assert micro_average(suites, ["accuracy"], [None] * 3) == micro_average(suites, ["accuracy"])
    assert micro_average(suites[:2], ["accuracy"], [["one"] * 20, names])["accuracy"].stderr is None
    with pytest.raises(ValueError, match="zip"):
        micro_average(suites, ["accuracy"], [names])
