"""Rows on disk come back as they went, whatever order their tables were filled in."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.storage.spool import Spool

CELLS = st.none() | st.text(st.characters(exclude_categories=[]), max_size=5) | st.integers()


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(CELLS, max_size=3)), max_size=20))
def test_tables_come_back(added: list[tuple[int, list[Any]]]) -> None:
    with Spool[int]() as spool:
        for table, row in added:
            spool.add(table, row)
        for table in range(4):
            assert list(spool.rows(table)) == [row for other, row in added if other == table]


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no"))
    with pytest.raises(ReportError, match=r"cannot write a temporary file in .*no: No such file.*TMPDIR"):
        Spool[None]()


def test_a_disk_that_is_full() -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with Spool[None]() as spool:
        spool._file.close()
        spool._file = Full()  # type: ignore[assignment]
        with pytest.raises(ReportError, match=r"cannot write a temporary file in .*: No space left"):
            spool.add(None, [1])
