"""Which gates a session has, from its options: read before it runs, so that nothing runs for a mistake in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.options import Settings, settings_key
from pytest_llmeval.suites.gate_rules import GateRule, GateRuleError, GivenGate

if TYPE_CHECKING:
    from pytest_llmeval.gates.baseline import BaselineSettings
    from pytest_llmeval.gates.decide import GateOptions, Selection
    from pytest_llmeval.reporting.records import SuiteInfo
    from pytest_llmeval.reporting.report import Report

__all__ = [
    "baseline_key",
    "check_gates",
    "describe_baseline",
    "gate_options",
    "given_gates",
    "read_baseline",
    "read_gates",
    "selection_of",
]

baseline_key = pytest.StashKey[Any]()
"""The ``Report`` that is the baseline of the session."""

_LEAVE_OUT = ("keyword", "markexpr", "lf", "stepwise", "deselect", "ignore", "ignore_glob")
"""Options of pytest that leave tests out, as ``config.option`` has them."""


def given_gates(settings: Settings) -> tuple[tuple[GivenGate, Literal["ini", "option"]], ...]:
    """The gates of the ini file, the command line and the environment. Raises ``OptionError``."""
    found: list[tuple[GivenGate, Literal["ini", "option"]]] = []
    origins: tuple[tuple[Literal["ini", "option"], str, tuple[str, ...]], ...] = (
        ("ini", "llm_gate", settings.project_gate),
        ("option", "--llm-gate", settings.gate),
    )
    for origin, where, texts in origins:
        for text in texts:
            try:
                found.append((GivenGate.parse(text), origin))
            except GateRuleError as error:
                raise OptionError(f"{where}: {error}") from None
    return tuple(found)


def gate_options(settings: Settings) -> GateOptions:
    """What the gates of the session are to do. Raises ``OptionError``."""
    from pytest_llmeval.gates.decide import GateOptions

    return GateOptions(
        given=given_gates(settings),
        comparison=None if settings.baseline is None else _comparison(settings),
        allow_unscored=settings.allow_unscored,
        require=settings.require_gates,
    )


def _comparison(settings: Settings) -> BaselineSettings:
    from pytest_llmeval.gates.baseline import BaselineSettings
    from pytest_llmeval.gates.margins import Margin

    margins = []
    for text in settings.max_drop:
        try:
            margins.append(Margin.parse(text))
        except GateRuleError as error:
            raise OptionError(f"--llm-max-drop: {error}") from None
    return BaselineSettings(
        mode=settings.gate_mode, margins=tuple(margins), compare=settings.compare, alpha=settings.alpha
    )


def check_gates(config: pytest.Config, settings: Settings) -> None:
    """Refuse gates that cannot be read, and settings of a comparison without a baseline. Raises ``OptionError``."""
    if settings.gate or settings.project_gate or settings.max_drop:
        gate_options(settings)
    for name in ("max_drop", "gate_mode", "compare", "alpha"):
        if settings.baseline is None and config.getoption(f"llm_{name}", None) is not None:
            flag = "--llm-" + name.replace("_", "-")
            raise OptionError(f"{flag} is about a baseline: give --llm-baseline REPORT.json as well")


def read_baseline(config: pytest.Config, path: Path) -> None:
    """Read the baseline before anything runs. Raises ``OptionError``."""
    from pytest_llmeval.reporting.read import read_report

    try:
        config.stash[baseline_key] = read_report(path)
    except LLMEvalError as error:
        raise OptionError(f"--llm-baseline: {error}") from None


def describe_baseline(config: pytest.Config) -> str | None:
    """The baseline in a few words, for the session's header."""
    baseline = config.stash.get(baseline_key, None)
    path = config.stash[settings_key].baseline
    if baseline is None or path is None:
        return None
    models = ", ".join(dict.fromkeys(model for suite in baseline.suites for model in suite.models)) or "no model"
    num_suites = len({suite.info.name for suite in baseline.suites})
    return f"{path} ({models}, {baseline.created}, {num_suites} suite{'' if num_suites == 1 else 's'})"


def read_gates(suite: Path) -> dict[str, int | None]:
    """The gates of a suite file, from its text alone; none of what is no rule."""
    from pytest_llmeval.suites.files import Source
    from pytest_llmeval.suites.yaml_lines import read_yaml

    document = read_yaml(Source(suite, str(suite)), too_large="a suite of this size is none")
    value = document.value.get("gates") if isinstance(document.value, dict) else None
    gates: dict[str, int | None] = {}
    for place, text in enumerate(value if isinstance(value, list) else []):
        try:
            gates[GateRule.parse(str(text)).text] = document.line(("gates", place))
        except GateRuleError:
            continue
    return gates


def selection_of(config: pytest.Config, report: Report, absent: list[SuiteInfo]) -> Selection:
    """What of everything the session was to run."""
    from pytest_llmeval.gates.decide import Selection

    places = [_place(config, argument) for argument in config.args]
    settings = config.stash[settings_key]
    option = config.option
    is_partial = (
        any(getattr(option, name, None) for name in _LEAVE_OUT)
        or settings.limit is not None
        or settings.shard is not None
        or any("::" in argument for argument in config.args)
    )

    def covers(info: SuiteInfo) -> bool:
        if info.path is None:
            return True
        file = (config.rootpath / info.path.partition("::")[0]).resolve()
        return any(file == place or place in file.parents for place in places)

    return Selection(covers=covers, is_partial=is_partial, absent=absent, has_model=_has_model(config, report))


def _has_model(config: pytest.Config, report: Report) -> bool:
    """Whether somebody was there to answer; a conftest.py that replaces ``llm_model`` is, and may still skip."""
    from pytest_llmeval.model_fixtures import is_overridden

    if config.stash[settings_key].models or len(report.records) > 0:
        return True
    paths = [suite.info.path for suite in report.suites if suite.info.path is not None]
    return any(is_overridden(config, config.rootpath / path.partition("::")[0]) for path in paths)


def _place(config: pytest.Config, argument: str) -> Path:
    return Path(config.invocation_params.dir / argument.partition("::")[0]).resolve()
