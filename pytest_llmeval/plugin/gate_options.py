"""Which gates a session has, from its options: read before it runs, so that nothing runs for a mistake in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.plugin.options.settings import Settings, settings_key
from pytest_llmeval.plugin.stash import collected_suites_key, is_sample_key

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import GateOptions

__all__ = [
    "baseline_key",
    "baseline_path",
    "check_gates",
    "check_matched",
    "describe_baseline",
    "gate_options",
    "read_baseline",
]

baseline_key = pytest.StashKey[Any]()
"""The ``Report`` that is the baseline of the session."""


def gate_options(config: pytest.Config, settings: Settings) -> GateOptions:
    """What the gates of the session are to do."""
    from pytest_llmeval.gates.options import BaselineSettings, GateOptions

    comparison = BaselineSettings(
        mode=settings.gate_mode, margins=settings.max_drop, compare=settings.compare, alpha=settings.alpha
    )
    return GateOptions(
        given=(*((gate, "ini") for gate in settings.project_gate), *((gate, "option") for gate in settings.gate)),
        comparison=None if baseline_path(config, settings) is None else comparison,
        origin="ini" if settings.baseline is None else "option",
        allow_unscored=settings.allow_unscored,
        require=settings.require_gates or settings.project_require_gates,
    )


def baseline_path(config: pytest.Config, settings: Settings) -> Path | None:
    """The report to compare with; that of the ini file lies as seen from there."""
    if settings.baseline is not None:
        return settings.baseline
    if settings.project_baseline is None or config.inipath is None:
        return settings.project_baseline
    return config.inipath.parent / settings.project_baseline


def check_gates(config: pytest.Config, settings: Settings) -> None:
    """Refuse settings that mean nothing. Raises ``OptionError``."""
    path = baseline_path(config, settings)
    for name in ("max_drop", "gate_mode", "compare", "alpha"):
        if path is None and config.getoption(f"llm_{name}", None) is not None:
            flag = "--llm-" + name.replace("_", "-")
            raise OptionError(f"{flag} applies to a comparison only: give --llm-baseline REPORT.json as well")
    for target in settings.report:
        if path is not None and target.exists() and path.exists() and target.samefile(path):
            raise OptionError(
                f"--llm-report {target} is also the baseline: this run would overwrite it, and the next run would be "
                "compared with this one; name another file"
            )


def check_matched(session: pytest.Session) -> None:
    """Refuse a gate of the command line that is about what no suite has, before anything runs.

    In the process that has collected all suites, where no hand-written test may record to others.
    Raises ``pytest.UsageError``.
    """
    gates, suites = session.config.stash[settings_key].gate, session.config.stash[collected_suites_key]
    if not gates or session.testsfailed or any(is_sample_key not in item.stash for item in session.items):
        return  # what could not be collected may have it
    from pytest_llmeval.gates.checks import unmatched_gates

    categories: dict[str, set[str]] = {}
    for item in session.items:
        sample, file = getattr(item, "sample", None), getattr(item, "file", None)
        if sample is not None and file is not None and sample.category is not None:
            categories.setdefault(file.info.name, set()).add(sample.category)
    messages = unmatched_gates({"--llm-gate": gates}, suites, categories)
    if messages:
        raise pytest.UsageError("; ".join(messages))


def read_baseline(config: pytest.Config, settings: Settings) -> None:
    """Read the baseline, where there is one. Raises ``OptionError``."""
    path = baseline_path(config, settings)
    if path is None or baseline_key in config.stash:
        return
    from pytest_llmeval.reporting.report.recount import fitting
    from pytest_llmeval.reporting.storage.read import read_report

    try:
        report = read_report(path)
        # Its records stay where they lie: they are needed when the session is over.
        config.stash[baseline_key] = replace(fitting(report, f"the report {path}"), records=report.records)
    except LLMEvalError as error:
        raise OptionError(f"{'llm_baseline' if settings.baseline is None else '--llm-baseline'}: {error}") from None


def describe_baseline(config: pytest.Config) -> str | None:
    """The baseline in a few words, for the session's header."""
    baseline = config.stash.get(baseline_key, None)
    path = baseline_path(config, config.stash[settings_key])
    if baseline is None or path is None:
        return None
    models = ", ".join(baseline.model_names) or "no model"
    num_suites = len(baseline.suite_names)
    return f"{path} ({models}, {baseline.created}, {num_suites} suite{'' if num_suites == 1 else 's'})"
