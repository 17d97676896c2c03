"""How often the default gate fails a session in which nothing has changed: at most 5% of them may.

    python -m benchmarks.gate_false_alarms [--sessions 2000]

Prints a line for each setting; the exit code is 1 where a rate is above 5%. Suites of right and wrong answers are
tested exactly; the last lines, of numbers that are no right or wrong, test the Monte Carlo sign-flip, and are held to
5% and three standard errors of the simulation, for their rate is as near to 5% as can be.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.gate_simulation import CLUSTER_SIZE, failed, flips, paired, right_or_wrong
from pytest_llmeval.scoring.statistics.paired_tests import PairedValues

NUM_SUITES = 20
DISCORDANCES = (0.0, 0.02, 0.1, 0.3)
SIZES = (50, 250, 1000)
CORRELATIONS = (0.0, 0.3)
ALLOWED = 0.05
_SEED = 20_260_101


def false_alarm_rate(num_sessions: int, suite: Callable[[np.random.Generator], PairedValues]) -> float:
    """The share of sessions of ``NUM_SUITES`` suites in which any of them fails."""
    random = np.random.default_rng(_SEED)
    return sum(any(failed([suite(random) for _ in range(NUM_SUITES)])) for _ in range(num_sessions)) / num_sessions


def exact_suite(n: int, discordance: float, correlation: float) -> Callable[[np.random.Generator], PairedValues]:
    """A suite of right and wrong answers, in clusters where they are correlated."""

    def suite(random: np.random.Generator) -> PairedValues:
        changes = flips(random, n, discordance=discordance, correlation=correlation)
        return right_or_wrong(random, changes, is_clustered=correlation > 0)

    return suite


def drawn_suite(n: int, correlation: float) -> Callable[[np.random.Generator], PairedValues]:
    """A suite of numbers whose differences have heavy tails (Student's t with 3 degrees of freedom)."""

    def suite(random: np.random.Generator) -> PairedValues:
        shared = np.repeat(random.standard_t(3, size=n // CLUSTER_SIZE), CLUSTER_SIZE)
        differences = correlation**0.5 * shared + (1 - correlation) ** 0.5 * random.standard_t(3, size=n)
        return paired(np.zeros(n), differences, is_clustered=correlation > 0)

    return suite


def main(arguments: list[str] | None = None) -> int:
    """Run the simulation; 1 where a rate is too high."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=2000, help="simulated sessions for each setting")
    num_sessions = parser.parse_args(arguments).sessions
    print(f"{num_sessions} sessions of {NUM_SUITES} suites in which nothing has changed")
    print(f"{'metric':8} {'n':>5} {'discordance':>12} {'correlation':>12} {'false alarms':>13} {'seconds':>8}")
    is_held = True
    noise = 3 * (ALLOWED * (1 - ALLOWED) / num_sessions) ** 0.5
    settings = [
        ("right", n, f"{discordance:.2f}", correlation, exact_suite(n, discordance, correlation), ALLOWED)
        for correlation, discordance, n in itertools.product(CORRELATIONS, DISCORDANCES, SIZES)
    ]
    settings += [
        ("numbers", 250, "", correlation, drawn_suite(250, correlation), ALLOWED + noise)
        for correlation in CORRELATIONS
    ]
    for metric, n, discordance, correlation, suite, allowed in settings:
        start = time.perf_counter()
        rate = false_alarm_rate(num_sessions, suite)
        is_held &= rate <= allowed
        seconds = time.perf_counter() - start
        print(f"{metric:8} {n:5} {discordance:>12} {correlation:12.1f} {rate:13.2%} {seconds:8.0f}", flush=True)
    print("held" if is_held else f"NOT HELD: a rate is above {ALLOWED:.0%}")
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
