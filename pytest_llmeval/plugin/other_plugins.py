"""Places where samples and gates do not fit what pytest or another plugin takes for granted of a test.

``--lf``: pytest takes the text before the first ``::`` of a node id that it remembers for the file. That is no file if
a folder has two colons in its name, and if a suite is run by its name (``gsm8k::17``). Once pytest has met a file with
a failure it would skip such a suite, and in such a folder it would know none of the tests again.

pytest-timeout starts its timer before the fixtures of a test are set up. The first sample would be out of time while
its model loads, and as pytest keeps what a session's fixture has raised, every other sample would fail with it.

A gate is no item, although its node id looks like that of one: pytest would find no test for it on the command line,
and VS Code shows results of tests alone that were collected.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.roles import MODEL_FIXTURES
from pytest_llmeval.text.names import escape_text, split_file

__all__ = ["LoadingTime", "VSCodeTree", "name_suites_of_gates", "remember_failed", "rerun_misread"]


_SKIPS = "lfplugin-collskip"
"""The plugin of pytest that skips files without a failure; it is there once a file with a failure was met."""


def _is_misread(nodeid: str) -> bool:
    """Tell whether pytest would not know the test again."""
    return "::" in split_file(nodeid)[0]


def _has_no_file(config: pytest.Config, nodeid: str) -> bool:
    """Tell whether the test's suite has no file, where pytest looks for one."""
    return not os.path.lexists(config.rootpath / split_file(nodeid)[0])


def remember_failed(config: pytest.Config, failed: Sequence[str], right: Iterable[str]) -> None:
    """Let ``--lf`` run the tests ``failed`` again, though they passed for pytest, and forget those that are right now.

    pytest itself forgets those that it knows again.
    """
    cache = getattr(config, "cache", None)
    forgotten = [nodeid for nodeid in right if _is_misread(nodeid)]
    if cache is None or not (failed or forgotten):
        return
    known = dict(cache.get("cache/lastfailed", {}))
    known.update(dict.fromkeys(failed, True))
    for nodeid in forgotten:
        known.pop(nodeid, None)
    cache.set("cache/lastfailed", known)


def rerun_misread(config: pytest.Config) -> None:
    """Let ``--lf`` run tests again that failed, and whose files pytest does not find by their node ids."""
    cache = getattr(config, "cache", None)  # None under -p no:cacheprovider
    known = {} if cache is None else cache.get("cache/lastfailed", {})
    misread = {nodeid for nodeid in known if _is_misread(nodeid) or _has_no_file(config, nodeid)}
    if misread:
        taken_out = _TakenOut(config, known, misread)
        config.pluginmanager.register(taken_out, "llmeval-last-failed-out")
        config.pluginmanager.register(_PutBack(taken_out), "llmeval-last-failed-back")


class _TakenOut:
    """Keeps such tests from pytest while it chooses those that failed before.

    This wrapper is within pytest's, which is a ``tryfirst`` one: ``-k`` and ``-m`` have chosen already.
    """

    def __init__(self, config: pytest.Config, known: dict[str, bool], misread: set[str]) -> None:
        self._config = config
        self._misread = misread
        self._files = {split_file(nodeid)[0] for nodeid in misread}
        self.known = known
        self.order: dict[pytest.Item, int] = {}
        self.items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> pytest.CollectReport | None:
        """Return the report of the other plugins for a file that would be skipped."""
        manager = self._config.pluginmanager
        if collector.nodeid not in self._files or not manager.hasplugin(_SKIPS):
            return None
        # Wrappers are around this call already.
        wrappers = [
            found.plugin
            for found in self._config.hook.pytest_make_collect_report.get_hookimpls()
            if found.wrapper or found.hookwrapper
        ]
        others: Any = manager.subset_hook_caller(
            "pytest_make_collect_report", [self, manager.get_plugin(_SKIPS), *wrappers]
        )
        report: pytest.CollectReport | None = others(collector=collector)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        result = yield
        self.order = {item: place for place, item in enumerate(items)}
        self.items = [item for item in items if item.nodeid in self._misread]
        items[:] = [item for item in items if item.nodeid not in self._misread]
        return result


class _PutBack:
    """Puts the tests back; registered so that its wrapper is around pytest's and within that of ``--llm-limit``."""

    def __init__(self, held: _TakenOut) -> None:
        self._held = held

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        result = yield
        if not self._held.items:
            return result
        if items and not any(item.nodeid in self._held.known for item in items):
            # pytest knows of no failure among them, and so has left all of them.
            config.hook.pytest_deselected(items=items[:])
            items.clear()
        items[:] = sorted([*items, *self._held.items], key=lambda item: self._held.order.get(item, 0))
        return result

    def pytest_report_collectionfinish(self, config: pytest.Config) -> str | None:
        if not self._held.items or config.get_verbosity() < 0:
            return None
        return f"run-last-failure: and {len(self._held.items)} of suites without a file of that name"


_FIXTURES = frozenset((*MODEL_FIXTURES, "llm_device"))
"""Fixtures that take long: they load weights, and import torch. A project's own fixtures of these names count, too."""


class LoadingTime:
    """Stops the timer of pytest-timeout while a model loads or its server starts, by the hooks that pytest-timeout has
    for plugins.

    With ``timeout_func_only`` the timer starts after all fixtures, and there is nothing to do.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._hook = config.pluginmanager.hook
        self._running: tuple[pytest.Item, object] | None = None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: object) -> None:
        """Remember the timer that is started; another plugin starts it."""
        self._running = (item, settings)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> None:
        self._running = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        with self.stopped() if fixturedef.argname in _FIXTURES else contextlib.nullcontext():
            return (yield)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the timer of the test that runs, and give the test its full time after that."""
        running = self._running
        if running is None or threading.current_thread() is not threading.main_thread():  # a signal's timer is there
            yield
            return
        item, settings = running
        self._hook.pytest_timeout_cancel_timer(item=item)
        try:
            yield
        finally:
            self._hook.pytest_timeout_set_timer(item=item, settings=settings)


def name_suites_of_gates(config: pytest.Config) -> None:
    """Put the suite in place of each gate that the command line names, and of what it names inside this suite."""
    suites = [argument.partition("::gate[")[0] for argument in config.args if "::gate[" in argument]
    if suites:
        within = tuple(f"{suite}::" for suite in suites)
        config.args[:] = dict.fromkeys([*(one for one in config.args if not one.startswith(within)), *suites])


class _GateNode(pytest.Item):
    """A gate in the tree of an editor. It is never run: gates are decided when all tests have run."""

    line: int | None

    def runtest(self) -> None:
        raise NotImplementedError

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None if self.line is None else self.line - 1, self.name


class VSCodeTree:
    """Makes VS Code's tree of tests fit suites, when its adapter collects tests and runs none.

    It takes a sample's line for one of the suite's file, also if the row stands in another, and sees no gates.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        from pytest_llmeval.plugin.sample_item import SampleItem

        samples = [item for item in session.items if isinstance(item, SampleItem)]
        for item in samples:
            if Path(item.sample.path) != item.path:
                item.forget_line()
        levels = {item.parent: item.file.info for item in samples}
        for level, info in levels.items():
            assert level is not None  # only the session has no parent
            for rule, line in info.gates.items():
                gate: _GateNode = _GateNode.from_parent(level, name=f"gate[{escape_text(rule)}]")
                gate.line = line
                session.items.append(gate)
