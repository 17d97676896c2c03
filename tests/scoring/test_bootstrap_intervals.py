"""``interval: bootstrap`` against scipy's bootstrap, and what of an interval is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from pytest_llmeval.scoring.metrics.summary import Metric, by_category, summarize, why_no_interval
from pytest_llmeval.scoring.statistics.intervals import wilson_interval
from pytest_llmeval.types import Score
from tests.scoring.expected_intervals import of_mean


def of_scipy(columns: tuple[list[float], ...], statistic: Any) -> tuple[float, float]:
    found = stats.bootstrap(columns, statistic, paired=True, method="percentile", n_resamples=20_000, rng=7)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def scores_of(n: int = 400) -> list[Score]:
    random = np.random.default_rng(3)
    right = random.random(n) < 0.7
    return [
        Score(
            status="correct" if is_right else "wrong",
            values={
                "accuracy": float(is_right),
                "skill": 1.0 if is_right else -1.0,
                "f1": float(f1),
                "loglikelihood": -float(words * nats),
                "words": float(words),
            },
            chance=0.5,
        )
        for is_right, f1, words, nats in zip(
            right, random.beta(2, 1, n), random.integers(5, 50, n), random.normal(3, 0.5, n), strict=True
        )
    ]


@pytest.mark.parametrize("name", ["accuracy", "skill", "f1", "word_perplexity"])
def test_a_bootstrap_is_scipys(name: str) -> None:
    scores = scores_of()
    found = summarize(scores, [name], interval="bootstrap")[name]
    usual = summarize(scores, [name])[name]
    if name == "word_perplexity":
        columns = tuple([score.values[key] for score in scores] for key in ("loglikelihood", "words"))
        low, high = of_scipy(columns, lambda nats, words, axis: np.exp(-np.sum(nats, axis) / np.sum(words, axis)))
    else:
        low, high = of_scipy(([score.values[name] for score in scores],), np.mean)
    # 1,000 resamples: the ends of an interval are known to a twentieth of its width.
    assert found.ci_low == pytest.approx(low, abs=(high - low) / 15)
    assert found.ci_high == pytest.approx(high, abs=(high - low) / 15)
    assert (found.value, found.stderr, found.n) == (usual.value, usual.stderr, usual.n)
    assert (found.ci_low, found.ci_high) != (usual.ci_low, usual.ci_high)


def test_the_seed_is_fixed_and_the_order_of_samples_makes_no_difference() -> None:
    scores = scores_of(50)
    one, other = (summarize(some, ["accuracy", "f1"], interval="bootstrap") for some in (scores, scores[::-1]))
    assert one == other


def test_clusters_are_drawn_whole() -> None:
    """Samples of one cluster are alike: as if there were a tenth of them."""
    values = [float(number % 3 > 0) for number in range(40)]
    scores = [Score(status="scored", values={"f1": value}) for value in values for _ in range(10)]
    clusters = [str(place // 10) for place in range(400)]
    found = summarize(scores, ["f1"], clusters, "bootstrap")["f1"]
    alone = summarize(scores[::10], ["f1"], None, "bootstrap")["f1"]
    assert (found.ci_low, found.ci_high) == (alone.ci_low, alone.ci_high)


def test_categories_have_it_too() -> None:
    scores = scores_of(60)
    found = by_category(scores, ["a", "b"] * 30, ["accuracy"], interval="bootstrap")["a"]["accuracy"]
    assert found == summarize(scores[::2], ["accuracy"], interval="bootstrap")["accuracy"]


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("n", [1, 20])
def test_values_that_are_alike_have_the_usual_interval(n: int, clustered: bool) -> None:
    """No resample differs from another: 20 of 20 has Wilson's interval, and one of one, too."""
    values = {"accuracy": 1.0, "skill": 1.0, "f1": 0.5, "bits_per_byte": 2.0, "loglikelihood": -8.0, "words": 4.0}
    scores = [Score(status="correct", values=values, chance=0.5)] * n
    names = ["accuracy", "skill", "f1", "bits_per_byte", "word_perplexity"]
    clusters = [str(number) for number in range(n)] if clustered else None
    assert summarize(scores, names, clusters, "bootstrap") == summarize(scores, names, clusters)
    if not clustered:
        found = summarize(scores, names, clusters, "bootstrap")["accuracy"]
        assert (found.ci_low, found.ci_high) == wilson_interval(n, n)


def test_an_interval_that_is_left_out_says_why() -> None:
    def why(name: str, values: list[float], clusters: list[str | None] | None = None) -> str | None:
        scores = [Score(status="scored", values={name: value}) for value in values]
        return why_no_interval(summarize(scores, [name], clusters)[name])

    assert why("accuracy", [1.0]) == why("rating", [0.5]) == "n is 1"
    assert why("rating", [0.5, 0.7] * 10, ["a", "b"] * 10) == "2 clusters, and 10 are needed"
    assert why("rating", [3.0] * 20) == "all values are equal"
    assert why("rating", [3.0] * 20 + [4.0]) == "all values but one are equal"
    assert why("rating", [3.0, 4.0, 5.0]) is why("f1", [1.0] * 20) is None
    classes = [Score(status="scored", values={"gold": 1.0, "predicted": 1.0})] * 20
    assert why_no_interval(summarize(classes, ["mcc"])["mcc"]) == "these samples define none"
    assert why_no_interval(Metric(value=3.0, n=20, kind="count")) is None
    assert why_no_interval(Metric(value=None, n=0, kind="mean")) is None


@pytest.mark.parametrize("name", ["pass@8", "pass^2", "accuracy", "score", "own"])
def test_shares_of_zeros_and_ones_have_wilsons_interval(name: str) -> None:
    scores = [Score(status="correct" if right else "wrong", values={name: float(right)}) for right in [1, 1, 0, 1, 0]]
    found = summarize(scores, [name])[name]
    assert (found.ci_low, found.ci_high) == wilson_interval(3, 5)
    between = [*scores, Score(status="scored", values={name: 0.5})]
    low, _ = of_mean([1, 1, 0, 1, 0, 0.5])
    mean = summarize(between, [name])[name]
    assert mean.kind == "mean"
    assert mean.ci_low == pytest.approx(low if name in ("score", "own") else max(0.0, low))


@pytest.mark.parametrize("name", ["criterion_clear", "flexible.criterion_clear", "f1", "win_rate"])
def test_means_whose_values_are_zeros_and_ones_have_wilsons_interval(name: str) -> None:
    """A criterion is met or not; of other means it can be so by chance, and they stay means."""
    scores = [Score(status="scored", values={name: float(right)}) for right in [1, 1, 0, 1, 0]]
    found = summarize(scores, [name])[name]
    assert (found.ci_low, found.ci_high) == wilson_interval(3, 5)
    assert found.kind == ("proportion" if "criterion" in name else "mean")
    clustered = summarize(scores * 10, [name], [str(place) for place in range(50)])[name]
    assert (clustered.ci_low, clustered.ci_high) == pytest.approx(wilson_interval(30, 50), abs=0.01)
