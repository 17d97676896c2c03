"""The pytest plugin: hooks and fixtures. Each builds, stashes, registers or delegates.

This module is loaded in every pytest run where the package is installed. What a run without suites does not need is
imported on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval.plugin import settings as options
from pytest_llmeval.plugin import startup
from pytest_llmeval.plugin.fixtures import llm_device, llm_model, role_fixtures
from pytest_llmeval.plugin.process import is_worker, runs_tests, wants_prompts
from pytest_llmeval.plugin.reporting_hooks import FINAL_HOOKS, FinalHooks
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import (
    NUM_DESELECTED,
    collected_suites_key,
    lasting_objects_key,
    num_deselected_key,
    recorder_key,
)

if TYPE_CHECKING:
    from pytest_llmeval.plugin.recording import Recorder

__all__ = ["llm_device", "llm_model", "llm_record"]

globals().update(role_fixtures())  # pytest finds fixtures among a plugin's names


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_llmeval.plugin import hookspecs as hooks

    pluginmanager.add_hookspecs(hooks)
    pluginmanager.register(FinalHooks(), FINAL_HOOKS)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    try:
        yield
    except SystemExit as error:
        startup.refuse_early_exit(early_config, error)
        raise
    manager = early_config.pluginmanager
    # Once more: a wrapper is around those of all plugins that were registered before it.
    manager.register(manager.unregister(name=FINAL_HOOKS), FINAL_HOOKS)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    if wants_prompts(config) and hasattr(config.option, "tx"):
        # The process that collects prints the prompts: there is nothing for pytest-xdist to distribute.
        config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    from pytest_llmeval.plugin.xdist_distribution import num_gpu_workers

    return num_gpu_workers(config)


def pytest_configure(config: pytest.Config) -> None:
    startup.configure(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return startup.header_lines(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.stash[settings_key].suite:
        return None
    from pytest_llmeval.plugin.task_collectors import collect_installed_folder

    return collect_installed_folder(parent, path)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    collectors = yield
    if file_path.suffix not in (".yaml", ".yml"):
        return collectors
    from pytest_llmeval.plugin.yaml_files import collect_yaml_file

    return collect_yaml_file(parent, file_path, collectors)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | list[pytest.Collector] | None:
    if "pytest_llmeval.suites.python.benchmark" not in sys.modules:
        return None  # nothing in this session can derive from Benchmark
    from pytest_llmeval.plugin.suite_collectors import collect_benchmark

    return collect_benchmark(collector, name, obj)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.fixturenames
    if "llm_record" in names:  # set up first, it sees the replies that the test's other fixtures ask for
        names.remove("llm_record")
        names.insert(0, "llm_record")
    if "llm_model" in metafunc.fixturenames and len(metafunc.config.stash[settings_key].models) > 1:
        from pytest_llmeval.plugin.several_models import parametrize

        parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config) -> None:
    if is_worker(config):  # before the controller hears what was collected, and starts tests
        _check_overrides(session)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        stash = items[0].config.stash
        stash[num_deselected_key] = stash.get(num_deselected_key, 0) + len(items)
        output = getattr(items[0].config, "workeroutput", None)
        if output is not None:  # for the controller, which collects nothing, and hears else of suites alone
            output[NUM_DESELECTED] = stash[num_deselected_key]


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None, None, None]:
    has_suites = collected_suites_key in session.config.stash
    if has_suites and is_worker(session.config):
        startup.send_collected(session)  # before pytest-xdist sends the node ids
    yield
    if not is_worker(session.config):  # pytest comes here even if a hook before it raises
        _check_overrides(session)
    if has_suites and runs_tests(session.config):
        startup.begin(session)
    if lasting_objects_key in session.config.stash:
        session.config.stash[lasting_objects_key].leave_out()


def _check_overrides(session: pytest.Session) -> None:
    if session.config.stash[settings_key].set:
        from pytest_llmeval.plugin.selection import check_overrides

        check_overrides(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.stash[settings_key].show_prompts:
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        return None  # pytest stops for what could not be collected
    from pytest_llmeval.plugin.plan import show_prompts

    show_prompts(session)
    return True


@pytest.fixture
def llm_record(request: pytest.FixtureRequest) -> Recorder:
    """Record a score: ``llm_record(suite="tone", id="1", correct=True, answer="please")``."""
    from pytest_llmeval.plugin.recording import Recorder

    recorder = request.node.stash[recorder_key] = Recorder(request.node)
    return recorder
