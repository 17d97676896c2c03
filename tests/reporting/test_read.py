"""Reports from disk: what is written is read, older schemas too, and a file that is no report is told in one line."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.json_form import record_from_text
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from tests.properties import examples
from tests.reporting.reports import make_record, make_report, reports, sealed

SCHEMA_1 = Path(__file__).with_name("data") / "schema_1.json"
"""Written by this plugin's version of commit 2ea00ca, the last with schema 1: two suites on two models."""

KEPT = Path(__file__).with_name("data") / "kept_baseline.json"
"""A baseline of ``--llm-update-baseline`` of schema 3, and beside it all that it said when it was written."""

RECORDS = [
    make_record("capitals", "q1", category="west", question="Capital of France?", prompt="Q: …", output="Paris"),
    make_record("capitals", "q2", category="south", status="wrong", values={"accuracy": 0.0}),
    make_record("sums", "s1", seconds=0.5, num_prompt_tokens=10, num_tokens=2),
    make_record("sums", "s2", status="unscored", reason="too hot", values={}),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A report in a file."""
    write_report(make_report(RECORDS), tmp_path / "out.json")
    return tmp_path / "out.json"


def with_tuple(report: Report) -> Report:
    """Equal to another one whose records are the same, wherever they lie."""
    return replace(report, records=tuple(report.records))


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a report as somebody does who loads it and dumps it again."""
    data = json.loads(path.read_bytes())
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def refused(path: Path) -> str:
    """The one line that says why a file is not read, without its folder."""
    with pytest.raises(ReportError) as caught:
        tuple(read_report(path).records)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}{os.sep}", "")


@settings(max_examples=examples(50))
@given(report=reports)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, report: Report) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    write_report(report, path)
    assert with_tuple(read_report(path)) == report


@settings(max_examples=examples(30))
@given(report=reports, indent=st.sampled_from([None, 0, 1, 2]), is_ascii=st.booleans())
def test_a_reformatted_report_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, report: Report, indent: int | None, is_ascii: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    write_report(report, path)
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=indent, ensure_ascii=is_ascii), encoding="utf-8")
    assert with_tuple(read_report(path)) == report


@pytest.mark.parametrize("change", [lambda data: data.replace(b"\n", b"\r\n"), lambda data: b"\xef\xbb\xbf" + data])
def test_line_endings_and_byte_order_marks_of_other_systems(path: Path, change: Callable[[bytes], bytes]) -> None:
    expected = with_tuple(read_report(path))
    path.write_bytes(change(path.read_bytes()))
    assert with_tuple(read_report(path)) == expected


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    record = make_record(
        values={"accuracy": 1.0, "odd": float("inf")}, details={"loglikelihoods": [-1.0, -float("inf")]}
    )
    report = replace(make_report([make_record()]), records=(record,))
    write_report(report, tmp_path / "out.json")
    (found,) = read_report(tmp_path / "out.json").records
    assert math.isnan(found.values["odd"])
    assert replace(found, values={}) == replace(record, values={}, details={"loglikelihoods": [-1.0, None]})


def test_unknown_keys_are_left_alone(path: Path) -> None:
    expected = with_tuple(read_report(path))

    def add(data: dict[str, Any]) -> None:
        suite = data["suites"][0]
        for part in (data, suite, suite["metrics"]["accuracy"], suite["categories"]["west"], data["records"][0]):
            part["of a later version"] = [1]

    edited(path, add)
    path.write_text(json.dumps(sealed(json.loads(path.read_bytes()))), encoding="utf-8")
    assert with_tuple(read_report(path)) == expected


# Records on disk


def test_records_are_a_sequence(path: Path) -> None:
    records = read_report(path).records
    assert len(records) == 4
    assert list(records) == list(records) == RECORDS
    assert [records[place] for place in (0, 3, -1, -4)] == [RECORDS[place] for place in (0, 3, -1, -4)]
    assert list(records[1:3]) == RECORDS[1:3]
    assert list(records[::-1]) == RECORDS[::-1]
    assert list(reversed(records)) == RECORDS[::-1]
    assert RECORDS[2] in records
    for place in (4, -5):
        with pytest.raises(IndexError):
            records[place]


