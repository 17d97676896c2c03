"""Draws a metric over the cost, the tokens or the seconds of a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, LogLocator, NullFormatter

from pytest_llmeval.reporting.figures.report_figure import (
    MAX_ROWS,
    PlannedFigure,
    ReportFigure,
    Shown,
    ends_of,
    finite,
    label,
    listed,
    metric_text,
)
from pytest_llmeval.reporting.figures.style import INK, SIZE, Sheet, colour_of, drawing, limits_of, marker_of
from pytest_llmeval.reporting.report.report import PerSample, SuiteReport
from pytest_llmeval.reporting.tables.session import LEAST_SECONDS_UNCOUNTED
from pytest_llmeval.scoring.metrics.definitions import definition

__all__ = [
    "Box",
    "places_beside",
    "price_figures",
]


_HEIGHT = 0.095
"""The height of a digit in inches."""
_MARK = 0.045
"""Inches from the middle of a point's mark to its edge."""
_GAP, _RISE = 0.056, 0.07
"""Inches from the middle of a point to the edge of its text, and to its middle."""
_FURTHER = 0.09
"""Inches by which a text is moved away if there is no room at its point."""
_ROUNDING = 1e-9


class Box(NamedTuple):
    left: float
    low: float
    right: float
    high: float

    def overlap(self, other: Box) -> float:
        """Return the area that both boxes share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.high, other.high) - max(self.low, other.low)
        return width * height if width > 0 and height > 0 else 0.0


def places_beside(
    points: Sequence[tuple[float, float]],
    widths: Sequence[float],
    *,
    marks: Sequence[tuple[float, float]],
    inside: Box,
) -> list[tuple[float, float]]:
    """Return for each point the way to its text's left end and middle, all in inches.

    A text of this width stands at the first place ``inside`` at which it covers no earlier text and no mark; if there
    is none, at the place at which it covers least.
    """
    taken = [Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in marks]
    found = []
    for (x, y), width in zip(points, widths, strict=True):
        places = _places(width)
        boxes = [Box(x + right, y + up - _HEIGHT / 2, x + right + width, y + up + _HEIGHT / 2) for right, up in places]
        chosen, least = 0, math.inf
        for place, box in enumerate(boxes):
            covered = sum(box.overlap(one) for one in taken) + width * _HEIGHT - box.overlap(inside)
            if covered < least - _ROUNDING:
                chosen, least = place, covered
            if least < _ROUNDING:
                break
        found.append(places[chosen])
        taken.append(boxes[chosen])
    return found


def _places(width: float) -> list[tuple[float, float]]:
    """Yield places of a text beside its point: right, left, above, below, then further away."""
    near = [(side, rise) for side in (_GAP, -_GAP - width) for rise in (_RISE, -_RISE, 0.0)]
    above = [(-width / 2, rise) for rise in (_RISE + _MARK, -_RISE - _MARK)]
    far = [(side, rise) for side in (_GAP, -_GAP - width, -width / 2) for rise in (_RISE + _FURTHER, -_RISE - _FURTHER)]
    return [*near, *above, *far]


_LEFT, _SIDES, _MAX_HEIGHT, _BELOW, _NAMES_LINE = 0.7, (4.2, 3.2), 6.0, 0.5, 0.19
_NEAR = 0.09, 0.08
"""Inches sideways and upwards within which points lie on each other."""
_LEAST_IN_SECONDS = 0.1
"""If all prices are smaller, in seconds, the axis is in milliseconds."""
_LEAST_RATIO = 20.0
"""The ratio of the highest price to the lowest from which on the axis is logarithmic."""
_MAX_DIGITS = 9
"""The most digits after the point of a number that is written out."""
_MAX_WRITTEN = 1e7


@dataclass(frozen=True, slots=True)
class _Point:
    suite: SuiteReport
    number: int
    price: float


def price_figures(shown: Shown) -> Iterator[PlannedFigure]:
    """Draw for each metric the suites' values over the cost of a sample, over its tokens, and over its seconds.

    Suites for which that is unknown are left out. There is no figure of a single suite, since it compares nothing.
    """
    for metric, suites in shown.by_metric().items():
        members = [suite for own in suites.values() for suite in own]
        for unit, price_of in _UNITS.items():
            prices = [(suite, _price(suite, price_of)) for suite in members]
            kept = [(suite, price) for suite, price in prices if price is not None]
            if len(kept) > 1:
                drawer = partial(_priced, shown, metric, unit, kept)
                yield PlannedFigure(shown.names.new("price", metric, unit), drawer)


def _priced(shown: Shown, metric: str, unit: str, kept: Sequence[tuple[SuiteReport, float]], name: str) -> ReportFigure:
    more = f" (the first {MAX_ROWS} of {len(kept)})" if len(kept) > MAX_ROWS else ""
    kept = kept[:MAX_ROWS]
    names = list(dict.fromkeys(suite.info.name for suite, _ in kept))
    factor = 1.0
    if unit == "seconds" and all(price < _LEAST_IN_SECONDS for _, price in kept):
        unit, factor = "milliseconds", 1000.0
    points = [_Point(suite, names.index(suite.info.name) + 1, factor * price) for suite, price in kept]
    with drawing():
        figure = _figure(shown, metric, f"{unit} of a sample", points, names)
    texts = [
        f"{label(point.suite.info.name)}{_of_model(shown, point.suite)} "
        f"{metric_text(point.suite.summary.metrics[metric])} at {point.price:.3g}"
        for point in points
    ]
    return ReportFigure(
        kind="price",
        name=name,
        title=f"{label(metric)} and {unit} of a sample{more}",
        description=f"{label(metric)} with its 95% interval over {unit} of a sample{more}: {listed(texts)}.",
        figure=figure,
        num_suites=len(names),
    )


def _of_model(shown: Shown, suite: SuiteReport) -> str:
    return f" ({label(shown.model_of(suite))})" if len(shown.series) > 1 else ""


def _cost(used: PerSample) -> float | None:
    return used.cost if used.num_priced else None


def _tokens(used: PerSample) -> float | None:
    return used.num_prompt_tokens + used.num_tokens if used.num_counted else None


def _seconds(used: PerSample) -> float | None:
    """Return the seconds of a sample. The time of a function that calls no service says nothing."""
    return used.seconds if used.num_counted or used.seconds >= LEAST_SECONDS_UNCOUNTED else None


_UNITS = {"cost": _cost, "tokens": _tokens, "seconds": _seconds}


def _price(suite: SuiteReport, price_of: Callable[[PerSample], float | None]) -> float | None:
    """Return what a sample of the suite takes, or None if that is unknown or nothing."""
    price = None if suite.per_sample is None else finite(price_of(suite.per_sample))
    return price if price is not None and price > 0 else None


def _figure(shown: Shown, metric: str, unit: str, points: Sequence[_Point], names: Sequence[str]) -> Figure:
    models = {shown.model_of(point.suite) for point in points}
    listing = [f"{place} {label(name)}" for place, name in enumerate(names, start=1)]
    width = _LEFT + _SIDES[0] + 0.35 + Sheet.width_of(listing, SIZE - 0.5) + 0.1
    sheet = Sheet(width, shown.key_of(models))
    top = sheet.key_height + 0.15
    side = min(max(_SIDES[1], len(listing) * _NAMES_LINE), _MAX_HEIGHT)
    height = top + max(side + _BELOW, len(listing) * _NAMES_LINE + 0.1)
    sheet.begin(height)
    axes = sheet.axes(_LEFT, top, _SIDES[0], side)
    _draw_scales(axes, metric, points)
    for point in points:
        found, series = point.suite.summary.metrics[metric], shown.series[shown.model_of(point.suite)]
        low, high = ends_of(found)
        if low is not None and high is not None:
            axes.plot([point.price] * 2, [low, high], color=colour_of(series), linewidth=1.1, gid="interval")
        value = found.value or 0.0
        axes.plot([point.price], [value], color=colour_of(series), marker=marker_of(series), markersize=6, gid="value")
    values = [point.suite.summary.metrics[metric].value or 0.0 for point in points]
    _number_points(axes, [(point.number, point.price, value) for point, value in zip(points, values, strict=True)])
    for place, text in enumerate(listing):
        y = 1 - (top + (place + 0.5) * _NAMES_LINE) / height
        sheet.figure.text((_LEFT + _SIDES[0] + 0.35) / width, y, text, va="center_baseline", fontsize=SIZE - 0.5)
    axes.set_xlabel(unit)
    axes.set_ylabel(label(metric))
    return sheet.figure


def _number_points(axes: Axes, points: Sequence[tuple[int, float, float]]) -> None:
    """Write the suites' numbers beside their points; for points that lie on each other, beside the rightmost."""
    numbers: list[list[int]] = []
    anchors: list[tuple[float, float]] = []
    for number, price, value in sorted(points, key=lambda point: -point[1]):
        x, y = _inches(axes, price, value)
        for place, anchor in enumerate(anchors):
            left, low = _inches(axes, *anchor)
            if left - x < _NEAR[0] and abs(y - low) < _NEAR[1]:
                numbers[place].append(number)
                break
        else:
            anchors.append((price, value))
            numbers.append([number])
    texts = [", ".join(map(str, sorted(set(members)))) for members in numbers]
    marks = [_inches(axes, price, value) for _, price, value in points]
    found = places_beside(
        [_inches(axes, *anchor) for anchor in anchors],
        [Sheet.width_of([text], SIZE - 1) for text in texts],
        marks=marks,
        inside=_room(axes),
    )
    for anchor, text, (right, up) in zip(anchors, texts, found, strict=True):
        axes.annotate(
            text,
            anchor,
            xytext=(72 * right, 72 * up),
            textcoords="offset points",
            va="center_baseline",
            fontsize=SIZE - 1,
            color=INK,
        )


