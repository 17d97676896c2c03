"""Which gates a session has, from its options: read before it runs, so that nothing runs for a mistake in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.plugin.settings import Settings, settings_key

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import GateOptions
    from pytest_llmeval.plugin.xdist_collected import Collected

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
    """Return the report to compare with; that of the ini file lies as seen from there."""
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


def check_matched(config: pytest.Config, collected: Collected) -> None:
    """Refuse a gate of the command line that is about what no suite has, before anything runs.

    Only where no hand-written test may record to other suites. ``--lf`` collects no file in which nothing failed: a
    gate of one suite is decided at the end then. Raises ``pytest.UsageError``.
    """
    gates = config.stash[settings_key].gate
    if not gates or not collected.samples or collected.may_have_others:
        return
    from pytest_llmeval.gates.checks import unmatched_gates

    if getattr(config.option, "lf", False):
        gates = tuple(gate for gate in gates if gate.is_for_all)
    suites = [*collected.suites, *collected.absent]
    messages = unmatched_gates({"--llm-gate": gates}, suites, collected.categories)
    if messages:
        raise pytest.UsageError("; ".join(messages))


def read_baseline(config: pytest.Config, settings: Settings) -> None:
    """Read the baseline, where there is one. Raises ``OptionError``."""
    path = baseline_path(config, settings)
    if path is None or baseline_key in config.stash:
        return
    from pytest_llmeval.reporting.report.verify import verify_report
    from pytest_llmeval.reporting.storage.report_file import read_report

    try:
        report = read_report(path)
        # Its records stay where they lie: they are needed when the session is over.
        config.stash[baseline_key] = replace(verify_report(report, f"the report {path}"), records=report.records)
    except LLMEvalError as error:
        raise OptionError(f"{'llm_baseline' if settings.baseline is None else '--llm-baseline'}: {error}") from None


def describe_baseline(config: pytest.Config) -> str | None:
    """Return the baseline in a few words, for the session's header."""
    baseline = config.stash.get(baseline_key, None)
    path = baseline_path(config, config.stash[settings_key])
    if baseline is None or path is None:
        return None
    models = ", ".join(baseline.model_names) or "no model"
    num_suites = len(baseline.suite_names)
    return f"{path} ({models}, {baseline.created}, {num_suites} suite{'' if num_suites == 1 else 's'})"
