"""How often the 95% intervals hold the true value, by simulation: ``python -m benchmarks.interval_coverage``.

A line of the table is the share of simulated data sets whose interval holds the truth, averaged over proportions that
are uniform from 0.05 to 0.95, with the share in the worst of 18 ranges of them. The exit status is 1 where an average
lies outside 94% to 96%.

Three kinds of line are held to something else, and say so. Differences of which only a few flips are expected have so
few possible outcomes that they cannot help covering more. Student's t, which means have, covers less where values are
skewed, as Brier scores are: of clusters that are alike it may cover 93%; and of values that are mostly the same with
rare ones far away, as those of a model that is nearly always sure, what it covers is only shown.

Samples in clusters: the probabilities of a cluster have a beta distribution (of gained, lost and same pairs a Dirichlet
distribution), so that two of its samples are correlated by icc. Of means, it is the probabilities that are.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from pytest_llmeval.scoring.metrics.averages import macro_average
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.scoring.statistics.clustered import mean_interval, proportion_interval
from pytest_llmeval.scoring.statistics.intervals import wilson_interval
from pytest_llmeval.scoring.statistics.paired_proportions import flips_interval, paired_proportions_interval

LOWEST, HIGHEST = 94.0, 96.0
LOWEST_OF_MEANS = 93.0
"""For means over clusters that are alike."""
MIN_FLIPS = 5
"""Expected flips, of as many samples as the clusters are worth, below which an interval may cover more than 96%."""

NUM_RANGES = 18
"""Ranges of equal width, from 0.05 to 0.95, from which proportions are drawn."""
SIZES = (100, 250, 1000)
LAYOUTS = tuple(itertools.product((5, 10), (0.0, 0.3)))
"""Samples in a cluster, and the intra-cluster correlation."""
DISCORDANCES = (0.02, 0.1, 0.3)
NUM_PARTS = 5
EVEN, SKEWED = 10.0, 2.0
"""How closely the probabilities of a mean's values lie around p: ``a + b`` of their beta distribution."""
MIN_CLUSTERS = 20

