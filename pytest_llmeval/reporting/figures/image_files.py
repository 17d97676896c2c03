"""Figures as files: SVG, PDF and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_pdf import PdfPages

from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.figures.style import drawing
from pytest_llmeval.reporting.figures.svg import PRINT, Palette, svg_document
from pytest_llmeval.reporting.storage.atomic_write import atomic_path, atomic_write

__all__ = ["write_figure", "write_pdf"]

_DPI = 200


def write_figure(figure: ReportFigure, path: Path, *, palette: Palette = PRINT) -> None:
    """Write the figure in the form of the suffix: ``.svg``, ``.pdf`` or ``.png``, the same bytes each time.

    PNG has 200 dots per inch on white; the others have no background. Raises ``ReportError``.
    """
    suffix = path.suffix.lower()
    if suffix == ".svg":
        text = svg_document(figure, palette=palette)
        with atomic_write(path, encoding="ascii") as file:
            file.write(text)
    elif suffix == ".pdf":
        write_pdf([figure], path)
    else:
        with atomic_path(path, suffix=".png") as temporary, drawing():
            figure.figure.savefig(temporary, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})


def write_pdf(figures: Sequence[ReportFigure], path: Path) -> None:
    """Write the figures as the pages of a PDF, with its fonts as TrueType. Raises ``ReportError``."""
    metadata = {"CreationDate": None, "Creator": None, "Producer": None, "Title": None}
    if len(figures) == 1:
        metadata["Title"] = figures[0].title.encode("ascii", "backslashreplace").decode("ascii")  # type: ignore[assignment]
    with atomic_path(path, suffix=".pdf") as temporary, drawing(), PdfPages(temporary, metadata=metadata) as pages:
        for figure in figures:
            pages.savefig(figure.figure)