def test_records_of_an_empty_session(tmp_path: Path) -> None:
    write_report(make_report([]), tmp_path / "out.json")
    report = read_report(tmp_path / "out.json")
    assert (len(report.records), list(report.records), report.suites) == (0, [], ())


def test_a_report_that_changes_while_it_is_in_use(path: Path) -> None:
    records = read_report(path).records
    write_report(make_report(RECORDS[:2]), path)
    with pytest.raises(ReportError, match=re.escape(f"the report {path} was changed while it was in use")):
        list(records)


def test_a_report_that_is_written_over_itself(path: Path) -> None:
    """Its records are read while the new file is written, and the old one is there until that is whole."""
    report = read_report(path)
    before = with_tuple(report)
    write_report(report, path)
    assert with_tuple(read_report(path)) == before


# Older schemas


def test_schema_1() -> None:
    report = read_report(SCHEMA_1)
    raw = json.loads(SCHEMA_1.read_bytes())
    assert (report.schema, report.exit_code, report.stopped) == (1, 0, None)
    assert [(suite.info.name, suite.models) for suite in report.suites] == [
        ("capitals", ("random",)),
        ("capitals", ("majority",)),
        ("sums", ("random",)),
        ("sums", ("majority",)),
    ]
    for suite, old in zip(report.suites, raw["suites"], strict=True):
        assert {name: metric.value for name, metric in suite.macro.items()} == old["macro"]
        assert {metric.n for metric in suite.macro.values()} <= {3}
        found = {name: asdict(metric) for name, metric in suite.summary.metrics.items()}
        assert {name: {key: metric[key] for key in old["metrics"][name]} for name, metric in found.items()} == old[
            "metrics"
        ]
        assert suite.info.metrics == tuple(old["metrics"])
        assert suite.info.fingerprint == old["fingerprint"]
    assert [comparison.second for comparison in report.comparisons] == ["majority", "majority"]
    assert report.comparisons[1].differences["accuracy"].difference == -0.25
    assert {one.p_value for comparison in report.comparisons for one in comparison.differences.values()} == {None}
    assert (report.averages, report.gates, report.definitions) == ((), (), {})
    assert [record.id for record in report.records] == [record["id"] for record in raw["records"]]
    assert {record.cluster for record in report.records} == {None}


NEWER = "a newer version of pytest-llmeval-suites wrote it: install that"


def test_a_page_is_no_report(path: Path) -> None:
    path.write_text("\n<!doctype html>\n<title>A report</title>\n", encoding="utf-8")
    expected = "it is a page, not JSON; name the report (.json) that it was made from"
    assert refused(path) == f"cannot read the report out.json: {expected}"


def test_a_merge_conflict_is_named(path: Path) -> None:
    """Baselines are kept in git, where two branches may each have written one."""
    lines = path.read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines) if '"records"' in line) + 1
    lines[place:place] = ["<<<<<<< HEAD", lines[place], "=======", lines[place], ">>>>>>> feature"]
    path.write_text("\n".join(lines), encoding="utf-8")
    expected = "it has a conflict that git left there; take one side, or write the file anew"
    assert refused(path) == f"cannot read the report out.json:{place + 1}: {expected}"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (4, f"its schema is 4, and this version reads 1, 2 and 3; {NEWER}"),
        (0, "its schema is 0, and this version reads 1, 2 and 3"),
        ("2", "its schema is '2' (text), and this version reads 1, 2 and 3"),
        (True, "its schema is True, and this version reads 1, 2 and 3"),
        (None, "its schema is nothing (null), and this version reads 1, 2 and 3"),
    ],
)
@pytest.mark.parametrize("is_reformatted", [False, True])
def test_other_schemas(path: Path, schema: object, message: str, is_reformatted: bool) -> None:
    if is_reformatted:
        edited(path, lambda data: data.update(schema=schema))
    else:
        text = path.read_text(encoding="ascii")
        path.write_text(text.replace('"schema": 3', f'"schema": {json.dumps(schema)}', 1), encoding="ascii")
    assert refused(path) == f"cannot read the report out.json: {message}"


