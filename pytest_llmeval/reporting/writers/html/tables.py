"""The tables and sentences of a page: suites, gates, comparisons, calibration, prices, and what ran."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, GateResult, Regression, Report, SuiteReport
from pytest_llmeval.reporting.report.risks import points_with_intervals
from pytest_llmeval.reporting.tables.cells import Table, number, p_text, with_interval
from pytest_llmeval.reporting.tables.comparisons import (
    OUTCOMES,
    Flipped,
    as_comparison,
    compared_flips,
    comparison_notes,
    flipped_heading,
    flipped_table,
    gate_flips,
    gate_table,
    has_improved,
    ordered_gates,
    variant_flips,
    variant_tables,
)
from pytest_llmeval.reporting.tables.session import (
    budget_texts,
    engine_texts,
    latency_table,
    per_sample_table,
    server_texts,
    speed_texts,
    store_texts,
)
from pytest_llmeval.reporting.tables.suites import (
    distribution_table,
    named,
    suite_name,
)
from pytest_llmeval.reporting.writers.html.samples import compared_metric, gates_of_changes
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin, RiskCoverage, RiskPoint, risks_at
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.scoring.paired_metrics import (
    USUALLY_KEPT,
    FlippedSamples,
    flip_words,
)
from pytest_llmeval.scoring.statistics.paired_tests import mcnemar
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.types import JSON

__all__ = [
    "PageTable",
    "UnscoredReasons",
    "calibration_tables",
    "change_tables",
    "environment_tables",
    "flipped_tables",
    "gate_address",
    "gate_tables",
    "price_tables",
    "unscored_table",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable(Table):
    """A table of a page.

    ``tones`` are those of rows: ``bad``, ``good``. A table that ``is_folded`` is shown when it is asked for. ``links``
    are the addresses that a column's cells lead to, by the column's number; empty if a cell leads nowhere. ``beside``
    are the kind and the suite of the figure that shows the same.
    """

    title: str
    notes: Sequence[str] = ()
    tones: Sequence[str] = ()
    is_folded: bool = False
    links: Mapping[int, Sequence[str]] = field(default_factory=dict)
    beside: tuple[str, str] | None = None

    @classmethod
    def of(cls, table: Table, title: str, **more: Any) -> PageTable:
        """Return the table as a part of a page; ``more`` are this class's other fields."""
        return cls(**{one.name: getattr(table, one.name) for one in fields(Table)}, title=title, **more)


def _printable_cells(*cells: str) -> list[str]:
    """Return the cells, made ``printable``."""
    return [printable(cell) for cell in cells]


def _samples_address(**parts: str | None) -> str:
    """Return the place of the page where the script shows these samples, as ``address`` in page.js writes it."""
    return f"#{urlencode({name: printable(part) for name, part in parts.items() if part is not None})}"


def _signed_difference(value: float, low: float | None, high: float | None) -> str:
    """Return ``+0.100 [-0.050, 0.250]``."""
    text = f"{'+' if value >= 0 else ''}{number(value)}"
    return text if low is None or high is None else f"{text} [{number(low)}, {number(high)}]"


_MAX_REASONS = 20


def calibration_tables(
    report: Report, names: Mapping[str, str], curves: Mapping[int, RiskCoverage]
) -> Iterator[PageTable]:
    """Yield the bins of each suite's reliability diagram, and its risk over coverage from ``RiskReader.curves``."""
    for suite in report.suites:
        name = printable(suite_name(suite, names))
        if suite.reliability is not None:
            error = suite.summary.metrics.get("ece")
            value = None if error is None else error.value
            yield PageTable(
                title=f"{name}: reliability",
                headers=("confidence", "n", "mean confidence", "accuracy", "gap"),
                rows=[_bin_cells(one) for one in suite.reliability if one.n],
                align=["left", *["right"] * 4],
                notes=[] if value is None else [f"expected calibration error {number(value)}"],
                is_folded=True,
                beside=("reliability", suite.info.name),
            )
        if (curve := curves.get(id(suite))) is not None:
            points = points_with_intervals(suite, curve) or risks_at(curve)
            yield PageTable(
                title=f"{name}: risk and coverage",
                headers=("coverage", "n", "least confidence", "risk [95%]"),
                rows=[_risk_cells(point, has_interval=suite.info.cluster is None) for point in points],
                align=["right", "right", "right", "value"],
                notes=[f"area under the curve (AURC) {number(curve.aurc)}, n {curve.n:,}"],
                is_folded=True,
                beside=("risk-coverage", suite.info.name),
            )


