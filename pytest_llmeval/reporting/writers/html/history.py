"""Draws a history as one page that needs nothing else and runs no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from pytest_llmeval.reporting.report.history import History, HistorySeries
from pytest_llmeval.reporting.writers.history import (
    RUN_ADDRESS,
    limits_of,
    number_form,
    runs_table,
    series_title,
    step_text,
    summary_texts,
    value_text,
)
from pytest_llmeval.reporting.writers.html.page import GENERATOR, page_resource, page_template, resource_hash
from pytest_llmeval.reporting.writers.html.tables import PageTable
from pytest_llmeval.text.escaping import printable

__all__ = ["history_page"]

_STYLE = "page.css"
_WIDTH, _HEIGHT, _MARGIN, _LEFT = 720, 168, 16, 64
_FLOOR = 150
"""The lower end of the axis: the runs' numbers stand below it."""
_MAX_NUMBERS = 20
_TONES = {True: "better", False: "worse", None: "changed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """A run on a chart: its place, its interval's ends if it has one, and the text that is shown for it."""

    x: float
    y: float
    low: float | None
    high: float | None
    title: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    """A series as it is drawn: ``line`` joins the marks.

    ``ticks`` are places and texts on its axis, ``numbers`` those of the runs below.
    """

    title: str
    marks: Sequence[_Mark]
    line: str
    ticks: Sequence[tuple[float, str]]
    numbers: Sequence[tuple[float, str]]
    notes: Sequence[str]
    values: PageTable


def history_page(history: History) -> str:
    """Return the page."""
    return page_template("history.html.jinja").render(
        policy=f"default-src 'none'; style-src {resource_hash(_STYLE)}; base-uri 'none'; form-action 'none'",
        style=page_resource(_STYLE),
        generator=f"{GENERATOR} {version(GENERATOR)}",
        summary=[f"{text[0].upper()}{text[1:]}." for text in summary_texts(history)],
        runs=_runs(history),
        charts=[_chart(history, series) for series in history.series],
        width=_WIDTH,
        height=_HEIGHT,
        floor=_FLOOR,
        left=_LEFT,
    )


def _runs(history: History) -> PageTable:
    table = runs_table(history)
    links = {
        column: [row[column] if row[column].startswith(("https://", "http://")) else "" for row in table.rows]
        for column, header in enumerate(table.headers)
        if header == RUN_ADDRESS
    }
    return PageTable.of(table, "Runs", links=links)


def _chart(history: History, series: HistorySeries) -> _Chart:
    low, high = limits_of(series.points)
    num_runs = len(history.runs)

    def x(run: int) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _MARGIN) * (run + 0.5) / num_runs, 1)

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(_FLOOR - _MARGIN - share * (_FLOOR - 2 * _MARGIN), 1)

    marks, rows = [], []
    for point in series.points:
        step = point.step if point.step is not None and point.step.is_significant else None
        what = printable(step_text(history, series, point, step)) if step is not None else ""
        value = value_text(series, point)
        commit = printable(history.runs[point.run].origin.described_commit() or "")
        untested = printable(f"not compared with the run before: {point.untested}") if point.untested else ""
        rows.append([f"#{point.run + 1}", commit, value, f"{point.n:,}", what or untested])
        if point.value is not None:
            marks.append(
                _Mark(
                    x=x(point.run),
                    y=y(point.value),
                    low=None if point.ci_low is None else y(point.ci_low),
                    high=None if point.ci_high is None else y(point.ci_high),
                    title="; ".join(filter(None, [f"#{point.run + 1}", commit, f"{value}, n {point.n:,}", what])),
                    tone="" if step is None else _TONES[step.is_better],
                )
            )
    return _Chart(
        title=printable(series_title(series)),
        marks=marks,
        line=" ".join(f"{mark.x},{mark.y}" for mark in marks),
        ticks=list(dict.fromkeys((y(value), number_form(series)(value)) for value in (low, high))) if marks else [],
        numbers=[(x(run), f"#{run + 1}") for run in range(0, num_runs, math.ceil(num_runs / _MAX_NUMBERS))],
        notes=[row[-1] for row in rows if row[-1]],
        values=PageTable(
            title="Values",
            headers=("run", "commit", "value", "n", "step"),
            rows=rows,
            align=["left", "left", "value", "right", "left"],
            is_folded=True,
        ),
    )
