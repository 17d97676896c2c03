"""Servers as the user names them: their URLs, and how a model behind them is asked.

Settings are written behind the model after ``?``, or with ``--llm-model-arg``. Keys are given by the name of a variable
only.
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, quote, urlsplit

from pytest_llmeval.errors import OptionError
from pytest_llmeval.text.redaction import hides_value_of, one_line, redact
from pytest_llmeval.text.wording import expected_one_of, nearest, quoted
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    from pytest_llmeval.models.budget import Budget

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "DIALECTS",
    "LAUNCH",
    "LAUNCH_KEY",
    "SERVER_ARGS",
    "Endpoint",
    "ServerArguments",
    "check_variable",
    "hide_keys",
    "is_loopback",
    "parse_argument",
    "parse_endpoint",
    "parse_launch_setting",
    "parse_url",
]


DIALECTS = (
    "vllm",
    "sglang",
    "llama-cpp-python",
    "llama-server",
    "ollama",
    "openai",
    "anthropic",
    "generic",
)
"""The names of the ways in which servers are asked, as a user writes them."""

SERVER_ARGS: Mapping[str, str] = MappingProxyType(
    {
        "base_url": "URL of a server of the model, such as http://host:8000/v1; several share the work",
        "api_key_env": "name of the environment variable that holds the server's key",
        "tokenizer": "hub id or folder of the model's tokenizer, for exact token ids",
        "dialect": f"how the server is asked, where that is not found out: {', '.join(DIALECTS)}",
        "max_connections": "how many requests the server is given at once",
        "requests_per_minute": "how many requests the server is sent in a minute",
        "timeout": "seconds that a reply may take",
        "extra_body": 'JSON mapping added to every request, such as {"top_k": 1}',
        "max_length": "tokens of context to use, where that is not all that the server has",
        "max_tokens_field": "name of the field that limits a reply, such as max_completion_tokens",
        "price_in": "price of a million tokens of prompts",
        "price_out": "price of a million tokens of replies",
    }
)
"""The names of arguments, each with the help that a wrong one is answered with."""

_OWN_FIELDS = frozenset({"model", "prompt", "messages", "stream", "n"})
"""Fields of a request's body that each request sets itself."""

