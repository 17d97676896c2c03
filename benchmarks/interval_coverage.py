"""How often the 95% intervals hold the true value, by simulation: ``python -m benchmarks.interval_coverage``.

The table of ``docs/statistics.md``: a cell is the share of simulated data sets whose interval holds the truth, in
percent, of those that have an interval; where more than 1% have none, how many, too. The exit status is 1 where a share
of 100 or 1,000 samples is below 93%; those of 30 are shown as they are.

Intervals are those of a report: of metrics with limits where the values have some (accuracy, F1), else of a number of
one's own. Samples in clusters have a part that those of a cluster share, so that two of them are correlated by 0.3; of
right and wrong answers it is the probabilities, which have a beta distribution. Unequal clusters are as many as equal
ones, with sizes that are quantiles of a lognormal distribution with sigma 1, or one of them holds a quarter of all
samples.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pytest_llmeval.scoring.metrics.averages import macro_average
from pytest_llmeval.scoring.metrics.summary import Metric, summarize
from pytest_llmeval.scoring.model_differences import difference_of_values
from pytest_llmeval.types import Score

LOWEST = 93.0
SIZES = (30, 100, 1000)
MIN_HELD = 100
"""Samples, below which what an interval covers is only shown."""
CORRELATION = 0.3

Interval = tuple[float, float]
Floats = NDArray[np.float64]
Random = np.random.Generator
Drawn = tuple[Interval | None, float]
"""The interval of a data set, and what it should hold."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: ``draw`` simulates a data set of so many samples, None where there is none of so few."""

    group: str
    what: str
    draw: Callable[[int, Random], Drawn | None]


def rows() -> Iterator[Row]:
    for share in (0.5, 0.8, 0.95):
        yield Row("proportion", f"share {share:g}", partial(of_share, share))
    yield Row("proportion", "share drawn from 0.05 to 0.95", partial(of_share, None))
    for what, values in VALUES.items():
        yield Row("mean", what, partial(of_values, values))
    for layout in LAYOUTS:
        for share in (0.5, 0.8):
            yield Row("clusters", f"{layout}, share {share:g}", partial(of_clustered_share, layout, share))
        for what in ("normal", "exponential"):
            yield Row("clusters", f"{layout}, {what} values", partial(of_clustered_values, layout, what))
    for layout in FEW:
        yield Row("clusters", f"{layout}, share 0.95", partial(of_clustered_share, layout, 0.95))
        lognormal = "lognormal, sigma 1"
        yield Row("clusters", f"{layout}, {lognormal} values", partial(of_clustered_values, layout, lognormal))
    for num_parts in (5, 20, 57):
        for share in (0.8, 0.95):
            yield Row("macro", f"{num_parts} parts, share {share:g}", partial(of_parts, num_parts, share, 0.0))
        yield Row("macro", f"{num_parts} parts, shares from 0.62 to 0.98", partial(of_parts, num_parts, 0.8, 0.9))
        yield Row("macro", f"{num_parts} parts, exponential values", partial(of_parts_of_values, num_parts))
    for discordance in (0.02, 0.1, 0.3):
        yield Row("difference", f"{discordance:.0%} of answers flip", partial(of_flips, discordance, None))
    for what in ("normal", "exponential", "2% of 1, else 0"):
        yield Row("difference", f"{what} values", partial(of_changes, VALUES[what]))
    for layout in LAYOUTS:
        yield Row("difference", f"{layout}, 10% of answers flip", partial(of_flips, 0.1, layout))
    yield Row("perplexity", "texts of lognormal length", of_texts)


@dataclass(frozen=True, slots=True)
class Values:
    """A distribution: how to draw from it, its mean, and the metric whose values it could be."""

    draw: Callable[[int, Random], Floats]
    mean: float
    metric: str = "rating"


def rare(share: float, values: Callable[[int, Random], Floats]) -> Callable[[int, Random], Floats]:
    """Values of which this share is drawn, and the others are 0."""
    return lambda n, random: np.where(random.random(n) < share, values(n, random), 0.0)


def sure(n: int, random: Random) -> Floats:
    """Brier scores of a model that is nearly always sure, and right: squares of a U-shaped beta distribution."""
    return random.beta(0.1, 1.9, n) ** 2


def ones(n: int, random: Random) -> Floats:
    return np.ones(n)


def uniform(n: int, random: Random) -> Floats:
    return random.random(n)


