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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]

__all__ = [
    "POWER",
    "FamilyTest",
    "Method",
    "NullDistribution",
    "Paired",
    "PairedSums",
    "PairedTest",
    "PairedValues",
    "draws_for",
    "exchanged_sums",
    "flipped_sums",
    "holm",
    "mcnemar",
    "mcnemar_power",
    "row_by_row",
    "run_family",
    "smallest_drop_of_mcnemar",
    "smallest_drop_of_mean",
]

_SEED = 0
_MAX_ENUMERATED = 15
"""All signs are tried of at most so many units."""
_MAX_ENUMERATED_VALUES = 4096
"""Assignments that are all tried where each costs a call."""
_MAX_HELD = 2_000_000
"""Numbers in memory at a time."""
_MAX_CACHED = 20_000
"""Sums of rows that are drawn from at a time."""
_MAX_STEPS = 20_000
"""Steps that sums on a grid may span, and are still convolved."""
_MAX_TRANSFORMED = 1 << 23
"""Numbers that are transformed where sums on a grid are of different rows: about a second."""
_MAX_SIZES = 64
_MAX_DIVISOR = 120
_TIE = 1e-10
"""Sums that differ by less than this part of all magnitudes together are the same."""


@dataclass(frozen=True, slots=True)
class NullDistribution:
    """``values`` with their ``weights``, which sum to 1; drawn at random and of equal weight where ``num_draws`` says
    how many. Values that differ by less than ``tolerance`` are the same.
    """

    values: Numbers
    weights: Numbers | None
    num_draws: int | None
    tolerance: float

    def p_at_least(self, observed: float) -> float:
        """Return the p-value of ``observed``: how likely it is to see as much, or more.

        For draws it is ``(1 + count) / (1 + draws)``, which is never too small (B. Phipson and G. K. Smyth, 2010,
        doi:10.2202/1544-6115.1585).
        """
        reached = self.values >= observed - self.tolerance
        if self.weights is not None:
            return min(1.0, float(self.weights[reached].sum()))
        if self.num_draws is None:
            return max(float(reached.mean()), 1 / len(reached))  # what was seen is one of all, whatever the rounding
        return (1 + int(reached.sum())) / (1 + self.num_draws)

    def share_beyond(self, bound: float) -> float:
        """Return how much of the distribution lies above ``bound``."""
        beyond = self.values > bound + self.tolerance
        return float(beyond.mean() if self.weights is None else self.weights[beyond].sum())


def flipped_sums(magnitudes: Numbers, min_draws: int) -> NullDistribution:
    """Return the sum of the magnitudes, each with a sign of its own by chance.

    Exact where they are multiples of one step (right and wrong answers, by cluster or averaged over epochs too) and
    where they are few; else ``min_draws`` draws with a fixed seed, which do not depend on the order.
    """
    import numpy as np

    sizes = np.sort(magnitudes[magnitudes > 0])
    if not len(sizes):
        return NullDistribution(np.zeros(1), None, None, 0.0)
    tolerance = _TIE * float(sizes.sum())
    step = _common_step(sizes)
    if step is not None and (steps := np.rint(sizes / step).astype(np.int64)).sum() <= _MAX_STEPS:
        return NullDistribution(*_convolved(steps, float(sizes.sum())), None, tolerance)
    if len(sizes) <= _MAX_ENUMERATED:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return NullDistribution(sums, None, None, tolerance)
    return NullDistribution(_drawn(sizes, min_draws), None, min_draws, tolerance)


