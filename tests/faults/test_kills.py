"""The campaign of kills: it notices each fault that is planted, and a sample of it finds none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.inference import stored_model as stored
from pytest_llmeval.inference.store import Store
from pytest_llmeval.inference.stored_lines import StoredRequest
from pytest_llmeval.reporting.storage.journal import Journal
from pytest_llmeval.types import GenerateRequest, GenerateResponse
from tests.faults import kills, planted
from tests.faults.kill_findings import (
    OLDER_REPORT,
    Ended,
    Findings,
    asked_again,
    judge_killed,
    judge_process,
    judge_rerun,
    kept,
    left_files,
)
from tests.reporting.reports import make_record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")

AROUND = """INTERNALERROR>   File "/x/pytest_llmeval/plugin/reporting_hooks.py", line 164, in pytest_sessionstart
INTERNALERROR>     yield
"""
"""Of a hook that failed: the frame of ours that waited for it."""
HEAD: dict[str, Any] = {"created": "2026-01-01T00:00:00+00:00", "environment": {}, "options": {}}


def ended(code: int | None = -9, output: str = "", left: tuple[str, ...] = ()) -> Ended:
    return Ended(code=code, seconds=1.0, left=left, output=output)


def report(*values: float, status: str = "scored") -> dict[str, Any]:
    """A report's parts that are compared, of samples ``s0``, ``s1``, …"""
    records = [
        {"id": f"s{place}", "status": status, "values": {"score": value}, "seconds": 3.0}
        for place, value in enumerate(values)
    ]
    return {"options": {"batch_size": 7}, "models": [{"name": "http://127.0.0.1:8001/v1"}], "records": records}


def expected(*values: float) -> dict[str, Any]:
    found = report(*values)
    return {**found, "options": {}, "models": [{"name": "http://HOST/v1"}], "records": [
        {key: value for key, value in record.items() if key != "seconds"} for record in found["records"]
    ]}  # fmt: skip


@pytest.mark.parametrize(
    ("session", "figure"),
    [
        (ended(code=None), "hangs"),
        (ended(left=("python",)), "processes left"),
        (ended(output="INTERNALERROR> in pytest_llmeval/plugin\n"), "internal errors"),
        (ended(output=f"INTERNALERROR> in xdist/workermanage.py\n{AROUND}INTERNALERROR> EOFError\n"), None),
        (ended(output=f"{AROUND}INTERNALERROR> EOFError\n"), "internal errors"),
        (ended(output="INTERNALERROR> in xdist/workermanage.py\n"), None),
        (ended(), None),
    ],
)
def test_how_a_session_ended(session: Ended, figure: str | None) -> None:
    findings = Findings()
    judge_process(session, "the rerun", findings)
    assert dict(findings.counts) == ({} if figure is None else {figure: 1})


@pytest.mark.parametrize(
    ("found", "tolerance", "counts"),
    [
        (report(1.0, 2.0), 0.0, {}),
        (report(1.0, 2.0 + 1e-12), 1e-9, {}),
        (report(1.0, 2.0 + 1e-12), 0.0, {"other reports": 1}),
        (report(1.0, 2.5), 1e-9, {"other reports": 1}),
        (report(1.0), 0.0, {"other reports": 1, "finished and lost": 1}),
        (report(1.0, 2.0, status="unscored"), 0.0, {"other reports": 1, "finished and lost": 1}),
        (None, 0.0, {"damaged reports": 1}),
    ],
    ids=["the same", "a last digit", "another last digit", "a number", "a sample less", "unscored", "none"],
)
def test_the_report_of_a_rerun(tmp_path: Path, found: Any, tolerance: float, counts: dict[str, int]) -> None:
    findings = Findings()
    if found is not None:
        (tmp_path / "report.json").write_text(json.dumps(found))
    judge_rerun(tmp_path, {"s1"}, expected(1.0, 2.0), findings, tolerance)
    assert dict(findings.counts) == counts


