"""Every option, once: command line, environment variable and ini value, parsed into one frozen ``Settings``.

The command line beats the environment, which beats the ini file. This module is imported by every pytest run that has
the plugin installed, so it imports next to nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from pytest_llmeval.errors import OptionError

__all__ = [
    "OPTIONS",
    "Limit",
    "Option",
    "Settings",
    "add_options",
    "is_sample_key",
    "llm_session_key",
    "model_key",
    "read_named",
    "read_settings",
    "recorder_key",
    "settings_key",
]

ReportPrompts: TypeAlias = Literal["none", "hash", "full"]


@dataclass(frozen=True, slots=True)
class Limit:
    """How many samples of each suite run: ``count`` of them, the first or a seeded random choice."""

    count: int
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for. Field ``x_y`` is option ``--llm-x-y``, ini ``llm_x_y``, variable ``PYTEST_LLM_X_Y``.

    ``models`` are those of ``--llm-model``, in order and each once, as they were written, but for secrets: what records
    and node names are made of. ``written_models`` has those that were written otherwise.
    """

    models: tuple[str, ...] = ()
    written_models: Mapping[str, str] = field(default_factory=dict, repr=False)
    engine: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    batch_size: int | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    model_arg: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    suite: tuple[str, ...] = ()
    lm_eval: bool = False
    trust_task_code: bool = False
    limit: Limit | None = None
    strict: bool = False
    show_prompts: bool = False
    report: Path | None = None
    report_prompts: ReportPrompts = "full"

    def written(self, model: str) -> str:
        """One of ``models`` with its secrets: what it is loaded by, and nobody else's business."""
        return self.written_models.get(model, model)


settings_key = pytest.StashKey[Settings]()
"""Where the settings lie in ``config.stash``."""

is_sample_key = pytest.StashKey[bool]()
"""In the stash of every item that is a sample of a suite."""

model_key = pytest.StashKey[str]()
"""Where several models are given, in the stash of every item that one of them answers: which, as it was written."""

llm_session_key = pytest.StashKey[Any]()
"""The ``LLMSession`` of the process that reports, once there is something to gather."""

recorder_key = pytest.StashKey[Any]()
"""The ``Recorder`` of an item that has asked for ``llm_record``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``parse`` turns its text into a value and raises ``ValueError`` saying what is expected.

    ``field`` is its place in ``Settings``, where that is not its name.
    """

    name: str
    help: str
    field: str | None = None
    metavar: str = "VALUE"
    kind: Literal["text", "number", "flag", "list"] = "text"
    parse: Callable[[str], Any] = str

    @property
    def flag(self) -> str:
        return "--llm-" + self.name.replace("_", "-")

    @property
    def ini(self) -> str:
        return "llm_" + self.name

    @property
    def variable(self) -> str:
        return "PYTEST_LLM_" + self.name.upper()


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("expected some text")
    return value


def _model(value: str) -> str:
    return _text(value).strip()


def _engine(value: str) -> str:
    if value not in ("auto", "tree", "plain"):
        raise ValueError("expected auto, tree or plain")
    return value


