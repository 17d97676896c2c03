"""Figures as SVG: well-formed, harmless whatever labels hold, the same bytes each time."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.reporting.figures.image_files import ON_ANY_PAGE, svg_document, svg_text
from pytest_llmeval.reporting.figures.report_figure import ReportFigure, label
from pytest_llmeval.reporting.figures.style import GRID, INK, MUTED, colour_of
from tests.properties import examples
from tests.reporting.figures.drawn import contrast, drawn, report_of_all, texts_of
from tests.reporting.made_reports import HOSTILE

ELEMENTS = {"svg", "title", "desc", "g", "path", "text", "tspan", "defs", "clipPath", "rect"}
REFERENCE = re.compile(r"url\(#([a-z0-9-]+)\)")


@pytest.fixture(scope="module")
def figures() -> list[ReportFigure]:
    return drawn(report_of_all())


def check_harmless(figures: list[ReportFigure], draw: Callable[[ReportFigure], str] = svg_text) -> None:
    """Nothing but drawing in it; every id once on a page, and every reference to one of its own."""
    seen: set[str] = set()
    for figure in figures:
        root = ElementTree.fromstring(draw(figure))
        ids = set()
        for node in root.iter():
            assert node.tag.removeprefix("{http://www.w3.org/2000/svg}") in ELEMENTS
            for name, value in node.attrib.items():
                assert name not in ("style", "href", "class")
                assert not name.lower().startswith("on")
                assert "url(" not in REFERENCE.sub("", value)
            if own := node.get("id"):
                assert own not in ids
                ids.add(own)
        used = {found for node in root.iter() for value in node.attrib.values() for found in REFERENCE.findall(value)}
        assert used | set(root.get("aria-labelledby", "").split()) == ids
        assert root.get("role") == "img"
        assert not ids & seen
        seen |= ids


@pytest.mark.parametrize("text", [*HOSTILE, "$x_1^{2}$", "\\frac", "_hidden", "🦆" * 30, "שלום عربي", "\ufffe\uffff"])
def test_a_hostile_label_is_a_text(text: str) -> None:
    found = drawn(report_of_all(text, f"{text}one", f"{text}two"), "forest")
    check_harmless(found)
    shown = texts_of(svg_text(found[0]))
    assert [one for one in shown if one.strip() == label(text).strip()]


@settings(max_examples=examples(40))
@given(
    st.text(st.characters(exclude_categories=[]), max_size=60), st.text("$_^\\{}<>&\"'-#%~ \u202e\ud800", max_size=50)
)
def test_any_label_is_harmless(suite: str, model: str) -> None:
    check_harmless(drawn(report_of_all(suite, model, f"{model}+"), "differences", "pass-at-k"))


def test_every_kind_is_harmless(figures: list[ReportFigure]) -> None:
    check_harmless(figures)


def test_the_same_bytes_each_time(figures: list[ReportFigure]) -> None:
    again = drawn(report_of_all())
    assert [svg_text(figure) for figure in figures] == [svg_text(figure) for figure in again]


def test_a_document_stands_alone() -> None:
    figure = drawn(report_of_all("größe"), "forest")[0]
    text = svg_document(figure)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<svg ')
    assert text.isascii()
    assert "größe" in texts_of(text)
    assert "var(" not in text


def test_title_and_description(figures: list[ReportFigure]) -> None:
    figure = figures[0]
    root = ElementTree.fromstring(svg_text(figure))
    assert [(node.tag.rpartition("}")[2], node.text) for node in root[:2]] == [
        ("title", figure.title),
        ("desc", figure.description),
    ]


def test_colours_follow_the_page(figures: list[ReportFigure]) -> None:
    for figure in {figure.kind: figure for figure in figures}.values():
        text = svg_text(figure)
        assert not {INK, MUTED, GRID} & set(re.findall(r"#[0-9a-f]{6}\b", text))
        assert "var(--figure-ink, #222)" in text
    assert ON_ANY_PAGE.ink in svg_document(figures[0], palette=ON_ANY_PAGE)


@pytest.mark.parametrize("page", ["#ffffff", "#15171c"])
def test_colours_can_be_seen_on_light_and_dark(page: str) -> None:
    for colour in [*map(colour_of, range(7)), ON_ANY_PAGE.ink, ON_ANY_PAGE.muted]:
        assert contrast(colour, page) >= 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("", "(no name)"),
        ("a\nb\u202e", "a\\nb\\u202e"),
        ("\ufffe", "\\ufffe"),
        ("x" * 30 + "y" * 30, "x" * 26 + "…" + "y" * 13),
    ],
)
def test_labels(text: str, expected: str) -> None:
    assert label(text) == expected
    assert len(label(text)) <= 40
