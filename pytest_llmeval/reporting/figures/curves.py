"""Draws risk over coverage, and pass@k over k, with a line for each model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import regex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pytest_llmeval.reporting.figures.report_figure import PlannedFigure, ReportFigure
from pytest_llmeval.reporting.figures.shown import Shown, ends_of, metric_text
from pytest_llmeval.reporting.figures.style import (
    LineStyle,
    Sheet,
    colour_of,
    drawing,
    finite,
    label,
    listed,
    marker_of,
)
from pytest_llmeval.reporting.report.report import SuiteReport
from pytest_llmeval.reporting.report.summaries import points_with_intervals, risk_curves
from pytest_llmeval.reporting.tables.cells import number, with_interval
from pytest_llmeval.scoring.metrics.calibration import RiskCoverage, RiskPoint

__all__ = ["pass_at_k_figures", "risk_coverage_figures"]

_Line: TypeAlias = tuple[SuiteReport, str, Mapping[int, str]]
"""A suite's metrics pass@k or pass^k: the sign, and their names by k."""

_WIDTH, _LEFT, _SIDES, _BELOW = 5.6, 0.65, (4.7, 2.9), 0.5
_MAX_POINTS = 400
"""The most points of a line. More cannot be seen."""
_MAX_WITH_INTERVALS = 3
"""The most lines whose intervals can be told apart."""
_PASS = regex.compile(r"pass([@^])([1-9]\d{0,5})")
"""Matches k up to 999,999: a metric's name can hold any number, and an axis cannot."""
_STYLES: Mapping[str, LineStyle] = {"@": "-", "^": ":"}


def risk_coverage_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each suite with probabilities the share of wrong answers among the samples of highest confidence.

    After Y. Geifman and R. El-Yaniv (2017, arXiv:1705.08500). The records are read once. Intervals are Wilson's; there
    are none for clustered samples, since Wilson's is for independent ones.
    """
    curves = risk_curves(shown.report)
    for suite_name, members in shown.by_name():
        if found := [(suite, curves[place]) for suite in members if (place := id(suite)) in curves]:
            drawer = partial(_risk, shown, suite_name, found)
            yield PlannedFigure(shown.names.new("risk-coverage", suite_name), drawer)


def _risk(shown: Shown, suite_name: str, found: Sequence[tuple[SuiteReport, RiskCoverage]], name: str) -> ReportFigure:
    with drawing():
        figure = _risk_figure(shown, found)
    texts = [_risk_text(shown, suite, curve) for suite, curve in found]
    return ReportFigure(
        kind="risk-coverage",
        name=name,
        title=f"Risk and coverage of {label(suite_name)}",
        description="Share of wrong answers among the samples that the model is most sure of, over their share of "
        f"all samples. {listed(texts)}.",
        figure=figure,
    )


def _risk_text(shown: Shown, suite: SuiteReport, curve: RiskCoverage) -> str:
    """Describe the risk at all samples and at half of them, or at the first point beyond the half if ties skip it."""
    model = f"{label(shown.model_of(suite))}: " if len(shown.series) > 1 else ""
    text = f"{model}AURC {number(curve.aurc)}, n {curve.n:,}"
    points = points_with_intervals(suite, curve)
    half = next((point for point in points if point.coverage >= 0.5), None)
    for point in dict.fromkeys(filter(None, (half, *points[-1:]))):
        text += f", risk at {point.coverage:.0%} {with_interval(point.risk, point.ci_low, point.ci_high)}"
    return text


def _risk_figure(shown: Shown, found: Sequence[tuple[SuiteReport, RiskCoverage]]) -> Figure:
    key: list[tuple[str, int, LineStyle]] = []
    for suite, curve in found:
        model = label(shown.model_of(suite), limit=24)
        aurc = f"AURC {number(curve.aurc)}"
        key.append((f"{model}: {aurc}" if len(shown.series) > 1 else aurc, _series(shown, suite), "-"))
    sheet = Sheet(_WIDTH, key)
    top = sheet.key_height + 0.1
    sheet.begin(top + _SIDES[1] + _BELOW)
    axes = sheet.axes(_LEFT, top, *_SIDES)
    highest = 0.0
    for suite, curve in found:
        series = _series(shown, suite)
        points = _thinned(curve.points)
        highest = max(highest, *(point.risk for point in points))
        at = [point.coverage for point in points], [point.risk for point in points]
        axes.plot(*at, color=colour_of(series), linewidth=1.4, gid="curve")
        for point in points_with_intervals(suite, curve):
            style: dict[str, Any] = {"color": colour_of(series), "gid": "interval"}
            if len(found) <= _MAX_WITH_INTERVALS and point.ci_low is not None and point.ci_high is not None:
                axes.plot([point.coverage] * 2, [point.ci_low, point.ci_high], linewidth=1.0, **style)
                highest = max(highest, point.ci_high)
            marker = marker_of(series)
            axes.plot(
                [point.coverage], [point.risk], color=colour_of(series), marker=marker, markersize=4.5, clip_on=False
            )
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, min(1.02, 1.1 * highest or 0.1))
    axes.grid(visible=True)
    axes.set_xlabel("coverage: share of the samples that are answered, the most confident first")
    axes.set_ylabel("risk: share of them that is wrong")
    return sheet.figure


def _thinned(points: Sequence[RiskPoint]) -> Sequence[RiskPoint]:
    """Return points that are far enough apart in coverage to be seen, with the first and the last."""
    if len(points) <= _MAX_POINTS:
        return points
    kept = [points[0]]
    for point in points:
        if point.coverage - kept[-1].coverage >= 1 / _MAX_POINTS:
            kept.append(point)
    return kept if kept[-1] is points[-1] else [*kept, points[-1]]


def pass_at_k_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each suite with several pass@k (or pass^k) the share over k, with the report's intervals."""
    for suite_name, suites in shown.by_name():
        lines = [
            (suite, sign, found)
            for suite in suites
            for sign, found in _passes(suite).items()
            if len(_passes(suite).get("@", {})) > 1 or len(found) > 1
        ]
        if lines:
            drawer = partial(_several_replies, shown, suite_name, lines)
            yield PlannedFigure(shown.names.new("pass-at-k", suite_name), drawer)


