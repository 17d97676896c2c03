"""A metric of two runs of one suite, sample by sample: what is tested, and what is reported about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, cast

from pytest_llmeval.scoring.metrics.corpus import POOLED, corpus_formula
from pytest_llmeval.scoring.metrics.definitions import definition, split_name
from pytest_llmeval.scoring.metrics.judged import RATED_METRICS
from pytest_llmeval.scoring.metrics.sample_values import ingredients, made_of, value_of
from pytest_llmeval.scoring.metrics.summary import why_not_measurable
from pytest_llmeval.scoring.model_differences import (
    Difference,
    compare,
    difference_of_values,
    has_limits,
    paired_difference,
)
from pytest_llmeval.scoring.statistics.clustered import cluster_numbers, count_clusters
from pytest_llmeval.scoring.statistics.paired_tests import (
    Paired,
    PairedSums,
    PairedValues,
    mcnemar,
    row_by_row,
    smallest_drop_of_mcnemar,
    smallest_drop_of_mean,
)
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import ScoreLike

if TYPE_CHECKING:
    from pytest_llmeval.scoring.statistics.null_distributions import Numbers

__all__ = [
    "LEAST_CHANGE",
    "USUALLY_KEPT",
    "FlippedSample",
    "FlippedSamples",
    "PairedMetric",
    "PairingError",
    "counted",
    "flip_words",
    "flipped_samples",
    "listed",
    "needed_values",
    "pair_metric",
    "pooled_over_suites",
    "two_sided_p",
]

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


Row: TypeAlias = tuple[float, ...]
"""A sample's numbers that a metric is made of: its value, or what is summed over samples."""
_MAX_LISTED = 3
_MAX_FLIPPED = 1000
"""Samples each way that a report keeps of a comparison with a baseline, whose records it does not have."""
_DRAWS = 2000
"""The draws of a test of two models that is not exact: the least two-sided p-value is 0.001."""
_MAX_SUMMED = 5_000_000
"""Numbers (samples times columns) that are summed for each draw of a p-value that nobody asked for: about 3 s."""
_MAX_ROWS_READ = 1000
"""The samples of each side that are read to see how many columns a metric has."""
_NO_VALUE = "has no value in one of the two reports"


