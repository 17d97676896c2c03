"""A table of a page, and what its cells are made of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.reporting.report.risk_curves import points_with_intervals
from pytest_llmeval.reporting.tables.comparisons import distribution_cells
from pytest_llmeval.reporting.tables.session import latency_cells, per_sample_cells, store_texts
from pytest_llmeval.reporting.tables.suites import (
    USUAL,
    Row,
    category_section,
    count_texts,
    mean_texts,
    metric_cells,
    metrics_shown,
    named,
    suite_name,
    suite_row,
    unlike_texts,
    with_interval,
)
from pytest_llmeval.reporting.terminal.summary import engine_lines, server_lines, speed_lines
from pytest_llmeval.reporting.writers.text_layout import number
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.risk_coverage import RiskCoverage, RiskPoint, risks_at
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.types import JSON

__all__ = [
    "Table",
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
class Table:
    """Cells of text; ``align`` is ``left``, ``right`` or, for a number with its interval, ``value``. ``tones`` are of
    rows: ``bad``, ``good``. One that ``is_folded`` is shown when it is asked for. ``links`` are where a column's cells
    lead, by its number; empty where nowhere.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    notes: Sequence[str] = ()
    tones: Sequence[str] = ()
    is_folded: bool = False
    links: Mapping[int, Sequence[str]] = field(default_factory=dict)


def printable_cells(*cells: str) -> list[str]:
    return [printable(cell) for cell in cells]


def samples_address(**parts: str | None) -> str:
    """Where in the page the script shows these samples, as it writes that itself (``address`` in page.js)."""
    return f"#{urlencode({name: printable(part) for name, part in parts.items() if part is not None})}"


def signed_difference(value: float, low: float | None, high: float | None) -> str:
    text = f"{'+' if value >= 0 else ''}{number(value)}"
    return text if low is None or high is None else f"{text} [{number(low)}, {number(high)}]"


_MAX_REASONS = 20


def suite_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """Every suite's main metrics with their intervals: the usual ones together, then those that suites share."""
    rows = [suite_row(suite, names) for suite in report.suites]
    usual = [row for row in rows if any(name in USUAL for name in metrics_shown([row]))]
    if usual:
        yield _metric_table("Suites", "suite", usual, [name for name in metrics_shown(usual) if name in USUAL])
    others: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        own = tuple(name for name in metrics_shown([row]) if name not in USUAL)
        if own or row not in usual:
            others.setdefault(own, []).append(row)
    for metrics, members in others.items():
        yield _metric_table(f"Suites: {printable(', '.join(metrics)) or 'no metrics'}", "suite", members, metrics)


def _metric_table(title: str, heading: str, rows: Sequence[Row], metrics: Sequence[str]) -> Table:
    headers, cells, align = metric_cells(heading, rows, metrics)
    return Table(title=title, headers=headers, rows=cells, align=[*align[:2], *("value" for _ in align[2:])])


