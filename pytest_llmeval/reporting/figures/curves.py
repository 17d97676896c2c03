"""Draws risk over coverage, pass@k over k, and reliability: accuracy over the model's confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import regex
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from pytest_llmeval.reporting.figures.report_figure import (
    Key,
    LineStyle,
    PlannedFigure,
    ReportFigure,
    Shown,
    ends_of,
    finite,
    label,
    listed,
    metric_text,
)
from pytest_llmeval.reporting.figures.style import INK, MUTED, SIZE, Sheet, colour_of, drawing, frame_of, marker_of
from pytest_llmeval.reporting.report.report import SuiteReport
from pytest_llmeval.reporting.report.risks import points_with_intervals, risk_curves
from pytest_llmeval.reporting.tables.cells import number, with_interval
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin, RiskCoverage, RiskPoint

__all__ = ["pass_at_k_figures", "reliability_figures", "risk_coverage_figures"]


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
        suite=suite_name,
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
            drawer = partial(_draw_passes, shown, suite_name, lines)
            yield PlannedFigure(shown.names.new("pass-at-k", suite_name), drawer)


def _draw_passes(shown: Shown, suite_name: str, lines: Sequence[_Line], name: str) -> ReportFigure:
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


_MAX_PANELS = 12
_IN_ROW = 3
_PANEL_LEFT, _SIDE, _GAP, _COUNTS, _PANEL_BELOW = 0.62, 2.1, 0.2, 0.5, 0.55
"""Inches of a panel: left of its axes, the diagram's sides, between the diagram and the bars of counts, their height,
and below them."""
_KEY: Key = (("accuracy", 0, "bar"), ("gap between accuracy and mean confidence", 1, "frame"))


def reliability_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each suite with probabilities a diagram of each model, after C. Guo et al. (2017, arXiv:1706.04599).

    A bar is the accuracy of the samples in a bin of confidence. A frame reaches from there to the bin's mean
    confidence: the heights of the frames, weighted by the counts below, sum to the expected calibration error. A line
    marks a bar's end where the frame covers it.
    """
    for suite_name, suites in shown.by_name():
        if members := [suite for suite in suites if _bins(suite)]:
            drawer = partial(_draw_diagrams, shown, suite_name, members)
            yield PlannedFigure(shown.names.new("reliability", suite_name), drawer)


def _draw_diagrams(shown: Shown, suite_name: str, members: Sequence[SuiteReport], name: str) -> ReportFigure:
    kept = members[:_MAX_PANELS]
    more = f" (the first {len(kept)} of {len(members)} models)" if len(kept) < len(members) else ""
    with drawing():
        figure = _panels(shown, kept)
    texts = [
        ", ".join(filter(None, (_model(shown, suite), _ece(suite), f"n {_num_binned(suite):,}"))) for suite in kept
    ]
    return ReportFigure(
        kind="reliability",
        name=name,
        title=f"Reliability of {label(suite_name)}{more}",
        description=f"Accuracy by the model's confidence; on the diagonal, both are equal{more}. {listed(texts)}.",
        figure=figure,
        suite=suite_name,
    )


def _bins(suite: SuiteReport) -> list[tuple[ReliabilityBin, float, float]]:
    """Return the bins that hold samples, each with its accuracy and its mean confidence."""
    found = []
    for one in suite.reliability or ():
        accuracy, confidence, edges = finite(one.accuracy), finite(one.confidence), (finite(one.low), finite(one.high))
        if one.n > 0 and accuracy is not None and confidence is not None and None not in edges:
            found.append((one, accuracy, confidence))
    return found


def _model(shown: Shown, suite: SuiteReport) -> str:
    return label(shown.model_of(suite), limit=26) if len(shown.series) > 1 else ""


def _ece(suite: SuiteReport) -> str:
    metric = suite.summary.metrics.get("ece")
    return "" if metric is None or finite(metric.value) is None else f"ECE {metric_text(metric)}"


def _num_binned(suite: SuiteReport) -> int:
    return sum(one.n for one, _, _ in _bins(suite))


def _panels(shown: Shown, suites: Sequence[SuiteReport]) -> Figure:
    columns = min(len(suites), _IN_ROW)
    num_rows = -(-len(suites) // columns)
    heading = 0.5 if len(shown.series) > 1 else 0.3
    width, height = _PANEL_LEFT + _SIDE + 0.25, heading + _SIDE + _GAP + _COUNTS + _PANEL_BELOW
    sheet = Sheet(max(columns * width, 4.0), _KEY)
    sheet.begin(sheet.key_height + num_rows * height)
    for place, suite in enumerate(suites):
        left, top = (place % columns) * width + _PANEL_LEFT, sheet.key_height + (place // columns) * height + heading
        axes = sheet.axes(left, top, _SIDE, _SIDE)
        counts = sheet.axes(left, top + _SIDE + _GAP, _SIDE, _COUNTS)
        _draw_diagram(axes, suite, is_first=place % columns == 0)
        _draw_counts(counts, suite, is_first=place % columns == 0)
        said = "\n".join(filter(None, (_model(shown, suite), _ece(suite) or f"n {_num_binned(suite):,}")))
        axes.set_title(said, loc="left", fontsize=SIZE, color=INK, pad=5)
    return sheet.figure


def _draw_diagram(axes: Axes, suite: SuiteReport, *, is_first: bool) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xticklabels([])
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), gid="diagonal")
    for one, accuracy, confidence in _bins(suite):
        edges = one.low, one.high - one.low
        axes.add_patch(Rectangle((edges[0], 0), edges[1], accuracy, color=colour_of(0), linewidth=0, gid="accuracy"))
        low, high = sorted((accuracy, confidence))
        axes.add_patch(Rectangle((edges[0], low), edges[1], high - low, **frame_of(1), gid="gap"))
        if accuracy > confidence:
            top: dict[str, Any] = {"linewidth": 2.2, "solid_capstyle": "butt", "clip_on": False, "gid": "top"}
            axes.plot([one.low, one.high], [accuracy, accuracy], color=colour_of(0), **top)
    if is_first:
        axes.set_ylabel("accuracy")


def _draw_counts(axes: Axes, suite: SuiteReport, *, is_first: bool) -> None:
    bins = _bins(suite)
    most = max(one.n for one, _, _ in bins)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, most)
    axes.set_yticks([0, most], ["0", f"{most:,}" if most < 10_000 else f"{most / 1000:,.0f}k"])
    for one, _, _ in bins:
        axes.add_patch(Rectangle((one.low, 0), one.high - one.low, one.n, color=MUTED, linewidth=0, gid="count"))
    axes.set_xlabel("confidence")
    if is_first:
        axes.set_ylabel("samples")
