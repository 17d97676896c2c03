"""One reply as it is kept: a line of JSON, under a key made of everything that decides the reply.

In the key are the format, the model, and the request with all its settings, its seed and its epoch. Not in the key is
what decides no reply: the suite, its scorer, retries, time limits, sizes of batches, workers. A line begins with its
checksum, its time and its key at fixed places, so that an index is built without parsing it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple, TypeAlias

from pytest_llmeval.errors import ModelError
from pytest_llmeval.inference.request_kinds import kind_named, kind_of
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    JSON,
    EngineUse,
    GenerateRequest,
    Message,
    ModelIdentity,
    Request,
    Response,
    as_builtin,
)

__all__ = [
    "MAX_LINE_BYTES",
    "AuditRequest",
    "Head",
    "Line",
    "Question",
    "Reply",
    "decode_line",
    "encode_line",
    "fingerprint_of",
    "identity_of",
    "is_keepable",
    "read_head",
    "read_reply",
]

_FORMAT = 1
"""Part of every key: grows when an old reply would be misread, or its key means something else."""

MAX_LINE_BYTES = 1 << 26
"""A longer line is no reply of ours, and a reply that would make one is not kept."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The question how log-likelihoods are computed, by the keys of the requests that decide it."""

    keys: tuple[str, ...]


StoredRequest: TypeAlias = Request | AuditRequest
Reply: TypeAlias = Response | EngineUse

_AUDIT = "audit"
_DISTRIBUTION = "pytest-llmeval-suites"
_MEASURED_ANEW = ("self_test", "replicas")
_URLS = "urls"


def fingerprint_of(identity: ModelIdentity, *more: str) -> str:
    """Return the SHA-256 (hex) of what is known of a model: its own fingerprint, revision, dtype, kind of device and
    versions.

    Where it has no fingerprint of its own, also its name and the first server that it stands behind; ``more`` is what
    else decides its replies. Our version is in it, as we turn requests into tokens. Workers take the GPUs in turn: the
    number of a device is left out.
    """
    details = {name: value for name, value in identity.details.items() if name not in (*_MEASURED_ANEW, _URLS)}
    urls = identity.details.get(_URLS)
    if identity.fingerprint is None and isinstance(urls, list):
        details[_URLS] = urls[:1]  # the others share its work
    parts: dict[str, JSON] = {
        "name": identity.name if identity.fingerprint is None else None,
        "backend": identity.backend,
        "version": _version(),
        "fingerprint": identity.fingerprint,
        "revision": identity.revision,
        "dtype": identity.dtype,
        "device": None if identity.device is None else identity.device.partition(":")[0],
        "details": details,
        "more": list(more),
    }
    return hashlib.sha256(_canonical(parts).encode("ascii")).hexdigest()


@cache
def _version() -> str:
    return metadata.version(_DISTRIBUTION)


def _as_json(value: object) -> object:
    """Return a form that JSON knows of a turn of a chat, and of numbers of numpy or torch. Raises ``ModelError``."""
    if isinstance(value, Message):
        return {"role": value.role, "content": value.content}
    plain = as_builtin(value)
    if plain is value:
        raise ModelError(
            f"found a {type(value).__name__} in a request or in a model's identity, expected what JSON can hold: "
            "replies to it cannot be kept in a store"
        )
    return plain


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_json).encode
"""ASCII, and the same for what is equal."""
_strict = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Question:
    """A request to a model, in the form in which it is kept.

    ``model`` is a ``fingerprint_of``, ``text`` the request as canonical JSON, ``key`` the SHA-256 (hex) of both.
    """

    __slots__ = ("key", "kind", "model", "text")

    def __init__(self, model: str, request: StoredRequest | Mapping[str, Any]) -> None:
        made = request if isinstance(request, Mapping) else _request_to_json(request)
        self.kind: str = made["kind"]
        self.model = model
        self.text = _canonical(made)
        parts = f'{{"format":{_FORMAT},"model":"{model}","request":{self.text}}}'
        self.key = hashlib.sha256(parts.encode("ascii")).hexdigest()


def _request_to_json(request: StoredRequest) -> dict[str, Any]:
    """Return every field, so that a field which is added later, or by a subclass, is in the key without further ado."""
    if isinstance(request, AuditRequest):
        return {"kind": _AUDIT, "keys": request.keys}
    kind, names = kind_of(request), _fields_of(request)
    made = {"kind": kind.method, **{name: getattr(request, name) for name in names}}
    # As it was before there were such fields: a text without reasoning is the same with tags and without.
    if made.get("json_schema") == "":
        del made["json_schema"]
    if made.get("reasoning") in ((), DEFAULT_TAGS):
        del made["reasoning"]
    if made.get("top_k") == 0:
        del made["top_k"]
    if made.get("repetition_penalty") == 1:
        del made["repetition_penalty"]
    if type(request) is not kind.request:
        made["class"] = f"{type(request).__module__}.{type(request).__qualname__}"
        if others := sorted(getattr(request, "__dict__", {}).keys() - {*names}):
            raise ModelError(
                f"a {type(request).__name__} has attributes that are not fields of a dataclass ({', '.join(others)}): "
                "its replies cannot be kept in a store; make it a dataclass with these fields"
            )
    if isinstance(request, GenerateRequest):  # a suite may say 1 for 1.0, or -0.0
        made["temperature"], made["top_p"] = request.temperature + 0.0, request.top_p + 0.0
    return made


