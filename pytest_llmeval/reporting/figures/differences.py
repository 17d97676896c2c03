"""Draws paired differences: models against the first one, and this session against a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from pytest_llmeval.reporting.figures.interval_rows import Mark, MarkRow, interval_rows
from pytest_llmeval.reporting.figures.report_figure import PlannedFigure, ReportFigure
from pytest_llmeval.reporting.figures.shown import Shown, direction, first_rows
from pytest_llmeval.reporting.figures.style import drawing, finite, label, listed
from pytest_llmeval.reporting.report.report import Comparison, Regression, SuiteReport
from pytest_llmeval.reporting.tables.cells import number
from pytest_llmeval.scoring.differences import Difference

__all__ = ["differences_figures"]


@dataclass(slots=True)
class _DifferenceRows:
    """The rows of one figure, by suite, for one metric, one model or baseline to compare with, and one better side."""

    better: bool | None
    rows: dict[str, list[Mark]] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)

    def add(self, suite: str, series: int, found: Difference | Regression) -> None:
        value, low, high = (finite(one) for one in (found.difference, found.ci_low, found.ci_high))
        if value is None:
            return
        if self.better is False:
            value, low, high = -value, None if high is None else -high, None if low is None else -low
        if low is None or high is None:
            low = high = None
        text = _signed(value) if low is None or high is None else f"{_signed(value)} [{_signed(low)}, {_signed(high)}]"
        self.rows.setdefault(suite, []).append(Mark(series=series, value=value, low=low, high=high, text=text))


def differences_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw a figure for each metric of the comparisons of models, and of the gates against a baseline.

    Each shows differences of paired samples with their 95% intervals, after E. Miller (2024, arXiv:2411.00640). Right
    is better: if lower values are better, differences change their sign.
    """
    for (metric, first, _), found in _of_models(shown).items():
        if found.rows:
            drawer = partial(_figure, shown, metric, f"from {label(shown.short.get(first, first))}", found)
            yield PlannedFigure(shown.names.new("differences", "models", metric), drawer)
    for (metric, _), found in _of_gates(shown).items():
        if found.rows:
            drawer = partial(_figure, shown, metric, "from the baseline", found)
            yield PlannedFigure(shown.names.new("differences", "baseline", metric), drawer)


def _of_models(shown: Shown) -> dict[tuple[str, str, bool | None], _DifferenceRows]:
    """Return rows by metric, first model and better side, which each suite can choose for itself."""
    found: dict[tuple[str, str, bool | None], _DifferenceRows] = {}
    for one in shown.report.comparisons:
        suite = _suite_of(shown, one)
        for metric in _metrics(shown, suite, list(one.differences)):
            better = direction(metric, suite)
            rows = found.setdefault((metric, one.first, better), _DifferenceRows(better))
            rows.add(one.suite, shown.series_of(one.second), one.differences[metric])
            rows.models.add(shown.short.get(one.second, one.second))
    return found


def _suite_of(shown: Shown, one: Comparison) -> SuiteReport | None:
    """Return the second model's suite. Each of several reports can have a suite of this name."""
    suites = [suite for suite in shown.report.suites if suite.info.name == one.suite]
    return next((suite for suite in suites if one.second in suite.models), suites[0] if suites else None)


def _metrics(shown: Shown, suite: SuiteReport | None, compared: list[str]) -> list[str]:
    if shown.metrics:
        return [name for name in compared if name in shown.metrics]
    own = [] if suite is None else [name for name in shown.metrics_of(suite) if name in compared]
    return own or compared[:1]


def _of_gates(shown: Shown) -> dict[tuple[str, bool], _DifferenceRows]:
    """Return rows by metric and better side."""
    found: dict[tuple[str, bool], _DifferenceRows] = {}
    for gate in shown.report.gates:
        if (one := gate.regression) is not None and (not shown.metrics or one.metric in shown.metrics):
            rows = found.setdefault((one.metric, one.higher_is_better), _DifferenceRows(one.higher_is_better))
            rows.add(gate.suite or "", shown.series_of(gate.model), one)
            rows.models.update(shown.series if gate.model is None else [shown.short.get(gate.model, gate.model)])
    return found


def _figure(shown: Shown, metric: str, against: str, found: _DifferenceRows, name: str) -> ReportFigure:
    measured = label(metric)
    if found.better is False:
        what, sides = f"decrease of {measured} {against} (lower is better)", ("← worse", "better →")
    else:
        what, sides = f"difference of {measured} {against}", ("← worse", "better →") if found.better else ("", "")
    count, left_out = first_rows([(suite, len(marks)) for suite, marks in found.rows.items()])
    rows = [MarkRow(label=label(suite), marks=marks) for suite, marks in found.rows.items()][:count]
    with drawing():
        figure = interval_rows(rows, what=what, key=shown.key_of(found.models), line_at=0.0, sides=sides)
    labels = {place: model for model, place in shown.series.items()}
    several = len(found.models) > 1
    numbers = [
        f"{row.label}{f' ({label(labels[mark.series])})' if several else ''} {mark.text}"
        for row in rows
        for mark in row.marks
    ]
    more = f" ({left_out})" if left_out else ""
    side = "Which side is better is not known" if found.better is None else "Right of 0 is better"
    return ReportFigure(
        kind="differences",
        name=name,
        title=f"{what[0].upper()}{what[1:]}{more}",
        description=f"Paired differences with 95% intervals{more}: {listed(numbers)}. {side}.",
        figure=figure,
    )


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)
