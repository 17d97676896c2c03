"""Reads the spans and log records of exported OpenTelemetry traces, document by document.

Two forms are read: OTLP as JSON Lines, which the Collector's file exporter writes, and the flat JSON of the Python
SDK's console exporters. A document stands on one line, or on several with ``{`` and ``}`` on lines of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_llmeval.data.files import Source, decode, open_bytes
from pytest_llmeval.data.rows import MAX_DATA_BYTES, parse_json
from pytest_llmeval.types import JSON

__all__ = ["TOO_LARGE", "Event", "Span", "read_traces"]

TOO_LARGE = "split it, with all spans of a trace in one file"
"""The end of a message about a file that is too large: how to make it smaller."""

_MAX_DOCUMENT_BYTES = 64_000_000

Attributes: TypeAlias = Mapping[str, JSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A log record of a span, or an event in it. ``key`` is the ids of trace and span; ``time`` orders the events of a
    span, "" if it is not known.
    """

    key: tuple[str, str]
    name: str
    attributes: Attributes
    body: JSON = None
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span. ``key`` is the ids of trace and span; ``start`` orders the spans of a trace, "" if it is not known."""

    key: tuple[str, str]
    attributes: Attributes
    start: str = ""
    events: Sequence[Event] = field(default=())


def read_traces(source: Source) -> Iterator[Span | Event]:
    """Yield the spans and log records of a file; other documents, such as metrics, are passed over.

    Raise ``SuiteError`` for a file that cannot be read or is too large, and at the line of what is not JSON, or not as
    either form has it.
    """
    for line, document in _documents(source):
        try:
            yield from _in_document(document)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise source.error("found a span or log record as neither OTLP nor the Python SDK has it", line) from None


def _documents(source: Source) -> Iterator[tuple[int, Any]]:
    begun: list[bytes] = []
    size = first = 0
    with open_bytes(source, max_bytes=MAX_DATA_BYTES, too_large=TOO_LARGE) as file:
        for number in itertools.count(1):
            line = file.readline(_MAX_DOCUMENT_BYTES + 1)
            if not line:
                break
            if not begun:
                if not line.strip():
                    continue
                first, size = number, 0
            begun.append(line)
            size += len(line)
            if size > _MAX_DOCUMENT_BYTES:
                raise source.error(
                    f"found a document of more than {_MAX_DOCUMENT_BYTES // 1_000_000} MB; have the exporter write "
                    "fewer spans in a batch",
                    first,
                )
            is_whole = line.strip() != b"{" if len(begun) == 1 else line.rstrip() == b"}"
            if is_whole:
                yield first, parse_json(source, decode(source, b"".join(begun), first).rstrip(), first)
                begun = []
    if begun:
        raise source.error("found a document that does not end: the file was cut", first)


def _in_document(document: Any) -> Iterator[Span | Event]:
    if not isinstance(document, dict):
        raise TypeError(document)
    for resource in document.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from map(_otlp_span, scope.get("spans") or ())
    for resource in document.get("resourceLogs") or ():
        for scope in resource.get("scopeLogs") or ():
            yield from map(_otlp_log, scope.get("logRecords") or ())
    if isinstance(document.get("context"), dict):
        yield _flat_span(document)
    elif "trace_id" in document and "body" in document:
        yield _flat_log(document)


# OTLP


def _otlp_span(span: Mapping[str, Any]) -> Span:
    key = (_id(span["traceId"]), _id(span["spanId"]))
    events = [
        Event(
            key=key,
            name=str(event.get("name", "")),
            attributes=_otlp_attributes(event.get("attributes")),
            time=_otlp_time(event.get("timeUnixNano")),
        )
        for event in span.get("events") or ()
    ]
    attributes = _otlp_attributes(span.get("attributes"))
    return Span(key=key, attributes=attributes, start=_otlp_time(span.get("startTimeUnixNano")), events=events)


def _otlp_log(record: Mapping[str, Any]) -> Event:
    attributes = _otlp_attributes(record.get("attributes"))
    return Event(
        key=(_id(record.get("traceId") or ""), _id(record.get("spanId") or "")),
        name=str(record.get("eventName") or attributes.get("event.name") or ""),
        attributes=attributes,
        body=_otlp_value(record.get("body") or {}),
        time=_otlp_time(record.get("timeUnixNano")) or _otlp_time(record.get("observedTimeUnixNano")),
    )


def _otlp_time(nanoseconds: Any) -> str:
    """Return a time that is compared as text; 0 means that it is not known."""
    digits = str(nanoseconds or "").lstrip("0")
    return digits.zfill(20) if digits else ""


def _otlp_attributes(pairs: Any) -> dict[str, JSON]:
    return {str(pair["key"]): _otlp_value(pair.get("value") or {}) for pair in pairs or ()}


def _otlp_value(value: Mapping[str, Any]) -> JSON:
    if "arrayValue" in value:
        return [_otlp_value(one) for one in value["arrayValue"].get("values") or ()]
    if "kvlistValue" in value:
        return _otlp_attributes(value["kvlistValue"].get("values"))
    if "intValue" in value:
        return int(value["intValue"])
    found: JSON = next(iter(value.values()), None)
    return found


# The Python SDK's console exporters


def _flat_span(span: Mapping[str, Any]) -> Span:
    key = (_id(span["context"]["trace_id"]), _id(span["context"]["span_id"]))
    events = [
        Event(
            key=key,
            name=str(event.get("name", "")),
            attributes=dict(event.get("attributes") or {}),
            time=str(event.get("timestamp") or ""),
        )
        for event in span.get("events") or ()
    ]
    attributes = dict(span.get("attributes") or {})
    return Span(key=key, attributes=attributes, start=str(span.get("start_time") or ""), events=events)


def _flat_log(record: Mapping[str, Any]) -> Event:
    attributes = dict(record.get("attributes") or {})
    return Event(
        key=(_id(record["trace_id"] or ""), _id(record.get("span_id") or "")),
        name=str(record.get("event_name") or attributes.get("event.name") or ""),
        attributes=attributes,
        body=record["body"],
        time=str(record.get("timestamp") or record.get("observed_timestamp") or ""),
    )


def _id(text: str) -> str:
    return text.removeprefix("0x").lower()
