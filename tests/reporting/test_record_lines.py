"""A line of a report is read by two ways, a fast and a strict one: they agree, or the fast one leaves it."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, without_texts
from pytest_llmeval.reporting.storage.disk_records import DECODER, RECORD_PREFIX, DiskRecords, records_of_block
from pytest_llmeval.reporting.storage.json_form import record_from_json, record_from_text, record_to_json
from tests.properties import examples
from tests.reporting.reports import make_record
from tests.reporting.reports import records as made_records

_NUMBERS = st.one_of(
    st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([1e300, -0.0, 10**30])
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
_FIELDS = (*Record.__dataclass_fields__, "unknown")
_GOOD = {"suite": "s", "id": "1", "nodeid": "s.yaml::1", "status": "wrong", "values": {"accuracy": 0.0}}


def both(text: str) -> None:
    """Compare the two ways on one line."""
    fast = record_from_text(text.encode())
    if fast is None:
        return
    slow = record_from_json(DECODER.decode(text))
    assert record_to_json(fast) == record_to_json(slow)
    assert [type(value) for value in fast.to_dict().values()] == [type(value) for value in slow.to_dict().values()]


@settings(max_examples=examples(300))
@given(changes=st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=4), whole=st.booleans())
def test_both_ways_agree(changes: dict[str, Any], whole: bool) -> None:
    both(json.dumps({**(_GOOD if whole else {}), **changes}))


@pytest.mark.parametrize(
    "text",
    [
        '{"suite": "s", "suite": "t", "id": "1", "nodeid": "n", "status": "wrong"}',
        '{"suite": "\\ud800", "id": "1", "nodeid": "n", "status": "wrong"}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong", "details": {"a": NaN, "a": 1}}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong", "details": {"a": 2, "a": 1}}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong", "values": {"a": 1e400}}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong", "details": {"a": 1e400}}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong", "details": {"a": 1E-5, "b": 1.0}}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong", "num_tokens": 1.0}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong"}}',
        '{"suite": "s", "id": "1", "nodeid": "n", "status": "wrong",}',
        '[{"suite": "s"}]',
        "",
    ],
)
def test_what_is_unusual(text: str) -> None:
    if record_from_text(text.encode()) is not None:
        both(text)


def test_what_the_plugin_writes_is_read_fast() -> None:
    record = Record(
        suite="é", id="1", nodeid="n", status="correct", values={"accuracy": 1.0, "lost": math.nan}, choices=("a", "b")
    )
    text = record_to_json(record)
    assert record_from_text(text.encode()) is not None
    both(text)


@given(
    record=st.builds(
        Record,
        suite=st.text(),
        id=st.text(),
        nodeid=st.text(),
        status=st.sampled_from(["correct", "wrong", "scored", "unscored"]),
        category=st.none() | st.text(),
        output=st.none() | st.text(min_size=90, max_size=120),
        no_answer=st.booleans(),
        values=st.dictionaries(st.sampled_from("abc"), st.floats(allow_nan=False)),
        question=st.none() | st.text(),
        choices=st.sampled_from([(), ("a",)]),
        details=st.sampled_from([{}, {"a": 1}]),
        cost=st.none() | st.floats(0, 1),
    )
)
def test_without_texts_the_rest_stays(record: Record) -> None:
    before, kept = record.to_dict(), without_texts(record).to_dict()
    gone: dict[str, Any] = {
        "question": None,
        "prompt": None,
        "choices": (),
        "target": None,
        "answer": None,
        "details": {},
    }
    output = record.output[:100] if record.output is not None and record.no_answer else None
    assert kept == {**before, **gone, "output": output}
    assert record.to_dict() == before
    assert hash(without_texts(record).suite) == hash(record.suite)
    with pytest.raises(AttributeError):
        without_texts(record).id = "2"  # type: ignore[misc]


_CHANGES = st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=3)


def alike(texts: list[str]) -> None:
    """Compare what is read of many lines at a time with what is left of each."""
    fast = records_of_block(",\n".join(texts).encode() + b"\n")
    if fast is not None:
        assert list(fast) == [without_texts(record_from_json(DECODER.decode(text))) for text in texts]


@settings(max_examples=examples(300))
@given(
    lines=st.lists(
        st.tuples(st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=3), st.integers(0, 9)),
        min_size=1,
        max_size=3,
    )
)
def test_many_lines_at_a_time_are_read_as_each(lines: list[tuple[dict[str, Any], int]]) -> None:
    alike([json.dumps({**(_GOOD if number else {}), **changes}) for changes, number in lines])


@settings(max_examples=examples(200))
@given(found=st.lists(made_records, min_size=1, max_size=5))
def test_what_is_written_is_read_many_lines_at_a_time(found: list[Record]) -> None:
    texts = [record_to_json(record) for record in found]
    alike(texts)
    block = ",\n".join(texts).encode()
    is_plain = all(
        number is not None for record in found for number in json.loads(record_to_json(record))["values"].values()
    )
    assert (records_of_block(block) is not None) == (is_plain and b"NaN" not in block and b"Infinity" not in block)


@pytest.mark.parametrize("kind", ["report", "report with a line that is read alone", "journal", "report, a selection"])
def test_records_on_disk_are_read_without_their_texts_as_one_by_one(tmp_path: Path, kind: str) -> None:
    path, offsets, lines = tmp_path / "records", array("Q"), list[bytes]()
    for number in range(100):
        values = {"brier": math.nan if number == 40 and "alone" in kind else number / 3}
        record = make_record(id_=f"q{number}", question="Why?", prompt="Why?", output="So.", values=values)
        line = record_to_json(record).encode()
        if kind == "journal":
            lines += [b'{"engine": {}}\n'] * (number % 3 == 0)
            line = RECORD_PREFIX + line + b"}"
        offsets.append(sum(map(len, lines)))
        lines.append(line + (b"\n" if kind == "journal" or number == 99 else b",\n"))
    path.write_bytes(b"".join(lines))
    if kind == "journal":  # two were recorded again, and stand where they first stood
        offsets[0], offsets[70] = offsets[90], offsets[1]
    places = [5, 3, 70] if "selection" in kind else None
    found = DiskRecords(path, offsets, places=places, are_together=kind.startswith("report"))
    assert list(map(repr, found.without_texts())) == [repr(without_texts(record)) for record in found]


def test_two_records_on_a_line_are_refused(tmp_path: Path) -> None:
    lines = [record_to_json(make_record(id_=f"q{number}")) for number in range(3)]
    path = tmp_path / "records"
    path.write_text(f"{lines[0]}, {lines[1]},\n{lines[2]}\n", encoding="ascii")
    found = DiskRecords(path, [0, len(lines[0]) + len(lines[1]) + 4], are_together=True)
    for read in (found.without_texts, found.__iter__):
        with pytest.raises(ReportError, match=r"cannot read the report .*records:1: "):
            list(read())
