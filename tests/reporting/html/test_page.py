"""The page as a file: its policy, what stands in it without a script; texts of a report are no more than text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from pytest_llmeval.reporting.report.report import GateResult, Report
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from pytest_llmeval.text.escaping import printable
from tests.reporting.html.pages import page_of
from tests.reporting.reports import make_record, make_report, reports

HOSTILE = "</script><script>window.__ran = true</script><img src=x onerror=alert(1)>{{ 7 * 7 }}\x1b[31m\u202e\ud800"


def hostile_report() -> Report:
    record = make_record(
        suite=HOSTILE,
        id_=HOSTILE,
        model=HOSTILE,
        category=HOSTILE,
        status="unscored",
        reason=HOSTILE,
        question=HOSTILE,
        prompt=HOSTILE,
        choices=(HOSTILE, "b"),
        target=HOSTILE,
        output=HOSTILE,
        answer=HOSTILE,
        values={HOSTILE: 1.0},
        details={HOSTILE: HOSTILE, "trace": [HOSTILE], "verdicts": [{"value": HOSTILE, "reasons": HOSTILE}]},
    )
    other = replace(record, id=HOSTILE + "2", category="other", status="correct", reason=None)
    gate = GateResult(
        name=HOSTILE,
        kind="threshold",
        origin="option",
        outcome="failed",
        reason=HOSTILE,
        suite=HOSTILE,
        notes=(HOSTILE,),
    )
    return make_report(
        [record, other],
        models=({"name": HOSTILE, "details": {HOSTILE: HOSTILE}},),
        options={HOSTILE: HOSTILE},
        environment={HOSTILE: {HOSTILE: HOSTILE}},
        problems=(HOSTILE,),
        stopped=HOSTILE,
        gates=(gate,),
    )


def test_the_policy_comes_first_and_allows_the_one_script_and_style(tmp_path: Path) -> None:
    page = page_of(make_report([make_record()]), tmp_path)
    first = next(one for one in page.elements if one.tag not in ("html", "head"))
    assert first.attributes["http-equiv"] == "Content-Security-Policy"
    policy = dict(part.split(" ", 1) for part in str(first.attributes["content"]).split("; "))
    (script,) = [one for one in page.all("script") if one.attributes.get("type") is None]
    (style,) = page.all("style")
    for name, element in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert policy.pop(name) == f"'sha256-{digest}'"
    assert policy == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_nothing_is_loaded_and_nothing_is_inline(tmp_path: Path) -> None:
    page = page_of(hostile_report(), tmp_path)
    names = {name for one in page.elements for name in one.attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "src", "srcset", "action")]
    assert all(str(one.attributes["href"]).startswith("#") for one in page.all("a"))
    assert not page.all("link")
    assert not page.all("img")


def test_hostile_texts_are_text(tmp_path: Path) -> None:
    calm = page_of(make_report([make_record()]), tmp_path)
    page = page_of(hostile_report(), tmp_path)
    kinds = {one.attributes.get("type") for one in page.all("script")}
    assert kinds == {None, "text/plain"}
    assert [one.text for one in page.all("script") if one.attributes.get("type") is None] == [
        one.text for one in calm.all("script") if one.attributes.get("type") is None
    ]
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\ud800", "\\ud800")
    assert page.text.count(shown) > 10
    assert "49" not in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.source)


@given(reports)
@settings(max_examples=30, deadline=None)
def test_any_report_becomes_a_page(tmp_path_factory: pytest.TempPathFactory, report: Report) -> None:
    page = page_of(report, tmp_path_factory.mktemp("page"))
    assert sorted(row["id"] for row in page.samples) == sorted(printable(record.id) for record in report.records)


def test_the_same_report_gives_the_same_page(tmp_path: Path) -> None:
    report = make_report([make_record(id_=f"s{number}") for number in range(5)])
    assert page_of(report, tmp_path).source == page_of(report, tmp_path).source


def test_a_report_from_disk_gives_the_same_page(tmp_path: Path) -> None:
    report = make_report([make_record(id_=f"s{number}", output="text") for number in range(5)])
    write_report(report, tmp_path / "r.json")
    assert page_of(read_report(tmp_path / "r.json"), tmp_path).source == page_of(report, tmp_path).source


def test_the_verdict_says_what_a_reader_has_to_know_first(tmp_path: Path) -> None:
    def verdict(**values: object) -> tuple[str, str | None]:
        found = page_of(make_report([make_record()], **values), tmp_path).by_id("verdict")
        return found.text, found.attributes["class"]

    gate = GateResult(name="accuracy > 0.5", kind="threshold", origin="option", outcome="passed", reason="found")
    failed, skipped = replace(gate, outcome="failed"), replace(gate, outcome="skipped")
    assert verdict() == ("No gates: nothing was decided", "verdict ")
    assert verdict(gates=(gate,)) == ("1 gate passed", "verdict good")
    assert verdict(gates=(gate, skipped)) == ("1 gate passed, 1 skipped", "verdict good")
    assert verdict(gates=(gate, failed)) == ("1 of 2 gates failed", "verdict bad")
    assert verdict(gates=(skipped,)) == ("1 gate skipped", "verdict ")
    assert verdict(stopped="Ctrl-C") == ("Stopped early", "verdict bad")
    assert verdict(gates=(gate,), exit_code=3) == ("1 gate passed; the run failed with exit code 3", "verdict bad")
    assert verdict(exit_code=1) == ("The run failed with exit code 1", "verdict bad")
    assert verdict(gates=(gate,), problems=("a worker died",)) == ("1 gate passed; 1 problem", "verdict bad")
    assert verdict(num_failed_tests=2, exit_code=1) == ("2 tests failed beside the samples", "verdict bad")
    unscored = page_of(make_report([make_record(status="unscored", reason="boom")]), tmp_path)
    assert unscored.by_id("verdict").text == "1 of 1 sample could not be scored"


def test_tables_are_there_without_a_script(tmp_path: Path) -> None:
    records = [make_record(id_=f"s{number}", category=f"c{number % 2}") for number in range(8)]
    page = page_of(make_report(records, problems=("a worker died",)), tmp_path)
    cells = [one.text for one in page.elements if one.tag in ("td", "th")]
    assert {"suite", "fake"} <= {*cells}
    for text in ("sums", "accuracy, n 8", "c0", "c1"):
        assert text in page.text
    assert "a worker died" in page.text
    assert [one.attributes.get("id") for one in page.all("section")] == ["suites", "problems", "samples", "environment"]
