"""What reports say of the replies that a session has reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, StoreUse
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from pytest_llmeval.reporting.tables.session import store_texts
from pytest_llmeval.reporting.writers.markdown import markdown_summary
from pytest_llmeval.types import JSON
from tests.commands.saved_reports import report_of, sample

STARTED = "2026-11-22T12:00:00.500000+00:00"


def asked(*times: str | None) -> list[Record]:
    return [replace(sample("a", f"q{number}"), asked_at=time) for number, time in enumerate(times)]


def with_store(store: StoreUse | None, stored: str | None = "replies are kept and reused") -> Report:
    report = report_of(asked(None))
    details: JSON = {} if stored is None else {"store": stored}
    models: list[Mapping[str, JSON]] = [{**model, "details": details} for model in report.models]
    return replace(report, created="2026-11-22T12:00:00+00:00", models=tuple(models), store=store)


def test_what_was_asked_before_the_session_began_is_reused() -> None:
    before, sooner, now = (
        f"2026-11-22T{time}+00:00" for time in ("09:00:00.000001", "12:00:00.499999", "12:00:00.500000")
    )
    use = StoreUse.of("folder", asked(before, now, None, sooner), STARTED)
    assert use == StoreUse(folder="folder", num_samples=4, num_reused=2, oldest=before, newest=sooner)


def test_parts_of_a_run_are_added() -> None:
    one = StoreUse(folder="a", num_samples=3, num_reused=2, oldest="2026-01", newest="2026-03", problem="full")
    other = StoreUse(folder="a", num_samples=4, num_reused=1, oldest="2026-02", newest="2026-04", problem="full")
    assert one + other == StoreUse(
        folder="a", num_samples=7, num_reused=3, oldest="2026-01", newest="2026-04", problem="full"
    )
    three = [replace(one, folder=folder, problem=why) for folder, why in (("a", "x"), ("b", "y"), ("a", "x"))]
    for total in (three[0] + three[1] + three[2], three[0] + (three[1] + three[2])):
        assert (total.folder.split(", "), (total.problem or "").split("; ")) in (
            (["a", "b"], ["x", "y"]),
            (["b", "a"], ["y", "x"]),
        )
    flawed = replace(one, num_unreadable=3, why_unreadable="Permission denied", num_damaged=2)
    again = replace(flawed, num_unreadable=1)
    assert (again + flawed).num_unreadable == 3, "both may have read one store"
    assert (again + flawed).num_damaged == 2
    assert (again + flawed).why_unreadable == "Permission denied"
    nothing = StoreUse(folder="b", num_samples=1, num_reused=0)
    assert (nothing + one) == replace(one, folder="b, a", num_samples=4)


@pytest.mark.parametrize(
    ("use", "stored", "lines"),
    [
        (None, None, []),
        (StoreUse(folder="f", num_samples=2, num_reused=0), "reused", ["store f: 0 of 2 samples reused"]),
        (
            StoreUse(
                folder="f",
                num_samples=2000,
                num_reused=1500,
                oldest="2026-11-20T10:00:00+00:00",
                newest="2026-11-22T09:55:00+00:00",
            ),
            "reused",
            [
                "store f: 1,500 of 2,000 samples reused, asked 2 h 05 min to 2 d 02 h before this session; times and "
                "speed were measured then"
            ],
        ),
        (
            StoreUse(folder="f", num_samples=2, num_reused=0, problem="No space left on device"),
            None,
            [
                "store f: 0 of 2 samples reused",
                "store: demo: is not asked through the store",
                "store: replies could no longer be kept: No space left on device",
            ],
        ),
        (
            StoreUse(
                folder="f",
                num_samples=2,
                num_reused=0,
                num_unreadable=3,
                why_unreadable="Permission denied",
                num_damaged=2,
            ),
            "reused",
            [
                "store f: 0 of 2 samples reused",
                "store f: 3 files cannot be read (Permission denied); 2 damaged lines are not used, "
                "llmeval store compact removes them",
            ],
        ),
        (
            StoreUse(folder="f", num_samples=2, num_reused=0, num_damaged=1),
            "reused",
            ["store f: 0 of 2 samples reused", "store f: 1 damaged line is not used, llmeval store compact removes it"],
        ),
    ],
    ids=["no store", "nothing", "some", "trouble", "flaws", "a damaged line"],
)
def test_the_lines(use: StoreUse | None, stored: str | None, lines: list[str]) -> None:
    assert list(store_texts(with_store(use, stored))) == lines


def test_markdown_and_json_have_it(tmp_path: Path) -> None:
    report = with_store(StoreUse(folder="f", num_samples=2, num_reused=1, oldest="x", newest="x"))
    assert "Store f: 1 of 2 samples reused, asked x before this session" in markdown_summary(report)
    write_report(report, tmp_path / "r.json")
    assert read_report(tmp_path / "r.json").store == report.store
