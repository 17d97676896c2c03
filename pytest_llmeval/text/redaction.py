"""Keep secrets and line breaks out of messages.

Libraries put URLs, headers and whole reports into the text of an exception; a message of ours quotes one line of it.
A secret is known by its value (of environment variables and arguments that are named like secrets, and what
``remember`` is told), by its form (keys of well-known services), or by the name that stands before it
(``password=…``, ``"api_key": "…"``). Ordinary words, numbers and paths stay: a message without them says nothing.
"""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

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

_KEY_NAMES = r"(?:api|access|account|private|signing|encryption|secret|auth|subscription)[-_]?key|credentials?"
_PASSWORD_NAMES = r"passw(?:or)?d|passphrase|secret|pwd|pw"
_SECRET_WORD = re.compile(
    r"auth|authorization|cookie|credentials?|dsn|jwt|key|pass|pat|pw|pwd|sig|signature|webhook|"
    r".*(?:passwords?|passwd|passphrases?|secrets?|token)"
)
_SEVERAL_KEYS = re.compile(rf"(?:{_KEY_NAMES})s?(?![a-z])")
_SAYS_PASSWORD = re.compile(rf"(?i)pass(?![a-z])|{_PASSWORD_NAMES}")
_SAYS_KEY = re.compile(rf"(?i)token|{_KEY_NAMES}")
_SAYS_LOGIN = re.compile(r"(?:(?:^|[^A-Za-z])(?i:auth)|[a-z]Auth|(?i:authorization|credentials?))$")
_CLEAR_NAME = re.compile(
    rf"(?i)(?:.*[-_.])?[a-z0-9]{{0,20}}(?:{_KEY_NAMES}|{_PASSWORD_NAMES}|shared[-_]?access[-_]?signature|"
    r"(?:access|auth|bearer|refresh|session|security|api|bot|hf|hub|github|gitlab|slack|csrf|id)[-_]?token|"
    r"authorization)[0-9]{0,2}"
)


@lru_cache(maxsize=4_096)
def is_secret_name(name: str) -> bool:
    """Return whether this is the name of secrets: ``api_keys`` and ``PGPASSWORD`` are, ``max_tokens`` is not."""
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return any(map(_SECRET_WORD.fullmatch, words)) or _SEVERAL_KEYS.search(name.lower()) is not None


@lru_cache(maxsize=4_096)
def hides_value_of(name: str) -> bool:
    """Return whether every value of this name is secret; ``key``, ``token`` or ``auth`` alone say too little."""
    return _CLEAR_NAME.fullmatch(name) is not None


def hidden_arguments(model: str) -> list[str]:
    """Return the arguments that a model's name hides although no secret is named like them: they may decide replies."""
    names = re.findall(rf"[?&]([^?&=]+)={re.escape(HIDDEN)}(?=[& ]|$)", model)
    return [name for name in names if not is_secret_name(name)]


# Values