@pytest.mark.parametrize(
    ("code", "text", "counts"),
    [
        (0, json.dumps(report(1.0, 2.0)), {}),
        (0, json.dumps(report(1.0)), {"dishonest exit codes": 1}),
        (0, OLDER_REPORT, {"dishonest exit codes": 1}),
        (2, OLDER_REPORT, {}),
        (1, json.dumps(report(1.0, 3.0)), {"wrong numbers": 1}),
        (-9, json.dumps(report(1.0))[:-9], {"damaged reports": 1}),
    ],
    ids=["all done", "0 and a part", "0 and nothing", "nothing", "a wrong number", "half a file"],
)
def test_what_a_killed_session_has_written(tmp_path: Path, code: int, text: str, counts: dict[str, int]) -> None:
    findings = Findings()
    (tmp_path / "report.json").write_text(text)
    judge_killed(tmp_path, expected(1.0, 2.0), ended(code), findings)
    assert dict(findings.counts) == counts


def test_the_journal_of_a_killed_session(tmp_path: Path) -> None:
    path, findings = tmp_path / "report.json.journal", Findings()
    journal = Journal(path, HEAD)
    journal.add(make_record("sums", "s1", status="scored", values={"score": 2.0}))
    journal.close(discard=False)
    assert judge_killed(tmp_path, expected(1.0, 2.0), ended(), findings) == {"s1"}
    assert not findings.counts
    judge_killed(tmp_path, expected(1.0, 5.0), ended(), findings)
    path.write_bytes(path.read_bytes() + b"{record\n")
    judge_killed(tmp_path, expected(1.0, 2.0), ended(), findings)
    assert dict(findings.counts) == {"wrong numbers": 1, "unreadable journals": 1}


def test_who_was_asked_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    replies = [(StoredRequest("m" * 64, GenerateRequest(f"<7> {n}")), GenerateResponse(text="")) for n in range(2)]
    assert kept(tmp_path / "none", 1) == {}
    first, last = (store.keep("model", [reply])[0] for reply in replies)
    assert kept(store.folder, 3) == {}, "not all of the sample's requests"
    assert kept(store.folder, 2) == {7: last}
    store.close()
    log = tmp_path / "asked"
    log.write_text(f"{first - 1!r} 7 8\n{first!r} 7\n")
    assert asked_again(log, {7: last}) == []
    log.write_text(f"{first - 1!r} 7 8\n{last + 1!r} 7\n")
    assert asked_again(log, {7: last}) == [7]


def test_files_that_are_left(tmp_path: Path) -> None:
    for name in ("tmp/pytest-of-user", "tmp/llmeval-1", "project/.llmeval"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("report.json", "report.json.journal", ".llmeval-1.tmp", ".llmeval/replies-1.tmp", "suite.yaml"):
        (tmp_path / "project" / name).touch()
    assert left_files(tmp_path) == ([".llmeval/replies-1.tmp", ".llmeval-1.tmp", "tmp/llmeval-1"], [])


def test_cases_are_drawn_by_their_seed() -> None:
    cases = [kills.drawn(0, number) for number in range(200)]
    assert cases == [kills.drawn(0, number) for number in range(200)]
    assert len({str(case) for case in cases}) > 190
    for attribute in ("victim", "signal", "point"):
        assert min(map([getattr(case, attribute) for case in cases].count, {getattr(c, attribute) for c in cases})) > 10


_ASKS_AGAIN = """
from pytest_llmeval.inference.store import Store

Store.find = lambda self, question: None
"""


def test_what_the_store_asks_a_local_model_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(stored, "ask_for_raw", lambda model, requests: ["a reply"])
    monkeypatch.setattr(planted, "asked", seen.extend)
    planted.watch_local_models()
    assert vars(stored)["ask_for_raw"](None, ["a request"]) == ["a reply"]
    assert seen == ["a request"]


@pytest.mark.slow
def test_a_store_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kills, "PLANTED", _ASKS_AGAIN)
    assert kills.main(["--only", str(_first("listed", "journal"))]) == 1
    assert " asked again 0," not in capsys.readouterr().out


@pytest.mark.slow
def test_some_kills() -> None:
    numbers = [_first("listed", "operation"), _first("function", "asked"), _first("likelihoods", "store")]
    assert kills.main(["--only", *map(str, numbers)]) == 0


def _first(model: str, point: str) -> int:
    cases = ((number, kills.drawn(0, number)) for number in range(200))
    return next(number for number, case in cases if (case.setting.model, case.point) == (model, point))


@pytest.mark.campaign
def test_kills() -> None:
    assert kills.main([]) == 0
