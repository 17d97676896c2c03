"""Clustered standard errors and intervals, against statsmodels' robust covariances and scipy's bootstrap."""

from __future__ import annotations

import math
import random as standard_random
from dataclasses import asdict

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, stats

from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scoring.metrics.skill import skill_interval
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, summarize
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.scoring.statistics.clustered import (
    MIN_CLUSTERS,
    are_too_few,
    cluster_numbers,
    estimate_in_clusters,
    flips_interval,
    mean_interval,
    paired_proportions_interval,
    proportion_interval,
    standard_error,
    worth_of,
)
from pytest_llmeval.scoring.statistics.intervals import estimate_ratio, wilson_interval, wilson_limits
from pytest_llmeval.types import Score
from tests.properties import examples
from tests.scoring.expected_intervals import of_clustered_mean, of_ratio

EIGHTHS = st.integers(-400, 400).map(lambda number: number / 8)
BITS = st.sampled_from([0.0, 1.0])


def clustered_values(values: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[list[float], list[int]]]:
    """Values and clusters: from 10 clusters of 1 to 6 samples, in an order of their own."""

    def laid_out(groups: list[list[float]], random: standard_random.Random) -> tuple[list[float], list[int]]:
        pairs = [(value, number) for number, group in enumerate(groups) for value in group]
        random.shuffle(pairs)
        return [value for value, _ in pairs], [number for _, number in pairs]

    groups = st.lists(st.lists(values, min_size=1, max_size=6), min_size=MIN_CLUSTERS, max_size=20)
    return st.builds(laid_out, groups, st.randoms(use_true_random=False))


def proportion_by_roots(share: float, n: float, quantile: float) -> tuple[float, float]:
    """The shares of which this one of ``n`` samples lies as many standard errors away as the quantile says."""

    def away(limit: float) -> float:
        return abs(share - limit) - quantile * math.sqrt(limit * (1 - limit) / n)

    return float(optimize.brentq(away, 0, share)), float(optimize.brentq(away, share, 1))


def scored(**values: float) -> Score:
    return Score(status="scored", values=values)


def right(is_right: bool, **values: float) -> Score:
    return Score(status="correct" if is_right else "wrong", values={"accuracy": float(is_right), **values})


def test_as_published() -> None:
    """R. L. Scheaffer, W. Mendenhall and R. L. Ott, Elementary Survey Sampling, the incomes of 25 blocks of a city.

    The book has the mean 8801, the standard deviation 25,189 of the blocks' residuals, and with it 25,189 / (sqrt(25)
    6.04) as the standard error, but for the factor of a finite population. With each block's leverage in place of G /
    (G - 1) it is 0.1% less.
    """
    residents = [8, 12, 4, 5, 6, 6, 7, 5, 8, 3, 2, 6, 5, 10, 9, 3, 6, 5, 5, 4, 6, 8, 7, 3, 8]
    thousands = [96, 121, 42, 65, 52, 40, 75, 65, 45, 50, 85, 43, 54, 49, 53, 50, 32, 22, 45, 37, 51, 30, 39, 47, 41]
    values, clusters = [], []
    for block, (number, income) in enumerate(zip(residents, thousands, strict=True)):
        values += [income * 1000 / number] * number
        clusters += [block] * number
    error = standard_error(values, clusters)
    assert error is not None
    assert math.floor(math.fsum(values) / len(values)) == 8801
    assert error * math.sqrt(25) * 6.04 == pytest.approx(25_189, rel=0.002)


@given(clustered_values(EIGHTHS))
def test_a_mean_has_the_standard_error_and_interval_of_statsmodels(found: tuple[list[float], list[int]]) -> None:
    values, clusters = found
    error, interval = of_clustered_mean(values, clusters)
    assert standard_error(values, clusters) == pytest.approx(error, rel=1e-7, abs=1e-9)
    if error > 1e-6:  # of less than that, which is rounding, there is no skewness
        assert mean_interval(values, clusters) == pytest.approx(interval, rel=1e-6, abs=1e-6)


