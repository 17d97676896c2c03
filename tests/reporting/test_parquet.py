"""Parquet: columns have one type each, and records' texts can be anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.writers.exports import write_parquet
from tests.reporting.made_reports import record, report

parquet = pytest.importorskip("pyarrow.parquet")


def test_targets_that_are_no_text(tmp_path: Path) -> None:
    records = [record(str(place), target=target) for place, target in enumerate((4, True, 1.5, ["a"], "b", None, 0))]
    write_parquet(report(records=records), tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["target"] for row in found] == ["4", "true", "1.5", '["a"]', "b", None, "0"]


def test_texts_without_a_utf8_form_and_numbers_that_were_lost(tmp_path: Path) -> None:
    lost = record("\ud800", values={"accuracy": float("nan")})
    write_parquet(report(records=[lost]), tmp_path / "out.parquet")
    (row,) = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert (row["id"], row["accuracy"] != row["accuracy"]) == ("\\ud800", True)


def test_a_number_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "out.parquet").write_text("old")
    with pytest.raises(LLMEvalError, match="a value does not fit into a column of Parquet") as caught:
        write_parquet(report(records=[record(num_tokens=2**70)]), tmp_path / "out.parquet")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "out.parquet").read_text() == "old"


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    write_parquet(report(), tmp_path / "no" / "out.parquet")
    assert (tmp_path / "no" / "out.parquet").read_bytes()[:4] == b"PAR1"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file")
    with pytest.raises(LLMEvalError, match="cannot write the report"):
        write_parquet(report(), tmp_path / "no" / "out.parquet")
