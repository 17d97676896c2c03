"""The numbers of suites and categories in a terminal, from summaries alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.metric_tables import category_lines, suite_lines
from pytest_llmeval.reporting.records import Record, SuiteInfo
from pytest_llmeval.reporting.report import Summary
from pytest_llmeval.reporting.summaries import summarize_suite
from pytest_llmeval.reporting.tables import joined_lines
from pytest_llmeval.scoring.metrics import Metric
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
    assert list(suite_lines([("arc", CHOICE)], width=80)) == [
        "suite      n  accuracy              skill                 Brier",
        "-------  ---  --------------------  --------------------  --------------------",
        "arc      200  0.500 [0.400, 0.600]  0.400 [0.300, 0.500]  0.200 [0.100, 0.300]",
    ]


def test_further_metrics_are_columns_while_there_is_room() -> None:
    lines = list(suite_lines([("gsm8k", MANY)], width=140))
    assert lines[0].split() == [
        *("suite", "n", "accuracy", "flexible.accuracy", "lenient.accuracy", "last_number.accuracy"),
        *("flexible.f1", "empty.f1"),
    ]
    assert len(lines) == 3
    assert lines[2].endswith("0.300 (n 150)")


MIXED = [("arc", CHOICE), ("gsm8k", MANY), ("short", summary({"accuracy": 0.25}, 150, 200))]


def test_many_metrics_of_one_suite_leave_the_table_of_all_as_it_is() -> None:
    assert list(suite_lines(MIXED, width=90)) == [
        "suite          n  accuracy              skill                 Brier",
        "-------  -------  --------------------  --------------------  --------------------",
        "arc          200  0.500 [0.400, 0.600]  0.400 [0.300, 0.500]  0.200 [0.100, 0.300]",
        "gsm8k        200  0.500 [0.400, 0.600]",
        "short    150/200  0.250 [0.150, 0.350]",
        "gsm8k: flexible.accuracy 0.600 [0.500, 0.700], lenient.accuracy 0.600 [0.500, 0.700],",
        "  last_number.accuracy 0.600 [0.500, 0.700], flexible.f1 0.300 (n 150)",
    ]


def test_suites_with_other_metrics_have_tables_of_their_own() -> None:
    perplexity = summary({"word_perplexity": 17.0, "bits_per_byte": 1.0})
    rows = [("books", perplexity), ("wmt", BLEU), ("arc", CHOICE), ("wiki", perplexity), ("wmt2", BLEU)]
    lines = list(suite_lines(rows, width=80))
    assert [line.split()[0] for line in lines if line and not line.startswith((" ", "-"))] == [
        *("suite", "arc"),
        *("suite", "books", "wiki"),
        "suite",
    ]
    assert lines[4].split() == ["suite", "n", "word_perplexity", "bits_per_byte"]
    assert lines[9:13] == ["suite", "  wmt", "    n 200", "    bleu_4 24.000 [23.900, 24.100]"]
    assert "  wmt2" in lines


def test_categories_show_the_usual_metrics_where_there_is_no_room_for_all() -> None:
    assert list(category_lines("gsm8k by category", [("a", MANY), ("b", MANY)], width=80)) == [
        "gsm8k by category      n  accuracy",
        "-------------------  ---  --------------------",
        "a                    200  0.500 [0.400, 0.600]",
        "b                    200  0.500 [0.400, 0.600]",
        "(other metrics by category: in the report)",
    ]


def test_many_categories_are_no_long_list() -> None:
    few = list(category_lines("wmt by genre", [("a", BLEU), ("b", BLEU)], width=80))
    assert len(few) == 1 + 2 * (2 + 8)
    many = list(category_lines("wmt by genre", [(f"g{number}", BLEU) for number in range(20)], width=80))
    assert many[0].split() == ["wmt", "by", "genre", "n", "bleu_4", "bleu_3"]
    assert len(many) == 2 + 20 + 1
    assert many[-1] == "(other metrics by category: in the report)"


@given(
    st.integers(50, 200), st.lists(st.sampled_from([CHOICE, BLEU, MANY]), min_size=1, max_size=4), st.integers(1, 25)
)
def test_nothing_is_wider_than_the_terminal(width: int, summaries: list[Summary], num_categories: int) -> None:
    rows = [(f"suite{place}", found) for place, found in enumerate(summaries)]
    assert all(len(line) <= width for line in suite_lines(rows, width=width))
    categories = [(f"category{place}", summaries[0]) for place in range(num_categories)]
    assert all(len(line) <= width for line in category_lines("suite by category", categories, width=width))


@given(st.lists(st.text("ab", min_size=1, max_size=12), max_size=8), st.integers(1, 30))
def test_joined_lines_hold_every_item_once(items: list[str], width: int) -> None:
    lines = list(joined_lines("name:", items, width=width))
    assert " ".join(line.strip() for line in lines) == " ".join(["name:", ", ".join(items)]).strip()
    assert all(len(line) <= width or line.count(" ") <= 2 for line in lines)


def test_names_cannot_act_on_the_terminal() -> None:
    rows = [("a\x1b[2J", summary({"accuracy": 0.5, "x\x1b[2J.f1": 0.5, **{f"m{number}": 0.1 for number in range(9)}}))]
    for width in (40, 80, 500):
        assert not any("\x1b" in line for line in suite_lines(rows, width=width))
        assert not any("\x1b" in line for line in category_lines("x\x1b[2J", rows, width=width))


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
