"""The pytest plugin: hooks and fixtures. Each builds, stashes, registers or delegates.

This module is loaded in every pytest run of whoever has the package installed. What a run without suites does not
need, it imports on first use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.plugin.options import settings as options
from pytest_llmeval.plugin.options.settings import (
    Settings,
    collected_suites_key,
    is_sample_key,
    llm_session_key,
    num_deselected_key,
    process_key,
    recorder_key,
    settings_key,
)

if TYPE_CHECKING:
    from pytest_llmeval.models.base import Model
    from pytest_llmeval.plugin.finishing.session import LLMSession
    from pytest_llmeval.plugin.running.recording import Recorder
    from pytest_llmeval.reporting.report.records import SuiteInfo

_LAST_WORD = "llmeval-last-word"
_NO_MODEL = "no model: give --llm-model, or override the fixture llm_model in a conftest.py"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_llmeval.plugin import hookspecs as hooks

    pluginmanager.add_hookspecs(hooks)
    pluginmanager.register(_LastWord(), _LAST_WORD)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    yield
    manager = early_config.pluginmanager
    # Once more: a wrapper is around those of all plugins that were registered before it.
    manager.register(manager.unregister(name=_LAST_WORD), _LAST_WORD)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    if _wants_prompts(config) and hasattr(config.option, "tx"):
        # The process that collects prints the prompts: there is nothing for pytest-xdist to distribute.
        config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    from pytest_llmeval.plugin.xdist.distribution import num_gpu_workers

    return num_gpu_workers(config)


def _wants_prompts(config: pytest.Config) -> bool:
    try:
        return bool(options.read_named(config, "show_prompts"))
    except OptionError:
        return False  # pytest_configure says what is wrong


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "llm_suite(name): the LLM suite that a test records to with llm_record")
    try:
        settings = config.stash[settings_key] = options.read_settings(config)
        config.stash[process_key] = os.getpid()
        if settings.suite:
            from pytest_llmeval.plugin.collection.task_nodes import add_named_suites

            add_named_suites(config, settings)
        if any(model.startswith("python:") for model in settings.models):
            from pytest_llmeval.plugin.models.loading import make_importable

            make_importable(config)
        if not _is_worker(config):
            if settings != Settings():
                from pytest_llmeval.plugin.startup import check

                check(config, settings, runs_tests=_runs_tests(config))
            asks = settings.report or settings.gate or settings.baseline is not None or settings.require_gates
            if asks and _runs_tests(config):
                _llm_session(config)
            config.pluginmanager.register(_Reporting(config), "llmeval-reporting")
            config.pluginmanager.register(_Writing(), "llmeval-writing")
            if getattr(config.option, "tx", None) and config.option.dist != "no":
                from pytest_llmeval.plugin.xdist.distribution import Distribution

                config.pluginmanager.register(Distribution(config), "llmeval-distribution")
    except LLMEvalError as error:
        raise pytest.UsageError(str(error)) from None
    if any(config.pluginmanager.hasplugin(name) for name in ("timeout", "pytest_timeout")):
        from pytest_llmeval.plugin.models.loading_time import LoadingTime

        config.pluginmanager.register(LoadingTime(config), "llmeval-loading-time")
    if config.getoption("lf", False):
        from pytest_llmeval.plugin.collection import last_failed

        last_failed.register(config)
    if settings.strict:
        config.pluginmanager.register(_Strict(), "llmeval-strict")
    if settings.limit is not None:
        from pytest_llmeval.plugin.collection.selection import LimitSamples

        config.pluginmanager.register(LimitSamples(settings.limit), "llmeval-limit")
    if settings.shard is not None:
        from pytest_llmeval.plugin.collection.selection import ShardTests

        config.pluginmanager.register(ShardTests(settings.shard), "llmeval-shard")
    if len(settings.models) > 1:
        from pytest_llmeval.plugin.models.several import ModelOrder

        config.pluginmanager.register(ModelOrder(settings), "llmeval-model-order")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _runs_tests(config: pytest.Config) -> bool:
    option = config.option
    looks = ("collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test")
    return not (any(getattr(option, name, False) for name in looks) or config.stash[settings_key].show_prompts)


def _llm_session(config: pytest.Config) -> LLMSession:
    """The gathering side, made when there is something to gather."""
    session: LLMSession | None = config.stash.get(llm_session_key, None)
    if session is None:
        from pytest_llmeval.plugin.finishing.session import LLMSession

        session = config.stash[llm_session_key] = LLMSession(config, config.stash[settings_key])
    return session


def pytest_report_header(config: pytest.Config) -> list[str]:
    settings = config.stash[settings_key]
    if not settings.models:
        return []
    from pytest_llmeval.plugin.models.loading import describe_models

    lines = [f"llm-model: {line}" for line in describe_models(settings)]
    if settings.baseline is not None or settings.project_baseline is not None:
        from pytest_llmeval.plugin.gate_options import describe_baseline

        if (described := describe_baseline(config)) is not None:
            lines.append(f"llm-baseline: {described}")
    return lines


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.stash[settings_key].suite:
        return None
    from pytest_llmeval.plugin.collection.task_nodes import collect_installed_folder

    return collect_installed_folder(parent, path)


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
        from pytest_llmeval.plugin.collection.suite_nodes import SuiteFile

        return [*collectors, SuiteFile.of(parent, file_path)]
    is_named = parent.session.isinitpath(file_path)
    if is_named or parent.config.stash[settings_key].lm_eval:
        from pytest_llmeval.suites.lm_eval.recognize import is_task_file

        if is_task_file(file_path):
            from pytest_llmeval.plugin.collection.task_nodes import collect_task_file

            return [*collectors, *collect_task_file(parent, file_path)]
    if not collectors and is_named:
        from pytest_llmeval.plugin.collection.suite_nodes import NotASuite

        return [NotASuite.from_parent(parent, path=file_path)]
    if not collectors and suite_key is not None:
        _tell_of_late_suite(file_path, suite_key.line, parent.config)
    return collectors


def _tell_of_late_suite(file_path: Path, line: int | None, config: pytest.Config) -> None:
    """A file that would be a suite, but for the place of a key, must not be passed over in silence."""
    from pytest_llmeval.plugin.told_once import tell_once

    shown = os.path.relpath(file_path, config.invocation_params.dir)
    message = f"{shown}:{line}: not collected as a suite: `suite` is not the first key; move it to the top"
    tell_once(config, pytest.PytestCollectionWarning(message))


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | list[pytest.Collector] | None:
    if "pytest_llmeval.suites.python.benchmark" not in sys.modules:
        return None  # nothing in this session can derive from Benchmark
    from pytest_llmeval.plugin.collection.suite_nodes import collect_benchmark

    return collect_benchmark(collector, name, obj)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "llm_model" in metafunc.fixturenames and len(metafunc.config.stash[settings_key].models) > 1:
        from pytest_llmeval.plugin.models.several import parametrize

        parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if _is_worker(config):  # before the controller hears what was collected, and starts tests
        _check_overrides(session)
    if any(is_sample_key in item.stash for item in items):
        from pytest_llmeval.plugin.collection.selection import remember_suites

        remember_suites(config, items)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        stash = items[0].config.stash
        stash[num_deselected_key] = stash.get(num_deselected_key, 0) + len(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if not _is_worker(session.config):  # pytest comes here even if a hook before it raises
        _check_overrides(session)
    nodeids = [item.nodeid for item in session.items if is_sample_key in item.stash]
    if nodeids and _runs_tests(session.config):
        from pytest_llmeval.plugin.collection import selection
        from pytest_llmeval.plugin.gate_options import check_matched

        selection.plan(session)
        if not _is_worker(session.config):
            _expect(session.config, nodeids)
            for info in selection.suite_infos(session.items):
                _llm_session(session.config).know(info)
            check_matched(session)
            selection.show_progress(session)
    collected: list[SuiteInfo] | None = session.config.stash.get(collected_suites_key, None)
    if collected is not None and not _is_worker(session.config) and _runs_tests(session.config):
        _llm_session(session.config).know_collected(collected)


def _check_overrides(session: pytest.Session) -> None:
    if session.config.stash[settings_key].set:
        from pytest_llmeval.plugin.collection.selection import check_overrides

        check_overrides(session)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    if _runs_tests(node.config) and any(_may_be_sample(nodeid) for nodeid in ids):
        from pytest_llmeval.plugin.xdist.distribution import sample_places

        _expect(node.config, [nodeid for _, nodeid in sample_places(node.config, ids)])


def _may_be_sample(nodeid: str) -> bool:
    return ".yaml::" in nodeid or ".yml::" in nodeid or (".py::" in nodeid and nodeid.count("::") > 1)


def _expect(config: pytest.Config, nodeids: Sequence[str]) -> None:
    from pytest_llmeval.plugin.models.loading import require_model

    require_model(config, nodeids)
    if nodeids:
        _llm_session(config).expect(nodeids)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.stash[settings_key].show_prompts:
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        return None  # pytest stops for what could not be collected
    from pytest_llmeval.plugin.collection.selection import show_prompts

    show_prompts(session)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_worker(session.config) and collected_suites_key in session.config.stash:
        from pytest_llmeval.plugin.collection.selection import suites_to_tell

        session.config.workeroutput["llmeval_suites"] = suites_to_tell(session.config)  # type: ignore[attr-defined]


class _Strict:
    """``--llm-strict`` for hand-written tests: they fail at their end, when all samples are recorded."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        result = yield
        recorder: Recorder | None = item.stash.get(recorder_key, None)
        if recorder is not None:
            recorder.raise_if_wrong()
        return result


