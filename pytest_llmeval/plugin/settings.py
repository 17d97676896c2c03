"""The options of a session, from command line, environment and ini file, parsed into one frozen ``Settings``.

The command line beats the environment, which beats the ini file. This module is imported by every pytest run that has
the plugin installed, so it imports next to nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.plugin.options import OPTIONS, Option, SampleLimit, Shard
from pytest_llmeval.roles import ROLES, Role

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import Compare, Margin
    from pytest_llmeval.models.settings import ModelArg
    from pytest_llmeval.models.specs import ModelSpec
    from pytest_llmeval.reporting.report.report import GateMode
    from pytest_llmeval.suites.format.gates_spec import GivenGate
    from pytest_llmeval.suites.format.overrides import Override
    from pytest_llmeval.suites.format.variants import GivenVariant
    from pytest_llmeval.text.wording import WrittenAmount

__all__ = [
    "OPTIONS",
    "Option",
    "SampleLimit",
    "Settings",
    "Shard",
    "add_options",
    "check_rules",
    "given_key",
    "given_rules",
    "read_models",
    "read_named",
    "read_settings",
    "settings_key",
    "was_given",
]

ReportPrompts: TypeAlias = Literal["none", "hash", "full"]
ReportRecords: TypeAlias = Literal["all", "wrong", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that the user gave.

    Field ``x_y`` is the option ``--llm-x-y``, the ini value ``llm_x_y`` and the variable ``PYTEST_LLM_X_Y``.

    ``model_specs`` are the models of ``--llm-model``, in order and each once; ``role_specs`` are the models that
    scorers ask, by role (``--llm-judge``, …), without roles that have none. The arguments of models may be secret.
    ``gate`` holds the gates of the command line or the environment, which always decide; ``project_gate`` holds those
    of the ini file, which are added to them. ``project_baseline`` and ``project_require_gates`` come from the ini file,
    too: they hold for sessions with suites only.
    """

    model_specs: tuple[ModelSpec, ...] = field(default=(), repr=False)
    role_specs: Mapping[Role, tuple[ModelSpec, ...]] = field(default_factory=dict, repr=False)
    engine: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    batch_size: int | None = None
    ray: str | None = None
    replicas: int | None = None
    replica_cpus: int | None = None
    replica_gpus: float | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    model_arg: tuple[ModelArg, ...] = ()
    set: tuple[Override, ...] = ()
    variant: tuple[GivenVariant, ...] = ()
    suite: tuple[str, ...] = ()
    data: Path | None = None
    lm_eval: bool = False
    trust_task_code: bool = False
    allow_code: bool = False
    sandbox: str = "auto"
    limit: SampleLimit | None = None
    strict: bool = False
    show_prompts: bool = False
    show_wrong: int | None = None
    report: tuple[Path, ...] = ()
    report_prompts: ReportPrompts = "full"
    report_records: ReportRecords = "all"
    label: tuple[tuple[str, str], ...] = ()
    report_origin: Literal["all", "none"] = "all"
    store: Path | None = None
    store_refresh: bool = False
    store_max_age: WrittenAmount | None = None
    budget: float | None = None
    budget_tokens: int | None = None
    gate: tuple[GivenGate, ...] = ()
    project_gate: tuple[GivenGate, ...] = ()
    baseline: Path | None = None
    project_baseline: Path | None = None
    update_baseline: Literal["passed", "accept"] | None = None
    baseline_last: int | None = None
    max_drop: tuple[Margin, ...] = ()
    gate_mode: GateMode = "significant"
    compare: Compare = "all"
    alpha: float = 0.05
    allow_unscored: int = 0
    require_gates: bool = False
    project_require_gates: bool = False
    shard: Shard | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models as they were written, but for secrets: records and node names are made of these."""
        return tuple(spec.name for spec in self.model_specs)

    @property
    def all_specs(self) -> tuple[ModelSpec, ...]:
        """Return the specs of the models that are evaluated and of those that scorers ask."""
        return (*self.model_specs, *(spec for specs in self.role_specs.values() for spec in specs))

    @property
    def budget_option(self) -> str | None:
        """Return the option that bounds what the session may pay, for messages; None without a budget."""
        if self.budget is not None:
            return "--llm-budget"
        return None if self.budget_tokens is None else "--llm-budget-tokens"

    @property
    def asks_for_gates(self) -> bool:
        """Tell whether command line or environment ask for gates: they are decided without suites, too."""
        return bool(self.gate) or self.require_gates or (self.baseline or self.update_baseline) is not None

    def specs_of(self, role: Role) -> tuple[ModelSpec, ...]:
        """Return the models that scorers ask in this role."""
        return self.role_specs.get(role, ())

    def spec(self, model: str) -> ModelSpec:
        return next(spec for spec in self.model_specs if spec.name == model)


settings_key = pytest.StashKey[Settings]()
"""The key of the settings in ``config.stash``."""

given_key = pytest.StashKey[dict[str, object]]()
"""The key in ``config.stash`` of the ``given_rules`` as they were before a conftest.py was asked."""

_OPTIONS = {option.name: option for option in OPTIONS}
_LINE_END = re.compile(r"\r?\n")
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
            optional = {} if option.without_value is None else {"nargs": "?", "const": option.without_value}
            # Appending keeps a text option that was given twice from silently losing its first value.
            group.addoption(
                option.flag,
                dest=dest,
                action="append",
                default=None,
                metavar=option.metavar,
                help=option.help,
                **optional,
            )
        parser.addini(option.ini, f"{option.flag}: {option.help}", type=_INI_TYPES[option.kind], default=None)


def read_named(config: pytest.Config, name: str) -> Any:
    """Return the parsed value of the option called ``name``. Raises ``OptionError``."""
    option = _OPTIONS[name]
    return _parse(option, _find(config, option))


def read_models(config: pytest.Config, name: Literal["model"] | Role = "model") -> tuple[ModelSpec, ...]:
    """Return the models that ``--llm-model`` names, or the option of a role. Raises ``OptionError``.

    Their kinds are our own and those that plugins add.
    """
    option = _OPTIONS[name]
    found = _find(config, option)
    if found is None:
        return ()
    from pytest_llmeval.models.registry import foreign_code, parse_model_spec, with_kinds

    with foreign_code("pytest_llmeval_models"):
        kinds = with_kinds(kind for given in config.hook.pytest_llmeval_models() for kind in _listed(given))
    with _placed(_OPTIONS["model"], found.where):
        role = None if name == "model" else name
        return tuple(parse_model_spec(text, kinds, role) for text in _parse(option, found))


def _listed(kinds: object) -> Iterable[object]:
    if not isinstance(kinds, Iterable):
        raise OptionError(f"pytest_llmeval_models: found a {type(kinds).__name__}, expected a list of kinds of models")
    return kinds


def was_given(config: pytest.Config, name: str) -> bool:
    """Tell whether the command line or the environment, and not the ini file alone, sets the option ``name``."""
    return _find_given(config, _OPTIONS[name]) is not None


_RULES = ("gate", "baseline", "max_drop", "alpha", "require_gates", "strict")
"""Options that can make a session fail."""


def given_rules(config: pytest.Config) -> dict[str, object]:
    """Return the options that can make a session fail, as command line or environment give them, by name."""
    found = {name: _find_given(config, _OPTIONS[name]) for name in _RULES}
    return {name: tuple(one.values) for name, one in found.items() if one is not None}


def check_rules(config: pytest.Config) -> None:
    """Raise ``OptionError`` if a conftest.py has changed, in ``config.option``, a rule that was given.

    A rule that a conftest.py adds, if none was given, is its own.
    """
    given, now = config.stash.get(given_key, {}), given_rules(config)
    for name, values in given.items():
        if now.get(name) != values:
            flag = _OPTIONS[name].flag
            raise OptionError(f"{flag} was given, and a conftest.py or a plugin has changed it in config.option")


class _Found(NamedTuple):
    """The values of an option at one place: texts, except that a flag may be a bool."""

    where: str
    values: list[Any]


def _find(config: pytest.Config, option: Option) -> _Found | None:
    """Return the option's values from the first place that sets it, None if no place does."""
    given = _find_given(config, option)
    return _find_in_ini(config, option) if given is None and option.ini_field is None else given


