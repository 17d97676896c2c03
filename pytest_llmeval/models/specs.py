"""A model as the user names it: its kind, its spec, and the settings by which it is loaded.

All of it is read from the command line and checked before anything is loaded.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.endpoints import SERVER_ARGS, parse_argument
from pytest_llmeval.models.findings import Findings
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.names import without_arguments
from pytest_llmeval.text.redaction import hide_forms, is_secret_name, is_secret_value, remember
from pytest_llmeval.text.wording import expected_one_of, quoted
from pytest_llmeval.types import JSON, ServerUse

__all__ = [
    "CHECKPOINT_ARGS",
    "MODEL_ARGS",
    "ModelArg",
    "ModelKind",
    "ModelSettings",
    "ModelSpec",
    "ReplicaSettings",
    "check_device",
    "check_names",
    "hide_secrets",
    "merge_model_args",
    "parse_arguments",
    "parse_model_arg",
    "split_arguments",
]


CHECKPOINT_ARGS: Mapping[str, str] = {
    "peft": "folder of a PEFT adapter, put on the model",
    "quantization_config": 'JSON mapping, such as {"load_in_4bit": true}',
    "device_map": "where the layers go, such as auto (needs accelerate)",
    "tokenizer": "hub id or folder of the tokenizer, where it is not the model's own",
    "max_length": "tokens that the model's context holds, where its config does not say",
    "attn_implementation": "eager, sdpa, …: which attention code transformers uses",
    "subfolder": "folder inside the checkpoint that holds config and weights",
    "add_bos": "true or false: begin every text with the BOS token, whatever the tokenizer says",
}
"""The keys of ``--llm-model-arg`` for a checkpoint, each with the help that a wrong value is answered with."""

MODEL_ARGS: Mapping[str, str] = {**CHECKPOINT_ARGS, **SERVER_ARGS}
"""The keys of ``--llm-model-arg`` for all kinds of models."""

_JSON_KEYS = frozenset({"quantization_config", "device_map", "max_length", "add_bos"})
_DEVICE = re.compile(r"auto|cpu|mps|(?:cuda|xpu|npu)(?::\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings by which a model is loaded; the defaults are the command line's.

    ``device`` None picks MPS on Apple silicon, then CUDA, then CPU. ``dtype`` None is float32 on CPU and the
    checkpoint's own elsewhere. ``batch_size`` counts requests; None fills batches up to a number of tokens. ``engine``
    says how log-likelihoods are computed, auto, tree or plain; None is auto.
    ``model_args`` are the parsed ``--llm-model-arg`` settings, with the keys of ``MODEL_ARGS``. ``num_workers``
    processes, of which this is one, run models at once and share the cores; None leaves the threads as they are.
    In ``shared_folder`` they agree on how many requests a model gets at once; None if there is one process.
    ``findings``: what is known of models already.
    """

    device: str | None = None
    dtype: str | None = None
    batch_size: int | None = None
    engine: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    model_args: Mapping[str, JSON] = field(default_factory=dict)
    num_workers: int | None = None
    shared_folder: Path | None = None
    findings: Findings | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The place of a local model's replicas: the Ray cluster at ``address``, or one of its own (``local``).

    ``count`` replicas have ``cpus`` CPUs and ``gpus`` GPUs each (0.5: two share one); None is found out from what the
    cluster has.
    """

    address: str
    count: int | None = None
    cpus: int | None = None
    gpus: float | None = None


class ModelArg(NamedTuple):
    """A setting of ``--llm-model-arg``; ``text`` is what the user wrote."""

    key: str
    value: JSON
    text: str


def parse_model_arg(text: str) -> ModelArg:
    """Return ``max_length=2048`` as key and value; numbers, true and false, and mappings are read as JSON.

    Raises ``OptionError`` for an unknown key, with the nearest known one, and for a value of the wrong type.
    """
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not key:
        raise OptionError(f"--llm-model-arg {text!r}: expected key=value, such as max_length=2048")
    _check_key(key)
    value = value.strip()
    if key in SERVER_ARGS and key not in _JSON_KEYS:
        return ModelArg(key, parse_argument(key, value, "--llm-model-arg"), text)
    if key not in _JSON_KEYS:
        _check_value(key, value)
        return ModelArg(key, value, text)
    try:
        parsed: JSON = json.loads(value, parse_constant=_no_constant)
    except ValueError:
        if value.startswith(("{", "[")):
            raise OptionError(f"--llm-model-arg {key}: the value {value!r} is not valid JSON") from None
        parsed = {"true": True, "false": False}.get(value.lower(), value)
    _check_value(key, parsed)
    return ModelArg(key, parsed, text)


def merge_model_args(given: Iterable[ModelArg]) -> dict[str, JSON]:
    """Return the settings by key. Of ``base_url`` all are kept, in a list; of any other key the last."""
    merged: dict[str, JSON] = {}
    urls: list[JSON] = []
    for arg in given:
        if arg.key == "base_url":
            urls.append(arg.value)
        else:
            merged[arg.key] = arg.value
    return {**merged, "base_url": urls} if urls else merged


def check_device(settings: ModelSettings) -> None:
    """Raise ``OptionError`` for a device that no machine has, which a fixture ``llm_device`` may give."""
    if settings.device is not None and not _DEVICE.fullmatch(settings.device):
        near = difflib.get_close_matches(settings.device.lower(), ("cpu", "cuda", "cuda:0", "mps"), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise OptionError(f"--llm-device {settings.device!r}: expected cpu, cuda, cuda:N or mps{hint}")


def _no_constant(name: str) -> JSON:
    raise ValueError(name)


def _check_key(key: str) -> None:
    if key in MODEL_ARGS:
        return
    near = difflib.get_close_matches(key, MODEL_ARGS, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(MODEL_ARGS)}"
    raise OptionError(f"--llm-model-arg: unknown key {key!r}{hint}")


def _check_value(key: str, value: JSON) -> None:
    match key:
        case "max_length":
            good = isinstance(value, int) and not isinstance(value, bool) and value > 0
            expected = "a whole number, 1 or more"
        case "add_bos":
            good, expected = isinstance(value, bool), "true or false"
        case "quantization_config":
            good, expected = isinstance(value, dict) and bool(value), 'a JSON mapping, such as {"load_in_4bit": true}'
        case "device_map":
            good, expected = isinstance(value, str | dict) and bool(value), "a text, such as auto, or a JSON mapping"
        case _:
            good, expected = isinstance(value, str) and bool(value), "a text"
    if not good:
        raise OptionError(f"--llm-model-arg {key}={json.dumps(value)}: expected {expected} ({MODEL_ARGS[key]})")


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
    needs_device: bool = False
    """True if a device of this machine runs it (``--llm-device``); workers of pytest-xdist share the devices."""
    is_remote: bool = False
    """True if a server runs it, which the processes of a session share; it is not asked if no test runs."""
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

    def shown_usage(self) -> str:
        """Return ``usage``, or what stands for it."""
        return f"{self.name}:LOCATION" if self.usage is None else self.usage

    def recognizes(self, text: str) -> bool:
        """Tell whether the text names a model of this kind."""
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
