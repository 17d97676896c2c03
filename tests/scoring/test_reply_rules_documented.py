"""The table of docs/scoring.md on how replies are read says what the code does."""

from __future__ import annotations

import re

import pytest

from pytest_llmeval.scorers.letter import first_upper
from pytest_llmeval.scorers.reading.stated import stated_label
from pytest_llmeval.scorers.yes_no import prefix_answer, stated_yes_or_no
from tests.support import REPOSITORY


def rows() -> list[list[str]]:
    """The cells of each row: replies, and what each rule finds in them, for letters and then for yes or no."""
    text = (REPOSITORY / "docs" / "scoring.md").read_text(encoding="utf-8")
    table = text.partition("| reply | `letter` |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")[2:]]


def said(cell: str, number: int) -> str | None:
    """What a cell says of the reply of this number: one thing of all, or one of each."""
    each = cell.split(", ")
    word = each[number if len(each) > 1 else 0].split(" ")[0]
    return None if word == "none" else word


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_the_table_says_is_so(row: list[str]) -> None:
    letters, stated, first, _, truths, word, prefix = row
    for number, reply in enumerate(re.findall(r"`([^`]+)`", letters)):
        assert stated_label(reply, "ABCD") == said(stated, number)
        assert first_upper(reply, "ABCD") == said(first, number)
    for number, reply in enumerate(re.findall(r"`([^`]+)`", truths)):
        assert stated_yes_or_no(reply) == said(word, number)
        assert prefix_answer(reply) == said(prefix, number)


def test_the_table_is_found() -> None:
    assert len(rows()) == 8
