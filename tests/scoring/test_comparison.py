from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from pytest_llmeval.scoring.model_differences import compare, largest_unseen, paired_difference
from pytest_llmeval.scoring.statistics.clustered import paired_proportions_interval
from pytest_llmeval.types import Score
from tests.scoring.expected_intervals import of_mean

EIGHTHS = st.integers(-1000, 1000).map(lambda number: number / 8)
"""Values whose sums are exact: scipy warns of those that are nearly equal."""

PAIRS = st.lists(st.tuples(EIGHTHS, EIGHTHS), min_size=2, max_size=40)
FLIPS = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60)


def correct(right: bool, **values: float) -> Score:
    return Score(status="correct" if right else "wrong", values={"accuracy": float(right), **values})


UNSCORED = Score(status="unscored", reason="no")


def test_proportions_as_published() -> None:
    """Complete response before and after consolidation therapy (Cavo et al., 2012): 59, 6, 16 and 80 pairs.

    The interval is that of ``Tango_asymptotic_score_CI_paired_2x2`` of the R package contingencytables, which goes with
    M. W. Fagerland, S. Lydersen and P. Laake, Statistical Analysis of Contingency Tables, 2017.
    """
    low, high = paired_proportions_interval(6, 16, 161)
    assert (round(low, 4), round(high, 4)) == (-0.1240, -0.0054)


def loglikelihood(lost: float, difference: float, counts: tuple[int, int, int]) -> float:
    """Of pairs of which ``counts`` were gained, lost and neither; ``lost`` is the probability of the second."""
    shares = (lost + difference, lost, 1 - 2 * lost - difference)
    return sum(count * math.log(max(share, 1e-300)) for count, share in zip(counts, shares, strict=True) if count)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 200), st.floats(0.5, 0.999))
def test_proportions_end_where_the_score_test_rejects(gained: int, lost: int, same: int, confidence: float) -> None:
    """With the likeliest share that was lost found by scipy's search, in the place of a root of a square."""
    n = gained + lost + same
    z = stats.norm.ppf((1 + confidence) / 2)
    for limit in paired_proportions_interval(gained, lost, n, confidence):
        bounds = (max(0.0, -limit), (1 - limit) / 2)
        found = optimize.minimize_scalar(
            lambda share, limit=limit: -loglikelihood(share, limit, (gained, lost, same)),
            bounds=bounds,
            method="bounded",
            options={"xatol": 1e-12},
        )
        variance = (2 * found.x + limit - limit**2) / n
        assert ((gained - lost) / n - limit) ** 2 == pytest.approx(z * z * variance, rel=1e-3)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 300))
def test_proportions_agree_with_mcnemars_test(gained: int, lost: int, same: int) -> None:
    """The interval leaves out no difference where that test, without continuity correction, is significant at 5%."""
    n = gained + lost + same
    if n and gained + lost:
        low, high = paired_proportions_interval(gained, lost, n)
        table = [[same, gained], [lost, 0]]
        p_value = mcnemar(table, exact=False, correction=False).pvalue
        assert (low <= 0 <= high) == (p_value >= 0.05)


def test_proportions_cover() -> None:
    """The chance that the interval holds the true difference, over all tables of 30 pairs, by their probabilities."""
    n = 30
    for up, down in ((0.1, 0.1), (0.25, 0.1), (0.05, 0.02), (0.4, 0.3)):
        covered = 0.0
        for gained, lost in itertools.product(range(n + 1), repeat=2):
            if gained + lost <= n:
                low, high = paired_proportions_interval(gained, lost, n)
                if low <= up - down <= high:
                    probabilities = [up, down, 1 - up - down]
                    covered += stats.multinomial.pmf([gained, lost, n - gained - lost], n, probabilities)
        assert 0.93 < covered < 0.99, (up, down)


