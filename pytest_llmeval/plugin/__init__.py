"""The pytest plugin: its hooks, its fixtures, and the YAML files that are suites.

This module is loaded in every pytest run where the package is installed. What a run without suites does not need is
imported on first use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_llmeval.plugin import startup
from pytest_llmeval.plugin.process_roles import is_worker, runs_tests, wants_prompts, warn_once_in_session
from pytest_llmeval.plugin.reporting_hooks import FINAL_HOOKS, FinalHooks
from pytest_llmeval.plugin.settings import add_options, settings_key
from pytest_llmeval.plugin.stash import (
    NUM_DESELECTED,
    collected_suites_key,
    frozen_objects_key,
    num_deselected_key,
    recorder_key,
)
from pytest_llmeval.roles import ROLES, RoleDefinition

if TYPE_CHECKING:
    from pytest_llmeval.models.base import Model
    from pytest_llmeval.plugin.recording import Recorder

__all__ = ["llm_device", "llm_model", "llm_record"]

_has_told_of_tasks_key = pytest.StashKey[bool]()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_llmeval.plugin import hookspecs as hooks

    pluginmanager.add_hookspecs(hooks)
    pluginmanager.register(FinalHooks(), FINAL_HOOKS)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: Sequence[str]
) -> Generator[None, None, None]:
    try:
        yield
    except SystemExit as error:
        startup.refuse_early_exit(early_config, error)
        raise
    startup.explain_lm_eval_options(parser, args)
    manager = early_config.pluginmanager
    # They are registered once more: a wrapper is around those of all plugins that were registered before it.
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


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    collectors = yield
    if file_path.suffix not in (".yaml", ".yml"):
        return collectors
    from pytest_llmeval.suites.format.sniff import find_suite_key

    suite_key = find_suite_key(file_path)
    if suite_key is not None and suite_key.is_first:
        from pytest_llmeval.plugin.suite_collectors import SuiteFile

        return [*collectors, SuiteFile.of(parent, file_path)]
    is_named = parent.session.isinitpath(file_path)
    if is_named or parent.config.stash[settings_key].lm_eval:
        from pytest_llmeval.suites.format.sniff import is_task_file

        if is_task_file(file_path):
            from pytest_llmeval.plugin.task_collectors import collect_task_file

            return [*collectors, *collect_task_file(parent, file_path)]
    if not collectors and is_named:
        from pytest_llmeval.plugin.suite_collectors import NotASuite

        return [NotASuite.from_parent(parent, path=file_path)]
    if not collectors and suite_key is not None:
        # A file that would be a suite, but for the place of a key, must not be passed over in silence.
        shown = os.path.relpath(file_path, parent.config.invocation_params.dir)
        message = (
            f"{shown}:{suite_key.line}: not collected as a suite: `suite` is not the first key; move it to the top"
        )
        warn_once_in_session(parent.config, pytest.PytestCollectionWarning(message))
    elif not collectors and not is_named:
        _tell_of_task_file(parent.config, file_path)
    return collectors


def _tell_of_task_file(config: pytest.Config, path: Path) -> None:
    """Warn of the first of lm-eval's task files that a folder of the command line has, and that no option asks for."""
    is_asked = config.args_source is pytest.Config.ArgsSource.ARGS and config.stash[settings_key].models
    if not is_asked or config.stash.get(_has_told_of_tasks_key, False):
        return
    from pytest_llmeval.suites.format.sniff import is_task_file

    if is_task_file(path):
        config.stash[_has_told_of_tasks_key] = True
        shown = os.path.relpath(path, config.invocation_params.dir)
        message = f"{shown}: not collected: it looks like a task of lm-eval; --llm-lm-eval collects them from folders"
        warn_once_in_session(config, pytest.PytestCollectionWarning(message))


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | list[pytest.Collector] | None:
    if "pytest_llmeval.suites.benchmark" not in sys.modules:
        return None  # nothing in this session can derive from Benchmark
    from pytest_llmeval.plugin.suite_collectors import collect_benchmark

    return collect_benchmark(collector, name, obj)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.fixturenames
    if "llm_record" in names:  # set up first, it sees the replies that the test's other fixtures ask for
        names.remove("llm_record")
        names.insert(0, "llm_record")
    if "llm_model" in metafunc.fixturenames and len(metafunc.config.stash[settings_key].models) > 1:
        from pytest_llmeval.plugin.models import parametrize

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
        if output is not None:  # the controller collects nothing, and otherwise hears of suites only
            output[NUM_DESELECTED] = stash[num_deselected_key]


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None, None, None]:
    has_suites = collected_suites_key in session.config.stash
    if has_suites and is_worker(session.config):
        startup.send_collected(session)  # before pytest-xdist sends the node ids
    yield
    if not is_worker(session.config):  # pytest calls this hook even if one before it raises
        _check_overrides(session)
    if has_suites and runs_tests(session.config):
        startup.begin(session)
    elif has_suites and session.config.option.collectonly:
        startup.show_variants(session)
    if frozen_objects_key in session.config.stash:
        session.config.stash[frozen_objects_key].freeze()


def _check_overrides(session: pytest.Session) -> None:
    settings = session.config.stash[settings_key]
    if settings.set or settings.variant:
        from pytest_llmeval.plugin.plan import check_overrides

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


_NO_MODEL = "no model: give --llm-model, or override the fixture llm_model in a conftest.py"

_NO_ROLE = "no {role}: give --llm-{role}, or override the fixture llm_{role} in a conftest.py"


@pytest.fixture(scope="session")
def llm_device(request: pytest.FixtureRequest) -> str:
    """Return the device that models are put on: ``--llm-device``, else MPS on Apple silicon, then CUDA, then CPU."""
    from pytest_llmeval.plugin.models import find_device

    return find_device(request, request.config.stash[settings_key])


def _model_scope(fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    return "function" if len(config.stash[settings_key].models) > 1 else "session"


@pytest.fixture(scope=_model_scope)
def llm_model(request: pytest.FixtureRequest) -> Model:
    """Return the model of ``--llm-model``, with ``loglikelihood`` and ``generate``; session-scoped.

    A conftest.py can override this fixture and return any object of the Protocol. If several models are given, a
    test that takes it runs once on each, and it is function-scoped.
    """
    settings = request.config.stash[settings_key]
    if not settings.models:
        pytest.skip(_NO_MODEL)
    if len(settings.models) > 1:
        from pytest_llmeval.plugin.models import provide

        return provide(request, settings)
    from pytest_llmeval.plugin.models import load

    return load(request, settings.model_specs[0])


def _fixture_of(role: RoleDefinition) -> Callable[[pytest.FixtureRequest], Model | tuple[Model, ...]]:
    def give(request: pytest.FixtureRequest) -> Model | tuple[Model, ...]:
        specs = request.config.stash[settings_key].specs_of(role.name)
        if not specs:
            pytest.skip(_NO_ROLE.format(role=role.name))
        from pytest_llmeval.plugin.models import load

        found = tuple(load(request, spec, role.name) for spec in specs)
        return found[0] if len(found) == 1 else found

    several, or_list = ("; of several, a panel, a tuple", ", or a list of several") if role.most > 1 else ("", "")
    give.__name__ = give.__qualname__ = role.fixture
    give.__doc__ = f"""The model of ``--llm-{role.name}``, which {role.task}{several}; session-scoped.

    A conftest.py can override this fixture and return any object that has the method ``{role.method}``{or_list}.
    """
    return give


# pytest finds fixtures among a plugin's names: llm_judge, llm_embedder.
globals().update({role.fixture: pytest.fixture(scope="session")(_fixture_of(role)) for role in ROLES.values()})
