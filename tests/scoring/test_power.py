from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.power import normal_power

from pytest_llmeval.scoring.statistics.paired_tests import (
    mcnemar_power,
    smallest_drop_of_mcnemar,
    smallest_drop_of_mean,
)
from tests.properties import examples


def connor(n: int, discordance: float, level: float, power: float) -> float:
    """The drop whose sample size by R. J. Connor (1987) is n."""
    z_level, z_power = stats.norm.isf(level), stats.norm.ppf(power)

    def excess(drop: float) -> float:
        spread = z_level * math.sqrt(discordance) + z_power * math.sqrt(discordance - drop**2)
        return float(spread**2 / drop**2 - n)

    return float(optimize.brentq(excess, 1e-6, discordance))


@pytest.mark.parametrize(
    ("n", "discordance", "level"), [(1000, 0.25, 0.05), (1000, 0.14, 0.0025), (14_042, 0.1, 0.01), (300, 0.3, 0.05)]
)
def test_smallest_drop_is_near_connors(n: int, discordance: float, level: float) -> None:
    found = smallest_drop_of_mcnemar(n, discordance, level)
    assert found is not None
    # The exact test is a little stricter than its normal approximation.
    assert connor(n, discordance, level, 0.9) < found < 1.06 * connor(n, discordance, level, 0.9)


@pytest.mark.parametrize(
    ("n", "discordance", "drop", "level"), [(1000, 0.25, 0.05, 0.05), (50, 0.0, 0.1, 0.05), (200, 0.1, 0.06, 0.01)]
)
def test_power_is_what_a_simulation_finds(n: int, discordance: float, drop: float, level: float) -> None:
    random = np.random.default_rng(1)
    flips = max(discordance, drop)
    worse, better, _ = random.multinomial(n, [(flips + drop) / 2, (flips - drop) / 2, 1 - flips], size=200_000).T
    found = stats.binom.sf(worse - 1, worse + better, 0.5) <= level
    assert mcnemar_power(n, discordance, drop, level) == pytest.approx(found.mean(), abs=0.005)


def test_power_by_hand() -> None:
    """Of 10 samples at most all become worse; at 0.05 five flips, all for the worse, are the fewest that are enough."""
    for_ten = sum(math.comb(10, count) * 0.3**count * 0.7 ** (10 - count) for count in range(5, 11))
    assert mcnemar_power(10, 0.0, 0.3, 0.05) == pytest.approx(for_ten, rel=1e-9)
    assert mcnemar_power(4, 0.0, 1.0, 0.05) == 0
    assert mcnemar_power(5, 0.0, 1.0, 0.05) == pytest.approx(1)
    assert mcnemar_power(100, 0.0, 0.0, 0.05) == 0


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(5, 3000), st.floats(0, 0.5), st.sampled_from([0.05, 0.01, 0.0025]))
def test_smallest_drop_is_found_and_a_smaller_one_is_not(n: int, discordance: float, level: float) -> None:
    found = smallest_drop_of_mcnemar(n, discordance, level)
    fewest = math.ceil(math.log2(1 / level))
    if n < fewest:
        assert found is None
    if found is None:
        assert mcnemar_power(n, discordance, 1.0, level) < 0.9
        return
    assert mcnemar_power(n, discordance, found, level) >= 0.9
    assert mcnemar_power(n, discordance, found - 2e-4, level) < 0.9
    # Never below what so few flips can show.
    assert stats.binom.sf(fewest - 1, n, max(found, discordance)) > 0.89


def test_smallest_drop_of_a_mean() -> None:
    """Statsmodels gives that effect in standard deviations: of 400 pairs with sd 2 the error is 0.1."""
    found = smallest_drop_of_mean(2 / math.sqrt(400), 0.0025)
    assert found is not None
    assert normal_power(found / 2, 400, 0.0025, alternative="larger") == pytest.approx(0.9, abs=1e-9)
    assert smallest_drop_of_mean(None, 0.05) is None
    assert smallest_drop_of_mean(0.0, 0.05) is None


def test_what_is_no_probability() -> None:
    with pytest.raises(ValueError, match="no power"):
        mcnemar_power(10, 0.1, 1.5, 0.05)