@given(FLIPS)
def test_proportions_have_a_width_and_hold_what_was_found(pairs: list[tuple[float, float]]) -> None:
    first, second = [before for before, _ in pairs], [after for _, after in pairs]
    found = paired_difference(first, second, is_proportion=True)
    assert found.ci_low is not None and found.ci_high is not None  # noqa: PT018
    assert -1 <= found.ci_low <= found.difference <= found.ci_high <= 1
    assert found.ci_low < found.ci_high
    assert found.num_gained is not None and found.num_lost is not None  # noqa: PT018
    assert found.difference == pytest.approx((found.num_gained - found.num_lost) / found.n)


def differ_twice(pairs: list[tuple[float, float]]) -> bool:
    """Whether of the differences more than one is another than the rest: of one, nothing is known of others."""
    differences = [after - before for before, after in pairs]
    most = max(map(differences.count, differences))
    return len(set(differences)) > 1 and (len(differences) < 3 or most < len(differences) - 1)


@given(PAIRS.filter(differ_twice))
def test_means_are_those_of_scipys_paired_t(pairs: list[tuple[float, float]]) -> None:
    first, second = [before for before, _ in pairs], [after for _, after in pairs]
    found = paired_difference(first, second, is_proportion=False)
    expected = of_mean(np.subtract(second, first).tolist())
    assert (found.ci_low, found.ci_high) == pytest.approx(expected, rel=1e-8, abs=1e-6)
    students = stats.ttest_rel(second, first).confidence_interval(0.95)
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.ci_low <= students.low + 1e-9
    assert found.ci_high >= students.high - 1e-9
    assert found.difference == pytest.approx(np.mean(second) - np.mean(first), abs=1e-9)
    assert found.stderr == pytest.approx(stats.sem(np.subtract(second, first)), rel=1e-9, abs=1e-9)


@given(FLIPS)
def test_exchanged_models_exchange_all(pairs: list[tuple[float, float]]) -> None:
    first, second = [before for before, _ in pairs], [after for _, after in pairs]
    there = paired_difference(first, second, is_proportion=True)
    back = paired_difference(second, first, is_proportion=True)
    assert there.difference == -back.difference
    assert (there.num_gained, there.num_lost) == (back.num_lost, back.num_gained)
    assert there.ci_low == pytest.approx(-(back.ci_high or 0), abs=1e-15)


@pytest.mark.parametrize(("gained", "lost", "n"), [(0, 0, 0), (-1, 0, 3), (2, 2, 3)])
def test_counts_that_no_pairs_have(gained: int, lost: int, n: int) -> None:
    with pytest.raises(ValueError, match="have no difference"):
        paired_proportions_interval(gained, lost, n)


