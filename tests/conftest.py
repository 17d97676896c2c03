"""Fixtures for plugin tests, and the rules that hold for every test here: no warnings, no network, no clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import clean_environment

pytest_plugins = ["pytester"]

# No deadline and no speed check: a slow machine is no failure. Derandomised: CI fails for a change, not for its luck.
settings.register_profile("repository", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repository")

_TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Make every warning an error. First in the list, so that a test's own ``filterwarnings`` has the last word."""
    for item in items:
        if item.path.is_relative_to(_TESTS):
            item.add_marker(pytest.mark.filterwarnings("error"), append=False)


@pytest.fixture
def llm_pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """``pytester`` with the installed plugin, offline, and nothing of the surrounding run in its environment."""
    if not pytester._request.config.pluginmanager.has_plugin("llmeval_suites"):
        pytest.fail("the plugin is not installed here: pip install -e '.[dev]'", pytrace=False)
    kept = {"PYTEST_DEBUG_TEMPROOT", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}  # pytest's and pytester's own
    environment = clean_environment()
    for name in set(os.environ) - set(environment) - kept:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # Plugins of this environment that these sessions have no use for: a quarter of the time that each takes.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")
    return pytester


@pytest.fixture(params=[("-p", "no:xdist"), ("-n2",)], ids=["one-process", "n2"])
def workers(request: pytest.FixtureRequest) -> list[str]:
    """Arguments of a pytest run: without pytest-xdist, and with two of its workers. Whoever takes it runs with both."""
    arguments: tuple[str, ...] = request.param
    return list(arguments)