class PairingError(ValueError):
    """A metric that cannot be compared. The message says why, in words that go on from the metric's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMetric:
    """``difference`` is the effect with its interval, ``paired`` what is tested.

    ``num_worse`` and ``num_better`` count samples; 0 of a metric that samples have no part of their own in.
    ``flipped_to`` says what they became: ``wrong`` or ``right``, ``worse`` or ``better``; None where they have none.
    ``is_zero_or_one``: every sample's value is 0 or 1. ``has_limits``: the metric lies between two limits.
    ``is_unchanged``: no sample's part in it has changed. ``num_lacking`` samples have nothing to give to it in the
    baseline, ``num_unmeasured`` are said to have no meaning for it in one of the two: both are left out. Of these
    ``num_lost`` have a value in the baseline alone, and ``num_gained`` now alone.
    """

    difference: Difference
    paired: Paired
    higher_is_better: bool
    num_worse: int
    num_better: int
    flipped_to: tuple[str, str] | None
    is_zero_or_one: bool
    has_limits: bool
    is_unchanged: bool
    num_lacking: int = 0
    num_unmeasured: int = 0
    num_lost: int = 0
    num_gained: int = 0
    movers: FlippedSamples | None = None

    @property
    def num_units(self) -> int:
        """Return the number of independent units: samples, or clusters of them."""
        return self.difference.n if self.difference.num_clusters is None else self.difference.num_clusters

    @property
    def drop(self) -> float:
        """Return the difference as a loss: more is worse."""
        return -self.difference.difference if self.higher_is_better else self.difference.difference

    @property
    def largest_drop(self) -> float | None:
        """Return the end of the interval at which the drop is largest; None where there is none.

        It is 0 if no sample's value of a metric without limits has changed: nothing says how large an unseen change
        could be.
        """
        found = self.difference
        if found.ci_low is None and self.is_unchanged and not self.has_limits:
            return 0.0
        end = found.ci_low if self.higher_is_better else found.ci_high
        return None if end is None else -end if self.higher_is_better else end

    def smallest_drop(self, level: float) -> float | None:
        """Return the smallest true drop that a one-sided test at ``level`` finds with 90% power; None if it is not
        known.
        """
        if self.is_zero_or_one and self.difference.num_clusters is None:
            discordance = (self.num_worse + self.num_better) / self.difference.n
            return smallest_drop_of_mcnemar(self.difference.n, discordance, level)
        return smallest_drop_of_mean(self.difference.stderr, level) if self.can_find(level) else None

    def can_find(self, level: float) -> bool:
        """Tell whether a test at ``level`` could find anything: where all of these units became worse, its p is
        0.5^units.

        A test that cannot passes whatever happened.
        """
        return 0.5**self.num_units <= level


def flip_words(metric: str, *, is_zero_or_one: bool) -> tuple[str, str]:
    """Return the words for samples whose value of the metric changed: wrong and right answers, or worse and better
    ones.
    """
    is_of_answers = is_zero_or_one and split_name(metric)[1].startswith("accuracy")
    return ("wrong", "right") if is_of_answers else ("worse", "better")


def needed_values(metric: str) -> set[str]:
    """Return names in ``Score.values`` that the metric is made of, its own among them."""
    prefix, _ = split_name(metric)
    return {metric, *(prefix + part for part in (*made_of(metric), *_optional(metric)))}


def _optional(metric: str) -> tuple[str, ...]:
    """Return names, without a prefix, of what only some samples have of what the metric is made of."""
    formula = corpus_formula(metric)
    return () if formula is None else formula.may_have


def pair_metric(
    metric: str,
    first: Mapping[str, ScoreLike],
    second: Mapping[str, ScoreLike],
    *,
    higher_is_better: bool,
    clusters: Mapping[str, str | None] | None = None,
    margin: float = 0.0,
    runs: Sequence[Mapping[str, ScoreLike]] = (),
) -> PairedMetric:
    """Return the metric of the baseline (``first``) and of now (``second``), by sample id, over the samples that have
    both.

    ``clusters`` gives a sample's cluster by its id; ``runs`` are those whose means the baseline's values are. A sample
    that has no value now raises ``PairingError``, unless the metric is said to have no meaning for it, and so do a
    value that is not finite, and nothing in common.
    """
    ids = [sample_id for sample_id in second if sample_id in first]
    sides = [first[sample_id] for sample_id in ids], [second[sample_id] for sample_id in ids]
    is_made_of_parts = any(ingredients(scores, metric) for scores in sides)
    read = _parts_reader(metric) if is_made_of_parts else _value_reader(metric)
    before, after = (list(map(read, scores)) for scores in sides)
    gaps = [place for place, pair in enumerate(zip(before, after, strict=True)) if None in pair]
    unexplained = [
        [place for place in gaps if values[place] is None and not _is_explained(scores[place], metric)]
        for values, scores in zip((before, after), sides, strict=True)
    ]
    if missing := unexplained[1]:
        had = " that had one in the baseline" if all(before[place] is not None for place in missing) else ""
        raise PairingError(f"has no value now in {_samples([ids[place] for place in missing])}{had}")
    num_lost, num_gained = (sum(values[place] is not None for place in gaps) for values in (before, after))
    found = [
        (sample_id, one, other)
        for sample_id, one, other in zip(ids, before, after, strict=True)
        if one is not None and other is not None
    ]
    ids, rows = [sample_id for sample_id, _, _ in found], ([one for _, one, _ in found], [one for *_, one in found])
    if not all(map(math.isfinite, chain.from_iterable(chain(*rows)))):
        broken = [
            sample_id
            for sample_id, pair in zip(ids, zip(*rows, strict=True), strict=True)
            if not all(map(math.isfinite, chain(*pair)))
        ]
        raise PairingError(f"is made of a number that is not finite in {_samples(broken)}")
    if not ids:
        raise PairingError("has no value in any sample that both reports scored")
    numbers = None if clusters is None else cluster_numbers([clusters.get(sample_id) for sample_id in ids])
    if numbers is not None and count_clusters(numbers) == len(ids):
        numbers = None
    try:
        difference = None
        if is_made_of_parts:
            own = clusters if numbers is not None else None
            kept = [{sample_id: scores[sample_id] for sample_id in ids} for scores in (first, second)]
            difference = compare(kept[0], kept[1], [metric], own).get(metric)
        elif definition(metric).kind != "count":
            one, other = ([value for (value,) in side] for side in rows)
            difference = difference_of_values(metric, one, other, numbers)
    except (ArithmeticError, ValueError) as error:  # finite numbers can be too large to be summed, or squared
        raise PairingError(f"cannot be computed: {error}") from None
    if difference is None:
        raise PairingError(_NO_VALUE)
    paired = _paired(metric, rows, difference, numbers, higher_is_better, margin)
    if isinstance(paired.paired, PairedValues):
        values = paired.paired.first, paired.paired.second
        moved = flipped_samples(ids, *values, higher_is_better=higher_is_better, limit=_MAX_FLIPPED)
        of_runs = [[row[0] if id_ in run and (row := read(run[id_])) else None for id_ in ids] for run in runs]
        paired = replace(paired, movers=moved, paired=replace(paired.paired, runs=of_runs))
    return replace(
        paired,
        num_lacking=len(unexplained[0]),
        num_unmeasured=len(gaps) - len(unexplained[0]),
        num_lost=num_lost,
        num_gained=num_gained,
    )


def _is_explained(score: ScoreLike, metric: str) -> bool:
    """Tell whether it is known why the score has no value of the metric."""
    return metric in RATED_METRICS or why_not_measurable(score, metric) is not None


def _paired(
    metric: str,
    rows: tuple[Sequence[Row], Sequence[Row]],
    difference: Difference,
    clusters: Sequence[int] | None,
    higher_is_better: bool,
    margin: float,
) -> PairedMetric:
    first, second = rows
    paired = _to_test(metric, rows, clusters, higher_is_better=higher_is_better, margin=margin)
    gains: list[float] | None = None
    if isinstance(paired, PairedValues):
        gains = paired.gains()
    elif difference.kind == "pooled":
        # The loglikelihood of a sample's text: its units are those of the text.
        gains = [after[0] - before[0] for before, after in zip(first, second, strict=True)]
    is_zero_or_one = len(first[0]) == 1 and {*first, *second} <= {(0.0,), (1.0,)}
    return PairedMetric(
        difference=difference,
        paired=paired,
        higher_is_better=higher_is_better,
        num_worse=sum(gain < -LEAST_CHANGE for gain in gains or ()),
        num_better=sum(gain > LEAST_CHANGE for gain in gains or ()),
        flipped_to=None if gains is None else flip_words(metric, is_zero_or_one=is_zero_or_one),
        is_zero_or_one=is_zero_or_one,
        has_limits=has_limits(metric),
        is_unchanged=list(first) == list(second),
    )


def _to_test(
    metric: str,
    rows: tuple[Sequence[Row], Sequence[Row]],
    clusters: Sequence[int] | None,
    *,
    higher_is_better: bool,
    margin: float = 0.0,
) -> PairedValues | PairedSums:
    """Return the values of the metric to test. Raise ``PairingError`` if it is computed of all samples and has none."""
    first, second = rows
    if len(first[0]) == 1:
        return PairedValues(
            first=[value for (value,) in first],
            second=[value for (value,) in second],
            higher_is_better=higher_is_better,
            clusters=clusters,
            margin=margin,
        )
    sums = _sums(split_name(metric)[1], [*first, *second])
    paired = PairedSums(
        first=sums.rows[: len(first)],
        second=sums.rows[len(first) :],
        values=sums.values,
        higher_is_better=higher_is_better,
        clusters=clusters,
        margin=margin,
    )
    if paired.gain() is None:
        raise PairingError(_NO_VALUE)
    return paired


def two_sided_p(
    metric: str,
    first: Mapping[str, ScoreLike],
    second: Mapping[str, ScoreLike],
    difference: Difference,
    clusters: Mapping[str, str | None] | None = None,
    *,
    higher_is_better: bool = True,
) -> float | None:
    """Return the p-value of a ``difference`` that ``compare`` found of the same scores, by the test that a gate makes.

    It says how likely a difference as large, either way, is where nothing differs. None where there is no test.
    ``higher_is_better`` decides no more than which draws are those of the gate, where the test is not exact.

    A corpus metric has none either where the test would take long: where samples times the columns that are summed
    (three for each class of ``mcc``) are more than ``_MAX_SUMMED``. A gate makes the test nevertheless.
    """
    if difference.is_of_flips:
        return mcnemar(difference.num_lost or 0, difference.num_gained or 0).p_two_sided
    read = _parts_reader(metric) if difference.kind in ("pooled", "corpus") else _value_reader(metric)
    pairs = {id_: (read(score), read(second[id_])) for id_, score in first.items() if id_ in second}
    found = {id_: (one, other) for id_, (one, other) in pairs.items() if one is not None and other is not None}
    rows = [one for one, _ in found.values()], [other for _, other in found.values()]
    if not found or not all(map(math.isfinite, chain.from_iterable(chain(*rows)))):
        return None
    numbers = None if clusters is None else cluster_numbers([clusters.get(sample_id) for sample_id in found])
    try:
        if difference.kind == "corpus" and len(found) * _num_columns(metric, rows) > _MAX_SUMMED:
            return None
        tested = _to_test(metric, rows, numbers, higher_is_better=higher_is_better)
        return tested.test(_DRAWS).p_two_sided
    except (ArithmeticError, ValueError):  # a ``PairingError``, or numbers too large to be summed
        return None


def _num_columns(metric: str, rows: tuple[Sequence[Row], Sequence[Row]]) -> int:
    """Return how many numbers of a sample a corpus metric sums, as far as some of the samples show it."""
    step = -(-len(rows[0]) // _MAX_ROWS_READ)
    return len(_sums(split_name(metric)[1], [row for side in rows for row in side[::step]]).rows[0])


def _parts_reader(metric: str) -> Callable[[ScoreLike], Row | None]:
    """Return a function that reads a sample's numbers of which the metric is made; None if it has none.

    As in a summary, a metric that is made of sums is a mean of values of its own (``_value_reader``) where no sample
    has what the sums are taken over.
    """
    prefix = split_name(metric)[0]
    names = [prefix + part for part in made_of(metric)]
    others = [prefix + part for part in _optional(metric)]

    def read(score: ScoreLike) -> Row | None:
        if score.status == "unscored" or any(name not in score.values for name in names):
            return None
        # Of what a sample may lack: whether it is there, and its number.
        optional = ((float(name in score.values), float(score.values.get(name, 0.0))) for name in others)
        return (*(float(score.values[name]) for name in names), *chain.from_iterable(optional))

    return read


def _value_reader(metric: str) -> Callable[[ScoreLike], Row | None]:
    """Return a function that reads a sample's value of the metric; None if it has none."""

    def read(score: ScoreLike) -> Row | None:
        value = value_of(score, metric)
        return None if value is None else (value,)

    return read


