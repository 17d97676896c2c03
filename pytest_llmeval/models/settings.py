"""The settings by which a model is loaded: what the command line may say, checked before anything is loaded."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.endpoints import LAUNCH, SERVER_ARGS, parse_argument, parse_launch_setting
from pytest_llmeval.models.findings import Findings
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    from pytest_llmeval.models.budget import Budget

__all__ = [
    "CHECKPOINT_ARGS",
    "MODEL_ARGS",
    "ModelArg",
    "ModelSettings",
    "ReplicaSettings",
    "ShowStart",
    "check_device",
    "merge_model_args",
    "parse_model_arg",
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


ShowStart: TypeAlias = Callable[[str, Callable[[], str]], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings by which a model is loaded; the defaults are the command line's.

    ``device`` None picks MPS on Apple silicon, then CUDA, then CPU. ``dtype`` None is float32 on CPU and the
    checkpoint's own elsewhere. ``batch_size`` counts requests; None fills batches up to a number of tokens. ``engine``
    says how log-likelihoods are computed, auto, tree or plain; None is auto.
    ``model_args`` are the parsed ``--llm-model-arg`` settings, with the keys of ``MODEL_ARGS``. ``num_workers``
    processes, of which this is one, run models at once and share the cores; None leaves the threads as they are.
    In ``shared_folder`` they agree on how many requests a model gets at once; None if there is one process.
    ``replicas`` servers of a launched model share the work; ``launched`` is the folder of the session's keeper, and
    ``show_start`` makes a context in which a live line says that a model's server starts, and its last line.
    ``findings``: what is known of models already. ``budget``: what the session may pay, None for any amount.
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
    replicas: int | None = None
    launched: Path | None = field(default=None, compare=False)
    show_start: ShowStart | None = field(default=None, compare=False)
    findings: Findings | None = field(default=None, compare=False)
    budget: Budget | None = field(default=None, compare=False)


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
    if key.startswith(LAUNCH):
        name, value = parse_launch_setting(key, value, "--llm-model-arg")
        return ModelArg(LAUNCH + name, value, text)
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
    """Return the settings by key, those of launched servers in a mapping ``launch``.

    Of ``base_url`` all are kept, in a list; of any other key the last.
    """
    merged: dict[str, JSON] = {}
    urls: list[JSON] = []
    launch: dict[str, JSON] = {}
    for arg in given:
        if arg.key == "base_url":
            urls.append(arg.value)
        elif arg.key.startswith(LAUNCH):
            launch[arg.key.removeprefix(LAUNCH)] = arg.value
        else:
            merged[arg.key] = arg.value
    return merged | ({"base_url": urls} if urls else {}) | ({"launch": launch} if launch else {})


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
    begun, dot, setting = key.partition(".")
    if dot and difflib.get_close_matches(f"{begun}.", [LAUNCH], 1):
        raise OptionError(f"--llm-model-arg: unknown key {key!r}; did you mean {LAUNCH}{setting}?")
    near = difflib.get_close_matches(key, MODEL_ARGS, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(MODEL_ARGS)}, {LAUNCH}SETTING"
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
