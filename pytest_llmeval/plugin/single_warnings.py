"""Warnings that a session shows once, though each worker of pytest-xdist collects everything.

Whatever a filter makes of a warning, all workers have to collect the same tests: else pytest-xdist refuses the session.
"""

from __future__ import annotations

import warnings

import pytest

from pytest_llmeval.errors import LLMEvalError

__all__ = ["is_first_process", "warn_once_in_session", "warn_once_of_suite"]


def is_first_process(config: pytest.Config) -> bool:
    """Whether this is the only process, or the first worker: it shows what every worker would show."""
    return getattr(config, "workerinput", {}).get("workerid") in (None, "gw0")


def warn_once_of_suite(node: pytest.Collector, message: str) -> None:
    """Warn of something in a suite, which ``node`` is, while it is collected.

    Raises ``LLMEvalError`` under ``-W error``, in every worker: that suite is then a collection error of one line.
    """
    try:
        with warnings.catch_warnings(record=not is_first_process(node.config)):
            node.warn(pytest.PytestWarning(message))
    except pytest.PytestWarning:
        raise LLMEvalError(message) from None


def warn_once_in_session(config: pytest.Config, warning: Warning) -> None:
    """Show a warning that belongs to no suite, under ``-W error`` too.

    Raised, it would take other people's tests with it: a folder's, or all that were collected. Other filters hold.
    """
    if not is_first_process(config):
        return
    try:
        config.issue_config_time_warning(warning, stacklevel=2)
    except type(warning):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn(warning, stacklevel=2)
        shown = {"warning_message": caught[0], "when": "collect", "nodeid": "", "location": None}
        config.hook.pytest_warning_recorded.call_historic(kwargs=shown)
