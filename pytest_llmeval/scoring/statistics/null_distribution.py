"""How a paired difference is distributed where nothing has changed: every unit's sign is random.

A unit is a sample, or a cluster of them. The statistic is as likely to be -x as x, so that one tail says both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]

__all__ = ["NullDistribution", "flipped_sums", "swapped_values"]

_SEED = 0
_MAX_ENUMERATED = 15
"""All signs are tried of at most so many units."""
_MAX_ENUMERATED_VALUES = 4096
"""Assignments that are all tried where each costs a call."""
_MAX_HELD = 2_000_000
"""Numbers in memory at a time."""
_MAX_STEPS = 20_000
"""Steps that sums on a grid may span, and are still convolved."""
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

        Of draws ``(1 + count) / (1 + draws)``, which is never too small (B. Phipson and G. K. Smyth, 2010,
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
    steps = _steps(sizes)
    if steps is not None:
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


def _steps(sizes: Numbers) -> NDArray[np.int64] | None:
    """Return the sizes as multiples of one step; None where they are none, or where the sums would span too many."""
    import numpy as np

    relative = sizes / sizes[-1]
    distinct = np.unique(np.round(relative, 10))
    if len(distinct) > _MAX_SIZES:
        return None
    for divisor in range(1, _MAX_DIVISOR + 1):
        multiples = distinct * divisor
        if np.all(np.abs(multiples - np.rint(multiples)) <= 1e-9 * divisor):
            steps = np.rint(relative * divisor).astype(np.int64)
            return steps if steps.sum() <= _MAX_STEPS else None
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