def _risk_cells(point: RiskPoint, *, has_interval: bool) -> list[str]:
    ends = (point.ci_low, point.ci_high) if has_interval else (None, None)
    return [f"{point.coverage:.0%}", f"{point.n:,}", number(point.confidence), with_interval(point.risk, *ends)]


def _bin_cells(one: ReliabilityBin) -> list[str]:
    gap = None if one.confidence is None or one.accuracy is None else one.accuracy - one.confidence
    numbers = ["" if value is None else number(value) for value in (one.confidence, one.accuracy, gap)]
    return [f"{one.low:.2f} to {one.high:.2f}", f"{one.n:,}", *numbers]


def price_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield what samples took, how long, and how their values are spread."""
    is_first = True
    for title, table in (
        ("A sample took, in the mean", per_sample_table(report, names, always=True)),
        ("Time of samples", latency_table(report.suites, names)),
        ("Distribution of metrics over samples", distribution_table(report.suites, names)),
    ):
        if table.rows:
            yield PageTable.of(table, title, is_folded=not is_first)
            is_first = False


class UnscoredReasons:
    """Reasons why samples could not be scored: how many for each, and the node id and address of the first of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, tuple[str, str]] = {}

    def add(self, record: Record) -> None:
        if record.status == "unscored":
            reason = record.reason or "no reason given"
            if reason not in self.counts and len(self.counts) >= 10 * _MAX_REASONS:
                reason = "another reason"
            self.counts[reason] += 1
            if reason not in self.first:
                address = _samples_address(sample=record.id, of=record.suite, by=record.model)
                self.first[reason] = record.nodeid, address


def unscored_table(reasons: UnscoredReasons) -> PageTable | None:
    """Return the reasons, the most frequent first, or None if every sample was scored."""
    counts, first = reasons.counts, reasons.first
    if not counts:
        return None
    shown = counts.most_common(_MAX_REASONS)
    rows = [_printable_cells(f"{count:,}", reason, first[reason][0]) for reason, count in shown]
    notes = []
    if len(counts) > _MAX_REASONS:
        notes.append(f"{len(counts) - _MAX_REASONS:,} more reasons are in the JSON report")
    return PageTable(
        title=f"Could not be scored: {counts.total():,}",
        headers=("samples", "reason", "the first of them"),
        rows=rows,
        align=("right", "left", "left"),
        notes=notes,
        links={2: [first[reason][1] for reason, _ in shown]},
    )


