"""Figures as files: SVG, PDF and PNG."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_pdf import PdfPages

from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.figures.style import drawing
from pytest_llmeval.reporting.figures.svg import PRINT, Palette, svg_document
from pytest_llmeval.reporting.figures.titles import drawing_to_write
from pytest_llmeval.reporting.storage.atomic_write import atomic_path, atomic_write

__all__ = ["write_figure", "write_pdf"]

_DPI = 200


def write_figure(
    figure: ReportFigure, path: Path, *, palette: Palette = PRINT, comment: str = "", has_title: bool = True
) -> None:
    """Write the figure in the form of the suffix: ``.svg``, ``.pdf`` or ``.png``, the same bytes each time.

    Its title stands above it where it ``has_title``. PNG has 200 dots per inch on white; the others have no background.
    SVG has the palette and the comment. Raises ``ReportError``.
    """
    suffix = path.suffix.lower()
    if suffix == ".svg":
        text = svg_document(figure, palette=palette, comment=comment, has_title=has_title)
        with atomic_write(path, encoding="ascii") as file:
            file.write(text)
    elif suffix == ".pdf":
        write_pdf([figure], path, title=figure.title, has_titles=has_title)
    else:
        written: dict[str, Any] = {"format": "png", "dpi": _DPI, "facecolor": "white", "metadata": {"Software": None}}
        with atomic_path(path, suffix=".png") as temporary, drawing_to_write(figure, has_title=has_title) as options:
            figure.figure.savefig(temporary, **written, **options)


def write_pdf(
    figures: Iterable[ReportFigure], path: Path, *, title: str | None = None, has_titles: bool = True
) -> None:
    """Write the figures, at least one, as the pages of a PDF, with its fonts as TrueType. Raises ``ReportError``.

    Each is written before the next is drawn. ``title`` is that of the document.
    """
    named = None if title is None else title.encode("ascii", "backslashreplace").decode("ascii")
    metadata = {"CreationDate": None, "Creator": None, "Producer": None, "Title": named}
    with atomic_path(path, suffix=".pdf") as temporary, drawing(), PdfPages(temporary, metadata=metadata) as pages:
        for figure in figures:
            with drawing_to_write(figure, has_title=has_titles) as options:
                pages.savefig(figure.figure, **options)
