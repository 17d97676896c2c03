"""Figures in a page: which, what is said where some are missing, and that no label of theirs is more than text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.reporting.figures import catalogue, image_files
from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.writers.html import page as page_module
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from tests.reporting.html.conftest import unavailable
from tests.reporting.html.pages import page_of
from tests.reporting.reports import make_record, make_report


def of_suites(*names: str) -> Report:
    records = [
        make_record(suite=name, id_=f"s{number}", values={"accuracy": float(number % 2), "confidence": number / 4})
        for name in names
        for number in range(4)
    ]
    made = make_report(records)
    bins = (ReliabilityBin(low=0.0, high=1.0, n=4, confidence=0.4, accuracy=0.5),)
    return replace(made, suites=tuple(replace(suite, reliability=bins) for suite in made.suites))


def test_figures_are_in_the_page(tmp_path: Path) -> None:
    page = page_of(of_suites("a", "</script><b>"), tmp_path)
    titles = [one.text for one in page.all("figcaption")]
    assert titles == [
        f"{what} of {name}" for name in ("a", "</script><b>") for what in ("Reliability", "Risk and coverage")
    ]
    in_order = [one.text for one in page.elements if one.tag in ("figcaption", "summary")]
    assert in_order[: in_order.index("Reliability of </script><b>")][-4:] == [
        *("Reliability of a", "a: reliability", "Risk and coverage of a", "a: risk and coverage")
    ]
    drawings = [one for one in page.all("svg") if one.attributes.get("class") != "bar"]
    assert len(drawings) == 4
    assert all(one.attributes["role"] == "img" for one in drawings)
    assert not page.all("b")


def test_a_figure_of_one_suite_is_a_further_one_where_another_compares_several() -> None:
    several, alone = page_module._Drawn("a", "", 2), page_module._Drawn("b", "", 1)
    drawn = {"price": [several, alone], "reliability": [several, alone]}
    page_module._fold_single_prices(drawn)
    assert drawn == {"price": [several], "price-others": [alone], "reliability": [several, alone]}
    only = {"price": [alone, alone]}
    page_module._fold_single_prices(only)
    assert only == {"price": [alone, alone]}


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = of_suites("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(page_module, "figures_of", unavailable)
        page = page_of(report, tmp_path)
    assert not page.all("figure")
    assert "without figures: figures need matplotlib: pip install 'pytest-llmeval-suites[report]'" in page.text

    def few(given: Report, *arguments: Any, **options: Any) -> catalogue.ReportFigures:
        return catalogue.figures_of(given, *arguments, **{**options, "limit": 0})

    monkeypatch.setattr(page_module, "figures_of", few)
    assert "4 more figures: llmeval plot REPORT -o FOLDER/ draws all" in page_of(report, tmp_path).text


def test_a_figure_that_fails_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = image_files.svg_text

    def broken(figure: ReportFigure) -> str:
        if figure.name == "risk-coverage-a":
            raise RuntimeError("no room")
        return draw(figure)

    monkeypatch.setattr(image_files, "svg_text", broken)
    page = page_of(of_suites("a", "b"), tmp_path)
    assert "figures that could not be drawn: risk-coverage-a (" in page.text
    assert "no room" in page.text
    assert [one.text for one in page.all("figcaption")] == [
        "Reliability of a",
        "Reliability of b",
        "Risk and coverage of b",
    ]