@dataclass(frozen=True, slots=True)
class _Sums:
    """Rows to sum over samples, and the metric of each row of a table of sums, as ``PairedSums`` takes it."""

    rows: Sequence[Sequence[float]]
    values: Callable[[Numbers], Numbers]


def _sums(base: str, rows: Sequence[Row]) -> _Sums:
    """Return the sums of both runs' rows, made together so that they have one form."""
    if base in POOLED:
        of_rate = POOLED[base].of_rate

        def values(totals: Numbers) -> Numbers:
            import numpy as np

            # math.exp takes no array; what else there is, is arithmetic, which takes one as it is.
            of_rates = cast("Callable[[Numbers], Numbers]", np.exp if of_rate is math.exp else of_rate)
            with np.errstate(all="ignore"):
                rates = -totals[:, 0] / totals[:, 1]
                return np.where(np.isfinite(rates), of_rates(rates), np.nan)

        return _Sums(rows, values)
    formula = corpus_formula(base)
    if formula is None:
        raise PairingError("is not made of sums over samples, and cannot be tested")
    count = len(formula.needs)
    samples = [dict(zip(formula.needs, row[:count], strict=True)) for row in rows]
    for sample, row in zip(samples, rows, strict=True):
        there = zip(formula.may_have, row[count::2], row[count + 1 :: 2], strict=True)
        sample |= {name: value for name, is_there, value in there if is_there}
    found = formula.sums(samples)
    return _Sums(found.rows, row_by_row(found.value))


