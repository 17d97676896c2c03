"""A figure's title above it, in files: there is no caption beside them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from matplotlib.transforms import Bbox

from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.figures.style import SIZE, Sheet, drawing, label

__all__ = ["drawing_to_write"]

_SIZE, _LINE, _SIDE, _ABOVE, _BELOW = SIZE + 1.0, 0.19, 0.05, 0.04, 0.08
"""Points of the letters; inches of a line, and left and right of it, above and below all."""
_LIMIT = 240
"""Characters. Ours are shorter: the names in them have a limit."""


@contextmanager
def drawing_to_write(figure: ReportFigure, *, has_title: bool, **settings: Any) -> Iterator[dict[str, Any]]:
    """Settings with which ``savefig`` writes the figure, its title above it where it ``has_title``.

    The title's lines are no wider than the figure, which is afterwards as it was.
    """
    title: AbstractContextManager[dict[str, Any]] = _title(figure) if has_title else nullcontext({})
    with drawing(**settings), title as options:
        yield options


@contextmanager
def _title(figure: ReportFigure) -> Iterator[dict[str, Any]]:
    drawn = figure.figure
    width, height = map(float, drawn.get_size_inches())
    lines = _lines(label(figure.title, limit=_LIMIT), width - 2 * _SIDE)
    written = []
    for place, line in enumerate(reversed(lines)):
        y = 1 + (_BELOW + (place + 0.5) * _LINE) / height
        written.append(drawn.text(_SIDE / width, y, line, va="center_baseline", fontsize=_SIZE))
    try:
        yield {"bbox_inches": Bbox.from_bounds(0, 0, width, height + _BELOW + len(lines) * _LINE + _ABOVE)}
    finally:
        for text in written:
            text.remove()


def _lines(text: str, width: float) -> list[str]:
    """None wider than that: between words, and inside one that is."""
    lines, line = [], ""
    for word in text.split():
        if Sheet.width_of([f"{line} {word}"], _SIZE) <= width:
            line = f"{line} {word}".lstrip()
            continue
        if line:
            lines.append(line)
        while (most := _num_fitting(word, width)) < len(word):
            lines.append(word[:most])
            word = word[most:]
        line = word
    return [*lines, line]


def _num_fitting(word: str, width: float) -> int:
    """How many of its characters, one at least."""
    counts = range(1, len(word) + 1)
    return max(1, bisect_right(counts, width, key=lambda count: Sheet.width_of([word[:count]], _SIZE)))