VALUES = {
    "normal": Values(lambda n, random: random.normal(size=n), 0.0),
    "long-tailed (t with 3 degrees of freedom)": Values(lambda n, random: random.standard_t(3, size=n), 0.0),
    "exponential": Values(lambda n, random: random.exponential(size=n), 1.0),
    "lognormal, sigma 1": Values(lambda n, random: random.lognormal(size=n), math.exp(0.5)),
    "Brier scores of a sure model": Values(sure, 0.1 * 1.1 / (2 * 3), "brier"),
    "5% from 0 to 1, else 0": Values(rare(0.05, uniform), 0.025, "f1"),
    "2% from 0 to 1, else 0": Values(rare(0.02, uniform), 0.01, "f1"),
    "2% of 1, else 0": Values(rare(0.02, ones), 0.02, "f1"),
    "2% exponential, else 0": Values(rare(0.02, lambda n, random: random.exponential(size=n)), 0.02),
}

LAYOUTS = ("clusters of 5", "10 clusters", "lognormal sizes", "one of a quarter")
FEW = ("10 clusters", "20 clusters")


@cache
def sizes_of(layout: str, n: int) -> tuple[int, ...] | None:
    """The sizes of n samples' clusters, none where they would be fewer than 10, or of one sample each."""
    if layout in FEW:
        count = int(layout.split()[0])
        return None if n < 2 * count else (n // count,) * count
    count = n // 5
    if count < 10:
        return None
    if layout == "clusters of 5":
        return (5,) * count
    if layout == "one of a quarter":
        rest, more = divmod(n - n // 4, count - 1)
        return (n // 4, *(rest + (place < more) for place in range(count - 1)))
    weights = stats.lognorm.ppf((np.arange(count) + 0.5) / count, 1.0)
    return tuple(np.maximum(1, np.round(weights / weights.sum() * n)).astype(int).tolist())


def of_share(share: float | None, n: int, random: Random) -> Drawn:
    truth = float(random.uniform(0.05, 0.95)) if share is None else share
    return ends(accuracy(int(random.binomial(n, truth)), n)), truth


def of_values(values: Values, n: int, random: Random) -> Drawn:
    return ends(summarized(values.metric, values.draw(n, random))), values.mean


def of_clustered_share(layout: str, share: float, n: int, random: Random) -> Drawn | None:
    sizes = sizes_of(layout, n)
    if sizes is None:
        return None
    answers = random.random(sum(sizes)) < np.repeat(in_clusters([share, 1 - share], len(sizes), random)[:, 0], sizes)
    return ends(summarized("accuracy", answers.astype(float), sizes)), share


def of_clustered_values(layout: str, what: str, n: int, random: Random) -> Drawn | None:
    sizes = sizes_of(layout, n)
    if sizes is None:
        return None
    draw, mean = VALUES[what].draw, VALUES[what].mean
    shared = np.repeat(draw(len(sizes), random) - mean, sizes) * math.sqrt(CORRELATION)
    values = shared + (draw(sum(sizes), random) - mean) * math.sqrt(1 - CORRELATION)
    return ends(summarized("rating", values, sizes)), 0.0


def of_parts(num_parts: int, share: float, spread: float, n: int, random: Random) -> Drawn | None:
    """Of the mean over parts whose shares lie around one, up to ``spread`` of the way to 0 or 1."""
    if n < num_parts:
        return None
    truths = share + min(share, 1 - share) * spread * np.linspace(-1, 1, num_parts)
    sizes = [len(part) for part in np.array_split(np.arange(n), num_parts)]
    found = [
        {"accuracy": accuracy(int(right), size)}
        for right, size in zip(random.binomial(sizes, truths), sizes, strict=True)
    ]
    return ends(macro_average(found)["accuracy"]), float(truths.mean())


def of_parts_of_values(num_parts: int, n: int, random: Random) -> Drawn | None:
    if n < num_parts:
        return None
    values = np.array_split(random.exponential(size=n), num_parts)
    return ends(macro_average([{"rating": summarized("rating", part)} for part in values])["rating"]), 1.0


def of_flips(discordance: float, layout: str | None, n: int, random: Random) -> Drawn | None:
    """Two thirds of the answers that flip become wrong."""
    shares = [discordance / 3, 2 * discordance / 3, 1 - discordance]
    sizes = (1,) * n if layout is None else sizes_of(layout, n)
    if sizes is None:
        return None
    chances = np.tile(shares, (len(sizes), 1)) if layout is None else in_clusters(shares, len(sizes), random)
    chances, uniform = np.repeat(chances, sizes, axis=0), random.random(sum(sizes))
    gained, lost = uniform < chances[:, 0], uniform > 1 - chances[:, 1]
    first, second = np.where(lost, 1.0, 0.0), np.where(gained, 1.0, 0.0)
    return changed("accuracy", first, second, None if layout is None else sizes), shares[0] - shares[1]


def of_changes(values: Values, n: int, random: Random) -> Drawn:
    """Of samples whose first value is uniform, and whose second one differs by what is drawn."""
    first = random.random(n) if values.metric == "rating" else np.zeros(n)
    return changed(values.metric, first, first + values.draw(n, random)), values.mean


def of_texts(n: int, random: Random) -> Drawn:
    """Of texts that have 55 words in the median and 90 on average, and each a rate of its own around 3 nats a word."""
    words = np.ceil(random.lognormal(4, 1, n))
    nats = words * (3 + 0.8 * random.normal(size=n) + 2 / np.sqrt(words) * random.normal(size=n))
    texts = [
        Score(status="scored", values={"loglikelihood": -own, "words": count})
        for own, count in zip(nats.tolist(), words.tolist(), strict=True)
    ]
    return ends(summarize(texts, ["word_perplexity"])["word_perplexity"]), math.exp(3)


def summarized(name: str, values: Floats, sizes: Sequence[int] | None = None) -> Metric:
    return summarize([Score(status="scored", values={name: value}) for value in values.tolist()], [name], named(sizes))[
        name
    ]


@cache
def accuracy(right: int, n: int) -> Metric:
    return summarized("accuracy", (np.arange(n) < right).astype(float))


def changed(name: str, first: Floats, second: Floats, sizes: Sequence[int] | None = None) -> Interval | None:
    clusters = None if sizes is None else np.repeat(np.arange(len(sizes)), sizes).tolist()
    found = difference_of_values(name, first.tolist(), second.tolist(), clusters)
    return None if found.ci_low is None or found.ci_high is None else (found.ci_low, found.ci_high)


def named(sizes: Sequence[int] | None) -> list[str | None] | None:
    return None if sizes is None else [str(place) for place, size in enumerate(sizes) for _ in range(size)]


def ends(metric: Metric) -> Interval | None:
    return None if metric.ci_low is None or metric.ci_high is None else (metric.ci_low, metric.ci_high)


def in_clusters(shares: Sequence[float], num_clusters: int, random: Random) -> Floats:
    """Probabilities of each cluster: a Dirichlet distribution around ``shares``, of two a beta distribution."""
    # Raised to the power of 1 / a, a uniform number makes a gamma variable of shape a + 1 one of shape a, and its
    # logarithm is finite where the variable itself would be too small for a float.
    wide = np.tile(np.array(shares) * (1 - CORRELATION) / CORRELATION, (num_clusters, 1))
    logs = np.log(random.gamma(wide + 1)) + np.log1p(-random.random(wide.shape)) / wide
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of the data sets of one row and n: ``num_without`` have no interval."""

    num_held: int
    num_missed: int
    num_without: int

    @property
    def covered(self) -> float:
        """In percent; NaN where no data set has an interval."""
        shown = self.num_held + self.num_missed
        return 100 * self.num_held / shown if shown else math.nan

    def __str__(self) -> str:
        total = self.num_held + self.num_missed + self.num_without
        without = 100 * self.num_without / total
        if without == 100:
            return "none"
        return f"{self.covered:.1f}" + (f" ({without:.0f}% have none)" if without > 1 else "")


def simulated(row: Row, n: int, draws: int, seed: int) -> Cell | None:
    random = np.random.default_rng([seed, n])
    counts = {True: 0, False: 0, None: 0}
    for _ in range(draws):
        drawn = row.draw(n, random)
        if drawn is None:
            return None
        interval, truth = drawn
        counts[None if interval is None else interval[0] <= truth <= interval[1]] += 1
    return Cell(counts[True], counts[False], counts[None])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, as Markdown; 1 where an interval covers less than it should."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=4000, help="data sets for each cell (default: 4000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(dict.fromkeys(row.group for row in rows())), help="only these lines")
    parser.add_argument("--largest", type=int, default=max(SIZES), help="leave out columns of more samples than this")
    options = parser.parse_args(arguments)
    sizes = [n for n in SIZES if n <= options.largest]
    print("| | " + " | ".join(f"n {n:,}" for n in sizes) + " |\n|---|" + "---|" * len(sizes))
    failed = False
    for row in rows():
        if options.only not in (None, row.group):
            continue
        found = [simulated(row, n, options.draws, options.seed) for n in sizes]
        low = [
            n >= MIN_HELD and cell is not None and cell.covered < LOWEST for n, cell in zip(sizes, found, strict=True)
        ]
        failed |= any(low)
        texts = [
            "–" if cell is None else f"{cell}{' FAILED' * is_low}" for cell, is_low in zip(found, low, strict=True)
        ]
        print(f"| {row.group}: {row.what} | " + " | ".join(texts) + " |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
