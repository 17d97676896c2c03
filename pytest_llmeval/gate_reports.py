"""Gates as results of pytest: in the terminal, the JUnit file and ``-rA``, where every test has its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.gate_plan import baseline_key, gate_options, read_baseline
from pytest_llmeval.gate_selection import selection_of
from pytest_llmeval.gates.decide import decide
from pytest_llmeval.node_ids import escape_id, model_nodes
from pytest_llmeval.options import settings_key
from pytest_llmeval.reporting.escape import printable, without_commands
from pytest_llmeval.reporting.gate_results import GateResult

if TYPE_CHECKING:
    from pytest_llmeval.session import LLMSession

__all__ = ["decide_and_log", "gate_nodeid", "log_gates"]

_REMEMBERS = ("lfplugin", "stepwiseplugin")
"""Plugins of pytest that would look for a gate among the tests of the next session, and find none."""


@dataclass(frozen=True, slots=True)
class _Crash:
    """What pytest's short summary and JUnit file look for in a failure."""

    message: str
    path: str
    lineno: int


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a gate failed, as a test report holds it."""

    reprcrash: _Crash
    lines: tuple[str, ...]

    def toterminal(self, terminal: Any) -> None:
        for line in self.lines:
            terminal.line(line, red=True)

    def __str__(self) -> str:
        return "\n".join(self.lines)


def gate_nodeid(result: GateResult, nodes: dict[str, str]) -> str:
    """``suites/boolq.yaml::gate[accuracy >= 0.6]``, with a level of the model where there are several.

    A gate of a suite that is no file names the suite beside its rule.
    """
    name = result.name if result.path is not None or result.suite is None else f"{result.suite}: {result.name}"
    levels = [result.path or "llmeval"]
    if result.model in nodes:
        levels.append(nodes[result.model])
    return "::".join([*levels, f"gate[{escape_id(name)}]"])


def decide_and_log(session: pytest.Session, gathered: LLMSession) -> tuple[GateResult, ...]:
    """Decide the gates of a session that has run, and let pytest know."""
    config = session.config
    settings = config.stash[settings_key]
    was_asked = settings.gate or settings.baseline is not None or settings.require_gates
    if gathered.report is None or not (gathered.has_suites or was_asked):
        return ()
    results: list[GateResult] = []
    try:
        read_baseline(config, settings)  # that of the ini file, where no model was named
    except OptionError as error:
        results.append(GateResult(name="baseline", kind="baseline", origin="ini", outcome="failed", reason=str(error)))
    baseline = config.stash.get(baseline_key, None)
    results += decide(
        gathered.report,
        gate_options(config, settings),
        baseline=baseline,
        selection=selection_of(config, gathered.report, baseline, gathered.absent),
    )
    log_gates(session, results, model_nodes(settings.models) if len(settings.models) > 1 else {})
    return tuple(results)


def log_gates(session: pytest.Session, results: Sequence[GateResult], nodes: dict[str, str]) -> None:
    """Let every plugin that hears of test results hear of these. The exit code becomes 1 if it was 0 and one failed."""
    manager = session.config.pluginmanager
    deaf = [plugin for plugin in map(manager.get_plugin, _REMEMBERS) if plugin is not None]
    log = manager.subset_hook_caller("pytest_runtest_logreport", remove_plugins=deaf)
    terminal = manager.get_plugin("terminalreporter")
    if terminal is not None and results:
        # The line of the last test is full. With -q and with pytest-xdist the terminal does not know that it is in one.
        terminal.ensure_newline() if terminal.currentfspath else terminal.write_line("")
    option = session.config.option
    max_failures, option.maxfail = option.maxfail, 0  # -x stops what comes after a failure, and nothing does
    try:
        for result in results:
            session.testscollected += 1  # or the terminal's progress passes 100%
            nodeid = gate_nodeid(result, nodes)
            title = f"{result.suite}: {result.name}" if result.suite is not None else result.name
            location = (nodeid.partition("::")[0], None if result.line is None else result.line - 1, printable(title))
            session.config.hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
            for report in _reports(result, nodeid, location):
                log(report=report)
            session.config.hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
    finally:
        option.maxfail = max_failures
    # Also from 5, nothing was selected: scripts forgive it.
    may_change = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if may_change and any(result.outcome == "failed" for result in results):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reports(result: GateResult, nodeid: str, location: tuple[str, int | None, str]) -> list[pytest.TestReport]:
    phases: tuple[Literal["setup", "call", "teardown"], ...] = ("setup", "call", "teardown")
    return [_report(result, nodeid, location, when) for when in phases]


def _report(
    result: GateResult, nodeid: str, location: tuple[str, int | None, str], when: Literal["setup", "call", "teardown"]
) -> pytest.TestReport:
    outcome = result.outcome if when == "call" else "passed"
    path, line = location[0], result.line or 1
    longrepr: Any = None
    if outcome == "failed":
        reason, *notes = _shown(result)
        longrepr = _Failure(_Crash(reason, path, line), (reason, *notes))
    elif outcome == "skipped":
        longrepr = (path, line, f"Skipped: {_shown(result)[0]}")
    report = pytest.TestReport(
        nodeid=nodeid, location=location, keywords={"gate": 1}, outcome=outcome, longrepr=longrepr, when=when
    )
    if when == "call" and outcome == "passed":
        report.sections.append(("Captured gate", "\n".join(_shown(result))))
    return report


def _shown(result: GateResult) -> list[str]:
    """What was found, the reason first, as it may stand on a line of its own."""
    return [without_commands(printable(text)) for text in (result.reason, *result.notes)]
