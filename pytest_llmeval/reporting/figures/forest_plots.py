"""Draws values with their intervals in rows: metrics of suites, agreement of judges, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pytest_llmeval.reporting.figures.report_figure import (
    Key,
    PlannedFigure,
    ReportFigure,
    Shown,
    ends_of,
    finite,
    first_rows,
    label,
    listed,
    metric_text,
)
from pytest_llmeval.reporting.figures.style import GRID, MUTED, SIZE, Sheet, colour_of, drawing, limits_of, marker_of
from pytest_llmeval.reporting.report.report import Regression, SuiteReport
from pytest_llmeval.reporting.tables.cells import signed
from pytest_llmeval.reporting.tables.comparisons import as_comparison
from pytest_llmeval.reporting.tables.suites import higher_is_better
from pytest_llmeval.scoring.metrics.definitions import definition, split_name
from pytest_llmeval.scoring.model_differences import Difference

__all__ = [
    "Mark",
    "agreement_figures",
    "differences_figures",
    "forest_figures",
    "interval_rows",
]


_LINE, _GAP = 0.19, 0.09
"""Inches of a mark, and between rows."""
_LOGARITHMIC = 50.0
"""The ratio of the largest value to the smallest from which on the axis is logarithmic."""
_LABEL_GAP, _WIDTH, _LEAST_AXES, _BELOW = 0.1, 7.2, 2.7, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A value with its interval, both from the report. ``text`` stands at its right; ``series`` is its model's.

    ``low`` and ``high`` are None if there is no interval.
    """

    series: int
    value: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRow:
    """Marks that share the label at their left side."""

    label: str
    marks: Sequence[Mark]


def interval_rows(
    rows: Sequence[MarkRow],
    *,
    what: str,
    key: Key = (),
    line_at: float | None = None,
    line_text: str = "",
    sides: tuple[str, str] = ("", ""),
    bounds: tuple[float, float] = (float("-inf"), float("inf")),
    is_whole: bool = False,
) -> Figure:
    """Return the figure, with ``what`` on the axis and a line at ``line_at``; ``sides`` name its left and right.

    The axis stays inside ``bounds``, beyond which the metric has no values. With ``is_whole`` and finite bounds it goes
    from one to the other, so that a small difference looks small. Otherwise it is logarithmic if positive values are of
    different orders of magnitude.
    """
    left = Sheet.width_of([row.label for row in rows]) + _LABEL_GAP + 0.05
    right = Sheet.width_of([mark.text for row in rows for mark in row.marks]) + _LABEL_GAP + 0.05
    sheet = Sheet(max(_WIDTH, left + right + _LEAST_AXES), key)
    inside = sum(len(row.marks) * _LINE + _GAP for row in rows) + _GAP
    top = max(sheet.key_height, 0.12) + (0.14 if line_text else 0.0)
    below = _BELOW + (0.2 if any(sides) else 0.0)
    sheet.begin(top + inside + below)
    axes = sheet.axes(left, top, sheet.width - left - right, inside)
    axes.set_ylim(inside, 0)  # a position is its distance from the top in inches
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel(what)
    ends = [end for row in rows for mark in row.marks for end in (mark.value, mark.low, mark.high) if end is not None]
    if is_whole and all(map(math.isfinite, bounds)):
        ends += bounds
    elif line_at is None and min(ends) > 0 and max(ends) > _LOGARITHMIC * min(ends):
        axes.set_xscale("log")
    axes.set_xlim(*limits_of(ends if line_at is None else [*ends, line_at], bounds, is_log=axes.get_xscale() == "log"))
    if line_at is not None:
        axes.axvline(line_at, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), gid="line")
        axes.text(line_at, -0.04, line_text, ha="center", va="bottom", color=MUTED, fontsize=SIZE - 1.5)
    _draw_rows(axes, rows)
    for x, align, text in ((0.0, "left", sides[0]), (1.0, "right", sides[1])):
        position = (x, -(below - 0.12) / inside)
        axes.text(*position, text, transform=axes.transAxes, ha=align, va="center", color=MUTED, fontsize=SIZE - 1)
    return sheet.figure


