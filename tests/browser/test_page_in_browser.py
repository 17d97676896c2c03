"""What a reader does with the page: look, search, filter, sort, open samples, pass on a link, print."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report
from tests.browser.conftest import Opener
from tests.browser.reports_for_tests import (
    CAPITALS,
    MODELS,
    against_baseline,
    assembled,
    capitals,
    plain_report,
    write_page,
)

pw = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'")
expect = pw.expect

WCAG_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
SAMPLE_LINK = "#sample=capital-003&of=capitals&by=small-model"


@pytest.fixture(scope="module")
def report() -> Report:
    return plain_report()


@pytest.fixture(scope="module")
def path(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(report, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def baseline_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(against_baseline(), tmp_path_factory.mktemp("baseline"))


def ids(page: Any) -> list[str]:
    """Those of the rows shown, in their order."""
    found: list[str] = page.locator("#rows tbody tr td:first-child").all_inner_texts()
    return [text.strip() for text in found]


def column(page: Any, name: str) -> list[str]:
    found: list[str] = page.locator(f"#rows tbody td.{name}").all_inner_texts()
    return [text.strip() for text in found]


def num_shown(page: Any) -> int:
    """How many samples pass the filters."""
    found = re.match(r"([\d,]+)", page.locator("#count").inner_text())
    assert found is not None
    return int(found[1].replace(",", ""))


def field(page: Any, name: str) -> Any:
    return page.locator(f'#sample [data-field="{name}"]')


def wait_for_address(page: Any, part: str) -> None:
    page.wait_for_url(lambda url: part in url)


def open_details(page: Any) -> None:
    page.evaluate("() => { for (const one of document.querySelectorAll('details')) one.open = true; }")


# The whole page


def test_sections_stand_in_their_order(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    found = page.evaluate("() => Array.from(document.querySelectorAll('main > section'), one => one.id)")
    wanted = ["suites", "gates", "changes", "samples", "calibration", "passk", "price", "problems", "environment"]
    assert sorted(found) == sorted(wanted)
    in_order = [name for name in wanted if name != "problems"]
    assert [name for name in found if name != "problems"] == in_order
    expect(page.locator("#verdict")).to_contain_text("2 of 4 gates failed")
    expect(page.locator("#message")).to_be_hidden()
    links = page.locator("header nav a")
    targets = [str(links.nth(place).get_attribute("href")) for place in range(links.count())]
    assert all(page.locator(target).count() == 1 for target in targets)
    assert {f"#{name}" for name in found} == set(targets)


def test_the_matrix_stands_above_the_fold(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    suites = page.locator(".matrix tbody:not(.part)")
    expect(suites).to_have_count(3)
    expect(page.locator(".matrix thead th")).to_have_text(["suite", "small-model", "large-model against small-model"])
    boxes = [page.locator("#verdict").bounding_box(), suites.last.bounding_box()]
    assert all(box is not None and box["y"] + box["height"] <= 900 for box in boxes)
    cells = suites.first.locator("tr").first.locator("td")
    expect(cells.nth(0).locator(".ends")).to_have_count(1)
    expect(cells.nth(0).locator(".change")).to_have_count(0)
    expect(cells.nth(1).locator(".change")).to_have_text(re.compile(r"^[+−]\d\.\d{3} (better|worse|=)$"))
    expect(page.locator(".matrix .failed a").first).to_have_text("✗ gate")


def test_a_suite_opens_into_its_categories_by_keyboard(path: Path, open_report: Opener) -> None:
    for javascript in (True, False):
        page = open_report(path, javascript=javascript)
        suite = page.locator(".matrix tbody").first
        parts = page.locator(".matrix .part").first.locator("tr")
        expect(parts.first).to_be_hidden()
        suite.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(parts.first).to_be_visible()
        assert {"Brier", "north", "south", "islands"} <= {
            text.partition("\n")[0] for text in parts.locator("th").all_inner_texts()
        }
        expect(page.locator(".matrix .part").last.locator("tr").first).to_be_hidden()
        page.keyboard.press("Enter")
        expect(parts.first).to_be_hidden()


def test_the_matrix_in_a_browser_without_has_shows_all_rows(path: Path, tmp_path: Path, open_report: Opener) -> None:
    text = re.sub("<meta http-equiv=[^>]*>", "", path.read_text(encoding="utf-8"))  # the policy, for another style
    (tmp_path / "old.html").write_text(text.replace("selector(:has(*))", "selector(:unknown(*))"), encoding="utf-8")
    page = open_report(tmp_path / "old.html", javascript=False)
    expect(page.locator(".matrix .part tr").first).to_be_visible()


WIDTHS = """() => Array.from(document.querySelectorAll(".scroll"), (one) => [
    one.ariaLabel, one.scrollWidth - one.clientWidth,
]).filter(([, more]) => more > 0)"""


def test_no_table_scrolls_sideways(path: Path, baseline_path: Path, open_report: Opener) -> None:
    for one in (path, baseline_path):
        page = open_report(one)
        open_details(page)
        assert page.evaluate(WIDTHS) == []
        assert page.evaluate("() => document.body.scrollWidth") <= 1280


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_worse_and_better_differ_to_eyes_of_all_kinds(baseline_path: Path, open_report: Opener, scheme: str) -> None:
    """In what the two colours have of blue: red and green, which many cannot tell apart, do not."""
    page = open_report(baseline_path, color_scheme=scheme)
    colours = page.evaluate(
        "() => ['worse', 'better'].map(name => {"
        " const one = document.createElement('span'); one.className = name; document.body.append(one);"
        " return getComputedStyle(one).color; })"
    )
    worse, better = ([int(part) for part in re.findall(r"\d+", colour)[:3]] for colour in colours)
    assert worse[0] > worse[2] + 90
    assert better[2] > better[0] + 90


def test_gates_stand_with_those_that_failed_first(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    outcomes = page.locator("#gates tbody tr").evaluate_all("rows => rows.map(row => row.cells[0].textContent)")
    assert outcomes == ["failed", "failed", "passed", "passed"]


def test_figures_are_there_with_a_text_for_those_who_cannot_see_them(path: Path, open_report: Opener) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    page = open_report(path)
    open_details(page)
    figures = page.locator("figure svg")
    assert figures.count() >= 5
    for place in range(figures.count()):
        figure = figures.nth(place)
        box = figure.bounding_box()
        assert box is not None
        assert box["width"] > 100
        named = figure.evaluate(
            "svg => svg.getAttribute('role') === 'img'"
            " && Boolean(svg.getAttribute('aria-label') || svg.getAttribute('aria-labelledby'))"
        )
        assert named, figure.evaluate("svg => svg.outerHTML.slice(0, 300)")


def test_figures_stand_beside_their_tables(path: Path, open_report: Opener) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    page = open_report(path)
    pairs = page.locator("#calibration .pairs > div")
    expect(pairs).to_have_count(2)
    for place, what in enumerate(("reliability", "risk and coverage")):
        expect(pairs.nth(place).locator("figcaption")).to_contain_text("of capitals")
        expect(pairs.nth(place).locator("summary").first).to_have_text(f"capitals (small-model): {what}")
    tops = [box["y"] for place in range(2) if (box := pairs.nth(place).bounding_box()) is not None]
    assert tops[0] == tops[1]
    for section in ("changes", "price"):
        assert page.locator(f"#{section} figure").count()
        assert page.locator(f"#{section} table").count()


def test_first_rows(path: Path, report: Report, open_report: Opener) -> None:
    page = open_report(path)
    expect(page.locator("#rows tbody tr")).to_have_count(100)
    assert num_shown(page) == len(report.records)
    expect(page.locator("#previous")).to_be_disabled()
    seen = list(zip(column(page, "suite"), column(page, "model"), ids(page), strict=True))
    while page.locator("#next").is_enabled():
        page.locator("#next").click()
        seen += zip(column(page, "suite"), column(page, "model"), ids(page), strict=True)
    assert len(seen) == len(report.records)
    assert sorted(seen) == sorted((one.suite, one.model or "", one.id) for one in report.records)
    page.locator("#previous").click()
    expect(page.locator("#rows tbody tr")).to_have_count(100)


def test_the_list_begins_with_what_changed_then_with_what_failed(baseline_path: Path, open_report: Opener) -> None:
    page = open_report(baseline_path)
    seen: list[tuple[str, str, str]] = []
    while True:
        changes = [text.partition(" ")[0] for text in column(page, "change")]
        seen += zip(changes, column(page, "status"), ids(page), strict=True)
        if page.locator("#next").is_disabled():
            break
        page.locator("#next").click()

    groups = [
        ["worse", "better"].index(change)
        if change in ("worse", "better")
        else {"unscored": 2, "wrong": 3}.get(status, 4)
        for change, status, _ in seen
    ]
    assert groups == sorted(groups)
    assert set(groups) == {0, 1, 2, 3, 4}
    assert len({id_ for *_, id_ in seen}) == len(seen) == 130


def test_a_sample_without_an_answer_says_so(tmp_path: Path, open_report: Opener) -> None:
    made = list(capitals("model", 41))
    made[3] = replace(made[3], status="wrong", answer=None, output="  ", no_answer=True)
    made[4] = replace(made[4], status="wrong", answer=None, output="Hm.", no_answer=True)
    page = open_report(write_page(assembled(made, (CAPITALS,), ("model",)), tmp_path))
    answers = dict(zip(ids(page), column(page, "answer"), strict=True))
    assert answers["capital-003"] == "empty reply"
    assert answers["capital-004"] == "no answer in the reply"
    assert ids(page)[0] == "capital-039"
    assert answers["capital-039"].startswith("could not be scored: the model raised RequestError")
    page.locator("#search").fill("empty reply")
    assert ids(page) == ["capital-003"]
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("#sample .status")).to_have_text("wrong: empty reply")


# Search and filters


def test_search_in_the_index(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#search").fill("COUNTRY 12")  # questions; whatever the case
    wanted = {12, *range(120, 130)}
    assert {int(one.removeprefix("capital-")) for one in ids(page)} == wanted
    assert num_shown(page) == 2 * len(wanted)
    page.locator("#search").fill("errand-7")
    assert set(ids(page)) == {"errand-7"}
    page.locator("#search").fill("nowhere to be found")
    expect(page.locator("#rows tbody tr")).to_have_count(0)
    expect(page.locator("#count")).to_contain_text("0 of 316 samples")
    page.locator("#search").fill("")
    assert num_shown(page) == 316


def test_search_in_all_texts(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#search").fill("It should go to the door")  # stands in a trace
    expect(page.locator("#rows tbody tr")).to_have_count(0)
    page.locator("#search-texts").click()
    expect(page.locator("#rows tbody tr")).to_have_count(32)
    expect(page.locator("#progress")).to_be_hidden()
    expect(page.locator("#stop")).to_be_hidden()
    assert {one.partition("-")[0] for one in ids(page)} == {"errand"}
    page.locator("#rows tbody tr button").first.click()
    expect(page.locator("#sample mark").first).to_have_text("It should go to the door")
    page.locator("#search").fill("leaves nothing out")  # the reason of a verdict
    page.locator("#search").press("Enter")
    expect(page.locator("#rows tbody tr")).to_have_count(24)


@pytest.mark.parametrize("name", ["suite", "model", "category", "status"])
def test_filters(path: Path, report: Report, open_report: Opener, name: str) -> None:
    page = open_report(path)
    select = page.locator(f"#filter-{name}")
    options = select.locator("option").all_inner_texts()
    assert options[0] == "all"
    counts: dict[str, int] = {}
    for option in options[1:]:
        select.select_option(label=option)
        own = "" if option == "(none)" else option
        counts[own] = num_shown(page)
        assert set(column(page, name)) == ({own} if counts[own] else set())
    wanted: dict[str, int] = {}
    for record in report.records:
        value = getattr(record, name) or ""
        wanted[value] = wanted.get(value, 0) + 1
    assert counts == wanted
    select.select_option("")
    assert num_shown(page) == len(report.records)


def test_filters_hold_at_the_same_time_and_are_reset(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-suite").select_option(label="capitals")
    page.locator("#filter-model").select_option(label="large-model")
    page.locator("#filter-status").select_option(label="wrong")
    page.locator("#filter-category").select_option(label="islands")
    page.locator("#search").fill("country")
    wanted = [one.id for one in capitals("large-model") if one.status == "wrong" and one.category == "islands"]
    assert sorted(ids(page)) == sorted(wanted)
    page.locator("#reset").click()
    assert num_shown(page) == 316
    expect(page.locator("#search")).to_have_value("")
    expect(page.locator("#filter-suite")).to_have_value("")


def test_the_filter_of_changes_against_the_first_model(path: Path, report: Report, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-suite").select_option(label="capitals")
    moved = next(one.movers["accuracy"] for one in report.comparisons if one.suite == "capitals")
    sides = {"worse": moved.num_worse, "better": moved.num_better, "the same": moved.num_same}
    for label, count in {**sides, "only changed": moved.num_worse + moved.num_better}.items():
        page.locator("#filter-change").select_option(label=label)
        assert num_shown(page) == count, label
        assert set(column(page, "model")) == {MODELS[1]}
    assert moved.num_worse
    assert moved.num_better


def test_the_filter_of_changes_against_a_baseline(baseline_path: Path, open_report: Opener) -> None:
    page = open_report(baseline_path)
    before, now = ({one.id: one.status for one in capitals(model)} for model in reversed(MODELS))
    both = [id_ for id_ in before if "unscored" not in (before[id_], now[id_])]
    worse = [id_ for id_ in both if (before[id_], now[id_]) == ("correct", "wrong")]
    page.locator("#filter-change").select_option(label="worse")
    assert sorted(ids(page)) == sorted(worse)
    page.locator("#filter-change").select_option(label="better")
    assert num_shown(page) == sum((before[id_], now[id_]) == ("wrong", "correct") for id_ in both)
    expect(page.locator("#filter-model")).to_be_hidden()  # there is one


def test_the_range_of_a_metric(path: Path, report: Report, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#metric").select_option(label="brier")
    page.locator("#least").fill("0.1")
    page.locator("#most").fill("0.2")
    values = [one.values["brier"] for one in report.records if "brier" in one.values]
    assert num_shown(page) == sum(0.1 <= float(f"{value:.6g}") <= 0.2 for value in values) > 0
    assert all(0.1 <= float(value) <= 0.2 for value in column(page, "metric"))
    page.locator("#most").fill("")
    assert num_shown(page) == sum(float(f"{value:.6g}") >= 0.1 for value in values)


def test_the_filters_of_a_suite_offer_what_it_has(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-suite").select_option(label="capitals")
    page.locator("#least").fill("0.5")
    page.locator("#filter-suite").select_option(label="essays")
    assert page.locator("#metric option:checked").inner_text() != "accuracy"
    expect(page.locator("#least")).to_have_value("")
    assert num_shown(page) == 24
    assert all(column(page, "metric"))
    offered = page.locator("#filter-category option").evaluate_all(
        "options => options.filter(one => !one.hidden).map(one => one.textContent)"
    )
    page.locator("#filter-suite").select_option(label="all")
    everything = page.locator("#filter-category option").evaluate_all(
        "options => options.filter(one => !one.hidden).map(one => one.textContent)"
    )
    assert len(offered) < len(everything)


def test_a_range_that_ends_before_it_begins_is_said(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#least").fill("2")
    page.locator("#most").fill("1")
    expect(page.locator("#message")).to_contain_text("its beginning is above its end")
    page.locator("#most").fill("3")
    expect(page.locator("#message")).to_be_hidden()


def test_samples_are_sorted_by_the_numbers_in_their_names(tmp_path: Path, open_report: Opener) -> None:
    records = [replace(record, id=str(12 - place)) for place, record in enumerate(capitals("small-model", 12))]
    page = open_report(write_page(assembled(records, (CAPITALS,), ("small-model",)), tmp_path))
    page.locator('th button[data-sort="id"]').click()
    assert ids(page) == [str(number) for number in range(1, 13)]


def test_sorting(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-suite").select_option(label="capitals")
    as_they_stand = ids(page)
    page.locator("#metric").select_option(label="brier")
    page.locator('th button[data-sort="metric"]').click()
    rising = [float(value) for value in column(page, "metric")]
    assert rising == sorted(rising)
    expect(page.locator("th.metric")).to_have_attribute("aria-sort", "ascending")
    page.locator('th button[data-sort="metric"]').click()
    falling = [float(value) for value in column(page, "metric")]  # what has no value comes last either way
    assert falling == sorted(falling, reverse=True)
    assert falling[0] > rising[0]
    expect(page.locator("th.metric")).to_have_attribute("aria-sort", "descending")
    page.locator('th button[data-sort="metric"]').click()
    assert ids(page) == as_they_stand
    page.locator('th button[data-sort="id"]').click()
    assert ids(page) == sorted(2 * [one.id for one in capitals("small-model")])[:100]  # of both models


# A sample


def test_an_opened_sample(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    record = next(one for one in capitals("small-model") if one.id == "capital-003")
    page.locator("#rows tbody tr", has_text="capital-003").first.locator("button").click()
    article = page.locator("#sample")
    expect(article).to_be_visible()
    expect(article.locator("h3").first).to_have_text("capital-003")
    expect(field(page, "prompt").first).to_have_text(str(record.prompt))
    expect(field(page, "expected").first).to_have_text(str(record.target))
    expect(field(page, "answer").first).to_have_text(str(record.answer))
    probabilities = record.details["probabilities"]
    assert isinstance(probabilities, list)
    options = field(page, "options").first.locator("tr")
    for place, (choice, probability) in enumerate(zip(record.choices, probabilities, strict=True)):
        expect(options.nth(place)).to_contain_text(choice)
        expect(options.nth(place)).to_contain_text(f"{probability:.3f}")
    expect(page.locator('#rows tr[aria-current="true"]')).to_have_count(1)
    page.locator("#close").click()
    expect(article).to_be_hidden()
    expect(page.locator('#rows tr[aria-current="true"]')).to_have_count(0)


def test_models_stand_side_by_side(path: Path, open_report: Opener) -> None:
    page = open_report(path, SAMPLE_LINK)
    models = page.locator("#sample .model")
    expect(models).to_have_count(2)
    expect(models.nth(0).locator("h3")).to_have_text("small-model")
    expect(models.nth(1).locator("h3")).to_have_text("large-model")
    first, second = models.nth(0).bounding_box(), models.nth(1).bounding_box()
    assert first is not None
    assert second is not None
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]
    expect(field(page, "prompt")).to_have_count(1)  # what they have in common stands once


def test_what_judges_and_agents_left(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#sample=essay-2&of=essays&by=large-model")
    expect(field(page, "verdict 1 of 4").first).to_contain_text("polite")
    expect(field(page, "verdict 1 of 4").first).to_contain_text("It says please.")
    expect(field(page, "output").first).to_contain_text("Paragraph 3 about subject 2, by small-model.")
    page = open_report(path, "#sample=errand-5&of=errands&by=small-model")
    expect(page.locator('#sample .model:first-child [data-field^="output "]')).to_have_count(4)
    expect(page.locator('#sample [data-field^="step 3 of 3"]').first).to_contain_text("door 5")
    expect(field(page, "relevant").first).to_contain_text("map-of-doors")
    expect(page.locator("#sample")).to_contain_text("<went> there & back")


def test_an_unscored_sample_says_why(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#status=unscored")
    assert set(ids(page)) == {"capital-039", "capital-079", "capital-119"}
    page.locator("#rows tbody tr button").first.click()
    expect(field(page, "reason").first).to_contain_text("9 tokens too many")


# Keys


def focused(page: Any) -> str:
    found: str = page.evaluate("() => document.activeElement.id || document.activeElement.tagName.toLowerCase()")
    return found


def opened(page: Any) -> str:
    text: str = page.locator("#sample h3").first.inner_text()
    return text


def test_keys(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    keyboard = page.keyboard
    order = ids(page)
    keyboard.press("j")
    expect(page.locator("#sample")).to_be_visible()
    assert opened(page) == order[0]
    for _ in range(3):
        keyboard.press("j")
    expect(page.locator("#sample h3").first).to_have_text(order[3])
    keyboard.press("k")
    expect(page.locator("#sample h3").first).to_have_text(order[2])
    keyboard.press("Escape")
    expect(page.locator("#sample")).to_be_hidden()
    keyboard.press("/")
    assert focused(page) == "search"
    keyboard.type("jk/ door")  # letters in a field are text
    expect(page.locator("#search")).to_have_value("jk/ door")
    expect(page.locator("#sample")).to_be_hidden()
    page.locator("#search").fill(f" {order[4]} ")  # spaces around it are no part of what is searched
    keyboard.press("Escape")  # leaves the field, and what was found stays
    assert focused(page) != "search"
    assert ids(page) == [order[4]] * 2
    keyboard.press("j")
    expect(page.locator("#sample h3").first).to_have_text(order[4])


def test_j_goes_on_to_the_next_page(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#rows tbody tr button").last.click()
    expect(page.locator("#sample")).to_be_visible()
    last = page.locator('#rows tr[aria-current="true"]').get_attribute("data-place")
    page.keyboard.press("j")
    expect(page.locator("#count")).to_contain_text("101 to 200")
    expect(page.locator("#rows tbody tr").first).to_have_attribute("aria-current", "true")
    page.keyboard.press("k")
    expect(page.locator("#count")).to_contain_text("1 to 100")
    assert page.locator('#rows tr[aria-current="true"]').get_attribute("data-place") == last


def test_buttons_lead_to_the_next_and_the_previous_sample(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#suite=errands&model=small-model")
    order = ids(page)
    page.locator("#rows tbody tr button").first.click()
    expect(page.locator("#sample-previous")).to_be_disabled()
    page.locator("#sample-next").press("Enter")
    expect(page.locator("#sample h3").first).to_have_text(order[1])
    expect(page.locator("#sample-next")).to_be_focused()
    page.locator("#sample-previous").click()
    expect(page.locator("#sample h3").first).to_have_text(order[0])
    page.goto(f"{path.as_uri()}#suite=errands&model=small-model&sample={order[-1]}")
    expect(page.locator("#sample-next")).to_be_disabled()
    page.locator('th button[data-sort="id"]').click()
    page.locator('th button[data-sort="id"]').click()  # falling: the last is the first
    expect(page.locator("#sample-previous")).to_be_disabled()
    expect(page.locator("#sample-next")).to_be_enabled()


def test_keys_can_be_turned_off(path: Path, open_report: Opener) -> None:
    """WCAG 2.1.4: shortcuts of single letters."""
    page = open_report(path)
    page.locator("#use-keys").uncheck()
    page.locator("#use-keys").blur()
    page.keyboard.press("j")
    page.keyboard.press("/")
    expect(page.locator("#sample")).to_be_hidden()
    assert focused(page) != "search"


def test_all_is_reached_by_tab_in_the_order_of_the_page(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    page.keyboard.press("Enter")
    stops: list[str] = []
    for _ in range(30):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("() => document.activeElement.id || document.activeElement.dataset.sort || ''"))
    filters = ["filter-suite", "filter-model", "filter-category", "filter-status", "filter-change"]
    wanted = ["search", "search-texts", *filters, "metric", "least", "most", "reset", "use-keys", "next", "id", "suite"]
    assert [stop for stop in stops if stop in wanted][: len(wanted)] == wanted


def test_a_sample_is_opened_and_closed_by_keys_alone(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#rows tbody tr button").nth(4).focus()
    name = ids(page)[4]
    page.keyboard.press("Enter")
    expect(page.locator("#sample h3").first).to_have_text(name)
    expect(page.locator("#sample")).to_be_focused()
    for stop in ("sample-previous", "sample-next", "close"):
        page.keyboard.press("Tab")
        assert focused(page) == stop
    page.keyboard.press("Enter")
    expect(page.locator("#sample")).to_be_hidden()
    expect(page.locator("#rows tbody tr button").nth(4)).to_be_focused()  # where the reader came from


# Links


def test_a_link_leads_back(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-suite").select_option(label="capitals")
    page.locator("#filter-status").select_option(label="wrong")
    page.locator("#metric").select_option(label="brier")
    page.locator("#least").fill("0.2")
    page.locator("#search").fill("country")
    page.locator('th button[data-sort="metric"]').click()
    page.locator('th button[data-sort="metric"]').click()
    page.locator("#rows tbody tr button").nth(2).click()
    expect(page.locator("#sample")).to_be_visible()
    wait_for_address(page, "sample=")
    shown = (ids(page), opened(page), page.locator("#count").inner_text(), column(page, "metric"))
    fragment = "#" + page.url.partition("#")[2]
    assert parse_qs(fragment[1:])["status"] == ["wrong"]
    other = open_report(path, fragment)
    expect(other.locator("#sample")).to_be_visible()
    assert (ids(other), opened(other), other.locator("#count").inner_text(), column(other, "metric")) == shown
    for name, value in {"#search": "country", "#least": "0.2"}.items():
        expect(other.locator(name)).to_have_value(value)
    assert other.locator("#filter-status option:checked").inner_text() == "wrong"


def test_back_leads_to_the_list_that_a_sample_was_opened_from(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#filter-status").select_option(label="wrong")
    before = ids(page)
    page.locator("#rows tbody tr button").nth(1).click()
    expect(page.locator("#sample")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#sample h3").first).to_have_text(before[2])
    wait_for_address(page, f"sample={before[2]}")
    page.go_back()
    expect(page.locator("#sample")).to_be_hidden()
    expect(page.locator("#filter-status option:checked")).to_have_text("wrong")
    assert ids(page) == before
    page.go_forward()
    expect(page.locator("#sample h3").first).to_have_text(before[2])


def test_back_from_a_sample_to_the_page_as_it_was_opened(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.keyboard.press("j")
    expect(page.locator("#sample")).to_be_visible()
    page.go_back()
    expect(page.locator("#sample")).to_be_hidden()
    assert num_shown(page) == 316


def test_tables_lead_to_the_samples_that_they_tell_of(baseline_path: Path, open_report: Opener) -> None:
    page = open_report(baseline_path)
    page.locator("#gates a").first.click()
    expect(page.locator("#filter-change option:checked")).to_have_text("worse")
    assert num_shown(page) > 0
    open_details(page)
    link = page.locator("#changes td a").last
    name = link.inner_text()
    link.click()
    expect(page.locator("#sample h3").first).to_have_text(name)
    expect(page.locator("#sample")).to_be_focused()
    page.keyboard.press("Escape")
    page.locator("#changes").scroll_into_view_if_needed()
    link.click()  # again
    expect(page.locator("#sample h3").first).to_have_text(name)
    page.go_back()
    expect(page.locator("#sample")).to_be_hidden()


def test_a_link_of_changes_shows_their_filter_where_nothing_changed(tmp_path: Path, open_report: Opener) -> None:
    alone = assembled([*capitals("model", 9)], (CAPITALS,), ("model",))
    page = open_report(write_page(alone, tmp_path), "#change=worse")
    assert num_shown(page) == 0
    page.locator("#filter-change").select_option(label="all")
    assert num_shown(page) == 9


def test_closing_a_sample_leaves_nothing_for_back_to_pass(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#status=wrong")
    before = page.evaluate("history.length")
    for place in range(3):
        page.locator("#rows tbody tr button").nth(place).click()
        expect(page.locator("#sample")).to_be_visible()
        wait_for_address(page, "sample=")
        page.keyboard.press("Escape")
        expect(page.locator("#sample")).to_be_hidden()
        page.wait_for_url(lambda url: "sample=" not in url)
    assert page.evaluate("history.length") == before + 1  # the one that Forward leads to
    assert set(column(page, "status")) == {"wrong"}


def test_filters_that_were_set_beside_an_open_sample_stay_when_it_is_closed(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#rows tbody tr button").first.click()
    wait_for_address(page, "sample=")
    page.locator("#filter-status").select_option(label="correct")
    page.locator("#close").click()
    wait_for_address(page, "status=correct")
    page.wait_for_url(lambda url: "sample=" not in url)
    assert set(column(page, "status")) == {"correct"}


def test_back_leads_to_what_was_found_in_texts(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#search").fill("It should go to the door")
    wait_for_address(page, "q=")  # what is typed is in it a moment later: the key is to change it once more
    page.locator("#search").press("Enter")
    expect(page.locator("#count")).to_contain_text("32 of 316")
    page.locator("#rows tbody tr button").first.click()
    wait_for_address(page, "sample=")
    page.go_back()
    expect(page.locator("#sample")).to_be_hidden()
    expect(page.locator("#count")).to_contain_text("32 of 316")


def test_a_message_goes_with_what_it_was_about(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#suite=nowhere")
    expect(page.locator("#message")).to_contain_text("There is no suite nowhere")
    page.goto(path.as_uri() + "#suite=essays")
    expect(page.locator("#message")).to_be_hidden()
    page.goto(path.as_uri() + "#least=2&most=1")
    expect(page.locator("#message")).to_contain_text("its beginning is above its end")


def test_a_link_to_what_was_found_in_texts(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#q=It+should+go+to+the+door&texts=1")
    expect(page.locator("#rows tbody tr")).to_have_count(32)


def test_a_link_to_a_page_of_rows(path: Path, open_report: Opener) -> None:
    page = open_report(path)
    page.locator("#next").click()
    wait_for_address(page, "page=2")
    other = open_report(path, "#" + page.url.partition("#")[2])
    assert ids(other) == ids(page)


def test_another_address_in_the_same_page(path: Path, open_report: Opener) -> None:
    page = open_report(path, "#status=wrong")
    assert set(column(page, "status")) == {"wrong"}
    page.goto(path.as_uri() + "#status=correct")
    expect(page.locator("#filter-status option:checked")).to_have_text("correct")
    assert set(column(page, "status")) == {"correct"}


@pytest.mark.parametrize(
    "fragment",
    [
        "#sample=nowhere&of=capitals",
        "#suite=nowhere&status=nowhere&change=nowhere&metric=nowhere&sort=nowhere&page=-7&least=x",
        "#page=9999999999&sort=-constructor&change=__proto__&metric=__proto__",
        "#q=%&status=%zz&x=%E0%A4%A",
        "#=&=&&&===",
        "#nowhere",
        "#%00",
    ],
)
def test_a_link_that_leads_nowhere(path: Path, open_report: Opener, fragment: str) -> None:
    page = open_report(path, fragment)
    expect(page.locator("#sample")).to_be_hidden()
    expect(page.locator("#controls")).to_be_visible()
    if "sample=" in fragment:
        expect(page.locator("#message")).to_contain_text("nowhere")
    page.locator("#reset").click()
    expect(page.locator("#rows tbody tr")).to_have_count(100)


# Where it is read


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(path: Path, open_report: Opener, scheme: str) -> None:
    page = open_report(path, color_scheme=scheme)
    found = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", found)[:3])) / 3
    assert brightness > 200 if scheme == "light" else brightness < 60


COLOURS_OF_FIGURES = """() => Array.from(document.querySelectorAll("figure svg"), (svg) => Array.from(
    svg.querySelectorAll("text, path"), (one) => {
        const style = getComputedStyle(one);
        return [one.localName, one.localName === "text" ? style.fill : style.stroke, one.textContent];
    },
)).flat()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_can_be_read_in_light_and_dark(path: Path, open_report: Opener, scheme: str) -> None:
    """Axe leaves out what stands in an SVG. 4.5 and 3 are what WCAG AA asks of texts and of graphics; what lies behind
    the data stays behind.
    """
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    page = open_report(path, color_scheme=scheme)
    paper = luminance(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    grids = []
    for name, colour, text in page.evaluate(COLOURS_OF_FIGURES):
        if colour == "none":
            continue
        lighter, darker = sorted((luminance(colour), paper), reverse=True)
        contrast = (lighter + 0.05) / (darker + 0.05)
        if name == "text":
            assert contrast >= 4.5, (colour, text)
        elif contrast < 3:
            grids.append(contrast)
    assert grids
    assert max(grids) < 2


def luminance(colour: str) -> float:
    """WCAG's relative luminance of ``rgb(…)``."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_are_whole_in_a_narrow_window(path: Path, open_report: Opener) -> None:
    page = open_report(path, width=400)
    for selector, word in (("#gates tbody td", "capitals"), ("#suites tbody th", "capitals")):
        cell = page.locator(selector).filter(has_text=word).first
        num_lines = cell.evaluate(
            "(cell, word) => {"
            " const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);"
            " const range = document.createRange();"
            " const node = texts.nextNode();"
            " const start = node.data.indexOf(word);"
            " range.setStart(node, start); range.setEnd(node, start + word.length);"
            " return range.getClientRects().length; }",
            word,
        )
        assert num_lines == 1


@pytest.mark.parametrize("fragment", ["", SAMPLE_LINK, "#sample=errand-5&of=errands&by=small-model"])
def test_a_narrow_window_scrolls_down_only(path: Path, open_report: Opener, fragment: str) -> None:
    page = open_report(path, fragment, width=400)
    if fragment:
        expect(page.locator("#sample")).to_be_visible()
    open_details(page)
    widths = page.evaluate("() => [document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(widths) <= 400


def test_print(path: Path, open_report: Opener) -> None:
    for fragment in ("", SAMPLE_LINK):
        page = open_report(path, fragment)
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert len(printed) > 20_000
        page.emulate_media(media="print")
        expect(page.locator("#controls")).to_be_hidden()
        expect(page.locator("#suites")).to_be_visible()


def test_no_column_is_cut_off_on_paper(path: Path, baseline_path: Path, open_report: Opener) -> None:
    for one in (path, baseline_path):
        page = open_report(one, width=700)  # that of A4 between its margins
        page.emulate_media(media="print")
        cut = page.locator("table").evaluate_all(
            "tables => tables.filter(one => one.getBoundingClientRect().right > innerWidth)"
            ".map(one => one.id || one.parentElement.ariaLabel)"
        )
        assert cut == []


def test_without_javascript_all_tables_are_there(path: Path, report: Report, open_report: Opener) -> None:
    page = open_report(path, javascript=False)
    for name in ("gates", "suites", "changes", "calibration", "price", "environment"):
        expect(page.locator(f"#{name} table").first).to_be_attached()
    assert page.locator("#suites table").first.locator("tbody tr").count() >= 2
    expect(page.locator("#controls")).to_be_hidden()
    expect(page.locator("#browser")).to_be_hidden()
    expect(page.locator("noscript p")).to_contain_text(str(len(report.records)))


def test_a_page_that_was_cut_off_says_so(path: Path, tmp_path: Path, open_report: Opener) -> None:
    """But not one that is whole where its style is blocked, or in a browser that does not know ``:has()``."""
    text = re.sub("<meta http-equiv=[^>]*>", "", path.read_text(encoding="utf-8"))  # the policy, for other styles
    style = re.compile(r"<style>.*?</style>", re.DOTALL)
    assert ":has(#end)" in text
    for name, content, is_shown in (
        ("whole", text, False),
        ("cut", text[: text.index('<section id="environment">')], True),
        ("without style", style.sub("", text), False),
        ("without :has()", text.replace(":has(#end)", ":unknown(#end)"), False),
    ):
        (tmp_path / f"{name}.html").write_text(content, encoding="utf-8")
        page = open_report(tmp_path / f"{name}.html", javascript=False)
        notice = page.locator("#incomplete")
        expect(notice).to_be_visible() if is_shown else expect(notice).to_be_hidden()


def test_a_browser_that_is_too_old_says_so(path: Path, open_report: Opener) -> None:
    page = open_report(path, init_script="delete window.DecompressionStream;")
    expect(page.locator("#message")).to_be_visible()
    expect(page.locator("#message")).to_contain_text("DecompressionStream")
    expect(page.locator("#browser")).to_be_hidden()
    expect(page.locator("#suites table").first).to_be_visible()


def test_no_samples(tmp_path: Path, open_report: Opener) -> None:
    records: list[Record] = []
    page = open_report(write_page(assembled(records, (CAPITALS,), ("model",)), tmp_path))
    expect(page.locator("#message")).to_contain_text("no samples")


def test_one_sample(tmp_path: Path, open_report: Opener) -> None:
    records = list(capitals("model", 1))
    page = open_report(write_page(assembled(records, (CAPITALS,), ("model",)), tmp_path))
    expect(page.locator("#count")).to_have_text("1 sample")
    page.keyboard.press("j")
    expect(page.locator("#sample h3").first).to_have_text("capital-000")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("#sample h3").first).to_have_text("capital-000")


# For everybody


def violations(page: Any) -> list[str]:
    """What axe finds against WCAG 2.2 AA: rule, element and why."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    options = {"runOnly": {"type": "tag", "values": WCAG_AA}, "resultTypes": ["violations"]}
    found: list[Mapping[str, Any]] = axe.Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {node['target']} {json.dumps(node['failureSummary'])}" for one in found for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize(
    "fragment",
    [
        "#status=unscored",  # few rows: axe looks at the colours of each element, for seconds
        "#status=unscored&sample=capital-039&of=capitals&by=small-model",
        "#suite=capitals&q=country+7&sample=capital-007&of=capitals&by=small-model",
        "#q=errand-5&sample=errand-5&of=errands&by=small-model",
        "#q=essay-3&sample=essay-3&of=essays&by=large-model",
    ],
    ids=["list", "unscored", "options", "agent", "judged"],
)
def test_everybody_can_use_it(path: Path, open_report: Opener, scheme: str, width: int, fragment: str) -> None:
    page = open_report(path, fragment, color_scheme=scheme, width=width)
    if "sample=" in fragment:
        expect(page.locator("#sample")).to_be_visible()
    open_details(page)
    # To axe, a row that has scrolled half under the headings of the list is a target that is too small.
    page.locator("#browser .list .scroll").evaluate("one => { one.scrollTop = 0; }")
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_one_against_a_baseline(baseline_path: Path, open_report: Opener, scheme: str) -> None:
    page = open_report(baseline_path, "#change=changed&q=country+7", color_scheme=scheme)
    assert violations(page) == []
