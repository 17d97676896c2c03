"""Keeping secrets and line breaks out of messages.

Libraries put URLs, headers and whole reports into the text of an exception; a message of ours quotes one line of it.
A secret is known by its value (of environment variables and arguments that are named like secrets, and what
``remember`` is told), by its form (keys of well-known services), or by the name that stands before it
(``password=…``, ``"api_key": "…"``). Ordinary words, numbers and paths stay: a message without them says nothing.
"""

from __future__ import annotations

import html
import json
import ntpath
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from pytest_llmeval.errors import ModelError
from pytest_llmeval.text.escaping import printable

__all__ = [
    "HIDDEN",
    "describe",
    "hidden_arguments",
    "hide_forms",
    "hide_values",
    "hides_value_of",
    "is_secret_name",
    "is_secret_value",
    "model_error",
    "one_line",
    "redact",
    "redact_inside",
    "remember",
]

HIDDEN = "***"
"""The text in a secret's place."""
_LONGEST_MESSAGE = 1000
_SPACES = re.compile(r"[ \t\r\n\u2028\u2029]+")

# Names

_SECRET_WORD = re.compile(
    r"auth|authorization|cookie|credentials?|dsn|jwt|key|pass|pat|pw|pwd|sig|signature|webhook|"
    r".*(?:password|passwd|passphrase|secret|token|apikey)"
)
_OF_PASSWORDS = re.compile(r"(?i)pass|pwd|pw\b|secret")
_OF_KEYS = re.compile(r"(?i)token|credential|(?:api|access|private)[-_]?key")


@lru_cache(maxsize=4_096)
def is_secret_name(name: str) -> bool:
    """Whether an argument or variable of this name holds a secret: ``api_key``, ``PGPASSWORD``, not ``max_tokens``."""
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return any(map(_SECRET_WORD.fullmatch, words))


def hidden_arguments(model: str) -> list[str]:
    """Return the arguments that a model's name hides although no secret is named like them: they may decide replies."""
    names = re.findall(rf"[?&]([^?&=]+)={re.escape(HIDDEN)}(?=[& ]|$)", model)
    return [name for name in names if not is_secret_name(name)]


# Values

_SHORTEST = 6
_SHORTEST_WORDS = 8
_WITHOUT_NEIGHBOURS = 16
"""Shorter values are hidden only where they are no part of a word or a number."""
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,:_/-]{0,14}")
_WORDS = re.compile(r"[^\W\d_]+(?:[-_. ][^\W\d_]+)*")
_NAME_PART = r"(?:[^\W\d_]{1,20}[0-9]{0,3}|[0-9]{1,8}(?:x[0-9]{1,3})?[^\W\d_]{0,2})"
_NAME_OF_SOMETHING = re.compile(rf"{_NAME_PART}(?:[-_./:,]+{_NAME_PART})*[.]?")
"""``gpt-4o-mini``, ``Qwen2.5-Coder-32B``, ``data/test.jsonl``."""
_PLACEHOLDER = re.compile(
    r"(?:sk-)?no-key(?:-needed|-required)?|not[-_ ](?:needed|required|used)|(?:dummy|fake|local|test|your-api)[-_]key|"
    r"anything|change-?me|disabled|dummy|enabled|example|lm-studio|localhost|ollama|openai|password|placeholder|"
    r"required|secret|undefined|unused",
    re.IGNORECASE,
)
"""The words that people write where a server wants some key."""

_REMEMBERED: set[str] = set()
"""State of the process, as its environment is: an exception becomes text where no session is known (in threads of
models, in the ``llmeval`` command, in a notebook), and what is a secret in one session of a process is one in the next.
"""


@lru_cache(maxsize=4_096)
def is_secret_value(value: str, name: str = "") -> bool:
    """Whether a value, of a variable or argument ``name``, can be a secret that is hidden wherever it stands.

    Numbers, placeholders, paths and addresses are none. Words are one where the name says so (``…_TOKEN``) and they
    have 8 letters, of a password 6. Where the name is not that of a secret, a sentence and what may be the name of a
    model are none.
    """
    text = value.strip()
    if len(text) < _SHORTEST or _PLACEHOLDER.fullmatch(text) or _NUMBER.fullmatch(text) or _is_path(text):
        return False
    if re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        return hide_forms(text) != text
    if not is_secret_name(name):
        return _NAME_OF_SOMETHING.fullmatch(text) is None and len(text.split()) == 1
    if _WORDS.fullmatch(text) is None or _OF_PASSWORDS.search(name):
        return True
    return len(text) >= _SHORTEST_WORDS and _OF_KEYS.search(name) is not None


