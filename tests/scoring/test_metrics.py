from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scoring.metrics.definitions import METRICS, definition
from pytest_llmeval.scoring.metrics.skill import skill
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, names_in, summarize, why_no_interval
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.scoring.score_checks import checked
from pytest_llmeval.types import Score
from tests.scoring.expected_intervals import of_mean

RIGHT = Score(status="correct", values={"accuracy": 1.0, "skill": 1.0}, chance=0.25)
WRONG = Score(status="wrong", values={"accuracy": 0.0, "skill": -1 / 3}, chance=0.25)
UNSCORED = Score(status="unscored", reason="the model raised")


def scored(**values: float) -> Score:
    return Score(status="scored", values=values)


def test_accuracy_has_wilsons_interval_and_the_standard_error_of_the_mean() -> None:
    metric = summarize([RIGHT] * 7 + [WRONG] * 3, ["accuracy"])["accuracy"]
    interval = stats.binomtest(7, 10).proportion_ci(method="wilson")
    assert (metric.value, metric.n, metric.kind) == (0.7, 10, "proportion")
    assert metric.stderr == pytest.approx(stats.sem([1] * 7 + [0] * 3))
    assert (metric.ci_low, metric.ci_high) == pytest.approx((interval.low, interval.high))


def test_a_mean_has_a_t_interval_that_reaches_further_where_its_values_are_skewed() -> None:
    values = [0.1, 0.4, 0.2, 0.9]
    metric = summarize([scored(rating=value) for value in values], ["rating"])["rating"]
    assert (metric.n, metric.kind) == (4, "mean")
    assert metric.value == pytest.approx(0.4)
    assert (metric.ci_low, metric.ci_high) == pytest.approx(of_mean(values))
    low, _ = stats.t.interval(0.95, 3, loc=0.4, scale=stats.sem(values))
    assert metric.ci_low == pytest.approx(low), "Student's, on the side of the short tail"


def test_an_interval_ends_where_the_metric_does() -> None:
    values = [0.1, 0.4, 0.2, 0.9]
    metric = summarize([scored(brier=value) for value in values], ["brier"])["brier"]
    low, high = of_mean(values)
    assert low < 0 < 1 < high
    assert (metric.ci_low, metric.ci_high) == (0, 1)


def test_one_mean_has_no_interval_and_one_proportion_has() -> None:
    metrics = summarize([Score(status="correct", values={"accuracy": 1.0, "brier": 0.1})], ["accuracy", "brier"])
    assert metrics["brier"] == Metric(value=0.1, n=1, kind="mean", no_interval="n is 1")
    assert metrics["accuracy"].stderr is None
    assert metrics["accuracy"].ci_low == pytest.approx(0.2065, abs=1e-4)


def test_unscored_samples_are_in_no_metric_and_in_no_n() -> None:
    names = ["accuracy", "skill", "correct", "total", "no_answer"]
    scores = [RIGHT, WRONG, RIGHT]
    assert summarize([*scores, UNSCORED, UNSCORED], names) == summarize(scores, names)
    assert summarize(scores, names)["total"] == Metric(value=3.0, n=3, kind="count")


def test_nothing_scored_is_no_number() -> None:
    metrics = summarize([UNSCORED], ["accuracy", "brier", "total"])
    assert metrics["accuracy"] == Metric(value=None, n=0, kind="proportion")
    assert metrics["brier"] == Metric(value=None, n=0, kind="mean")
    assert metrics["total"] == Metric(value=0.0, n=0, kind="count")


def test_counts() -> None:
    yes = Score(status="correct", values={"yes_predicted": 1.0, "no_predicted": 0.0})
    no = Score(status="wrong", values={"yes_predicted": 0.0, "no_predicted": 1.0})
    none = Score(status="wrong", no_answer=True, values={"yes_predicted": 0.0, "no_predicted": 0.0})
    metrics = summarize(
        [yes, yes, yes, no, no, none], ["correct", "total", "yes_predicted", "no_predicted", "no_answer"]
    )
    assert {name: metric.value for name, metric in metrics.items()} == {
        "correct": 3,
        "total": 6,
        "yes_predicted": 3,
        "no_predicted": 2,
        "no_answer": 1,
    }
    assert {metric.kind for metric in metrics.values()} == {"count"}
    assert all(metric.stderr is None and metric.ci_low is None for metric in metrics.values())


def test_a_metric_is_taken_over_the_scores_that_carry_it() -> None:
    assert summarize([scored(length=4.0), scored(length=8.0), RIGHT], ["length"])["length"].n == 2


