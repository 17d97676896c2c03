"""``llmeval convert --from otel``: rows from exported traces, in the forms and by the conventions of several years."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.cli import main
from pytest_llmeval.data import otel, traces
from pytest_llmeval.data.files import Source
from pytest_llmeval.data.traces import TraceRows
from pytest_llmeval.errors import SuiteError

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.model": "m-1"}
ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Capital of Peru?"}]}]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "Lima"}], "finish_reason": "stop"}]
NEW = {**CHAT, "gen_ai.input.messages": ASKED, "gen_ai.output.messages": SAID}
ROW = {
    "trace_id": "aa",
    "model": "m-1",
    "system": "",
    "question": "Capital of Peru?",
    "messages": [{"role": "user", "content": "Capital of Peru?"}],
    "contexts": [],
    "response": "Lima",
    "tool_calls": [],
}


def any_value(value: Any) -> dict[str, Any]:
    """A value as OTLP's JSON has it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {} if value is None else {"stringValue": value}


def pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def otlp(
    attributes: Mapping[str, Any], *events: tuple[str, Mapping[str, Any]], key: str = "aa/01", start: int = 5
) -> dict[str, Any]:
    """A line of the Collector's file exporter with one span."""
    trace, _, span = key.partition("/")
    written = {
        "traceId": trace,
        "spanId": span,
        "name": "chat m",
        "startTimeUnixNano": str(start),
        "attributes": pairs(attributes),
        "events": [{"name": name, "attributes": pairs(own)} for name, own in events],
    }
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [written]}]}]}


def otlp_log(name: str, attributes: Mapping[str, Any], body: Any = None, key: str = "aa/01") -> dict[str, Any]:
    trace, _, span = key.partition("/")
    record = {"traceId": trace, "spanId": span, "eventName": name, "attributes": pairs(attributes)}
    written = record if body is None else {**record, "body": any_value(body)}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [written]}]}]}


def flat(
    attributes: Mapping[str, Any], *events: tuple[str, Mapping[str, Any]], key: str = "aa/01", start: int = 5
) -> dict[str, Any]:
    """A span as the Python SDK's ``to_json`` has it."""
    trace, _, span = key.partition("/")
    return {
        "name": "chat m",
        "context": {"trace_id": f"0x{trace}", "span_id": f"0x{span}", "trace_state": "[]"},
        "parent_id": None,
        "start_time": f"2026-01-01T00:00:0{start}.000000Z",
        "attributes": dict(attributes),
        "events": [{"name": name, "timestamp": "t", "attributes": dict(own)} for name, own in events],
    }


def flat_log(name: str, attributes: Mapping[str, Any], body: Any = None, key: str = "aa/01") -> dict[str, Any]:
    trace, _, span = key.partition("/")
    own = {**attributes, "event.name": name}
    return {"body": body, "attributes": own, "trace_id": f"0x{trace}", "span_id": f"0x{span}"}


def rows_of(path: Path, *documents: Any, indent: int | None = None) -> tuple[list[dict[str, Any]], TraceRows]:
    path = path / "traces.jsonl"
    path.write_text("".join(json.dumps(document, indent=indent) + "\n" for document in documents))
    found = TraceRows(Source(path, "traces.jsonl"))
    return [*found], found


SPANS = pytest.mark.parametrize("span", [otlp, flat])


@SPANS
@pytest.mark.parametrize("indent", [None, 4])
def test_messages_in_attributes(tmp_path: Path, span: Any, indent: int | None) -> None:
    as_text = {name: json.dumps(value) if "messages" in name else value for name, value in NEW.items()}
    found, counts = rows_of(tmp_path, span(NEW), span(as_text, key="aa/02"), indent=indent)
    assert found == [{"id": "01", **ROW}, {"id": "02", **ROW}]
    assert (counts.num_rows, counts.num_spans, counts.left_out, counts.lost) == (2, 2, {}, {})


OLD_EVENTS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("gen_ai.system.message", {"content": "Be short."}),
    ("gen_ai.user.message", {"content": "Capital of Peru?"}),
    ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Lima"}}),
)
WITH_SYSTEM = {
    **ROW,
    "system": "Be short.",
    "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Capital of Peru?"}],
}


TALK: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("gen_ai.user.message", {"content": "Capital of Chile?"}),
    ("gen_ai.assistant.message", {"content": "Santiago"}),
    ("gen_ai.user.message", {"content": "Capital of Peru?"}),
    ("gen_ai.choice", {"message": {"role": "assistant", "content": "Lima"}}),
)
ORDERS = pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 1, 3), (3, 2, 1, 0)])


def otlp_time(second: int) -> dict[str, str]:
    return {"timeUnixNano": f"{second + 9}000000000"}  # of different lengths