def _draw_rows(axes: Axes, rows: Sequence[MarkRow]) -> None:
    across = axes.get_yaxis_transform()
    width = axes.get_position().width * axes.figure.get_figwidth()  # type: ignore[union-attr]
    gap, y = _LABEL_GAP / width, _GAP
    for place, row in enumerate(rows):
        if place and len(row.marks) + len(rows[place - 1].marks) > 2:
            axes.axhline(y - _GAP / 2, color=GRID, linewidth=0.5)
        height = len(row.marks) * _LINE
        axes.text(-gap, y + height / 2, row.label, transform=across, ha="right", va="center_baseline")
        for mark in row.marks:
            y += _LINE
            middle, colour = y - _LINE / 2, colour_of(mark.series)
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [middle, middle], color=colour, linewidth=1.6, gid="interval")
            marker = marker_of(mark.series)
            axes.plot([mark.value], [middle], color=colour, marker=marker, markersize=5.5, gid="value", clip_on=False)
            axes.text(1 + gap, middle, mark.text, transform=across, va="center_baseline", fontsize=SIZE - 0.5)
        y += _GAP


_AGREEMENT_LABELS = {
    "judge.agreement": "agreement with people",
    "judge.kappa": "kappa with people",
    "judge.sensitivity": "sensitivity",
    "judge.specificity": "specificity",
    "judge.alpha": "alpha of the judges",
    "order_consistency": "same verdict in both orders",
    "order_kappa": "kappa of the orders",
}
"""The names of metrics of agreement in a figure; see ``metrics/judged.py``."""


def forest_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each metric the suites, with the report's intervals. Skill has a line at chance."""
    for metric, suites in shown.by_metric().items():
        rows = [(label(name), [(suite, metric) for suite in members]) for name, members in suites.items()]
        found = definition(metric)
        title, described = f"{label(metric)} by suite", f"{label(metric)} of each suite with its 95% interval"
        drawer = partial(
            _metric_figure,
            shown,
            rows,
            kind="forest",
            texts=(title, described, label(metric)),
            chance=(0.0, "chance") if split_name(metric)[1] == "skill" else None,
            bounds=(found.lowest, found.highest),
        )
        yield PlannedFigure(shown.names.new("forest", metric), drawer)


