"""Several tests of one session: p-values that hold for all of them together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.statistics.paired_tests import Paired, PairedTest

__all__ = ["FamilyTest", "draws_for", "holm", "run_family"]

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
    """How many draws a test that is not exact takes, as one of ``family`` tests at the level ``alpha`` together."""
    return math.ceil(_DRAWS_PER_LEVEL * family / alpha)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value adjusted by Holm's step-down procedure, in the order in which they were given.

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
