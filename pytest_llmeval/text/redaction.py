"""Keeping secrets and line breaks out of messages.

Libraries put URLs, headers and whole reports into the text of an exception; a message of ours quotes one line of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pytest_llmeval.errors import ModelError
from pytest_llmeval.text.escaping import printable

__all__ = ["describe", "model_error", "one_line", "redact"]

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_AUTH$", re.IGNORECASE
)
_SECRET_TEXT = (
    (re.compile(r"(?<=://)[^/\s@]+@"), ""),
    (re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b"), "***"),
    (re.compile(r"\b(sk|pk|ghp|gho)[-_][A-Za-z0-9_-]{16,}\b"), "***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)\b((?:hf_|access_|auth_|api_)?(?:token|secret|password|api[_-]?key|signature|credential)=)[^\s&'\"]+"
        ),
        r"\1***",
    ),
)
_SPACES = re.compile(r"[ \t\r\n\u2028\u2029]+")
_SHORTEST_SECRET = 8
_LONGEST_MESSAGE = 1000


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` without values of environment variables named like secrets, tokens, and credentials in URLs."""
    environ = os.environ if environ is None else environ
    for name in list(environ):
        value = environ.get(name, "")  # another thread may have taken it away, as pytest does with its own
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET and os.sep not in value:
            text = text.replace(value, "***")
    for pattern, replacement in _SECRET_TEXT:
        text = pattern.sub(replacement, text)
    return text


def one_line(text: str, limit: int = 300) -> str:
    """The words of ``text`` on one line without secrets, or more than ``limit`` characters.

    A control character is shown as an escape: a reader is to see that it was there.
    """
    safe = printable(_SPACES.sub(" ", redact(text)).strip(" "))
    line = " ".join("".join(c if c.isprintable() else " " for c in safe).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def describe(error: BaseException, limit: int = 300) -> str:
    """An exception as one line: its type and what it says."""
    text = one_line(str(error), limit)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def model_error(name: str, problem: str) -> ModelError:
    """The ``ModelError`` that says, in one line, what is wrong with the model that the user calls ``name``."""
    return ModelError(one_line(f"model {name}: {problem}", _LONGEST_MESSAGE))
