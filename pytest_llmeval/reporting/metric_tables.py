"""The numbers of suites and of categories as a terminal shows them: tables while they fit, else lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from pytest_llmeval.reporting.escape import printable
from pytest_llmeval.reporting.report import Summary
from pytest_llmeval.reporting.tables import joined_lines, number, table_lines, table_width
from pytest_llmeval.scoring.definitions import definition
from pytest_llmeval.scoring.metrics import Metric

__all__ = [
    "HEADINGS",
    "USUAL",
    "Row",
    "category_lines",
    "grouped",
    "metric_cells",
    "metrics_shown",
    "suite_lines",
    "with_interval",
]

Row = tuple[str, Summary]
"""The name of a suite or category, and its numbers."""

USUAL = ("accuracy", "skill", "brier")
"""Metrics that most suites have: suites with one of these share a table."""

HEADINGS: Mapping[str, str] = MappingProxyType({"brier": "Brier"})
"""Metrics that are shown under another name than their own."""

_MAX_LISTED = 40
"""Values of categories in a list; of more, only those that a table has room for are shown."""


def suite_lines(rows: Sequence[Row], *, width: int) -> Iterator[str]:
    """Suites with their metrics: one table for those with accuracy, skill or Brier score, further ones for suites with
    the same other metrics.

    Where the first table has no room for the suites' other metrics, they follow it, suite by suite. A table that is too
    wide all the same becomes a list.
    """
    for place, group in enumerate(grouped(rows)):
        yield from [""] * (place > 0)
        names = metrics_shown(group)
        usual = [name for name in names if name in USUAL]
        if _fits("suite", group, names, width) or not usual or not _fits("suite", group, usual, width):
            yield from _table("suite", group, names, width)
            continue
        yield from _table("suite", group, usual, width)
        for row in group:
            yield from _others(row, names[len(usual) :], width)


def category_lines(heading: str, rows: Sequence[Row], *, width: int) -> Iterator[str]:
    """The categories of a suite: all of its metrics where there is room for them, else those that come first."""
    names = metrics_shown(rows)
    if _fits(heading, rows, names, width):
        yield from _table(heading, rows, names, width)
        return
    usual = [name for name in names if name in USUAL]
    kept = usual or names
    if not _fits(heading, rows, kept, width) and len(rows) * len(kept) > _MAX_LISTED:
        kept = [
            name for place, name in enumerate(names) if place == 0 or _fits(heading, rows, names[: place + 1], width)
        ]
    yield from _table(heading, rows, kept, width)
    if len(kept) < len(names):
        yield "(other metrics by category: in the report)"


def grouped(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The suites that share a table, those with the usual metrics first."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        names = metrics_shown([row])
        key = () if not names or any(name in USUAL for name in names) else tuple(names)
        groups.setdefault(key, []).append(row)
    if () in groups:
        yield groups.pop(())
    yield from groups.values()


def metrics_shown(rows: Iterable[Row]) -> list[str]:
    """Metrics with an interval, the usual ones first; what is of minor interest stays in the report."""
    found = dict.fromkeys(
        name
        for _, summary in rows
        for name, metric in summary.metrics.items()
        if metric.kind != "count" and definition(name).in_terminal
    )
    usual = [name for name in USUAL if name in found]
    return [*usual, *(name for name in found if name not in usual)]


def _fits(heading: str, rows: Sequence[Row], names: Sequence[str], width: int) -> bool:
    return table_width(*metric_cells(heading, rows, names)) <= width


def _table(heading: str, rows: Sequence[Row], names: Sequence[str], width: int) -> Iterator[str]:
    return table_lines(*metric_cells(heading, rows, names), width=width)


def metric_cells(
    heading: str, rows: Sequence[Row], names: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """Headers, rows and alignment of a table, its texts made ``printable``."""
    headers = [printable(heading), "n", *(printable(HEADINGS.get(name, name)) for name in names)]
    cells = [
        [printable(name), _count(summary), *(_value(summary.metrics.get(metric), summary) for metric in names)]
        for name, summary in rows
    ]
    return headers, cells, ["left", "right", *("left" for _ in names)]


def _others(row: Row, names: Sequence[str], width: int) -> Iterator[str]:
    name, summary = row
    found = {metric: _value(summary.metrics.get(metric), summary) for metric in names}
    items = [f"{printable(metric)} {value}" for metric, value in found.items() if value]
    if items:
        yield from joined_lines(f"{printable(name)}:", items, width=width)


def _count(summary: Summary) -> str:
    if summary.num_scored == summary.num_expected:
        return str(summary.num_scored)
    return f"{summary.num_scored}/{summary.num_expected}"


def _value(metric: Metric | None, summary: Summary) -> str:
    if metric is None or metric.value is None:
        return ""
    n = "" if metric.n == summary.num_scored else f" (n {metric.n})"
    return f"{with_interval(metric.value, metric.ci_low, metric.ci_high)}{n}"


def with_interval(value: float, ci_low: float | None, ci_high: float | None) -> str:
    """``0.700 [0.605, 0.781]``; the value alone where it has no interval."""
    if ci_low is None or ci_high is None:
        return number(value)
    return f"{number(value)} [{number(ci_low)}, {number(ci_high)}]"
