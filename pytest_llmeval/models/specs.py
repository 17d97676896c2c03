"""A model as the user names it after ``--llm-model``: its kind, and the spec of one model of that kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.names import without_arguments
from pytest_llmeval.text.redaction import hide_forms, is_secret_name, is_secret_value, remember
from pytest_llmeval.text.wording import expected_one_of, quoted
from pytest_llmeval.types import JSON, ServerUse

__all__ = ["ModelKind", "ModelSpec", "check_names", "hide_secrets", "parse_arguments", "split_arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as the user named it.

    ``name`` is the text that the user gave, without secrets and without arguments that decide no reply, and the key of
    the model's records. ``location`` says which model of its kind it is: a folder, a file, ``module:name``.
    ``arguments`` are what stands after ``?``.
    ``role`` is what scorers ask it for; None for a model that is evaluated.
    """

    name: str
    kind: ModelKind
    location: str
    arguments: Mapping[str, JSON] = field(default_factory=dict, repr=False)
    role: Role | None = None

    @property
    def embeds(self) -> bool:
        """Return whether it is asked for embeddings, and for nothing else."""
        return self.role is not None and ROLES[self.role].method == "embed"

    @property
    def deciding(self) -> dict[str, JSON]:
        """Return the arguments that can decide a reply."""
        return {name: value for name, value in self.arguments.items() if name not in self.kind.operation}


