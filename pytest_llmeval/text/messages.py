"""Conversations: read from data in the form of OpenAI's chat messages, and written for APIs and for chat templates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from pytest_llmeval.text.documents import written_value
from pytest_llmeval.text.escaping import unusable_character
from pytest_llmeval.text.tool_calls import described_calls, read_tool_calls
from pytest_llmeval.text.wording import describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, Message

__all__ = [
    "CHAT_ROLES",
    "ChatRole",
    "called_names",
    "check_turns",
    "message_as_json",
    "openai_messages",
    "read_messages",
    "shown_turn",
    "template_messages",
]

ChatRole = Literal["system", "user", "assistant", "tool"]
CHAT_ROLES: tuple[ChatRole, ...] = get_args(ChatRole)

_EXPECTED = "expected messages in the form of OpenAI's API: [{role: user, content: …}]"


def read_messages(value: object) -> tuple[Message, ...]:
    """Return the messages of a list, which may be written as text. Raise ``ValueError`` for what is none, in one line.

    Parts of type text are joined by line breaks, as servers do; the role developer is OpenAI's newer word for system.
    Calls of tools get OpenAI's form, with their arguments as they are: text of JSON, or a mapping. Keys that say
    nothing of the conversation are left aside.
    """
    if isinstance(value, str):
        text = value
        value = written_value(text)
        if value is None:
            raise ValueError(f"found {quoted(text)}, {_EXPECTED}, or the JSON text of such a list")
    if not isinstance(value, list | tuple):
        raise ValueError(f"found {describe(value)}, {_EXPECTED}")
    found = []
    for place, entry in enumerate(value, 1):
        try:
            found.append(_message(entry))
        except ValueError as error:
            raise ValueError(f"message {place}: {error}") from None
    return tuple(found)


def check_turns(messages: Sequence[Message]) -> None:
    """Raise ``ValueError`` for messages to which there is no reply."""
    if not messages:
        raise ValueError(f"found an empty list, {_EXPECTED}")
    if messages[-1].tool_calls:
        raise ValueError("the last message calls tools, expected a tool's message with the result behind it")


def _message(entry: object) -> Message:
    if not isinstance(entry, Mapping):
        raise ValueError(f"found {describe(entry)}, {_EXPECTED}")
    if entry.get("role") is None:
        raise ValueError(f"it has no role, {_EXPECTED}")
    role = "system" if entry["role"] == "developer" else entry["role"]
    if role not in CHAT_ROLES:
        raise ValueError(f"role: found {describe(role)}{expected_one_of(str(role), CHAT_ROLES)}")
    for key in _REFUSED:
        if entry.get(key):
            raise ValueError(f"{key}: {_REFUSED[key]}")
    calls = _calls(entry.get("tool_calls"))
    if calls and role != "assistant":
        raise ValueError(f"tool_calls: found them in a message of the role {role}, only the assistant calls tools")
    content = entry.get("content")
    if content is None and not calls:
        raise ValueError("content: found nothing (null), expected text: only a message with tool_calls may have none")
    answered = _text("tool_call_id", entry.get("tool_call_id") or "")
    if answered and role != "tool":
        raise ValueError(f"tool_call_id: found it in a message of the role {role}, only a tool's message has one")
    return Message(
        role=role,
        content=_content(content),
        tool_calls=calls,
        tool_call_id=answered,
        name=_text("name", entry.get("name") or ""),
        has_content=content is not None,
    )


_ONLY_TEXT = "and only text can be shown to a model here"
_REFUSED: Mapping[str, str] = {
    "function_call": "found the old form of a call, expected tool_calls",
    **dict.fromkeys(("images", "image", "audio", "video"), f"found it, {_ONLY_TEXT}"),
}


def _content(value: object) -> str:
    if not isinstance(value, list | tuple):
        return "" if value is None else _text("content", value)
    texts = []
    for place, part in enumerate(value, 1):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and kind == "text":
            texts.append(_text(f"content: part {place}", part.get("text")))
        elif isinstance(kind, str):
            raise ValueError(f"content: part {place} is of type {quoted(kind)}, {_ONLY_TEXT}")
        else:
            raise ValueError(f"content: part {place} is {describe(part)}, expected {{type: text, text: …}}")
    return "\n".join(texts)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: found {describe(value)}, expected text")
    if (problem := unusable_character(value)) is not None:
        raise ValueError(f"{name}: {problem}")
    return value


def _calls(value: object) -> str:
    """Return calls as the text of a JSON list in OpenAI's form; empty for none."""
    if not value:
        return ""
    if isinstance(value, str):
        value = written_value(value) or value
    try:
        found = [_call(entry) for entry in (value if isinstance(value, list | tuple) else [value])]
    except ValueError as error:
        raise ValueError(f"tool_calls: {error}") from None
    return _text("tool_calls", json.dumps(found, ensure_ascii=False))