def _flag(value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[value.strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _device(value: str) -> str:
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", value):
        raise ValueError("expected cpu, cuda, cuda:N or mps")
    return value


def _dtype(value: str) -> str:
    if value not in ("auto", "float32", "bfloat16", "float16"):
        raise ValueError("expected auto, float32, bfloat16 or float16")
    return value


def _positive(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        raise ValueError("expected a whole number above 0")
    return int(value)


def _limit(value: str) -> Limit:
    prefix, colon, count = value.rpartition(":")
    if (colon and prefix != "first") or not re.fullmatch(r"[0-9]{1,9}", count) or int(count) == 0:
        raise ValueError("expected N or first:N, with N above 0")
    return Limit(int(count), first=bool(colon))


def _suite(value: str) -> str:
    prefix, colon, names = value.strip().partition(":")
    if prefix != "lm_eval" or not colon or not all(name.removeprefix("lm_eval:").strip() for name in names.split(",")):
        raise ValueError("expected lm_eval:NAME, a task, group or tag of the installed lm_eval package")
    return value.strip()


def _report(value: str) -> Path:
    path = Path(_text(value))
    if path.suffix.lower() != ".json":
        raise ValueError("expected a file name that ends in .json")
    return path


def _report_prompts(value: str) -> str:
    if value not in ("none", "hash", "full"):
        raise ValueError("expected none, hash or full")
    return value


OPTIONS: tuple[Option, ...] = (
    Option(
        name="model",
        field="models",
        kind="list",
        metavar="SPEC",
        parse=_model,
        help="The model that answers: 'demo' (ships with the plugin), a Hugging Face id, a checkpoint folder, "
        "replay:FILE (replies from a file), python:MODULE:NAME (a function or class), random or majority (guessing). "
        "Given several times, every suite runs on each, and they are compared with the first.",
    ),
    Option(
        name="engine",
        metavar="HOW",
        parse=_engine,
        help="How log-likelihoods are computed: auto, tree (shared prefixes once) or plain (padded batches, the "
        "reference).",
    ),
    Option(
        name="revision", metavar="REV", parse=_text, help="Branch, tag or commit of a model on the Hugging Face hub."
    ),
    Option(
        name="device",
        metavar="DEVICE",
        parse=_device,
        help="cpu, cuda, cuda:N or mps. Default: MPS on Apple silicon, then CUDA, then CPU.",
    ),
    Option(
        name="dtype",
        metavar="DTYPE",
        parse=_dtype,
        help="auto (the checkpoint's own), float32, bfloat16 or float16. Default: float32 on CPU, else auto.",
    ),
    Option(
        name="batch_size",
        metavar="N",
        kind="number",
        parse=_positive,
        help="Requests in one forward pass, and samples computed ahead. Default: chosen by the number of tokens.",
    ),
    Option(
        name="trust_remote_code",
        kind="flag",
        parse=_flag,
        help="Allow a model to run Python code that comes with its checkpoint.",
    ),
    Option(
        name="allow_pickle",
        kind="flag",
        parse=_flag,
        help="Allow weights in pickle files (.bin, .pt), which can run code when they are loaded. "
        "Default: safetensors only.",
    ),
    Option(
        name="model_arg",
        kind="list",
        metavar="KEY=VALUE",
        parse=_text,
        help="How the model is loaded: peft=FOLDER, quantization_config={…}, device_map=auto, tokenizer=ID, "
        "max_length=N, attn_implementation=NAME, subfolder=NAME, add_bos=true. Can be given several times.",
    ),
    Option(
        name="set",
        kind="list",
        metavar="'SUITE: KEY=VALUE'",
        parse=_text,
        help="Change a key of a suite for this run: 'mmlu: prompt.fewshot.count=5'; the suite '*' is every suite. "
        "Can be given several times.",
    ),
    Option(
        name="suite",
        kind="list",
        metavar="lm_eval:NAME",
        parse=_suite,
        help="Run a task, group or tag of the installed lm_eval package by its name: lm_eval:arc_easy. Several with "
        "commas, or given several times.",
    ),
    Option(
        name="lm_eval",
        kind="flag",
        parse=_flag,
        help="Collect lm-eval's task files where pytest finds them; those named on the command line are always.",
    ),
    Option(
        name="trust_task_code",
        kind="flag",
        parse=_flag,
        help="Let tasks of the installed lm_eval package run the Python functions (!function) that they name.",
    ),
    Option(
        name="limit",
        metavar="N",
        parse=_limit,
        help="Run N samples of each suite, a seeded random choice (first:N: the first N). A quick look, not a result.",
    ),
    Option(name="strict", kind="flag", parse=_flag, help="A wrong answer fails its test."),
    Option(
        name="show_prompts",
        kind="flag",
        parse=_flag,
        help="Print the exact prompt of each selected sample, with the scored part marked, and run nothing.",
    ),
    Option(
        name="report",
        metavar="FILE.json",
        parse=_report,
        help="Write the report: metrics, and a record for every sample.",
    ),
    Option(
        name="report_prompts",
        metavar="HOW",
        parse=_report_prompts,
        help="Prompts in the report: none, hash or full (the default).",
    ),
)


_INI_TYPES: dict[str, Literal["bool", "int", "linelist", "string"]] = {
    "flag": "bool",
    "list": "linelist",
    "number": "int",
    "text": "string",
}


def add_options(parser: pytest.Parser) -> None:
    """Register every option of ``OPTIONS`` on the command line and in the ini file."""
    group = parser.getgroup("llmeval", "LLM benchmarks (pytest-llmeval-suites)")
    for option in OPTIONS:
        dest = f"llm_{option.name}"
        if option.kind == "flag":
            group.addoption(option.flag, dest=dest, action="store_true", default=None, help=option.help)
        else:
            # Appending keeps a text option that was given twice from silently losing its first value.
            group.addoption(
                option.flag, dest=dest, action="append", default=None, metavar=option.metavar, help=option.help
            )
        parser.addini(option.ini, f"{option.flag}: {option.help}", type=_INI_TYPES[option.kind], default=None)


def read_named(config: pytest.Config, name: str) -> Any:
    """The parsed value of the option called ``name``. Raises ``OptionError``."""
    return _read(config, next(option for option in OPTIONS if option.name == name))


def _read(config: pytest.Config, option: Option) -> Any:
    """The option's parsed value from the first place that sets it, None where none does.

    Raises ``OptionError`` naming the place, the value and what is expected.
    """
    given = config.getoption(f"llm_{option.name}", None)
    if given is not None:
        return _parse(option, option.flag, given)
    text = os.environ.get(option.variable)
    if text:
        lines = [line for line in text.splitlines() if line.strip()] if option.kind == "list" else [text]
        return _parse(option, option.variable, lines)
    where = f"{option.ini} in {config.inipath.name if config.inipath else 'the ini file'}"
    try:
        value = config.getini(option.ini)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{where}: {error}") from None
    if value is None or value == []:
        return None
    return _parse(option, where, value if isinstance(value, list) else [value])


def _parse(option: Option, where: str, values: Any) -> Any:
    if option.kind == "flag":
        (value,) = values if isinstance(values, list) else [values]
        return value if isinstance(value, bool) else _explained(option, where, str(value))
    if option.kind == "list":
        return tuple(_explained(option, where, value) for value in values)
    if len(values) > 1:
        raise OptionError(f"{where} was given {len(values)} times ({', '.join(map(repr, values))}): give it once")
    return _explained(option, where, str(values[0]))


def _explained(option: Option, where: str, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise OptionError(f"{where}: {error}, found {text!r}") from None


def _without_secrets(settings: Settings) -> Settings:
    if not any("?" in model for model in settings.models):
        return settings
    from pytest_llmeval.models.spec_arguments import hide_secrets

    shown = tuple(map(hide_secrets, settings.models))
    return replace(settings, models=shown, written_models=dict(zip(shown, settings.models, strict=True)))


def read_settings(config: pytest.Config) -> Settings:
    """All options as ``Settings``. Raises ``OptionError``."""
    given: dict[str, Any] = {option.field or option.name: _read(config, option) for option in OPTIONS}
    settings = _without_secrets(Settings(**{name: value for name, value in given.items() if value is not None}))
    for place, model in enumerate(settings.models):
        if model in settings.models[:place]:
            raise OptionError(f"--llm-model {model} was given twice: a model is compared with others, not with itself")
    return settings