def test_accuracy_of_a_recorded_right_or_wrong_without_a_value() -> None:
    scores = [Score(status="correct"), Score(status="wrong"), scored(rating=3.0)]
    assert summarize(scores, ["accuracy"])["accuracy"].value == 0.5
    assert summarize(scores, ["accuracy"])["accuracy"].n == 2


def test_a_users_metric_is_a_proportion_only_when_all_its_values_are_0_or_1() -> None:
    polite = summarize([scored(polite=1.0), scored(polite=0.0)], ["polite"])["polite"]
    rating = summarize([scored(rating=1.0), scored(rating=0.5)], ["rating"])["rating"]
    assert (polite.kind, rating.kind) == ("proportion", "mean")


def test_a_recorded_accuracy_between_0_and_1_is_a_mean() -> None:
    assert summarize([scored(accuracy=0.5), scored(accuracy=1.0)], ["accuracy"])["accuracy"].kind == "mean"


def test_skill_has_accuracys_interval_on_its_own_scale_where_chances_are_equal() -> None:
    metric = summarize([RIGHT] * 5, ["skill"])["skill"]
    low = stats.binomtest(5, 5).proportion_ci(method="wilson").low
    assert (metric.value, metric.ci_high) == (1.0, 1.0)
    assert metric.ci_low == pytest.approx((low - 0.25) / 0.75)


def test_skill_has_wilsons_interval_of_its_standard_error_where_chances_differ() -> None:
    """Of the share of wrong answers, in which each weighs 1 / (1 - chance): 4/3 or 2."""
    others = [Score(status="correct", values={"accuracy": 1.0, "skill": 1.0}, chance=0.5)] * 5
    metric = summarize([RIGHT] * 3 + [WRONG] * 2 + others, ["skill"])["skill"]
    weight = (5 * 4 / 3 + 5 * 2) / 10
    wrong = 2 * 4 / 3 / 10 / weight
    error = stats.sem([1.0] * 3 + [-1 / 3] * 2 + [1.0] * 5)
    assert metric.value == pytest.approx(1 - weight * wrong)
    assert metric.stderr == pytest.approx(error)
    worth = wrong * (1 - wrong) * (weight / error) ** 2
    for end in (metric.ci_low, metric.ci_high):
        assert end is not None
        limit = (1 - end) / weight
        assert abs(limit - wrong) / math.sqrt(limit * (1 - limit) / worth) == pytest.approx(stats.norm.ppf(0.975))


