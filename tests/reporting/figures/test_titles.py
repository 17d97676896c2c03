"""Titles in files: above the drawing, of any text, no wider than the figure, and gone afterwards."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from pytest_llmeval.reporting.figures.image_files import svg_document, svg_text, write_figure, write_pdf
from pytest_llmeval.reporting.figures.report_figure import ReportFigure, label
from pytest_llmeval.reporting.figures.style import Sheet, drawing
from tests.properties import examples
from tests.reporting.figures.drawn import drawn, named, pdf_pages, report_of_all, texts_of
from tests.reporting.figures.test_svg import check_harmless
from tests.reporting.made_reports import HOSTILE


@pytest.fixture(scope="module")
def figures() -> list[ReportFigure]:
    return drawn(report_of_all())


@pytest.fixture(scope="module")
def reliability(figures: list[ReportFigure]) -> ReportFigure:
    return named(figures, "reliability-capitals")


def test_a_file_has_a_title_and_a_page_none(figures: list[ReportFigure]) -> None:
    for figure in {figure.kind: figure for figure in figures}.values():
        inline = svg_text(figure)
        assert figure.title not in texts_of(inline)
        assert texts_of(svg_document(figure)) == [*texts_of(inline), figure.title]
        assert texts_of(svg_document(figure, has_title=False)) == texts_of(inline)
        assert svg_text(figure) == inline, "the figure is as it was"


def test_the_title_is_above_the_figure(reliability: ReportFigure) -> None:
    heights = [
        float(re.findall(r'viewBox="0 0 \S+ (\S+)"', svg_document(reliability, has_title=has_title))[0])
        for has_title in (True, False)
    ]
    assert 10 < heights[0] - heights[1] < 30


def test_a_png_has_the_title_above_the_same_picture(reliability: ReportFigure, tmp_path: Path) -> None:
    with_title, without = tmp_path / "with.png", tmp_path / "without.png"
    write_figure(reliability, with_title)
    write_figure(reliability, without, has_title=False)
    pixels, bare = imread(with_title), imread(without)
    assert pixels.shape[1] == bare.shape[1]
    above = pixels.shape[0] - bare.shape[0]
    assert above > 30
    assert np.ptp(pixels[:above]) > 0.5
    assert np.mean(np.abs(pixels[above:] - bare)) < 0.02
    again = tmp_path / "again.png"
    write_figure(reliability, again)
    assert again.read_bytes() == with_title.read_bytes()


def test_each_page_of_a_pdf_has_its_title(figures: list[ReportFigure], tmp_path: Path) -> None:
    path = tmp_path / "all.pdf"
    figures = [*{figure.kind: figure for figure in figures}.values()]
    write_pdf(figures, path)
    pages = pdf_pages(path.read_bytes())
    endings = [figure.title.rpartition("ff")[2] for figure in figures]
    assert len(pages) == len(figures)
    assert all(ending in page.splitlines()[-1] for ending, page in zip(endings, pages, strict=True))
    first = path.read_bytes()
    write_pdf(figures, path)
    assert path.read_bytes() == first
    write_pdf(figures, path, has_titles=False)
    pages = pdf_pages(path.read_bytes())
    assert not [ending for ending, page in zip(endings, pages, strict=True) if ending in page.splitlines()[-1]]


def lines_of_title(figure: ReportFigure) -> list[str]:
    return texts_of(svg_document(figure))[len(texts_of(svg_text(figure))) :][::-1]


@settings(max_examples=examples(40))
@given(title=st.text(st.characters(exclude_categories=["Z", "C"]), max_size=100) | st.text("ab W", max_size=300))
@example(title="a word " * 30)
@example(title="W" * 200)
def test_a_long_title_has_several_lines(reliability: ReportFigure, title: str) -> None:
    lines = lines_of_title(replace(reliability, title=title))
    room = reliability.figure.get_figwidth()
    with drawing():
        assert all(Sheet.width_of([line]) <= room for line in lines)
        assert len(lines) <= 1 or Sheet.width_of([title]) > 0.8 * room
    assert "".join("".join(lines).split()) == "".join(label(title, limit=240).split())


ODD = ["$x_1^{2}$", "\\frac{", "_hidden", "🦆" * 30, "שלום عربي", "\ufffe\uffff"]


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        *(pytest.param(text, "svg", marks=pytest.mark.slow) for text in HOSTILE),
        *((text, "svg") for text in ODD),
        *((text, suffix) for text in (ODD[0], ODD[-1]) for suffix in ("png", "pdf")),
    ],
)
def test_a_hostile_title_is_a_text(text: str, suffix: str, reliability: ReportFigure, tmp_path: Path) -> None:
    figure, path = replace(reliability, title=text), tmp_path / f"x.{suffix}"
    write_figure(figure, path)
    first = path.read_bytes()
    write_figure(figure, path)
    assert path.read_bytes() == first
    if suffix == "svg":
        check_harmless([figure], draw=svg_document)
        assert "".join("".join(lines_of_title(figure)).split()) == "".join(label(text, limit=240).split())
