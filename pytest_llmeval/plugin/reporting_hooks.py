"""Hooks of the process that reports: from test reports to the summary, the files of the report and the exit code.

This module is imported by every pytest run that has the plugin installed: what a run without suites does not need is
imported on first use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.plugin.process_roles import asks_for_suites, distributes, is_worker, runs_tests
from pytest_llmeval.plugin.settings import given_key, given_rules, settings_key, was_given
from pytest_llmeval.plugin.stash import (
    NUM_DESELECTED,
    collected_suites_key,
    has_broken_suite_key,
    has_collected_key,
    has_model_key,
    is_sample_key,
    llm_session_key,
    num_deselected_key,
    recorder_key,
)
from pytest_llmeval.roles import ROLES

if TYPE_CHECKING:
    import warnings

    from pytest_llmeval.plugin.session import LLMSession
    from pytest_llmeval.plugin.xdist_messages import Collected
    from pytest_llmeval.reporting.report.report import Report
    from pytest_llmeval.reporting.terminal import Terminal

__all__ = ["FINAL_HOOKS", "FinalHooks", "Reporting", "Writing", "add_collected", "llm_session", "write_lines"]

FINAL_HOOKS = "llmeval-final-hooks"


def llm_session(config: pytest.Config) -> LLMSession:
    """Return the session's ``LLMSession``, which is made when there is something to gather."""
    session: LLMSession | None = config.stash.get(llm_session_key, None)
    if session is None:
        from pytest_llmeval.plugin.session import LLMSession

        session = config.stash[llm_session_key] = LLMSession(config, config.stash[settings_key])
    return session


def add_collected(config: pytest.Config, collected: Collected, nodeids: Sequence[str]) -> None:
    """Take what this process or one of its workers has collected: the samples ``nodeids`` are to run.

    Raises ``pytest.UsageError`` if a suite was asked for and nothing can answer it, or if a gate of the command line
    fits no suite.
    """
    config.stash[num_deselected_key] = collected.num_deselected
    config.stash[has_model_key] = collected.has_model
    if not runs_tests(config):
        return
    settings = config.stash[settings_key]
    was_asked_for = config.args_source is config.ArgsSource.ARGS or bool(settings.gate) or settings.baseline is not None
    if collected.unanswered is not None and was_asked_for:
        raise pytest.UsageError(
            f"{collected.unanswered} needs a model: give --llm-model (--llm-model demo ships with the plugin), "
            "or override the fixture llm_model in a conftest.py"
        )
    if settings.budget_option is not None and collected.has_model and not settings.models:
        raise pytest.UsageError(
            f"{settings.budget_option}: nothing says what the model of a conftest.py costs; name it by --llm-model, or "
            "leave out the budget"
        )
    for role, path in collected.lacking.items():
        if was_asked_for or collected.has_model:
            raise pytest.UsageError(
                f"{path} needs {ROLES[role].with_article}: give --llm-{role}, "
                f"or override the fixture llm_{role} in a conftest.py"
            )
    if collected.without_baseline is not None and (was_asked_for or collected.has_model):
        which = "REPORT.json" if settings.update_baseline is None else "a report that is there"
        raise pytest.UsageError(
            f"{collected.without_baseline} compares its replies with those of a baseline: give --llm-baseline {which}; "
            "any other scorer makes the first one, such as --llm-set 'SUITE: score=aspects'"
        )
    if settings.gate or settings.max_drop:
        from pytest_llmeval.plugin.gate_setup import check_matched

        check_matched(config, collected)
    if settings.update_baseline is not None:
        from pytest_llmeval.plugin.gate_setup import check_whole

        check_whole(config, collected)
    found = llm_session(config)
    if not found.has_suites:  # else another worker has collected the same
        write_lines(config, collected.variants)
    found.add_collected(collected, nodeids)


