"""The page of the example suites, on the demo model and a noisy copy of it, against a baseline: all of it has room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Opener
from tests.browser.reports_for_tests import write_page
from tests.tools.screenshots import example_report

pytestmark = pytest.mark.slow

TOO_WIDE = """() => {
    for (const one of document.querySelectorAll("details")) one.open = true;
    const tables = Array.from(document.querySelectorAll("table"), (one) => one.closest(".scroll"));
    return [...tables, document.body, document.documentElement].filter((one) => one.scrollWidth > one.clientWidth)
        .map((one) => `${one.ariaLabel || one.localName}: ${one.scrollWidth} in ${one.clientWidth}`);
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    return write_page(example_report(folder, [""], baseline=True), folder)


def test_no_table_scrolls_sideways(path: Path, open_report: Opener) -> None:
    assert open_report(path).evaluate(TOO_WIDE) == []


def test_a_narrow_window_scrolls_down_only(path: Path, open_report: Opener) -> None:
    page = open_report(path, width=400)
    page.evaluate(TOO_WIDE)
    assert page.evaluate("() => Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)") <= 400


def test_the_verdict_and_all_suites_stand_above_the_fold(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    assert page.locator("#verdict").is_visible()
    bottoms = page.locator(".matrix tbody:not(.part)").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 14
    assert bottoms[10] < 900