def _is_path(text: str) -> bool:
    """Whether it is absolute, of a home or there.

    A key may begin with a slash, too: a path whose first folder does not exist is taken for one.
    """
    if re.match(r"~[\w.-]*/", text) or ntpath.splitdrive(text)[0][1:2] == ":":
        return True
    first = text.split("/", 2)[1] if text.startswith("/") else text
    try:
        return os.path.exists(f"/{first}" if text.startswith("/") else text)
    except (OSError, ValueError):  # too long, a null character
        return False


def remember(value: str) -> None:
    """Hide this secret in all messages of this process from now on."""
    _REMEMBERED.add(value.strip())


def _of_environment(environ: Mapping[str, str]) -> Iterable[str]:
    for name in list(environ):
        value = environ.get(name, "")  # another thread may have taken it away, as pytest does with its own
        if is_secret_name(name) and is_secret_value(value, name):
            yield value.strip()
        found = _USER_INFO.search(value) if "://" in value else None
        if found is not None and is_secret_value(found["password"] or "", "password"):
            yield found["password"]


def hide_values(text: str, values: Iterable[str]) -> str:
    """``text`` with ``***`` for each of the values, however JSON, Python, HTML or a URL has escaped it."""
    known = tuple(sorted(set(values), key=lambda value: (-len(value), value)))
    return _pattern(known).sub(HIDDEN, text) if known else text


@lru_cache(maxsize=64)
def _pattern(values: tuple[str, ...]) -> re.Pattern[str]:
    found: dict[str, None] = {}
    for value in values:
        lines = [line for line in value.splitlines() if len(line) >= _WITHOUT_NEIGHBOURS and "-----" not in line]
        for part in (value, *(lines if len(lines) > 1 else ())):
            spelled = (part, json.dumps(part)[1:-1], json.dumps(part)[1:-1].replace("/", "\\/"), repr(part)[1:-1])
            for spelling in (*spelled, html.escape(part), quote(part), quote(part, safe="")):
                escaped = re.escape(spelling)
                is_short = len(spelling) < _WITHOUT_NEIGHBOURS
                found[rf"(?<![^\W_]){escaped}(?![^\W_])" if is_short else escaped] = None
    return re.compile("|".join(found))


# Forms

_USER_INFO = re.compile(
    r"(?<=://)(?:[^/\s@:'\"<>]{0,100}:(?![0-9]{1,5}/)(?P<password>[^\s@'\"<>]{0,400})|[^/\s@'\"<>]{1,400})@"
)
_KEYS = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}"
    r"|(?:gh[pousr]|github_pat|hf|api_org|gsk|r8|npm|nvapi|dop_v1|lsv2_[ps][tk]|shp(?:at|ss|ca|pa)|whsec|glpat|gldt|glrt|hvs)"
    r"[-_.][A-Za-z0-9_-]{16,}"
    r"|(?:sk|pk|rk)[-_](?:(?:live|test|proj|ant|or)[-_])?(?=[A-Za-z0-9_-]*[0-9A-Z]|a+\b)[A-Za-z0-9_-]{16,}"
    r"|(?:xai|pplx|tvly|pypi)-(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|dapi[0-9a-f]{32}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"
    r"|ey[A-Za-z0-9_-]{8,}\.ey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{5,}"
    r")"
)
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----).*?(-----END [A-Z0-9 ]*KEY[A-Z ]*-----|\Z)", re.S
)
_HOOK = re.compile(r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)[\w/-]+")
_SCHEME = re.compile(
    r"(?i)\b(?:(bearer)\s+(?=[A-Za-z._~+/-]*[0-9=]|[A-Za-z0-9._~+/-]{24})[A-Za-z0-9._~+/=-]{8,}"
    r"|(basic)\s+(?:[A-Za-z0-9+/]{6,}={1,2}|(?=[A-Za-z+/]*[0-9])[A-Za-z0-9+/]{16,}))"
)
_NAME = (
    r"(?:[a-z0-9_.-]{1,40}[-_.])?(?:[a-z]{0,20}api[-_]?key|(?:access|account|private|signing|encryption|secret|auth)[-_]?key|"
    r"shared[-_]?access[-_]?(?:key|signature)|[a-z]{0,20}secret|[a-z]{0,20}passw(?:or)?d|passphrase|pwd|pw|credentials?|"
    r"(?:access|auth|bearer|refresh|session|security|api|bot|hf|hub|github|gitlab|slack|csrf|id)[-_]?token|"
    r"(?:proxy-)?authorization|x-amz-credential)[0-9]{0,2}"
)
_BEFORE_NAME = r"(?<![a-z0-9_.-])(?=[a-z0-9_.-]{2,80}[\"']?\s*[:=,])"
"""A name begins here that a sign follows: a cheap test before the dear one of all positions."""
_QUOTED = re.compile(
    rf"(?i){_BEFORE_NAME}(?P<start>{_NAME}[\"']?\s*[:=,]\s*[bruf]?)"
    r"(?P<quote>[\"'])(?P<value>(?:\\.|(?!(?P=quote))[^\\\n]){1,4000})(?P=quote)"
)
_PLAIN = re.compile(
    rf"(?i){_BEFORE_NAME}(?P<start>{_NAME}[\"']?(?P<sign>\s*[:=]\s*))"
    r"(?P<scheme>(?:bearer|basic|token|digest|negotiate|apikey)\s+)?(?P<value>[^\s\"',;&<>(){}\[\]]{3,})(?![(\[])"
)
_IN_QUERY = re.compile(r"(?i)(?<=[?&;])((?:[a-z0-9_.-]*[-_])?(?:token|sig|signature|pwd|pass|auth)=)[^\s&#;'\"<>]+")
_KEY_OR_TOKEN = re.compile(
    r"(?i)(?<![a-z0-9_.-])((?:(?<=[?&])key|token)[\"']?\s*[:=]\s*[\"']?)(?P<value>[a-z0-9_+/=.-]{12,})"
)
_COOKIE = re.compile(r"(?i)\b((?:set-)?cookie[\"']?\s*[:=,]\s*[\"']?)[^\s=;\"']+=[^\"'\r\n]+")
_ORDINARY = re.compile(r"(?i)\*+|none|null|true|false|[-+]?[0-9][0-9.,:_-]{0,9}|<[^>]*>|\$?\{.*\}|\$\w+|…|\.\.\.")


