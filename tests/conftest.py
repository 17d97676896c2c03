"""Fixtures for plugin tests, and the rules that hold for every test here: no warnings, no network, no clock."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import pytest_llmeval
from tests.support import clean_environment

pytest_plugins = ["pytester"]

# No deadline and no speed check: a slow machine is no failure. Derandomised: CI fails for a change, not for its luck.
settings.register_profile("repository", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repository")

_HEAVY = (
    *("jinja2", "jsonschema", "numpy", "pydantic", "regex", "tabulate", "yaml"),
    *("scipy.optimize", "scipy.special", "scipy.stats"),
)
_NOT_PRELOADED = "pytest_llmeval.models.huggingface"

_TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Make every warning an error. First in the list, so that a test's own ``filterwarnings`` has the last word."""
    for item in items:
        if item.path.is_relative_to(_TESTS):
            item.add_marker(pytest.mark.filterwarnings("error"), append=False)


@pytest.fixture(scope="session")
def preloaded() -> None:
    """Import what pytester would forget again after each session that runs in this process (``pytester.runpytest``).

    One import serves all of them, which makes them five times as fast; some modules, numpy for one, cannot be loaded
    twice. Not torch and transformers, which most sessions do not need, nor what belongs to an extra.
    """
    for name in _HEAVY:
        importlib.import_module(name)
    for info in pkgutil.walk_packages(pytest_llmeval.__path__, "pytest_llmeval."):
        if not info.name.startswith(_NOT_PRELOADED):
            importlib.import_module(info.name)


class _LoadedOnce(Loader):
    """Stops a session in this process from loading torch, which pytester would forget again and nobody can load twice.

    To ask whether there is a torch stays possible.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Where torch is, with this as its loader; nothing for all else."""
        spec = PathFinder.find_spec(name, path) if name == "torch" else None
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: object) -> None:
        """An ``ImportError`` that says what to do."""
        raise ImportError("torch can be loaded only once in a process: use runpytest_subprocess for this session")


@pytest.fixture
def llm_pytester(preloaded: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """``pytester`` with the installed plugin, offline, and nothing of the surrounding run in its environment."""
    if not pytester._request.config.pluginmanager.has_plugin("llmeval_suites"):
        pytest.fail("the plugin is not installed here: pip install -e '.[dev]'", pytrace=False)
    kept = {"PYTEST_DEBUG_TEMPROOT", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}  # pytest's and pytester's own
    environment = clean_environment()
    for name in set(os.environ) - set(environment) - kept:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "meta_path", [_LoadedOnce(), *sys.meta_path])
    # Plugins of this environment that these sessions have no use for: a quarter of the time that each takes.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")
    return pytester


@pytest.fixture(params=[("-p", "no:xdist"), ("-n2",)], ids=["one-process", "n2"])
def workers(request: pytest.FixtureRequest) -> list[str]:
    """Arguments of a pytest run: without pytest-xdist, and with two of its workers. Whoever takes it runs with both."""
    arguments: tuple[str, ...] = request.param
    return list(arguments)
