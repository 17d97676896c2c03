"""One figure of a report, with the words around it. Loaded with the command line, and so without matplotlib."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FigureNames", "PlannedFigure", "ReportFigure"]

_MAX_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    """A drawn figure. ``kind`` is one of ``KINDS``.

    ``name`` is unique in its report, made of ``a-z``, ``0-9`` and ``-``, and safe as a file's name. ``title`` stands
    above the figure in a file, and in the caption of a page. ``description`` is the alternative text: it says in one or
    two sentences what the figure shows, with the main numbers. Both are plain text, which a page has to escape.
    ``num_suites`` are compared by price.
    """

    kind: str
    name: str
    title: str
    description: str
    figure: Figure
    num_suites: int = 1


@dataclass(frozen=True, slots=True)
class PlannedFigure:
    """A figure that can be chosen by its name before it is drawn; ``drawer`` takes the name."""

    name: str
    drawer: Callable[[str], ReportFigure]

    def draw(self) -> ReportFigure:
        return self.drawer(self.name)


class FigureNames:
    """A source of unique names for the figures of a report."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, *parts: str) -> str:
        """Return a name such as ``reliability-capitals``, with a number if that is taken."""
        name = "-".join(filter(None, map(_slug, parts)))[:_MAX_NAME].strip("-")
        number, candidate = 1, name
        while candidate in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._taken.add(candidate)
        return candidate


def _slug(text: str) -> str:
    """Return letters without accents, and digits; everything between them becomes a dash."""
    text = text.replace("@", " at ").replace("^", " hat ")
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")
