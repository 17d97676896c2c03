"""Texts of models, data, files and libraries are shown as text, wherever they stand: nothing of them runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.tables.suites import short_model_names
from pytest_llmeval.text.escaping import printable
from tests.browser.conftest import Opener
from tests.browser.hostile_strings import HOSTILE_STRINGS, RUN, URL
from tests.browser.reports_for_tests import hostile_models, hostile_names, hostile_report, write_page

pw = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'")
expect = pw.expect

LONGEST_NAME = 6000
OPEN_SAMPLE = """async (place) => {
    const wait = () => new Promise((resolve) => setTimeout(resolve));
    document.querySelector(`#rows tr[data-place="${place}"] button`).click();
    const isShown = () => document.querySelector(`#rows tr[data-place="${place}"][aria-current="true"]`);
    const article = document.querySelector("#sample");
    const before = article.firstChild;
    while (!isShown() || article.hidden || article.firstChild === before) await wait();
    return {
        title: article.querySelector("h3").textContent,
        fields: Array.from(article.querySelectorAll("[data-field]"), (one) => [one.dataset.field, one.textContent]),
        elements: Array.from(new Set(Array.from(article.querySelectorAll("*"), (one) => one.localName))),
    };
}"""
"""Opens the sample and returns what is shown of it; in one call, for hundreds of samples."""
ADDRESS_OF_SAMPLE = """async (id) => {
    while (new URLSearchParams(location.hash.slice(1)).get("sample") !== id) {
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return location.hash;
}"""
"""Waits until the address names the sample, which takes a moment, and returns it."""
FOLLOW = """async ([link, title]) => {
    location.hash = link;
    const shown = () => document.querySelector("#sample h3");
    const started = performance.now();
    while (!shown() || shown().textContent !== title) {
        if (performance.now() - started > 60000) throw new Error(`${link} leads to ${shown() && shown().textContent}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
}"""
"""Follows a link, and waits until the sample of this title is shown."""
OWN_ELEMENTS = {"div", "h3", "h4", "button", "p", "pre", "table", "tbody", "tr", "td", "th", "meter", "span", "mark"}


@pytest.fixture(scope="module")
def report() -> Report:
    return hostile_report(HOSTILE_STRINGS)


@pytest.fixture(scope="module")
def path(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(report, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def names_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [text for text in HOSTILE_STRINGS if len(text) < LONGEST_NAME]
    return write_page(hostile_names(texts), tmp_path_factory.mktemp("names"))


def pages_of_rows(page: Any) -> Iterator[list[int]]:
    """The places of the samples on each page of rows, one page after the other."""
    while True:
        rows = page.locator("#rows tbody tr")
        yield [int(place) for place in rows.evaluate_all("rows => rows.map(row => row.dataset.place)")]
        if not page.locator("#next").is_visible() or page.locator("#next").is_disabled():
            return
        page.locator("#next").click()


def test_there_are_many_hostile_texts() -> None:
    assert len(set(HOSTILE_STRINGS)) == len(HOSTILE_STRINGS) >= 220


def test_nothing_but_our_own_elements_is_in_the_page(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    tags = page.evaluate("() => Array.from(new Set(Array.from(document.querySelectorAll('*'), one => one.localName)))")
    svg = {
        "svg",
        "g",
        "path",
        "text",
        "tspan",
        "use",
        "defs",
        "clippath",
        "clipPath",
        "rect",
        "title",
        "desc",
        "marker",
    }
    own = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "h1",
        "h2",
        "ul",
        "li",
        "nav",
        "a",
        "main",
        "script",
    }
    own |= {"section", "figure", "figcaption", "caption", "thead", "details", "summary", "noscript", "footer", "kbd"}
    own |= {"form", "label", "input", "select", "option", "progress", "output", "article"}
    assert set(tags) <= own | svg | OWN_ELEMENTS
    attributes = page.evaluate(
        "() => Array.from(new Set(Array.from(document.querySelectorAll('*'), one => one.getAttributeNames()).flat()))"
    )
    assert not [name for name in attributes if name.startswith("on") or name in ("srcdoc", "action", "formaction")]
    urls = page.evaluate(
        "() => Array.from(document.querySelectorAll('[href], [src]'), "
        "one => one.getAttribute('href') || one.getAttribute('src'))"
    )
    assert all(url.startswith("#") for url in urls)


def test_every_sample_is_opened_and_shown_as_text(path: Path, report: Report, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-model").select_option("0")
    wanted = {printable(one.id): one for one in report.records if one.model == report.model_names[0]}
    seen = set()
    for places in pages_of_rows(page):
        for place in places:
            shown = page.evaluate(OPEN_SAMPLE, place)
            record = wanted[shown["title"]]
            seen.add(shown["title"])
            assert set(shown["elements"]) <= OWN_ELEMENTS
            own = [value for name, value in shown["fields"] if name == "expected"]
            assert printable(str(record.target), keep="\n\t") in own
            every = "\n".join(value for _, value in shown["fields"])
            text = printable(str(record.reason), keep="\n\t")
            assert text in every
            assert not any(ord(character) < 32 and character not in "\n\t" for character in every)
    assert seen == wanted.keys()


def test_control_characters_are_escapes(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    text = page.evaluate("() => document.body.textContent")
    controls = [
        *range(9),
        *range(11, 32),
        *range(0x7F, 0xA0),
        0x2028,
        0x2029,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ]
    assert {hex(code) for code in controls if chr(code) in text} <= {"0xd"}
    assert "\\x1b[31mred\\x1b[0m" in text
    assert "\\u202egpj.exe" in text


@pytest.mark.campaign
def test_search_for_each(path: Path, report: Report, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-model").select_option("0")
    for place, text in enumerate(HOSTILE_STRINGS):
        if len(text) < 60:
            name = f"{printable(text)} #{place}"
            page.locator("#search").fill(name)
            assert name in page.locator("#rows tbody td.id").all_text_contents()


def test_search_in_all_texts_and_marks(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    for words in ("<script>", "\\x1b[", "&lt;script", "__proto__", "\u0130", "\U0001f468\u200d\U0001f469", "${", "\\"):
        page.locator("#search").fill(words)
        page.locator("#search-texts").click()
        expect(page.locator("#progress")).to_be_hidden()
        expect(page.locator("#rows tbody tr").first).to_be_visible()
        place = int(str(page.locator("#rows tbody tr").first.get_attribute("data-place")))
        shown = page.evaluate(OPEN_SAMPLE, place)
        assert any(words.lower() in value.lower() for _, value in shown["fields"]) or words in shown["title"]


@pytest.mark.campaign
def test_links_with_hostile_ids_lead_back(names_path: Path, open_report: Opener) -> None:
    texts = [text for text in HOSTILE_STRINGS if len(text) < LONGEST_NAME]
    runs = [
        text for text in texts if RUN in text or URL in text
    ]  # of these some: it is the others that break an address
    wanted = {printable(text) or "(no id)" for text in texts if text not in set(runs) - set(runs[::5])}
    page = open_report(names_path)
    links: dict[str, str] = {}
    for places in pages_of_rows(page):
        for place in places:
            button = page.locator(f'#rows tr[data-place="{place}"] button')
            if (title := str(button.text_content())) in wanted:
                page.evaluate(OPEN_SAMPLE, place)
                links[title] = page.evaluate(ADDRESS_OF_SAMPLE, "" if title == "(no id)" else title)
    assert links.keys() == wanted
    other = open_report(names_path)
    for title, link in links.items():
        other.evaluate(FOLLOW, [link, title])


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["suite", "category"])
def test_filters_with_hostile_names(names_path: Path, open_report: Opener, name: str) -> None:
    page = open_report(names_path)
    select = page.locator(f"#filter-{name}")
    num_options = select.locator("option").count()
    assert num_options > 200
    for value in range(num_options - 1):
        select.select_option(str(value))
        expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert page.evaluate("() => ({}).polluted === undefined && Object.keys(Object.prototype).length === 0")


def test_models_of_hostile_names_stand_side_by_side(tmp_path: Path, open_report: Opener) -> None:
    names = [text for text in HOSTILE_STRINGS if 0 < len(text) < 200][::12]
    report = hostile_models(names)
    page = open_report(write_page(report, tmp_path))
    page.locator("#rows tbody tr button").first.click()
    expect(page.locator("#sample .model")).to_have_count(len(names))
    shown = page.locator("#sample .model h3").all_text_contents()
    assert shown == [printable(name) for name in short_model_names(report).values()]


def test_a_narrow_window_scrolls_down_only(path: Path, open_report: Opener) -> None:
    page = open_report(path, width=400)
    page.keyboard.press("j")
    expect(page.locator("#sample")).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400


def test_without_javascript(path: Path, open_report: Opener) -> None:
    page = open_report(path, javascript=False)
    expect(page.locator("#gates tbody tr")).to_have_count(len(HOSTILE_STRINGS))
    expect(page.locator("#environment table").first).to_be_attached()
