"""Distributions of a sum of differences if nothing has changed: by random signs, by swaps, and by exchanged runs.

They are exact where all outcomes can be tried or convolved, and drawn with a seed elsewhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]

__all__ = ["NullDistribution", "exchanged_runs", "exchanged_sums", "flipped_sums", "swapped_values"]

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


def _generator(numbers: Numbers) -> np.random.Generator:
    """Return a generator whose seed is a hash of the numbers, as far as rounding does not change them.

    One seed for all would be off by the same amount in each suite of this size: of the few draws beyond a small level
    there could be a fifth too many, or too few, each time.
    """
    import numpy as np

    relative = numbers / np.max(np.abs(numbers), initial=0.0)
    return np.random.default_rng(zlib.crc32((np.round(relative, 9) + 0.0).tobytes()))  # -0.0 becomes 0.0


def flipped_sums(magnitudes: Numbers, min_draws: int) -> NullDistribution:
    """Return the sum of the magnitudes, each with a sign of its own by chance.

    Exact where they are multiples of one step (right and wrong answers, by cluster or averaged over epochs too) and
    where they are few; else ``min_draws`` draws with a seed of their own, which do not depend on the order.
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


def swapped_values(
    first: Numbers, second: Numbers, statistic: Callable[[Numbers, Numbers], Numbers], min_draws: int
) -> NullDistribution:
    """Return ``statistic`` of two rows of sums, where each unit's rows are exchanged by chance between the two sides.

    ``first`` and ``second`` hold one row for each unit. ``statistic`` takes two tables, of one row of sums for each
    exchange, and gives a number for each; exchanging the two arguments must change its sign. Where it has no value
    (NaN, or infinite), it counts as large. All exchanges are tried where they are few; else ``min_draws`` are drawn
    with a seed of their own, which depend neither on the order of the units nor on which side is the first.
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
    random = _generator(np.stack([low, high]))
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
    random = _generator(sizes)
    parts = []
    for start in range(0, num_draws, at_once):
        count = min(at_once, num_draws - start)
        picked = random.integers(256, size=(count, len(eights)), dtype=np.uint8)
        parts.append(table[picked + offsets].sum(axis=1))
    return np.concatenate(parts)


def exchanged_sums(changes: Sequence[Numbers], min_draws: int) -> NullDistribution:
    """Return the sum of one number of each row of these tables, which is picked by chance; a row may hold 0 alone.

    Exact where the numbers are multiples of one step, and where there are few rows; else ``min_draws`` draws with a
    seed of their own, which do not depend on the order.
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

    random = _generator(np.concatenate([own.ravel() for own in tables]))
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


def exchanged_runs(
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