def hides_value_of(name: str) -> bool:
    """Whether what stands behind this name in a mapping is hidden; ``key`` and ``token`` alone say too little."""
    return re.fullmatch(_NAME, name, re.IGNORECASE) is not None


def hide_forms(text: str) -> str:
    """``text`` without what is a secret by its form, or by the name before it."""
    if "-----BEGIN" in text:
        text = _PRIVATE_KEY.sub(rf"\1 {HIDDEN} \2", text)
    if "://" in text:
        text = _USER_INFO.sub("", text)
        text = _HOOK.sub(rf"\1{HIDDEN}", text)
    text = _KEYS.sub(HIDDEN, text)
    text = _QUOTED.sub(_without_quoted, text)
    text = _PLAIN.sub(_without_plain, text)
    text = _SCHEME.sub(lambda found: f"{found[1] or found[2]} {HIDDEN}", text)
    text = _KEY_OR_TOKEN.sub(lambda found: found[1] + (HIDDEN if is_secret_value(found[2]) else found[2]), text)
    text = _IN_QUERY.sub(rf"\1{HIDDEN}", text)
    return _COOKIE.sub(rf"\1{HIDDEN}", text) if "ookie" in text.lower() else text


def _without_quoted(found: re.Match[str]) -> str:
    if _ORDINARY.fullmatch(found["value"]):
        return found[0]
    return f"{found['start']}{found['quote']}{HIDDEN}{found['quote']}"


def _without_plain(found: re.Match[str]) -> str:
    """A word behind a colon, or a name in code, is none: ``password: wrong``, ``api_key=config.key``."""
    value, is_assigned = found["value"], found["sign"] == "="
    is_word = _WORDS.fullmatch(value) is not None
    is_in_code = is_word and ("." in value or is_secret_name(value))
    is_kept = _ORDINARY.fullmatch(value) or (is_word and not is_assigned) or is_in_code or _is_path(value)
    is_kept = is_kept or (found["sign"].strip() == ":" and len(value) < _SHORTEST)
    if is_kept and found["scheme"] is None:
        return found[0]
    return f"{found['start']}{found['scheme'] or ''}{HIDDEN}"


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` without the secrets of the environment, those that this process was told, and those of known forms."""
    known = _of_environment(os.environ if environ is None else environ)
    remembered = list(_REMEMBERED) if environ is None else []
    return hide_forms(hide_values(text, [*known, *remembered]))


def redact_inside(value: Any) -> Any:
    """``value`` with its texts redacted: those of lists, tuples and mappings, and of objects, which are changed.

    The lines of a list of texts are read as one text, for what stands on several of them.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, str) for one in value) and isinstance(value, list):
            return redact("\n".join(value)).split("\n")
        parts = [redact_inside(one) for one in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {key: redact_inside(one) for key, one in value.items()}
    if hasattr(value, "__dict__") and not isinstance(value, type):
        for name, one in vars(value).items():
            object.__setattr__(value, name, redact_inside(one))
    return value


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