# Files that are no report


def test_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "out.json") == "cannot read the report out.json: there is no such file"
    message = refused(tmp_path / "no" / "out.json")
    assert message == "cannot read the report out.json: there is no such file"


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out.json").mkdir()
    assert refused(tmp_path / "out.json") == "cannot read the report out.json: it is a folder; name a file in it"


def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == (
        "cannot read the report pipe: it is a pipe or a device; save it in a file first"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "out.json: it is empty"),
        (b" \n", "out.json: it is empty"),
        (b"suite: a\n", "out.json:1: it is not JSON (Expecting value)"),
        (b'{\n "schema": 2,\n "created" "x"\n}', "out.json:3: it is not JSON (Expecting ':' delimiter)"),
        (b"\xff\x00\x80", "out.json: it is not JSON, and not text"),
        (b"[1]", "out.json: it is not a report of this plugin: found a list of 1"),
        (b"{}", "out.json: it is not a report of this plugin: found JSON without a schema"),
        (b'{"results": {"arc": 1}}', "out.json: it is not a report of this plugin: found JSON without a schema"),
        (b'{"schema": 2, "created": ""}', "out.json: records: found nothing (null), expected a list"),
        (b'{"schema": 2, "created": "", "records": []}', "out.json: suites: there are none, expected a list"),
        (b"[" * 100_000, "out.json: it is nested too deeply for a report"),
        (b'{"schema": NaN, "created": ""}', "out.json: NaN is not JSON"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "out.json").write_bytes(content)
    assert refused(tmp_path / "out.json") == f"cannot read the report {message}"


def test_a_report_that_was_cut_off_anywhere(path: Path) -> None:
    whole = path.read_bytes().rstrip()
    for length in range(1, len(whole), 53):
        path.write_bytes(whole[:length])
        line = whole[:length].rstrip().count(b"\n") + 1
        message = refused(path)
        assert re.fullmatch(
            rf"cannot read the report out\.json:({line}|{line + 1}): the file ends before the report does: "
            r"it was cut off; copy it again",
            message,
        ), (length, message)