_SHORTEST, _SHORTEST_WORD = 6, 8
_LONG = 16
"""A value that is shorter is hidden only if it is no part of a word or a number."""
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,:_/-]{0,14}")
_NAME_PART = r"(?:[^\W\d_]{1,20}[0-9]{0,3}|[0-9]{1,8}(?:x[0-9]{1,3})?[^\W\d_]{0,2})"
_WORDS = re.compile(rf"{_NAME_PART}(?:[-_./:, ]+{_NAME_PART})*[.]?")
"""Matches ordinary words, and names of things such as ``gpt-4o-mini``, ``Qwen2.5-Coder-32B`` and paths."""
_PLACEHOLDER = re.compile(
    r"(?i)(?:sk-)?(?:no|not|dummy|fake|local|test|your-api)[-_ ](?:key|needed|required|used)(?:-needed|-required)?|"
    r"anything|change-?me|disabled|enabled|example|lm-studio|localhost|ollama|openai|password|placeholder|required|"
    r"secret|undefined|unused"
)
"""Matches words that people write if a server wants any key."""
_METHOD = (
    r"always|anonymous|any|api|app|application|auto|automatic|azure|basic|bearer|browser|cert|certificate|cli|client|"
    r"code|cognito|connect|cookie|credentials?|custom|default|device|digest|external|federated|firebase|form|github|"
    r"gitlab|google|gssapi|guest|header|hmac|http|iam|identity|interactive|internal|kerberos|key|keycloak|ldaps?|local|"
    r"managed|md|mfa|mtls|native|negotiate|never|no|none|ntlm|oauth|oidc|okta|openid|optional|passkey|passwordless|"
    r"password|peer|plain|principal|private|proxy|public|pubkey|remote|required|saml|scram|secret|service|"
    r"account|session|sha|signature|sigv|spnego|sso|ssh|ssl|strict|supabase|tls|token|trust|user|web|webauthn|workload|x"
)
_METHODS = re.compile(rf"(?i)(?:{_METHOD})(?:[-_/:, ]?(?:{_METHOD}|[0-9]{{1,3}}(?![0-9])))*")
"""Matches ways of logging in, which a variable ``…_AUTH`` names if it holds no secret."""
_HOST_OR_FILE = re.compile(r"(?:[\w/-]*\.[\w.-]+|localhost)(?::[0-9]{1,5})?")

_REMEMBERED: set[str] = set()
"""State of the process, as its environment is: an exception becomes text where no session is known (in threads of
models, in the ``llmeval`` command, in a notebook), and what is a secret in one session of a process is one in the next.
"""


@lru_cache(maxsize=4_096)
def is_secret_value(value: str, name: str = "") -> bool:
    """Return whether the value of a variable or argument ``name`` is a secret, to be hidden wherever it stands.

    Numbers, placeholders, paths, addresses and texts of fewer than 6 characters are no secrets. Ordinary words and
    names are secrets only if ``name`` is a password's, or if they have 8 characters and ``name`` is a key's, or a
    login's and they are no method of logging in, no host and no file.
    """
    text = value.strip()
    if len(text) < _SHORTEST or _PLACEHOLDER.fullmatch(text) or _NUMBER.fullmatch(text) or _is_path(text):
        return False
    if re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        return hide_forms(text) != text
    if _WORDS.fullmatch(text) is None and (is_secret_name(name) or len(text.split()) == 1):
        return True
    is_login = _SAYS_LOGIN.search(name) is not None
    says_key = _SAYS_KEY.search(name) is not None or (is_login and not _says_method(text))
    return is_secret_name(name) and (
        (says_key and len(text) >= _SHORTEST_WORD) or _SAYS_PASSWORD.search(name) is not None
    )


def _says_method(text: str) -> bool:
    """Return whether a text says how, or where, somebody logs in, and not with what."""
    return _METHODS.fullmatch(text) is not None or _HOST_OR_FILE.fullmatch(text) is not None


def _is_path(text: str) -> bool:
    """Return whether this is a path: it is absolute, begins with a home folder, or exists.

    A key may begin with slashes, too: a path whose first folder does not exist is taken for a key.
    """
    if re.match(r"~[\w.-]*/|[A-Za-z]:[\\/]", text):
        return True
    first = re.match(r"/[^/]+", text)
    try:
        return os.path.exists(text if first is None else first[0])
    except (OSError, ValueError):  # too long, a null character
        return False


def remember(value: str) -> None:
    """Hide this secret in all messages of this process from now on."""
    _REMEMBERED.add(value.strip())


_LIST = re.compile(r"[^\s,;\"'{}\[\]]+(?:[,;\s]+[^\s,;\"'{}\[\]]+)+[,;\s]*")
"""Matches several keys in one variable, of which a message may show one; it does not match JSON."""
_LOGIN = re.compile(r"\s*[^\s:]+[:\s]\s*(\S+)\s*")
"""Matches ``USER:PASSWORD`` or ``basic SECRET``, of which a message may show the secret alone."""


