"""Colours, markers and settings of all figures, and a sheet that is laid out in inches."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from pytest_llmeval.reporting.figures.report_figure import Key, LineStyle, Swatch

__all__ = [
    "GRID",
    "INK",
    "MUTED",
    "SIZE",
    "Sheet",
    "colour_of",
    "drawing",
    "frame_of",
    "limits_of",
    "marker_of",
]

INK, MUTED, GRID = "#212223", "#616263", "#d1d2d3"
"""Colours of texts and axes, of notes, and of lines behind the data.

No data has these colours: ``image_files.py`` replaces them.
"""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c46c9c", "#a67c00", "#767676", "#8c6bb1")
"""Colours of series, after M. Okabe and K. Ito ("Color universal design", 2008), the lighter ones darkened: each has a
contrast of 3 or more both on white and on #15171c."""
_MARKERS = "osD^vPXph"
"""Marks of series. Their number has no common factor with the number of colours, so that 63 models look different."""

SIZE = 9.0
"""The size of texts in points."""

_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": SIZE,
    "text.parse_math": False,
    "text.usetex": False,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": SIZE,
    "axes.linewidth": 0.6,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SIZE - 1,
    "ytick.labelsize": SIZE - 1,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "lines.markersize": 5.0,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """Yield the settings with which figures are made and written, whatever the user's own settings are.

    Labels hold users' texts, so a character that the font lacks is no warning.
    """
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"(?s).*Matplotlib currently does not support .* natively")
        matplotlib.rcdefaults()
        ours: Any = _SETTINGS | settings
        matplotlib.rcParams.update(ours)
        yield


def colour_of(series: int) -> str:
    return _COLOURS[series % len(_COLOURS)]


def frame_of(series: int) -> dict[str, Any]:
    """Return an outlined area that looks the same on a bar of another series and on the page."""
    colour = colour_of(series)
    pale = "#" + "".join(f"{255 - (255 - int(colour[start : start + 2], 16)) * 2 // 5:02x}" for start in (1, 3, 5))
    return {"facecolor": pale, "edgecolor": colour, "linewidth": 0.9}


def marker_of(series: int) -> str:
    return _MARKERS[series % len(_MARKERS)]


@lru_cache(maxsize=2048)
def _inches(text: str, size: float) -> float:
    """Return the width of a text in DejaVu Sans, which is wider than the fonts that browsers use instead."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return float(width) / 72 + wide * 0.5 * size / 72


_KEY_GAP, _KEY_LINE, _MARKER_ROOM = 0.22, 0.2, 0.2
_SWATCH = 0.13, 0.1
"""Width and height of a mark in a key, in inches."""


@dataclass(slots=True)
class Sheet:
    """A figure whose parts are placed in inches from its left and its top. Its first lines show ``key``."""

    width: float
    key: Key = ()
    figure: Figure = field(init=False)
    _lines: list[list[tuple[float, str, int, LineStyle | Swatch]]] = field(init=False)

    def __post_init__(self) -> None:
        self._lines, start = [], 0.0
        for text, series, style in self.key:
            needed = _MARKER_ROOM + _inches(text, SIZE) + _KEY_GAP
            if not self._lines or start + needed > self.width:
                self._lines.append([])
                start = 0.05
            self._lines[-1].append((start, text, series, style))
            start += needed

    @property
    def key_height(self) -> float:
        return len(self._lines) * _KEY_LINE + (0.08 if self._lines else 0.0)

    @staticmethod
    def width_of(texts: Sequence[str], size: float = SIZE) -> float:
        """Return the width of the widest text, in inches."""
        return max((_inches(text, size) for text in texts), default=0.0)

    def begin(self, height: float) -> None:
        """Make the figure with this height and its key at the top."""
        self.figure = Figure(figsize=(self.width, height))
        for place, line in enumerate(self._lines):
            y = 1 - (place + 0.5) * _KEY_LINE / height
            for start, text, series, style in line:
                if style == "bar":
                    self._draw_swatch(start, y, {"color": colour_of(series)})
                elif style == "frame":
                    self._draw_swatch(start, y, frame_of(series))
                else:
                    self._draw_mark(start, y, series, style)
                self.figure.text((start + _MARKER_ROOM) / self.width, y, text, ha="left", va="center_baseline")

    def _draw_mark(self, start: float, y: float, series: int, style: LineStyle) -> None:
        colour = colour_of(series)
        ends = [(start + offset) / self.width for offset in (0.0, 0.14)]
        if style:
            self.figure.add_artist(Line2D(ends, [y, y], color=colour, linewidth=1.4, linestyle=style))
        middle = [sum(ends) / 2]
        marks = Line2D(middle, [y], color=colour, marker=marker_of(series), markersize=5, linestyle="none")
        self.figure.add_artist(marks)

    def _draw_swatch(self, start: float, y: float, look: Mapping[str, Any]) -> None:
        height = _SWATCH[1] / float(self.figure.get_figheight())
        corner = (start + 0.01) / self.width, y - height / 2
        area = Rectangle(corner, _SWATCH[0] / self.width, height, **{"linewidth": 0, **look})
        area.set_transform(self.figure.transFigure)
        self.figure.add_artist(area)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        whole = float(self.figure.get_figheight())
        at = (left / self.width, 1 - (top + height) / whole, width / self.width, height / whole)
        made: Axes = self.figure.add_axes(at)
        for axis in (made.xaxis, made.yaxis):
            axis.set_major_locator(MaxNLocator(5))
        return made


def limits_of(values: Sequence[float], bounds: tuple[float, float], *, is_log: bool = False) -> tuple[float, float]:
    """Return the ends of an axis that shows the values, with some room, inside ``bounds``."""
    low, high = min(values), max(values)
    if is_log:
        return low / 1.3, high * 1.3
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    start, end = max(low - room, min(bounds[0], low)), min(high + room, max(bounds[1], high))
    # values that are nearly one have no ticks between them
    return (start, end) if end - start > 1e-9 * max(abs(start), abs(end)) else (start - 1.0, end + 1.0)
