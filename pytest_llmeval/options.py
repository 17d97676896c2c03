"""Every option, once: command line, environment variable and ini value, parsed into one frozen ``Settings``.

The command line beats the environment, which beats the ini file. This module is imported by every pytest run that has
the plugin installed, so it imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from pytest_llmeval import option_parsers as parsers
from pytest_llmeval.errors import OptionError
from pytest_llmeval.option_parsers import Limit, Shard

__all__ = [
    "OPTIONS",
    "Limit",
    "Option",
    "Settings",
    "Shard",
    "add_options",
    "collected_suites_key",
    "is_sample_key",
    "llm_session_key",
    "model_key",
    "read_named",
    "read_settings",
    "recorder_key",
    "settings_key",
]

ReportPrompts: TypeAlias = Literal["none", "hash", "full"]
GateMode: TypeAlias = Literal["significant", "margin", "non-inferior"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for. Field ``x_y`` is option ``--llm-x-y``, ini ``llm_x_y``, variable ``PYTEST_LLM_X_Y``.

    ``models`` are those of ``--llm-model``, in order and each once, as they were written, but for secrets: what records
    and node names are made of. ``written_models`` has those that were written otherwise. ``gate`` are the gates of the
    command line or the environment, which always decide; ``project_gate`` those of the ini file, which add to them.
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
    report: tuple[Path, ...] = ()
    report_prompts: ReportPrompts = "full"
    gate: tuple[str, ...] = ()
    project_gate: tuple[str, ...] = ()
    baseline: Path | None = None
    max_drop: tuple[str, ...] = ()
    gate_mode: GateMode = "significant"
    compare: Literal["all", "common"] = "all"
    alpha: float = 0.05
    allow_unscored: int = 0
    require_gates: bool = False
    shard: Shard | None = None

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

collected_suites_key = pytest.StashKey[list[Any]]()
"""The ``SuiteInfo`` of each suite that this process has collected, selected or not."""

recorder_key = pytest.StashKey[Any]()
"""The ``Recorder`` of an item that has asked for ``llm_record``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``parse`` turns its text into a value and raises ``ValueError`` saying what is expected.

    ``field`` is its place in ``Settings``, where that is not its name. ``ini_field`` is the place of what the ini file
    says, where that does not give way to the command line but adds to it.
    """

    name: str
    help: str
    field: str | None = None
    ini_field: str | None = None
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


OPTIONS: tuple[Option, ...] = (
    Option(
        name="model",
        field="models",
        kind="list",
        metavar="SPEC",
        parse=parsers.model,
        help="The model that answers: 'demo' (ships with the plugin), a Hugging Face id, a checkpoint folder, "
        "replay:FILE (replies from a file), python:MODULE:NAME (a function or class), random or majority (guessing). "
        "Given several times, every suite runs on each, and they are compared with the first.",
    ),
    Option(
        name="engine",
        metavar="HOW",
        parse=parsers.one_of("auto", "tree", "plain"),
        help="How log-likelihoods are computed: auto, tree (shared prefixes once) or plain (padded batches, the "
        "reference).",
    ),
    Option(
        name="revision",
        metavar="REV",
        parse=parsers.text,
        help="Branch, tag or commit of a model on the Hugging Face hub.",
    ),
    Option(
        name="device",
        metavar="DEVICE",
        parse=parsers.device,
        help="cpu, cuda, cuda:N or mps. Default: MPS on Apple silicon, then CUDA, then CPU.",
    ),
    Option(
        name="dtype",
        metavar="DTYPE",
        parse=parsers.one_of("auto", "float32", "bfloat16", "float16"),
        help="auto (the checkpoint's own), float32, bfloat16 or float16. Default: float32 on CPU, else auto.",
    ),
    Option(
        name="batch_size",
        metavar="N",
        kind="number",
        parse=parsers.positive,
        help="Requests in one forward pass, and samples computed ahead. Default: chosen by the number of tokens.",
    ),
    Option(
        name="trust_remote_code",
        kind="flag",
        parse=parsers.flag,
        help="Allow a model to run Python code that comes with its checkpoint.",
    ),
    Option(
        name="allow_pickle",
        kind="flag",
        parse=parsers.flag,
        help="Allow weights in pickle files (.bin, .pt), which can run code when they are loaded. "
        "Default: safetensors only.",
    ),
    Option(
        name="model_arg",
        kind="list",
        metavar="KEY=VALUE",
        parse=parsers.text,
        help="How the model is loaded: peft=FOLDER, quantization_config={…}, device_map=auto, tokenizer=ID, "
        "max_length=N, attn_implementation=NAME, subfolder=NAME, add_bos=true. Can be given several times.",
    ),
    Option(
        name="set",
        kind="list",
        metavar="'SUITE: KEY=VALUE'",
        parse=parsers.text,
        help="Change a key of a suite for this run: 'mmlu: prompt.fewshot.count=5'; the suite '*' is every suite. "
        "Can be given several times.",
    ),
    Option(
        name="suite",
        kind="list",
        metavar="lm_eval:NAME",
        parse=parsers.suite,
        help="Run a task, group or tag of the installed lm_eval package by its name: lm_eval:arc_easy. Several with "
        "commas, or given several times.",
    ),
    Option(
        name="lm_eval",
        kind="flag",
        parse=parsers.flag,
        help="Collect lm-eval's task files where pytest finds them; those named on the command line are always.",
    ),
    Option(
        name="trust_task_code",
        kind="flag",
        parse=parsers.flag,
        help="Let tasks of the installed lm_eval package run the Python functions (!function) that they name.",
    ),
    Option(
        name="limit",
        metavar="N",
        parse=parsers.limit,
        help="Run N samples of each suite, a seeded random choice (first:N: the first N). A quick look, not a result.",
    ),
    Option(name="strict", kind="flag", parse=parsers.flag, help="A wrong answer fails its test."),
    Option(
        name="show_prompts",
        kind="flag",
        parse=parsers.flag,
        help="Print the exact prompt of each selected sample, with the scored part marked, and run nothing.",
    ),
    Option(
        name="report",
        kind="list",
        metavar="FILE",
        parse=parsers.report,
        help="Write the report: metrics, and a record for every sample, as FILE.json, .md, .csv or .jsonl; a folder is "
        "given a file .md with a name made of the model and the time. Can be given several times.",
    ),
    Option(
        name="report_prompts",
        metavar="HOW",
        parse=parsers.one_of("none", "hash", "full"),
        help="Prompts in the report: none, hash or full (the default).",
    ),
    Option(
        name="gate",
        kind="list",
        ini_field="project_gate",
        metavar="'SUITE: RULE'",
        parse=parsers.text,
        help="Fail the run unless the rule holds: 'boolq: accuracy >= 0.6', 'mmlu: ci_low(category.law.accuracy) > "
        "0.5'; a rule alone is for every suite. Can be given several times. Gates of the ini file add to these, and "
        "see whole suites only.",
    ),
    Option(
        name="baseline",
        metavar="REPORT.json",
        parse=parsers.path,
        help="Fail the run if a suite got worse than in this earlier report, sample by sample and with statistics.",
    ),
    Option(
        name="max_drop",
        kind="list",
        metavar="'METRIC=MARGIN'",
        parse=parsers.text,
        help="How much worse than the baseline a metric may be: accuracy=0.01, or 'boolq: brier=0.02'. Default: 0, of "
        "each suite's primary metric. Can be given several times.",
    ),
    Option(
        name="gate_mode",
        metavar="MODE",
        parse=parsers.one_of("significant", "margin", "non-inferior"),
        help="When a drop fails: significant (the default: significant and beyond the margin), margin (beyond the "
        "margin), non-inferior (unless the interval excludes a drop beyond the margin).",
    ),
    Option(
        name="compare",
        metavar="WHAT",
        parse=parsers.one_of("all", "common"),
        help="Samples compared with the baseline: all (the default; a suite that has changed is refused) or common "
        "(those that have not changed).",
    ),
    Option(
        name="alpha",
        metavar="P",
        parse=parsers.alpha,
        help="How often a session in which nothing got worse may fail against its baseline. Default: 0.05.",
    ),
    Option(
        name="allow_unscored",
        metavar="N",
        kind="number",
        parse=parsers.count,
        help="Let up to N samples of the session be unscored without failing it or closing its gates.",
    ),
    Option(
        name="require_gates",
        kind="flag",
        parse=parsers.flag,
        help="A gate that could not be decided (a suite's own gate on a selection of its suite) fails: for CI.",
    ),
    Option(
        name="shard",
        metavar="I/N",
        parse=parsers.shard,
        help="Run a stable part of the session, the I-th of N, for several machines; `llmeval merge` joins the "
        "reports.",
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
    given = _read_given(config, option)
    return _read_ini(config, option) if given is None and option.ini_field is None else given


def _read_given(config: pytest.Config, option: Option) -> Any:
    """From the command line or the environment."""
    given = config.getoption(f"llm_{option.name}", None)
    if given is not None:
        return _parse(option, option.flag, given)
    text = os.environ.get(option.variable)
    if text:
        lines = [line for line in text.splitlines() if line.strip()] if option.kind == "list" else [text]
        return _parse(option, option.variable, lines)
    return None


def _read_ini(config: pytest.Config, option: Option) -> Any:
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
    given.update({option.ini_field: _read_ini(config, option) for option in OPTIONS if option.ini_field is not None})
    settings = _without_secrets(Settings(**{name: value for name, value in given.items() if value is not None}))
    for place, model in enumerate(settings.models):
        if model in settings.models[:place]:
            raise OptionError(f"--llm-model {model} was given twice: a model is compared with others, not with itself")
    return settings
