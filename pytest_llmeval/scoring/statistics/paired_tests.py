"""One-sided paired tests: did a metric drop, sample by sample, between two runs of one suite?

The null hypothesis is that nothing has changed: each sample's two results could as well have come the other way round
(each cluster's, where samples share a passage). Both sides are reported, a drop and an improvement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from pytest_llmeval.scoring.statistics.null_distribution import NullDistribution, flipped_sums, swapped_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmeval.scoring.statistics.null_distribution import Numbers

__all__ = [
    "FamilyTest",
    "Method",
    "Paired",
    "PairedSums",
    "PairedTest",
    "PairedValues",
    "draws_for",
    "holm",
    "mcnemar",
    "row_by_row",
    "run_family",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedValues:
    """A metric that is a mean over samples: the two runs' values, sample by sample.

    ``clusters``, where they are given, say of each sample what it shares with others; the sum of a cluster's
    differences then has one sign. ``margin`` is the drop of the mean that is allowed, in the metric's unit.
    """

    first: Sequence[float]
    second: Sequence[float]
    higher_is_better: bool = True
    clusters: Sequence[Hashable] | None = None
    margin: float = 0.0

    def gains(self) -> list[float]:
        """Return each sample's difference, more is better. ``ValueError`` for sequences of two lengths."""
        if self.higher_is_better:
            return [after - before for before, after in zip(self.first, self.second, strict=True)]
        return [before - after for before, after in zip(self.first, self.second, strict=True)]

    def test(self, min_draws: int) -> PairedTest:
        """Test by exact McNemar for right and wrong without clusters, else by the sign-flip test (R. A. Fisher,
        1935).
        """
        import numpy as np

        gains, clusters = self.gains(), self.clusters
        if clusters is not None and len(set(clusters)) == len(clusters):
            clusters = None
        bound = self.margin * len(gains)
        if clusters is None and {*self.first, *self.second} <= {0.0, 1.0}:
            return mcnemar(gains.count(-1.0), gains.count(1.0), bound=bound)
        units = np.array(gains if clusters is None else [math.fsum(own) for own in _grouped(gains, clusters)])
        null = flipped_sums(np.abs(units), min_draws)
        return _tested(null, math.fsum(units.tolist()), bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSums:
    """A metric that is computed from all samples at once: of the sums of the columns of ``first``, of ``second``; rows
    go with samples. It is tested by exchanging the two runs' samples, or clusters.

    ``values`` takes a table of sums, and gives the metric of each row, not finite where there is none (``row_by_row``).
    """

    first: Sequence[Sequence[float]]
    second: Sequence[Sequence[float]]
    values: Callable[[Numbers], Numbers]
    higher_is_better: bool = True
    clusters: Sequence[Hashable] | None = None
    margin: float = 0.0

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
