"""The numbers of suites and categories in a terminal, from summaries alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Summary
from pytest_llmeval.reporting.report.summaries import summarize_suite
from pytest_llmeval.reporting.tables.cells import Table
from pytest_llmeval.reporting.tables.suites import MetricRow, Section
from pytest_llmeval.reporting.writers.text_layout import joined_lines, table_lines, wrapped_lines
from pytest_llmeval.reporting.writers.text_report import category_lines, common_layout, suite_lines
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.types import Status


def summary(metrics: Mapping[str, float | Metric], num_scored: int = 200, num_expected: int | None = None) -> Summary:
    expected = num_scored if num_expected is None else num_expected
    return Summary(
        num_expected=expected,
        num_scored=num_scored,
        num_unscored=expected - num_scored,
        num_no_answer=0,
        metrics={
            name: value
            if isinstance(value, Metric)
            else Metric(value=value, n=num_scored, kind="mean", ci_low=value - 0.1, ci_high=value + 0.1)
            for name, value in metrics.items()
        },
    )


CHOICE = summary(
    {
        "accuracy": 0.5,
        "skill": 0.4,
        "brier": 0.2,
        "accuracy_char": 0.6,
        "no_answer": Metric(value=3.0, n=200, kind="count"),
    }
)
BLEU = summary(
    {f"{name}_{k}": value + k for name, value in (("bleu", 20), ("sentence_bleu", 30)) for k in (4, 3, 2, 1)}
)
MANY = summary(
    {
        "accuracy": 0.5,
        "flexible.accuracy": 0.6,
        "lenient.accuracy": 0.6,
        "last_number.accuracy": 0.6,
        "flexible.f1": Metric(value=0.3, n=150, kind="mean"),
        "empty.f1": Metric(value=None, n=0, kind="mean"),
    }
)


def test_what_is_of_minor_interest_and_counts_are_not_columns() -> None:
    assert list(suite_lines([MetricRow("arc", CHOICE)], width=80)) == [
        "suite    n  accuracy              skill                 Brier",
        "-----  ---  --------------------  --------------------  --------------------",
        "arc    200  0.500 [0.400, 0.600]  0.400 [0.300, 0.500]  0.200 [0.100, 0.300]",
    ]


def test_further_metrics_are_columns_while_there_is_room() -> None:
    lines = list(suite_lines([MetricRow("gsm8k", MANY)], width=140))
    assert lines[0].split() == [
        *("suite", "n", "accuracy", "flexible.accuracy", "lenient.accuracy", "last_number.accuracy"),
        *("flexible.f1", "empty.f1"),
    ]
    assert len(lines) == 3
    assert lines[2].endswith("0.300 (n 150)")


MIXED = [MetricRow("arc", CHOICE), MetricRow("gsm8k", MANY), MetricRow("short", summary({"accuracy": 0.25}, 150, 200))]


def test_many_metrics_of_one_suite_leave_the_table_of_all_as_it_is() -> None:
    assert list(suite_lines(MIXED, width=90)) == [
        "suite        n  accuracy              skill                 Brier",
        "-----  -------  --------------------  --------------------  --------------------",
        "arc        200  0.500 [0.400, 0.600]  0.400 [0.300, 0.500]  0.200 [0.100, 0.300]",
        "gsm8k      200  0.500 [0.400, 0.600]",
        "short  150/200  0.250 [0.150, 0.350]",
        "gsm8k: flexible.accuracy 0.600 [0.500, 0.700], lenient.accuracy 0.600 [0.500, 0.700],",
        "  last_number.accuracy 0.600 [0.500, 0.700], flexible.f1 0.300 (n 150)",
    ]


def test_suites_with_other_metrics_have_tables_of_their_own() -> None:
    perplexity = summary({"word_perplexity": 17.0, "bits_per_byte": 1.0})
    rows = [
        MetricRow("books", perplexity),
        MetricRow("wmt", BLEU),
        MetricRow("arc", CHOICE),
        MetricRow("wiki", perplexity),
        MetricRow("wmt2", BLEU),
    ]
    assert list(suite_lines(rows, width=80)) == [
        "suite    n  accuracy              skill                 Brier",
        "-----  ---  --------------------  --------------------  --------------------",
        "arc    200  0.500 [0.400, 0.600]  0.400 [0.300, 0.500]  0.200 [0.100, 0.300]",
        "",
        "suite    n  word_perplexity          bits_per_byte",
        "-----  ---  -----------------------  --------------------",
        "books  200  17.000 [16.900, 17.100]  1.000 [0.900, 1.100]",
        "wiki   200  17.000 [16.900, 17.100]  1.000 [0.900, 1.100]",
        "",
        "suite    n  bleu_4                bleu_3                bleu_2",
        "-----  ---  --------------------  --------------------  --------------------",
        "wmt    200  24.000 23.900–24.100  23.000 22.900–23.100  22.000 21.900–22.100",
        "wmt2   200  24.000 23.900–24.100  23.000 22.900–23.100  22.000 21.900–22.100",
        "",
        "suite  bleu_1                sentence_bleu_4       sentence_bleu_3",
        "-----  --------------------  --------------------  --------------------",
        "wmt    21.000 20.900–21.100  34.000 33.900–34.100  33.000 32.900–33.100",
        "wmt2   21.000 20.900–21.100  34.000 33.900–34.100  33.000 32.900–33.100",
        "",
        "suite  sentence_bleu_2       sentence_bleu_1",
        "-----  --------------------  --------------------",
        "wmt    32.000 31.900–32.100  31.000 30.900–31.100",
        "wmt2   32.000 31.900–32.100  31.000 30.900–31.100",
    ]


def test_intervals_are_short_where_that_makes_the_table_fit() -> None:
    extreme = summary({"accuracy": 0.9, "skill": 0.0, "brier": 0.1})
    rows = [MetricRow("a_suite_with_a_name", CHOICE), MetricRow("another", extreme)]
    assert list(suite_lines(rows, width=80)) == [
        "suite                  n  accuracy         skill             Brier",
        "-------------------  ---  ---------------  ----------------  ---------------",
        "a_suite_with_a_name  200  0.500 .400–.600  0.400 .300–.500   0.200 .100–.300",
        "another              200  0.900 .800–1     0.000 -.100–.100  0.100 0–.200",
    ]


def test_the_tables_of_a_session_line_up() -> None:
    """Also of suites without some of the metrics: the columns of all tables stand below each other."""
    alone = summary({"accuracy": 0.25}, 7)
    suites = [MetricRow("mmlu", CHOICE), MetricRow("gsm8k", alone), MetricRow("a_suite_of_long_name", CHOICE)]
    sections = [
        Section("mmlu", [MetricRow("x", CHOICE), MetricRow("y", CHOICE)]),
        Section("gsm8k", [MetricRow("easy", alone)]),
    ]
    for width, form in [(80, ".400–.600"), (120, "[0.400, 0.600]")]:
        start = len("a_suite_of_long_name") + len("  200  ")
        layout = common_layout(suites, sections, width=width)
        lines = [*suite_lines(suites, width=width, layout=layout)]
        lines += category_lines(sections, width=width, layout=layout)
        assert {line.index("accuracy") for line in lines if "accuracy" in line} == {start}
        assert {line.index("0.500") for line in lines if "0.500" in line} == {start}
        assert {line.index("0.250") for line in lines if "0.250" in line} == {start}
        assert all(form in line for line in lines if "0.500" in line)
        assert max(map(len, lines)) <= width


def test_a_name_that_leaves_no_room_stands_over_its_numbers() -> None:
    sections = [
        Section("mmlu", [MetricRow("high_school_government_and_politics", CHOICE), MetricRow("biology", CHOICE)])
    ]
    assert list(category_lines(sections, width=80)) == [
        "by category                 n  accuracy         skill            Brier",
        "------------------------  ---  ---------------  ---------------  ---------------",
        "mmlu",
        "  high_school_government_and_politics",
        "                          200  0.500 .400–.600  0.400 .300–.500  0.200 .100–.300",
        "  biology                 200  0.500 .400–.600  0.400 .300–.500  0.200 .100–.300",
    ]


def test_a_narrow_terminal_takes_the_table_apart() -> None:
    sections = [
        Section("mmlu", [MetricRow("law", CHOICE), MetricRow("art", CHOICE)]),
        Section("gsm8k", [MetricRow("easy", summary({"accuracy": 0.25}))]),
    ]
    assert list(category_lines(sections, width=45)) == [
        "by category    n  accuracy",
        "-----------  ---  ---------------",
        "mmlu",
        "  law        200  0.500 .400–.600",
        "  art        200  0.500 .400–.600",
        "gsm8k",
        "  easy       200  0.250 .150–.350",
        "",
        "by category  skill            Brier",
        "-----------  ---------------  ---------------",
        "mmlu",
        "  law        0.400 .300–.500  0.200 .100–.300",
        "  art        0.400 .300–.500  0.200 .100–.300",
    ]


def test_where_nothing_has_room_there_is_a_list() -> None:
    assert list(suite_lines([MetricRow("a_suite_with_a_name", CHOICE)], width=24)) == [
        "a_suite_with_a_name",
        "  n 200,",
        "  accuracy 0.500 .400–.600,",
        "  skill 0.400 .300–.500,",
        "  Brier 0.200 .100–.300",
    ]


def test_of_a_selection_it_is_said() -> None:
    rows = [
        MetricRow("all", summary({"accuracy": 0.5}, 40)),
        MetricRow("some", summary({"accuracy": 0.5}, 27), 40),
        MetricRow("broken", summary({"accuracy": 0.5}, 25, 27), 40),
    ]
    assert list(suite_lines(rows, width=80)) == [
        "suite             n  accuracy",
        "------  -----------  --------------------",
        "all              40  0.500 [0.400, 0.600]",
        "some       27 of 40  0.500 [0.400, 0.600]",
        "broken  25/27 of 40  0.500 [0.400, 0.600]",
    ]


def test_wide_characters_line_up() -> None:
    lines = list(suite_lines([MetricRow("模型", CHOICE), MetricRow("model", CHOICE)], width=80))
    assert lines[2].index("200") == lines[3].index("200") - 2


def test_categories_show_the_usual_metrics_where_there_is_no_room_for_all() -> None:
    assert list(category_lines([Section("gsm8k", [MetricRow("a", MANY), MetricRow("b", MANY)])], width=80)) == [
        "by category    n  accuracy",
        "-----------  ---  --------------------",
        "gsm8k",
        "  a          200  0.500 [0.400, 0.600]",
        "  b          200  0.500 [0.400, 0.600]",
        "(other metrics by category: in the report)",
    ]


def test_of_many_other_metrics_categories_show_the_first() -> None:
    lines = list(category_lines([Section("wmt", [MetricRow(f"g{number}", BLEU) for number in range(60)])], width=80))
    assert lines[0].split() == ["by", "category", "n", "bleu_4", "bleu_3"]
    assert len(lines) == 2 + 1 + 50 + 2
    assert lines[-2:] == [
        "  … and 10 more categories, all in the report",
        "(other metrics by category: in the report)",
    ]


@given(
    st.integers(50, 200), st.lists(st.sampled_from([CHOICE, BLEU, MANY]), min_size=1, max_size=4), st.integers(1, 25)
)
def test_nothing_is_wider_than_the_terminal(width: int, summaries: list[Summary], num_categories: int) -> None:
    rows = [MetricRow(f"suite{place}", found) for place, found in enumerate(summaries)]
    assert all(len(line) <= width for line in suite_lines(rows, width=width))
    categories = [MetricRow(f"category{place}" * (1 + place % 4), summaries[0]) for place in range(num_categories)]
    sections = [Section("suite", categories), Section("other", categories[:1])]
    assert all(len(line) <= width for line in category_lines(sections, width=width))


@given(st.lists(st.text("ab", min_size=1, max_size=12), max_size=8), st.integers(1, 30))
def test_joined_lines_hold_every_item_once(items: list[str], width: int) -> None:
    lines = list(joined_lines("name:", items, width=width))
    assert " ".join(line.strip() for line in lines) == " ".join(["name:", ", ".join(items)]).strip()
    assert all(len(line) <= width or line.count(" ") <= 2 for line in lines)


def test_names_cannot_act_on_the_terminal() -> None:
    metrics = {"accuracy": 0.5, "x\x1b[2J.f1": 0.5, **{f"m{number}": 0.1 for number in range(9)}}
    rows = [MetricRow("a\x1b[2J", summary(metrics))]
    for width in (40, 80, 500):
        assert not any("\x1b" in line for line in suite_lines(rows, width=width))
        assert not any("\x1b" in line for line in category_lines([Section("x\x1b[2J", rows)], width=width))


def test_the_mean_over_categories_counts_each_category_alike() -> None:
    """By hand: nine of ten right in one category and none of two in the other is 0.75 over all, 0.45 over both."""
    outcomes: list[tuple[str, Status]] = [
        *[("a", "correct")] * 9,  # type: ignore[list-item]
        ("a", "wrong"),
        ("b", "wrong"),
        ("b", "wrong"),
    ]
    records = [
        Record(suite="s", id=str(place), nodeid=f"s.yaml::{place}", status=status, category=category)
        for place, (category, status) in enumerate(outcomes)
    ]
    suite = summarize_suite(SuiteInfo(name="s"), records, num_expected=12, num_skipped=0)
    assert suite.summary.metrics["accuracy"].value == pytest.approx(0.75)
    assert {name: metric.value for name, metric in suite.macro.items()} == {"accuracy": pytest.approx(0.45)}
    without = [replace(record, category="a") for record in records]
    assert summarize_suite(SuiteInfo(name="s"), without, num_expected=12, num_skipped=0).macro == {}


def test_what_belongs_together_stays_on_a_line() -> None:
    text = (
        "failed: boolq, accuracy >= 0.9: accuracy 0.250 [-0.046, 0.699], n 4, p = 0.01; 7,035 tokens/s in 3.1 s of 9 ms"
    )
    whole = ("[-0.046, 0.699],", "n 4,", "p = 0.01;", "7,035 tokens/s", "3.1 s", "9 ms")
    for width in range(20, 110):
        lines = wrapped_lines(text, width=width, indent="  ")
        assert " ".join(line.strip() for line in lines) == text
        assert all(any(part in line for line in lines) for part in whole)
        assert not any(line.rstrip().endswith(">=") for line in lines)


def test_parts_of_a_table_say_what_each_row_is_about() -> None:
    """Where names repeat, so do the other columns that tell rows apart."""
    rows = [["boolq", metric, "0.500 " * 3, "0.250 " * 3] for metric in ("accuracy", "brier")]
    table = Table(headers=["suite", "metric", "first", "second"], rows=rows, align=["left"] * 4, keys=2)
    lines = list(table_lines(table, width=40))
    assert [line.split()[:2] for line in lines if line.startswith("boolq")] == 2 * [
        ["boolq", "accuracy"],
        ["boolq", "brier"],
    ]
