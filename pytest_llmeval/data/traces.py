"""Makes rows of a data set from traces, by OpenTelemetry's conventions for generative AI: a row for each answer.

Prompts and replies stand in a span's attributes, in its events, or in log records: the conventions have changed over
the years. What has no place in a row is counted by its reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.otel import TOO_LARGE, Event, Span, read_traces
from pytest_llmeval.data.rows import JSON_DECODER
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

__all__ = ["TraceRows"]

_ANSWERING = ("chat", "text_completion", "generate_content")
"""Operations in which a model answers."""
_DOCUMENTS = "gen_ai.retrieval.documents"
_DETAILS = "gen_ai.client.inference.operation.details"
_MAX_KEPT_CHARACTERS = 256_000_000
"""The most characters of log records and documents that are kept until their spans come."""


class _LeftOutError(Exception):
    """The reason why a span is no row."""


@dataclass(slots=True)
class TraceRows:
    """The rows of one file, which is read twice: documents and log records may stand after the spans that need them.

    ``num_rows`` and ``num_spans`` count what came so far. ``left_out`` counts spans that are no rows by their reason,
    and ``lost`` what else has no place in the rows.
    """

    source: Source
    num_rows: int = 0
    num_spans: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    _logs: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    _documents: dict[str, list[tuple[str, list[str]]]] = field(default_factory=dict)
    _num_kept: int = 0

    def __iter__(self) -> Iterator[dict[str, JSON]]:
        """Yield the rows in the order of their spans. Raise ``SuiteError`` as ``read_traces`` does."""
        for one in read_traces(self.source):
            self._keep(one)
        seen: set[tuple[str, str]] = set()
        ids: set[str] = set()
        for span in read_traces(self.source):
            if not isinstance(span, Span):
                continue
            self.num_spans += 1
            try:
                _check_is_an_answer(span)
                if span.key in seen:
                    raise _LeftOutError("exported twice")
                seen.add(span.key)
                row = self._row(span)
            except _LeftOutError as reason:
                self.left_out[str(reason)] += 1
                continue
            trace, own = span.key
            name = own if own not in ids else f"{trace}-{own}"
            ids.add(name)
            self.num_rows += 1
            yield {"id": name, **row}
        if num_left := sum(map(len, self._logs.values())):
            self.lost["log records without their spans"] += num_left

    def _keep(self, one: Span | Event) -> None:
        if isinstance(one, Event):
            if one.name.startswith("gen_ai."):
                known = self._logs.setdefault(one.key, [])
                if one not in known:  # the Collector may export one twice
                    known.append(one)
                    self._count(len(json.dumps([dict(one.attributes), one.body])))
        elif _DOCUMENTS in one.attributes:
            texts = [text for document in _listed(one.attributes[_DOCUMENTS]) for text in self._texts_of(document)]
            self._documents.setdefault(one.key[0], []).append((one.start, texts))
            self._count(sum(map(len, texts)))

    def _count(self, num_characters: int) -> None:
        self._num_kept += num_characters
        if self._num_kept > _MAX_KEPT_CHARACTERS:
            millions = _MAX_KEPT_CHARACTERS // 1_000_000
            raise self.source.error(
                f"is too large: its log records and retrieved documents have more than {millions} million characters; "
                f"{TOO_LARGE}"
            )

    def _texts_of(self, document: JSON) -> list[str]:
        found = document if isinstance(document, Mapping) else {}
        texts = [text for name in ("content", "text", "page_content") if isinstance(text := found.get(name), str)]
        if not texts:
            self.lost["retrieved documents without their texts"] += 1
        return texts[:1]

    def _row(self, span: Span) -> dict[str, JSON]:
        attributes = span.attributes
        asked, replies = _messages_of(attributes, _in_order([*span.events, *self._logs.pop(span.key, ())]))
        questions = [one["content"] for one in asked if one["role"] == "user"]
        if not questions:
            raise _LeftOutError("without a prompt")
        if not replies:
            raise _LeftOutError("without a reply")
        if len(replies) > 1:
            self.lost["further replies to one prompt"] += len(replies) - 1
        reply = replies[0]
        contexts = [
            text
            for start, texts in sorted(self._documents.get(span.key[0], ()), key=lambda one: one[0])
            if not start or not span.start or start <= span.start
            for text in texts
        ]
        return {
            "trace_id": span.key[0],
            "model": attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model"),
            "system": "\n\n".join(str(one["content"]) for one in asked if one["role"] in ("system", "developer")),
            "question": questions[-1],
            "messages": asked,
            "contexts": contexts,
            "response": reply["content"],
            "tool_calls": reply.get("tool_calls", []),
        }


def _check_is_an_answer(span: Span) -> None:
    """Raise ``_LeftOutError`` for a span in which no model answers."""
    operation = span.attributes.get("gen_ai.operation.name")
    if operation in _ANSWERING or (operation is None and "gen_ai.request.model" in span.attributes):
        return
    if _DOCUMENTS in span.attributes:
        raise _LeftOutError("that only retrieve documents")
    raise _LeftOutError("of no model" if operation is None else f"of the operation {quoted(str(operation))}")


def _in_order(events: list[Event]) -> list[Event]:
    """Return the events in the order of their times, in which files need not have them; as they are if one has none."""
    return sorted(events, key=lambda event: event.time) if all(event.time for event in events) else events


# Messages


def _messages_of(
    attributes: Mapping[str, JSON], events: Sequence[Event]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages of a prompt, and the replies: as the newest conventions have them, else as older ones do."""
    whole = {**attributes}
    for event in events:
        if event.name == _DETAILS:
            whole |= event.attributes
            whole |= event.body if isinstance(event.body, dict) else {}
    if "gen_ai.input.messages" in whole or "gen_ai.output.messages" in whole:
        system = _text_of_parts(whole.get("gen_ai.system_instructions"))
        first = [{"role": "system", "content": system}] if system else []
        asked = [message for one in _listed(whole.get("gen_ai.input.messages")) for message in _read(one)]
        replies = [message for one in _listed(whole.get("gen_ai.output.messages")) for message in _read(one)]
        return [*first, *asked], replies
    asked, replies = [], []
    for event in events:
        kind = event.name.removeprefix("gen_ai.")
        if kind == "content.prompt":
            asked += [message for one in _listed(event.attributes.get("gen_ai.prompt")) for message in _read(one)]
        elif kind == "content.completion":
            replies += [message for one in _listed(event.attributes.get("gen_ai.completion")) for message in _read(one)]
        elif kind == "choice":
            body = _body_of(event)
            message = _structured(body.get("message", body))
            replies += _read({"role": "assistant", **(message if isinstance(message, dict) else {"content": message})})
        elif kind.endswith(".message"):
            asked += _read({"role": kind.removesuffix(".message"), **_body_of(event)})
    return asked, replies


