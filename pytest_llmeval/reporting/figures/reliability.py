"""Draws reliability diagrams: whether answers that a model calls 80% likely are right in 80% of the cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pytest_llmeval.reporting.figures.report_figure import PlannedFigure, ReportFigure
from pytest_llmeval.reporting.figures.shown import Shown, metric_text
from pytest_llmeval.reporting.figures.style import (
    INK,
    MUTED,
    SIZE,
    Key,
    Sheet,
    colour_of,
    drawing,
    finite,
    frame_of,
    label,
    listed,
)
from pytest_llmeval.reporting.report.report import SuiteReport
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin

__all__ = ["reliability_figures"]

_MAX_PANELS = 12
_IN_ROW = 3
_LEFT, _SIDE, _GAP, _COUNTS, _BELOW = 0.62, 2.1, 0.2, 0.5, 0.55
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
            drawer = partial(_diagrams, shown, suite_name, members)
            yield PlannedFigure(shown.names.new("reliability", suite_name), drawer)


def _diagrams(shown: Shown, suite_name: str, members: Sequence[SuiteReport], name: str) -> ReportFigure:
    kept = members[:_MAX_PANELS]
    more = f" (the first {len(kept)} of {len(members)} models)" if len(kept) < len(members) else ""
    with drawing():
        figure = _panels(shown, kept)
    texts = [", ".join(filter(None, (_model(shown, suite), _ece(suite), f"n {_count(suite):,}"))) for suite in kept]
    return ReportFigure(
        kind="reliability",
        name=name,
        title=f"Reliability of {label(suite_name)}{more}",
        description=f"Accuracy by the model's confidence; on the diagonal, both are equal{more}. {listed(texts)}.",
        figure=figure,
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


def _count(suite: SuiteReport) -> int:
    return sum(one.n for one, _, _ in _bins(suite))


def _panels(shown: Shown, suites: Sequence[SuiteReport]) -> Figure:
    columns = min(len(suites), _IN_ROW)
    num_rows = -(-len(suites) // columns)
    heading = 0.5 if len(shown.series) > 1 else 0.3
    width, height = _LEFT + _SIDE + 0.25, heading + _SIDE + _GAP + _COUNTS + _BELOW
    sheet = Sheet(max(columns * width, 4.0), _KEY)
    sheet.begin(sheet.key_height + num_rows * height)
    for place, suite in enumerate(suites):
        left, top = (place % columns) * width + _LEFT, sheet.key_height + (place // columns) * height + heading
        axes = sheet.axes(left, top, _SIDE, _SIDE)
        counts = sheet.axes(left, top + _SIDE + _GAP, _SIDE, _COUNTS)
        _draw_diagram(axes, suite, is_first=place % columns == 0)
        _draw_counts(counts, suite, is_first=place % columns == 0)
        said = "\n".join(filter(None, (_model(shown, suite), _ece(suite) or f"n {_count(suite):,}")))
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