def _call(entry: object) -> dict[str, Any]:
    (read,) = read_tool_calls([entry])
    if read.arguments is None:
        raise ValueError(f"the arguments of {quoted(read.name)} are {quoted(read.text)}, expected a JSON object")
    own = entry.get("function") if isinstance(entry, Mapping) else None
    written = own.get("arguments") if isinstance(own, Mapping) else None
    is_text = isinstance(written, str) and written.strip()
    function = {"name": read.name, "arguments": written if is_text else dict(read.arguments)}
    id_ = entry.get("id") if isinstance(entry, Mapping) else None
    return {**({"id": _text("id", id_)} if id_ else {}), "type": "function", "function": function}


# For those who read them


def message_as_json(turn: Message) -> dict[str, JSON]:
    """Return a message as ``read_messages`` reads it."""
    made: dict[str, JSON] = {"role": turn.role, "content": turn.content if turn.has_content else None}
    if turn.tool_calls:
        made["tool_calls"] = json.loads(turn.tool_calls)
    for name in ("tool_call_id", "name"):
        if value := getattr(turn, name):
            made[name] = value
    return made


def template_messages(turns: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as chat templates of open models take them, in which the arguments of a call are a mapping."""
    made: list[dict[str, Any]] = []
    for turn in turns:
        message = message_as_json(turn)
        for call in _functions(message):
            call["arguments"] = _mapping(call["arguments"])
        made.append(message)
    return made


def openai_messages(turns: Sequence[Message], names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return messages as OpenAI's API takes them: the arguments of a call are text, and each call has an id.

    A call without one gets ``call_1``, and a tool's message without one that of the first call that has no result yet.
    ``names`` are other names for some functions.
    """
    names = names or {}
    made: list[dict[str, Any]] = []
    waiting: list[str] = []
    count = 0
    for turn in turns:
        message: dict[str, Any] = message_as_json(turn)
        for call in message.get("tool_calls", ()):
            count += 1
            waiting.append(call.setdefault("id", f"call_{count}"))
            function = call["function"]
            if not isinstance(function["arguments"], str):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
            function["name"] = names.get(function["name"], function["name"])
        if turn.role == "tool":
            id_ = message.get("tool_call_id") or (waiting[0] if waiting else None)
            if id_ is not None:
                message["tool_call_id"] = id_
                waiting = [other for other in waiting if other != id_]
            if turn.name:
                message["name"] = names.get(turn.name, turn.name)
        made.append(message)
    return made


def called_names(turns: Sequence[Message]) -> list[str]:
    """Return the names of the functions that the turns call, in order."""
    return [call["name"] for turn in turns for call in _functions(message_as_json(turn))]


def shown_turn(turn: Message) -> str:
    """Return a turn for a reader: ``<tool get_weather> 22 degrees``."""
    calls = described_calls(read_tool_calls(turn.tool_calls)) if turn.tool_calls else ""
    who = f"{turn.role} {turn.name}" if turn.name else turn.role
    return f"<{who}> " + " ".join(part for part in (turn.content, f"[calls {calls}]" if calls else "") if part)


def _functions(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for call in message.get("tool_calls", ()):
        yield call["function"]


def _mapping(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments
