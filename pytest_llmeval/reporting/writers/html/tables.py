"""Tables and sentences of a page, but for gates, changes and samples."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlencode

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.reporting.report.summaries import points_with_intervals
from pytest_llmeval.reporting.tables.cells import Table, number, with_interval
from pytest_llmeval.reporting.tables.session import (
    engine_texts,
    latency_table,
    per_sample_table,
    server_texts,
    speed_texts,
    store_texts,
)
from pytest_llmeval.reporting.tables.suites import (
    USUAL,
    MetricRow,
    averages_of,
    category_section,
    count_texts,
    distribution_table,
    mean_texts,
    metric_table,
    metrics_shown,
    named,
    suite_name,
    suite_row,
    unlike_texts,
    usual_metrics,
)
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin, RiskCoverage, RiskPoint, risks_at
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.types import JSON

__all__ = [
    "PageTable",
    "UnscoredReasons",
    "average_texts",
    "calibration_tables",
    "categories_tables",
    "environment_tables",
    "price_tables",
    "printable_cells",
    "samples_address",
    "signed_difference",
    "suite_counts",
    "suite_tables",
    "unscored_table",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable(Table):
    """A table of a page.

    ``tones`` are those of rows: ``bad``, ``good``. A table that ``is_folded`` is shown when it is asked for. ``links``
    are the addresses that a column's cells lead to, by the column's number; empty if a cell leads nowhere.
    """

    title: str
    notes: Sequence[str] = ()
    tones: Sequence[str] = ()
    is_folded: bool = False
    links: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, title: str, **more: Any) -> PageTable:
        """Return the table as a part of a page; ``more`` are this class's other fields."""
        return cls(**{one.name: getattr(table, one.name) for one in fields(Table)}, title=title, **more)


def printable_cells(*cells: str) -> list[str]:
    """Return the cells, made ``printable``."""
    return [printable(cell) for cell in cells]


def samples_address(**parts: str | None) -> str:
    """Return the place of the page where the script shows these samples, as ``address`` in page.js writes it."""
    return f"#{urlencode({name: printable(part) for name, part in parts.items() if part is not None})}"


def signed_difference(value: float, low: float | None, high: float | None) -> str:
    """Return ``+0.100 [-0.050, 0.250]``."""
    text = f"{'+' if value >= 0 else ''}{number(value)}"
    return text if low is None or high is None else f"{text} [{number(low)}, {number(high)}]"


_MAX_REASONS = 20


def suite_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield every suite's main metrics with their intervals: the usual ones together, then those that suites share."""
    rows = [suite_row(suite, names) for suite in report.suites]
    usual = [row for row in rows if any(name in USUAL for name in metrics_shown([row]))]
    if usual:
        yield PageTable.of(metric_table("suite", usual, usual_metrics(usual)), "Suites")
    others: dict[tuple[str, ...], list[MetricRow]] = {}
    for row in rows:
        own = tuple(name for name in metrics_shown([row]) if name not in USUAL)
        if own or row not in usual:
            others.setdefault(own, []).append(row)
    for metrics, members in others.items():
        title = f"Suites: {printable(', '.join(metrics)) or 'no metrics'}"
        yield PageTable.of(metric_table("suite", members, metrics), title)


def average_texts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Yield averages over suites, or why there are none."""
    for averages in report.averages:
        over = named("suites", averages.model, names)
        for kind, means in averages_of(averages):
            yield printable(f"{kind} average over {over}: {', '.join(means)}")
        yield from map(printable, unlike_texts(averages))


def suite_counts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Yield what is counted of each suite, and what is out of the ordinary."""
    for suite in report.suites:
        if counts := ", ".join(count_texts(suite)):
            yield printable(f"{suite_name(suite, names)}: {counts}")


def categories_tables(report: Report, names: Mapping[str, str]) -> Iterator[PageTable]:
    """Yield the categories of each suite that has several, its models one below the other in each category."""
    by_name: dict[str, list[SuiteReport]] = {}
    for suite in report.suites:
        if len(suite.categories) > 1:
            by_name.setdefault(suite.info.name, []).append(suite)
    for name, suites in by_name.items():
        rows: dict[str, list[MetricRow]] = {}
        notes = []
        for suite in suites:
            model = ", ".join(names.get(model, model) for model in suite.models)
            for row in category_section(suite, names).rows:
                rows.setdefault(row.name, []).append(row._replace(name=named(row.name, model, names)))
            if means := ", ".join(mean_texts(suite.macro, parts="category")):
                notes.append(printable(f"macro average over {named('categories', model, names)}: {means}"))
        ordered = [row for members in rows.values() for row in members]
        title = printable(f"{name} by category ({len(rows)})")
        table = metric_table("category", ordered, metrics_shown(ordered))
        yield PageTable.of(table, title, notes=notes, is_folded=True)


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
                address = samples_address(sample=record.id, of=record.suite, by=record.model)
                self.first[reason] = record.nodeid, address


def unscored_table(reasons: UnscoredReasons) -> PageTable | None:
    """Return the reasons, the most frequent first, or None if every sample was scored."""
    counts, first = reasons.counts, reasons.first
    if not counts:
        return None
    shown = counts.most_common(_MAX_REASONS)
    rows = [printable_cells(f"{count:,}", reason, first[reason][0]) for reason, count in shown]
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
            rows = [printable_cells(str(one["name"]), _facts(one)) for one in members]
            yield PageTable(
                title=title, headers=("name", "what is known of it"), rows=rows, align=["left"] * 2, is_folded=True
            )
    lines = [
        *speed_texts(report),
        *engine_texts(report.suites, names),
        *store_texts(report),
        *server_texts(report.models),
        *server_texts(report.judges),
    ]
    if lines:
        rows = [printable_cells(line) for line in lines]
        yield PageTable(title="How it was asked", headers=("",), rows=rows, align=["left"], is_folded=True)
    scorers = [_suite_cells(suite) for suite in _each_suite(report)]
    if scorers:
        headers = ("suite", "file", "scorer", "settings")
        yield PageTable(title="Suites", headers=headers, rows=scorers, align=["left"] * 4, is_folded=True)
    for title, facts in (("Environment", _flat(report.environment)), ("Options", report.options)):
        rows = [
            printable_cells(name, _as_cell(value)) for name, value in facts.items() if value not in (None, [], {}, "")
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
    return printable_cells(info.name, info.path or "", info.scorer or "", settings)


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