def environment_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield what ran: models, judges, how log-likelihoods were computed, versions, options."""
    for title, members in (("Models", report.models), ("Models that scorers ask", report.judges)):
        if members:
            rows = [_printable_cells(str(one["name"]), _facts(one)) for one in members]
            yield PageTable(
                title=title, headers=("name", "what is known of it"), rows=rows, align=["left"] * 2, is_folded=True
            )
    asked = () if report.is_brief else (report.models, report.judges)
    lines = [
        *speed_texts(report),
        *engine_texts(report.suites, names),
        *store_texts(report),
        *budget_texts(report),
        *(text for models in asked for text in server_texts(models)),
    ]
    if lines:
        rows = [_printable_cells(line) for line in lines]
        yield PageTable(title="How it was asked", headers=("",), rows=rows, align=["left"], is_folded=True)
    scorers = [_suite_cells(suite) for suite in _each_suite(report)]
    if scorers:
        headers = ("suite", "file", "scorer", "settings")
        yield PageTable(title="Suites", headers=headers, rows=scorers, align=["left"] * 4, is_folded=True)
    origin = {} if report.origin is None else _flat(asdict(report.origin))
    for title, facts in (("Origin", origin), ("Environment", _flat(report.environment)), ("Options", report.options)):
        rows = [
            _printable_cells(name, _as_cell(value)) for name, value in facts.items() if value not in (None, [], {}, "")
        ]
        if rows:
            yield PageTable(title=title, headers=("name", "value"), rows=rows, align=["left"] * 2, is_folded=True)


def _each_suite(report: Report) -> Iterator[SuiteReport]:
    seen: set[str] = set()
    for suite in report.suites:
        if suite.info.name not in seen:
            seen.add(suite.info.name)
            yield suite


def _suite_cells(suite: SuiteReport) -> list[str]:
    info = suite.info
    settings = _as_cell(dict(info.settings)) if info.settings else ""
    return _printable_cells(info.name, info.path or "", info.scorer or "", settings)


def _facts(model: Mapping[str, JSON]) -> str:
    facts = _flat({name: value for name, value in model.items() if name not in ("name", "use")})
    return ", ".join(f"{name} {_as_cell(value)}" for name, value in facts.items() if value not in (None, [], {}, ""))


def _flat(facts: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the facts, with those inside of mappings beside the rest."""
    found: dict[str, JSON] = {}
    for name, value in facts.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def _as_cell(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_MAX_FLIPPED, _MAX_CHANGES_OPEN = 40, 15


def change_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield suites against the baseline, variants against the first ones, and how many samples changed in each metric,
    with its paired test.
    """
    yield from _baseline_tables(report, names)
    for table, meaning in variant_tables(report.variants, names):
        table = replace(table, align=[*table.align[:3], "right", *table.align[4:]])  # the first has no intervals
        note = f"Over the samples that both scored: {meaning}."
        yield PageTable.of(table, f"Against {table.headers[3]}", notes=[note])
    if notes := [[note] for note in comparison_notes(report, names)]:
        yield PageTable(title="What these comparisons leave out", headers=("why",), rows=notes, align=["left"])
    better = report.better_by_suite()
    is_explained, compared = False, "compared" if report.variants else "model"
    for became, title in _CHANGED.items():
        became_headers = [f"became {word}" for word in became]
        rows = [row for one in report.comparisons for row in _flip_rows(one, better.get(one.suite, {}), names, became)]
        for variant in report.variants:
            shown = as_comparison(variant, names)
            rows += _flip_rows(shown, better.get(variant.second, {}), {}, became)
        has_p = any(row[-1] for row in rows)
        if rows:
            yield PageTable(
                title=f"{title} ({len(rows)})" if len(rows) > _MAX_CHANGES_OPEN else title,
                headers=("suite", compared, "metric", "n", *became_headers, "difference [95%]", "p"),
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
    of_variants = variant_flips(report.variants, names)
    first = [*gate_flips(report.gates, names), *compared_flips(firsts, names), *of_variants]
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
        links={1: [_samples_address(sample=one.id, of=flipped.suite, by=flipped.model) for one in shown]},
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
        difference = _signed_difference(found.difference, found.ci_low, found.ci_high)
        p = _two_sided(found)
        shown = "" if p is None else p_text(p)
        yield _printable_cells(one.suite, model, metric, f"{found.n:,}", *counts, difference, shown)


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
    """Yield every gate, what failed first. If there are many, those that did not fail are folded, by their outcome."""
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


def _baseline_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    tested = [(one, one.regression) for one in ordered_gates(report.gates) if one.regression is not None]
    if tested:
        yield PageTable(
            title="Against the baseline",
            headers=_TESTED,
            rows=[
                _printable_cells(
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
    return ["" if one.suite is None else gate_address(known, one) for one in gates]


def gate_address(listed: Collection[int], one: GateResult) -> str:
    """Return where a gate's samples are shown; ``listed`` are the ids of ``gates_of_changes``."""
    is_worse = id(one) in listed and one.regression is not None and one.regression.num_worse
    change = "worse" if is_worse else None
    return _samples_address(suite=one.suite, model=one.model, category=one.category, metric=one.metric, change=change)


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
    yield _signed_difference(found.difference, found.ci_low, found.ci_high)
    yield p_text(found.p_improved_adjusted if is_better else found.p_adjusted)
    yield from (f"{found.num_worse:,}", f"{found.num_better:,}")
    yield "" if found.smallest_drop is None else number(found.smallest_drop)