def test_a_confidence_level_lies_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        paired_proportions_interval(1, 1, 3, 95)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([], [], "mean of no values"),
        ([1.0], [], "zip"),
        ([1.0, math.nan], [1.0, 0.0], "nan"),
        ([0.5], [1.0], "zeros and ones"),
    ],
)
def test_values_that_cannot_be_compared(first: list[float], second: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired_difference(first, second, is_proportion=0.5 in first)


def test_a_mean_stays_one_where_its_values_are_zeros_and_ones() -> None:
    first, second = {"a": correct(True, brier=0.0, own=0.0)}, {"a": correct(True, brier=1.0, own=1.0)}
    found = compare(first, second, ["brier", "own"])
    assert (found["brier"].kind, found["own"].kind) == ("mean", "proportion")


def test_only_samples_that_both_scored_count() -> None:
    first = {"a": correct(True), "b": correct(True), "c": UNSCORED, "d": correct(False)}
    second = {"a": correct(True), "b": UNSCORED, "c": correct(True), "e": correct(True), "d": correct(True)}
    found = compare(first, second, ["accuracy"])["accuracy"]
    assert (found.n, found.num_gained, found.num_lost) == (2, 1, 0)
    assert (found.first, found.second, found.difference) == (0.5, 1.0, 0.5)


def test_counts_and_what_no_score_carries_are_left_out() -> None:
    scores = {"a": correct(True, brier=0.25), "b": correct(False, brier=0.5)}
    names = ["accuracy", "brier", "skill", "correct", "total", "word_perplexity"]
    assert list(compare(scores, scores, names)) == ["accuracy", "brier"]


def test_accuracy_follows_from_the_status() -> None:
    first = {"a": Score(status="wrong"), "b": Score(status="scored", values={"score": 0.5})}
    second = {"a": Score(status="correct"), "b": Score(status="scored", values={"score": 0.75})}
    found = compare(first, second, ["accuracy", "score"])
    assert (found["accuracy"].n, found["accuracy"].difference) == (1, 1.0)
    assert (found["score"].n, found["score"].difference, found["score"].ci_low) == (1, 0.25, None)


def test_skill_of_two_models_that_agree_is_not_certain() -> None:
    scores = {name: correct(True, skill=0.9) for name in "abc"}
    found = compare(scores, scores, ["accuracy", "skill"])
    assert (found["skill"].difference, found["skill"].ci_low, found["skill"].ci_high) == (0, None, None)
    low, high = found["accuracy"].ci_low, found["accuracy"].ci_high
    assert low is not None and high is not None and low < 0 < high  # noqa: PT018


def test_nothing_in_common_is_nothing() -> None:
    assert compare({"a": correct(True)}, {"b": correct(True)}, ["accuracy"]) == {}


@pytest.mark.parametrize("n", [1, 7, 250, 100_000])
def test_the_largest_difference_of_which_nothing_is_seen(n: int) -> None:
    """The share of samples that differ is that of the Clopper-Pearson interval of none of n."""
    share = proportion_confint(0, n, method="beta")[1]
    assert largest_unseen("brier", n) == pytest.approx(share, rel=1e-9)
    assert largest_unseen("flexible.chrf", n, 0.9) == pytest.approx(
        100 * proportion_confint(0, n, 0.1, method="beta")[1], rel=1e-9
    )
    for name in ("score", "skill", "perplexity", "ter"):
        with pytest.raises(ValueError, match="no limits"):
            largest_unseen(name, n)


def test_no_change_has_an_interval_where_the_metric_has_limits() -> None:
    values = {"brier": 0.3, "score": 2.0, "gold": 1.0, "predicted": 1.0, "loglikelihood": -1.0, "words": 2.0}
    scores = {str(place): Score(status="scored", values={**values, "gold": float(place % 2)}) for place in range(60)}
    names = ("brier", "score", "f1_macro", "word_perplexity")
    found = compare(scores, scores, names)
    reach = largest_unseen("brier", 60)
    for name in ("brier", "f1_macro"):
        assert (found[name].ci_low, found[name].ci_high) == (-reach, reach)
    assert [found[name].ci_low for name in ("score", "word_perplexity")] == [None, None]
    clusters = {sample_id: str(place // 3) for place, sample_id in enumerate(scores)}
    assert compare(scores, scores, names, clusters)["brier"].ci_high == largest_unseen("brier", 20)
    few = {sample_id: str(place // 20) for place, sample_id in enumerate(scores)}
    assert compare(scores, scores, names, few)["brier"].ci_high is None
    shifted = {sample_id: Score(status="scored", values={"brier": 0.25}) for sample_id in scores}
    share = proportion_confint(0, 60, method="beta")[1]
    changed = compare(scores, shifted, ["brier"])["brier"]
    assert (changed.ci_low, changed.ci_high) == pytest.approx((-0.05 - 0.95 * share, -0.05 + 1.05 * share))
    shifted["7"] = Score(status="scored", values={"brier": 0.35})
    share = proportion_confint(1, 60, method="beta")[1]
    changed = compare(scores, shifted, ["brier"])["brier"]
    assert (changed.ci_low, changed.ci_high) == pytest.approx((-0.05 - 0.95 * share, -0.05 + 1.05 * share))
