"""One kept reply as a line of JSON, under a key that is made of all that decides the reply.

In the key are the format, the model, and the request with all its settings, its seed and its epoch. The suite, its
scorer, retries, time limits, batch sizes and workers decide no reply, and are not in it. A line begins with its
checksum, time, session and key, so that an index of many lines is built without parsing JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from typing import Any, NamedTuple, TypeAlias

from pytest_llmeval.errors import ModelError
from pytest_llmeval.inference.dispatch import kind_named, kind_of
from pytest_llmeval.text.messages import message_as_json
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    IS_KNOWN,
    JSON,
    EngineUse,
    GenerateRequest,
    Message,
    ModelIdentity,
    Request,
    Response,
    ToolCall,
    as_builtin,
)

__all__ = ["AUDIT", "Head", "Line", "StoredRequest", "decode_line", "encode_line", "fingerprint_of", "read_head"]

AUDIT = "audit"
"""The kind of a request that asks how log-likelihoods are computed: its answer is an ``EngineUse``."""
_FORMAT = 1
"""Part of every key: it grows when an old reply would be misread, as when a field's default changes, or when its key
means something else."""


def fingerprint_of(identity: ModelIdentity, *more: str) -> str:
    """Return the SHA-256 (hex) of what is known of a model; ``more`` is what else decides its replies.

    A model without a fingerprint of its own is known by its name and its first server: the others share the work. Our
    version decides how requests become tokens. Workers take the GPUs in turn, so a device counts without its number.
    """
    left_out = ("self_test", "replicas", "urls", IS_KNOWN)  # measured anew, or said by the fingerprint
    details = {name: value for name, value in identity.details.items() if name not in left_out}
    if identity.fingerprint is None and isinstance(urls := identity.details.get("urls"), list):
        details["urls"] = urls[:1]
    parts: dict[str, JSON] = {
        "name": identity.name if identity.fingerprint is None else None,
        "backend": identity.backend,
        "version": metadata.version("pytest-llmeval-suites"),
        "fingerprint": identity.fingerprint,
        "revision": identity.revision,
        "dtype": identity.dtype,
        "device": None if identity.device is None else identity.device.partition(":")[0],
        "details": details,
        "more": list(more),
    }
    return hashlib.sha256(_canonical(parts).encode("ascii")).hexdigest()


def _as_json(value: object) -> object:
    """Return a turn of a chat, or a number of numpy or torch, as JSON has it. Raise ``ModelError`` for others."""
    if isinstance(value, Message):
        return message_as_json(value)
    if (plain := as_builtin(value)) is value:
        raise ModelError(
            f"found a {type(value).__name__} in a request or in a model's identity, expected what JSON can hold: "
            "replies to it cannot be kept in a store"
        )
    return plain


def _call_as_json(value: object) -> object:
    """Return a tool call of a reply as JSON has it."""
    if isinstance(value, ToolCall):
        return {"name": value.name, "arguments": value.arguments, "text": value.text}
    raise TypeError(f"found a {type(value).__name__} in a reply")


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_json).encode
"""Writes ASCII, and the same text for what is equal."""
_strict = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_call_as_json).encode


class StoredRequest:
    """A request to a model in the form in which it is kept.

    ``model`` is a ``fingerprint_of``, ``text`` the request as canonical JSON, ``key`` the SHA-256 (hex) of both, and
    ``number`` the key's first 16 digits, by which an index finds it.
    """

    __slots__ = ("key", "kind", "model", "number", "text")

    def __init__(self, model: str, request: Request | Mapping[str, Any]) -> None:
        made = request if isinstance(request, Mapping) else _request_to_json(request)
        self.kind: str = made["kind"]
        self.model = model
        self.text = _canonical(made)
        parts = f'{{"format":{_FORMAT},"model":"{model}","request":{self.text}}}'
        self.key = hashlib.sha256(parts.encode("ascii")).hexdigest()
        self.number = int(self.key[:16], 16)


_UNSAID: Mapping[str, tuple[object, ...]] = {
    "json_schema": ("",),
    "reasoning": ((), DEFAULT_TAGS),  # a text without reasoning is the same with the usual tags and without any
    "top_k": (0,),
    "repetition_penalty": (1,),
    "tools": ("",),
}
"""Values of later fields that change nothing: a request with these has the key that it had before."""


def _request_to_json(request: Request) -> dict[str, Any]:
    """Return every field, and what a subclass adds: all that may decide the reply is in the key without further ado."""
    kind, names = kind_of(request), {*_defaults(request), *getattr(request, "__dict__", ())}
    made = {name: value for name in names if (value := getattr(request, name)) not in _UNSAID.get(name, ())}
    made["kind"] = kind.method
    if type(request) is not kind.request:
        made["class"] = f"{type(request).__module__}.{type(request).__qualname__}"
    if isinstance(request, GenerateRequest):  # a suite may say 1 for 1.0, or -0.0
        made["temperature"], made["top_p"] = request.temperature + 0.0, request.top_p + 0.0
    return made


def _defaults(value: Any) -> dict[str, object]:
    """Return the default of each field of a dataclass, but for those of a reply that the line's own head tells."""
    return {field.name: field.default for field in fields(value) if field.name not in ("asked_at", "kept_as")}


