"""Gates, decided and told to pytest as results: in the terminal, the JUnit file and ``-rA``, as those of tests are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.gates.decide import decide
from pytest_llmeval.plugin.gate_setup import baseline_of, earlier_key, gate_options, read_baseline, selection_of
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.reporting.report.report import GateResult
from pytest_llmeval.reporting.tables.comparisons import MAX_FAILED, gate_name
from pytest_llmeval.reporting.terminal import as_terminal
from pytest_llmeval.reporting.writers.text_layout import wrapped_lines
from pytest_llmeval.text.escaping import printable, without_commands
from pytest_llmeval.text.names import escape_text, model_nodes, split_file

if TYPE_CHECKING:
    from pytest_llmeval.plugin.session import LLMSession

__all__ = ["decide_and_log", "gate_nodeid", "log_gates"]

_REMEMBERS = ("lfplugin", "stepwiseplugin")
"""Plugins of pytest that would look for a gate among the tests of the next session, where there is none."""

_Phase: TypeAlias = Literal["setup", "call", "teardown"]
_PHASES: tuple[_Phase, ...] = ("setup", "call", "teardown")


@dataclass(frozen=True, slots=True)
class _Crash:
    """The attributes that pytest's short summary and JUnit file look for in a failure."""

    message: str
    path: str
    lineno: int

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class _Failure(str):
    """The reason for which a gate failed, as a test report holds it: a text of lines, for reporters that expect one.

    ``session_terminal`` is the terminal on which the session's summary says the reason in full, among the other gates:
    there it is not said twice. None if the summary leaves it out.
    """

    __slots__ = ("reprcrash", "session_terminal")
    reprcrash: _Crash
    session_terminal: Any

    @classmethod
    def of(cls, reprcrash: _Crash, lines: Sequence[str], session_terminal: Any) -> _Failure:
        made = cls("\n".join(lines))
        made.reprcrash, made.session_terminal = reprcrash, session_terminal
        return made

    def toterminal(self, terminal: Any) -> None:
        if terminal is self.session_terminal:
            where = f"{self.reprcrash.path}:{self.reprcrash.lineno}: see what was found below, under gates"
            for line in wrapped_lines(where, width=terminal.fullwidth, indent="  "):
                terminal.line(line)
            return
        for line in self.splitlines():
            terminal.line(line, red=True)


class TestReport(pytest.TestReport):
    """The report of a gate; other plugins know the class by this name.

    Gates are no tests that pytest has collected. So its last line counts only gates that failed, as it does with
    subtests; the summary counts all of them.
    """

    @property
    def count_towards_summary(self) -> bool:
        """Tell whether pytest's last line counts the gate."""
        return self.failed


def gate_nodeid(result: GateResult, nodes: dict[str, str]) -> str:
    """Return ``suites/boolq.yaml::gate[accuracy >= 0.6]``, with a level for the model if there are several, and for the
    variant if there are any.

    A gate of a suite that has no file names the suite beside its rule.
    """
    name = result.name if result.path is not None or result.suite is None else f"{result.suite}: {result.name}"
    levels = [result.path or "llmeval"]
    if result.model in nodes:
        levels.append(nodes[result.model])
        *above, last = levels[0].split("::")
        if above and (result.suite or "").endswith(f"@{last}"):  # a variant: its level is below the model's
            levels = ["::".join(above), levels[1], last]
    return "::".join([*levels, f"gate[{escape_text(name)}]"])


def decide_and_log(session: pytest.Session, gathered: LLMSession) -> None:
    """Decide the gates of a session that has run, and let pytest know."""
    config = session.config
    settings = config.stash[settings_key]
    if gathered.report is None or not (gathered.has_suites or settings.asks_for_gates):
        return
    results: list[GateResult] = []
    try:
        read_baseline(config, settings)  # the ini file's: without a model it was not read at the start
    except OptionError as error:
        results.append(GateResult(name="baseline", kind="baseline", origin="ini", outcome="failed", reason=str(error)))
    results += decide(
        gathered.report,
        gate_options(config, settings),
        earlier=config.stash.get(earlier_key, None),
        selection=selection_of(config, gathered.report, baseline_of(config), gathered.absent),
    )
    if any(result.outcome == "failed" for result in results):
        gathered.fail(session)  # before others hear of it, and may end the session
    gathered.set_gates(results)
    if results:
        log_gates(session, results, model_nodes(settings.models) if len(settings.models) > 1 else {})