def with_p(p: float) -> dict[str, Any]:
    found = {"n": 3, "kind": "mean", "first": 0.5, "second": 0.5, "difference": 0.0, "p_value": p}
    return {"suite": "a", "first": "b", "second": "c", "differences": {"d": found}}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data.update(seconds="long"), "seconds: found 'long' (text), expected a number"),
        (lambda data: data.update(exit_code=None), "exit_code: found nothing (null), expected a whole number"),
        (lambda data: data.update(suites={}), "suites: found an empty mapping, expected a list"),
        (lambda data: data.update(suites=[3]), "suites[0]: found 3 (a whole number), expected a mapping"),
        (lambda data: data["suites"][1].pop("name"), "suites[1]: there is no 'name'"),
        (
            lambda data: data["suites"][0].pop("num_scored"),
            "suites[0].num_scored: found nothing (null), expected a whole number",
        ),
        (lambda data: data["suites"][0].update(num_scored=-1), "suites[0].num_scored: found -1, expected 0 or more"),
        (
            lambda data: data["suites"][0]["metrics"]["accuracy"].update(value="NaN"),
            "suites[0].metrics.accuracy.value: found 'NaN' (text), expected a number or null",
        ),
        (
            lambda data: data["suites"][0].update(macro={"accuracy": "high"}),
            "suites[0].macro.accuracy: found 'high' (text), expected a metric",
        ),
        (lambda data: data["suites"][0].update(latency={"n": 1}), "suites[0].latency: there is no 'mean'"),
        (lambda data: data.update(gates=[{"name": "a"}]), "gates[0]: there is no 'kind'"),
        (
            lambda data: data.update(
                comparisons=[{"suite": "a", "first": "b", "second": "c", "differences": {"d": {}}}]
            ),
            "comparisons[0].differences.d: there is no 'n'",
        ),
        (
            lambda data: data.update(comparisons=[with_p(7)]),
            "comparisons[0].differences.d.p_value: found 7 (a whole number), expected a number from 0 to 1 or null",
        ),
        (
            lambda data: data.update(comparisons=[with_p(-1.0)]),
            "comparisons[0].differences.d.p_value: found -1.0 (a number), expected a number from 0 to 1 or null",
        ),
        (
            lambda data: data["records"][1].update(status="great"),
            "records[1]: status: found 'great' (text), expected correct, wrong, scored or unscored",
        ),
        (lambda data: data["records"][1].pop("suite"), "records[1]: there is no 'suite'"),
        (
            lambda data: data["records"][1].update(category=4),
            "records[1]: category: found 4 (a whole number), expected text or null",
        ),
        (
            lambda data: data["records"][1].update(values={"accuracy": "1"}),
            "records[1]: values.accuracy: found '1' (text), expected a number or null",
        ),
        (lambda data: data["records"].append(3), "records[4]: found 3 (a whole number), expected a record"),
    ],
)
def test_damaged_parts(path: Path, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    edited(path, edit)
    assert refused(path) == f"cannot read the report out.json: {message}"


def test_a_damaged_record_is_named_by_its_line(path: Path) -> None:
    lines = path.read_text(encoding="ascii").splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if '"q2"' in line and line.startswith("  {"))
    lines[place] = lines[place].replace('"status": "wrong"', '"status": "bad"')
    path.write_text("".join(lines), encoding="ascii")
    assert refused(path) == (
        f"cannot read the report out.json:{place + 1}: status: found 'bad' (text), "
        "expected correct, wrong, scored or unscored"
    )
    lines[place] = lines[place].replace('"status": "bad"', '"status" "bad"')
    path.write_text("".join(lines), encoding="ascii")
    assert refused(path).startswith(f"cannot read the report out.json:{place + 1}: Expecting ':' delimiter")


def test_a_reformatted_report_that_is_too_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_llmeval.reporting.storage.report_file._MAX_WHOLE_BYTES", 1000)
    assert len(read_report(path).records) == 4
    edited(path, lambda data: None)
    assert refused(path) == (
        "cannot read the report out.json: it was reformatted and is larger than 0 MB; take the file as it was written, "
        "with a record on each line"
    )


def test_only_records_that_are_asked_for_are_parsed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: bytes) -> Record | None:
        parsed.append(json.loads(text)["id"])
        return record_from_text(text)

    monkeypatch.setattr("pytest_llmeval.reporting.storage.disk_records.record_from_text", parse)
    report = read_report(path)
    assert parsed == []
    assert report.records[2].id == "s1"
    assert parsed == ["s1"]


def test_a_kept_baseline_means_what_it_meant_when_it_was_written() -> None:
    """It leaves out fields that have their defaults, so that another default would change every file that was kept.

    A field that is new is in neither file.
    """
    read = read_report(KEPT)
    found = json.loads(json.dumps(asdict(replace(read, records=list(read.records)))))
    expected = json.loads(KEPT.with_name("kept_baseline_as_read.json").read_text("ascii"))
    assert _known(found, expected) == expected


def _known(found: Any, expected: Any) -> Any:
    """Return ``found`` without the fields that ``expected`` lacks."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return {name: _known(own, expected[name]) for name, own in found.items() if name in expected}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [_known(*pair) for pair in zip(found, expected, strict=True)]
    return found
