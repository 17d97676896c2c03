"""A server's reply over HTTP: a JSON object, or in what way it has failed."""

from __future__ import annotations

import email.utils
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from pytest_llmeval.text.redaction import hide_values, one_line

__all__ = [
    "LONGEST_MESSAGE",
    "Reply",
    "ServedBy",
    "TimedReply",
    "is_quota",
    "is_unknown_model",
    "may_pass",
    "message_of",
    "retry_after_s",
    "served_by",
    "served_together",
    "status_within",
]

LONGEST_MESSAGE = 300
"""Characters of what a server says of an error."""
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|unknown model|no such model|\bmodel:|\bmodels?\b.*\b(not exist|not found|unknown|access)", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's reply to one ``get``.

    ``headers`` have lower-case names; ``body`` is its JSON, None where it is none; ``text`` begins what was said,
    2,000 characters at most.
    """

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str

    def without(self, key: str) -> Reply:
        """Return the same with ``***`` in the place of a key, however JSON has escaped it."""
        headers = {name: hide_values(value, [key]) for name, value in self.headers.items()}
        return replace(self, headers=headers, body=_without(self.body, key), text=hide_values(self.text, [key]))

    @property
    def is_success(self) -> bool:
        """Return whether the status says that it was answered."""
        return 200 <= self.status < 300

    @property
    def is_html(self) -> bool:
        """Return whether it is a page for people."""
        return "html" in self.headers.get("content-type", "") or self.text.lstrip()[:1] == "<"


def _without(value: Any, key: str) -> Any:
    if isinstance(value, str):
        return hide_values(value, [key])
    if isinstance(value, dict):
        return {_without(name, key): _without(inner, key) for name, inner in value.items()}
    return [_without(inner, key) for inner in value] if isinstance(value, list) else value


class TimedReply(dict[str, Any]):
    """A JSON object, and the seconds from its request, which had waited for its turn, to its end."""

    def __init__(self, body: Mapping[str, Any], *, seconds: float) -> None:
        super().__init__(body)
        self.seconds = seconds


class ServedBy(TypedDict):
    """The giver of a reply, by its own word: fields of any response. None where it does not say."""

    served_model: str | None
    system_fingerprint: str | None


_LONGEST_NAME = 200


def served_by(reply: Mapping[str, Any]) -> ServedBy:
    """Return what a reply says of the model that gave it, and of what that ran on."""
    return ServedBy(served_model=_name(reply, "model"), system_fingerprint=_name(reply, "system_fingerprint"))


def _name(reply: Mapping[str, Any], key: str) -> str | None:
    found = reply.get(key)
    return one_line(found, _LONGEST_NAME) or None if isinstance(found, str) else None


def served_together(parts: Iterable[Any]) -> ServedBy:
    """Return who has given several responses that are one: each name once."""
    found = list(parts)

    def names(key: str) -> str | None:
        return ", ".join(dict.fromkeys(name for one in found if (name := getattr(one, key)) is not None)) or None

    return ServedBy(served_model=names("served_model"), system_fingerprint=names("system_fingerprint"))


def may_pass(status: int) -> bool:
    """Return whether a later try may be answered."""
    return status in (408, 409, 429) or (status >= 500 and status != 501)


def message_of(reply: Reply) -> str:
    """Return what the server says of an error, on one line."""
    body = reply.body
    found: object = reply.text if body is None else ""
    if body is None and reply.is_html:
        found = "an HTML page"
    if isinstance(body, dict):
        error = body.get("error")
        found = error.get("message") if isinstance(error, dict) else error
        found = found or body.get("message") or body.get("detail") or ""
    if not isinstance(found, str):
        found = json.dumps(found)
    return one_line(found.strip().partition("\n")[0], LONGEST_MESSAGE)


def _error_in(reply: Reply) -> Mapping[str, Any]:
    error = reply.body.get("error") if isinstance(reply.body, dict) else None
    return error if isinstance(error, dict) else {}


def status_within(reply: Reply) -> int | None:
    """Return the status of an error that a gateway has wrapped into a 200."""
    code = _error_in(reply).get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else None


def is_quota(reply: Reply, status: int) -> bool:
    """Return whether nothing is left to pay requests with. The words "your quota" alone also mean that of a minute."""
    error = _error_in(reply)
    if status not in (400, 403, 429):
        return False
    words = f"{error.get('code')} {error.get('type')}"
    return bool(re.search(r"insufficient_quota|billing", words)) or "credit balance" in str(error.get("message"))


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait that the header asks for: seconds, or a date."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


def is_unknown_model(reply: Reply) -> bool:
    """Return whether a 404 means the model and not the path."""
    return _UNKNOWN_MODEL.search(f"{_error_in(reply).get('code')} {message_of(reply)}") is not None