def _several_replies(shown: Shown, suite_name: str, lines: Sequence[_Line], name: str) -> ReportFigure:
    with drawing():
        figure = _pass_figure(shown, lines)
    texts = [
        f"{_line_name(shown, suite, sign)}: "
        + ", ".join(f"k {k} {metric_text(suite.summary.metrics[metric])}" for k, metric in ks.items())
        for suite, sign, ks in lines
    ]
    return ReportFigure(
        kind="pass-at-k",
        name=name,
        title=f"Several replies to a sample: {label(suite_name)}",
        description="Probability that one of k replies is right (pass@k), or all of them (pass^k), with 95% "
        f"intervals. {listed(texts)}.",
        figure=figure,
    )


def _passes(suite: SuiteReport) -> Mapping[str, Mapping[int, str]]:
    """Return the suite's metrics pass@k and pass^k, by sign and k."""
    found: dict[str, dict[int, str]] = {}
    for name, metric in suite.summary.metrics.items():
        if (match := _PASS.fullmatch(name)) is not None and finite(metric.value) is not None:
            found.setdefault(match[1], {})[int(match[2])] = name
    return {sign: dict(sorted(ks.items())) for sign, ks in sorted(found.items())}


def _line_name(shown: Shown, suite: SuiteReport, sign: str) -> str:
    model = f"{label(shown.model_of(suite), limit=24)}, " if len(shown.series) > 1 else ""
    return f"{model}pass{sign}k"


def _pass_figure(shown: Shown, lines: Sequence[_Line]) -> Figure:
    key = [
        (_line_name(shown, suite, sign), _pass_series(shown, suite, sign), _STYLES[sign]) for suite, sign, _ in lines
    ]
    sheet = Sheet(_WIDTH, key)
    top = sheet.key_height + 0.1
    sheet.begin(top + _SIDES[1] + _BELOW)
    axes = sheet.axes(_LEFT, top, *_SIDES)
    all_ks = sorted({k for _, _, ks in lines for k in ks})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(_apart(all_ks)))
    axes.xaxis.set_major_formatter(lambda k, _: f"{k:.0f}")
    for place, (suite, sign, ks) in enumerate(lines):
        series = _pass_series(shown, suite, sign)
        metrics = [suite.summary.metrics[name] for name in ks.values()]
        # beside each other, or the intervals would hide each other
        at = [k * 2 ** (0.04 * (place - (len(lines) - 1) / 2)) for k in ks]
        colour, marker = colour_of(series), marker_of(series)
        values = [metric.value or 0.0 for metric in metrics]
        axes.plot(at, values, color=colour, linestyle=_STYLES[sign], linewidth=1.4, marker=marker, clip_on=False)
        for x, metric in zip(at, metrics, strict=True):
            low, high = ends_of(metric)
            if low is not None and high is not None:
                axes.plot([x, x], [low, high], color=colour, linewidth=1.2, gid="interval")
    axes.set_xlim(all_ks[0] / 1.2, all_ks[-1] * 1.2)
    axes.set_ylim(0, 1.02)
    axes.grid(visible=True)
    axes.set_xlabel("k: replies to a sample")
    axes.set_ylabel("probability")
    return sheet.figure


def _apart(ks: Sequence[int]) -> list[int]:
    """Return the numbers that have room on a logarithmic axis."""
    kept: list[int] = []
    for k in ks:
        if not kept or k / kept[-1] >= (ks[-1] / ks[0]) ** 0.08:
            kept.append(k)
    return kept


def _series(shown: Shown, suite: SuiteReport) -> int:
    return shown.series[shown.model_of(suite)]


def _pass_series(shown: Shown, suite: SuiteReport, sign: str) -> int:
    """Return the series of a line. For a single model, pass^k has a colour of its own."""
    return _series(shown, suite) if len(shown.series) > 1 else int(sign == "^")
