"""Which samples of two runs became better or worse in a metric, and which of them the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LEAST_CHANGE", "USUALLY_KEPT", "FlippedSample", "FlippedSamples", "flipped_samples"]

LEAST_CHANGE = 1e-9
"""A sample whose value changed by no more has not changed: another order of summing does as much."""

USUALLY_KEPT = 10
"""Samples each way: as many as a table shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedSample:
    """A sample's value before and now; ``difference`` is now minus before."""

    id: str
    before: float
    now: float
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedSamples:
    """Counts of the samples that became worse, better or did not change, and the first ones by what changed."""

    num_worse: int
    num_better: int
    num_same: int
    worse: tuple[FlippedSample, ...] = ()
    better: tuple[FlippedSample, ...] = ()


def flipped_samples(
    ids: Sequence[str],
    before: Sequence[float],
    now: Sequence[float],
    *,
    higher_is_better: bool,
    limit: int = USUALLY_KEPT,
) -> FlippedSamples:
    """Return which of the samples ``ids`` changed, the largest change first, equal ones in the samples' order."""
    sides: tuple[list[FlippedSample], list[FlippedSample]] = [], []
    for id_, old, new in zip(ids, before, now, strict=True):
        if abs(new - old) > LEAST_CHANGE:
            sides[(new > old) == higher_is_better].append(
                FlippedSample(id=id_, before=old, now=new, difference=new - old)
            )
    worse, better = (sorted(side, key=lambda one: -abs(one.difference)) for side in sides)
    return FlippedSamples(
        num_worse=len(worse),
        num_better=len(better),
        num_same=len(ids) - len(worse) - len(better),
        worse=tuple(worse[:limit]),
        better=tuple(better[:limit]),
    )