def _body_of(event: Event) -> dict[str, Any]:
    for found in (event.body, event.attributes.get("gen_ai.event.content")):
        body = _structured(found)
        if isinstance(body, dict):
            return body
    return dict(event.attributes)


def _structured(value: JSON) -> Any:
    """Return what a text says as JSON, as attributes of spans hold structures; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return JSON_DECODER.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def _listed(value: JSON) -> list[Any]:
    found = _structured(value)
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def _text_of_parts(value: JSON) -> str:
    if value is None:
        return ""
    return "".join(str(one["content"]) for one in _read({"role": "system", "parts": _listed(value)}))


def _read(message: Any) -> list[dict[str, Any]]:
    """Return a message with its text and its tool calls, and each result of a tool as one of its own.

    Raise ``_LeftOutError`` for a part that is no text: without it, it would be another prompt.
    """
    if isinstance(message, str):
        return [{"role": "user", "content": message}]
    if not isinstance(message, dict):
        raise _LeftOutError("with a message that is not an object")
    role = str(message.get("role") or "user")
    parts = message.get("parts", message.get("content"))
    if role == "tool" and not isinstance(parts, str | list | None):
        return [{"role": role, "content": _as_text(parts)}]
    texts: list[str] = []
    calls: list[JSON] = [_call(one) for one in _listed(message.get("tool_calls"))]
    results: list[dict[str, Any]] = []
    for part in [parts] if isinstance(parts, str) else _listed(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif kind == "text":
            texts.append(str(part.get("content", part.get("text", ""))))
        elif kind == "tool_call":
            calls.append(_call(part))
        elif kind == "tool_call_response":
            results.append({"role": "tool", "content": _as_text(part.get("response", part.get("result")))})
        elif kind != "reasoning":
            raise _LeftOutError(f"with a part of the type {quoted(str(kind))}")
    if results and not texts and not calls:
        return results
    own = {"role": role, "content": "".join(texts), **({"tool_calls": calls} if calls else {})}
    return [own, *results]


def _call(one: Any) -> dict[str, JSON]:
    if not isinstance(one, dict):
        raise _LeftOutError("with a tool call that is not an object")
    inner = one.get("function")
    function: dict[str, Any] = inner if isinstance(inner, dict) else one
    return {"name": str(function.get("name", "")), "arguments": _structured(function.get("arguments"))}


def _as_text(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
