"""The figures of a Markdown report: SVG files in a folder beside it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.figures.catalogue import FiguresUnavailable, figures_of
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.text.escaping import markdown_text
from pytest_llmeval.text.redaction import describe

__all__ = ["figure_lines", "figures_folder"]

_MARK = "pytest-llmeval: of the Markdown report beside this folder, and removed with its figure"
"""Marks the files that are ours to remove: ``llmeval plot`` writes others, perhaps into the same folder."""
_HEAD_BYTES = 512

_log = logging.getLogger(__name__)


def figures_folder(path: Path) -> Path:
    """Return ``out_figures`` beside ``out.md``."""
    return path.with_name(f"{path.stem}_figures")


def figure_lines(report: Report, path: Path) -> list[str]:
    """Write the figures of the report at ``path``, and return the lines that show them.

    There are none if matplotlib is not installed, if the report has no figures, or if it is not written to a file that
    ends in ``.md``. Files of an earlier run are removed. The lines say what went wrong: the report is worth more than
    its figures.
    """
    if path.suffix.lower() != ".md" or (path.exists() and not path.is_file()):
        return []
    folder = figures_folder(path)
    try:
        lines, names = _written(report, folder)
        _remove_others(folder, names)
    except FiguresUnavailable:
        return []
    except Exception as error:
        if not isinstance(error, LLMEvalError | OSError):  # a full disk needs no traceback
            _log.warning("the figures of %s could not be drawn", path, exc_info=True)
        return ["## Figures", "", markdown_text(f"The figures could not be drawn: {describe(error)}"), ""]
    return ["## Figures", "", *lines] if lines else []


def _written(report: Report, folder: Path) -> tuple[list[str], set[str]]:
    """Write the figures, and return their lines and the names of their files."""
    from pytest_llmeval.reporting.figures.image_files import ON_ANY_PAGE, write_figure

    lines: list[str] = []
    names: set[str] = set()
    figures = figures_of(report)
    for figure in figures:
        file = f"{figure.name}.svg"
        try:
            write_figure(figure, folder / file, palette=ON_ANY_PAGE, comment=_MARK)
        except LLMEvalError:
            raise
        except Exception as error:
            figures.note_failure(figure.name, error)
            continue
        names.add(file)
        lines += [f"![{markdown_text(figure.title)}]({quote(folder.name)}/{file})", ""]
    if figures.num_left_out:
        lines += [f"… and {figures.num_left_out} more: `llmeval plot REPORT -o FOLDER/` draws all of them", ""]
    if figures.failed:
        lines += [markdown_text(f"Some figures could not be drawn: {'; '.join(figures.failed)}"), ""]
    return lines, names


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove what an earlier report has left there, and nothing that somebody else has put there."""
    for file in _ours(folder):
        if file.name not in names:
            file.unlink()
    with suppress(OSError):  # not empty, or not there
        folder.rmdir()


def _ours(folder: Path) -> Iterator[Path]:
    """Yield the files with our mark."""
    for file in sorted(folder.glob("*.svg")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                head = opened.read(_HEAD_BYTES)
            if _MARK.encode("ascii") in head:
                yield file
