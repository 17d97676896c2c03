"""What is found out before a session runs: options that would spoil it."""

from __future__ import annotations

import pytest

from pytest_llmeval.plugin.options.settings import Settings

__all__ = ["check"]


def check(config: pytest.Config, settings: Settings, *, runs_tests: bool) -> None:
    """Refuse options that cannot be used; where nothing will run, only their wording. Raises ``LLMEvalError``."""
    if settings.models:
        from pytest_llmeval.plugin.models.loading import check_model_options

        check_model_options(settings, loads=runs_tests)
    from pytest_llmeval.plugin.gate_options import check_gates, read_baseline

    check_gates(config, settings)
    if not runs_tests:
        return
    if settings.baseline is not None or settings.models:
        read_baseline(config, settings)
    if settings.report:
        from pytest_llmeval.reporting.writers.targets import check_target

        for target in settings.report:
            check_target(target)
