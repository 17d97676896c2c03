"""Draws points with their intervals in rows, the form of forest plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pytest_llmeval.reporting.figures.style import GRID, MUTED, SIZE, Key, Sheet, colour_of, marker_of

__all__ = ["Mark", "MarkRow", "interval_rows", "limits_of"]

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


def limits_of(values: Sequence[float], bounds: tuple[float, float], *, is_log: bool = False) -> tuple[float, float]:
    """Return the ends of an axis that shows the values, with some room, inside ``bounds``."""
    low, high = min(values), max(values)
    if is_log:
        return low / 1.3, high * 1.3
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    start, end = max(low - room, min(bounds[0], low)), min(high + room, max(bounds[1], high))
    # values that are nearly one have no ticks between them
    return (start, end) if end - start > 1e-9 * max(abs(start), abs(end)) else (start - 1.0, end + 1.0)