@pytest.mark.parametrize("place", [0, 1, 7, 19])
def test_of_one_value_that_differs_nothing_is_known_of_others(place: int) -> None:
    """The share of samples that differ is at most that of 1 of n by Clopper and Pearson, and each by any amount."""
    values = [0.8] * 20
    values[place] = 0.7
    metric = summarize([scored(f1=value) for value in values], ["f1"])["f1"]
    share = stats.binomtest(1, 20).proportion_ci(method="exact").high
    assert (metric.ci_low, metric.ci_high) == pytest.approx((0.8 - 0.8 * share, 0.8 + 0.2 * share))
    clusters = [str(number // 2) if number not in (6, 7) else "other" for number in range(20)]
    own = [scored(f1=0.7 if cluster == "other" else 0.8) for cluster in clusters]
    clustered = summarize(own, ["f1"], clusters)["f1"]
    share = stats.binomtest(1, 10).proportion_ci(method="exact").high
    assert (clustered.ci_low, clustered.ci_high) == pytest.approx((0.8 - 0.8 * share, 0.8 + 0.2 * share))
    unlimited = summarize([scored(rating=value) for value in values], ["rating"])["rating"]
    assert (unlimited.ci_low, why_no_interval(unlimited)) == (None, "all values but one are equal")
    values[(place + 1) % 20] = 0.75
    assert summarize([scored(rating=value) for value in values], ["rating"])["rating"].ci_low is not None


@pytest.mark.parametrize("is_right", [True, False])
def test_skill_has_an_interval_where_chances_differ_and_every_answer_is_alike(is_right: bool) -> None:
    """Wilson's, by statsmodels, of as many samples as their weights are worth: weights 4/3 and 2, 6 and 3 of them."""
    chances = [0.25] * 6 + [0.5] * 3
    status = "correct" if is_right else "wrong"
    scores = [
        Score(status=status, values={"skill": skill(float(is_right), chance)}, chance=chance)  # type: ignore[arg-type]
        for chance in chances
    ]
    metric = summarize(scores, ["skill"])["skill"]
    mean_weight = (6 * 4 / 3 + 3 * 2) / 9
    worth = (9 * mean_weight) ** 2 / (6 * (4 / 3) ** 2 + 3 * 4)
    low, high = proportion_confint(0 if is_right else worth, worth, method="wilson")
    assert metric.value == pytest.approx(1.0 if is_right else 1 - mean_weight)
    assert (metric.ci_low, metric.ci_high) == pytest.approx((1 - mean_weight * high, 1 - mean_weight * low), abs=1e-9)


def test_skill_in_clusters_where_every_answer_is_right() -> None:
    """Every cluster counts as one sample, and t is that of their number."""
    scores = [Score(status="correct", values={"skill": 1.0}, chance=0.25 if place % 2 else 0.5) for place in range(48)]
    metric = summarize(scores, ["skill"], [str(place // 4) for place in range(48)])["skill"]
    mean_weight, squares = (4 / 3 + 2) / 2, (16 / 9 + 4) / 2
    worth, square = 12 * mean_weight**2 / squares, stats.t.ppf(0.975, 11) ** 2
    assert metric.num_clusters == 12
    assert (metric.value, metric.ci_high) == (1.0, 1.0)
    assert metric.ci_low == pytest.approx(1 - mean_weight * square / (worth + square))


@pytest.mark.parametrize(
    ("correct", "chance", "expected"), [(1, 0.25, 1), (0.25, 0.25, 0), (0, 0.2, -0.25), (0, 0.5, -1)]
)
def test_skill_by_hand(correct: float, chance: float, expected: float) -> None:
    assert skill(correct, chance) == pytest.approx(expected)


@pytest.mark.parametrize("chance", [1.0, -0.1, math.nan])
def test_skill_needs_a_chance_below_1(chance: float) -> None:
    with pytest.raises(ValueError, match="chance"):
        skill(1.0, chance)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nothing_is_averaged_over_nan(bad: float) -> None:
    score = scored(rating=bad, length=3.0)
    with pytest.raises(ValueError, match="nothing is averaged over it"):
        summarize([score], ["rating"])
    assert checked(score, "mine").status == "unscored"
    assert checked(score, "mine").reason == f"the scorer mine gave rating = {bad}, expected a finite number"
    assert checked(RIGHT, "mine") == RIGHT


def test_by_category_parts_are_summaries_of_their_scores() -> None:
    scores = [RIGHT, WRONG, RIGHT, UNSCORED, WRONG]
    parts = by_category(scores, ["b", "a", "b", "b", None], ["accuracy", "total"])
    assert list(parts) == ["a", "b"]
    assert parts["a"] == summarize([WRONG], ["accuracy", "total"])
    assert parts["b"] == summarize([RIGHT, RIGHT], ["accuracy", "total"])


def test_a_category_does_not_change_a_metrics_kind() -> None:
    scores = [scored(rating=1.0), scored(rating=0.0), scored(rating=0.5)]
    parts = by_category(scores, ["a", "a", "b"], ["rating"])
    assert parts["a"]["rating"].kind == "mean"


def test_by_category_needs_a_category_for_each_score() -> None:
    with pytest.raises(ValueError, match="zip"):
        by_category([RIGHT, WRONG], ["a"], ["accuracy"])


def test_names_in_scores() -> None:
    scores = [Score(status="correct", values={"zeal": 1.0, "brier": 0.1}), Score(status="wrong", no_answer=True)]
    assert names_in(scores) == ("brier", "no_answer", "zeal")
    assert names_in([scored(rating=1.0)]) == ("rating",)
    assert names_in([RIGHT, Score(status="unscored", values={"zeal": 1.0})]) == ("accuracy", "skill")


def test_definitions() -> None:
    assert definition("accuracy").higher_is_better is True
    assert definition("brier").higher_is_better is False
    assert definition("rating").kind == "mean"
    assert definition("rating").higher_is_better is None
    assert all(name == metric.name for name, metric in METRICS.items())


@given(
    st.lists(st.sampled_from([RIGHT, WRONG, UNSCORED]), max_size=8),
    st.randoms(use_true_random=False),
)
def test_order_makes_no_difference_and_metrics_survive_json(scores: list[Score], random: Any) -> None:
    names = ["accuracy", "skill", "correct", "no_answer"]
    metrics = summarize(scores, names)
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert summarize(shuffled, names) == metrics
    for metric in metrics.values():
        assert part_from_json(Metric, json.loads(json.dumps(asdict(metric), allow_nan=False))) == metric


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": -1}, "n: found -1, expected 0 or more"),
        ({"n": True}, r"n: found true \(a bool\), expected a whole number"),
        ({"n": None}, r"n: found nothing \(null\), expected a whole number"),
        ({"kind": "median"}, "kind: found 'median' .*, expected proportion, mean, count, pooled or corpus"),
        ({"value": "0.5"}, "value: found '0.5' .*, expected a number or null"),
        ({"stderr": math.nan}, "stderr: found nan .*, expected a number or null"),
        ({"ci_low": True}, r"ci_low: found true \(a bool\), expected a number or null"),
    ],
)
def test_a_metric_that_cannot_be_read_says_which_key(change: Mapping[str, object], message: str) -> None:
    good = asdict(Metric(value=0.5, n=2, kind="mean", stderr=0.1, ci_low=0.0, ci_high=1.0))
    with pytest.raises(ValueError, match=message):
        part_from_json(Metric, {**good, **change})


@given(st.integers(2, 400), st.floats(0, 1) | st.sampled_from([0.0, 1.0]))
def test_of_values_that_are_all_alike_the_interval_is_made_of_clopper_and_pearsons(n: int, value: float) -> None:
    """Of 0 that differ in n, by scipy: all of them at the lower limit of the metric, or all at the upper one."""
    share = stats.binomtest(0, n).proportion_ci(method="exact").high
    for name, highest in (("f1", 1.0), ("sentence_chrf", 100.0), ("flexible.rouge_l", 1.0)):
        metric = summarize([scored(**{name: value})] * n, [name])[name]
        assert metric.value == pytest.approx(value)
        assert metric.stderr == pytest.approx(0.0, abs=1e-12)
        assert metric.ci_low == pytest.approx(value * (1 - share))
        assert metric.ci_high == pytest.approx(value + (highest - value) * share)
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert 0.0 <= metric.ci_low < metric.ci_high <= highest


def test_a_perfect_model_in_clusters_has_an_interval_over_clusters() -> None:
    scores = [scored(f1=1.0)] * 48
    metric = summarize(scores, ["f1"], [str(place // 4) for place in range(48)])["f1"]
    assert (metric.value, metric.num_clusters, metric.ci_high) == (1.0, 12, 1.0)
    assert metric.ci_low == pytest.approx(1 - stats.binomtest(0, 12).proportion_ci(method="exact").high)
    few = summarize(scores, ["f1"], [str(place // 6) for place in range(48)])["f1"]
    assert (few.num_clusters, few.ci_low, few.ci_high) == (8, None, None)


def test_clusters_of_one_mean_are_not_samples_of_one_value() -> None:
    scores = [scored(f1=value) for value in (0.2, 0.8) * 12]
    metric = summarize(scores, ["f1"], [str(place // 2) for place in range(24)])["f1"]
    assert (metric.num_clusters, metric.ci_low, metric.ci_high) == (12, None, None)


def test_skill_of_one_value_that_is_neither_right_nor_wrong() -> None:
    """As of two epochs each, one of which was right: no model is below the skill of one that is always wrong."""
    score = Score(status="scored", values={"skill": 1 / 3}, chance=0.25)
    metric = summarize([score] * 20, ["skill"])["skill"]
    share = stats.binomtest(0, 20).proportion_ci(method="exact").high
    assert metric.ci_low == pytest.approx(1 / 3 - 2 / 3 * share)
    assert metric.ci_high == pytest.approx(1 / 3 + 2 / 3 * share)


@pytest.mark.parametrize("name", ["rating", "nll", "score", "skill", "brier_sum"])
def test_without_limits_values_that_are_all_alike_have_no_interval(name: str) -> None:
    metric = summarize([scored(**{name: 0.1})] * 5, [name])[name]
    assert (metric.value, metric.ci_low, metric.ci_high) == (0.1, None, None)


def test_an_interval_of_no_width_is_not_what_is_known() -> None:
    nats = Score(status="scored", values={"loglikelihood": -2.0, "words": 1.0})
    pooled = summarize([nats] * 5, ["word_perplexity"])["word_perplexity"]
    assert (pooled.ci_low, pooled.ci_high) == (None, None)
    same = {str(number): scored(rating=number / 9) for number in range(5)}
    difference = compare(same, same, ["rating"])["rating"]
    assert (difference.difference, difference.ci_low, difference.ci_high) == (0.0, None, None)
