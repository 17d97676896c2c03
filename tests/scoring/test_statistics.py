from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from pytest_llmeval.scoring.statistics.clustered import mean_interval, standard_error
from pytest_llmeval.scoring.statistics.intervals import bootstrap_of_sums, mean, wilson_interval, with_width
from tests.scoring.expected_intervals import of_mean

FINITE = st.floats(-1e6, 1e6)
EIGHTHS = st.integers(-1000, 1000).map(lambda number: number / 8)
"""Values whose sums are exact: scipy warns of those that are nearly equal."""


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_is_that_of_statsmodels(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts
    expected = proportion_confint(k, n, alpha=1 - confidence, method="wilson")
    assert wilson_interval(k, n, confidence) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(k: int, n: int, low: float, high: float) -> None:
    """R. G. Newcombe, 1998, Statistics in Medicine 17:857, table I, method 3 (score, no continuity correction)."""
    found_low, found_high = wilson_interval(k, n)
    assert (round(found_low, 4), round(found_high, 4)) == (low, high)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (7, 10), (1, 3)])
def test_wilson_is_that_of_scipy(k: int, n: int) -> None:
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert wilson_interval(k, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_by_hand() -> None:
    # Without a success of n the upper end is z² / (n + z²); 1.959964² = 3.841459.
    assert wilson_interval(0, 10) == pytest.approx((0.0, 3.841459 / 13.841459), abs=1e-7)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == 1.0


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion_and_stays_in_its_range(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = wilson_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert low < high


@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_what_is_no_proportion(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="have no proportion"):
        wilson_interval(k, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_level_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        wilson_interval(1, 2, confidence)
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean_interval([1.0, 2.0], confidence=confidence)


@given(st.lists(EIGHTHS, min_size=2, max_size=50))
def test_standard_error_is_that_of_scipy(values: list[float]) -> None:
    assert standard_error(values) == pytest.approx(stats.sem(values), rel=1e-9, abs=1e-9)


def test_standard_error_by_hand() -> None:
    # Deviations of 1, 2, 3, 4 from 2.5: squares 2.25 + 0.25 + 0.25 + 2.25 = 5; 5 / 3 / 4 = 5/12.
    assert standard_error([1, 2, 3, 4]) == pytest.approx(math.sqrt(5 / 12), rel=1e-15)


@given(st.lists(EIGHTHS, min_size=2, max_size=50).filter(lambda values: len(set(values)) > 1))
def test_mean_interval_is_that_of_scipy(values: list[float]) -> None:
    """Student's t, and beyond it where the values are skewed."""
    found = mean_interval(values)
    assert found == pytest.approx(of_mean(values), rel=1e-8, abs=1e-6)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=stats.sem(values))
    assert found is not None
    assert found[0] <= low + 1e-9
    assert found[1] >= high - 1e-9


def test_of_values_that_are_not_skewed_the_interval_is_students() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    expected = stats.t.interval(0.95, 4, loc=3, scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx(expected, rel=1e-12)


def test_one_value_has_no_interval() -> None:
    assert standard_error([0.5]) is None
    assert mean_interval([0.5]) is None


@given(st.lists(FINITE, min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_no_digit(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert (mean(shuffled), standard_error(shuffled)) == (mean(values), standard_error(values))
    assert mean_interval(shuffled) == mean_interval(values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_is_averaged_over_nan(bad: float) -> None:
    for statistic in (mean, standard_error, mean_interval):
        with pytest.raises(ValueError, match="nothing is averaged over it"):
            statistic([0.5, bad])


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="mean of no values"):
        mean([])


def test_a_bootstrap_needs_values_of_nearly_all_resamples() -> None:
    """Of two samples a quarter of the resamples hold the first alone, of six with one such hardly any."""

    def positive(sums: Sequence[float]) -> float | None:
        return sums[0] or None

    assert bootstrap_of_sums([[0.0], [1.0]], positive) is None
    assert bootstrap_of_sums([[0.0], *[[1.0]] * 5], positive) is not None


def test_no_width_is_no_interval() -> None:
    assert with_width((0.1, 0.1 + 1e-15)) is None
    assert with_width(None) is None
    assert with_width((0.1, 0.2)) == (0.1, 0.2)