def _find_given(config: pytest.Config, option: Option) -> _Found | None:
    """Return the option's values on the command line or in the environment."""
    given = config.getoption(f"llm_{option.name}", None)
    if given is not None:
        return _Found(option.flag, given if isinstance(given, list) else [given])
    text = os.environ.get(option.variable)
    if not text:
        return None
    lines = [line for line in _LINE_END.split(text) if line.strip()] if option.kind == "list" else [text]
    return _Found(option.variable, lines)


def _find_in_ini(config: pytest.Config, option: Option) -> _Found | None:
    where = f"{option.ini} in {config.inipath.name if config.inipath else 'the ini file'}"
    try:
        value = config.getini(option.ini)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{where}: {error}") from None
    if value is None or value == []:
        return None
    if option.is_seen_from_ini:
        value = _seen_from_ini(config, str(value))
    return _Found(where, value if isinstance(value, list) else [value])


def _seen_from_ini(config: pytest.Config, text: str) -> str:
    """Return a path of the ini file, as seen from the folder in which pytest was called."""
    path = Path(text).expanduser()
    if text.strip() in ("", "none") or config.inipath is None or path.is_absolute():
        return text
    path = config.inipath.parent / path
    try:
        return os.path.relpath(path, config.invocation_params.dir)
    except ValueError:  # on another drive
        return str(path)