_SECRET_FIELD = re.compile(
    r"api[_-]?key|secret|passw|credential|authorization|(?:access|auth|bearer)[_-]?token|^(?:key|token)$", re.IGNORECASE
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_LIKE = re.compile(
    r"(?i)(?:sk|pk|hf|key|gsk|xai|aiza)[-_]?[a-z0-9]*[0-9][a-z0-9_-]*|sk-.*|(?-i:(?:sk|pk|gsk|xai|hf)_.+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One server.

    ``url`` is the root of its API (``http://localhost:8000/v1``), without a slash at its end, credentials or a query.
    ``max_connections`` None leaves the number of requests at once to the dialect; ``requests_per_minute`` None bounds
    none.
    """

    url: str
    api_key_env: str | None = None
    max_connections: int | None = None
    requests_per_minute: int | None = None
    protocol: Literal["openai", "anthropic"] = "openai"
    """The API whose headers carry the key: ``Authorization: Bearer``, or ``x-api-key`` with ``anthropic-version``."""

    @property
    def root(self) -> str:
        """Return the URL without ``/v1``, below which the server's own paths (``/props``, ``/version``) are."""
        return self.url.removesuffix("/v1")

    @property
    def host(self) -> str:
        """Return scheme, host and port (``https://api.openai.com``), for which requests share one limit."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_local(self) -> bool:
        """Tell whether the host is this machine."""
        return is_loopback(urlsplit(self.url).hostname or "")


# One argument, from text


def parse_argument(key: str, text: str, where: str) -> Any:
    """Return the value of one of ``SERVER_ARGS``: a number, a mapping or text; for ``base_url`` the text, checked.

    Raises ``OptionError`` that begins with ``where`` and shows no key.
    """
    parsers: Mapping[str, Callable[[str, str, str], Any]] = {
        "base_url": _base_url,
        "api_key_env": _variable_name,
        "dialect": _dialect,
        "max_connections": _count,
        "requests_per_minute": _count,
        "max_length": _count,
        "timeout": _seconds,
        "extra_body": _mapping,
        "price_in": _price,
        "price_out": _price,
    }
    text = text.strip()
    if not text:
        raise _refused(where, key, "nothing", SERVER_ARGS[key])
    return parsers.get(key, _text)(key, text, where)


LAUNCH_KEY = "PYTEST_LLM_LAUNCH_KEY"
"""The environment variable by which a session's processes know the key of the servers that the session starts."""
LAUNCH = "launch."
"""The beginning of each setting of a server that the session starts (launch.tensor_parallel_size)."""
_OWN_LAUNCH = frozenset(
    {
        *("host", "port", "api_key", "served_model_name", "alias", "a", "model_alias", "uds", "config_file"),
        *("model", "m", "model_url", "mu", "hf_repo", "hf", "hfr", "hf_file", "hff", "hf_model_repo_id"),
    }
)
"""Settings of such a server that the session decides."""


def parse_launch_setting(key: str, text: str, where: str) -> tuple[str, str]:
    """Return ``launch.tensor-parallel-size`` and its value as ``tensor_parallel_size`` and the same value.

    Raises ``OptionError`` for a name that cannot be one, that the session decides or that is a secret's.
    """
    name, value = key.removeprefix(LAUNCH).replace("-", "_"), text.strip()
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise OptionError(
            f"{where}: {quoted(key)}: expected {LAUNCH} and a setting of the server, without dashes before"
        )
    if name in _OWN_LAUNCH:
        raise OptionError(f"{where}: {LAUNCH}{name}: the session decides this itself; leave it out")
    if hides_value_of(name):
        raise OptionError(f"{where}: {LAUNCH}{name}: a secret is given to the server by its environment variable only")
    if not value or not value.isprintable():
        raise OptionError(f"{where}: {LAUNCH}{name}: found {quoted(value)}, expected a value of one line")
    if name == "timeout":
        _seconds(LAUNCH + name, value, where)
    if name == "tensor_parallel_size":  # the number of cards that a server is shown
        _count(LAUNCH + name, value, where)
    return name, value


def _refused(where: str, key: str, found: str, expected: str) -> OptionError:
    return OptionError(f"{where}: {key}: found {found}, expected {expected}")


def _text(key: str, text: str, where: str) -> str:
    if not text.isprintable() or (key == "max_tokens_field" and not re.fullmatch(r"\w+", text)):
        raise _refused(where, key, quoted(redact(text)), SERVER_ARGS[key])
    return text


def _variable_name(key: str, text: str, where: str) -> str:
    """Return the name of an environment variable; the message about another text does not show it: it may be a key."""
    if not _VARIABLE.fullmatch(text) or _KEY_LIKE.fullmatch(text):
        raise OptionError(
            f"{where}: {key}: expected the name of an environment variable, such as MY_API_KEY, found something that "
            "is no such name (not shown: it may be a key)"
        )
    return text


def _dialect(key: str, text: str, where: str) -> str:
    name = text.lower().replace("_", "-").replace(".", "-")
    name = "llama-server" if name in ("llama-cpp", "llamacpp") else name
    if name not in DIALECTS:
        raise OptionError(f"{where}: {key}: found {quoted(text)}{expected_one_of(name, DIALECTS)}")
    return name


def _count(key: str, text: str, where: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", text):
        raise _refused(where, key, quoted(text), f"a whole number, 1 or more{_meaning(key)}")
    return int(text)


def _meaning(key: str) -> str:
    return f" ({SERVER_ARGS[key]})" if key in SERVER_ARGS else ""


def _seconds(key: str, text: str, where: str) -> float:
    number = _number(text)
    if not (math.isfinite(number) and number > 0):
        raise _refused(where, key, quoted(text), f"a number of seconds above 0{_meaning(key)}")
    return number


def _price(key: str, text: str, where: str) -> float:
    number = _number(text)
    if not (math.isfinite(number) and number >= 0):
        raise _refused(where, key, quoted(text), f"a number, 0 or more ({SERVER_ARGS[key]})")
    return number


def _number(text: str) -> float:
    return (
        float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.IGNORECASE | re.ASCII) else math.nan
    )


def _mapping(key: str, text: str, where: str) -> dict[str, JSON]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(f"{where}: {key}: expected a {SERVER_ARGS[key]}, found something that is none")
    if secret := next(filter(_SECRET_FIELD.search, _names(value)), None):
        raise OptionError(f"{where}: {key}: found {quoted(secret)}: keys are given by api_key_env=NAME only")
    if own := sorted(_OWN_FIELDS & value.keys()):
        raise OptionError(f"{where}: {key}: found {quoted(own[0])}, which each request sets itself")
    return value


def _names(value: JSON) -> list[str]:
    """Return the keys of a mapping and of all mappings inside it."""
    if isinstance(value, dict):
        return [*value, *(name for inner in value.values() for name in _names(inner))]
    return [name for inner in value for name in _names(inner)] if isinstance(value, list) else []


# URLs


def _base_url(key: str, text: str, where: str) -> str:
    parse_endpoint(text, f"{where}: {key}")
    return text


def parse_endpoint(text: str, where: str) -> Endpoint:
    """Return the endpoint that ``URL,api_key_env=NAME,max_connections=N,requests_per_minute=N`` names. Raises
    ``OptionError``.
    """
    url, *parts = text.split(",")
    own: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        name = name.strip()
        known = ("api_key_env", "max_connections", "requests_per_minute")
        if not equals or name not in known:
            near = nearest(name, known) if equals else None
            hint = f"; did you mean {near}?" if near else ""
            expected = "URL,api_key_env=NAME,max_connections=N,requests_per_minute=N"
            raise OptionError(f"{where}: expected {expected}; found another part{hint}")
        if name in own:
            raise OptionError(f"{where}: {name} is given twice for one URL")
        own[name] = parse_argument(name, value, where)
    return Endpoint(url=parse_url(url, where), **own)


def parse_url(text: str, where: str) -> str:
    """Return the root of an API: ``http://host:8000/v1`` for ``http://host:8000``.

    Raises ``OptionError`` for a URL without ``http://`` or ``https://``, with credentials, a query or a fragment.
    """
    text = text.strip()
    scheme, separator, _ = text.partition("://")
    if not separator:
        if "@" in text:
            raise _credentials(where)
        shown = one_line(text, 100)
        raise OptionError(f"{where}: found {shown!r}, a URL without a scheme: did you mean http://{shown}?")
    if scheme.lower() not in ("http", "https"):
        raise OptionError(f"{where}: found a URL that begins with {quoted(scheme)}://, expected http:// or https://")
    try:
        parts = urlsplit(text)
        port = parts.port
        if not (parts.hostname or "").isascii():
            parts = parts._replace(netloc=parts.netloc.encode("idna").decode("ascii"))
    except ValueError:
        raise OptionError(f"{where}: found a URL that cannot be read, expected http://HOST:PORT/v1") from None
    if "@" in parts.netloc or (parts.netloc.endswith(":") and "@" in parts.path):  # a password that begins with a slash
        raise _credentials(where)
    if not parts.hostname or not re.fullmatch(r"[^\s/\\]+", parts.netloc) or port == 0:
        raise OptionError(f"{where}: the URL names no host, expected http://HOST:PORT/v1")
    if parts.query or parts.fragment:
        raise OptionError(f"{where}: found a URL with a query or a fragment, expected http://HOST:PORT/v1")
    if page := re.search(r"(?:/chat)?/completions/?$|/messages/?$|/models/?$", parts.path):
        raise OptionError(f"{where}: the URL is that of {page[0]}, expected the API's root: {text[: -len(page[0])]}")
    return _normalized(parts, port)


def _credentials(where: str) -> OptionError:
    return OptionError(
        f"{where}: the URL holds a user name or a password: put the key into an environment variable and name it with "
        "api_key_env=NAME"
    )


def _normalized(parts: SplitResult, port: int | None) -> str:
    """Return one spelling for the URLs that mean one server."""
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    is_default = port is None or (parts.scheme, port) in {("http", 80), ("https", 443)}
    path = quote(parts.path.rstrip("/"), safe="/%:@+~,;=!$&'()*") or "/v1"
    return f"{parts.scheme}://{host}{'' if is_default else f':{port}'}{path}"


def is_loopback(host: str) -> bool:
    """Tell whether the name or address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


DEFAULT_TIMEOUT_S = 600.0

_ANTHROPIC = "https://api.anthropic.com"
_WELL_KNOWN: Mapping[str, str] = MappingProxyType(
    {"https://api.openai.com": "OPENAI_API_KEY", _ANTHROPIC: "ANTHROPIC_API_KEY"}
)
"""Hosts that get a key without a setting: each gets its own, over TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArguments:
    """All of a user's settings of one model behind one or more servers.

    ``model`` None is the server's only model; ``dialect`` None is found out. Prices are per million tokens.
    """

    endpoints: tuple[Endpoint, ...]
    model: str | None = None
    dialect: str | None = None
    tokenizer: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    extra_body: Mapping[str, JSON] = field(default_factory=dict)
    max_length: int | None = None
    max_tokens_field: str | None = None
    price_in: float | None = None
    price_out: float | None = None
    shared_folder: Path | None = None
    """The folder in which processes agree on how many requests a host gets at once; None if there is one process."""
    budget: Budget | None = field(default=None, repr=False, compare=False)
    on_lost: Callable[[Endpoint], Awaitable[None]] | None = field(default=None, repr=False, compare=False)
    """Called after a connection was lost, before the request is sent again: it waits for a server that is started anew,
    and raises ``ModelStopped`` if it is gone for good."""
    no_chat: str | None = None
    """Why the server's own form of chats is not the model's, if that is known; then no chat is sent."""

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        endpoints: Sequence[Endpoint],
        *,
        model: str | None,
        dialect: str | None = None,
        shown: str = "",
    ) -> ServerArguments:
        """Make the arguments from values as ``parse_argument`` returns them; ``endpoints`` are those beside
        ``base_url``'s.

        ``api_key_env``, ``max_connections`` and ``requests_per_minute`` count for each endpoint that has none of its
        own. Raises ``OptionError`` for an endpoint that is given twice; one address with two keys is two endpoints.
        """
        listed = [*endpoints, *(parse_endpoint(url, shown) for url in given.get("base_url", ()))]
        dialect = given.get("dialect", dialect)
        completed = tuple(_completed(endpoint, given, dialect) for endpoint in listed)
        for number, endpoint in enumerate(completed):
            if (endpoint.url, endpoint.api_key_env) in {(one.url, one.api_key_env) for one in completed[:number]}:
                raise OptionError(
                    f"{shown}: the server {endpoint.url} is given twice, expected it once, or with another api_key_env"
                )
        same = ("tokenizer", "extra_body", "max_length", "max_tokens_field", "price_in", "price_out")
        return cls(
            endpoints=completed,
            model=model,
            dialect=dialect,
            timeout_s=given.get("timeout", DEFAULT_TIMEOUT_S),
            **{name: given[name] for name in same if name in given},
        )


def _completed(endpoint: Endpoint, given: Mapping[str, Any], dialect: str | None) -> Endpoint:
    return replace(
        endpoint,
        api_key_env=endpoint.api_key_env or given.get("api_key_env") or _WELL_KNOWN.get(endpoint.host),
        max_connections=endpoint.max_connections or given.get("max_connections"),
        requests_per_minute=endpoint.requests_per_minute or given.get("requests_per_minute"),
        protocol="anthropic" if dialect == "anthropic" or endpoint.host == _ANTHROPIC else endpoint.protocol,
    )


def check_variable(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> None:
    """Raise ``OptionError`` if the variable of the endpoint's key is not set or cannot be a key."""
    name = endpoint.api_key_env
    if name is None:
        return
    value = environ.get(name, "").strip()
    if not value:
        shown = name if name.isupper() else "that api_key_env names (not shown: it may be a key)"
        raise OptionError(
            f"the variable {shown}, which holds the key for {endpoint.url}, is not set; set it, or name another with "
            "api_key_env=NAME"
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise OptionError(f"the variable {name} holds no key: it has spaces, line breaks or letters beyond ASCII in it")


def hide_keys(text: str) -> str:
    """Return a model's name before it was checked: without what might be a key, wherever it was put."""
    text = re.sub(r"://[^?#&,\s]*@", "://", text)
    text = re.sub(r"(^|[=,&\s])[^=,&\s/@:]*:[^=,&\s@]*@", r"\1***@", text)  # without a scheme
    text = re.sub(r"(base_url\s*=[^?&]*\?)[^&]*", r"\1***", text)
    return re.sub(r"(api_key_env\s*=)[^,&#]*|(extra_body\s*=)[^&#]*", r"\1\2***", text)
