"""Macro averages against formulas of stratified means in numpy, micro averages against summaries of all samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_llmeval.scoring.metrics.averages import macro_average, micro_average
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, summarize, why_no_interval
from pytest_llmeval.scoring.statistics.intervals import wilson_limits
from pytest_llmeval.types import Score
from tests.scoring.expected_intervals import skewed_interval

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


def accuracies(*parts: tuple[int, int]) -> Metric:
    """The mean over parts of so many right samples among so many."""
    own = [summarize([right(place < number) for place in range(n)], ["accuracy"]) for number, n in parts]
    return macro_average(own)["accuracy"]


def test_proportions_of_equal_parts_by_hand() -> None:
    """Variances 0.9 * 0.1 / 9 and 0.5 * 0.5 / 9, of which one of ten degrees of freedom is that of both together."""
    found = accuracies((9, 10), (5, 10))
    own = np.array([0.9 * 0.1, 0.5 * 0.5]) * 10 / 9
    moderated = (9 * own + own.mean()) / 10
    variance = moderated.sum() / 10 / 4
    freedom = moderated.sum() ** 2 / (moderated**2 / 10).sum()
    worth, square = 0.7 * 0.3 / variance, stats.t.ppf(0.975, freedom) ** 2
    assert found.stderr == pytest.approx(math.hypot(0.1, math.sqrt(0.25 / 9)) / 2)
    for limit in (found.ci_low, found.ci_high):
        assert limit is not None
        assert (limit - 0.7) ** 2 == pytest.approx(square * limit * (1 - limit) / worth)


@given(st.lists(st.integers(0, 20), min_size=2, max_size=40).filter(lambda counts: 0 < sum(counts) < 20 * len(counts)))
def test_of_parts_of_one_size_the_variance_is_the_usual_one_of_a_stratified_mean(counts: list[int]) -> None:
    found = accuracies(*((count, 20) for count in counts))
    share = np.array(counts) / 20
    variance = (share * (1 - share) / 19).sum() / len(counts) ** 2
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert 0 <= found.ci_low < share.mean() < found.ci_high <= 1
    if variance:
        worth = share.mean() * (1 - share.mean()) / variance
        # Wilson's ends as far out as the normal quantile has them, or a little further.
        low, high = wilson_limits(share.mean(), worth, 1.959963)
        assert found.ci_low <= low + 1e-9
        assert found.ci_high >= high - 1e-9


def test_means_by_hand() -> None:
    parts = [
        {"f1": Metric(value=0.2, n=10, kind="mean", stderr=0.03, ci_low=0.1, ci_high=0.3, skewness=0.4)},
        {"f1": Metric(value=0.4, n=10, kind="mean", stderr=0.04, ci_low=0.3, ci_high=0.5, skewness=-0.1)},
        {"f1": Metric(value=0.6, n=300, kind="mean", stderr=0.02, ci_low=0.5, ci_high=0.7, num_clusters=10)},
    ]
    found = macro_average(parts)["f1"]
    squares = np.array([9.0, 16.0, 4.0]) * 1e-4
    moderated = (9 * squares + squares.mean()) / 10
    variance = moderated.sum() / 9
    freedom = moderated.sum() ** 2 / (moderated**2 / 10).sum()
    third = (0.4 * 0.03**3 - 0.1 * 0.04**3) / 27
    assert found.value == pytest.approx(0.4)
    assert found.stderr == pytest.approx(math.sqrt(squares.sum()) / 3)
    expected = skewed_interval(0.4, math.sqrt(variance), third / variance**1.5, freedom)
    assert (found.ci_low, found.ci_high) == pytest.approx(expected)


def test_an_average_ends_where_the_metric_does() -> None:
    parts = [{"f1": Metric(value=0.9, n=10, kind="mean", stderr=0.2, skewness=0.0)}] * 2
    assert macro_average(parts)["f1"].ci_high == 1.0
    parts = [{"aspects": Metric(value=4.8, n=10, kind="mean", stderr=0.2, skewness=0.0)}] * 2
    high = macro_average(parts)["aspects"].ci_high
    assert high is not None
    assert high > 5
    assert macro_average(parts, {"aspects": (1.0, 5.0)})["aspects"].ci_high == 5.0


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


def test_parts_of_one_sample_have_the_variance_of_the_others() -> None:
    found = accuracies(*[(1, 1), (0, 1), (1, 1)] * 2, (3, 4), (7, 8))
    assert found.stderr is None
    assert found.ci_low is not None
    assert found.ci_low < 0.6
    assert why_no_interval(accuracies((1, 1), (0, 1))) == "the smallest parts have too few samples"
    few = accuracies((1, 2), (90, 100), (80, 100))
    assert why_no_interval(few) == "the smallest parts have too few samples"


def test_parts_that_are_all_right_have_a_width() -> None:
    """Of two parts of 4 as of one of 8."""
    found = accuracies((4, 4), (4, 4))
    assert (found.value, found.stderr, found.ci_high) == (1.0, 0.0, 1.0)
    assert found.ci_low == pytest.approx(wilson_limits(1.0, 8, float(stats.t.ppf(0.975, 6)))[0])
    one_value = [summarize([scored(f1=1.0)] * 20, ["f1"])] * 3
    found = macro_average(one_value)["f1"]
    assert found.ci_low == pytest.approx(1 - stats.binomtest(0, 60).proportion_ci(method="exact").high)
    unlimited = macro_average([summarize([scored(rating=0.7)] * 20, ["rating"])] * 3)["rating"]
    assert (unlimited.ci_low, why_no_interval(unlimited)) == (None, "all values are equal")


def test_a_part_without_a_standard_error_leaves_the_average_without_interval() -> None:
    scores = [right(number % 3 > 0, confidence=0.5 + number / 100) for number in range(40)]
    for name, clusters in (("ece", None), ("accuracy", ["a", "b"] * 20)):
        parts = [summarize(scores, [name], clusters), summarize(scores, [name])]
        found = macro_average(parts)[name]
        assert (found.ci_low, found.ci_high) == (None, None)
        assert why_no_interval(found) == "not every part has one"


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