class ModelKind:
    """A kind of model, written ``NAME:LOCATION?ARGUMENTS``. A subclass sets ``name`` and implements ``load``.

    Specs are parsed, checked and described in every process of a session, also where no model is loaded: what takes
    long to import belongs into ``load``.
    """

    name: str
    """The text before the colon: ``replay`` in ``replay:outputs.jsonl``."""
    usage: str | None = None
    """Its form on the command line, as messages show it: by default ``NAME:LOCATION``; empty if it is not offered."""
    example: str = ""
    arguments: Collection[str] | None = None
    """The names that may stand after ``?``; None for any."""
    operation: Collection[str] = ()
    """Arguments that do not change replies, such as time limits: no name, baseline or store key contains them."""
    model_args: Collection[str] | None = None
    """The keys of ``--llm-model-arg`` that mean something for it; None if that is not known."""
    has_secrets: bool = True
    """True if arguments with names such as ``api_key`` are secrets, which nothing shows."""
    needs_location: bool = True
    """False if a model may be named without one; a kind that takes none refuses it in ``parse``."""
    needs_device: bool = False
    """True if a device of this machine runs it (``--llm-device``); workers of pytest-xdist share the devices."""
    is_remote: bool = False
    """True if a server runs it, which the processes of a session share; it is not asked if no test runs."""
    budgeting: Literal["kept", "free", "impossible"] = "impossible"
    """``kept`` if its models keep to a budget (``--llm-budget``), ``free`` if nothing is paid for them."""
    shares_limits: bool = False
    """True if the processes of a session agree on how many of its requests are under way at once."""
    imports_from_project: bool = False
    """True if its code may be a module in the current folder or the rootdir."""
    takes_replicas: bool = False
    """True if processes on other machines can load it as well (``--llm-ray``)."""
    checks_suites: bool = False
    """True if it is loaded as soon as suites are collected, and ``prepare`` refuses those that it does not fit."""
    shows_methods: bool = False
    """True if ``lacks_method`` knows which methods a model has."""
    is_identified: bool = False
    """True if the identity of its models says all that decides their replies; else kept replies (``--llm-store``) are
    looked for by the location and the arguments too, secrets included."""
    roles: Collection[str] = ROLES.keys()
    """The roles in which scorers can ask its models."""
    is_fallback: bool = False
    """True if every other kind is tried first."""

    @property
    def costs_nothing(self) -> bool:
        """Tell whether nothing is paid for its models, which therefore keep to any budget and cost 0 in gates."""
        return self.budgeting == "free"

    def has_price(self, spec: ModelSpec, settings: ModelSettings) -> bool:
        """Tell whether it is known what the model's replies cost, or will be with each reply."""
        return True

    def shown_usage(self) -> str:
        """Return ``usage``, or what stands for it."""
        return f"{self.name}:LOCATION" if self.usage is None else self.usage

    def recognizes(self, text: str) -> bool:
        """Tell whether the text names a model of this kind.

        Here: it begins with the name and a colon. A kind whose models are named without the colon says so, as
        ``Guessing`` does; else the text is the id of a model of the hub.
        """
        return text.startswith(f"{self.name}:")

    def hides(self, argument: str, value: JSON) -> bool:
        """Return whether nothing may show this value of an argument: it is a secret, or may be one."""
        return self.has_secrets and is_secret_name(argument)

    def how_to_show(self, arguments: Collection[str]) -> str:
        """Return what a message adds, so that a user knows how values of these hidden arguments can be shown."""
        return ""

    def parse(self, text: str) -> ModelSpec:
        """Return the spec for a text that it recognizes. Raises ``OptionError``."""
        return self.parsed(text)

    def parsed(self, text: str, *, shown: Collection[str] = ()) -> ModelSpec:
        """Return the spec, as ``parse`` does, with the values of the arguments in ``shown`` not hidden."""

        def is_hidden(argument: str, value: JSON) -> bool:
            return argument not in shown and self.hides(argument, value)

        name = hide_secrets(text, is_hidden) if self.has_secrets else text
        before, after = split_arguments(text)
        location = before.removeprefix(self.name).removeprefix(":").strip()
        if self.needs_location and not location:
            example = f", such as {self.example}" if self.example else ""
            raise OptionError(f"--llm-model {name}: expected {self.shown_usage()}{example}")
        arguments = parse_arguments(after, name)
        for argument, value in arguments.items():
            if is_hidden(argument, value) and is_secret_value(str(value), argument):
                remember(str(value))
        if self.arguments is not None:
            check_names(arguments, self.arguments, name)
        return ModelSpec(
            name=without_arguments(name, self.operation), kind=self, location=location, arguments=arguments
        )

    def key(self, spec: ModelSpec) -> Hashable:
        """Return what is equal for two specs that mean one model."""
        return self.name, spec.location, repr(sorted(spec.arguments.items()))

    def check(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """Refuse, within milliseconds, a model that cannot be loaded. Raises ``ModelError`` or ``OptionError``."""

    def connect(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """Find out elsewhere what ``describe`` is to say, and whether the model can be loaded; called once, before
        anything runs, in the process that shows the header. Raises ``ModelError`` or ``OptionError``.
        """

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        """Return the model, ready to be asked. Raises ``ModelError`` or ``OptionError``."""
        raise NotImplementedError

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        """Describe the model in a few words, for pytest's header."""
        return self.name

    def server_use(self, spec: ModelSpec) -> ServerUse | None:
        """Return what this process has sent to its servers so far, ``connect`` included; None if there is no
        server.
        """
        return None

    def lacks_method(self, spec: ModelSpec, method: str) -> bool:
        """Tell whether the model, which is not loaded, is known to have no such method of ``Model``.

        So that a suite which needs the method is refused when it is collected.
        """
        return False

    def refuses_tools(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """Return why the model, which is not loaded, is known to take no tools (``prompt.tools``); None otherwise.

        So that a suite with tools is refused when it is collected.
        """
        return None


# What stands after ``?``: ``python:agents:crew?planning=true&k=3``


def split_arguments(text: str) -> tuple[str, str]:
    """Return what stands before the first ``?`` and what after it; empty if there is none."""
    location, _, arguments = text.partition("?")
    return location, arguments


def parse_arguments(text: str, model: str) -> dict[str, JSON]:
    """Return ``planning=true&k=3`` as ``{"planning": True, "k": 3}``: values are typed as YAML scalars are, the rest is
    text.

    ``%26`` stands for ``&``. Raises ``OptionError`` that names ``model`` for a part without ``=``, and a name twice.
    """
    values: dict[str, JSON] = {}
    for part in text.split("&") if text else ():
        name, equals, value = part.partition("=")
        name = unquote(name).strip()
        if not equals or not name:
            raise OptionError(
                f"--llm-model {model}: found {_shown_part(part, text)} after '?', expected name=value, several with "
                "'&' between them"
            )
        if name in values:
            raise OptionError(f"--llm-model {model}: found {name!r} twice after '?', expected it once")
        values[name] = _scalar(unquote(value))
    return values


def _shown_part(part: str, text: str) -> str:
    """Return a part without ``=`` for a message, unless it may be the end of a secret that holds a ``&``."""
    follows_secret = any(is_secret_name(one.partition("=")[0]) for one in text.split("&"))
    is_shown = not follows_secret and not is_secret_value(part)
    return quoted(part) if is_shown else "something that is not shown, as it may be a secret (%26 stands for &),"


def _scalar(text: str) -> JSON:
    from pytest_llmeval.data.yaml_reader import parse_yaml  # brings a library that most runs have no need of here

    try:
        value = parse_yaml(text, Source(Path(), "")).value
    except SuiteError:
        return text
    return text if isinstance(value, list | dict) else value


def check_names(values: Mapping[str, JSON], known: Iterable[str], model: str) -> None:
    """Raise ``OptionError`` for an argument that ``model`` does not take, with the nearest one that it does."""
    for name in values:
        if name not in known:
            raise OptionError(f"--llm-model {model}: there is no argument {name!r}{expected_one_of(name, known)}")


def hide_secrets(
    model: str, is_hidden: Callable[[str, JSON], bool] = lambda argument, _: is_secret_name(argument)
) -> str:
    """Return a model's name as anybody may read it: ``***`` for the values of arguments that are hidden."""
    location, mark, arguments = model.partition("?")
    shown = []
    for part in arguments.split("&"):
        name, equals, value = part.partition("=")
        hides = equals and is_hidden(unquote(name).strip(), _scalar(unquote(value)))
        shown.append(f"{name}=***" if hides else part)
    return hide_forms(f"{location}{mark}{'&'.join(shown)}")
