"""Markdown reports: what they hold, and that no text of a model becomes more than text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Averages, Comparison, Report
from pytest_llmeval.reporting.writers.markdown import markdown_summary, write_markdown
from pytest_llmeval.scoring.metrics.summary import Metric, Percentiles
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.text.escaping import markdown_text, printable
from tests.reporting.made_reports import HOSTILE, gate, hostile_report, metric, record, report, suite_report, summary

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
"""GitHub's dialect as far as the library has it."""


def inner(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from [token] if token.children is None else token.children


def text_of(tokens: list[Token]) -> str:
    return "".join(token.content for token in tokens).replace("\u200b", "")


def written(of: Report, tmp_path: Path) -> str:
    path = tmp_path / "report.md"
    write_markdown(of, path)
    return path.read_bytes().decode("utf-8")


def tables(markdown: str) -> list[list[list[str]]]:
    """Every table of the document: its rows of cells as they are read."""
    found: list[list[list[str]]] = []
    is_cell = False
    for token in GITHUB.parse(markdown):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and is_cell:
            found[-1][-1].append(text_of(token.children or []))
        is_cell = token.type in ("th_open", "td_open")
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    (_, row), *_ = tables(f"| a | b |\n| --- | --- |\n| {markdown_text(text)} | end |\n")
    assert row == [printable(text).strip(), "end"]


@given(st.text(st.characters(exclude_categories=[])) | st.text("|\\`*_[]()<>&#!~@:/wGH-0123 \n\u200b", max_size=40))
def test_any_text_is_a_text_in_a_cell(text: str) -> None:
    tokens = GITHUB.parse(f"| a | b |\n| --- | --- |\n| {markdown_text(text)} | end |\n")
    assert {token.type for token in inner(tokens)} <= {
        *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close"),
        *("tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close", "text", "text_special", "inline"),
    }
    cells = [token for token in tokens if token.type == "inline"]
    assert len(cells) == 4
    shown = "".join(token.content for token in cells[2].children or [])
    assert shown.replace("\u200b", "").strip() == printable(text).replace("\u200b", "").strip()
    # What GitHub looks for in the rendered text.
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.", shown, re.IGNORECASE)


@pytest.mark.parametrize("line", ["# Report: {}", "Description: {}", "- problem: {}", "Counts: {}"])
@given(text=st.text(st.characters(exclude_categories=[])) | st.text("|\\`*_[]()<>&#!~@:/ab1= \n", max_size=40))
def test_any_text_is_a_text_in_a_line(line: str, text: str) -> None:
    shape = [token.type for token in GITHUB.parse(f"before\n\n{line.format('text')}\n\nafter\n")]
    tokens = GITHUB.parse(f"before\n\n{line.format(markdown_text(text))}\n\nafter\n")
    assert [token.type for token in tokens] == shape
    (found,) = [token for token in tokens if token.type == "inline" and token.content not in ("before", "after")]
    assert not [token.tag for token in found.children or [] if token.tag]


@given(st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=4, unique=True))
def test_hostile_texts_make_no_element(texts: list[str]) -> None:
    harmless = markdown_summary(hostile_report([f"text{place}" for place, _ in enumerate(texts)]))
    tokens, expected = GITHUB.parse(markdown_summary(hostile_report(texts))), GITHUB.parse(harmless)
    assert [token.type for token in tokens if token.type != "inline"] == [
        token.type for token in expected if token.type != "inline"
    ]
    assert {token.type for token in inner(tokens) if not token.tag} <= {"text", "text_special"}


def test_a_hostile_report_has_the_shape_of_a_harmless_one(tmp_path: Path) -> None:
    shown = written(hostile_report(), tmp_path)
    harmless = written(hostile_report([f"text{place}" for place, _ in enumerate(HOSTILE)]), tmp_path)
    assert [len(table) for table in tables(shown)] == [len(table) for table in tables(harmless)]
    for table in tables(shown):
        assert len({len(row) for row in table}) == 1
    assert {token.type for token in inner(GITHUB.parse(shown)) if not token.tag} <= {"text", "text_special"}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028]", shown)


SUITES = [
    replace(
        suite_report("boolq"),
        summary=summary(
            {"accuracy": metric(0.75), "brier": metric(0.2), "correct": Metric(value=3, n=4, kind="count")}
        ),
        categories={"north": summary({"accuracy": metric(0.5)}, 2), "south": summary({"accuracy": metric(1.0)}, 2)},
        macro={"accuracy": metric(0.75, 2)},
        latency=Percentiles(n=4, mean=0.0013, p50=0.0011, p95=0.002, p99=0.0024),
        num_tokens=4,
    ),
    suite_report("books"),
]


def of_two_suites(**values: object) -> Report:
    records = [
        record(
            "q1",
            category="north",
            values={"accuracy": 1.0, "brier": 0.03125, "accuracy_sum": 1.0, "yes_predicted": 1.0},
        ),
        record("b1", suite="books", answer=None, values={"loglikelihood": -12.3456}, status="scored", target=None),
        record("q2", category="south", status="wrong", answer=None, no_answer=True, target=["no", "nope"]),
        record("q3", status="unscored", answer=None, reason="the model raised: no", values={}),
    ]
    return report(SUITES, records, **values)