Interval = tuple[float, float]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table. ``covered`` simulates a data set for each proportion: whether its interval holds it."""

    what: str
    n: int
    covered: Callable[[Floats, np.random.Generator], Iterator[bool]]
    cluster_size: int | None = None
    icc: float | None = None
    discordance: float | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """Between which the average has to lie, in percent."""
        design_effect = 1 + ((self.cluster_size or 1) - 1) * (self.icc or 0.0)
        if self.discordance is not None and self.n * self.discordance / design_effect < MIN_FLIPS:
            return LOWEST, 100.0
        if self.what == "skewed mean":
            return 0.0, 100.0
        return (LOWEST_OF_MEANS, HIGHEST) if self.what == "mean" and self.icc else (LOWEST, HIGHEST)


def cases() -> Iterator[Case]:
    """All lines, those that take no time first."""
    for n in SIZES:
        yield Case("proportion", n, partial(covered_by_wilson, n))
        yield Case("macro", n, partial(covered_by_macro, n))
    for n, discordance in itertools.product(SIZES, DISCORDANCES):
        yield Case("difference", n, partial(covered_by_paired, n, discordance), discordance=discordance)
    for n in SIZES:
        yield Case("mean", n, partial(covered_by_mean, n, None, 0.0, EVEN))
        yield Case("skewed mean", n, partial(covered_by_mean, n, None, 0.0, SKEWED))
    for n, (size, icc) in itertools.product(SIZES, LAYOUTS):
        if n // size < MIN_CLUSTERS:
            continue
        yield Case("proportion", n, partial(covered_by_clustered, n, size, icc), size, icc)
        yield Case("mean", n, partial(covered_by_mean, n, size, icc, EVEN), size, icc)
        yield Case("skewed mean", n, partial(covered_by_mean, n, size, icc, SKEWED), size, icc)
        for discordance in DISCORDANCES:
            covered = partial(covered_by_flips, n, discordance, size, icc)
            yield Case("difference", n, covered, size, icc, discordance)


def covered_by_wilson(n: int, p: Floats, random: np.random.Generator) -> Iterator[bool]:
    """Of independent right and wrong answers."""
    for successes, truth in zip(random.binomial(n, p).tolist(), p.tolist(), strict=True):
        yield holds(_wilson(successes, n), truth)


def covered_by_clustered(n: int, size: int, icc: float, p: Floats, random: np.random.Generator) -> Iterator[bool]:
    """Of right and wrong answers in clusters."""
    clusters = numbers(n, size)
    chances = in_clusters(np.stack([p, 1 - p], axis=1), n // size, icc, random)[:, :, 0]
    answers = random.random((len(p), n)) < np.repeat(chances, size, axis=1)
    for row, truth in zip(answers.astype(float).tolist(), p.tolist(), strict=True):
        yield holds(proportion_interval(row, clusters), truth)


def covered_by_mean(
    n: int, size: int | None, icc: float, closeness: float, p: Floats, random: np.random.Generator
) -> Iterator[bool]:
    """Of ``(1 - q)²``, the Brier score of two options, where the right one's probability q has a beta distribution.

    Its mean is p, and that of a cluster lies around p; ``closeness`` is ``a + b`` within a cluster.
    """
    of_clusters = 1 / (1 + (1 + closeness) * (1 - icc) / icc) if icc else 0.0
    shares = np.stack([p, 1 - p], axis=1)
    chances = np.repeat(in_clusters(shares, n // (size or 1), of_clusters, random), size or 1, axis=1) * closeness
    values = (1 - random.beta(chances[:, :, 0], chances[:, :, 1])) ** 2
    # The variance of q, of clusters and within them, and the square of the mean of 1 - q.
    variance = p * (1 - p) * (of_clusters + (1 - of_clusters) / (1 + closeness))
    truths = (variance + (1 - p) ** 2).tolist()
    clusters = None if size is None else numbers(n, size)
    for row, truth in zip(values.tolist(), truths, strict=True):
        yield holds(mean_interval(row, clusters), truth)


def covered_by_paired(n: int, discordance: float, p: Floats, random: np.random.Generator) -> Iterator[bool]:
    """Of independent pairs, a share p of whose flips is gained."""
    shares = flips(discordance, p)
    for (up, down, _), (gained, lost, _) in zip(random.multinomial(n, shares).tolist(), shares.tolist(), strict=True):
        yield holds(_paired(up, down, n), gained - lost)


def covered_by_flips(
    n: int, discordance: float, size: int, icc: float, p: Floats, random: np.random.Generator
) -> Iterator[bool]:
    """Of pairs in clusters."""
    shares, clusters = flips(discordance, p), numbers(n, size)
    chances = np.repeat(in_clusters(shares, n // size, icc, random), size, axis=1)
    uniform = random.random((len(p), n))
    differences = (uniform < chances[:, :, 0]).astype(float) - (uniform > 1 - chances[:, :, 1])
    for row, (gained, lost, _) in zip(differences.tolist(), shares.tolist(), strict=True):
        yield holds(flips_interval(row, clusters), gained - lost)


def covered_by_macro(n: int, p: Floats, random: np.random.Generator) -> Iterator[bool]:
    """Of the mean over parts of one size, whose proportions lie around p, up to 0.8 of the way to 0 or 1."""
    spread = np.minimum(p, 1 - p)[:, None] * 0.8 * np.linspace(-1, 1, NUM_PARTS)
    size = n // NUM_PARTS
    for successes, truth in zip(random.binomial(size, p[:, None] + spread).tolist(), p.tolist(), strict=True):
        average = macro_average({"accuracy": _accuracy(own, size)} for own in successes)["accuracy"]
        yield average.ci_low is not None and average.ci_high is not None and average.ci_low <= truth <= average.ci_high


def flips(discordance: float, p: Floats) -> Floats:
    """For each p the probabilities that a pair is gained, lost, and the same."""
    return np.stack([discordance * p, discordance * (1 - p), np.full(len(p), 1 - discordance)], axis=1)


def in_clusters(shares: Floats, num_clusters: int, icc: float, random: np.random.Generator) -> Floats:
    """For each row of probabilities those of every cluster: a Dirichlet distribution, of two a beta distribution."""
    shape = (len(shares), num_clusters, shares.shape[1])
    if not icc:
        return np.broadcast_to(shares[:, None, :], shape)
    # Raised to the power of 1 / a, a uniform number makes a gamma variable of shape a + 1 one of shape a, and its
    # logarithm is finite where the variable itself would be too small for a float.
    wide = np.broadcast_to(shares[:, None, :] * (1 - icc) / icc, shape)
    logs = np.log(random.gamma(wide + 1)) + np.log1p(-random.random(shape)) / wide
    weights = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def numbers(n: int, size: int) -> list[int]:
    """The cluster of each of n samples."""
    return [place // size for place in range(n)]


def holds(interval: Interval | None, truth: float) -> bool:
    """Where there is no interval, nothing is held."""
    return interval is not None and interval[0] <= truth <= interval[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where an average is not what it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=500, help="data sets for each of 18 ranges (default: 500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=["proportion", "mean", "skewed mean", "difference", "macro"], help="only these lines"
    )
    parser.add_argument("--largest", type=int, default=max(SIZES), help="leave out lines of more samples than this")
    options = parser.parse_args(arguments)
    print(f"{'of a':<11} {'n':>5} {'cluster of':>10} {'icc':>4} {'flips':>6} {'covered %':>9} {'worst %':>8}")
    failed = False
    for case in cases():
        if case.n > options.largest or options.only not in (None, case.what):
            continue
        random = np.random.default_rng(options.seed)
        shares = []
        for low in np.linspace(0.05, 0.95, NUM_RANGES, endpoint=False):
            proportions = low + random.random(options.draws) * 0.9 / NUM_RANGES
            shares.append(100 * float(np.mean(list(case.covered(proportions, random)))))
        average, (low, high) = float(np.mean(shares)), case.limits
        failed |= not low <= average <= high
        layout = ["-" if value is None else f"{value:g}" for value in (case.cluster_size, case.icc, case.discordance)]
        said = "" if (low, high) == (LOWEST, HIGHEST) else f"  held to {low:g} to {high:g}" if low else "  shown only"
        said += "" if low <= average <= high else "  FAILED"
        print(
            f"{case.what:<11} {case.n:>5} {layout[0]:>10} {layout[1]:>4} {layout[2]:>6} {average:>9.1f} "
            f"{min(shares):>8.1f}{said}",
            flush=True,
        )
    return int(failed)


@cache
def _wilson(successes: int, n: int) -> Interval:
    return wilson_interval(successes, n)


@cache
def _paired(gained: int, lost: int, n: int) -> Interval:
    return paired_proportions_interval(gained, lost, n)


def _accuracy(successes: int, n: int) -> Metric:
    share = successes / n
    low, high = wilson_interval(successes, n)
    stderr = math.sqrt(share * (1 - share) / (n - 1))
    return Metric(value=share, n=n, kind="proportion", stderr=stderr, ci_low=low, ci_high=high)


if __name__ == "__main__":
    sys.exit(main())
