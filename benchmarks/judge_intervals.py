"""How often the 95% intervals of trust in a judge hold the true value: ``python -m benchmarks.judge_intervals``.

A line has for each number n of samples that people labelled the share of simulated data sets whose interval holds the
truth, in percent, and the median width. The exit status is 1 where the share of an n >= 100 is below 93% by more than
two standard errors of the simulation; those of n = 50 are shown only, and no share is too large.

A sample is positive with the base rate; people say so, and the judge calls it positive with its sensitivity, or
negative with its specificity. Scores from 1 to 5 are drawn for people from the sample's label and for the judge from
the judge's label. ``corrected`` and ``mean`` have 1000 samples more, which the judge alone has rated, and ``all rated``
is ``corrected`` without these; ``alpha`` is that
of three such judges, of whose ratings one in ten is missing, over a fourth as many data sets as the others.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pytest_llmeval.scoring.statistics.intervals import Estimate, wilson_interval
from pytest_llmeval.scoring.statistics.raters import (
    judge_counts,
    krippendorff_alpha,
    ppi_mean,
    rogan_gladen,
    weighted_kappa,
)

LOWEST = 93.0
MIN_HELD = 100
"""Samples, below which what an interval covers is only shown."""
SIZES = (50, 100, 200, 500)
NUM_JUDGED_ONLY = 1000
NUM_JUDGES = 3
MISSING = 0.1
SCORES = np.arange(1.0, 6.0)
OF_POSITIVE = np.array([0.02, 0.08, 0.2, 0.35, 0.35])
"""How likely each score is for a positive sample; for a negative one the other way round."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How often samples are positive, and how often a judge finds those, and the others."""

    base_rate: float
    sensitivity: float
    specificity: float

    @property
    def joint(self) -> NDArray[np.float64]:
        """How likely the labels of people (rows) and of the judge (columns) are, negative ones first."""
        negative, positive = 1 - self.base_rate, self.base_rate
        return np.array(
            [
                [negative * self.specificity, negative * (1 - self.specificity)],
                [positive * (1 - self.sensitivity), positive * self.sensitivity],
            ]
        )


SETTINGS = tuple(Setting(base, *judge) for base, judge in itertools.product((0.5, 0.8), ((0.9, 0.8), (0.98, 0.95))))

Simulate = Callable[[Setting, int, np.random.Generator], Estimate]


@dataclass(frozen=True, slots=True)
class Line:
    """What is estimated: ``simulate`` draws n samples and estimates it, ``truth`` is what it should find."""

    simulate: Simulate
    truth: Callable[[Setting], float]
    part_of_draws: int = 1


