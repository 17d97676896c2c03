"""The page of ``llmeval history`` in a browser: nothing is asked for, nothing runs, and all of it can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_llmeval.gates.history import history_of
from pytest_llmeval.reporting.report.origin import ReportOrigin
from pytest_llmeval.reporting.writers.html.history import history_page
from tests.browser.conftest import Opener
from tests.browser.hostile_strings import HOSTILE_STRINGS
from tests.browser.test_page_in_browser import luminance, violations
from tests.gates.reports_for_tests import ran, report

RIGHT = (30, 30, 10, 28)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    reports = []
    for day, right in enumerate(RIGHT, 1):
        texts = HOSTILE_STRINGS[day :: len(RIGHT)]
        origin = ReportOrigin(
            commit=f"{day}" * 40,
            branch=texts[0],
            run="https://ci.example/runs/1" if day % 2 else "javascript:window.__ran=true",
            labels={str(place): text for place, text in enumerate(texts)},
        )
        made = report(ran([place < right for place in range(40)], name=HOSTILE_STRINGS[0]))
        reports.append((texts[1], replace(made, created=f"2026-01-0{day}", origin=origin)))
    page = tmp_path / "history.html"
    page.write_text(history_page(history_of(reports)), encoding="utf-8")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark_and_does_nothing(path: Path, open_report: Opener, scheme: str) -> None:
    page = open_report(path, color_scheme=scheme, ready="main")
    paper = luminance(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert (paper > 0.5) == (scheme == "light")
    for element, least in (("text", 4.5), ("circle", 3)):
        found = page.locator(f"svg.chart {element}").evaluate_all("all => all.map(one => getComputedStyle(one).fill)")
        assert found
        for colour in found:
            lighter, darker = sorted((luminance(colour), paper), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= least
    assert page.locator("svg.chart circle").count() == len(RIGHT)
    assert page.locator("svg.chart circle.worse").count() == page.locator("svg.chart circle.better").count() == 1
    links = page.locator("a").evaluate_all("all => all.map(one => one.href)")
    assert set(links) == {"https://ci.example/runs/1"}


@pytest.mark.parametrize("width", [400, 1280])
def test_everybody_can_use_it(path: Path, open_report: Opener, width: int) -> None:
    page = open_report(path, width=width, ready="main")
    page.locator("summary").first.click()
    assert violations(page) == []
