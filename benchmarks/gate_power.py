"""How often the default gate finds a true drop of 5 points of 1,000 paired samples: at least 90% of the time.

    python -m benchmarks.gate_power [--sessions 4000]

For one suite up to discordance 0.25, and for a suite among 20, of which nothing has changed in the others, up to 0.14.
Prints a line for each setting, with what ``scoring/statistics/paired_tests.py`` says beside it; the exit code is 1
below 90%.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from benchmarks.gate_simulation import failed, flips, right_or_wrong
from pytest_llmeval.gates.options import BaselineSettings
from pytest_llmeval.scoring.statistics.paired_tests import POWER, mcnemar_power

N = 1000
DROP = 0.05
SETTINGS = ((1, 0.05), (1, 0.1), (1, 0.2), (1, 0.25), (20, 0.05), (20, 0.1), (20, 0.14))
"""Suites of the session, and discordance."""
_SEED = 20_260_102


def power(num_sessions: int, num_suites: int, discordance: float) -> float:
    """The share of sessions in which the one suite that became worse fails."""
    random = np.random.default_rng(_SEED)
    found = 0
    for _ in range(num_sessions):
        session = [
            right_or_wrong(
                random,
                flips(random, N, discordance=discordance, drop=0.0 if place else DROP),
                is_clustered=False,
            )
            for place in range(num_suites)
        ]
        found += failed(session)[0]
    return found / num_sessions


def main(arguments: list[str] | None = None) -> int:
    """Run the simulation; 1 where a drop is found too rarely."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=4000, help="simulated sessions for each setting")
    num_sessions = parser.parse_args(arguments).sessions
    alpha = BaselineSettings().alpha
    print(f"{num_sessions} sessions, a true drop of {DROP:.0%} of {N} paired samples in one suite")
    print(f"{'suites':>6} {'discordance':>12} {'found':>8} {'computed':>9} {'seconds':>8}")
    is_held = True
    for num_suites, discordance in SETTINGS:
        start = time.perf_counter()
        rate = power(num_sessions, num_suites, discordance)
        is_held &= rate >= POWER
        computed = mcnemar_power(N, discordance, DROP, alpha / num_suites)
        seconds = time.perf_counter() - start
        print(f"{num_suites:6} {discordance:12.2f} {rate:8.2%} {computed:9.2%} {seconds:8.0f}", flush=True)
    print("held" if is_held else f"NOT HELD: a drop is found less than {POWER:.0%} of the time")
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
