"""Agreement against statsmodels, scikit-learn, published examples, and definitions written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa

from pytest_llmeval.scoring.statistics.intervals import Estimate, share_never_drawn
from pytest_llmeval.scoring.statistics.raters import (
    krippendorff_alpha,
    weighted_kappa,
)
from tests.properties import examples

DIAGNOSES = ((75, 1, 4), (5, 4, 1), (0, 0, 10))
"""Two raters of 100 patients: J. L. Fleiss, Statistical Methods for Rates and Proportions, 2nd ed., 1981, 13.1."""

FOUR_JUDGES: list[list[int | None]] = [
    [1, 1, None, 1],
    [2, 2, 3, 2],
    [3, 3, 3, 3],
    [3, 3, 3, 3],
    [2, 2, 2, 2],
    [1, 2, 3, 4],
    [4, 4, 4, 4],
    [1, 1, 2, 1],
    [2, 2, 2, 2],
    [None, 5, 5, 5],
    [None, None, 1, 1],
    [None, 3, None, None],
]
"""Example C of K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011)."""


def unfolded(table: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    cells = [(row, column) for row, counts in enumerate(table) for column, n in enumerate(counts) for _ in range(n)]
    return [row for row, _ in cells], [column for _, column in cells]


def pairs(values: st.SearchStrategy[int], min_size: int = 0) -> st.SearchStrategy[tuple[list[int], list[int]]]:
    return st.lists(st.tuples(values, values), min_size=min_size, max_size=40).map(
        lambda rows: ([first for first, _ in rows], [second for _, second in rows])
    )


def panels(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int | None]]]:
    return st.integers(1, 4).flatmap(
        lambda judges: st.lists(st.lists(st.none() | values, min_size=judges, max_size=judges), max_size=15)
    )


def check(found: Estimate, lowest: float, highest: float) -> None:
    """No field is NaN, the interval holds the value, and what there is none of has a reason."""
    numbers = (found.value, found.stderr, found.ci_low, found.ci_high)
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert (found.ci_low is None) == (found.ci_high is None) == (found.reason is not None)
    if found.value is None:
        assert found.stderr is None
        assert found.ci_low is None
    else:
        assert lowest <= found.value <= highest
    if found.value is not None and found.ci_low is not None and found.ci_high is not None:
        assert lowest <= found.ci_low <= found.value + 1e-12
        assert found.value - 1e-12 <= found.ci_high <= highest


@pytest.mark.parametrize(
    "table",
    [
        DIAGNOSES,
        ((44, 5, 1), (7, 20, 3), (9, 5, 6)),
        ((20, 5, 0), (10, 15, 2), (0, 1, 0)),
        ((1, 30, 0), (25, 2, 7), (0, 0, 9)),
    ],
)
def test_kappas_are_those_of_statsmodels(table: Sequence[Sequence[int]]) -> None:
    """Value and standard error; statsmodels sums over the cells of the table."""
    people, judge = unfolded(table)
    found = weighted_kappa(people, judge)
    expected = cohens_kappa(np.array(table), wt="quadratic")
    assert found.value == pytest.approx(float(expected.kappa), rel=1e-12)
    assert found.stderr == pytest.approx(float(expected.std_kappa), rel=1e-12)
    assert found.n == sum(map(sum, table))
    assert found.value is not None
    assert found.stderr is not None
    distance = stats.norm.ppf(0.975) * found.stderr / (1 - found.value)
    limits = [1 - math.exp(math.log(1 - found.value) + side * distance) for side in (1, -1)]
    assert (found.ci_low, found.ci_high) == pytest.approx((max(-1, limits[0]), limits[1]), rel=1e-9)


@settings(max_examples=examples(100))
@given(pairs(st.integers(0, 4), min_size=2))
def test_kappas_are_those_of_scikit_learn(ratings: tuple[list[int], list[int]]) -> None:
    people, judge = ratings
    labels = list(range(5))
    if len({*people, *judge}) > 1:
        expected = cohen_kappa_score(people, judge, labels=labels, weights="quadratic")
        assert weighted_kappa(people, judge).value == pytest.approx(expected, abs=1e-12)
    if len({*people, *judge}) == 2:  # of two labels weights make no difference
        expected = cohen_kappa_score(people, judge, labels=labels)
        assert weighted_kappa(people, judge).value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=examples(100))
@given(pairs(st.integers(0, 3)))
def test_kappas_by_enumeration(ratings: tuple[list[int], list[int]]) -> None:
    """Of all pairs of a human's and a judge's rating."""
    people, judge = ratings
    found = weighted_kappa(people, judge)
    check(found, -1, 1)
    by_chance = [(x - y) ** 2 for x, y in itertools.product(people, judge)]
    if not any(by_chance):
        assert found.value is None
        assert found.reason == ("all ratings by both are the same" if people else "no samples")
    else:
        observed = [(x - y) ** 2 for x, y in zip(people, judge, strict=True)]
        expected = 1 - (sum(observed) / len(observed)) / (sum(by_chance) / len(by_chance))
        assert found.value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=examples(60))
@given(pairs(st.integers(0, 3)), st.randoms(use_true_random=False))
def test_scale_order_and_sides_do_not_matter(ratings: tuple[list[int], list[int]], random: Random) -> None:
    people, judge = ratings
    scores = weighted_kappa(people, judge)
    turned = weighted_kappa([5 - 2 * score for score in judge], [5 - 2 * score for score in people])
    assert (turned.value, turned.stderr) == pytest.approx((scores.value, scores.stderr), abs=1e-12)
    places = list(range(len(people)))
    random.shuffle(places)
    shuffled = weighted_kappa([people[place] for place in places], [judge[place] for place in places])
    assert shuffled == scores


@settings(max_examples=examples(60))
@given(st.lists(st.integers(0, 3), min_size=2, max_size=60).filter(lambda labels: len(set(labels)) > 1))
def test_identical_raters_have_a_kappa_of_one_and_an_interval(labels: list[int]) -> None:
    found = weighted_kappa(labels, labels)
    assert (found.value, found.stderr, found.ci_high) == (1, 0, 1)
    assert found.ci_low is not None
    assert -1 <= found.ci_low < 1
    rows = [[label, label] for label in labels]
    alpha = krippendorff_alpha(rows)
    assert (alpha.value, alpha.stderr, alpha.ci_high) == (1, 0, 1)
    assert alpha.ci_low is not None
    assert -1 <= alpha.ci_low < 1


def test_interval_of_identical_raters_by_hand() -> None:
    """Of 100 samples none differs: at most 3.6% do, where 50% would by chance, or 1/2 of 1/(1 - 1/200) for alpha."""
    labels = [0, 1] * 50
    share = stats.beta.ppf(0.975, 1, 100)
    assert share_never_drawn(100) == pytest.approx(share, rel=1e-9)
    assert weighted_kappa(labels, labels).ci_low == pytest.approx(1 - share / 0.5, rel=1e-9)
    low = krippendorff_alpha([[label, label] for label in labels]).ci_low
    assert low == pytest.approx(1 - share / (0.5 / (1 - 1 / 200)), rel=1e-9)


def test_one_rating_for_all() -> None:
    function = weighted_kappa
    assert function([1, 1], [1, 1]) == Estimate(value=None, n=2, reason="all ratings by both are the same")
    assert function([1], [1]) == Estimate(value=None, n=1, reason="all ratings by both are the same")
    assert function([], []) == Estimate(value=None, n=0, reason="no samples")
    reason = "all ratings by the judge are the same: nothing else is possible"
    assert function([0, 1, 1], [1, 1, 1]) == Estimate(value=0.0, n=3, reason=reason)
    reason = "all ratings by people are the same: nothing else is possible"
    assert function([1, 1, 1], [0, 1, 0]) == Estimate(value=0.0, n=3, reason=reason)


def test_scores_of_any_size() -> None:
    small = weighted_kappa([1, 2, 4, 4], [1, 3, 4, 2])
    for factor in (1e-300, 1e-9, 1e300):
        found = weighted_kappa([factor * score for score in (1, 2, 4, 4)], [factor * score for score in (1, 3, 4, 2)])
        assert (found.value, found.stderr) == pytest.approx((small.value, small.stderr), rel=1e-9)
    with pytest.raises(ValueError, match="scores inf apart have no squared difference"):
        weighted_kappa([1e308, 0.0], [-1e308, 0.0])


def test_ratings_that_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="people rated 2 samples and the judge 1: the same are needed"):
        weighted_kappa([1, 0], [1])
    with pytest.raises(ValueError, match="found None among the ratings"):
        weighted_kappa([1.0, None], [1.0, 0.0])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="found nan among the ratings"):
        weighted_kappa([1.0, math.nan], [1.0, 2.0])


def test_alpha_is_that_which_krippendorff_gives() -> None:
    found = krippendorff_alpha(FOUR_JUDGES)
    assert found.value == pytest.approx(0.849, abs=5e-4)
    assert found.n == 11  # the last sample has one rating


def alpha_by_coincidences(ratings: Sequence[Sequence[int | None]], power: int = 2) -> float | None:
    """By the matrix of coincidences and Krippendorff's differences, one pair of ratings at a time; 0 is for names."""
    coincidences: dict[tuple[int, int], float] = {}
    for row in ratings:
        given = [rating for rating in row if rating is not None]
        for first, second in itertools.permutations(range(len(given)), 2):
            cell = given[first], given[second]
            coincidences[cell] = coincidences.get(cell, 0.0) + 1 / (len(given) - 1)
    values = sorted({value for value, _ in coincidences})
    counts = {value: sum(n for (own, _), n in coincidences.items() if own == value) for value in values}
    total = sum(counts.values())

    def difference(first: int, second: int) -> float:
        return float(abs(first - second)) ** power if first != second else 0.0

    observed = sum(n * difference(*cell) for cell, n in coincidences.items())
    expected = sum(counts[x] * counts[y] * difference(x, y) for x, y in itertools.product(values, values))
    return None if expected == 0 else 1 - (total - 1) * observed / expected


