"""The changes that a page shows: gates, models against the first one, and the samples that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, GateResult, Regression, Report
from pytest_llmeval.reporting.tables.cells import number, p_text
from pytest_llmeval.reporting.tables.comparisons import (
    OUTCOMES,
    Flipped,
    compared_flips,
    comparison_tables,
    flipped_heading,
    flipped_table,
    gate_flips,
    gate_table,
    has_improved,
    ordered_gates,
)
from pytest_llmeval.reporting.tables.suites import named
from pytest_llmeval.reporting.writers.html.tables import PageTable, printable_cells, samples_address, signed_difference
from pytest_llmeval.scoring.differences import Difference
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.paired_metrics import (
    LEAST_CHANGE,
    USUALLY_KEPT,
    FlippedSample,
    FlippedSamples,
    flip_words,
)
from pytest_llmeval.scoring.statistics.paired_tests import mcnemar

__all__ = [
    "Changes",
    "Direction",
    "FlippedTables",
    "SampleChange",
    "change_tables",
    "compared_metric",
    "flipped_tables",
    "gate_tables",
    "gates_of_changes",
]

Direction: TypeAlias = Literal["worse", "better", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleChange:
    """A sample's value before and now, of the metric by which its suite is compared."""

    direction: Direction
    before: float
    now: float


class Changes:
    """The changes of the samples of a report.

    A comparison with a baseline takes precedence over one of models; of the suite's metrics accuracy does, else the
    first that samples have values of. Give each record to ``read`` first, then ask ``of``: records of the first model
    may stand after the others.
    """

    def __init__(self, report: Report) -> None:
        self._moved: dict[tuple[str, str | None], dict[str, SampleChange]] = {}
        self._metrics: dict[tuple[str, str], tuple[str, bool]] = {}
        self._first: dict[tuple[str, str], dict[str, float]] = {}
        self._first_models: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        for key, (_, moved) in _against_baseline(report).items():
            self._moved[key] = _changes(moved)
        better = report.better_by_suite()
        for one in report.comparisons:
            if (one.suite, one.second) not in self._moved and (metric := compared_metric(one)) is not None:
                is_higher = definition(metric, better.get(one.suite, {})).higher_is_better is not False
                self._metrics[one.suite, one.second] = metric, is_higher
                self._first_models[one.suite] = one.first
                self._names.setdefault(one.suite, set()).add(metric)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was compared."""
        return not self._moved and not self._metrics

    def read(self, record: Record) -> None:
        """Remember the record's value if others are compared with it."""
        if self._first_models.get(record.suite) == record.model:
            for name in self._names.get(record.suite, ()):
                if (value := value_of(record, name)) is not None:
                    self._first.setdefault((record.suite, name), {})[record.id] = value

    def of(self, record: Record) -> SampleChange | None:
        """Return how the sample changed, or None if that is not known.

        It is not known of a sample that was not compared. A comparison with a baseline keeps those that changed most.
        """
        for model in (record.model, None):
            if (moved := self._moved.get((record.suite, model))) is not None:
                return moved.get(record.id)
        compared = self._metrics.get((record.suite, record.model or ""))
        if compared is None:
            return None
        metric, is_higher = compared
        now, before = value_of(record, metric), self._first.get((record.suite, metric), {}).get(record.id)
        if now is None or before is None:
            return None
        if abs(now - before) <= LEAST_CHANGE:
            return SampleChange(direction="same", before=before, now=now)
        return SampleChange(direction="better" if (now > before) == is_higher else "worse", before=before, now=now)


def gates_of_changes(report: Report) -> list[GateResult]:
    """Return the gates whose comparison with a baseline says which samples changed: one for each suite and model."""
    return [gate for gate, _ in _against_baseline(report).values()]


def _against_baseline(report: Report) -> dict[tuple[str, str | None], tuple[GateResult, FlippedSamples]]:
    """Map each suite and model to a gate and its samples, by the metric that says most of a sample: accuracy first."""
    found: dict[tuple[str, str | None], tuple[GateResult, FlippedSamples]] = {}
    for one in sorted(report.gates, key=lambda gate: gate.metric != "accuracy"):
        if one.suite is not None and one.regression is not None and one.regression.movers is not None:
            found.setdefault((one.suite, one.model), (one, one.regression.movers))
    return found


def _changes(moved: FlippedSamples) -> dict[str, SampleChange]:
    sides: Sequence[tuple[Direction, Sequence[FlippedSample]]] = (("worse", moved.worse), ("better", moved.better))
    return {
        one.id: SampleChange(direction=direction, before=one.before, now=one.now)
        for direction, members in sides
        for one in members
    }