def average_texts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Averages over suites, or why there are none."""
    for averages in report.averages:
        over = named("suites", averages.model, names)
        for kind, metrics, parts in (("macro", averages.macro, "suite"), ("micro", averages.micro, None)):
            if means := ", ".join(mean_texts(metrics, parts=parts)):
                yield printable(f"{kind} average over {over}: {means}")
        yield from map(printable, unlike_texts(averages))


def suite_counts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """What is counted of each suite, and what is out of the ordinary."""
    for suite in report.suites:
        if counts := ", ".join(count_texts(suite)):
            yield printable(f"{suite_name(suite, names)}: {counts}")


def categories_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """The categories of each suite that has several, its models one below the other in each category."""
    by_name: dict[str, list[SuiteReport]] = {}
    for suite in report.suites:
        if len(suite.categories) > 1:
            by_name.setdefault(suite.info.name, []).append(suite)
    for name, suites in by_name.items():
        rows: dict[str, list[Row]] = {}
        notes = []
        for suite in suites:
            model = ", ".join(names.get(model, model) for model in suite.models)
            for row in category_section(suite, names).rows:
                rows.setdefault(row.name, []).append(row._replace(name=named(row.name, model, names)))
            if means := ", ".join(mean_texts(suite.macro, parts="category")):
                notes.append(printable(f"macro average over {named('categories', model, names)}: {means}"))
        ordered = [row for members in rows.values() for row in members]
        title = printable(f"{name} by category ({len(rows)})")
        table = _metric_table(title, "category", ordered, metrics_shown(ordered))
        yield replace(table, notes=notes, is_folded=True)


def calibration_tables(report: Report, names: Mapping[str, str], curves: Mapping[int, RiskCoverage]) -> Iterator[Table]:
    """The bins of each suite's reliability diagram, and its risk over coverage from ``curves``, see ``RiskReader``."""
    for suite in report.suites:
        name = printable(suite_name(suite, names))
        if suite.reliability is not None:
            error = suite.summary.metrics.get("ece")
            value = None if error is None else error.value
            yield Table(
                title=f"{name}: reliability",
                headers=("confidence", "n", "mean confidence", "accuracy", "gap"),
                rows=[_bin_cells(one) for one in suite.reliability if one.n],
                align=["left", *["right"] * 4],
                notes=[] if value is None else [f"expected calibration error {number(value)}"],
                is_folded=True,
            )
        if (curve := curves.get(id(suite))) is not None:
            points = points_with_intervals(suite, curve) or risks_at(curve)
            yield Table(
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


def price_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """What samples took, how long, and how their values are spread."""
    is_first = True
    for title, (headers, rows), num_texts in (
        ("A sample took, in the mean", per_sample_cells(report, names, always=True), 1),
        ("Time of samples", latency_cells(report.suites, names), 1),
        ("Distribution of metrics over samples", distribution_cells(report.suites, names), 2),
    ):
        if rows:
            align = ["left" if place < num_texts else "right" for place in range(len(headers))]
            yield Table(title=title, headers=headers, rows=rows, align=align, is_folded=not is_first)
            is_first = False


class UnscoredReasons:
    """Why samples could not be scored: how many for each reason, and the first of them: its node id and address."""

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


def unscored_table(reasons: UnscoredReasons) -> Table | None:
    """The reasons, the most frequent first; None where every sample was scored."""
    counts, first = reasons.counts, reasons.first
    if not counts:
        return None
    shown = counts.most_common(_MAX_REASONS)
    rows = [printable_cells(f"{count:,}", reason, first[reason][0]) for reason, count in shown]
    notes = []
    if len(counts) > _MAX_REASONS:
        notes.append(f"{len(counts) - _MAX_REASONS:,} more reasons are in the JSON report")
    return Table(
        title=f"Could not be scored: {counts.total():,}",
        headers=("samples", "reason", "the first of them"),
        rows=rows,
        align=("right", "left", "left"),
        notes=notes,
        links={2: [first[reason][1] for reason, _ in shown]},
    )


def environment_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """What ran: models, judges, how log-likelihoods were computed, versions, options."""
    for title, members in (("Models", report.models), ("Judges and embedders", report.judges)):
        if members:
            rows = [printable_cells(str(one["name"]), _facts(one)) for one in members]
            yield Table(
                title=title, headers=("name", "what is known of it"), rows=rows, align=["left"] * 2, is_folded=True
            )
    uses = [(suite_name(suite, names), suite.engine) for suite in report.suites if suite.engine is not None]
    lines = [
        *speed_lines(report),
        *engine_lines(uses),
        *store_texts(report),
        *server_lines(report.models),
        *server_lines(report.judges),
    ]
    if lines:
        rows = [printable_cells(line) for line in lines]
        yield Table(title="How it was asked", headers=("",), rows=rows, align=["left"], is_folded=True)
    scorers = [_suite_cells(suite) for suite in _each_suite(report)]
    if scorers:
        headers = ("suite", "file", "scorer", "settings")
        yield Table(title="Suites", headers=headers, rows=scorers, align=["left"] * 4, is_folded=True)
    for title, facts in (("Environment", _flat(report.environment)), ("Options", report.options)):
        rows = [
            printable_cells(name, _as_cell(value)) for name, value in facts.items() if value not in (None, [], {}, "")
        ]
        if rows:
            yield Table(title=title, headers=("name", "value"), rows=rows, align=["left"] * 2, is_folded=True)


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
    """With what stands in mappings beside the rest."""
    found: dict[str, JSON] = {}
    for name, value in facts.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def _as_cell(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