class _Reporting:
    """Hooks of the process that reports: the only one, or the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_armed = False
        self._uncollected: dict[str, str] = {}
        self._failed: set[str] = set()

    @property
    def _session(self) -> LLMSession | None:
        """What was gathered; None as long as nothing of ours has run."""
        return self._config.stash.get(llm_session_key, None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._uncollected[report.nodeid] = str(report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)  # also before anything of ours has run
        session = _llm_session(self._config) if "llm_payload" in report.__dict__ else self._session
        if session is not None:
            session.add(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        status = getattr(report, "llm_status", None)
        if report.passed and report.when == "call" and status == "wrong":
            return "wrong", "w", ("WRONG", {"yellow": True})
        if report.passed and report.when == "call" and status == "unscored":
            return "unscored", "u", ("UNSCORED", {"yellow": True})
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        self._is_armed = _runs_tests(self._config) and not (
            session.testsfailed and not self._config.option.continue_on_collection_errors
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        if "llmeval_handed_over" in output:
            from pytest_llmeval.plugin.finishing.hand_over import from_worker

            for payload in from_worker(output):
                _llm_session(self._config).take_over(payload)
        told = output.get("llmeval_suites")
        if told is not None:
            from pytest_llmeval.plugin.collection.selection import told_suites

            suites, self._config.stash[num_deselected_key] = told_suites(told)
            _llm_session(self._config).know_collected(suites)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Before others write what they heard of tests: gates are among them."""
        if self._session is not None:
            for nodeid, reason in self._uncollected.items():
                self._session.cannot_collect(nodeid, reason)
            self._session.finish(session, self._failed)
            if self._is_armed:
                from pytest_llmeval.plugin.finishing.gate_reports import decide_and_log

                self._session.gates = decide_and_log(session, self._session)
            elif session.testsfailed and _runs_tests(self._config):
                self._session.fail(session)  # what could not be collected stopped it

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        if "llm_status" in report.__dict__:
            from pytest_llmeval.plugin.finishing.wrong_answers import mark_html_row

            mark_html_row(report, cells)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._config.option.no_summary or self._session is None or self._session.report is None:
            return
        if self._session.has_news:
            from pytest_llmeval.reporting.terminal.summary import write_summary

            self._session.write_wrong_answers(terminalreporter)
            write_summary(terminalreporter, self._session.report, self._session.writer.written)
        from pytest_llmeval.plugin.finishing.github_actions import tell_github

        tell_github(terminalreporter, self._session.report)


