"""Plugins that ask of pytest what the test runners of two editors ask of it, and show what each editor would show.

Written after ``vscode_pytest`` of microsoft/vscode-python (757def8, 2026-07-24), and ``pytest_plugin.py`` of
teamcity-messages 1.33, which PyCharm's ``_jb_pytest_runner.py`` loads (JetBrains/intellij-community, 0cf3f5d).
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

__all__ = ["PyCharm", "Tree", "VSCode"]

Tree: TypeAlias = "dict[str, Tree | str]"
"""Names of nodes; a test has the id by which the editor runs it."""


class VSCode:
    """The view of VS Code's Python extension.

    Below a file it knows classes alone: other levels of pytest's tree it leaves out.

    ``tree`` is what ``--collect-only`` finds, ``outcomes`` what a run says of each id, with the message: the first
    outcome counts. ``lines`` are those of the nodes that have one.
    """

    def __init__(self) -> None:
        self.tree: Tree = {}
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.lines: dict[str, int] = {}
        self._paths: dict[str, Path] = {}

    def pytest_addoption(self, pluginmanager: pytest.PytestPluginManager) -> None:
        adapter = ModuleType("vscode_pytest")
        vars(adapter)["map_id_to_path"] = self._paths
        pluginmanager.register(adapter, "vscode_pytest")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not session.config.option.collectonly:
            return
        for item in session.items:
            levels: list[pytest.Class] = []
            parent = item.parent
            while isinstance(parent, pytest.Class):
                levels.insert(0, parent)
                parent = parent.parent
            assert parent is not None
            node = self.tree
            for folder in reversed(parent.path.relative_to(Path.cwd()).parents[:-1]):
                node = self._below(node, folder.name)
            node = self._below(node, parent.path.name)
            for level in levels:
                node = self._below(node, level.name)
                with contextlib.suppress(OSError, TypeError):
                    self.lines[_absolute(level.nodeid, level.path)] = inspect.getsourcelines(level.obj)[1]
            nodeid = _absolute(item.nodeid, item.path)
            if item.location[1] is not None:
                self.lines[nodeid] = item.location[1] + 1
            if hasattr(item, "callspec"):
                node = self._below(node, item.originalname)  # type: ignore[attr-defined]
            assert item.name not in node, f"two tests are called {item.name}: {nodeid} and {node[item.name]}"
            node[item.name] = nodeid

    def _below(self, node: Tree, name: str) -> Tree:
        below = node.setdefault(name, {})
        assert isinstance(below, dict), f"{name} is a test and has tests"
        return below

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._paths[item.nodeid] = item.path
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Iterator[None]:
        if report.when == "call" or (report.when == "setup" and report.skipped):
            outcome = "success" if report.passed else "failure" if report.failed else "skipped"
            message = report.longreprtext if report.failed else ""
            nodeid = _absolute(report.nodeid, self._paths.get(report.nodeid, Path.cwd()))
            self.outcomes.setdefault(nodeid, (outcome, message))
        return (yield)

    def pytest_exception_interact(self, node: pytest.Item, call: pytest.CallInfo[None], report: Any) -> None:
        assert call.excinfo is not None
        outcome = "failure" if call.excinfo.typename == "AssertionError" else "error"
        self.outcomes.setdefault(_absolute(node.nodeid, node.path), (outcome, report.longreprtext))


def _absolute(nodeid: str, path: Path) -> str:
    return "::".join([str(path), *nodeid.split("::")[1:]])


class PyCharm:
    """The view of PyCharm, which makes its tree of the names of tests while they run.

    ``outcomes`` has what was told of each test, by the names of the nodes that lead to it.
    """

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, ...], tuple[str, str]] = {}
        self.num_tests = 0
        self._running = set[str]()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.num_tests = len(session.items)

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        assert str(location[2]).split(".")[-1]  # the text by which it tells tests apart
        self._running.add(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, _ in report.sections:
            assert isinstance(name, str)
        assert report.duration >= 0
        if report.when != "call" and report.passed:
            return
        self._running.remove(report.nodeid)
        names = _dotted(report.nodeid)
        assert names not in self.outcomes
        if report.skipped:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        else:
            text = str(report.longrepr) if report.failed else ""
        self.outcomes[names] = report.outcome, text


def _dotted(nodeid: str) -> tuple[str, ...]:
    """Return the names of the nodes that PyCharm shows for a node id."""
    before, bracket, inside = nodeid.partition("[")
    before = re.sub(r"\.pyc?::", "::", before)
    names = re.split(r"/|::", before.replace(".", "_"))
    return (*names, f"({inside.removesuffix(']')})".replace(".", "_")) if bracket else tuple(names)
