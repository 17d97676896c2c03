"""Rows on disk come back as they went, whatever order their tables were filled in."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.spool import Spool

CELLS = st.none() | st.text(st.characters(exclude_categories=[]), max_size=5) | st.integers()


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(CELLS, max_size=3)), max_size=20))
def test_tables_come_back(added: list[tuple[int, list[Any]]]) -> None:
    with Spool[int]() as spool:
        for table, row in added:
            spool.add(table, row)
        assert spool.tables() == tuple(dict.fromkeys(table for table, _ in added))
        for table in range(4):
            assert list(spool.rows(table)) == [row for other, row in added if other == table]