def _parse(option: Option, found: _Found | None) -> Any:
    """Return the parsed value. Raises ``OptionError`` that names the place, the value and what is expected."""
    if found is None:
        return None
    where, values = found
    if option.kind == "list":
        return tuple(_explained(option, where, value) for value in values)
    if len(values) > 1:
        raise OptionError(f"{where} was given {len(values)} times ({', '.join(map(repr, values))}): give it once")
    (value,) = values
    return value if isinstance(value, bool) and option.kind == "flag" else _explained(option, where, str(value))


def _explained(option: Option, where: str, text: str) -> Any:
    try:
        with _placed(option, where):
            return option.parse(text)
    except ValueError as error:
        from pytest_llmeval.text.wording import quoted  # not at the top: nearly no run needs it

        found = "" if str(error).startswith("found ") else f", found {quoted(text)}"
        raise OptionError(f"{where}: {error}{found}") from None


@contextmanager
def _placed(option: Option, where: str) -> Iterator[None]:
    """Have an ``OptionError`` that names the option's flag name the place that sets it instead."""
    try:
        yield
    except OptionError as error:
        if not str(error).startswith(option.flag):
            raise
        raise OptionError(where + str(error).removeprefix(option.flag)) from None


def read_settings(config: pytest.Config) -> Settings:
    """Return all options as ``Settings``. Raises ``OptionError``."""
    given: dict[str, Any] = {option.field or option.name: read_named(config, option.name) for option in OPTIONS}
    for option in OPTIONS:
        if option.ini_field is not None:
            given[option.ini_field] = _parse(option, _find_in_ini(config, option))
    given["model_specs"] = read_models(config)
    given["role_specs"] = {role: specs for role in ROLES if (specs := read_models(config, role))}
    settings = Settings(**{name: value for name, value in given.items() if value is not None})
    _check_once(
        settings.model_specs,
        "--llm-model {} was given twice: a model is compared with others, not with itself, and arguments that decide "
        "no reply (timeout, …) make no other model",
    )
    for name, role in ROLES.items():
        specs = settings.specs_of(name)
        if role.most > 1:
            _check_once(specs, f"--llm-{name} {{}} was given twice: a panel is of several {name}s")
            if len(specs) > role.most:
                raise OptionError(f"--llm-{name} was given {len(specs)} times, expected at most {role.most} {name}s")
        elif len(specs) > 1:
            names = ", ".join(spec.name for spec in specs)
            raise OptionError(f"--llm-{name} was given {len(specs)} times ({names}): give one {name}")
    return settings


def _check_once(specs: Sequence[ModelSpec], message: str) -> None:
    """Raise ``OptionError`` if two models have one name, also if they differ in what it does not show.

    Their records would have one key.
    """
    for place, spec in enumerate(specs):
        for other in specs[:place]:
            if spec.name == other.name:
                differing = [key for key, value in spec.deciding.items() if value != other.arguments.get(key)]
                hidden = (
                    f"; the two differ in {' and '.join(differing)}, and names do not show that" if differing else ""
                )
                raise OptionError(message.format(spec.name) + hidden + spec.kind.how_to_show(differing))