def compared_metric(one: Comparison) -> str | None:
    """Return which of the compared metrics says most of a sample."""
    names = list(one.movers)
    return "accuracy" if "accuracy" in names else next(iter(names), None)


_MAX_FLIPPED, _MAX_CHANGES_OPEN = 40, 30


def change_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield models against the first one, and how many samples changed in each metric, with its paired test."""
    for table, meaning in comparison_tables(report.comparisons, names):
        table = replace(table, align=[*table.align[:3], "right", *table.align[4:]])  # the first model has no intervals
        note = f"Over the samples that both scored: {meaning}."
        yield PageTable.of(table, f"Against {table.headers[3]}", notes=[note])
    better = report.better_by_suite()
    is_explained = False
    for became, title in _CHANGED.items():
        became_headers = [f"became {word}" for word in became]
        rows = [row for one in report.comparisons for row in _flip_rows(one, better.get(one.suite, {}), names, became)]
        has_p = any(row[-1] for row in rows)
        if rows:
            yield PageTable(
                title=f"{title} ({len(rows)})" if len(rows) > _MAX_CHANGES_OPEN else title,
                headers=("suite", "model", "metric", "n", *became_headers, "difference [95%]", "p"),
                rows=rows,
                align=["left", "left", "left", *["right"] * 5],
                notes=_TESTED_HOW if has_p and not is_explained else [],
                is_folded=len(rows) > _MAX_CHANGES_OPEN,
            )
            is_explained = is_explained or has_p


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedTables:
    """Tables of samples that changed most: in the metrics of gates and of comparisons, and in further metrics."""

    main: Sequence[PageTable]
    further: Sequence[PageTable]
    num_left_out: int


def flipped_tables(report: Report, names: Mapping[str, str]) -> FlippedTables:
    """Return a table for each metric of a gate or a comparison, as many as a page can show."""
    firsts, others = [], []
    for one in report.comparisons:
        main = compared_metric(one)
        firsts.append(replace(one, movers={name: own for name, own in one.movers.items() if name == main}))
        others.append(replace(one, movers={name: own for name, own in one.movers.items() if name != main}))
    first = [*gate_flips(report.gates, names), *compared_flips(firsts, names)]
    further = [*compared_flips(others, names)]
    num_further = max(0, _MAX_FLIPPED - len(first))
    return FlippedTables(
        main=[_flipped_table(one) for one in first[:_MAX_FLIPPED]],
        further=[_flipped_table(one) for one in further[:num_further]],
        num_left_out=max(0, len(first) + len(further) - _MAX_FLIPPED),
    )


def _flipped_table(flipped: Flipped) -> PageTable:
    found, table = flipped.samples, flipped_table(flipped)
    left_out = max(0, found.num_worse - USUALLY_KEPT), max(0, found.num_better - USUALLY_KEPT)
    shown = [*found.worse[:USUALLY_KEPT], *found.better[:USUALLY_KEPT]]
    notes = [f"and {left_out[0]:,} more that are worse, {left_out[1]:,} that are better: in the list of samples"]
    return PageTable.of(
        table,
        flipped_heading(flipped),
        tones=["bad" if row[0] == "worse" else "good" for row in table.rows],
        notes=notes if any(left_out) else [],
        is_folded=True,
        links={1: [samples_address(sample=one.id, of=flipped.suite, by=flipped.model) for one in shown]},
    )


_CHANGED: Mapping[tuple[str, str], str] = MappingProxyType(
    {("wrong", "right"): "Flips", ("worse", "better"): "Changes of each suite"}
)
"""Pairs of what samples can become, each with the title of the table that counts them."""


_TESTED_HOW = (
    "p: how likely a difference as large, either way, is where nothing differs; two-sided, of each suite and metric "
    "by itself. Of values that are all 0 or 1, as of right and wrong answers, it is the exact McNemar test; of others, "
    "and where samples lie in clusters, the sign-flip test, in which the two models' values of a sample (or cluster) "
    "change places. Gates make the same tests. Blank where there is no test.",
)


def _flip_rows(
    one: Comparison, better: Mapping[str, str], names: Mapping[str, str], became: tuple[str, str]
) -> Iterator[list[str]]:
    """Yield the metrics by which samples ``became`` this, without those that say how far a judge is to be trusted."""
    for metric, found in one.differences.items():
        known = definition(metric, better)
        if not known.in_terminal or (is_of_trust(metric) and metric.startswith("judge.")):
            continue
        if flip_words(metric, is_zero_or_one=found.num_gained is not None) != became:
            continue
        model = f"{names.get(one.second, one.second)} against {names.get(one.first, one.first)}"
        changed = _changed(found, one.movers.get(metric), known.higher_is_better)
        if changed is None and found.p_value is None:
            continue
        counts = ("", "") if changed is None else [f"{count:,}" for count in changed]
        difference = signed_difference(found.difference, found.ci_low, found.ci_high)
        p = _two_sided(found)
        shown = "" if p is None else p_text(p)
        yield printable_cells(one.suite, model, metric, f"{found.n:,}", *counts, difference, shown)


def _changed(found: Difference, moved: FlippedSamples | None, higher_is_better: bool | None) -> tuple[int, int] | None:
    """Return how many samples became worse, and better, or None if that is not known."""
    if found.num_gained is not None and found.num_lost is not None and higher_is_better is not None:
        return (found.num_lost, found.num_gained) if higher_is_better else (found.num_gained, found.num_lost)
    return None if moved is None else (moved.num_worse, moved.num_better)


def _two_sided(found: Difference) -> float | None:
    """Return the p-value of a difference; an older report has none, and there it is that of proportions."""
    if found.p_value is None and found.is_of_flips:
        return mcnemar(found.num_lost or 0, found.num_gained or 0).p_two_sided
    return found.p_value


_MAX_GATES_OPEN = 10


def gate_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield every gate, what failed first; then the numbers of those against a baseline.

    If there are many, those that did not fail are folded, by their outcome.
    """
    ordered = ordered_gates(report.gates)
    if len(ordered) <= _MAX_GATES_OPEN:
        yield from _gate_table("Gates", ordered, report, names)
    else:
        for outcome in OUTCOMES:
            found = [one for one in ordered if one.outcome == outcome]
            if outcome == "failed":
                yield from _gate_table("Gates", found, report, names)
            else:
                yield from _gate_table(f"{len(found):,} {outcome}", found, report, names, is_folded=True)
    tested = [(one, one.regression) for one in ordered if one.regression is not None]
    if tested:
        yield PageTable(
            title="Against the baseline",
            headers=_TESTED,
            rows=[
                printable_cells(
                    "improved" if one.outcome != "failed" and has_improved(one) else one.outcome,
                    "" if one.suite is None else named(one.suite, one.model, names),
                    *_regression_cells(found, is_better=has_improved(one)),
                )
                for one, found in tested
            ],
            align=["left", "left", "left", *("right" for _ in _TESTED[3:])],
            notes=[
                "p (Holm): how likely so large a drop is where nothing has changed (of what improved: so large an "
                "improvement), adjusted for all tests there are. "
                "Smallest drop: what so many samples find with 90% power."
            ],
            tones=["bad" if one.outcome == "failed" else "good" for one, _ in tested],
            links={1: _addresses([one for one, _ in tested], report)},
        )