def log_gates(session: pytest.Session, results: Sequence[GateResult], nodes: dict[str, str]) -> None:
    """Tell every plugin that hears of test results of these gates."""
    manager = session.config.pluginmanager
    excluded_plugins = [plugin for plugin in map(manager.get_plugin, _REMEMBERS) if plugin is not None]
    log = manager.subset_hook_caller("pytest_runtest_logreport", remove_plugins=excluded_plugins)
    starts, finishes = manager.hook.pytest_runtest_logstart, manager.hook.pytest_runtest_logfinish
    terminal = manager.get_plugin("terminalreporter")
    if terminal is not None:
        # The line of the last test is full. With -q and with pytest-xdist the terminal does not know that it is in one.
        terminal.ensure_newline() if getattr(terminal, "currentfspath", None) else as_terminal(terminal).write_line("")
        # Another reporter (pytest-sugar) may not expect a word between its lines.
        is_usual = type(terminal) is pytest.TerminalReporter
        if is_usual and session.config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) <= 0:
            # The dots of gates stand behind a word of their own, not behind the file of a suite.
            terminal.write("gates ")
            starts = manager.subset_hook_caller("pytest_runtest_logstart", remove_plugins=[terminal])
    collected = session.testscollected
    session.testscollected += len(results)  # or the terminal's progress passes 100%
    if terminal is not None and hasattr(terminal, "tests_count"):  # so does that of pytest-sugar
        terminal.tests_count += len(results)
    # Where VS Code's adapter looks up the file of a test that it is told of.
    paths = getattr(manager.get_plugin("vscode_pytest"), "map_id_to_path", None)
    option = session.config.option
    max_failures, option.maxfail = option.maxfail, 0  # -x stops tests that follow a failure, and none follow
    is_listed = sum(result.outcome == "failed" for result in results) <= MAX_FAILED
    is_said = is_listed and isinstance(terminal, pytest.TerminalReporter) and not session.config.option.no_summary
    writer = session.config.get_terminal_writer() if is_said else None
    try:
        for result in results:
            nodeid = gate_nodeid(result, nodes)
            if paths is not None:
                paths[nodeid] = session.config.rootpath / split_file(nodeid)[0]
            title = printable(gate_name(result, nodes, separator=": "))
            location = (split_file(nodeid)[0], None if result.line is None else result.line - 1, title)
            starts(nodeid=nodeid, location=location)
            for when in _PHASES:
                log(report=_report(result, nodeid, location, when, writer))
            finishes(nodeid=nodeid, location=location)
    finally:
        option.maxfail = max_failures
        if not collected:
            session.testscollected = 0  # pytest makes the exit code of it


def _report(
    result: GateResult,
    nodeid: str,
    location: tuple[str, int | None, str],
    when: _Phase,
    writer: Any,
) -> pytest.TestReport:
    outcome = result.outcome if when == "call" else "passed"
    path, line = location[0], result.line or 1
    longrepr: Any = None
    if outcome == "failed":
        reason, *notes = _shown(result)
        longrepr = _Failure.of(_Crash(reason, path, line), (reason, *notes), writer)
    elif outcome == "skipped":
        longrepr = (path, line, f"Skipped: {_shown(result)[0]}")
    report = TestReport(
        nodeid=nodeid, location=location, keywords={"gate": 1}, outcome=outcome, longrepr=longrepr, when=when
    )
    if when == "call" and outcome == "passed":
        report.sections.append(("Captured gate", "\n".join(_shown(result))))
    return report


def _shown(result: GateResult) -> list[str]:
    """Return the gate's reason and notes, each as one line that is safe to print."""
    return [without_commands(printable(text)) for text in (result.reason, *result.notes)]