def _of_environment(environ: Mapping[str, str]) -> Iterable[str]:
    for name in list(environ):
        value = environ.get(name, "")  # another thread may have taken it away, as pytest does with its own
        if is_secret_name(name) and is_secret_value(value, name):
            yield value.strip()
            login = _LOGIN.fullmatch(value) if _SAYS_LOGIN.search(name) else None
            if login is not None and is_secret_value(login[1], "password"):
                yield login[1]
            if _LIST.fullmatch(value):
                yield from (
                    one for one in re.split(r"[,;\s]+", value) if len(one) >= _LONG and is_secret_value(one, name)
                )
        for found in _USER_INFO.finditer(value) if "://" in value else ():
            written = found["password"] or ""
            yield from (one for one in (written, unquote(written)) if is_secret_value(one, "password"))


def hide_values(text: str, values: Iterable[str]) -> str:
    """Return ``text`` with ``***`` for each of the values, however JSON, Python, HTML, a URL or base64 writes it."""
    known = tuple(sorted(set(values), key=lambda value: (-len(value), value)))
    return _pattern(known).sub(HIDDEN, text) if known else text


@lru_cache(maxsize=64)
def _pattern(values: tuple[str, ...]) -> re.Pattern[str]:
    found: dict[str, None] = {}
    for value in values:
        lines = [line for line in value.splitlines() if len(line) >= _LONG and "-----" not in line]
        for part in (value, *(lines if len(lines) > 1 else ())):
            if len(part) < _LONG:
                found[rf"{_NO_WORD_BEFORE}{''.join(map(_spelled, part))}(?![^\W_])"] = None
            else:
                parts = (part, *_in_base64(part.encode("utf-8", "surrogateescape")))
                found |= {_LINE_BREAK.join(map(_spelled, one)): None for one in parts}
    return re.compile("|".join(found))


_NO_WORD_BEFORE = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=%25[0-9A-Fa-f]{2})|(?<=\\[nrtbf]))"
"""Matches before a word. The last letter of ``%3A``, or of an escaped line break, is no part of the word behind it."""
_LINE_BREAK = r"(?:(?:\r?\n|\\+[rn])\s*)?"
"""Matches where a long text may be broken over lines."""


def _spelled(character: str) -> str:
    """Return a pattern for the ways in which Python, JSON, HTML and URLs write a character."""
    if character.isascii() and character.isalnum():
        return character
    code, utf16 = ord(character), character.encode("utf-16-be", "surrogatepass")
    ways = [
        rf"\\*{re.escape(character)}",
        rf"\\+{re.escape(repr(character)[1:-1].lstrip(chr(92)))}",
        "".join(rf"\\+u(?i:{utf16[n : n + 2].hex()})" for n in range(0, len(utf16), 2)),
        "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode("utf-8", "surrogateescape")),
        rf"&#(?:0*{code}|[xX]0*(?i:{code:x}));|{re.escape(html.escape(character))}",
        *([r"\+"] if character == " " else []),
    ]
    return f"(?:{'|'.join(ways)})"


def _in_base64(value: bytes) -> Iterable[str]:
    """Return what base64 makes of the value after any other bytes, but for the characters that depend on those."""
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + value).decode()
        core = encoded[(0, 2, 3)[shift] : len(encoded) - (0, 4, 4)[-(len(value) + shift) % 3]]
        yield from {core, core.translate(str.maketrans("+/", "-_"))}


# Forms