def _gate_table(
    title: str, gates: Sequence[GateResult], report: Report, names: Mapping[str, str], *, is_folded: bool = False
) -> Iterator[PageTable]:
    if gates:
        tones = [{"failed": "bad", "passed": "good"}.get(one.outcome, "") for one in gates]
        links = {1: _addresses(gates, report)}
        yield PageTable.of(gate_table(gates, names), title, tones=tones, is_folded=is_folded, links=links)


def _addresses(gates: Sequence[GateResult], report: Report) -> list[str]:
    """Return where each gate's samples are shown: those that became worse, if the page knows them from this gate."""
    known = {id(one) for one in gates_of_changes(report)}
    return ["" if one.suite is None else _address_of(one, is_listed=id(one) in known) for one in gates]


def _address_of(one: GateResult, *, is_listed: bool) -> str:
    is_worse = is_listed and one.regression is not None and one.regression.num_worse
    change = "worse" if is_worse else None
    return samples_address(suite=one.suite, model=one.model, category=one.category, metric=one.metric, change=change)


_TESTED = (
    "outcome",
    "suite",
    "metric",
    "n",
    "baseline",
    "now",
    "difference [95%]",
    "p (Holm)",
    "worse",
    "better",
    "smallest drop",
)


def _regression_cells(found: Regression, *, is_better: bool) -> Iterator[str]:
    yield from (found.metric, f"{found.n:,}", number(found.baseline), number(found.current))
    yield signed_difference(found.difference, found.ci_low, found.ci_high)
    yield p_text(found.p_improved_adjusted if is_better else found.p_adjusted)
    yield from (f"{found.num_worse:,}", f"{found.num_better:,}")
    yield "" if found.smallest_drop is None else number(found.smallest_drop)