def write_lines(config: pytest.Config, lines: Iterable[str]) -> None:
    """Write lines to the terminal, unless it is quiet."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.get_verbosity() < 0:
        return
    for line in lines:
        from pytest_llmeval.reporting.terminal import as_terminal
        from pytest_llmeval.text.escaping import printable, without_commands

        as_terminal(reporter).write_line(without_commands(printable(line)))


class Reporting:
    """Hooks of the process that reports: the only one, or the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_armed = False
        self._uncollected: dict[str, str] = {}
        self._failed: set[str] = set()
        self._wrong_again: set[str] = set()

    @property
    def _session(self) -> LLMSession | None:
        """Return the ``LLMSession``; None as long as there is nothing to gather."""
        return self._config.stash.get(llm_session_key, None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._uncollected[report.nodeid] = str(report.longrepr)
            if "llm_suite" in report.__dict__:
                self._config.stash[has_broken_suite_key] = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Take secrets out of warnings by code around a model, before they are shown."""
        if self._config.stash[settings_key].all_specs:
            from pytest_llmeval.text.redaction import redact

            text = str(warning_message.message)
            if (safe := redact(text)) != text:
                warning_message.message = Warning(safe)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)  # also before there is anything to gather
        if "llm_wrong_again" in report.__dict__:
            if report.nodeid in self._wrong_again:
                del report.__dict__["llm_wrong_again"]  # it is counted already
            self._wrong_again.add(report.nodeid)
        session = llm_session(self._config) if "llm_payload" in report.__dict__ else self._session
        if session is not None:
            session.add(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Generator[None]:
        """Take secrets out of the message that pytest will show, and let the session be interrupted from now on.

        pytest sets the exit code after this hook, and never does if Ctrl-C is pressed again meanwhile.
        """
        session = self._config.pluginmanager.get_plugin("session")
        if session is not None and isinstance(excinfo.value, KeyboardInterrupt):
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        if self._config.stash[settings_key].all_specs:
            from pytest_llmeval.text.redaction import redact_inside

            shown = excinfo.getrepr
            vars(excinfo)["getrepr"] = lambda *args, **kwargs: redact_inside(shown(*args, **kwargs))
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        status = getattr(report, "llm_status", None)
        if report.passed and report.when == "call" and status == "wrong":
            return "wrong", "w", ("WRONG", {"yellow": True})
        if report.passed and report.when == "call" and status == "unscored":
            return "unscored", "u", ("UNSCORED", {"yellow": True})
        if report.passed and "llm_wrong_again" in report.__dict__:
            return "wrong", "", ""  # the letter is that of the test, which fails
        return None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Decide gates when all tests have run, so that pytest tells every plugin the status that follows from them."""
        self._is_armed = runs_tests(self._config) and not (
            session.testsfailed and not self._config.option.continue_on_collection_errors
        )
        result = yield
        self._finish(session)
        if self._session is not None and self._session.has_failed and not session.testsfailed:
            session.testsfailed = 1  # pytest makes the exit code of it, and knows of no other failure
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        if NUM_DESELECTED in output:
            self._config.stash[num_deselected_key] = output[NUM_DESELECTED]
        if "llmeval_handed_over" in output:
            from pytest_llmeval.plugin.plan import payloads_of_worker

            for payload in payloads_of_worker(output):
                llm_session(self._config).add_answered(payload)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Decide the gates of a session that was stopped, before other plugins write what they heard of tests."""
        self._finish(session)

    def _finish(self, session: pytest.Session) -> None:
        if self._session is None or self._session.report is not None:
            return
        for nodeid, reason in self._uncollected.items():
            self._session.cannot_collect(nodeid, reason)
        self._session.finish(session, self._failed)
        if self._is_armed and session.exitstatus != pytest.ExitCode.USAGE_ERROR:
            from pytest_llmeval.plugin.gate_results import decide_and_log

            decide_and_log(session, self._session)
        elif session.testsfailed and runs_tests(self._config):
            self._session.fail(session)  # it was stopped, as something could not be collected

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        if "llm_status" in report.__dict__:
            from pytest_llmeval.plugin.shown_samples import mark_html_row

            mark_html_row(report, cells)

    def pytest_terminal_summary(self, terminalreporter: object) -> None:
        if self._config.option.no_summary or self._session is None or self._session.report is None:
            return
        from pytest_llmeval.reporting.terminal import as_terminal, write_summary
        from pytest_llmeval.reporting.writers.text_report import MAX_DETAILED

        terminal = as_terminal(terminalreporter)
        self._session.has_summary = True
        if self._session.should_print_summary:
            is_short = self._config.get_verbosity() <= 0 and len(self._session.report.suites) > MAX_DETAILED
            self._session.write_wrong_answers(terminal, has_short_summary=is_short)
            write_summary(terminal, self._session.report, self._session.writer.written, is_short=is_short)
        else:  # there are no results: suites could not be collected, for example
            _write_paths(terminal, self._session)
        _write_baseline(terminal, self._session)
        _tell_github(self._config, terminal, self._session.report)


def _tell_github(config: pytest.Config, terminal: Terminal, report: Report) -> None:
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from pytest_llmeval.reporting.writers.github import annotation_lines, append_job_summary

    if (warning := append_job_summary(report, os.environ)) is not None:
        terminal.write_line(warning, yellow=True)
    others = ("pytest_github_actions_annotate_failures", "annotate_errors")
    if any(map(config.pluginmanager.hasplugin, others)):
        return  # that plugin annotates all failures, gates too
    for line in annotation_lines(report, os.environ, root=config.rootpath):
        terminal.write_line(line)


class FinalHooks:
    """Hooks that run after those of all other plugins and of each conftest.py, and so have the last word."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, None, None]:
        session.config.stash[has_collected_key] = False
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if not distributes(session.config):  # if it does, its workers collect
            session.config.stash[has_collected_key] = True
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Mark the report of a suite that could not be collected, also for the controller of pytest-xdist."""
        report = yield
        if report.failed and getattr(collector, "is_llm_suite", False):
            report.__dict__["llm_suite"] = True
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record a test; inside of wrappers, so that plugins which run it again see the report with its record."""
        report = yield
        stash = item.stash
        if is_sample_key in stash or recorder_key in stash or "llm_record" in getattr(item, "fixturenames", ()):
            from pytest_llmeval.plugin.recording import attach

            attach(item, report, call)
        if is_sample_key in stash or any(name.startswith("llm_") for name in getattr(item, "fixturenames", ())):
            _hide_secrets(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, Any, Any]:
        """Decide the exit code: a failed gate stays failed, whatever a conftest.py makes of it."""
        config.stash[given_key] = given_rules(config)
        try:
            code = yield
        except SystemExit as error:  # sys.exit() in a hook
            raise SystemExit(_held(config, error.code)) from None
        except KeyboardInterrupt:  # at the end of a session, pytest would show a traceback of it
            gathered: LLMSession | None = config.stash.get(llm_session_key, None)
            if gathered is None:
                raise
            from pytest_llmeval.text.escaping import printable

            sys.stderr.write(f"\n{printable(gathered.interrupted())}\n")
            return pytest.ExitCode.INTERRUPTED
        return _held(config, code)


def _hide_secrets(report: pytest.TestReport) -> None:
    """Take secrets out of the report of a test with a model: its traceback with values of variables, its output."""
    if report.longrepr is not None or report.sections:
        from pytest_llmeval.text.redaction import redact_inside

        report.longrepr, report.sections = redact_inside(report.longrepr), redact_inside(report.sections)


def _held(config: pytest.Config, code: Any) -> Any:
    session: LLMSession | None = config.stash.get(llm_session_key, None)
    code = code if session is None else session.exit_code(code)
    return pytest.ExitCode.TESTS_FAILED if not code and _is_cut_short(config) else code


def _is_cut_short(config: pytest.Config) -> bool:
    """Tell whether a session that was to run suites, or to decide gates, ended before it did.

    A hook may end it by ``pytest.exit(returncode=0)``. A conftest.py may forgive that a file could not be collected,
    but not that a suite could not.
    """
    if is_worker(config) or not runs_tests(config):
        return False
    if settings_key not in config.stash:
        return any(was_given(config, name) for name in ("gate", "baseline", "require_gates"))
    if not config.stash.get(has_collected_key, True) and asks_for_suites(config.option):
        return True
    never_began = collected_suites_key in config.stash and has_model_key not in config.stash
    return never_began or config.stash.get(has_broken_suite_key, False)


_WITH_SUMMARY = frozenset(pytest.ExitCode) - {pytest.ExitCode.INTERNAL_ERROR}
"""Exit codes, as ``pytest_sessionfinish`` gets them, for which pytest prints a summary (if it is not turned off)."""


class Writing:
    """Hooks that run last: the report is written once all others have set the exit code, texts after a test's line."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._phase_reports: list[pytest.TestReport] | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        gathered: LLMSession | None = self._config.stash.get(llm_session_key, None)
        if gathered is not None:
            gathered.show_texts()
            if report.passed and report.when != "call" and gathered.expects(report.nodeid):
                self._let_go(report)  # after the terminal has shown it

    def _let_go(self, report: pytest.TestReport) -> None:
        """Have the terminal not keep the report of a sample's set-up or tear-down that passed.

        It keeps two such reports of each sample to the end, for ``--durations``, for the times that it shows per file,
        and for the output of a tear-down: with 100,000 samples these are 100 MB. (pytest documents ``stats`` nowhere,
        but plugins have always read it.)
        """
        if any("teardown" in name for name, _ in report.sections):
            return
        if self._phase_reports is None:
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            keeps = terminal is None or _reads_phases(self._config)
            self._phase_reports = [] if keeps else getattr(terminal, "stats", {}).setdefault("", [])
        if self._phase_reports and self._phase_reports[-1] is report:
            self._phase_reports.pop()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        gathered: LLMSession | None = session.config.stash.get(llm_session_key, None)
        if gathered is not None:
            gathered.remember_failed()
            gathered.write(session)
            self._tell(gathered, exitstatus)

    def _tell(self, gathered: LLMSession, exitstatus: int) -> None:
        """Print the numbers and paths if pytest has no summary: other programs, such as PyCharm, turn it off."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or gathered.report is None:  # without a terminal pytest does not know of --no-summary
            return
        is_off = self._config.option.no_summary
        if isinstance(reporter, pytest.TerminalReporter) and exitstatus in _WITH_SUMMARY and not is_off:
            return
        from pytest_llmeval.reporting.terminal import as_terminal, write_main_numbers

        terminal = as_terminal(reporter)
        if not gathered.has_summary:
            if gathered.should_print_summary:
                terminal.write_line("")
                write_main_numbers(terminal, gathered.report)
            _tell_github(self._config, terminal, gathered.report)
        if not is_off:
            _write_paths(terminal, gathered)
        _write_baseline(terminal, gathered)


def _reads_phases(config: pytest.Config) -> bool:
    """Tell whether pytest's terminal looks at all reports of set-ups and tear-downs again at the end."""
    return config.option.durations is not None or config.getini("console_output_style") == "times"


def _write_paths(terminal: Terminal, gathered: LLMSession) -> None:
    if gathered.writer.written:
        from pytest_llmeval.reporting.terminal import write_paths

        terminal.write_line("")  # the dots of tests may stand on this line: under pytest-xdist pytest does not know
        write_paths(terminal, gathered.writer.written)


def _write_baseline(terminal: Terminal, gathered: LLMSession) -> None:
    if gathered.baseline is not None and gathered.baseline.outcome_lines:
        from pytest_llmeval.reporting.terminal import write_baseline

        write_baseline(terminal, gathered.baseline.outcome_lines, is_written=gathered.baseline.is_written)