def _fields_of(value: object) -> tuple[str, ...]:
    kind: Any = type(value)
    return _fields(kind)


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in _OF_LINE)


_OF_LINE = ("asked_at", "kept_as")
"""Fields of a reply that the line's time and session say."""


def is_keepable(request: Request, response: Response) -> bool:
    """Return whether a reply is all that was asked for: see ``RequestKind``."""
    return kind_of(request).is_whole(request, response)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One reply as it is kept.

    ``name`` is what the user called the model, ``time`` when the reply came (Unix, s), ``session`` which session asked
    for it: 16 hex digits.
    """

    question: Question
    name: str
    time: float
    session: str
    reply: Reply


def identity_of(session: str, time: float) -> str:
    """Return what tells the reply that a session asked for then from all other replies to the same request."""
    return f"{session}-{time:.6f}"


class Head(NamedTuple):
    """The part of a line that an index has to know. ``key`` are the first 16 hex digits of the key, as a number."""

    key: int
    time: float
    session: str


_CHECKSUM = slice(8, 16)
_CHECKED = 18
_TIME = slice(25, 42)
_SESSION = slice(54, 70)
_BEGINNING_OF_KEY = slice(79, 95)
_KEY = slice(79, 143)
_EARLIEST, _LATEST = 1e9, 9_999_999_999.0
"""Times of one width."""


_NEVER = object()
_LATER: Mapping[str, object] = {
    **dict.fromkeys(("contexts", "documents", "cost", "trace", "reasoning", "tagged")),
    **dict.fromkeys(("served_model", "system_fingerprint")),
    "has_text": True,
    "is_unfinished": False,
}
"""Fields that came later, with what says nothing: a line is then as it was before there was such a field."""


def encode_line(line: Line) -> bytes:
    """Return a JSON object of crc, time, session, key, model, request, name and reply, in this order, in ASCII with a
    newline.

    Raises ``ValueError`` for a number that JSON does not have.
    """
    question = line.question
    time = min(max(line.time, _EARLIEST), _LATEST)
    reply = {field: getattr(line.reply, field) for field in _fields_of(line.reply)}
    reply = {field: value for field, value in reply.items() if _LATER.get(field, _NEVER) != value}
    text = (
        f'"time":{time:.6f},"session":"{line.session}","key":"{question.key}","model":"{question.model}",'
        f'"request":{question.text},"name":{_strict(line.name)},"reply":{_strict(reply)}}}'
    )
    checked = text.encode("ascii")
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(checked), checked)


def read_head(line: bytes) -> Head | None:
    """Return the head of a line; None for a line that is damaged, or none of ours."""
    if line[_CHECKSUM] != b"%08x" % zlib.crc32(line[_CHECKED:-1]) or line[-1:] != b"\n":
        return None
    try:
        return Head(int(line[_BEGINNING_OF_KEY], 16), float(line[_TIME]), line[_SESSION].decode("ascii"))
    except ValueError:
        return None


def read_reply(line: bytes, question: Question) -> Line:
    """Return the reply to a question. Raises ``ValueError`` for a line that is damaged, or that answers another one."""
    head = f'"{question.key}","model":"{question.model}","request":{question.text},'.encode("ascii")
    start = _KEY.start - 1
    if read_head(line) is None or line[start : start + len(head)] != head:
        raise ValueError("it is another question's")
    return _line(question, line, b"{" + line[start + len(head) :])


def decode_line(line: bytes) -> Line:
    """Return what ``encode_line`` was given. Raises ``ValueError`` for a line that is damaged, or of another
    version.
    """
    if read_head(line) is None:
        raise ValueError("its checksum is wrong")
    try:
        data: dict[str, Any] = json.loads(line)
        question = Question(data["model"], data["request"])
        if data["key"] != question.key:
            raise ValueError("its key is not that of its request")
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it has not the parts of a reply ({type(error).__name__}: {error})") from None
    return _line(question, line, line)


def _line(question: Question, line: bytes, rest: bytes) -> Line:
    try:
        data: dict[str, Any] = json.loads(rest)
        reply = data["reply"]
        kind = EngineUse if question.kind == _AUDIT else kind_named(question.kind).response
        if not isinstance(data["name"], str):
            raise TypeError("name")
        if "vector" in reply:
            reply["vector"] = tuple(reply["vector"])  # JSON has lists alone
        session = line[_SESSION].decode("ascii")
        return Line(question=question, name=data["name"], time=float(line[_TIME]), session=session, reply=kind(**reply))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it has not the parts of a reply ({type(error).__name__}: {error})") from None
