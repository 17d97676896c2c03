"""Corpus metrics: a number that is computed from all samples at once, and is no mean over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["CorpusFormula", "FormulaEstimate", "Ingredients", "Sums"]

Ingredients: TypeAlias = Mapping[str, float]
"""A sample's numbers that a corpus metric is made of, by their names in ``Score.values``."""


@dataclass(frozen=True, slots=True)
class FormulaEstimate:
    """A number over samples, its standard error and its 95% interval.

    ``value`` is None where the formula gives none (nothing to divide by, too large for a float); so are the others.
    """

    value: float | None
    stderr: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """A corpus metric as a function of sums: ``rows`` holds one row of numbers for each sample, all of one length.

    ``value`` gives the metric for the sums of the rows' columns, over any selection of the samples and with samples
    taken more than once; None where there is none.
    """

    rows: Sequence[Sequence[float]]
    value: Callable[[Sequence[float]], float | None]


@dataclass(frozen=True, slots=True)
class CorpusFormula:
    """A metric over samples whose values hold all of ``needs``, made of sums over them: ``sums`` says which.

    ``may_have`` are further ingredients, which some of the samples hold and others do not. ``estimate`` gives the
    standard error and the interval of independent samples where there is a better one than a bootstrap's; its value is
    that of ``compute``.

    ``no_interval`` says why the metric has neither standard error nor interval, as one has that chance can only make
    larger: a bootstrap sample adds its own noise to that of the samples, and percentiles can lie wholly above the
    metric, and both above the truth.

    ``of_columns`` gives what ``compute`` does, to the last digit, from the samples' numbers by the names of ``needs``:
    a column each, in the order of the samples. It is for a formula that needs no table of rows for its value.
    """

    needs: tuple[str, ...]
    sums: Callable[[Sequence[Ingredients]], Sums]
    no_interval: str | None = None
    may_have: tuple[str, ...] = ()
    of_columns: Callable[[Mapping[str, Sequence[float]]], float | None] | None = None
    estimate: Callable[[Sequence[Ingredients]], FormulaEstimate] | None = None

    def compute(self, samples: Sequence[Ingredients]) -> float | None:
        """Return the metric from exact sums, None where there is none (no samples, one class only, nothing to divide
        by).

        The order of the samples makes no difference.
        """
        if not samples:
            return None
        if self.of_columns is not None:
            return self.of_columns({need: [sample[need] for sample in samples] for need in self.needs})
        found = self.sums(samples)
        return found.value([math.fsum(column) for column in zip(*found.rows, strict=True)])
