"""Corrected accuracies against published figures, and against numpy and recomputations written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from pytest_llmeval.scoring.statistics.intervals import mean
from pytest_llmeval.scoring.statistics.raters import JudgeCounts, judge_counts, ppi_mean, rogan_gladen
from tests.properties import examples

Z = float(stats.norm.ppf(0.975))


def counts(true_positives: int, positives: int, true_negatives: int, negatives: int) -> JudgeCounts:
    return JudgeCounts(
        true_positives=true_positives, positives=positives, true_negatives=true_negatives, negatives=negatives
    )


@pytest.mark.parametrize(
    ("m", "low", "high"),
    [(50, 0.00000000, 0.3281189), (100, 0.01390166, 0.2897995), (200, 0.05635072, 0.2627330)],
)
def test_rogan_gladen_is_that_of_lee_et_al(m: int, low: float, high: float) -> None:
    """Figures that the README of LLM-judge-repoRting gives for p = 0.4, q0 = 0.7, q1 = 0.9 and n = 1000.

    It is a port to R of the code beside arXiv:2511.21140, tested against it.
    """
    found = rogan_gladen(400, 1000, counts(9 * m // 10, m, 7 * m // 10, m))
    assert found.value == pytest.approx(0.1666667, abs=1e-7)
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high), abs=1e-7)
    assert (found.n, found.reason) == (1000, None)


def test_standard_error_of_rogan_gladen_is_that_of_many_draws() -> None:
    """Of p, se and sp drawn anew; the formula adds a few samples to each, so that it is near, not equal."""
    random = np.random.default_rng(0)
    p, se, sp = (random.binomial(m, q, 200_000) / m for m, q in ((2000, 0.66), (400, 0.9), (500, 0.8)))
    found = rogan_gladen(1320, 2000, counts(360, 400, 400, 500))
    assert found.stderr == pytest.approx(np.std((p + sp - 1) / (se + sp - 1)), rel=0.03)


@settings(max_examples=examples(200))
@given(st.data())
def test_rogan_gladen_turns_round(data: st.DataObject) -> None:
    """With positive and negative swapped the share is one less it; everything is finite, and within 0 and 1."""
    n, positives, negatives = (data.draw(st.integers(0, 60)) for _ in range(3))
    judged, hits, rejections = (data.draw(st.integers(0, most)) for most in (n, positives, negatives))
    found = rogan_gladen(judged, n, counts(hits, positives, rejections, negatives))
    other = rogan_gladen(n - judged, n, counts(rejections, negatives, hits, positives))
    assert (found.ci_low is None) == (found.ci_high is None) == (found.reason is not None)
    if found.value is None:
        assert other.value is None
        if n and positives and negatives:
            assert hits / positives + rejections / negatives <= 1 + 1e-12
        return
    assert other.value == pytest.approx(1 - found.value, abs=1e-9)
    assert 0 <= found.value <= 1
    if found.ci_low is None or found.ci_high is None:
        assert other.ci_low is None
        return
    assert found.stderr is not None
    assert math.isfinite(found.stderr)
    assert 0 <= found.ci_low <= found.value <= found.ci_high <= 1
    assert found.ci_low < found.ci_high
    assert (other.ci_low, other.ci_high) == pytest.approx((1 - found.ci_high, 1 - found.ci_low), abs=1e-9)


def test_a_perfect_judge_is_believed() -> None:
    found = rogan_gladen(30, 100, counts(50, 50, 50, 50))
    assert found.value == pytest.approx(0.3)
    many = rogan_gladen(30_000, 100_000, counts(10**9, 10**9, 10**9, 10**9))
    assert many.stderr == pytest.approx(math.sqrt(0.3 * 0.7 / 100_000), rel=1e-3)


@pytest.mark.parametrize(
    ("judged", "n", "calibrated", "reason"),
    [
        (0, 0, counts(9, 10, 9, 10), "the judge labelled no sample"),
        (5, 10, counts(0, 0, 9, 10), "people found no positive sample"),
        (5, 10, counts(9, 10, 0, 0), "people found no negative sample"),
        (5, 10, counts(1, 10, 9, 10), "add up to 1 or less"),
        (5, 10, counts(1, 3, 4, 6), "add up to 1 or less"),
        (5, 10, counts(0, 10, 0, 10), "add up to 1 or less"),
    ],
)
def test_what_cannot_be_corrected(judged: int, n: int, calibrated: JudgeCounts, reason: str) -> None:
    found = rogan_gladen(judged, n, calibrated)
    assert (found.value, found.stderr, found.ci_low, found.ci_high, found.n) == (None, None, None, None, n)
    assert found.reason is not None
    assert reason in found.reason


def test_values_without_an_interval() -> None:
    """98 of 100 are judged positive, and of true positives 76 in 100 are: no base rate explains it."""
    found = rogan_gladen(98, 100, counts(76, 100, 18, 20))
    assert (found.value, found.ci_low) == (1, None)
    assert found.reason is not None
    assert "could give: the two sets differ" in found.reason
    # Two samples more add up to 1 or less; and put the whole interval beyond 1.
    for few, value in ((rogan_gladen(3, 10, counts(1, 1, 1, 50)), 0), (rogan_gladen(99, 99, counts(2, 2, 99, 99)), 1)):
        assert (few.value, few.ci_low) == (value, None)
        assert few.reason == "people rated too few samples to tell the judge from a coin"


def test_an_interval_of_few_samples_reaches_the_value() -> None:
    """By the formula it would begin at 0.025 and at 0.564, above what was found."""
    none = rogan_gladen(0, 1, counts(1, 1, 20, 20))
    assert (none.value, none.ci_low) == (0, 0)
    some = rogan_gladen(56, 100, counts(1, 1, 96, 100))
    assert some.value == some.ci_low == pytest.approx(0.52 / 0.96)


def test_counts_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="11 positives among 10 samples"):
        rogan_gladen(11, 10, counts(9, 10, 9, 10))
    with pytest.raises(ValueError, match="3 of 2 positives and 0 of 0 negatives are no counts"):
        counts(3, 2, 0, 0)
    with pytest.raises(ValueError, match="-1 of 2 negatives"):
        counts(1, 2, -1, 2)


def test_counts_of_labels() -> None:
    found = judge_counts(["yes", "yes", "yes", "no", "no"], ["yes", "no", "yes", "no", "perhaps"], "yes")
    assert found == counts(2, 3, 2, 2)
    assert judge_counts([], [], "yes") == counts(0, 0, 0, 0)
    with pytest.raises(ValueError, match="people rated 1 samples and the judge 0"):
        judge_counts(["yes"], [], "yes")
    with pytest.raises(ValueError, match="found None among the ratings"):
        judge_counts(["yes"], [None], "yes")  # type: ignore[list-item]


def drawn(n: int, others: int, noise: float = 0.5) -> tuple[list[float], list[float], list[float]]:
    random = np.random.default_rng(n)
    truth = random.normal(3, 1, n + others)
    judge = 0.8 * truth + 1 + random.normal(0, noise, n + others)
    return truth[:n].tolist(), judge[:n].tolist(), judge[n:].tolist()


@pytest.mark.parametrize(("n", "others"), [(30, 200), (80, 50), (5, 2)])
def test_ppi_is_that_of_numpy(n: int, others: int) -> None:
    """The estimator of arXiv:2311.01453 as its package ppi_py writes it, with divisors of one less throughout."""
    people, judge, judge_only = drawn(n, others)
    found = ppi_mean(people, judge, judge_only)
    y, f, rest = map(np.array, (people, judge, judge_only))
    weight = np.cov(y, f)[0, 1] / ((1 + n / others) * np.var(np.concatenate([f, rest]), ddof=1))
    weight = min(1.0, max(0.0, float(weight)))
    assert found.weight == pytest.approx(weight, rel=1e-12)
    value = (weight * rest).mean() + (y - weight * f).mean()
    error = math.hypot(np.std(weight * rest, ddof=1) / others**0.5, np.std(y - weight * f, ddof=1) / n**0.5)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.stderr == pytest.approx(error, rel=1e-12)
    assert (found.ci_low, found.ci_high) == pytest.approx((value - Z * error, value + Z * error), rel=1e-9)
    assert (found.n, found.num_judged_only) == (n, others)


def test_the_weight_is_that_of_least_variance() -> None:
    """Against a search; the formula pools the judge's variance, so that it is near, not equal."""
    people, judge, judge_only = drawn(4000, 20_000)

    def variance(weight: float) -> float:
        stderr = ppi_mean(people, judge, judge_only, weight=weight).stderr
        assert stderr is not None
        return stderr**2

    best = optimize.minimize_scalar(variance, bounds=(0, 1), method="bounded", options={"xatol": 1e-4}).x
    assert ppi_mean(people, judge, judge_only).weight == pytest.approx(float(best), abs=0.02)