def test_few_degrees_of_freedom_are_left_where_a_large_cluster_decides() -> None:
    """G - 1 of equal clusters; of samples that are not alike within clusters more than of samples that are."""
    random = standard_random.Random(3)
    equal = [number // 5 for number in range(100)]
    alike = [float(cluster % 7) for cluster in equal]
    assert estimate_in_clusters(alike, equal).degrees_of_freedom == 19
    unequal = [0] * 81 + list(range(1, 20))
    freedoms = [
        estimate_in_clusters(values, unequal).degrees_of_freedom
        for values in ([random.random() for _ in unequal], [float(cluster % 7) for cluster in unequal])
    ]
    assert 1 < freedoms[1] < freedoms[0] < 4
    assert estimate_in_clusters(alike, equal).num_effective == pytest.approx(20)
    assert estimate_in_clusters(alike, unequal).num_effective == pytest.approx(100**2 / (81**2 + 19))


@given(clustered_values(BITS))
def test_a_proportion_has_wilsons_interval_of_what_its_samples_are_worth(found: tuple[list[float], list[int]]) -> None:
    """The limits are where a t statistic with the design effect of the mean's variance is just significant.

    Or beyond that, where the interval of the mean ends, or where clusters end that count as one sample each: there in
    any case if right or wrong is rare.
    """
    values, clusters = found
    low, high = proportion_interval(values, clusters)
    share, n = float(np.mean(values)), len(values)
    assert 0 <= low <= share <= high <= 1
    assert low < high
    error, interval = of_clustered_mean(values, clusters, as_samples=False)
    if len(set(clusters)) < n and 0 < share < 1 and error > 1e-9:
        estimate = estimate_in_clusters(values, clusters)
        quantile = float(stats.t.ppf(0.975, estimate.degrees_of_freedom))
        worth = share * (1 - share) / error**2
        usual, widest = (
            proportion_by_roots(share, number, quantile) for number in (worth, min(worth, estimate.num_effective))
        )
        if min(share, 1 - share) * estimate.num_effective < 0.1:
            assert (low, high) == pytest.approx(widest, abs=1e-6)
            return
        assert low == pytest.approx(min(usual[0], max(interval[0], widest[0])), abs=1e-6)
        assert high == pytest.approx(max(usual[1], min(interval[1], widest[1])), abs=1e-6)


def test_what_is_rare_in_few_clusters_says_little() -> None:
    """One wrong answer among 1,000 says no more than none: other clusters may be wrong throughout."""
    clusters = [number // 100 for number in range(1000)]
    quantile = float(stats.t.ppf(0.975, 9))
    for num_wrong in (0, 1, 9):
        values = [float(number * 41 % 1000 >= num_wrong) for number in range(1000)]
        expected = wilson_limits(1 - num_wrong / 1000, 10, quantile)
        assert proportion_interval(values, clusters) == pytest.approx(expected, abs=1e-6), num_wrong
        low, high = flips_interval([value - 1 for value in values], clusters)
        assert (low < -0.3, high > 0.3) == (True, True), num_wrong
        skills = [(value - chance) / (1 - chance) for value, chance in zip(values, [0.25, 0.5] * 500, strict=True)]
        found = skill_interval(skills, [0.25, 0.5] * 500, clusters)
        assert found is not None
        assert found[0] < 0.6, num_wrong
    values = [float(number % 10 > 0) for number in range(1000)]
    assert proportion_interval(values, clusters)[0] > 0.85


def test_what_samples_in_clusters_are_worth() -> None:
    equal = [number // 5 for number in range(100)]
    found = estimate_in_clusters([float(number % 3 == 0) for number in range(100)], equal)
    assert worth_of(0.25, found, 100) == pytest.approx(0.25 / found.stderr**2)
    # All right: nothing shows how alike the samples of a cluster are. 20 clusters are worth 20 samples, with t's 2.093.
    low, high = proportion_interval([1.0] * 100, equal)
    assert high == 1.0
    assert low == pytest.approx(20 / (20 + stats.t.ppf(0.975, 19) ** 2))
    # Of clusters that are not equal, as many as weigh as much: 100² / (81² + 19) = 1.5.
    low, _ = proportion_interval([1.0] * 100, [0] * 81 + list(range(1, 20)))
    worth = 100**2 / (81**2 + 19)
    assert low == pytest.approx(worth / (worth + stats.t.ppf(0.975, 1) ** 2))
    # Every cluster has one of two right: the mean is the same in all, and its error 0.
    values, clusters = [0.0, 1.0] * 15, [number // 2 for number in range(30)]
    assert standard_error(values, clusters) == 0.0
    assert proportion_interval(values, clusters) == wilson_limits(0.5, 30.0, float(stats.t.ppf(0.975, 14)))


@given(clustered_values(EIGHTHS), st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_no_digit(
    found: tuple[list[float], list[int]], random: standard_random.Random
) -> None:
    values, clusters = found
    places = list(range(len(values)))
    random.shuffle(places)
    moved, theirs = [values[place] for place in places], [clusters[place] for place in places]
    assert standard_error(moved, theirs) == standard_error(values, clusters)
    assert mean_interval(moved, theirs) == mean_interval(values, clusters)


@given(st.lists(EIGHTHS, min_size=MIN_CLUSTERS, max_size=40))
def test_clusters_of_one_are_independent_samples(values: list[float]) -> None:
    own = list(range(len(values)))
    assert standard_error(values, own) == pytest.approx(standard_error(values), rel=1e-12, abs=1e-12)
    assert mean_interval(values, own) == pytest.approx(mean_interval(values), rel=1e-9, abs=1e-9)


def test_few_clusters_are_refused() -> None:
    values, clusters = [0.0, 1.0] * 9, [number // 2 for number in range(18)]
    assert are_too_few(clusters)
    assert not are_too_few(None)
    for statistic in (standard_error, mean_interval, proportion_interval, flips_interval):
        with pytest.raises(ValueError, match="9 clusters are too few for a standard error, which takes 10"):
            statistic(values, clusters)
        assert statistic([*values, 1.0], [*clusters, 99]) is not None


@pytest.mark.parametrize("statistic", [standard_error, mean_interval, proportion_interval, flips_interval])
def test_nothing_is_averaged_over_nan_and_each_value_has_a_cluster(statistic: object) -> None:
    assert callable(statistic)
    with pytest.raises(ValueError, match="nothing is averaged over it"):
        statistic([0.0] * 11 + [math.nan], list(range(12)))
    with pytest.raises(ValueError, match="zip"):
        statistic([0.0] * 11, list(range(12)))


def test_a_sample_without_a_cluster_is_one_of_its_own() -> None:
    assert cluster_numbers(["a", None, "b", "a", None]) == [0, 1, 2, 0, 3]
    assert cluster_numbers([None, None]) is None
    assert cluster_numbers([]) is None


# Metrics


def passages(num_clusters: int = 12, size: int = 5) -> tuple[list[Score], list[str | None]]:
    """Samples of every kind of metric; those of one passage are alike."""
    random = standard_random.Random(4)
    scores: list[Score] = []
    clusters: list[str | None] = []
    for cluster in range(num_clusters):
        ability = random.random()
        for _ in range(size):
            is_right = random.random() < ability
            values = {
                "skill": (is_right - 0.25) / 0.75,
                "brier": random.random() * ability,
                "loglikelihood": -random.randint(1, 60) * (1 + ability) / 4,
                "words": float(random.randint(5, 30)),
                "gold": float(random.random() < 0.5),
                "confidence": 0.5 + ability / 2,
            }
            values["predicted"] = values["gold"] if is_right else 1 - values["gold"]
            scores.append(
                Score(
                    status="correct" if is_right else "wrong",
                    values={"accuracy": float(is_right), **values},
                    chance=0.25,
                )
            )
            clusters.append(f"passage {cluster}")
    return scores, clusters


NAMES = ("accuracy", "skill", "brier", "word_perplexity", "mcc", "ece", "correct")


def test_each_kind_of_metric_is_clustered() -> None:
    scores, clusters = passages()
    plain, found = summarize(scores, NAMES), summarize(scores, NAMES, clusters)
    for name, metric in found.items():
        assert (metric.value, metric.n, metric.kind) == (plain[name].value, plain[name].n, plain[name].kind)
        assert part_from_json(Metric, asdict(metric)) == metric
        assert plain[name].num_clusters is None
        if name not in ("correct", "ece"):
            assert metric.num_clusters == 12
            assert metric.stderr is not None
            assert metric.ci_low is not None
            assert metric.ci_low != plain[name].ci_low
    assert found["correct"] == plain["correct"]
    numbers = [int(str(cluster).split()[1]) for cluster in clusters]
    brier = [score.values["brier"] for score in scores]
    error, interval = of_clustered_mean(brier, numbers)
    assert (found["brier"].stderr, found["brier"].ci_low, found["brier"].ci_high) == pytest.approx((error, *interval))
    accuracy = proportion_interval([score.values["accuracy"] for score in scores], numbers)
    assert (found["accuracy"].ci_low, found["accuracy"].ci_high) == accuracy
    assert (found["skill"].ci_low, found["skill"].ci_high) == pytest.approx(
        [(limit - 0.25) / 0.75 for limit in accuracy]
    )


def test_a_pooled_metric_has_the_error_of_a_weighted_regression() -> None:
    """Of a cluster's nats on its words, weighted by 1 / words: statsmodels' WLS."""
    scores, clusters = passages()
    nats: dict[str | None, float] = {}
    words: dict[str | None, float] = {}
    for score, cluster in zip(scores, clusters, strict=True):
        nats[cluster] = nats.get(cluster, 0.0) - score.values["loglikelihood"]
        words[cluster] = words.get(cluster, 0.0) + score.values["words"]
    error, interval = of_ratio(list(nats.values()), list(words.values()))
    found = summarize(scores, ["word_perplexity"], clusters)["word_perplexity"]
    rate = sum(nats.values()) / sum(words.values())
    assert found.value == pytest.approx(math.exp(rate))
    assert found.stderr == pytest.approx(math.exp(rate) * error)
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(np.exp(interval)))


def test_a_corpus_metric_is_bootstrapped_by_cluster() -> None:
    """Against scipy's bootstrap, which draws the numbers of clusters; of two classes, MCC is Pearson's correlation."""
    name = "mcc"
    scores, clusters = passages(num_clusters=40)
    gold = np.array([score.values["gold"] for score in scores]).reshape(40, 5)
    predicted = np.array([score.values["predicted"] for score in scores]).reshape(40, 5)

    def statistic(drawn: NDArray[np.float64]) -> float:
        places = drawn.astype(int)
        return float(np.corrcoef(gold[places].ravel(), predicted[places].ravel())[0, 1])

    expected = stats.bootstrap(
        [np.arange(40)], statistic, n_resamples=2000, method="percentile", vectorized=False, random_state=3
    )
    found = summarize(scores, [name], clusters)[name]
    assert found.stderr == pytest.approx(expected.standard_error, rel=0.12)
    assert found.ci_low == pytest.approx(expected.confidence_interval.low, abs=0.35 * expected.standard_error)
    assert found.ci_high == pytest.approx(expected.confidence_interval.high, abs=0.35 * expected.standard_error)
    plain = summarize(scores, [name])[name]
    assert plain.stderr is not None
    assert found.stderr is not None
    assert found.stderr > 1.2 * plain.stderr, "samples of one passage are alike"


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(20))
def test_neither_order_nor_names_of_clusters_change_a_digit(random: standard_random.Random) -> None:
    scores, clusters = passages(num_clusters=10, size=3)
    names = [f"text {number}" for number in random.sample(range(100), 10)]
    places = list(range(len(scores)))
    random.shuffle(places)
    renamed = [names[int(str(clusters[place]).split()[1])] for place in places]
    assert summarize([scores[place] for place in places], NAMES, renamed) == summarize(scores, NAMES, clusters)


def test_samples_of_fewer_than_10_clusters_have_no_interval() -> None:
    scores, clusters = passages(num_clusters=9)
    for name, metric in summarize(scores, NAMES, clusters).items():
        assert metric.value is not None
        assert (metric.stderr, metric.ci_low, metric.ci_high) == (None, None, None), name
    nobody = summarize(scores, NAMES, [None] * len(scores))
    assert nobody == summarize(scores, NAMES)


def test_a_category_has_the_clusters_of_its_own_samples() -> None:
    scores, clusters = passages(num_clusters=24)
    # Every passage has samples in both categories, those of the second one only in the first three.
    categories: list[str | None] = ["a" if place % 5 < 4 or place >= 15 else "b" for place in range(len(scores))]
    found = by_category(scores, categories, NAMES, clusters)
    assert found["a"]["accuracy"].num_clusters == 24
    assert found["a"]["accuracy"].ci_low is not None
    assert (found["b"]["accuracy"].num_clusters, found["b"]["accuracy"].ci_low) == (3, None)
    chosen = [place for place, category in enumerate(categories) if category == "a"]
    own = summarize([scores[place] for place in chosen], NAMES, [clusters[place] for place in chosen])
    assert found["a"] == own


def test_clusters_are_counted_among_the_scores_that_carry_a_metric() -> None:
    scores = [right(True, **({"brier": 0.1 * number} if number < 6 else {})) for number in range(20)]
    scores.append(Score(status="unscored", reason="no"))
    clusters = [str(number // 2) for number in range(20)] + ["alone"]
    found = summarize(scores, ["accuracy", "brier"], clusters)
    assert found["accuracy"].num_clusters == 10
    assert (found["brier"].num_clusters, found["brier"].stderr) == (3, None)


def test_what_nobody_scored_lies_in_no_cluster() -> None:
    scores = [Score(status="unscored", reason="no")] * 3
    for name, metric in summarize(scores, NAMES, ["a", "a", None]).items():
        assert metric.n == 0, name
        assert metric.num_clusters == (None if name == "correct" else 0)
        assert part_from_json(Metric, asdict(metric)) == metric


def test_each_score_has_a_cluster() -> None:
    with pytest.raises(ValueError, match="found 1 clusters of 2 scores"):
        summarize([right(True), right(False)], ["accuracy"], ["a"])


@pytest.mark.parametrize("number", [-3, 2.5, True, "12"])
def test_a_number_of_clusters_that_cannot_be_read(number: object) -> None:
    good = asdict(Metric(value=0.5, n=20, kind="mean", num_clusters=12))
    with pytest.raises(ValueError, match=r"num_clusters: found .*, expected (a whole number or null|0 or more)"):
        part_from_json(Metric, {**good, "num_clusters": number})


# Differences


def two_models(
    num_clusters: int = 15, size: int = 4
) -> tuple[dict[str, Score], dict[str, Score], dict[str, str | None]]:
    random = standard_random.Random(8)
    first: dict[str, Score] = {}
    second: dict[str, Score] = {}
    clusters: dict[str, str | None] = {}
    for cluster in range(num_clusters):
        shift = random.random() - 0.3
        for number in range(size):
            name = f"{cluster}-{number}"
            for scores, better in ((first, 0.0), (second, shift)):
                is_right = random.random() < 0.5 + better / 2
                gold = float(number % 2)
                scores[name] = right(
                    is_right,
                    brier=random.random() / (2 + better),
                    loglikelihood=-20.0 * random.random() - 10 + 10 * better,
                    words=8.0 + number,
                    gold=gold,
                    predicted=gold if is_right else 1 - gold,
                )
            clusters[name] = f"text {cluster}"
    return first, second, clusters


def test_each_kind_of_difference_is_clustered() -> None:
    first, second, clusters = two_models()
    names = ["accuracy", "brier", "word_perplexity", "mcc"]
    plain, found = compare(first, second, names), compare(first, second, names, clusters)
    numbers = [int(name.split("-")[0]) for name in first]
    for name in names:
        assert (found[name].difference, found[name].n) == (plain[name].difference, plain[name].n)
        assert (found[name].num_clusters, plain[name].num_clusters) == (15, None)
        assert found[name].stderr != plain[name].stderr
        assert found[name].ci_low != plain[name].ci_low
    briers = [second[name].values["brier"] - first[name].values["brier"] for name in first]
    error, interval = of_clustered_mean(briers, numbers)
    assert (found["brier"].stderr, found["brier"].ci_low, found["brier"].ci_high) == pytest.approx((error, *interval))
    flips = [second[name].values["accuracy"] - first[name].values["accuracy"] for name in first]
    assert found["accuracy"].stderr == pytest.approx(of_clustered_mean(flips, numbers)[0])
    assert (found["accuracy"].ci_low, found["accuracy"].ci_high) == flips_interval(flips, numbers)


def test_the_difference_of_pooled_metrics_has_the_error_of_stacked_regressions() -> None:
    """Two weighted regressions as one, with a cluster's texts of both models together, by the delta method."""
    first, second, clusters = two_models()
    numbers = np.array([int(name.split("-")[0]) for name in first])
    nats = np.array([-scores[name].values["loglikelihood"] for scores in (first, second) for name in first])
    words = np.array([scores[name].values["words"] for scores in (first, second) for name in first])
    design = np.kron(np.eye(2), np.ones((len(first), 1)))
    fit = sm.WLS(nats / words, design, weights=words).fit(
        cov_type="cluster", cov_kwds={"groups": np.tile(numbers, 2), "use_correction": False}
    )
    slopes = np.array([-1.0, 1.0]) * np.exp(fit.params)
    expected = math.sqrt(slopes @ fit.cov_params() @ slopes * 15 / 14)
    found = compare(first, second, ["word_perplexity"], clusters)["word_perplexity"]
    assert found.stderr == pytest.approx(expected, rel=1e-9)


def test_a_difference_over_few_clusters_has_no_interval() -> None:
    first, second, clusters = two_models(num_clusters=9)
    for name, found in compare(first, second, ["accuracy", "brier", "word_perplexity", "mcc"], clusters).items():
        assert (found.stderr, found.ci_low, found.ci_high, found.num_clusters) == (None, None, None, 9), name
    found = compare(first, second, ["accuracy"], clusters)["accuracy"]
    assert found.num_gained is not None
    assert found.num_lost is not None
    assert compare(first, second, ["accuracy"], {}) == compare(first, second, ["accuracy"])


def test_only_clusters_of_samples_that_both_scored_count() -> None:
    first, second, clusters = two_models(num_clusters=12)
    for name in list(second):
        if name.startswith(("0-", "1-", "2-")):
            del second[name]
    assert compare(first, second, ["accuracy"], clusters)["accuracy"].num_clusters == 9


def test_flips_that_are_the_same_everywhere() -> None:
    clusters = [number // 4 for number in range(48)]
    # None differ: 12 clusters are worth 12 pairs. By hand, no pair of n differs: the ends are z² / (n + z²).
    square = float(stats.t.ppf(0.975, 11)) ** 2
    end = square / (12 + square)
    assert flips_interval([0.0] * 48, clusters) == pytest.approx((-end, end))
    low, high = flips_interval([-1.0] * 48, clusters)
    assert low == -1.0
    assert -1 < high < 0


@given(clustered_values(st.sampled_from([-1.0, 0.0, 0.0, 1.0])))
def test_flips_hold_what_was_found_and_exchange_with_the_models(found: tuple[list[float], list[int]]) -> None:
    values, clusters = found
    low, high = flips_interval(values, clusters)
    assert -1 <= low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= high <= 1
    assert low < high
    back = flips_interval([-value for value in values], clusters)
    assert (low, high) == pytest.approx((-back[1], -back[0]), abs=1e-12)


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=200, max_size=300))
def test_flips_of_clusters_of_one_are_those_of_independent_pairs(values: list[float]) -> None:
    own = list(range(len(values)))
    plain = paired_proportions_interval(values.count(1.0), values.count(-1.0), len(values))
    assert flips_interval(values, own) == plain
    right = [float(value == 1.0) for value in values]
    assert proportion_interval(right, own) == wilson_interval(values.count(1.0), len(values))


def test_sums_over_clusters_are_all_that_a_standard_error_needs() -> None:
    values, clusters = [1.0, 2.0, 4.0] * 10, [number // 3 for number in range(30)]
    values[0] = 9.0
    sums, sizes = [15.0] + [7.0] * 9, [3.0] * 10
    assert standard_error(values, clusters) == estimate_ratio(sums, sizes).stderr