@settings(max_examples=examples(100))
@given(panels(st.integers(-2, 3)))
def test_alpha_by_coincidences(ratings: list[list[int | None]]) -> None:
    found = krippendorff_alpha(ratings, num_resamples=20)
    check(found, -1, 1)
    expected = alpha_by_coincidences(ratings)
    if expected is None:
        assert found.value is None
        assert found.reason in ("no sample was rated by two judges", "all ratings are equal")
    else:
        assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.n == sum(len(row) - row.count(None) > 1 for row in ratings)


@settings(max_examples=examples(40))
@given(panels(st.integers(0, 1)))
def test_alpha_of_two_labels_is_that_for_names(ratings: list[list[int | None]]) -> None:
    expected = alpha_by_coincidences(ratings, power=0)
    found = krippendorff_alpha(ratings, num_resamples=20).value
    assert found is expected if expected is None else found == pytest.approx(expected, abs=1e-12)


@settings(max_examples=examples(40))
@given(panels(st.integers(0, 3)), st.permutations(range(4)))
def test_alpha_does_not_depend_on_scale_and_judges(ratings: list[list[int | None]], judges: list[int]) -> None:
    order = [judge for judge in judges if ratings and judge < len(ratings[0])]
    turned = [[row[judge] for judge in order] for row in ratings]
    packed = [[rating for rating in row if rating is not None] for row in ratings]
    scaled = [[None if rating is None else 0.1 * rating - 7 for rating in row] for row in ratings]

    def values(rows: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
        found = krippendorff_alpha(rows, num_resamples=20)
        return found.value, found.stderr, found.ci_low, found.ci_high

    for rows in (turned, packed, scaled):
        assert values(rows) == pytest.approx(values(ratings), abs=1e-9)


def test_bootstrap_of_alpha_draws_samples() -> None:
    """Against resamples that repeat rows; they are drawn by another generator, so that quantiles are near, not equal.

    The same seed gives the same interval, another seed another one.
    """
    random = np.random.default_rng(4)
    truth = random.integers(0, 4, 150)
    ratings = [[int(own) if random.random() < 0.7 else int(random.integers(4)) for _ in range(3)] for own in truth]
    found = krippendorff_alpha(ratings)
    assert found == krippendorff_alpha(ratings)
    assert found != krippendorff_alpha(ratings, seed=1)
    resampled = [alpha_by_coincidences([ratings[place] for place in random.integers(150, size=150)])
                 for _ in range(400)]  # fmt: skip
    values = [value for value in resampled if value is not None]
    assert found.stderr == pytest.approx(np.std(values), rel=0.12)
    assert (found.ci_low, found.ci_high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.03)


def test_an_interval_of_few_samples_reaches_alpha() -> None:
    """Nearly all resamples of these five have another alpha."""
    found = krippendorff_alpha([[0, -1], [0, 1], [2, 3], [0, 1], [2, 3]], num_resamples=20)
    check(found, -1, 1)
    assert found.value is not None
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.ci_low <= found.value <= found.ci_high


def test_panels_that_define_no_alpha() -> None:
    for rows in ([], [[1, None], [None, 2]], [[1], [2]]):
        expected = Estimate(value=None, n=0, reason="no sample was rated by two judges")
        assert krippendorff_alpha(rows) == expected
    assert krippendorff_alpha([[1, 1], [1, 1]]).reason == "all ratings are equal"
    assert krippendorff_alpha([[1, 2]]) == Estimate(value=0.0, n=1, reason="too few samples for a bootstrap")
    with pytest.raises(ValueError, match="found nan among the ratings"):
        krippendorff_alpha([[1, math.nan]])
    with pytest.raises(ValueError, match="ratings inf apart have no squared difference"):
        krippendorff_alpha([[1e308, -1e308]])