scores = st.integers(0, 5).map(float)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(scores, scores), max_size=20), st.lists(scores, max_size=20))
def test_ppi_without_a_judge_is_the_classical_mean(rows: list[tuple[float, float]], judge_only: list[float]) -> None:
    people, judge = [first for first, _ in rows], [second for _, second in rows]
    found, tuned = ppi_mean(people, judge, judge_only, weight=0), ppi_mean(people, judge, judge_only)
    for one in (found, tuned):
        assert (one.ci_low is None) == (one.ci_high is None) == (one.reason is not None)
        assert all(number is None or math.isfinite(number) for number in (one.value, one.stderr, one.ci_low))
    if len(people) < 2:
        assert found.value is tuned.value is None
        return
    assert found.weight == 0
    assert found.value == mean(people)
    assert found.stderr == pytest.approx(float(stats.sem(people)), abs=1e-12)
    assert tuned.weight is not None
    assert 0 <= tuned.weight <= 1
    if len(set(judge + judge_only)) == 1 or len(judge_only) < 2:
        assert tuned == found


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(scores, scores), min_size=2, max_size=20),
    st.lists(scores, min_size=2, max_size=20),
    st.floats(0, 1),
)
def test_ppi_moves_with_its_scale(rows: list[tuple[float, float]], judge_only: list[float], weight: float) -> None:
    def moved(values: Sequence[float]) -> list[float]:
        return [10 - 2 * value for value in values]

    people, judge = [first for first, _ in rows], [second for _, second in rows]
    found = ppi_mean(people, judge, judge_only, weight=weight)
    turned = ppi_mean(moved(people), moved(judge), moved(judge_only), weight=weight)
    assert found.value is not None
    assert found.stderr is not None
    assert turned.value == pytest.approx(10 - 2 * found.value, abs=1e-9)
    assert turned.stderr == pytest.approx(2 * found.stderr, abs=1e-9)