def otlp_observed(second: int) -> dict[str, str]:
    return {"timeUnixNano": "0", "observedTimeUnixNano": f"{second + 9}000000000"}


def flat_time(second: int) -> dict[str, str]:
    return {"timestamp": f"2026-01-01T00:00:0{second}.000000Z"}


def flat_observed(second: int) -> dict[str, str | None]:
    return {"timestamp": None, "observed_timestamp": f"2026-01-01T00:00:0{second}.000000Z"}


@ORDERS
@pytest.mark.parametrize("time", [otlp_time, otlp_observed, flat_time, flat_observed])
def test_log_records_in_any_order(tmp_path: Path, time: Any, order: tuple[int, ...]) -> None:
    is_otlp = time in (otlp_time, otlp_observed)
    logs = []
    for second, (name, body) in enumerate(TALK):
        log = otlp_log(name, {}, body) if is_otlp else flat_log(name, {}, body)
        record = log["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0] if is_otlp else log
        record.update(time(second))
        logs.append(log)
    found, _ = rows_of(tmp_path, (otlp if is_otlp else flat)(CHAT), *(logs[number] for number in order))
    assert [one["content"] for one in found[0]["messages"]] == ["Capital of Chile?", "Santiago", "Capital of Peru?"]
    assert (found[0]["question"], found[0]["response"]) == ("Capital of Peru?", "Lima")


@ORDERS
@pytest.mark.parametrize("time", [otlp_time, flat_time])
def test_events_in_any_order(tmp_path: Path, time: Any, order: tuple[int, ...]) -> None:
    events = [(name, {"gen_ai.event.content": json.dumps(body)}) for name, body in TALK]
    span = (otlp if time is otlp_time else flat)(CHAT, *events)
    written = span["resourceSpans"][0]["scopeSpans"][0]["spans"][0] if time is otlp_time else span
    for second, event in enumerate(written["events"]):
        event.update(time(second))
    written["events"] = [written["events"][number] for number in order]
    found, _ = rows_of(tmp_path, span)
    assert (found[0]["question"], found[0]["response"]) == ("Capital of Peru?", "Lima")


def test_log_records_of_which_one_has_no_time_stay_as_they_are(tmp_path: Path) -> None:
    logs = [flat_log(name, {}, body) for name, body in TALK]
    for log, second in zip(logs[1:], (3, 2, 1), strict=True):
        log.update(flat_time(second))
    found, _ = rows_of(tmp_path, flat(CHAT), *logs)
    assert [one["content"] for one in found[0]["messages"]] == ["Capital of Chile?", "Santiago", "Capital of Peru?"]


@pytest.mark.parametrize(("span", "log"), [(otlp, otlp_log), (flat, flat_log)])
@pytest.mark.parametrize("order", [1, -1])
def test_messages_in_log_records(tmp_path: Path, span: Any, log: Any, order: int) -> None:
    logs = [log(name, {"gen_ai.system": "openai"}, body) for name, body in OLD_EVENTS]
    documents = [logs, [span(CHAT)]][::order]
    found, _ = rows_of(tmp_path, *(one for part in documents for one in part))
    assert found == [{"id": "01", **WITH_SYSTEM}]


@pytest.mark.parametrize(("span", "log"), [(otlp, otlp_log), (flat, flat_log)])
def test_log_records_that_are_twice_in_the_file_or_have_no_span(tmp_path: Path, span: Any, log: Any) -> None:
    logs = [log(name, {}, body) for name, body in OLD_EVENTS]
    lost = log("gen_ai.user.message", {}, {"content": "?"}, key="aa/77")
    found, counts = rows_of(tmp_path, *logs, logs[1], span(CHAT), lost, log("app.started", {}, {"x": 1}))
    assert found == [{"id": "01", **WITH_SYSTEM}]
    assert counts.lost == {"log records without their spans": 1}


@SPANS
@pytest.mark.parametrize(
    "events",
    [
        [
            (name, {key: json.dumps(one) if key == "message" else one for key, one in body.items()})
            for name, body in OLD_EVENTS
        ],
        [(name, {"gen_ai.event.content": json.dumps(body)}) for name, body in OLD_EVENTS],
        [
            (
                "gen_ai.content.prompt",
                {"gen_ai.prompt": json.dumps(WITH_SYSTEM["messages"])},
            ),
            ("gen_ai.content.completion", {"gen_ai.completion": '[{"role": "assistant", "content": "Lima"}]'}),
        ],
        [
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.system_instructions": '[{"type": "text", "content": "Be short."}]',
                    "gen_ai.input.messages": json.dumps(ASKED),
                    "gen_ai.output.messages": json.dumps(SAID),
                },
            )
        ],
    ],
    ids=["attributes", "content", "content.prompt", "details"],
)
def test_messages_in_events_of_a_span(tmp_path: Path, span: Any, events: Any) -> None:
    found, _ = rows_of(tmp_path, span(CHAT, *events))
    assert found == [{"id": "01", **WITH_SYSTEM}]