def _room(axes: Axes) -> Box:
    """Return the part of the sheet for numbers, in inches: inside the axes, and a bit above and right of them."""
    (left, low), (right, high) = axes.get_position().get_points() * axes.figure.get_size_inches()  # type: ignore[union-attr]
    return Box(float(left), float(low), float(right) + 0.2, float(high) + 0.15)


def _inches(axes: Axes, price: float, value: float) -> tuple[float, float]:
    """Return the place of a point on the sheet, in inches."""
    x, y = axes.transData.transform((price, value)) / axes.figure.dpi
    return float(x), float(y)


def _draw_scales(axes: Axes, metric: str, points: Sequence[_Point]) -> None:
    """Draw the price axis from 0, or logarithmic if prices differ a lot."""
    prices = [point.price for point in points]
    if max(prices) / min(prices) > _LEAST_RATIO:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(min(prices) / 1.5, max(prices) * 1.7)
    else:
        axes.set_xlim(0, max(prices) * 1.12)
    axes.xaxis.set_major_formatter(_Prices())
    found = [point.suite.summary.metrics[metric] for point in points]
    ends = [end for one in found for end in (finite(one.value), *ends_of(one)) if end is not None]
    defined = definition(metric)
    axes.set_ylim(*limits_of(ends, (defined.lowest, defined.highest)))
    axes.grid(visible=True)


class _Prices(Formatter):
    """A formatter that writes all numbers of an axis in one form, without a factor beside the axis.

    They are written out, as prices are read (``0.00002``), or as ``2.5e-12`` if one has too many digits for that.
    """

    _form = "{:g}"

    def set_locs(self, locs: Any) -> None:
        super().set_locs(locs)
        low, high = sorted(self.axis.get_view_interval()) if self.axis is not None else (-math.inf, math.inf)
        self._form = _form_of([float(value) for value in locs if low <= value <= high])

    def __call__(self, x: float, pos: int | None = None) -> str:
        number, mark, power = self._form.format(x).partition("e")
        shown = number.rstrip("0").rstrip(".") if "." in number else number
        return f"{shown}{mark}{power}" if x else "0"


def _form_of(values: Sequence[float]) -> str:
    """Return the format that writes all of the numbers with as many digits as they have."""
    if all(abs(value) < _MAX_WRITTEN for value in values):
        for digits in range(_MAX_DIGITS + 1):
            if all(math.isclose(round(value, digits), value, rel_tol=1e-6) for value in values):
                return f"{{:.{digits}f}}"
    return "{:.6e}"