def agreement_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each judged suite how far its judges agree with people and with each other."""
    rows = [
        (f"{label(name, limit=24)}: {text}", [(suite, metric) for suite in members if _has(suite, metric)])
        for name, members in shown.by_name()
        for metric, text in _metrics_of_agreement(members).items()
    ]
    if rows := [row for row in rows if row[1]]:
        title = "How far judges agree"
        described = (
            "Agreement of judges with people and each other, with 95% intervals; kappa and alpha are 0 by chance"
        )
        texts = (title, described, "1 is perfect; of kappa and alpha, 0 is chance")
        drawer = partial(
            _metric_figure, shown, rows, kind="agreement", texts=texts, chance=(0.0, ""), bounds=(-1.0, 1.0)
        )
        yield PlannedFigure(shown.names.new("agreement"), drawer)


def _metrics_of_agreement(suites: Sequence[SuiteReport]) -> dict[str, str]:
    """Return the metrics of agreement that the suites have, also of each of several judges."""
    found = {}
    for name in dict.fromkeys(name for suite in suites for name in suite.summary.metrics):
        for base, text in _AGREEMENT_LABELS.items():
            if name == base:
                found[name] = text
            elif name.endswith(f".{base}"):  # a metric of one of several scorers
                found[name] = f"{label(name.removesuffix(f'.{base}'), limit=16)} {text}"
    return found


def _has(suite: SuiteReport, metric: str) -> bool:
    found = suite.summary.metrics.get(metric)
    return found is not None and finite(found.value) is not None


def _metric_figure(
    shown: Shown,
    rows: Sequence[tuple[str, Sequence[tuple[SuiteReport, str]]]],
    name: str,
    *,
    kind: str,
    texts: tuple[str, str, str],
    chance: tuple[float, str] | None,
    bounds: tuple[float, float],
) -> ReportFigure:
    """Return a figure with a row for each label, and a mark for each of its suites and metrics.

    ``texts`` are title, description and axis.
    """
    count, left_out = first_rows([(text, len(members)) for text, members in rows])
    title, described, what = texts
    models = {shown.model_of(suite) for _, members in rows for suite, _ in members}
    marked = [
        MarkRow(label=text, marks=[_mark(shown, suite, metric) for suite, metric in members])
        for text, members in rows[:count]
    ]
    with drawing():
        figure = interval_rows(
            marked,
            what=what,
            key=shown.key_of(models),
            line_at=None if chance is None else chance[0],
            line_text="" if chance is None else chance[1],
            bounds=bounds,
            is_whole=kind == "forest",
        )
    several = len(shown.series) > 1
    numbers = [
        f"{text}{f' ({label(shown.model_of(suite))})' if several else ''} {metric_text(suite.summary.metrics[metric])}"
        for text, members in rows[:count]
        for suite, metric in members
    ]
    more = f" ({left_out})" if left_out else ""
    return ReportFigure(
        kind=kind,
        name=name,
        title=f"{title}{more}",
        description=f"{described}{more}: {listed(numbers)}.",
        figure=figure,
    )


def _mark(shown: Shown, suite: SuiteReport, metric: str) -> Mark:
    found = suite.summary.metrics[metric]
    low, high = ends_of(found)
    series = shown.series[shown.model_of(suite)]
    return Mark(series=series, value=found.value or 0.0, low=low, high=high, text=metric_text(found))


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
        text = signed(value) if low is None or high is None else f"{signed(value)} [{signed(low)}, {signed(high)}]"
        self.rows.setdefault(suite, []).append(Mark(series=series, value=value, low=low, high=high, text=text))


def differences_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw a figure for each metric of the comparisons of models, of those of variants, and of the gates against a
    baseline.

    Each shows differences of paired samples with their 95% intervals, after E. Miller (2024, arXiv:2411.00640). Right
    is better: if lower values are better, differences change their sign.
    """
    for (metric, first, _), found in _of_models(shown).items():
        if found.rows:
            drawer = partial(_difference_figure, shown, metric, f"from {label(shown.short.get(first, first))}", found)
            yield PlannedFigure(shown.names.new("differences", "models", metric), drawer)
    for (metric, first, _), found in _of_variants(shown).items():
        if found.rows:
            drawer = partial(_difference_figure, shown, metric, f"from {label(first)}", found)
            yield PlannedFigure(shown.names.new("differences", "variants", metric), drawer)
    for (metric, _), found in _of_gates(shown).items():
        if found.rows:
            drawer = partial(_difference_figure, shown, metric, "from the baseline", found)
            yield PlannedFigure(shown.names.new("differences", "baseline", metric), drawer)


def _of_models(shown: Shown) -> dict[tuple[str, str, bool | None], _DifferenceRows]:
    """Return rows by metric, first model and better side, which each suite can choose for itself."""
    found: dict[tuple[str, str, bool | None], _DifferenceRows] = {}
    for one in shown.report.comparisons:
        suite = _suite_of(shown, one.suite, one.second)
        for metric in _metrics(shown, suite, list(one.differences)):
            better = higher_is_better(metric, suite)
            rows = found.setdefault((metric, one.first, better), _DifferenceRows(better))
            rows.add(one.suite, shown.series_of(one.second), one.differences[metric])
            rows.models.add(shown.short.get(one.second, one.second))
    return found


def _of_variants(shown: Shown) -> dict[tuple[str, str, bool | None], _DifferenceRows]:
    """Return rows by metric, the name of the first variant and better side."""
    found: dict[tuple[str, str, bool | None], _DifferenceRows] = {}
    for one in shown.report.variants:
        suite, first = _suite_of(shown, one.second, one.model), as_comparison(one, {}).first
        wanted = shown.metrics or (one.metric,)
        for metric in [name for name in one.differences if name in wanted]:
            better = higher_is_better(metric, suite)
            rows = found.setdefault((metric, first, better), _DifferenceRows(better))
            rows.add(one.second, shown.series_of(one.model), one.differences[metric])
            rows.models.update(shown.series if one.model is None else [shown.short.get(one.model, one.model)])
    return found


def _suite_of(shown: Shown, name: str, model: str | None) -> SuiteReport | None:
    """Return the model's suite of this name. Each of several reports can have one."""
    suites = [suite for suite in shown.report.suites if suite.info.name == name]
    return next((suite for suite in suites if model in suite.models), suites[0] if suites else None)


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


def _difference_figure(shown: Shown, metric: str, against: str, found: _DifferenceRows, name: str) -> ReportFigure:
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