@SPANS
def test_tool_calls_and_their_results(tmp_path: Path, span: Any) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "Peru"}}
    asked = [
        *ASKED,
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"hits": 3}}]},
    ]
    said = [
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, call], "finish_reason": "tool_call"}
    ]
    new = span({**NEW, "gen_ai.input.messages": asked, "gen_ai.output.messages": said})
    function = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "Peru"}'}}
    old = span(
        CHAT,
        ("gen_ai.user.message", {"content": "Capital of Peru?"}),
        ("gen_ai.assistant.message", {"tool_calls": json.dumps([function])}),
        ("gen_ai.tool.message", {"id": "c1", "content": {"hits": 3} if span is otlp else '{"hits": 3}'}),
        ("gen_ai.choice", {"message": json.dumps({"tool_calls": [function]})}),
        key="aa/02",
    )
    found, _ = rows_of(tmp_path, new, old)
    calls = [{"name": "search", "arguments": {"q": "Peru"}}]
    for row in found:
        assert (row["question"], row["response"], row["tool_calls"]) == ("Capital of Peru?", "", calls)
        assert [one["role"] for one in row["messages"]] == ["user", "assistant", "tool"]
        assert row["messages"][1]["tool_calls"] == calls
        assert row["messages"][2]["content"] == '{"hits": 3}'


@SPANS
def test_documents_are_contexts_of_the_answers_after_them(tmp_path: Path, span: Any) -> None:
    def retrieval(*texts: str | None, key: str, start: int) -> Any:
        documents = [{"id": "d", "score": 0.5, **({} if text is None else {"content": text})} for text in texts]
        own = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps(documents)}
        return span(own, key=key, start=start)

    found, counts = rows_of(
        tmp_path,
        span(NEW, key="aa/01", start=3),
        span(NEW, key="aa/02", start=7),
        retrieval("third", key="aa/05", start=4),
        retrieval("first", None, "second", key="aa/06", start=2),
        retrieval("of another trace", key="bb/07", start=1),
    )
    assert [row["contexts"] for row in found] == [["first", "second"], ["first", "second", "third"]]
    assert counts.left_out == {"that only retrieve documents": 3}
    assert counts.lost == {"retrieved documents without their texts": 1}


@SPANS
def test_an_answer_may_have_documents_itself(tmp_path: Path, span: Any) -> None:
    found, counts = rows_of(tmp_path, span({**NEW, "gen_ai.retrieval.documents": [{"content": "Peru: Lima"}]}))
    assert (found, counts.left_out) == ([{"id": "01", **ROW, "contexts": ["Peru: Lima"]}], {})


@SPANS
def test_what_has_no_place_is_counted_and_named(tmp_path: Path, span: Any) -> None:
    image = [{"role": "user", "parts": [*ASKED[0]["parts"], {"type": "blob", "content": "…"}]}]
    two = [*SAID, {"role": "assistant", "parts": [{"type": "text", "content": "Cusco"}]}]
    found, counts = rows_of(
        tmp_path,
        span({"http.method": "GET"}, key="aa/10"),
        span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}, key="aa/11"),
        span({**NEW, "gen_ai.operation.name": "invoke_agent"}, key="aa/12"),
        span(CHAT, key="aa/13"),
        span({**NEW, "gen_ai.output.messages": []}, key="aa/14"),
        span({**NEW, "gen_ai.input.messages": image}, key="aa/15"),
        span(NEW, key="aa/16"),
        span(NEW, key="aa/16"),
        span({**NEW, "gen_ai.output.messages": two}, key="bb/16"),
        span({**NEW, "gen_ai.input.messages": [3]}, key="aa/17"),
    )
    assert [(row["id"], row["response"]) for row in found] == [("16", "Lima"), ("bb-16", "Lima")]
    assert counts.num_spans == 10 == counts.num_rows + counts.left_out.total()
    assert dict(counts.left_out) == {
        "of no model": 1,
        "of the operation 'execute_tool'": 1,
        "of the operation 'invoke_agent'": 1,
        "without a prompt": 1,
        "without a reply": 1,
        "with a part of the type 'blob'": 1,
        "exported twice": 1,
        "with a message that is not an object": 1,
    }
    assert counts.lost == {"further replies to one prompt": 1}


