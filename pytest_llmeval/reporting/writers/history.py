"""Draws a history as text, Markdown and CSV (``html/history.py`` draws the page).

All texts of reports are made ``printable``, and escaped for the format that is written.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence

from pytest_llmeval.reporting.report.history import History, HistoryPoint, HistoryRun, HistorySeries, HistoryStep
from pytest_llmeval.reporting.tables.cells import Table, number, p_text, signed, small_number, with_interval
from pytest_llmeval.reporting.writers.markdown import markdown_table
from pytest_llmeval.reporting.writers.text_layout import table_lines, wrapped_lines
from pytest_llmeval.text.escaping import csv_text, markdown_text, printable
from pytest_llmeval.text.wording import counted

__all__ = [
    "RUN_ADDRESS",
    "history_csv",
    "history_markdown",
    "history_text",
    "limits_of",
    "number_form",
    "runs_table",
    "series_title",
    "step_text",
    "summary_texts",
    "value_text",
]

_CHART_WIDTH = 32
RUN_ADDRESS = "CI run"
"""The header of the column with the addresses of CI services' runs."""


def history_text(history: History, *, width: int) -> Iterator[str]:
    """Yield the lines of a history for the terminal: the runs, and a chart for each suite and metric."""
    yield from table_lines(runs_table(history), width=width)
    for series in history.series:
        yield ""
        yield printable(series_title(series))
        for line in _drawn(series):
            yield f"  {line}"
        yield from (f"  {line}" for text in _notes(history, series) for line in wrapped_lines(text, width=width - 2))
    yield ""
    for text in summary_texts(history):
        yield from wrapped_lines(text, width=width)


def history_markdown(history: History) -> Iterator[str]:
    """Yield the lines of a history as Markdown."""
    yield from ("# History", "")
    for text in summary_texts(history):
        yield markdown_text(f"{text[0].upper()}{text[1:]}.")
    table = runs_table(history)
    yield from markdown_table(table.headers, table.rows, table.align)
    for series in history.series:
        yield from (f"## {markdown_text(series_title(series))}", "")
        notes = list(_notes(history, series))
        yield from (f"- {markdown_text(text)}" for text in notes)
        yield from ([""] if notes else [])
        yield from ("```", *_drawn(series), "```", "")


_COLUMNS = (
    *("created", "report", "commit", "branch", "is_dirty", "run", "pull_request", "labels", "exit_code", "is_partial"),
    *("suite", "model", "metric", "value", "n", "ci_low", "ci_high"),
    *("step_n", "difference", "difference_ci_low", "difference_ci_high", "p_value", "p_adjusted", "is_significant"),
    "untested",
)


def history_csv(history: History) -> Iterator[str]:
    """Yield the lines of a history as CSV: a head, and a row for each run, suite and metric."""
    yield _csv_line(_COLUMNS)
    for series in history.series:
        for point in series.points:
            run, step = history.runs[point.run], point.step
            origin = run.origin
            tested: Sequence[object] = [None] * 7
            if step is not None:
                tested = [step.n, step.difference, step.ci_low, step.ci_high, step.p_value, step.p_adjusted]
                tested = [*tested, step.is_significant]
            yield _csv_line(
                [
                    *(run.created, run.path, origin.commit, origin.branch, origin.is_dirty, origin.run),
                    *(origin.pull_request, json.dumps(dict(origin.labels)) if origin.labels else None),
                    *(run.exit_code, run.is_partial, series.suite, ", ".join(point.models), series.metric),
                    *(point.value, point.n, point.ci_low, point.ci_high, *tested, point.untested),
                ]
            )


def _csv_line(cells: Sequence[object]) -> str:
    file = io.StringIO()
    shown = [str(cell).lower() if isinstance(cell, bool) else cell for cell in cells]
    csv.writer(file).writerow([csv_text(cell) if isinstance(cell, str) else cell for cell in shown])
    return file.getvalue().removesuffix("\r\n")


def runs_table(history: History) -> Table:
    """Return a row for each run; columns in which no run has anything are left out."""
    headers = ["run", "started", "commit", "branch", "pull request", "labels", "model", "exit code", "report"]
    headers.append(RUN_ADDRESS)
    rows = [
        [
            f"#{place}",
            printable(run.created),
            printable(run.origin.described_commit() or ""),
            printable(run.origin.branch or ""),
            printable(run.origin.pull_request or ""),
            printable(", ".join(f"{key}={value}" for key, value in run.origin.labels.items())),
            printable(", ".join(run.models)),
            f"{run.exit_code}{' (a part)' if run.is_partial else ''}",
            printable(run.path),
            printable(run.origin.run or ""),
        ]
        for place, run in enumerate(history.runs, 1)
    ]
    used = [place for place in range(len(headers)) if any(row[place] for row in rows)]
    return Table(
        headers=[headers[place] for place in used],
        rows=[[row[place] for place in used] for row in rows],
        align=["left" for _ in used],
        keys=1,
    )