def test_a_judge_that_is_right_narrows_the_interval() -> None:
    """With 50 times as many samples that it alone rated, the standard error falls as if people had rated them all."""
    people, judge, judge_only = drawn(200, 10_000, noise=0.0)
    plain, found = ppi_mean(people, judge, judge_only, weight=0), ppi_mean(people, judge, judge_only, weight=0.999)
    assert plain.stderr is not None
    assert found.stderr is not None
    assert found.stderr < 0.3 * plain.stderr


def test_means_that_are_not_defined() -> None:
    none = ppi_mean([], [], [1.0, 2.0])
    assert (none.value, none.n, none.num_judged_only) == (None, 0, 2)
    assert none.reason == "people rated no sample"
    assert ppi_mean([1.0], [1.0], []).reason == "people rated one sample, and two are needed"
    equal = ppi_mean([1.0, 1.0], [1.0, 1.0], [1.0, 1.0])
    assert (equal.value, equal.stderr, equal.ci_low, equal.weight) == (1, 0, None, 0)
    assert equal.reason == "all values are equal"


def test_scores_that_are_refused() -> None:
    with pytest.raises(ValueError, match="people rated 1 samples and the judge 2"):
        ppi_mean([1.0], [1.0, 2.0], [])
    for bad in ([math.nan], [math.inf], [None]):
        with pytest.raises(ValueError, match="among the ratings"):
            ppi_mean([1.0, 2.0], [1.0, 2.0], bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="its square is too large"):
        ppi_mean([1.0, 1e200], [1.0, 2.0], [])
    with pytest.raises(ValueError, match=r"lies between 0 and 1, found 1\.5"):
        ppi_mean([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], weight=1.5)
    with pytest.raises(ValueError, match="needs two scores by the judge alone, found 1"):
        ppi_mean([1.0, 2.0], [1.0, 2.0], [1.0], weight=1)
