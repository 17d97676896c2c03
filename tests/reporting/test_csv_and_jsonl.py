"""Reports as rows and as lines."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.storage.json_form import record_from_json
from pytest_llmeval.reporting.storage.report_file import write_jsonl
from pytest_llmeval.reporting.writers.exports import COLUMNS, write_csv
from pytest_llmeval.text.escaping import csv_text
from tests.reporting.made_reports import HOSTILE, hostile_report, record, report

FORMULA = tuple("=+-@\t\r\n＝＋－＠")
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=12) | st.text("=+-@\t\r\n',\"; 1.e|x", max_size=8)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return re.fullmatch(r"[-+0-9.eE]+", text) is not None


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@given(ANY_TEXT)
def test_no_text_is_a_formula(text: str) -> None:
    shown = csv_text(text)
    assert not shown.startswith(FORMULA) or is_number(shown)
    assert shown.isascii() or shown.encode("utf-8")


@pytest.mark.parametrize("number", ["-1.5", "+3", "-.5", "1e5", "-2E-3", "0"])
def test_numbers_stay_numbers(number: str) -> None:
    assert csv_text(number) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=1+1", "'=1+1"),
        ("-inf", "'-inf"),
        ("-1-1", "'-1-1"),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\x00=1", "\\x00=1"),
        ("-", "'-"),
        ("a\nb", "a\nb"),
        ("a\x1b[2Jb\ud800", "a\\x1b[2Jb\\ud800"),
        ("'=1", "'=1"),
        ("plain = text", "plain = text"),
    ],
)
def test_texts_in_cells(text: str, expected: str) -> None:
    assert csv_text(text) == expected


@given(st.lists(ANY_TEXT, min_size=3, max_size=3), st.dictionaries(ANY_TEXT, st.floats(), max_size=3))
def test_what_a_reader_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], values: dict[str, float]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "report.csv"
    one, two, three = texts
    records = [
        record(one, category=two, answer=three, target=[one, two], values=values, choices=(three,)),
        record("second", details={one: two}, values={"accuracy": 1.0}),
    ]
    write_csv(report(records=records), path)
    with path.open(encoding="utf-8", newline="") as file:
        head, first, second = csv.reader(file, strict=True)
    assert len(head) == len(first) == len(second)
    assert all(not cell.startswith(FORMULA) or is_number(cell) for cell in (*head, *first, *second))
    assert first[COLUMNS.index("answer")] == csv_text(three)
    finite = {csv_text(name): value for name, value in values.items() if math.isfinite(value)}
    if len(set(head)) == len(head):
        found = dict(zip(head, first, strict=True))
        assert {name: float(found[name]) for name in finite if name not in COLUMNS} == {
            name: value for name, value in finite.items() if name not in COLUMNS
        }


def test_a_row_for_each_sample(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    records = [
        record("q1", values={"accuracy": 1.0, "brier": 0.125}, choices=("yes", "no"), seconds=0.5, num_tokens=3),
        record("q2", status="unscored", reason="the model raised", answer=None, values={}, no_answer=True),
        record("q3", suite="books", values={"status": 2.0, "loglikelihood": -math.inf, "brier": math.nan}, chance=0.25),
        record("q4", target=-5, answer="é ✓"),
    ]
    write_csv(report(records=records), path)
    one, two, three, four = rows_of(path)
    assert list(one) == [*COLUMNS, "accuracy", "brier", "loglikelihood", "values.status"]
    assert (one["accuracy"], one["brier"], one["loglikelihood"]) == ("1.0", "0.125", "")
    assert (one["choices"], one["seconds"], one["num_tokens"]) == ('["yes", "no"]', "0.5", "3")
    assert (two["status"], two["reason"], two["answer"], two["no_answer"]) == (
        "unscored",
        "the model raised",
        "",
        "True",
    )
    assert (three["suite"], three["status"], three["values.status"]) == ("books", "correct", "2.0")
    assert (three["loglikelihood"], three["brier"], three["chance"]) == ("", "", "0.25")
    assert (four["target"], four["answer"]) == ("-5", "é ✓")
    assert path.read_bytes().count(b"\r\n") == 5


def test_what_nobody_has_measured_is_empty(tmp_path: Path) -> None:
    """A kept baseline does not know it, and many models do not count tokens: 0 would be a measurement."""
    path = tmp_path / "report.csv"
    records = [
        record("q1", num_prompt_tokens=0, num_tokens=0, seconds=0.0),
        record("q2", num_prompt_tokens=7, num_tokens=0, seconds=0.5),
    ]
    write_csv(report(records=records), path)
    names = ("num_prompt_tokens", "num_tokens", "seconds")
    assert [[row[name] for name in names] for row in rows_of(path)] == [["", "", ""], ["7", "0", "0.5"]]
    brief = replace(report(records=records), is_brief=True)
    write_jsonl(brief, path)
    first, second = map(json.loads, path.read_text().splitlines())
    assert [name in first for name in names] == [False, False, False]
    assert (second["num_prompt_tokens"], second["seconds"]) == (7, 0.5)


def test_a_hostile_report_as_rows(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    write_csv(hostile_report(), path)
    rows = rows_of(path)
    assert len(rows) == 2 * len(HOSTILE)
    assert all(not cell.startswith(FORMULA) or is_number(cell) for row in rows for cell in (*row, *row.values()))
    assert [row["question"] for row in rows[: len(HOSTILE)]] == [csv_text(text) for text in HOSTILE]


def test_a_line_for_each_record(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    made = hostile_report()
    write_jsonl(made, path)
    lines = path.read_bytes().decode("ascii").splitlines()
    found = [record_from_json(json.loads(line)) for line in lines]
    assert [one.output for one in found] == [one.output for one in made.records]
    assert [one.reason for one in found] == [one.reason for one in made.records]
    assert json.loads(lines[0])["values"] == {"accuracy": 0.0, f"x{' '.join(HOSTILE)}": None}