class _LastWord:
    """What is decided when all other plugins and each conftest.py have had their say."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The record of a test: pytest-retry runs it again in a wrapper of its own, and the last try counts."""
        report = yield
        takes_records = "llm_record" in getattr(item, "fixturenames", ())
        if takes_records or is_sample_key in item.stash or recorder_key in item.stash:
            from pytest_llmeval.plugin.running.recording import attach

            attach(item, report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, Any, Any]:
        """The exit code: a failed gate stays failed, whatever a conftest.py makes of it."""
        try:
            code = yield
        except SystemExit as error:  # sys.exit() in a hook
            raise SystemExit(_held(config, error.code)) from None
        return _held(config, code)


def _held(config: pytest.Config, code: Any) -> Any:
    session: LLMSession | None = config.stash.get(llm_session_key, None)
    return code if session is None else session.exit_code(code)


class _Writing:
    """The report is written when all others have had their say on the exit code."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        gathered: LLMSession | None = session.config.stash.get(llm_session_key, None)
        if gathered is not None:
            from pytest_llmeval.plugin.finishing.session import remember

            gathered.write(session)
            remember(session.config, gathered.nodeids_to_remember(), gathered.nodeids_to_forget())


@pytest.fixture(scope="session")
def llm_device(request: pytest.FixtureRequest) -> str:
    """The device that models are put on: ``--llm-device``, else MPS on Apple silicon, then CUDA, then CPU."""
    from pytest_llmeval.plugin.models.loading import find_device

    return find_device(request, request.config.stash[settings_key])


def _model_scope(fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    return "function" if len(config.stash[settings_key].models) > 1 else "session"


@pytest.fixture(scope=_model_scope)
def llm_model(request: pytest.FixtureRequest) -> Model:
    """The model of ``--llm-model``, with ``loglikelihood`` and ``generate``; session-scoped.

    A conftest.py can override this fixture and return any object of the Protocol. Where several models are given, a
    test that takes it runs once on each, and it is function-scoped.
    """
    settings = request.config.stash[settings_key]
    if not settings.models:
        pytest.skip(_NO_MODEL)
    if len(settings.models) > 1:
        from pytest_llmeval.plugin.models.several import provide

        return provide(request, settings)
    from pytest_llmeval.plugin.models.loading import load

    return load(request, settings)


@pytest.fixture
def llm_record(request: pytest.FixtureRequest) -> Recorder:
    """Record a score: ``llm_record(suite="tone", id="1", correct=True, answer="please")``."""
    from pytest_llmeval.plugin.running.recording import Recorder

    recorder = request.node.stash[recorder_key] = Recorder(request.node)
    return recorder