def counted(num_samples: int) -> str:
    """Return ``1 sample``, ``1,000 samples``."""
    return f"{num_samples:,} {'sample' if num_samples == 1 else 'samples'}"


def listed(ids: Sequence[str]) -> str:
    """Return ``(a, b, c, …)``: the first few."""
    return f"({', '.join(map(quoted, ids[:_MAX_LISTED]))}{', …' if len(ids) > _MAX_LISTED else ''})"


def _samples(ids: Sequence[str]) -> str:
    return f"{counted(len(ids))} {listed(ids)}"


def pooled_over_suites(parts: Sequence[PairedMetric]) -> PairedMetric | None:
    """Return one metric of several suites as if they were one, every sample counting equally.

    None where the samples have no values of their own that could stand beside each other: of corpus metrics and of
    perplexities, and where samples lie in clusters.
    """
    tests = [part.paired for part in parts if isinstance(part.paired, PairedValues) and part.paired.clusters is None]
    if not tests or len(tests) < len(parts):
        return None
    first = [value for test in tests for value in test.first]
    second = [value for test in tests for value in test.second]
    is_zero_or_one = all(part.is_zero_or_one for part in parts)
    each = [test.runs or (test.first,) for test in tests]
    runs = [
        [
            value
            for test, own in zip(tests, each, strict=True)
            for value in (own[place] if place < len(own) else [None] * len(test.first))
        ]
        for place in range(max(map(len, each)))
    ]
    return PairedMetric(
        difference=paired_difference(first, second, is_proportion=is_zero_or_one),
        paired=replace(tests[0], first=first, second=second, runs=runs),
        higher_is_better=parts[0].higher_is_better,
        num_worse=sum(part.num_worse for part in parts),
        num_better=sum(part.num_better for part in parts),
        flipped_to=parts[0].flipped_to,
        is_zero_or_one=is_zero_or_one,
        has_limits=parts[0].has_limits,
        is_unchanged=all(part.is_unchanged for part in parts),
        num_lacking=sum(part.num_lacking for part in parts),
        num_unmeasured=sum(part.num_unmeasured for part in parts),
    )
