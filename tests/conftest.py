"""Fixtures for plugin tests, and the rules that hold for every test here: no warnings, no network, no clock.

A bare ``pytest`` uses all cores and leaves out the tests marked ``slow`` (``-m "slow or not slow"`` runs all).
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest
from _pytest.mark import _parse_expression

import pytest_llmeval
from tests.fork_server import NEEDS_TORCH, PRELOADED, remember
from tests.forked import ForkServer
from tests.properties import try_all_examples
from tests.support import clean_environment

pytest_plugins = ["pytester"]

_TESTS = Path(__file__).resolve().parent

# One torch thread for each process that the tests start: more only wait for each other. Before anything imports torch.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads how many workers are asked for
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Leave out the slow tier, and use as many workers as there are cores, where the command line says nothing else."""
    option = config.option
    names_a_test = any("::" in argument for argument in config.args)
    if not option.markexpr and not names_a_test:
        option.markexpr = "not slow"
    is_whole_run = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not is_whole_run or not config.pluginmanager.has_plugin("xdist") or hasattr(config, "workerinput"):
        return
    wants_one_process = option.collectonly or option.usepdb or option.trace
    if option.numprocesses is None and option.dist == "no" and not option.tx and not wants_one_process:
        option.numprocesses = "logical"
        option.dist = (
            "worksteal"  # each worker starts on a part of its own: modules stay whole, and so do their fixtures
        )


def _runs_campaigns(config: pytest.Config) -> bool:
    """Whether a campaign would run: not in the default tier, nor in ``-m "slow and not campaign"``."""

    def has_campaign(name: str, /, **_: object) -> bool:
        return name in ("slow", "campaign")

    chosen: str = config.option.markexpr
    return bool(chosen) and _parse_expression(chosen, "Wrong expression passed to '-m'").evaluate(has_campaign)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give properties all their examples where campaigns run, before a test file is read."""
    if _runs_campaigns(config):
        try_all_examples()


_TWO_WORKERS = ("-n2",)
# Where results, statuses or models cross from workers to the session: there each test with ``workers`` runs both ways
# by default, elsewhere in tests/plugin the first of each module. The others with -n2 are in the slow tier: gates, for
# one, are decided by the session itself, on records that it has from its workers as from itself.
_CROSSING = frozenset(
    {
        *("test_chunks", "test_record", "test_report", "test_shards", "test_statuses", "test_stopped"),
        *("test_wrong_answers", "test_xdist"),
    }
)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Make every warning an error, and say which tests are in the slow tier beside those that say it themselves: most
    sessions with ``-n2``, and campaigns. A property with all its examples is one, and so is a slow test with ``-n2``.

    The warnings' mark comes first in the list, so that a test's own ``filterwarnings`` has the last word.
    """
    runs_campaigns = _runs_campaigns(config)
    in_default = set[Path]()
    for item in items:
        if not item.path.is_relative_to(_TESTS):
            continue
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)
        if runs_campaigns and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.campaign)
        if item.get_closest_marker("campaign"):
            item.add_marker(pytest.mark.slow)
        call = getattr(item, "callspec", None)
        workers = None if call is None else call.params.get("workers")
        if workers in (_TWO_WORKERS, [*_TWO_WORKERS]) and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.campaign)  # the slow tier has the same in one process
        elif workers == _TWO_WORKERS:
            is_first = item.path not in in_default and item.path.is_relative_to(_TESTS / "plugin")
            if not is_first and item.path.stem not in _CROSSING:
                item.add_marker(pytest.mark.slow)
            elif not item.get_closest_marker("slow"):
                in_default.add(item.path)


@pytest.fixture(autouse=True, scope="module")
def _old_objects_stay() -> None:
    """Let no pass of the garbage collector look again at thousands of tests, nor at torch: each session within a test
    makes one, and each model that makes room.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def preloaded() -> None:
    """Import what pytester would forget again after each session that runs in this process (``pytester.runpytest``).

    One import serves all of them, which makes them five times as fast; some modules, numpy for one, cannot be loaded
    twice. Not torch and transformers, which most sessions do not need, nor what belongs to an extra.
    """
    remember()
    for name in PRELOADED:
        importlib.import_module(name)
    for info in pkgutil.walk_packages(pytest_llmeval.__path__, "pytest_llmeval."):
        if not info.name.startswith(NEEDS_TORCH):
            importlib.import_module(info.name)
    gc.freeze()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Where processes of sessions come from; started once."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def torch_fork_server() -> Iterator[ForkServer]:
    """Where processes of sessions with a local model come from; started once."""
    server = ForkServer(torch=True)
    yield server
    server.close()


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
def llm_pytester(
    preloaded: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> pytest.Pytester:
    """``pytester`` with the installed plugin, offline, and nothing of the surrounding run in its environment.

    The processes that its sessions need are forks of one that has loaded all but torch: workers of pytest-xdist, and
    those of ``runpytest_subprocess``. Marks choose others: ``forks_torch`` for sessions with a local model, and
    ``fresh_interpreters`` where a test is about what a process loads.
    """
    if not pytester._request.config.pluginmanager.has_plugin("llmeval_suites"):
        pytest.fail("the plugin is not installed here: pip install -e '.[dev]'", pytrace=False)
    kept = {"PYTEST_DEBUG_TEMPROOT", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}  # pytest's and pytester's own
    environment = clean_environment()
    for name in set(os.environ) - set(environment) - kept:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if request.node.get_closest_marker("fresh_interpreters") is None:
        with_torch = request.node.get_closest_marker("forks_torch") is not None
        server = request.getfixturevalue("torch_fork_server" if with_torch else "fork_server")
        monkeypatch.setattr("execnet.gateway_io.Popen2IOMaster", server.workers())
        monkeypatch.setattr(pytester, "popen", server.popen_of(pytester))
    monkeypatch.setattr(sys, "meta_path", [_LoadedOnce(), *sys.meta_path])
    # Each session asks whether somebody froze objects; counting the hundreds of thousands of these tests takes 20 ms.
    monkeypatch.setattr(gc, "get_freeze_count", lambda: sys.maxsize)
    # Plugins of this environment that these sessions have no use for: a quarter of the time that each takes.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")
    return pytester


@pytest.fixture(params=[("-p", "no:xdist"), _TWO_WORKERS], ids=["one-process", "n2"])
def workers(request: pytest.FixtureRequest) -> list[str]:
    """Arguments of a pytest run: without pytest-xdist, and with two of its workers. Whoever takes it runs with both."""
    arguments: tuple[str, ...] = request.param
    return list(arguments)