def series_title(series: HistorySeries) -> str:
    """Return the suite, its model if there are several, the metric, and which direction is better if that is known."""
    direction = {True: " (higher is better)", False: " (lower is better)", None: ""}
    names = [series.suite, *([] if series.model is None else [series.model]), series.metric]
    return f"{' · '.join(names)}{direction[series.higher_is_better]}"


def _drawn(series: HistorySeries) -> Iterator[str]:
    """Yield a line for each run of a series: value, interval, n, and these on an axis that all runs share."""
    low, high = limits_of(series.points)

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (_CHART_WIDTH - 1)) if high > low else _CHART_WIDTH // 2

    cells = []
    for point in series.points:
        chart = [" "] * _CHART_WIDTH
        if point.value is not None:
            if point.ci_low is not None and point.ci_high is not None:
                first, last = place(point.ci_low), place(point.ci_high)
                chart[first : last + 1] = "-" * (last + 1 - first)
            chart[place(point.value)] = "o"
        cells.append(
            (f"#{point.run + 1}", value_text(series, point), f"n {point.n:,}", f"|{''.join(chart)}|", _mark(point.step))
        )
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    for run, value, n, chart_text, mark in cells:
        yield f"{run:<{widths[0]}}  {value:<{widths[1]}}  {n:>{widths[2]}}  {chart_text} {mark}".rstrip()


def _mark(step: HistoryStep | None) -> str:
    if step is None or not step.is_significant:
        return ""
    return {True: "better", False: "WORSE", None: "changed"}[step.is_better]


def number_form(series: HistorySeries) -> Callable[[float], str]:
    """Return the function that writes numbers of the series."""
    return small_number if series.is_usage else number


def value_text(series: HistorySeries, point: HistoryPoint) -> str:
    """Return the value of a point with its interval."""
    if point.value is None:
        return "none"
    return with_interval(point.value, point.ci_low, point.ci_high, write=number_form(series))


def limits_of(points: Sequence[HistoryPoint]) -> tuple[float, float]:
    """Return the lowest and highest number of a chart; both are 0 if no point has a value."""
    values = [value for point in points for value in (point.value, point.ci_low, point.ci_high) if value is not None]
    return min(values, default=0.0), max(values, default=0.0)


def _notes(history: History, series: HistorySeries) -> Iterator[str]:
    """Yield the significant steps of a series, then why some could not be tested."""
    for point, step in series.steps:
        yield printable(step_text(history, series, point, step))
    for point in series.points:
        if point.untested is not None:
            yield printable(f"#{point.run + 1} is not compared with the run before: {point.untested}")


def step_text(history: History, series: HistorySeries, point: HistoryPoint, step: HistoryStep) -> str:
    """Return a significant step in words, with the commits between which it lies if they are known."""
    what = {True: "is better than", False: "is worse than", None: "differs from"}[step.is_better]
    interval, write = "", number_form(series)
    if step.ci_low is not None and step.ci_high is not None:
        interval = f" [{write(step.ci_low)}, {write(step.ci_high)}]"
    p = p_text(step.p_adjusted)
    text = f"#{point.run + 1} {what} #{step.before + 1}: {signed(step.difference, write)}{interval}"
    text += f", n {step.n:,}, p {p if p.startswith('<') else f'= {p}'} after Holm"
    commits = [_commit(history.runs[place]) for place in (step.before, point.run)]
    return f"{text}; commit {' -> '.join(commits)}" if set(commits) != {_UNKNOWN} else text


_UNKNOWN = "unknown"


def _commit(run: HistoryRun) -> str:
    return run.origin.described_commit() or _UNKNOWN


def summary_texts(history: History) -> Iterator[str]:
    """Say how many steps are significant, of how many that were tested."""
    found = sum(1 for series in history.series for _ in series.steps)
    runs = counted(len(history.runs), "run")
    if not history.num_tests:
        yield f"{runs}; no two neighbours could be compared"
        return
    tested = counted(history.num_tests, "step")
    yield (
        f"{runs}, {tested} between neighbours tested, sample by sample: {found:,} significant (two-sided, Holm over "
        f"all, alpha {history.alpha:g})"
    )