class Head(NamedTuple):
    """The part of a line that an index has to know; ``number`` is that of its ``StoredRequest``."""

    number: int
    time: float
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One reply as it is kept.

    ``name`` is what the user called the model, ``time`` when the reply came (Unix, s), and ``session`` the 16 hex
    digits of the session that asked for it.
    """

    request: StoredRequest
    name: str
    time: float
    session: str
    reply: Reply


Reply: TypeAlias = Response | EngineUse
_HEAD = re.compile(
    rb'\{"crc":"([0-9a-f]{8})",(?="time":(\d{10}\.\d{6}),"session":"([0-9a-f]{16})","key":"([0-9a-f]{16}))'
)
_EARLIEST, _LATEST = 1e9, 9_999_999_999.0
"""The first and the last time that have 10 digits."""


def encode_line(line: Line) -> bytes:
    """Return a JSON object of crc, time, session, key, model, request, name and reply: ASCII, with a newline.

    A field of the reply that has its default is left out. Raises ``ValueError`` for a number that JSON does not have.
    """
    request, time = line.request, min(max(line.time, _EARLIEST), _LATEST)
    defaults = _defaults(line.reply)
    reply = {name: value for name in defaults if (value := getattr(line.reply, name)) != defaults[name]}
    text = (
        f'"time":{time:.6f},"session":"{line.session}","key":"{request.key}","model":"{request.model}",'
        f'"request":{request.text},"name":{_strict(line.name)},"reply":{_strict(reply)}}}'
    )
    checked = text.encode("ascii")
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(checked), checked)


def read_head(line: bytes) -> Head | None:
    """Return the head of a line with its newline, or None if the line is damaged or none of ours."""
    found = _HEAD.match(line)
    if found is None or not line.endswith(b"\n") or int(found[1], 16) != zlib.crc32(line[found.end() : -1]):
        return None
    return Head(int(found[4], 16), float(found[2]), found[3].decode("ascii"))


def decode_line(line: bytes) -> Line:
    """Return what ``encode_line`` was given. Raises ``ValueError`` for a damaged line, or one of another version."""
    head = read_head(line)
    if head is None:
        raise ValueError("its checksum is wrong")
    try:
        data: dict[str, Any] = json.loads(line)
        request, reply = StoredRequest(data["model"], data["request"]), data["reply"]
        if data["key"] != request.key:
            raise ValueError("its key is not that of its request")
        kind = EngineUse if request.kind == AUDIT else kind_named(request.kind).response
        if "vector" in reply:
            reply["vector"] = tuple(reply["vector"])  # JSON has lists alone
        if "tool_calls" in reply:
            reply["tool_calls"] = tuple(ToolCall(**call) for call in reply["tool_calls"])
        return Line(request=request, name=data["name"], time=head.time, session=head.session, reply=kind(**reply))
    except (KeyError, TypeError, RecursionError, ModelError) as error:
        raise ValueError(f"it has not the parts of a reply ({type(error).__name__}: {error})") from None
