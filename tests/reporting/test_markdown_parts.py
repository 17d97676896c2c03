"""A text of parts that may not be long: what matters is kept, and what is left out is counted."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.reporting.tables.cells import Table
from pytest_llmeval.reporting.writers.markdown import DETAILS, FAILURES, HEAD, MarkdownPart, whole, within
from tests.properties import examples

_UNITS = st.lists(st.tuples(st.integers(HEAD, DETAILS), st.integers(0, 300)), max_size=30)


@settings(max_examples=examples(200))
@given(st.lists(_UNITS, max_size=6), st.integers(1000, 10_000))
def test_a_limit_is_kept_and_all_is_counted(given_parts: list[list[tuple[int, int]]], limit: int) -> None:
    def parts() -> list[MarkdownPart]:
        return [
            MarkdownPart(
                [f"head {place}"], [(urgency, ["x" * size + "."]) for urgency, size in units], f"thing{place % 2}"
            )
            for place, units in enumerate(given_parts)
        ]

    lines = list(within(parts(), limit))
    assert len("".join(f"{line}\n" for line in lines)) <= limit
    kept = [line for line in lines if line.endswith("x.") or line == "."]
    counted = [re.fullmatch(r"… and (\d+) more thing\ds?", line) for line in lines]
    num_left_out = sum(int(match[1]) for match in counted if match)
    assert len(kept) + num_left_out == sum(map(len, given_parts))
    every = list(whole(parts()))
    if sum(map(len, every)) + len(every) < limit - 200:
        assert lines == every
    assert any("Left out" in line for line in lines) == bool(num_left_out)


def test_what_matters_is_kept_first() -> None:
    details = MarkdownPart(["details"], [(DETAILS, ["d" * 90])] * 20, "detail")
    failures = MarkdownPart(["failures"], [(FAILURES, [f"f{number}" + "f" * 80]) for number in range(8)], "failure")
    text = "\n".join(within([details, failures], 900))
    assert all(f"f{number}f" in text for number in range(8))
    assert "… and 20 more details" in text
    assert "d" * 90 not in text


def test_a_table_is_cut_between_its_rows() -> None:
    rows = [[str(number), "y" * 50] for number in range(100)]
    part = MarkdownPart.table(
        Table(headers=["n", "text"], rows=rows, align=["right", "left"]), DETAILS, "row", heading="Rows:"
    )
    lines = list(within([part], 1000))
    assert lines[:4] == ["Rows:", "", "| n | text |", "| ---: | --- |"]
    num_kept = sum("yyy" in line for line in lines)
    assert f"… and {100 - num_kept} more rows" in lines
    assert not list(
        whole([MarkdownPart.table(Table(headers=["n"], rows=[], align=["left"]), DETAILS, "row", heading="Rows:")])
    )
