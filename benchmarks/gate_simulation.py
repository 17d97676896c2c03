"""Simulated runs of suites that are compared with a baseline: what the simulations of the gate share."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from pytest_llmeval.gates.options import BaselineSettings
from pytest_llmeval.gates.regressions import fails, numeric_noise
from pytest_llmeval.reporting.report.report import Regression
from pytest_llmeval.scoring.statistics.paired_tests import FamilyTest, PairedValues, run_family

CLUSTER_SIZE = 5


def flips(
    random: np.random.Generator, n: int, *, discordance: float, drop: float = 0.0, correlation: float = 0.0
) -> NDArray[np.int64]:
    """For each of ``n`` samples -1 (became wrong), 1 (became right) or 0, in clusters of ``CLUSTER_SIZE``.

    Two samples of a cluster have this correlation: each takes what its cluster drew with probability
    ``sqrt(correlation)``, else what it drew itself.
    """
    shares = [(discordance + drop) / 2, 1 - discordance, (discordance - drop) / 2]
    own = random.choice([-1, 0, 1], size=n, p=shares)
    if not correlation:
        return own
    shared = np.repeat(random.choice([-1, 0, 1], size=-(-n // CLUSTER_SIZE), p=shares), CLUSTER_SIZE)[:n]
    return np.where(random.random(n) < correlation**0.5, shared, own)


def right_or_wrong(random: np.random.Generator, changes: NDArray[np.int64], *, is_clustered: bool) -> PairedValues:
    """Two runs' right and wrong answers that differ by ``changes``; seven in ten of the others are right."""
    steady = random.random(len(changes)) < 0.7
    first = np.where(changes == 0, steady, changes < 0).astype(float)
    return paired(first, first + changes, is_clustered=is_clustered)


def paired(first: NDArray[np.float64], second: NDArray[np.float64], *, is_clustered: bool) -> PairedValues:
    """Two runs' values, in clusters that are named where the suite names them."""
    clusters = (np.arange(len(first)) // CLUSTER_SIZE).tolist() if is_clustered else None
    return PairedValues(first=first.tolist(), second=second.tolist(), clusters=clusters)


def failed(session: Sequence[PairedValues]) -> list[bool]:
    """Which suites of the session fail the gate with its default settings."""
    settings = BaselineSettings()
    tested = zip(session, run_family(session, settings.alpha), strict=True)
    return [fails(regression(suite, found, settings, len(session)), None) for suite, found in tested]


def regression(suite: PairedValues, found: FamilyTest, settings: BaselineSettings, family: int) -> Regression:
    """As much of what a session finds about a suite as decides its gate."""
    first, second = fmean(suite.first), fmean(suite.second)
    return Regression(
        mode=settings.mode,
        metric="accuracy",
        higher_is_better=True,
        n=len(suite.first),
        baseline=first,
        current=second,
        difference=second - first,
        ci_low=None,
        ci_high=None,
        drop=-fmean(suite.gains()),
        margin=suite.margin,
        noise=numeric_noise(first),
        method=found.test.method,
        p_value=found.test.p_drop,
        p_adjusted=found.p_drop,
        p_improved=found.test.p_improved,
        p_improved_adjusted=found.p_improved,
        family=family,
        alpha=settings.alpha,
    )
