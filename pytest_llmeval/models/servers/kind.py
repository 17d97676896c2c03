"""``--llm-model http://HOST:PORT/v1``, ``openai:NAME``, ``anthropic:NAME``, ``ollama:NAME``: models behind servers.

Parsing imports no library of the network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.endpoints import (
    SERVER_ARGS,
    Endpoint,
    ServerArguments,
    check_variable,
    hide_keys,
    parse_argument,
    parse_url,
)
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec, check_names, hide_secrets
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.names import plain_server_name
from pytest_llmeval.text.redaction import hide_forms, model_error
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON, ServerUse

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.model import ServerModel

__all__ = ["Anthropic", "NotAURL", "Ollama", "OpenAI", "Remote", "Server", "close_connected"]

_OLLAMA_PORT = 11434
_HOST_AND_PORT = re.compile(
    r"(?:[^\s/@?#]+@)?(?:localhost|\[[0-9a-fA-F:]+\]|[\w-]+(?:\.[\w-]+)+):\d{1,5}(?:[/?#].*)?|[\w-]+:\d{2,5}/.*"
)


_connected: dict[tuple[int, str, Role | None, str], ServerModel] = {}
"""Models by process, name, role and arguments: what each role takes of one server is counted apart."""


def close_connected() -> None:
    """End the connections of all models that this process has."""
    for key in list(_connected):
        _connected.pop(key).close()


class Remote(ModelKind):
    """The part that all kinds of servers have in common. ``location`` is the URL, or the model's name."""

    model_args: Collection[str] | None = SERVER_ARGS.keys()
    budgeting: Literal["kept", "free", "impossible"] = "kept"
    is_remote = True
    is_identified = True
    checks_suites = True  # what a server can do is known when it was asked
    dialect: ClassVar[str | None] = None
    """The dialect of its servers; None if it has to be found out."""
    is_spoken_elsewhere: ClassVar[bool] = False
    """True if a server at ``base_url`` may speak another dialect."""

    def parse(self, text: str) -> ModelSpec:
        where = f"--llm-model {hide_keys(hide_secrets(text))}"
        location, parts = self.split(text, where)
        arguments: dict[str, Any] = {}
        for name, value in parts:
            if name in arguments and name != "base_url":
                raise OptionError(f"{where}: found {name!r} twice, expected it once")
            check_names({name: None}, self.known(), where.removeprefix("--llm-model "))
            parsed = _model_name(value, where) if name == "model" else parse_argument(name, value, where)
            if name == "base_url":
                arguments.setdefault(name, []).append(parsed)
            else:
                arguments[name] = parsed
        spec = ModelSpec(name=plain_server_name(hide_forms(text)), kind=self, location=location, arguments=arguments)
        self.server_arguments(spec, {})  # refuses what is wrong with all of it together
        return spec

    def known(self) -> Iterable[str]:
        """Return the names of arguments."""
        return SERVER_ARGS

    def split(self, text: str, where: str) -> tuple[str, list[tuple[str, str]]]:
        """Return the location, and names and values of arguments, of a text that it recognizes. Raises
        ``OptionError``.
        """
        location, _, arguments = text.removeprefix(f"{self.name}:").partition("?")
        example = f", such as {self.example}" if self.example else ""
        if not location.strip():
            raise OptionError(f"{where}: expected {self.shown_usage()}{example}")
        return _model_name(location, where), _pairs(arguments, where)

    def key(self, spec: ModelSpec) -> Hashable:
        arguments = self.server_arguments(spec, {})
        return "server", repr(arguments)

    def server_arguments(self, spec: ModelSpec, model_args: Mapping[str, JSON]) -> ServerArguments:
        """Return the user's settings of the model; those behind its name count more than ``--llm-model-arg``."""
        given = {**{name: value for name, value in model_args.items() if name in SERVER_ARGS}, **spec.arguments}
        return ServerArguments.of(
            given,
            self.endpoints(spec, has_others="base_url" in given),
            model=self.model(spec),
            dialect=None if self.is_spoken_elsewhere and "base_url" in given else self.dialect,
            shown=f"--llm-model {spec.name}",
        )

    def endpoints(self, spec: ModelSpec, *, has_others: bool) -> list[Endpoint]:
        """Return the endpoints beside ``base_url``'s; ``has_others`` says whether any is given there."""
        raise NotImplementedError

    def model(self, spec: ModelSpec) -> str | None:
        """Return the name that the server knows the model by; None for its only one."""
        return spec.location

    def check(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """See ``ModelKind``. The variables of keys are looked for; no server is asked."""
        for endpoint in self.server_arguments(spec, settings.model_args).endpoints:
            try:
                check_variable(endpoint, os.environ)
            except OptionError as error:
                raise model_error(hide_keys(spec.name), str(error)) from None

    def has_price(self, spec: ModelSpec, settings: ModelSettings) -> bool:
        """See ``ModelKind``. An embedder writes nothing."""
        arguments = self.server_arguments(spec, settings.model_args)
        return arguments.price_in is not None and (arguments.price_out is not None or spec.embeds)

    def connect(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """See ``ModelKind``. The servers are asked what they are, and tested."""
        self._connected(spec, settings)

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        """Return the model, of servers that were tested."""
        return self._connected(spec, settings)

    def _connected(self, spec: ModelSpec, settings: ModelSettings) -> ServerModel:
        """Connect once in a process: each test costs requests."""
        arguments = replace(
            self.server_arguments(spec, settings.model_args),
            shared_folder=settings.shared_folder,
            budget=settings.budget,
        )
        key = (os.getpid(), spec.name, spec.role, repr(arguments))
        if _connected.get(key) is None or _connected[key].is_closed:
            from pytest_llmeval.models.servers.loading import load_server

            _connected[key] = load_server(spec.name, arguments, spec.role)
        return _connected[key]

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        """Return what its servers are and what their test found, where they were asked."""
        arguments = replace(self.server_arguments(spec, settings.model_args), shared_folder=settings.shared_folder)
        if (model := _connected.get((os.getpid(), spec.name, spec.role, repr(arguments)))) is not None:
            return model.summary
        return "a server" if len(arguments.endpoints) == 1 else f"{len(arguments.endpoints)} servers"

    def server_use(self, spec: ModelSpec) -> ServerUse | None:
        """See ``ModelKind``."""
        key = (os.getpid(), spec.name, spec.role)
        own = [model for (*found, _), model in _connected.items() if tuple(found) == key]
        return own[0].server_use if own else None


class Server(Remote):
    """A server by its URL; the model's name stands behind ``#`` or in ``?model=``."""

    name = "server"
    usage = "the URL of a server (http://HOST:PORT/v1)"

    def recognizes(self, text: str) -> bool:
        return re.match(r"https?://", text, re.IGNORECASE) is not None

    def known(self) -> Iterable[str]:
        return ("model", *SERVER_ARGS)

    def split(self, text: str, where: str) -> tuple[str, list[tuple[str, str]]]:
        """See ``Remote``. ``#NAME`` may stand before the arguments or, as in a URL, behind them."""
        url = re.split(r"[?#]", text, maxsplit=1)[0]
        rest = text[len(url) :]
        if rest.startswith("#"):
            name, _, arguments = rest[1:].partition("?")
        else:
            arguments, _, name = rest[1:].partition("#")
        pairs = _pairs(arguments, where)
        if rest.startswith("#") or name:
            pairs = [("model", unquote(name)), *pairs]
        return parse_url(url, where), pairs

    def endpoints(self, spec: ModelSpec, *, has_others: bool) -> list[Endpoint]:
        return [Endpoint(url=spec.location)]

    def model(self, spec: ModelSpec) -> str | None:
        found = spec.arguments.get("model")
        return None if found is None else str(found)


class NotAURL(Remote):
    """A text that looks like a URL and cannot be used as one: refused with the right spelling."""

    name = "url"
    usage = ""
    is_fallback = True

    def recognizes(self, text: str) -> bool:
        return not os.path.exists(text) and ("://" in text or _HOST_AND_PORT.fullmatch(text) is not None)

    def parse(self, text: str) -> ModelSpec:
        shown = hide_keys(hide_secrets(text))
        parse_url(shown, f"--llm-model {shown}")
        raise AssertionError(text)  # what is a sound URL is recognized by ``Server``


class _Hosted(Remote):
    """A company's API. ``base_url`` stands in the place of its address, and gets none of its keys."""

    url: ClassVar[str]
    protocol: ClassVar[Literal["openai", "anthropic"]] = "openai"

    def endpoints(self, spec: ModelSpec, *, has_others: bool) -> list[Endpoint]:
        return [] if has_others else [Endpoint(url=self.url, protocol=self.protocol)]


class OpenAI(_Hosted):
    """The hosted API of OpenAI, or what speaks it at ``base_url``."""

    name = dialect = "openai"
    is_spoken_elsewhere = True
    usage = "openai:NAME"
    example = "openai:gpt-5-mini"
    url = "https://api.openai.com/v1"


class Anthropic(_Hosted):
    """The Messages API of Anthropic, or what speaks it at ``base_url``."""

    name = dialect = protocol = "anthropic"
    usage = "anthropic:NAME"
    example = "anthropic:claude-haiku-4-5"
    roles = tuple(name for name, role in ROLES.items() if role.method != "embed")
    url = "https://api.anthropic.com/v1"


class Ollama(Remote):
    """A model of Ollama, on this machine or where ``OLLAMA_HOST`` says."""

    name = dialect = "ollama"
    usage = "ollama:NAME"
    example = "ollama:llama3.2:1b"

    def endpoints(self, spec: ModelSpec, *, has_others: bool) -> list[Endpoint]:
        return [] if has_others else [Endpoint(url=ollama_url(os.environ.get("OLLAMA_HOST", "")))]


def ollama_url(host: str) -> str:
    """Return ``OLLAMA_HOST`` as Ollama reads it: ``gpu:11434``, ``:8080``, ``https://host``. Raises ``OptionError``.

    A server that listens on every address (``0.0.0.0``) is found at this machine's own.
    """
    text = host.strip().strip("\"'")
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "http", text
    address, slash, path = rest.partition("/")
    if not urlsplit(f"//{address}").hostname and "@" not in address:
        address = f"127.0.0.1{address}"
    if not re.search(r":\d+$", address) and not separator:
        address = f"{address.removesuffix(':')}:{_OLLAMA_PORT}"
    address = re.sub(r"^(?:0\.0\.0\.0|\[::\])(?=:|$)", "127.0.0.1", address)
    return parse_url(f"{scheme}://{address}{slash}{path}", "OLLAMA_HOST")


def _pairs(arguments: str, where: str) -> list[tuple[str, str]]:
    """Return ``a=1&b=2`` as names and values; ``%26`` stands for ``&``."""
    pairs = []
    for part in arguments.split("&") if arguments else ():
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"{where}: expected name=value after '?', several with '&' between them")
        pairs.append((unquote(name).strip(), unquote(value)))
    return pairs


def _model_name(text: str, where: str) -> str:
    name = text.strip()
    if not name or not name.isprintable():
        raise OptionError(f"{where}: model: found {quoted(name)}, expected a name that the server knows")
    return name