_USER_INFO = re.compile(
    r"(?:(?<=://)|(?<=:\\/\\/))(?:[^/\s@:'\"<>]{0,100}:(?![0-9]{1,5}/)(?P<password>[^\s@'\"<>]{0,400})|[^/\s@'\"<>]{1,400})@"
)
_ENCODED_USER_INFO = (
    r"(?i)(%(?P<level>(?:25)*)3A(?:%(?P=level)2F){2})"
    r"(?:(?:(?!%(?P=level)(?:2F|3A|40))[^\s/@:'\"<>&]){0,100}%(?P=level)3A(?![0-9]{1,5}(?:%(?P=level)2F|/))"
    r"(?:(?!%(?P=level)40)[^\s@'\"<>&]){0,400}|(?:(?!%(?P=level)(?:2F|40))[^\s/@'\"<>&]){1,400})%(?P=level)40"
)
"""Matches a user and a password in an address that is percent-encoded inside another one."""
_FORMS = (
    (
        r"(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----).*?(-----END [A-Z0-9 ]*KEY[A-Z ]*-----|\Z)",
        rf"\1 {HIDDEN} \2",
    ),
    (_USER_INFO.pattern, ""),
    (_ENCODED_USER_INFO, r"\1"),
    (r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)[\w/-]+", rf"\1{HIDDEN}"),
    (
        r"(?<![A-Za-z0-9_-])(?:(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}"
        r"|(?:gh[pousr]|github_pat|gl(?:pat|dt|rt))[-_][A-Za-z0-9_-]{16,}"
        r"|(?:hf|api_org|gsk|r8|npm|nvapi|dop_v1|lsv2_[ps][tk]|shp(?:at|ss|ca|pa)|whsec|hvs)[-_.]"
        r"(?=[A-Za-z0-9_-]*[0-9A-Z])[A-Za-z0-9_-]{16,}"
        r"|(?:sk|pk|rk)[-_](?:(?:live|test|proj|ant|or)[-_])?(?=[A-Za-z0-9_-]*[0-9A-Z]|a+\b)[A-Za-z0-9_-]{16,}"
        r"|(?:xai|pplx|tvly|pypi)-(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}"
        r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{16,}"
        r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|dapi[0-9a-f]{32}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"
        r"|ey[A-Za-z0-9_-]{8,}\.ey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{5,})",
        HIDDEN,
    ),
    (
        r"(?i)\b(bearer(?=\s+(?:[A-Za-z._~+/-]*[0-9=]|[A-Za-z0-9._~+/-]{24}))"
        r"|basic(?=\s+(?:[A-Za-z0-9+/]{6,}=|[A-Za-z+/]*[0-9][A-Za-z0-9+/]{15}|[A-Za-z0-9+/]{24})))\s+[A-Za-z0-9._~+/=-]{8,}",
        rf"\1 {HIDDEN}",
    ),
    (r"(?i)\b((?:set-)?cookie[\"']?\s*[:=,]\s*[\"']?)[^\s=;\"']+=[^\"'\r\n]+", rf"\1{HIDDEN}"),
    (r"(?i)(?<=\s)(--[a-z-]*(?:key|token|password|secret)\s+)(?![-$<{])[^\s'\"]{6,}", rf"\1{HIDDEN}"),
    (r"(?i)(<[\w:-]*(?:key|token|password|secret)>)[^<>]+(?=</)", rf"\1{HIDDEN}"),
    (r"(?<=\s)((?:-u|--(?:proxy-)?user)\s*['\"]?[^\s:'\"]{1,100}:)[^\s'\"]+", rf"\1{HIDDEN}"),
)
_COMPILED = tuple((re.compile(form), kept) for form, kept in _FORMS)
_QUOTE = r"\\*[\"']|&quot;|&#(?:34|39|x22|x27);|%22"
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>[\w.-]{{2,80}}+)(?:{_QUOTE})?(?P<sign>\s*(?:[:=,]|%3[AD])\s*)"
    rf"(?:[bruf]?(?P<quote>{_QUOTE})(?:(?P<quoted>[^\n]{{1,4000}}?)(?<!\\)(?P=quote)|(?P<cut>[^\n\"']{{1,4000}}))"
    r"|(?<!,)(?<!, )(?P<scheme>(?:bearer|basic|token|digest|negotiate|apikey)\s+)?"
    r"(?P<plain>(?!`)[^\s\"',;&<>(){}\[\]\\]{3,1000}+)(?![(\[]))",
    re.IGNORECASE,
)
_ORDINARY = re.compile(
    r"(?i)(?:(?:bearer|basic)\s+)?(?:\*+|none|null|true|false|[-+]?[0-9][0-9.,:_-]{0,9}|<[^>]*>|\$?\{.*\}|\$\w+|…|\.\.\.)"
)
_LIKE_A_KEY = re.compile(r"(?=.*[0-9])[A-Za-z0-9_+/=.~%-]{8,}")
_LIKE_CODE = re.compile(r"[^\W\d]+(?:[-.][^\W\d]+)*|\W+")