def test_every_questions_scores(tmp_path: Path) -> None:
    shown = tables(written(of_two_suites(), tmp_path))
    assert shown[3] == [
        ["id", "category", "status", "answer", "expected", "accuracy", "brier"],
        ["q1", "north", "correct", "yes", "yes", "1", "0.03125"],
        ["q2", "south", "wrong", "no answer", "no | nope", "1", ""],
        ["q3", "", "unscored", "could not be scored: the model raised: no", "yes", "", ""],
    ]
    assert shown[4][1] == ["b1", "", "scored", "", "", "-12.35"]


def test_the_parts_of_a_report(tmp_path: Path) -> None:
    averages = (
        Averages(
            model=None,
            macro={"accuracy": metric(0.79, 2)},
            micro={"accuracy": metric(0.783, 8)},
        ),
    )
    shown = written(of_two_suites(gates=(gate("passed"), gate()), problems=("odd",), averages=averages), tmp_path)
    assert [line for line in shown.splitlines() if line.startswith("#")] == [
        "# LLM evaluation: gpt2 (cpu, float32)",
        "## Gates",
        "## Problems",
        "## Could not be scored: 1",
        "## Suites",
        "## Figures",
        "## Suite boolq",
        "## Suite books",
        "## Time",
    ]
    lines = shown.splitlines()
    assert "gates: 1 failed, 1 passed" in lines
    assert "| failed | boolq | accuracy >= 0.6 | accuracy is 0.550, n 200 |" in lines
    assert "- macro average over suites: accuracy 0.790 [0.690, 0.890]" in lines
    assert "- micro average over suites: accuracy 0.783 [0.683, 0.883]" in lines
    assert "| boolq | 4 | 0.750 [0.650, 0.850] | 0.200 [0.100, 0.300] |" in lines
    assert "| north | 2 | 0.500 [0.400, 0.600] (n 4) |" in lines
    assert "Macro average over categories: accuracy 0.750 [0.650, 0.850]" in lines
    assert "Counts: correct 3" in lines
    assert "| boolq | 4 | 1.30 ms | 1.10 ms | 2.00 ms | 2.40 ms |  |  |  |  |" in lines
    assert "\n\n\n" not in shown


def test_the_summary_has_no_questions() -> None:
    shown = markdown_summary(of_two_suites())
    assert "q1" not in shown
    assert "| suites/boolq.yaml::q3 | the model raised: no |" in shown
    assert "| north | 2 |" in shown


def test_several_models_have_tables_of_their_own(tmp_path: Path) -> None:
    suites = [suite_report(models=("a/one",)), suite_report(models=("b/two",))]
    records = [record("q1", model="a/one", answer="yes"), record("q1", model="b/two", answer="no")]
    models = ("a/one", "b/two")
    made = report(suites, records, models=tuple({"name": name} for name in models), options={"model": list(models)})
    shown = written(made, tmp_path)
    assert "# LLM evaluation: a/one; b/two" in shown
    one, two = shown.split("## Suite boolq (one)")[1].split("## Suite boolq (two)")
    assert "| q1 |  | correct | yes | yes | 1 |" in one
    assert "| q1 |  | correct | no | yes | 1 |" in two


def test_p_is_announced_where_a_cell_has_one() -> None:
    found = Difference(n=4, kind="mean", first=0.5, second=0.75, difference=0.25)
    for metrics, is_announced in (
        ({"accuracy": replace(found, p_value=0.25)}, True),
        ({"accuracy": found}, False),
        ({"accuracy": found, "f1": replace(found, p_value=0.25)}, False),
    ):
        compared = Comparison(suite="a", first="demo", second="other", differences=metrics)
        text = markdown_summary(report([], [], comparisons=(compared,)))
        assert "both scored: value (difference [95% interval]" in text
        assert ("two-sided p" in text) is is_announced
        assert (", p 0.250" in text) is is_announced


def test_records_are_read_once(tmp_path: Path) -> None:
    class Once(tuple[Record, ...]):
        num_reads = 0

        def __iter__(self) -> Iterator[Record]:
            self.num_reads += 1
            return super().__iter__()

    records = Once([record("q1"), record("q2")])
    written(replace(report(), records=records), tmp_path)
    assert records.num_reads == 1


def test_long_answers_are_cut(tmp_path: Path) -> None:
    shown = written(report(records=[record(answer="x" * 301)]), tmp_path)
    assert f"| {'x' * 299}… |" in shown


def test_emoji_codes_stay_codes_and_times_stay_whole() -> None:
    assert markdown_text("a :+1: :tada: :100:") == "a :&#8203;+1: :&#8203;tada: :&#8203;100:"
    assert markdown_text("2026-11-22T00:30:15+00:00") == "2026-11-22T00:30:15+00:00"


def test_the_time_is_a_part_of_the_whole_report_alone(tmp_path: Path) -> None:
    assert "## Time" in written(of_two_suites(), tmp_path)
    assert "## Time" not in markdown_summary(of_two_suites())


def test_what_was_made_when_begins_no_list() -> None:
    assert "\nStarted 1. x, 12.3 s, exit code 0\n" in markdown_summary(report(created="1. x"))


def test_a_number_that_was_lost_is_an_empty_cell(tmp_path: Path) -> None:
    shown = written(report(records=[record(values={"accuracy": float("nan")})]), tmp_path)
    assert "nan" not in shown