def _swapped_values(
    first: Numbers, second: Numbers, statistic: Callable[[Numbers, Numbers], Numbers], min_draws: int
) -> NullDistribution:
    """Return ``statistic`` of two rows of sums, where each unit's rows are exchanged by chance between the two sides.

    ``first`` and ``second`` hold one row for each unit. ``statistic`` takes two tables, of one row of sums for each
    exchange, and gives a number for each; exchanging the two arguments must change its sign. Where it has no value
    (NaN, or infinite), it counts as large. All exchanges are tried where they are few; else ``min_draws`` are drawn
    with a fixed seed, which depend neither on the order of the units nor on which side is the first.
    """
    import numpy as np

    differs = np.any(first != second, axis=1)
    same, pairs = first[~differs].sum(axis=0), np.stack([first[differs], second[differs]])
    low, high = _in_order(pairs)
    total, steps = same * 2 + pairs.sum(axis=(0, 1)), high - low
    base = same + low.sum(axis=0)
    num_units = len(steps)
    is_whole = 2**num_units <= max(min_draws, _MAX_ENUMERATED_VALUES)
    num_draws = 2**num_units if is_whole else min_draws
    random = np.random.default_rng(_SEED)
    at_once = max(1, _MAX_HELD // max(1, num_units))
    parts: list[Numbers] = []
    for start in range(0, num_draws, at_once):
        count = min(at_once, num_draws - start)
        if is_whole:
            bits = np.arange(start, start + count)[:, None] >> np.arange(num_units) & 1
        else:
            bits = random.integers(2, size=(count, num_units), dtype=np.uint8)
        sums = base + bits.astype(float) @ steps
        parts.append(statistic(sums, total - sums))
    found = np.concatenate(parts)
    is_value = np.isfinite(found)
    found = np.where(is_value, found, np.inf)
    largest = float(np.max(np.abs(found[is_value]), initial=0.0))
    return NullDistribution(found, None, None if is_whole else num_draws, _TIE * largest)


def _in_order(pairs: Numbers) -> tuple[Numbers, Numbers]:
    """Return each unit's two rows, the smaller one first; the units in an order that does not depend on how they
    came.
    """
    import numpy as np

    first, second = pairs
    if not len(first):
        return first, second
    unequal = np.argmax(first != second, axis=1)
    places = np.arange(len(first))
    is_first = (first[places, unequal] < second[places, unequal])[:, None]
    low, high = np.where(is_first, first, second), np.where(is_first, second, first)
    order = np.lexsort(np.concatenate([low, high], axis=1).T)
    return low[order], high[order]


def _common_step(sizes: Numbers) -> float | None:
    """Return the step that all sizes, which are sorted, are multiples of; None if there is none."""
    import numpy as np

    distinct = np.unique(np.round(sizes / sizes[-1], 10))
    if len(distinct) > _MAX_SIZES:
        return None
    for divisor in range(1, _MAX_DIVISOR + 1):
        multiples = distinct * divisor
        if np.all(np.abs(multiples - np.rint(multiples)) <= 1e-9 * divisor):
            return float(sizes[-1]) / divisor
    return None


def _convolved(steps: NDArray[np.int64], total: float) -> tuple[Numbers, Numbers]:
    """Return values and weights of the sum of whole numbers with random signs: of each number a binomial
    distribution.
    """
    import numpy as np
    from scipy.special import gammaln

    weights: Numbers = np.ones(1)
    for step, count in enumerate(np.bincount(steps)):
        if count and step:  # a size of 0 steps moves no sum
            heads = np.arange(count + 1)
            own = np.zeros(step * int(count) + 1)
            own[::step] = np.exp(
                gammaln(count + 1) - gammaln(heads + 1) - gammaln(count - heads + 1) - count * np.log(2)
            )
            weights = np.convolve(weights, own)
    reach = len(weights) - 1
    values: Numbers = (2 * np.arange(reach + 1.0) - reach) * (total / reach)
    return values, weights


def _drawn(sizes: Numbers, num_draws: int) -> Numbers:
    """Draw sums under random signs. Eight sizes have 256 sums, which are computed once: a random byte picks one of
    them.
    """
    import numpy as np

    eights = np.append(sizes, np.zeros(-len(sizes) % 8)).reshape(-1, 8)
    signs = 2.0 * (np.arange(256)[:, None] >> np.arange(8) & 1) - 1
    table = (eights @ signs.T).ravel()
    offsets = 256 * np.arange(len(eights))
    at_once = max(1, _MAX_HELD // len(eights))
    random = np.random.default_rng(_SEED)
    parts = []
    for start in range(0, num_draws, at_once):
        count = min(at_once, num_draws - start)
        picked = random.integers(256, size=(count, len(eights)), dtype=np.uint8)
        parts.append(table[picked + offsets].sum(axis=1))
    return np.concatenate(parts)


def exchanged_sums(changes: Sequence[Numbers], min_draws: int) -> NullDistribution:
    """Return the sum of one number of each row of these tables, which is picked by chance; a row may hold 0 alone.

    Exact where the numbers are multiples of one step, and where there are few rows; else ``min_draws`` draws with a
    fixed seed, which do not depend on the order.
    """
    import numpy as np

    tables = [np.sort(own[np.any(own != 0, axis=1)], axis=1) for own in changes]
    tables = [own[np.lexsort(own.T)] for own in tables if len(own)]
    if not tables:
        return NullDistribution(np.zeros(1), None, None, 0.0)
    tolerance = _TIE * math.fsum(float(np.abs(own).max(axis=1).sum()) for own in tables)
    if sum(len(own) * math.log2(own.shape[1]) for own in tables) <= _MAX_ENUMERATED:
        sums = np.zeros(1)
        for row in (row for own in tables for row in own):
            sums = np.add.outer(sums, row).ravel()
        return NullDistribution(sums, None, None, tolerance)
    if (found := _transformed(tables)) is not None:
        return NullDistribution(*found, None, tolerance)
    return NullDistribution(_picked(tables, min_draws), None, min_draws, tolerance)


def _transformed(tables: Sequence[Numbers]) -> tuple[Numbers, Numbers] | None:
    """Return values and weights of the sum of one number of each row by a Fourier transform, of rows whose numbers are
    multiples of one step; None where they are none, or where it would take long.
    """
    import numpy as np

    sizes = np.sort(np.concatenate([np.abs(own).ravel() for own in tables]))
    step = _common_step(sizes)
    if step is None:
        return None
    whole = [np.rint(own / step).astype(np.int64) for own in tables]
    lowest = sum(int(own[:, 0].sum()) for own in whole)
    rows = [np.unique(own - own[:, :1], axis=0, return_counts=True) for own in whole]
    reach = sum(int(own[:, -1] @ counts) for own, counts in rows)
    length = 1 << reach.bit_length()
    if length * sum(len(own) for own, _ in rows) > _MAX_TRANSFORMED:
        return None
    product = np.ones(length // 2 + 1, dtype=complex)
    for own, counts in rows:
        for row, count in zip(own, counts, strict=True):
            product *= np.fft.rfft(np.bincount(row, minlength=length) / len(row)) ** count
    weights: Numbers = np.maximum(np.fft.irfft(product, length)[: reach + 1], 0.0)
    values: Numbers = (np.arange(reach + 1.0) + lowest) * step
    return values, weights


def _picked(tables: Sequence[Numbers], num_draws: int) -> Numbers:
    """Draw sums of one number of each row. The sums of as many rows as a random byte can pick from are computed once,
    and few of them at a time, which stay in the processor's cache.
    """
    import numpy as np

    random = np.random.default_rng(_SEED)
    sums = np.zeros(num_draws)
    for own in tables:
        width = own.shape[1]
        together = max(1, int(math.log(256, width)))
        padded = np.concatenate([own, np.zeros((-len(own) % together, width))]).reshape(-1, together, width)
        size = width**together
        at_once = max(1, _MAX_CACHED // size)
        for first in range(0, len(padded), at_once):
            table = padded[first : first + at_once, 0]
            for place in range(1, together):
                table = (table[:, :, None] + padded[first : first + at_once, place, None, :]).reshape(len(table), -1)
            offsets = size * np.arange(len(table), dtype=np.uint32)
            rows = max(1, _MAX_HELD // len(table))
            for start in range(0, num_draws, rows):
                shape = min(rows, num_draws - start), len(table)
                picked = random.integers(size, size=shape, dtype=np.uint8 if size <= 256 else np.uint32)
                sums[start : start + shape[0]] += table.ravel()[picked + offsets].sum(axis=1)
    return sums


def _exchanged_runs(
    runs: Sequence[Sequence[float | None]], now: Sequence[float], clusters: Sequence[Hashable] | None
) -> list[Numbers]:
    """Return by how much the sum of differences from the mean of the runs changes if another run had been the last one.

    Where nothing has changed, any of a sample's runs could have been this one: of a cluster those that all of its
    samples have, since their values go together. There is a table for each number of runs, a row for each sample or
    cluster in it, and 0, for this run itself, in each row.
    """
    import numpy as np

    values = np.array(runs, dtype=float)  # None becomes NaN
    number = np.sum(~np.isnan(values), axis=0)
    changes = (values - np.array(now)) * (1 + 1 / np.maximum(number, 1))
    if clusters is not None:
        order: dict[Hashable, int] = {}
        places = [order.setdefault(cluster, len(order)) for cluster in clusters]
        changes = np.array([np.bincount(places, weights=own) for own in changes])
    number = np.sum(~np.isnan(changes), axis=0)
    ordered = np.sort(changes, axis=0)  # NaN comes last
    return [
        np.concatenate([np.zeros((1, np.sum(number == own))), ordered[:own, number == own]]).T
        for own in np.unique(number)
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

        Against a mean of runs, each p-value is the larger one of this and of exchanging runs (``_exchanged_runs``). A
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
        changes = _exchanged_runs(self.runs, self.second, clusters)
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
        return _tested(_swapped_values(first, second, self._gains, min_draws), observed, self.margin)

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
