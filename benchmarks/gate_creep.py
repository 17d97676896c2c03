"""How often the gate against several reports finds ten drops of a point each, and how often it fails without any.

    python -m benchmarks.gate_creep [--histories 400] [--samples 1000]

Suites of which 10% of the samples differ between two runs. ``even``: the model is unsure of a fifth of the samples,
and answers these anew in each run, half of them right. ``hard``: it is unsure of more than half of them, and answers a
tenth of these right, so that the differences from a mean are skewed. ``kept``: what flipped stays so until it flips
back, as after changes of a model that always answers the same.

The others are as ``hard``. ``gaps``: each run lacks a tenth of the samples; those that the latest run lacks, or this
one, are left out. ``pairs``: two samples share a passage, and are answered alike. ``epochs``: each answer is the mean
of two. ``graded``: a right answer of which the model is unsure has a score, and few of these are high.

Each session is tested as ``--llm-baseline 'runs/*.json'`` tests it, by the gate's own functions: against each sample's
mean over the last five runs, and against the oldest run, one family under Holm (``tests/benchmarks`` compares this with
whole reports). ``latest`` is the share of sessions in which a comparison with the latest run alone finds something.

Prints a line for each setting; the exit code is 1 if fewer than 90% of histories of drops are found, or if more than 5%
of the sessions fail without a change (by more than three standard errors).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.gate_simulation import failed
from pytest_llmeval.gates.earlier_reports import LAST
from pytest_llmeval.gates.options import BaselineSettings
from pytest_llmeval.scoring.statistics.paired_tests import POWER, PairedValues

N = 1000
DISCORDANCE = 0.1
DROP = 0.01
NUM_RUNS = 11
"""The first run, and ten more."""
_CHANCE = 0.1
"""How often a sample of which the model is unsure is right, but for ``even``, which is right every other time."""
MODELS = ("even", "hard", "gaps", "pairs", "epochs", "graded", "kept")
_GAPS = 0.1
_SEED = 20_260_103

Answers = NDArray[np.float64]


def history(model: str, random: np.random.Generator, drop: float, n: int = N) -> Iterator[Answers]:
    """Yield the ``n`` answers of the runs of a model, one of ``MODELS``, that is worse by ``drop`` in each run.

    NaN stands for a sample that a run lacks.
    """
    if model == "kept":
        yield from kept(random, drop, n)
        return
    for chances in drawn_chances(drop, n, 0.5 if model == "even" else _CHANCE):
        answers = (random.random(n) < chances).astype(float)
        if model == "gaps":
            answers[random.random(n) < _GAPS] = np.nan
        if model == "pairs":
            answers[1::2] = answers[: n - n % 2 : 2]
        if model == "epochs":
            answers = (answers + (random.random(n) < chances)) / 2
        if model == "graded":
            answers *= np.where(chances == 1, 1.0, np.minimum(1.0, random.exponential(0.2, n)))
        yield answers


def clusters_of(model: str, n: int) -> list[int] | None:
    """Return what each sample of a model's suite shares with others."""
    return [place // 2 for place in range(n)] if model == "pairs" else None


def drawn_chances(drop: float, n: int, chance: float) -> Iterator[Answers]:
    """Yield how often each sample is right in a run: unsure ones by this chance, so many that a tenth differs between
    two runs.

    With each run's drop samples that were always right are always wrong from then on.
    """
    num_unsure = round(DISCORDANCE * n / (2 * chance * (1 - chance)))
    chances = np.where(np.arange(n) < num_unsure, chance, 1.0)
    chances[-n // 5 :] = 0.0
    for place in range(NUM_RUNS):
        now = chances.copy()
        now[num_unsure : num_unsure + round(place * drop * n)] = 0.0
        yield now


def kept(random: np.random.Generator, drop: float, n: int) -> Iterator[Answers]:
    """Yield runs each of which differs from the one before in a tenth of the samples, more of them for the worse.

    Each sample flips by itself, at rates by which the expected share of right ones is 0.7 less the drops so far.
    """
    right = 0.7
    answers = (random.random(n) < right).astype(float)
    yield answers
    for _ in range(NUM_RUNS - 1):
        rates = (DISCORDANCE + drop) / 2 / right, (DISCORDANCE - drop) / 2 / (1 - right)
        flips = random.random(n) < np.where(answers == 1, rates[0], rates[1])
        answers = np.where(flips, 1 - answers, answers)
        right -= drop
        yield answers


def tests_of(runs: Sequence[Answers], now: Answers, clusters: Sequence[int] | None) -> list[PairedValues]:
    """Return the tests of a session whose earlier runs are ``runs``, in the order of time."""
    oldest = paired(runs[:1], now, clusters)
    return [oldest] if len(runs) == 1 else [paired(runs[-LAST:], now, clusters), oldest]


def paired(runs: Sequence[Answers], now: Answers, clusters: Sequence[int] | None) -> PairedValues:
    """Return the test of a run against the mean of others, of the samples that the last one of these has."""
    both = ~np.isnan(runs[-1]) & ~np.isnan(now)
    own = np.array(runs)[:, both]
    return PairedValues(
        first=np.nanmean(own, axis=0).tolist(),
        second=now[both].tolist(),
        clusters=None if clusters is None else np.array(clusters)[both].tolist(),
        runs=[[None if np.isnan(value) else value for value in run] for run in own.tolist()],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Counts: histories in which a session failed, sessions, those that failed, and those that a comparison with the
    latest run alone would have failed.
    """

    num_histories: int
    num_found: int
    num_sessions: int
    num_failed: int
    num_failed_by_latest: int


def simulate(num_histories: int, model: str, drop: float, num_suites: int = 1, n: int = N) -> Found:
    """Run histories in which the first of ``num_suites`` suites drops with each run, and nothing changes in others."""
    random = np.random.default_rng(_SEED)
    found = sessions = failures = by_latest = 0
    clusters = clusters_of(model, n)
    for _ in range(num_histories):
        suites = [list(history(model, random, 0.0 if place else drop, n)) for place in range(num_suites)]
        outcomes = []
        for place in range(1, NUM_RUNS):
            tests = [test for runs in suites for test in tests_of(runs[:place], runs[place], clusters)]
            outcomes.append(any(failed(tests)))
            latest = [paired(runs[place - 1 : place], runs[place], clusters) for runs in suites]
            by_latest += any(failed(latest))
        found += any(outcomes)
        sessions += len(outcomes)
        failures += sum(outcomes)
    return Found(
        num_histories=num_histories,
        num_found=found,
        num_sessions=sessions,
        num_failed=failures,
        num_failed_by_latest=by_latest,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the simulation; 1 where drops are found too rarely, or where sessions fail too often without a change."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=400, help="simulated histories for each setting")
    parser.add_argument("--samples", type=int, default=N, help="samples of each suite")
    options = parser.parse_args(arguments)
    num_histories, n = options.histories, options.samples
    alpha = BaselineSettings().alpha
    print(f"{num_histories} histories of {NUM_RUNS} runs of {n} samples, {DISCORDANCE:.0%} of which differ")
    print(f"{'model':>6} {'suites':>6} {'drop':>6} {'histories':>10} {'sessions':>9} {'latest':>8} {'seconds':>8}")
    is_held = True
    for model in MODELS:
        for num_suites, drop in ((1, DROP), (1, 0.0), (5, 0.0)):
            start = time.perf_counter()
            one = simulate(num_histories, model, drop, num_suites, n)
            found, alarms = one.num_found / num_histories, one.num_failed / one.num_sessions
            # Sessions of a history share runs: as independent ones there are as many as histories.
            most = alpha + 3 * (alpha * (1 - alpha) / num_histories) ** 0.5
            is_held &= found >= POWER if drop else alarms <= most
            print(
                f"{model:>6} {num_suites:6} {drop:6.2f} {found:10.1%} {alarms:9.2%} "
                f"{one.num_failed_by_latest / one.num_sessions:8.2%} {time.perf_counter() - start:8.0f}",
                flush=True,
            )
    print("held" if is_held else f"NOT HELD: below {POWER:.0%} of drops, or above {alpha:.0%} of sessions")
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
