"""A page of 100,000 samples: rows, filters, order, search and texts. benchmarks/html_report.py measures how fast."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import Record
from tests.browser.conftest import Opener
from tests.browser.reports_for_tests import LargeRecords, large_report, write_page

pw = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'")
expect = pw.expect

pytestmark = pytest.mark.campaign

NUM_SAMPLES = 100_000


@pytest.fixture(scope="module")
def records() -> Sequence[Record]:
    return LargeRecords(NUM_SAMPLES, has_texts=False)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(large_report(NUM_SAMPLES), tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def num_left_out(path: Path) -> int:
    """As the page says it, which a reader sees without a script."""
    found = re.search(r"The texts of ([\d,]+) of 100,000 samples are left out", path.read_text(encoding="utf-8"))
    return 0 if found is None else int(found[1].replace(",", ""))


def count(page: Any) -> str:
    text: str = page.locator("#count").inner_text()
    return text


def column(page: Any, name: str) -> list[str]:
    found: list[str] = page.locator(f"#rows tbody td.{name}").all_inner_texts()
    return found


def test_the_file_has_its_size_and_says_what_it_left_out(path: Path, num_left_out: int) -> None:
    assert path.stat().st_size <= 64_000_000
    assert 0 < num_left_out < NUM_SAMPLES


def test_rows_filters_and_order(path: Path, records: Sequence[Record], open_report: Opener) -> None:
    page = open_report(path)
    expect(page.locator("#rows tbody tr")).to_have_count(100)
    assert count(page) == "100,000 samples, 1 to 100 below"

    page.locator("#filter-status").select_option(label="wrong")
    wrong = [one for one in records if one.status == "wrong"]
    assert count(page).startswith(f"{len(wrong):,} of 100,000 samples")
    page.locator("#filter-suite").select_option(label="suite_3")
    page.locator("#filter-category").select_option(label="subject_7")
    some = [one for one in wrong if (one.suite, one.category) == ("suite_3", "subject_7")]
    assert count(page).startswith(f"{len(some):,} of 100,000 samples")
    assert set(column(page, "id")) <= {one.id for one in some}
    page.locator("#reset").click()

    page.locator("#metric").select_option(label="brier")
    page.locator('th button[data-sort="metric"]').click()
    rising = sorted(one.values["brier"] for one in records)
    assert [float(value) for value in column(page, "metric")] == rising[:100]
    page.locator('th button[data-sort="metric"]').click()
    assert [float(value) for value in column(page, "metric")] == rising[:-101:-1]
    page.locator("#least").fill("0.25")
    page.locator("#most").fill("0.26")
    assert count(page).startswith(f"{sum(0.25 <= value <= 0.26 for value in rising):,} of 100,000 samples")


def test_the_last_rows(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#page=1000")
    expect(page.locator("#rows tbody tr")).to_have_count(100)
    assert count(page) == "100,000 samples, 99,901 to 100,000 below"
    expect(page.locator("#next")).to_be_disabled()


def test_a_search_through_all_texts(path: Path, num_left_out: int, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#search").fill("needle0000")  # at the end of the replies of samples 0 to 99
    assert count(page).startswith("0 of 100,000 samples")
    page.locator("#search-texts").click()
    expect(page.locator("#progress")).to_be_visible()
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator("#progress")).to_be_hidden()
    found = {int(id_.removeprefix("q")) for id_ in column(page, "id")}
    assert found
    assert found <= set(range(100))
    # Texts of wrong ones come first when not all can be kept.
    wrong = {number for number in range(100) if LargeRecords(NUM_SAMPLES, has_texts=False)[number].status == "wrong"}
    assert len(wrong - found) < len(wrong) * num_left_out / NUM_SAMPLES + 1


def test_a_search_is_stopped(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#search").fill("needle0")
    # Both at once: the search begins, and a reader stops it before it has gone through all.
    page.evaluate(
        "() => { document.querySelector('#search-texts').click();"
        " setTimeout(() => document.querySelector('#stop').click()); }"
    )
    expect(page.locator("#count")).to_contain_text("stopped")
    expect(page.locator("#progress")).to_be_hidden()
    found = re.match(r"([\d,]+) of 100,000", count(page))
    assert found is not None
    assert int(found[1].replace(",", "")) < NUM_SAMPLES // 2
    page.locator("#search").fill("q99999")  # all else goes on
    assert column(page, "id") == ["q99999"]


@pytest.mark.parametrize("number", [0, 3, 50_001, 99_997, 99_999])
def test_open_by_a_link(path: Path, open_report: Opener, number: int) -> None:
    record = LargeRecords(NUM_SAMPLES)[number]
    page = open_report(path, f"#sample=q{number}")
    expect(page.locator("#sample h3").first).to_have_text(record.id)
    left_out = page.locator("#sample .note", has_text="left out")
    if left_out.count():
        expect(left_out).to_contain_text("JSON report")
    else:
        expect(page.locator('#sample [data-field="prompt"]')).to_have_text(str(record.prompt))
        expect(page.locator('#sample [data-field="output"]')).to_have_text(str(record.output))


def test_open_one_after_the_other(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#status=wrong&suite=suite_4")
    for _ in range(5):
        page.keyboard.press("j")
        selected = page.locator('#rows tr[aria-current="true"] button')
        expect(page.locator("#sample h3").first).to_have_text(selected.inner_text())
    expect(page.locator("#sample .status")).to_have_text("wrong")
