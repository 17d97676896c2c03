"""Journals: what a session finished is on disk at once, and comes back from there, however the session ended."""

from __future__ import annotations

import dataclasses
import errno
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import use_of_model
from pytest_llmeval.reporting.storage.journal import Journal, JournalError, journal_path
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from pytest_llmeval.types import EngineUse, ServerUse
from tests.properties import examples
from tests.reporting import reports as made
from tests.reporting.reports import make_record, make_report
from tests.support import REPOSITORY, clean_environment

HEAD: dict[str, Any] = {
    "created": "2026-01-01T00:00:00+00:00",
    "environment": {"python": "3.11"},
    "options": {"report": "out.json"},
}

RECORDS = [
    make_record("capitals", "q1", category="west", prompt="Capital of France?", output="Paris", seconds=0.5),
    make_record("sums", "s1", status="wrong", values={"accuracy": 0.0}, details={"loglikelihoods": [-1.0]}),
    make_record("capitals", "q2", category="south", status="unscored", reason="too hot", values={}),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.json.journal"


def written(path: Path, records: list[Record], **head: Any) -> Journal:
    journal = Journal(path, {**HEAD, **head})
    for name in dict.fromkeys(record.suite for record in records):
        journal.add_fact("suite", SuiteInfo(name=name, path=f"{name}.yaml", metrics=("accuracy",)))
    journal.add_fact("model", {"name": "fake"})
    for record in records:
        journal.add(record)
    return journal


def refused(path: Path) -> str:
    with pytest.raises(ReportError) as caught:
        read_report(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_records_come_back_in_any_order(path: Path) -> None:
    journal = Journal(path, HEAD)
    assert [journal.add(record) for record in RECORDS] == [0, 1, 2]
    assert len(journal) == 3
    records = journal.records([2, 0, 0, 1])
    expected = [RECORDS[place] for place in (2, 0, 0, 1)]
    assert list(records) == list(records) == expected
    assert (len(records), records[0], records[-1]) == (4, RECORDS[2], RECORDS[1])
    assert list(records[1:]) == expected[1:]
    assert list(journal.records([])) == []
    journal.add(make_record("sums", "s2"))
    assert list(records) == expected
    journal.close(discard=False)
    assert list(records) == expected


def test_lines_are_copied_as_they_were_written_unless_something_changed_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = written(path, RECORDS)
    report = dataclasses.replace(make_report(RECORDS), records=journal.records([2, 0, 1]))
    plain, copied = path.with_name("plain.json"), path.with_name("copied.json")
    write_report(dataclasses.replace(report, records=list(report.records)), plain)
    with monkeypatch.context() as patched:
        patched.setattr("pytest_llmeval.reporting.storage.disk_records.record_from_json", lambda data: 1 / 0)
        write_report(report, copied)
    assert copied.read_text(encoding="ascii") == plain.read_text(encoding="ascii")

    journal.close(discard=False)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"Paris"', b'"Pa"is"'))  # of the same length, and not JSON
    with pytest.raises(ReportError, match="cannot read the journal"):
        write_report(report, copied)
    path.write_bytes(whole.replace(b'"Paris"', b'"Lyons"'))
    write_report(report, copied)
    assert [record.output for record in read_report(copied).records] == [None, "Lyons", None]


@settings(max_examples=examples(30))
@given(records=st.lists(made.records, max_size=4))
def test_any_record_comes_back(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.journal"
    path.unlink(missing_ok=True)
    journal = Journal(path, HEAD)
    assert list(journal.records([journal.add(record) for record in records])) == records
    journal.close(discard=True)
    assert not path.exists()


def test_a_report_is_written_from_it(path: Path) -> None:
    """The texts are in the report, though the session kept none."""
    journal = written(path, RECORDS)
    report = make_report([without_texts(record) for record in RECORDS])
    out = path.with_name("out.json")
    write_report(dataclasses.replace(report, records=journal.records([0, 1, 2])), out)
    journal.close(discard=True)
    assert list(read_report(out).records) == RECORDS
    assert [entry.name for entry in path.parent.iterdir()] == ["out.json"]


def test_records_without_texts_give_the_same_numbers() -> None:
    for record in RECORDS:
        kept = without_texts(record)
        for name in ("status", "no_answer", "values", "chance", "reason", "not_measurable"):
            assert getattr(record, name) == getattr(kept, name)
        changed = {
            field.name
            for field in dataclasses.fields(Record)
            if getattr(record, field.name) != getattr(kept, field.name)
        }
        assert changed <= {"question", "prompt", "choices", "target", "output", "answer", "details"}
    assert make_report([without_texts(record) for record in RECORDS]).suites == make_report(RECORDS).suites


# Where it lies


def test_a_journal_that_lies_there_is_never_written_over(tmp_path: Path) -> None:
    report = tmp_path / "out.json"
    found = []
    for _ in range(3):
        journal = Journal(journal_path(report), HEAD)
        found.append(journal.path.name)
        journal.close(discard=False)
    assert found == ["out.json.journal", "out.json.2.journal", "out.json.3.journal"]
    late = Journal(tmp_path / "out.json.journal", HEAD)  # another session was faster than this one's next step
    assert late.path.name == "out.json.4.journal"
    late.close(discard=False)


@pytest.mark.parametrize("name", ["r" * 250 + ".json", "é" * 120 + ".json"])
def test_the_journal_of_a_report_with_a_long_name(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        Journal(journal_path(tmp_path / name), HEAD).close(discard=False)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_journal_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert journal_path(Path("."), is_folder=True) == Path("eval_report.journal")
    assert journal_path(Path("/"), is_folder=True) == Path("/eval_report.journal")
    Journal(journal_path(tmp_path, is_folder=True), HEAD).close(discard=False)
    second = Journal(journal_path(tmp_path, is_folder=True), HEAD)
    assert second.path == tmp_path / "eval_report.2.journal"
    second.close(discard=False)
    with pytest.raises(ReportError, match="cannot write the journal"):
        Journal(journal_path(tmp_path / "no", is_folder=True), HEAD)


def test_a_journal_that_vanishes_is_read_all_the_same(path: Path) -> None:
    journal = written(path, RECORDS)
    path.unlink()
    records = journal.records([2, 0, 1])
    assert list(zip(records, records, strict=True)) == [(RECORDS[place],) * 2 for place in (2, 0, 1)]
    journal.close(discard=True)
    with pytest.raises(ReportError, match=r"cannot read the journal .*: No such file or directory"):
        list(records)


def test_a_number_that_was_lost_is_no_number(path: Path) -> None:
    """No mean is taken without it: the suite is counted, as the session would have it."""
    lost = make_record("sums", "s2", values={"accuracy": float("nan")})
    written(path, [*RECORDS, lost]).close(discard=False)
    report = read_report(path)
    found = {suite.info.name: suite.summary for suite in report.suites}
    assert (dict(found["sums"].metrics), found["sums"].num_scored) == ({}, 2)
    assert found["capitals"].metrics["accuracy"].value == 1.0
    assert any("'sums' has no metrics" in problem for problem in report.problems)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"cannot write the journal .*No such file or directory"):
        Journal(tmp_path / "no" / "out.json.journal", HEAD)


class FullDisk:
    """A file on a disk that is full after ``num_bytes`` more."""

    def __init__(self, file: Any, num_bytes: int) -> None:
        self._file, self._left = file, num_bytes

    def write(self, data: bytes) -> int:
        if not self._left:
            raise OSError(errno.ENOSPC, "No space left on device")
        count: int = self._file.write(data[: self._left])
        self._left -= count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_disk_that_is_full_is_reported_once_and_costs_texts_alone(path: Path) -> None:
    journal = written(path, RECORDS[:1])
    journal._file = FullDisk(journal._file, 100)  # type: ignore[assignment]
    with pytest.raises(JournalError, match=r"cannot write the journal .*: No space left on device") as caught:
        journal.add(RECORDS[1])
    assert caught.value.place == 1
    assert journal.add(RECORDS[2]) == 2
    journal.add_fact("suite", SuiteInfo(name="later"))
    assert list(journal.records([2, 1, 0])) == [without_texts(RECORDS[2]), without_texts(RECORDS[1]), RECORDS[0]]
    journal.close(discard=False)
    assert list(read_report(path).records) == RECORDS[:1]


def test_a_disk_that_is_full_before_a_record_comes(path: Path) -> None:
    journal = Journal(path, HEAD)
    journal._file = FullDisk(journal._file, 0)  # type: ignore[assignment]
    journal.add_fact("suite", SuiteInfo(name="sums"))
    with pytest.raises(JournalError):
        journal.add(RECORDS[0])
    assert [journal.add(RECORDS[1]), len(journal)] == [1, 2]
    journal.close(discard=True)


# What a killed session leaves

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.reporting.test_journal import HEAD
from tests.reporting.reports import make_record
from pytest_llmeval.reporting.storage.journal import Journal
from pytest_llmeval.reporting.report.records import SuiteInfo

journal = Journal(Path(sys.argv[1]), HEAD)
journal.add_fact("suite", SuiteInfo(name="sums", path="sums.yaml", metrics=("accuracy",)))
for number in range(1000):
    right = number % 4 > 0
    journal.add(make_record(
        "sums", f"s{number}", status="correct" if right else "wrong", values={"accuracy": float(right)},
        prompt="x" * 3000,
    ))
    if number == 800:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_it_had_finished(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], cwd=REPOSITORY, env=clean_environment(), check=False
    )
    assert done.returncode == -signal.SIGKILL
    report = read_report(path)
    assert [record.id for record in report.records] == [f"s{number}" for number in range(801)]
    assert report.records[800].prompt == "x" * 3000
    (suite,) = report.suites
    assert (suite.summary.num_scored, suite.summary.metrics["accuracy"].value) == (801, 600 / 801)
    assert report.stopped == "killed before its end"


def test_a_report_from_a_journal(path: Path) -> None:
    journal = written(path, RECORDS)
    engine = EngineUse(engine="tree", reason="as told")
    for num_requests in (3, 5):
        use = ServerUse(num_requests=num_requests, retries={"429": 1}, left_out=("seed",))
        for process in ("gw0", "gw1"):
            journal.add_fact("use", {"model": "fake", "process": process, **dataclasses.asdict(use)})
        for role in ("judge", "embedder"):  # of the same name
            asked = {"model": "fake", "process": "gw0", "role": role}
            journal.add_fact("use", asked | dataclasses.asdict(ServerUse(num_requests=10 * num_requests)))
    journal.add_fact("engine", {"suite": "capitals", "model": None, **dataclasses.asdict(engine)})
    journal.add_fact("expected", {"suite": "capitals", "model": None, "num_expected": 4})
    journal.close(discard=False)
    report = read_report(path)
    expected = make_report(RECORDS)
    assert (report.schema, report.created, report.exit_code, report.seconds) == (3, HEAD["created"], 2, 0.5)
    assert (report.environment, report.options) == (HEAD["environment"], HEAD["options"])
    assert report.stopped == "killed before its end"
    assert report.problems == ("2 of 4 samples of the suites that had begun were finished",)
    assert [model["name"] for model in report.models] == ["fake"]
    assert use_of_model(report.models[0]) == ServerUse(num_requests=10, retries={"429": 2}, left_out=("seed",))
    assert {judge["role"]: use_of_model(judge) for judge in report.judges} == {
        "judge": ServerUse(num_requests=50),
        "embedder": ServerUse(num_requests=50),
    }
    assert [suite.info.name for suite in report.suites] == ["capitals", "sums"]
    assert [suite.summary.num_expected for suite in report.suites] == [4, 1]
    assert [suite.summary.metrics for suite in report.suites] == [suite.summary.metrics for suite in expected.suites]
    assert [suite.categories for suite in report.suites] == [suite.categories for suite in expected.suites]
    assert [suite.engine for suite in report.suites] == [engine, None]
    assert report.averages == expected.averages
    assert report.definitions == expected.definitions
    assert list(report.records) == RECORDS


def test_suites_that_had_not_begun_are_expected(path: Path) -> None:
    journal = written(path, RECORDS[1:2])
    journal.add_fact("suite", SuiteInfo(name="later", metrics=("accuracy",)))
    journal.add_fact("expected", {"suite": "later", "model": None, "num_expected": 7})
    journal.close(discard=False)
    found = {suite.info.name: suite.summary for suite in read_report(path).suites}
    assert (found["later"].num_expected, found["later"].num_scored, found["later"].metrics["accuracy"].value) == (
        7,
        0,
        None,
    )


def test_the_later_record_of_a_sample_counts(path: Path) -> None:
    """A sample that was run again, as a crash of a worker has it."""
    again = make_record("sums", "s1")
    other = make_record("sums", "s1", model="other")
    written(path, [RECORDS[1], RECORDS[0], again, other]).close(discard=False)
    report = read_report(path)
    assert list(report.records) == [again, RECORDS[0], other]


def test_several_models(path: Path) -> None:
    records = [
        make_record(
            "sums", f"s{number}", model=model, values={"accuracy": right}, status="correct" if right else "wrong"
        )
        for model, right in (("one", 1.0), ("two", 0.0))
        for number in range(3)
    ]
    written(path, records, options={"model": ["one", "two"]}).close(discard=False)
    report = read_report(path)
    assert [(suite.info.name, suite.models) for suite in report.suites] == [("sums", ("one",)), ("sums", ("two",))]
    assert [suite.summary.metrics["accuracy"].value for suite in report.suites] == [1.0, 0.0]
    (comparison,) = report.comparisons
    assert (comparison.first, comparison.second, comparison.differences["accuracy"].difference) == ("one", "two", -1.0)


def test_a_journal_that_is_cut_anywhere_has_the_lines_before(path: Path) -> None:
    written(path, RECORDS).close(discard=False)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(first, len(whole) + 1, 37):
        path.write_bytes(whole[:length])
        num_lines = sum(end <= length for end in ends)
        assert len(read_report(path).records) == max(0, num_lines - 4)
    for torn in (b'{"record": {"suite"', b"\0" * 50):  # by a killed process, and by a power failure
        path.write_bytes(whole + torn)
        assert len(read_report(path).records) == 3
    path.write_bytes(whole[: first - 5])
    assert refused(path) == (
        "cannot read the report out.json.journal:1: the file ends before the report does: it was cut off; copy it again"
    )
    path.write_bytes(whole[: first - 1])
    assert "it was cut off" in refused(path)
    path.write_bytes(b"")
    assert refused(path) == "cannot read the report out.json.journal: it is empty"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{record", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"record": {"suite": "a"}}', "there is no 'id'"),
        ('{"record": 3}', "found 3 (a whole number), expected a record"),
        ('{"suite": {"metrics": []}}', "suite: there is no 'name'"),
        ('{"engine": {"suite": "a"}}', "engine: there is no 'engine'"),
        ('{"suite": 3}', "found 3 (a whole number), expected a suite"),
        ('{"model": []}', "found an empty list, expected a model"),
        ("[1, 2]", "found a list of 2, expected a mapping with one key"),
        ("{}", "found an empty mapping, expected a mapping with one key"),
    ],
)
def test_a_damaged_line_in_the_middle(path: Path, line: str, message: str) -> None:
    written(path, RECORDS).close(discard=False)
    lines = path.read_text(encoding="ascii").splitlines()
    path.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n", encoding="ascii")
    assert refused(path) == f"cannot read the journal out.json.journal:2: {message}"


def test_a_journal_of_another_schema(path: Path) -> None:
    written(path, RECORDS).close(discard=False)
    text = path.read_text(encoding="ascii")
    path.write_text(text.replace('"schema": 3', '"schema": 4', 1), encoding="ascii")
    assert refused(path) == (
        "cannot read the report out.json.journal: its schema is 4, and this version reads 1, 2 and 3; "
        "a newer version of pytest-llmeval-suites wrote it: install that"
    )


def test_a_value_that_was_edited_away_is_a_problem_without_a_traceback(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a session a defect of ours may be behind it, and the log has the traceback; here the file is."""
    written(path, [make_record("s", "q1", values={"accuracy": float("nan")})]).close(discard=False)
    (problem, *_) = read_report(path).problems
    assert problem.startswith("suite 's' has no metrics: ValueError: found nan among the values")
    assert not caplog.records


def test_lines_that_a_later_version_adds(path: Path) -> None:
    journal = written(path, RECORDS)
    journal.close(discard=False)
    with path.open("a", encoding="ascii") as file:
        file.write(json.dumps({"weather": "fine"}) + "\n")
    assert len(read_report(path).records) == 3
