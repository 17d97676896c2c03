"""A sample's options with their probabilities and marks, and where they are read."""

from __future__ import annotations

from pathlib import Path

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.tables.samples import option_texts
from pytest_llmeval.reporting.writers.markdown import sample_markdown, write_markdown
from pytest_llmeval.reporting.writers.text_report import sample_lines
from tests.reporting.reports import make_record, make_report

CHOICE = make_record(
    status="wrong",
    choices=("Bergen", "Oslo"),
    target="Oslo",
    answer="Bergen",
    details={"probabilities": [0.7125, 0.2875]},
)
LETTER = make_record(
    id_="s2",
    status="wrong",
    choices=("3", "1", "2"),  # labels that are options too: what is right is the label
    target="1",
    answer="2",
    output="It is 2",
    details={"order": [2, 0, 1], "labels": ["1", "2", "3"]},
)


def test_the_probability_of_each_option_and_which_is_right() -> None:
    assert option_texts(CHOICE) == ("Bergen: 0.713 (answered)", "Oslo: 0.287 (right)")


def test_labels_are_what_target_and_answer_are_written_in() -> None:
    assert option_texts(LETTER) == ("1. 3 (right)", "2. 1 (answered)", "3. 2")


def test_several_right_options_and_one_that_was_answered() -> None:
    record = make_record(choices=("a", "b", "c"), target=["a", "c"], answer="c")
    assert option_texts(record) == ("a (right)", "b", "c (right, answered)")


def test_the_two_continuations_of_yes_no() -> None:
    record = make_record(target="no", answer="yes", details={"probabilities": [0.75, 0.25]})
    assert option_texts(record) == ("yes: 0.750 (answered)", "no: 0.250 (right)")
    assert option_texts(make_record(target="no", answer="yes")) == ()


def test_a_tie_has_no_answer_but_the_options_that_tied() -> None:
    record = make_record(
        choices=("a", "b", "c"),
        target="b",
        answer="a | b (tie)",
        details={"tied": [0, 1], "probabilities": [0.4, 0.4, 0.2]},
    )
    assert option_texts(record) == ("a: 0.400 (tied)", "b: 0.400 (right, tied)", "c: 0.200")


def test_of_equal_options_the_right_one_alone_is_marked() -> None:
    equal = make_record(choices=("aa", "aa", "c"), target="aa", answer="aa", details={"right": [1]})
    assert option_texts(equal) == ("aa (answered)", "aa (right)", "c")
    tied = make_record(
        choices=("aa", "aa", "c"), target="aa", answer="aa | aa (tie)", details={"right": [0], "tied": [0, 1]}
    )
    assert option_texts(tied) == ("aa (right, tied)", "aa (tied)", "c")
    both = make_record(choices=("aa", "aa", "c"), target=["aa", "aa"], answer="c", details={"right": [0, 1]})
    assert option_texts(both) == ("aa (right)", "aa (right)", "c (answered)")


def test_a_report_without_the_places_of_equal_options_says_what_it_knows() -> None:
    record = make_record(choices=("aa", "aa", "c"), target="aa", answer="c")
    assert option_texts(record) == ("aa (right)", "aa (right)", "c (answered)")


def test_details_of_another_shape_are_left_out() -> None:
    odd: list[object] = ["a", [1.0], [float("nan"), 0.5], [True, False], [[0]], {"a": 1}, None]
    for value in odd:
        record = make_record(
            choices=("a", "b"),
            target=1,
            details={"probabilities": value, "labels": value, "tied": value, "right": value},
        )
        assert option_texts(record) == ("a", "b")


def test_a_long_option_is_cut_and_its_mark_is_not() -> None:
    (first, second) = option_texts(make_record(choices=("x" * 500, "\x1b[2J\n"), target="x" * 500), limit=20)
    assert first == f"{'x' * 19}… (right)"
    assert second == r"\x1b[2J\n"


def test_a_sample_that_is_asked_for_has_a_line_for_each_option() -> None:
    lines = list(sample_lines(CHOICE, whole=True, prompt=False))
    assert lines[1:3] == ["  choices: Bergen: 0.713 (answered)", "    Oslo: 0.287 (right)"]
    assert "  choices: Bergen: 0.713 (answered) | Oslo: 0.287 (right)" in sample_lines(
        CHOICE, whole=False, prompt=False
    )
    markdown = list(sample_markdown(CHOICE, whole=True, prompt=False))
    assert "Bergen: 0.713 (answered)\nOslo: 0.287 (right)" in markdown


def test_the_markdown_report_has_a_column_of_options_where_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    other = Record(suite="plain", id="p1", nodeid="plain.yaml::p1", status="correct", values={"accuracy": 1.0})
    write_markdown(make_report([CHOICE, LETTER, other]), path)
    lines = path.read_text("utf-8").splitlines()
    assert "| id | category | status | answer | expected | options | accuracy |" in lines
    assert "| s1 |  | wrong | Bergen | Oslo | Bergen: 0.713 (answered); Oslo: 0.287 (right) | 1 |" in lines
    assert "| id | category | status | answer | expected | accuracy |" in lines