_KEYS = st.sampled_from(["role", "parts", "content", "type", "tool_calls", "text"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(asked=_JSON, said=_JSON, event=_JSON)
def test_whatever_messages_are_a_row_or_a_reason_comes_of_it(
    tmp_path_factory: pytest.TempPathFactory, asked: Any, said: Any, event: Any
) -> None:
    own = {**CHAT, "gen_ai.input.messages": asked, "gen_ai.output.messages": said}
    span = flat(own, ("gen_ai.user.message", {"content": event}), ("gen_ai.choice", {"message": event}))
    found, counts = rows_of(
        tmp_path_factory.mktemp("any"),
        span,
        {**flat(CHAT, *[(e["name"], e["attributes"]) for e in span["events"]], key="aa/02")},
    )
    assert counts.num_spans == 2 == len(found) + counts.left_out.total()
    for row in found:
        assert isinstance(row["response"], str)
        assert isinstance(row["question"], str)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "traces.jsonl: found no span, expected OTLP as JSON Lines"),
        ("suite: s\n", "traces.jsonl:1: is not JSON: Expecting value (column 1), near 'suite: s'"),
        (json.dumps(otlp(NEW)) + "\n" + json.dumps(otlp(NEW))[:-9] + "\n", "traces.jsonl:2: is not JSON"),
        ('\n{\n  "a": 1,\n', "traces.jsonl:2: found a document that does not end: the file was cut"),
        ("[1]\n", "traces.jsonl:1: found a span or log record as neither OTLP nor the Python SDK has it"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}\n', "traces.jsonl:1: found a span or log record"),
        ('{"resourceMetrics": []}\n', "traces.jsonl: found no span"),
        (
            json.dumps(otlp({"http.method": "GET"})),
            "traces.jsonl: found no row in 1 span; spans left out: 1 of no model",
        ),
        ('{"a": NaN}\n', "traces.jsonl:1: found NaN, which is not JSON"),
        ("[" * 100_000, "traces.jsonl:1: is nested too deeply"),
    ],
)
def test_what_is_no_trace(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("traces.jsonl").write_text(text)
    assert main(["convert", "traces.jsonl", "--from", "otel", "-o", "rows.jsonl"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not Path("rows.jsonl").exists()


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "_MAX_DOCUMENT_BYTES", 300)
    with pytest.raises(SuiteError, match=r"traces.jsonl:1: found a document of more than"):
        rows_of(tmp_path, otlp(NEW))
    monkeypatch.undo()
    monkeypatch.setattr(traces, "_MAX_KEPT_CHARACTERS", 100)
    with pytest.raises(
        SuiteError, match=r"traces.jsonl: is too large: its log records .* split it, with all spans of a"
    ):
        rows_of(tmp_path, *(otlp_log(name, {}, body) for name, body in OLD_EVENTS))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(json.dumps(one) + "\n" for one in (otlp(NEW), otlp({"http.method": "GET"}, key="aa/02")))
    Path("traces.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    command = ["convert", "traces.jsonl.gz", "--from", "otel"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [{"id": "01", **ROW}]
    assert err == "llmeval convert: 1 row of 2 spans; spans left out: 1 of no model\n"
    assert main([*command, "-o", "rows.jsonl"]) == 0
    assert Path("rows.jsonl").read_text() == out
    assert main([*command, "-o", "rows.jsonl"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main([*command, "-o", "suite.yaml"]) == 1
    assert "traces become rows, expected a name that ends in .jsonl" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["convert", "traces.jsonl.gz", "--from", "jaeger"])
    assert caught.value.code == 2


def test_texts_that_are_commands_or_no_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GitHub Actions reads standard output; half a character has no UTF-8 form; NaN is not JSON."""
    text = "##[error]a\ud800\nb"
    call = {"type": "tool_call", "name": "\x1b[1m", "arguments": '{"x": NaN}'}
    said = [{"role": "assistant", "parts": [{"type": "text", "content": text}, call]}]
    (tmp_path / "t.json").write_text(json.dumps(otlp({**NEW, "gen_ai.output.messages": said})))
    assert main(["convert", str(tmp_path / "t.json"), "--from", "otel"]) == 0
    out = capsys.readouterr().out
    assert "##[" not in out
    row = json.loads(out)
    assert (row["response"], row["tool_calls"]) == (text, [{"name": "\x1b[1m", "arguments": '{"x": NaN}'}])


def test_rows_are_the_data_of_a_suite(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    folder = llm_pytester.path
    lines = "".join(json.dumps(flat(NEW, key=f"aa/0{number}"), indent=4) + "\n" for number in range(3))
    (folder / "traces.json").write_text(lines)
    assert main(["convert", str(folder / "traces.json"), "--from", "otel", "-o", str(folder / "rows.jsonl")]) == 0
    llm_pytester.makefile(".yaml", s="suite: s\ndataset: {path: rows.jsonl}\ntarget: \"{{ 'Lima' }}\"\nscore: exact\n")
    result = llm_pytester.runpytest(*workers, "s.yaml")
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=3)
