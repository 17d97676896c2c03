"""One-sided paired tests: did a metric drop, sample by sample, between two runs of one suite?

The null hypothesis is that nothing has changed: each sample's two results could as well have come the other way round
(each cluster's, where samples share a passage), so that the sign of every unit's difference is random. Both sides are
reported, a drop and an improvement. Their power (``smallest_drop_of_mcnemar``, ``smallest_drop_of_mean``) says what a
gate that passed has ruled out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from pytest_llmeval.scoring.statistics.null_distributions import (
    NullDistribution,
    exchanged_runs,
    exchanged_sums,
    flipped_sums,
    swapped_values,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmeval.scoring.statistics.null_distributions import Numbers

__all__ = [
    "POWER",
    "FamilyTest",
    "Method",
    "Paired",
    "PairedSums",
    "PairedTest",
    "PairedValues",
    "draws_for",
    "holm",
    "mcnemar",
    "mcnemar_power",
    "row_by_row",
    "run_family",
    "smallest_drop_of_mcnemar",
    "smallest_drop_of_mean",
]

Method: TypeAlias = Literal["mcnemar", "sign-flip"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """``p_drop`` is how likely so large a drop is where nothing has changed, ``p_improved`` so large an improvement.

    ``num_draws`` is None where the test is exact. ``false_alarm_rate`` is how often the drop lies beyond the margin
    where nothing has changed.
    """

    method: Method
    p_drop: float
    p_improved: float
    false_alarm_rate: float
    num_draws: int | None = None

    @property
    def p_two_sided(self) -> float:
        """Return how likely so large a difference is, either way: where nothing has changed, both ways are as
        likely.
        """
        return min(1.0, 2 * min(self.p_drop, self.p_improved))


class Paired(Protocol):
    """One metric of two runs over the same samples, ready to be tested."""

    def test(self, min_draws: int) -> PairedTest:
        """Test it, with at least ``min_draws`` draws where the test is not exact."""

    def with_margin(self, margin: float) -> Paired:
        """Return the same with another drop that is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedValues:
    """A metric that is a mean over samples: the two runs' values, sample by sample.

    ``clusters``, where they are given, say of each sample what it shares with others; the sum of a cluster's
    differences then has one sign. ``margin`` is the drop of the mean that is allowed, in the metric's unit.
    Where ``runs`` are given, each value of ``first`` is the mean over these earlier runs, whose values stand in the
    same order; None for a sample that a run lacks.
    """

    first: Sequence[float]
    second: Sequence[float]
    higher_is_better: bool = True
    clusters: Sequence[Hashable] | None = None
    margin: float = 0.0
    runs: Sequence[Sequence[float | None]] = ()

    def with_margin(self, margin: float) -> PairedValues:
        """Return the same with another margin."""
        return replace(self, margin=margin)

    def gains(self) -> list[float]:
        """Return each sample's difference, more is better. ``ValueError`` for sequences of two lengths."""
        if self.higher_is_better:
            return [after - before for before, after in zip(self.first, self.second, strict=True)]
        return [before - after for before, after in zip(self.first, self.second, strict=True)]

    def test(self, min_draws: int) -> PairedTest:
        """Test by exact McNemar for right and wrong without clusters, else by the sign-flip test (R. A. Fisher,
        1935).

        Against a mean of runs, each p-value is the larger one of this and of exchanging runs (``exchanged_runs``). A
        difference from the mean of answers that are seldom right, and that change from run to run, is skewed: random
        signs alone would call too many of them drops. Of a model that always answers the same and changed once, the
        signs are as they should be, and exchanging runs alone would find drops.
        """
        import numpy as np

        gains, clusters = self.gains(), self.clusters
        if clusters is not None and len(set(clusters)) == len(clusters):
            clusters = None
        bound = self.margin * len(gains)
        if clusters is None and {*self.first, *self.second} <= {0.0, 1.0}:
            found = mcnemar(gains.count(-1.0), gains.count(1.0), bound=bound)
        else:
            units = np.array(gains if clusters is None else [math.fsum(own) for own in _grouped(gains, clusters)])
            found = _tested(flipped_sums(np.abs(units), min_draws), math.fsum(units.tolist()), bound)
        if len(self.runs) < 2:
            return found
        changes = exchanged_runs(self.runs, self.second, clusters)
        null = exchanged_sums(changes if self.higher_is_better else [-own for own in changes], min_draws)
        mirrored = replace(null, values=-null.values)
        return replace(
            found,
            p_drop=max(found.p_drop, mirrored.p_at_least(0.0)),
            p_improved=max(found.p_improved, null.p_at_least(0.0)),
            false_alarm_rate=max(found.false_alarm_rate, mirrored.share_beyond(bound + math.fsum(gains))),
            num_draws=null.num_draws if found.num_draws is None else found.num_draws,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSums:
    """A metric that is computed from all samples at once, by the sums of the columns of ``first`` and of ``second``,
    whose rows are samples. It is tested by exchanging the two runs' samples, or clusters.

    ``values`` takes a table of sums, and gives the metric of each row, not finite where there is none (``row_by_row``).
    """

    first: Sequence[Sequence[float]]
    second: Sequence[Sequence[float]]
    values: Callable[[Numbers], Numbers]
    higher_is_better: bool = True
    clusters: Sequence[Hashable] | None = None
    margin: float = 0.0

    def with_margin(self, margin: float) -> PairedSums:
        """Return the same with another margin."""
        return replace(self, margin=margin)

    def gain(self) -> float | None:
        """Return the metric's difference, more is better; None where it has no value in one of the runs."""
        return self._gain(self._units(self.first), self._units(self.second))

    def test(self, min_draws: int) -> PairedTest:
        """Test by swaps. ``ValueError`` where the metric has no value in one of the runs."""
        first, second = self._units(self.first), self._units(self.second)
        observed = self._gain(first, second)
        if observed is None:
            raise ValueError("a metric without a value is not tested")
        return _tested(swapped_values(first, second, self._gains, min_draws), observed, self.margin)

    def _units(self, rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        import numpy as np

        if self.clusters is None:
            return np.array(rows, dtype=float)
        summed = [[math.fsum(column) for column in zip(*own, strict=True)] for own in _grouped(rows, self.clusters)]
        return np.array(summed, dtype=float)

    def _gain(self, first: Numbers, second: Numbers) -> float | None:
        found = float(self._gains(first.sum(axis=0)[None], second.sum(axis=0)[None])[0])
        return found if math.isfinite(found) else None

    def _gains(self, first: Numbers, second: Numbers) -> Numbers:
        """Return the gains of tables of sums, one row for each number; not finite where there is none."""
        import numpy as np

        before, after = self.values(first), self.values(second)
        with np.errstate(all="ignore"):
            gains: Numbers = after - before if self.higher_is_better else before - after
        return gains


def row_by_row(value: Callable[[Sequence[float]], float | None]) -> Callable[[Numbers], Numbers]:
    """Return ``PairedSums.values`` by a function of one row of sums, which gives None where there is no value."""

    def values(table: Numbers) -> Numbers:
        import numpy as np

        found = map(value, table.tolist())
        return np.array([math.nan if one is None else one for one in found])

    return values


def mcnemar(num_worse: int, num_better: int, *, bound: float = 0.0) -> PairedTest:
    """Test by exact McNemar, one-sided: of the samples that flipped, each is as likely to have become worse as better.

    (Q. McNemar, 1947, doi:10.1007/BF02295996; the binomial distribution in closed form.) ``bound`` is the margin times
    the number of samples. ``ValueError`` for counts below 0.
    """
    from scipy.special import bdtr, bdtrc

    if num_worse < 0 or num_better < 0:
        raise ValueError(f"{num_worse} worse and {num_better} better are no counts")
    flipped = num_worse + num_better
    # More than `bound` net losses are at least this many losses; rounding must not make a whole number one more.
    allowed = math.floor((flipped + bound) / 2 + 1e-9)
    return PairedTest(
        method="mcnemar",
        p_drop=float(bdtr(num_better, flipped, 0.5)),
        p_improved=float(bdtr(num_worse, flipped, 0.5)),
        false_alarm_rate=float(bdtrc(allowed, flipped, 0.5)) if allowed < flipped else 0.0,
    )


def _tested(null: NullDistribution, gain: float, bound: float) -> PairedTest:
    # Of draws the larger gain is looked up on one side, whichever run is the first: exchanging the runs exchanges the
    # p-values to the last digit.
    likely, unlikely = null.p_at_least(-abs(gain)), null.p_at_least(abs(gain))
    return PairedTest(
        method="sign-flip",
        p_drop=unlikely if gain < 0 else likely,
        p_improved=unlikely if gain > 0 else likely,
        false_alarm_rate=null.share_beyond(bound),
        num_draws=null.num_draws,
    )


def _grouped(values: Sequence[T], clusters: Sequence[Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        groups.setdefault(cluster, []).append(value)
    return list(groups.values())


_DRAWS_PER_LEVEL = 20
"""Draws over the smallest level that Holm's procedure asks for: the smallest p-value is a twentieth of that level."""


@dataclass(frozen=True, slots=True)
class FamilyTest:
    """One test of a family: as it is alone, and its two p-values adjusted by Holm, each over its side's p-values."""

    test: PairedTest
    p_drop: float
    p_improved: float


def run_family(family: Sequence[Paired], alpha: float) -> list[FamilyTest]:
    """Test all of a family, so that the chance of any adjusted ``p_drop`` of at most alpha by chance alone is alpha."""
    min_draws = draws_for(len(family), alpha)
    tests = [paired.test(min_draws) for paired in family]
    drops, improvements = holm([test.p_drop for test in tests]), holm([test.p_improved for test in tests])
    return [FamilyTest(*found) for found in zip(tests, drops, improvements, strict=True)]


def draws_for(family: int, alpha: float) -> int:
    """Return how many draws a test that is not exact takes, as one of ``family`` tests at the level ``alpha``
    together.
    """
    return math.ceil(_DRAWS_PER_LEVEL * family / alpha)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return each p-value adjusted by Holm's step-down procedure, in the order in which they were given.

    ``max over j <= i of min(1, (m - j) p_(j))`` with the ``m`` p-values in rising order, j from 0 (S. Holm, A simple
    sequentially rejective multiple test procedure, 1979). Whatever depends on what, the chance that any true null
    hypothesis has an adjusted p-value of at most alpha is at most alpha. ``ValueError`` for a value outside [0, 1].
    """
    for value in p_values:
        if not 0 <= value <= 1:
            raise ValueError(f"a p-value lies between 0 and 1, found {value}")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


POWER = 0.9
"""The probability with which the smallest detectable drop is found."""
_TOLERANCE = 1e-4
_REACH = 7.5
"""Standard deviations of the number of flipped samples that are summed over."""


def smallest_drop_of_mcnemar(n: int, discordance: float, level: float, power: float = POWER) -> float | None:
    """Return the smallest drop of accuracy that McNemar's exact one-sided test finds with this power, of ``n`` samples.

    ``discordance`` is the share of samples that flip either way; a drop beyond it raises it, all flips then being for
    the worse. Correct to 1e-4, rounded up; None where even a drop of 1 is not found, of too few samples.
    """
    if mcnemar_power(n, discordance, 1.0, level) < power:
        return None
    low, high = 0.0, 1.0
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if mcnemar_power(n, discordance, middle, level) < power:
            low = middle
        else:
            high = middle
    return high


def mcnemar_power(n: int, discordance: float, drop: float, level: float) -> float:
    """Return how likely McNemar's exact one-sided test at ``level`` is to find a true ``drop`` of ``n`` samples.

    The number of flipped samples is binomial with probability ``max(discordance, drop)``, and each of them became worse
    with probability ``(1 + drop / discordance) / 2``: summed over both, without the normal approximation of R. J.
    Connor (1987, doi:10.2307/2531961), which is too hopeful of few flips. ``ValueError`` for what is not a probability.
    """
    import numpy as np
    from scipy.special import bdtrc, gammaln, xlog1py, xlogy

    if n < 1 or not (0 <= discordance <= 1 and 0 <= drop <= 1 and 0 < level < 1):
        raise ValueError(f"no power of n {n}, discordance {discordance}, drop {drop}, level {level}")
    flips = max(discordance, drop)
    if flips == 0:
        return 0.0
    spread = _REACH * math.sqrt(n * flips * (1 - flips)) + 10
    fewest, most = max(0, math.floor(n * flips - spread)), min(n, math.ceil(n * flips + spread))
    counts, needed = np.arange(fewest, most + 1), _worse_needed(fewest, most, level)
    log_weights = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    weights = np.exp(log_weights + xlogy(counts, flips) + xlog1py(n - counts, -flips))
    found = np.where(needed > counts, 0.0, bdtrc(np.maximum(needed - 1, 0), counts, min(1.0, (1 + drop / flips) / 2)))
    return float(np.sum(weights * found))


def smallest_drop_of_mean(stderr: float | None, level: float, power: float = POWER) -> float | None:
    """Return the smallest drop of a mean that a one-sided test finds with this power, in the metric's unit.

    ``(z(1 - level) + z(power)) * stderr`` with the standard error of the paired difference (of clusters, theirs): the
    normal approximation. None where there is none.
    """
    if not stderr:
        return None
    return (NormalDist().inv_cdf(1 - level) + NormalDist().inv_cdf(power)) * stderr


@lru_cache(maxsize=8)  # a search tries many drops that leave the number of flipped samples as it is
def _worse_needed(fewest: int, most: int, level: float) -> NDArray[np.int64]:
    """Return how many of ``fewest``, …, ``most`` flipped samples must have become worse for ``p <= level``.

    One more than all of them where no number is enough: k flips with ``0.5 ** k > level`` are never significant.
    """
    import numpy as np
    from scipy.special import bdtr, bdtrik

    # p is the chance of at most `better` of the flipped ones: the largest such number, from a continuous start.
    flipped = np.arange(fewest, most + 1)
    with np.errstate(all="ignore"):
        start = np.nan_to_num(np.floor(bdtrik(level, flipped, 0.5)), nan=-1.0, posinf=-1.0, neginf=-1.0)
    better = np.clip(start, -1, flipped).astype(np.int64) + 1
    for _ in range(3):
        too_many = (better >= 0) & (bdtr(np.maximum(better, 0), flipped, 0.5) > level)
        better = np.where(too_many, better - 1, better)
    return np.asarray(np.where(better < 0, flipped + 1, flipped - better), dtype=np.int64)