def hide_forms(text: str) -> str:
    """Return ``text`` without secrets that are known by their form, or by the name before them."""
    for form, kept in _COMPILED:
        text = form.sub(kept, text)
    parts, end = [], 0
    while found := _ASSIGNED.search(text, end):
        group = next(name for name in ("plain", "quoted", "cut") if found[name] is not None)
        is_hidden = _is_assigned_secret(found)
        parts += [text[end : found.start(group)], HIDDEN if is_hidden else ""]
        end = found.end(group) if is_hidden else found.start(group)
    return "".join([*parts, text[end:]])


def _is_assigned_secret(found: re.Match[str]) -> bool:
    """Return whether what a text assigns to a name is a secret.

    A word in a list or behind a colon, or a name in code, is none: ``password: wrong``, ``api_key=config.key``.
    """
    name, is_plain, sign = found["name"], found["plain"] is not None, found["sign"].strip()
    value = (found["plain"] or found["quoted"] or found["cut"]).strip("`.:") or "..."
    if _ORDINARY.fullmatch(value) or not is_secret_name(name):
        return False
    if not hides_value_of(name):
        is_in_query = found.string[max(0, found.start() - 1) : found.start()] in ("?", "&")
        has_plain_name = re.search(r"(?i)(?:token|sig|signature|pass|auth)$", name) is not None
        return (is_in_query and has_plain_name) or (_LIKE_A_KEY.fullmatch(value) is not None and is_secret_value(value))
    if found["scheme"] is not None or (not is_plain and sign != ","):
        return True
    if _LIKE_CODE.fullmatch(value):
        return sign == "=" and "." not in value and not is_secret_name(value)
    return not is_plain or not (_is_path(value) or (sign == ":" and len(value) < _SHORTEST))


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return ``text`` without the environment's secrets, those that this process was told, and those of known forms."""
    return hide_forms(hide_values(text, _known_secrets() if environ is None else _of_environment(environ)))


def _known_secrets() -> list[str]:
    """Return the secrets of the environment, and those that this process was told."""
    return [*_of_environment(os.environ), *_REMEMBERED]


def redact_inside(value: Any) -> Any:
    """Return ``value`` with its texts redacted: those of lists, tuples and mappings, and of objects, which are changed.

    The lines of a list of texts are read as one text, for what stands on several of them.
    """
    return _redacted_inside(value, _known_secrets())  # once: a traceback has hundreds of texts


def _redacted_inside(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return hide_forms(hide_values(value, secrets))
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, str) for one in value) and isinstance(value, list):
            return hide_forms(hide_values("\n".join(value), secrets)).split("\n")
        parts = [_redacted_inside(one, secrets) for one in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {key: _redacted_inside(one, secrets) for key, one in value.items()}
    if hasattr(value, "__dict__") and not isinstance(value, type):
        for name, one in vars(value).items():
            object.__setattr__(value, name, _redacted_inside(one, secrets))
    return value


def one_line(text: str, limit: int = 300) -> str:
    """Return the words of ``text`` on one line, without secrets and at most ``limit`` characters.

    A control character is shown as an escape: a reader is to see that it was there.
    """
    safe = printable(_SPACES.sub(" ", redact(text)).strip(" "))
    line = " ".join("".join(c if c.isprintable() else " " for c in safe).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def describe(error: BaseException, limit: int = 300) -> str:
    """Return an exception as one line: its type and what it says."""
    text = one_line(str(error), limit)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def model_error(name: str, problem: str) -> ModelError:
    """Return the ``ModelError`` that says, in one line, what is wrong with the model that the user calls ``name``."""
    return ModelError(one_line(f"model {name}: {problem}", _LONGEST_MESSAGE))