def labels(setting: Setting, n: int, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Those of people and of the judge, 0 or 1."""
    people = (random.random(n) < setting.base_rate).astype(np.int64)
    return people, judged(setting, people, random)


def judged(setting: Setting, people: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """The labels of one judge for samples that people labelled."""
    chances = np.where(people == 1, setting.sensitivity, 1 - setting.specificity)
    return (random.random(len(people)) < chances).astype(np.int64)


def scores(given: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """A score for each label."""
    limits = np.cumsum([OF_POSITIVE[::-1], OF_POSITIVE], axis=1)[given]
    above = random.random(len(given))[:, None] > limits[:, :-1]
    return np.asarray(1 + above.sum(axis=1))


def simulated_kappa(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, judge = labels(setting, n, random)
    return weighted_kappa(people.tolist(), judge.tolist())


def simulated_weighted_kappa(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, judge = labels(setting, n, random)
    return weighted_kappa(scores(people, random).tolist(), scores(judge, random).tolist())


def simulated_sensitivity(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, judge = labels(setting, n, random)
    n = int(people.sum())
    low, high = wilson_interval(int((people * judge).sum()), n)
    return Estimate(value=float((people * judge).sum() / n), n=n, ci_low=low, ci_high=high)


def simulated_corrected(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, judge = labels(setting, n, random)
    _, others = labels(setting, NUM_JUDGED_ONLY, random)
    return corrected(people, np.concatenate([judge, others]))


def simulated_all_rated(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    return corrected(*labels(setting, n, random))


def corrected(people: NDArray[np.int64], judge: NDArray[np.int64]) -> Estimate:
    """As in a report: people rated the first of the samples that the judge labelled."""
    counts = judge_counts(people.tolist(), judge[: len(people)].tolist(), 1)
    return rogan_gladen(int(judge.sum()), len(judge), counts)


def simulated_mean_label(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, judge = labels(setting, n, random)
    _, others = labels(setting, NUM_JUDGED_ONLY, random)
    return ppi_mean(people.tolist(), judge.tolist(), others.tolist())


def simulated_mean_score(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, judge = labels(setting, n, random)
    _, others = labels(setting, NUM_JUDGED_ONLY, random)
    drawn = [scores(given, random).tolist() for given in (people, judge, others)]
    return ppi_mean(*drawn)


def simulated_alpha(setting: Setting, n: int, random: np.random.Generator) -> Estimate:
    people, _ = labels(setting, n, random)
    ratings = np.stack([judged(setting, people, random) for _ in range(NUM_JUDGES)], axis=1)
    missing = random.random(ratings.shape) < MISSING
    rows = ratings.astype(object)
    rows[missing] = None
    return krippendorff_alpha(rows.tolist())


def true_kappa(setting: Setting) -> float:
    return kappa_of(setting.joint, 1 - np.eye(2))


def true_weighted_kappa(setting: Setting) -> float:
    chances = np.stack([OF_POSITIVE[::-1], OF_POSITIVE])
    return kappa_of(chances.T @ setting.joint @ chances, np.square(SCORES[:, None] - SCORES))


def kappa_of(joint: NDArray[np.float64], costs: NDArray[np.float64]) -> float:
    """Of a table of probabilities, with what each cell costs."""
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(1 - (joint * costs).sum() / (expected * costs).sum())


def true_mean_score(setting: Setting) -> float:
    return float(setting.base_rate * SCORES @ OF_POSITIVE + (1 - setting.base_rate) * SCORES @ OF_POSITIVE[::-1])


def true_alpha(setting: Setting) -> float:
    """Two of a sample's ratings differ where one of two judges errs; what is missing is so at random."""
    positive = setting.joint[:, 1].sum()
    spread = setting.base_rate * setting.sensitivity * (1 - setting.sensitivity)
    spread += (1 - setting.base_rate) * setting.specificity * (1 - setting.specificity)
    return float(1 - spread / (positive * (1 - positive)))


LINES: Mapping[str, Line] = MappingProxyType(
    {
        "kappa": Line(simulated_kappa, true_kappa),
        "weighted kappa": Line(simulated_weighted_kappa, true_weighted_kappa),
        "sensitivity": Line(simulated_sensitivity, lambda setting: setting.sensitivity),
        "corrected": Line(simulated_corrected, lambda setting: setting.base_rate),
        "all rated": Line(simulated_all_rated, lambda setting: setting.base_rate),
        "mean label": Line(simulated_mean_label, lambda setting: setting.base_rate),
        "mean score": Line(simulated_mean_score, true_mean_score),
        "alpha": Line(simulated_alpha, true_alpha, part_of_draws=4),
    }
)


def outcomes(
    line: Line, setting: Setting, n: int, draws: int, random: np.random.Generator
) -> Iterator[tuple[bool, float]]:
    """For each data set whether the interval holds the truth, and its width; where there is none, it holds nothing."""
    truth = line.truth(setting)
    for _ in range(math.ceil(draws / line.part_of_draws)):
        found = line.simulate(setting, n, random)
        if found.ci_low is None or found.ci_high is None:
            yield False, math.nan
        else:
            yield found.ci_low <= truth <= found.ci_high, found.ci_high - found.ci_low


def lowest(draws: int) -> float:
    """The share of so many data sets, in percent, below which an interval covers clearly less than it should."""
    return LOWEST - 2 * math.sqrt(LOWEST * (100 - LOWEST) / draws)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where an interval covers too little."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="data sets for each number (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(LINES), help="only these lines")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of labelled samples")
    options = parser.parse_args(arguments)
    heads = "".join(f"{f'n={n}':>8}{'width':>7}" for n in options.sizes)
    print(f"{'of a':<15}{'base':>5}{'sens':>6}{'spec':>6}{'truth':>7}{heads}")
    failed = False
    for (name, line), setting in itertools.product(LINES.items(), SETTINGS):
        if options.only not in (None, name):
            continue
        cells, is_low = "", False
        for n in options.sizes:
            random = np.random.default_rng(options.seed)
            held, widths = zip(*outcomes(line, setting, n, options.draws, random), strict=True)
            covered = 100 * sum(held) / len(held)
            is_low |= n >= MIN_HELD and covered < lowest(len(held))
            cells += f"{covered:>8.1f}{float(np.nanmedian(widths)):>7.3f}"
        failed |= is_low
        print(
            f"{name:<15}{setting.base_rate:>5}{setting.sensitivity:>6}{setting.specificity:>6}"
            f"{line.truth(setting):>7.3f}{cells}{'  FAILED' if is_low else ''}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
