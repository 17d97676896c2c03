"""Figures beside a Markdown report: the folder, the lines that show them, and what goes wrong."""

from __future__ import annotations

import functools
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from pytest_llmeval.reporting.figures import forest_plots, image_files
from pytest_llmeval.reporting.figures.catalogue import figures_of, planned_figures
from pytest_llmeval.reporting.figures.image_files import svg_document, write_figure
from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.writers.markdown import markdown_summary, write_markdown
from tests.reporting.figures.drawn import drawn, metric, report_of_all, suite_on
from tests.reporting.made_reports import report


def images(markdown: str) -> dict[str, str]:
    """The addresses of a document's images, with what stands in their place."""
    tokens = [one for token in MarkdownIt().parse(markdown) for one in token.children or []]
    return {str(token.attrs["src"]): token.content for token in tokens if token.type == "image"}


SMALL = report([suite_on("capitals", "m", accuracy=metric(0.7, 0.6, 0.8))])


def test_every_figure_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "a report (1).md"
    write_markdown(report_of_all(), path)
    shown = images(path.read_text(encoding="utf-8"))
    folder = tmp_path / "a report (1)_figures"
    assert {tmp_path / unquote(address) for address in shown} == set(folder.iterdir())
    assert "Reliability of capitals" in shown.values()
    for file in folder.iterdir():
        assert "var(" not in ElementTree.tostring(ElementTree.parse(file).getroot(), encoding="unicode")


def test_titles_are_escaped(tmp_path: Path) -> None:
    name = "x](https://evil.example) ![y"
    write_markdown(report_of_all(name), tmp_path / "out.md")
    shown = images((tmp_path / "out.md").read_text(encoding="utf-8"))
    assert all(address.startswith("out_figures/") for address in shown)


def test_old_files_of_ours_go_and_others_stay(tmp_path: Path) -> None:
    path, folder = tmp_path / "out.md", tmp_path / "out_figures"
    write_markdown(report_of_all(), path)
    (folder / "mine.svg").write_text("<svg/>")
    (folder / "notes.txt").write_text("x")
    write_markdown(SMALL, path)
    names = {"forest-accuracy.svg", "mine.svg", "notes.txt"}
    assert {file.name for file in folder.iterdir()} == names
    write_markdown(report([]), path)
    assert {file.name for file in folder.iterdir()} == {"mine.svg", "notes.txt"}
    assert "Figures" not in path.read_text(encoding="utf-8")


def test_figures_that_were_plotted_into_the_folder_stay(tmp_path: Path) -> None:
    folder = tmp_path / "out_figures"
    (figure,) = drawn(report_of_all(), "reliability")
    write_figure(figure, folder / "reliability-capitals.svg")
    write_markdown(SMALL, tmp_path / "out.md")
    write_markdown(report([]), tmp_path / "out.md")
    assert [file.name for file in folder.iterdir()] == ["reliability-capitals.svg"]


def test_a_folder_that_is_empty_goes(tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    write_markdown(SMALL, path)
    assert (tmp_path / "out_figures").is_dir()
    write_markdown(report([]), path)
    assert [file.name for file in tmp_path.iterdir()] == ["out.md"]


def test_without_matplotlib_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write_markdown(SMALL, tmp_path / "out.md")
    assert [file.name for file in tmp_path.iterdir()] == ["out.md"]
    assert "igures" not in (tmp_path / "out.md").read_text(encoding="utf-8")


def test_the_report_is_written_though_drawing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(forest_plots, "interval_rows", broken)
    with caplog.at_level(logging.WARNING):
        write_markdown(report_of_all(), tmp_path / "out.md")
    shown = (tmp_path / "out.md").read_text(encoding="utf-8")
    assert "Some figures could not be drawn: forest-accuracy (RuntimeError: no ink)" in shown
    assert "![Reliability of capitals]" in shown
    assert "## Suites" in shown
    assert "could not be drawn" in caplog.text


def test_a_figure_that_cannot_be_written_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(figure: ReportFigure, **settings: Any) -> str:
        if figure.kind == "forest":
            raise OverflowError("too large")
        return svg_document(figure, **settings)

    monkeypatch.setattr(image_files, "svg_document", broken)
    write_markdown(report_of_all(), tmp_path / "out.md")
    shown = (tmp_path / "out.md").read_text(encoding="utf-8")
    assert "Some figures could not be drawn: forest-accuracy (OverflowError: too large)" in shown
    assert "forest-accuracy.svg" not in shown
    assert "![Reliability of capitals]" in shown


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The page says so, and no traceback does: the command prints what is logged."""
    (tmp_path / "out_figures").write_text("a file")
    write_markdown(SMALL, tmp_path / "out.md")
    assert not caplog.records
    assert "The figures could not be drawn: " in (tmp_path / "out.md").read_text(encoding="utf-8")


def test_many_figures_are_cut_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = report_of_all()
    num_figures = len(list(planned_figures(made)))
    monkeypatch.setattr("pytest_llmeval.reporting.writers.markdown.figures_of", functools.partial(figures_of, limit=1))
    write_markdown(made, tmp_path / "out.md")
    assert len(list((tmp_path / "out_figures").iterdir())) == 1
    shown = (tmp_path / "out.md").read_text("utf-8")
    assert f"… and {num_figures - 1} more: `llmeval plot REPORT -o FOLDER/` draws all" in shown


def test_no_figures_elsewhere(tmp_path: Path) -> None:
    assert "Figures" not in markdown_summary(SMALL)
    write_markdown(replace(SMALL), tmp_path / "report")  # as for standard output
    assert [file.name for file in tmp_path.iterdir()] == ["report"]
