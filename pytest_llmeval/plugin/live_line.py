"""The live line: it says on a terminal what the model is doing while pytest waits for it.

It is there only if pytest shows progress of its own to a person: not in a pipe or a file, not in CI, not with ``-s``,
and not under pytest-xdist, whose models work in other processes, of which only test reports reach this one. Without it,
a server that makes the session wait is told of on lines of their own.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from pytest_llmeval.models.base import Backend, answers_in_background, identify
from pytest_llmeval.plugin.process_roles import is_worker
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import batcher_key, is_sample_key, model_key
from pytest_llmeval.reporting.terminal import (
    LiveLine,
    Progress,
    background_texts,
    loading_text,
    progress_text,
)
from pytest_llmeval.roles import ROLES
from pytest_llmeval.text.escaping import printable, without_commands
from pytest_llmeval.types import ServerUse

__all__ = ["LiveReporting", "start"]


def _use_of(model: object) -> ServerUse | None:
    use = getattr(model, "server_use", None)
    return use if isinstance(use, ServerUse) else None


def start(session: pytest.Session) -> None:
    """Register the live line if there is a terminal for it, and let it follow the batcher.

    Call it when the session's samples are known: at that time pytest captures nothing, so that standard output is the
    terminal.
    """
    config = session.config
    if is_worker(config) or not is_wanted(config) or (descriptor := _open_terminal()) is None:
        if any(spec.kind.is_remote for spec in config.stash[settings_key].all_specs) and not _logs_live(config):
            _write_waits(config)
        return
    samples = [item for item in session.items if is_sample_key in item.stash]
    is_quiet = config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) < 0
    screen = _PytestScreen(config, descriptor, encoding=sys.stdout.encoding)
    in_bar = frozenset(item.nodeid for item in samples) if is_quiet else frozenset()
    live = LiveReporting(screen, num_samples=len(samples), clock=time.monotonic, in_bar=in_bar)
    config.pluginmanager.register(live, "llmeval-live")
    config.add_cleanup(screen.close)
    config.stash[batcher_key].answering = live.answering


def is_wanted(config: pytest.Config) -> bool:
    """Tell whether there is room for a live line: the place where pytest's own progress has its percentages."""
    # We know nothing of the lines that another reporter (pytest-sugar, pytest-rich) draws.
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return (
        type(reporter) is pytest.TerminalReporter
        and getattr(config.option, "capture", "no") in ("fd", "sys")
        and not getattr(config.option, "setupshow", False)
        and not _logs_live(config)
        and getattr(config.option, "log_cli_level", None) is None
        and config.getini("console_output_style") != "classic"
        and os.environ.get("TERM", "") != "dumb"
        and not any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))  # the variables that pytest looks at
    )


def _logs_live(config: pytest.Config) -> bool:
    try:
        return bool(config.getini("log_cli"))
    except ValueError:  # -p no:logging takes the option away
        return False


def _open_terminal() -> int | None:
    """Return a new descriptor of the terminal, since a running test's output is captured; None without a terminal."""
    try:
        return os.dup(sys.stdout.fileno()) if sys.stdout.isatty() else None
    except (AttributeError, OSError, ValueError):
        return None


class _WaitLines(logging.Handler):
    """Writes warnings of models behind servers below pytest's own lines, past the capturing of a test's output."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(logging.WARNING)
        self._writer = getattr(config.pluginmanager.get_plugin("terminalreporter"), "_tw", None)
        # A worker of pytest-xdist talks to its controller through its standard output.
        output = sys.__stderr__ if is_worker(config) else sys.__stdout__
        if output is None:
            raise OSError("the process has no output")
        self._descriptor = os.dup(output.fileno())

    def emit(self, record: logging.LogRecord) -> None:
        start = "" if getattr(self._writer, "width_of_current_line", None) == 0 else "\n"
        text = f"{start}{without_commands(printable(record.getMessage()))}\n"
        with suppress(OSError):
            os.write(self._descriptor, text.encode("utf-8", "replace"))

    def close(self) -> None:
        super().close()
        os.close(self._descriptor)


def _write_waits(config: pytest.Config) -> None:
    try:
        lines = _WaitLines(config)
    except (OSError, ValueError):  # closed
        return
    logger = logging.getLogger("pytest_llmeval.models.servers")
    logger.addHandler(lines)
    config.add_cleanup(lines.close)
    config.add_cleanup(lambda: logger.removeHandler(lines))


class _PytestScreen:
    """The terminal, with the column at which pytest goes on."""

    def __init__(self, config: pytest.Config, descriptor: int, *, encoding: str) -> None:
        self._writer = config.get_terminal_writer()
        self._descriptor = descriptor
        self._encoding = encoding

    def write(self, text: str) -> None:
        rest = text.encode(self._encoding, "replace")
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def close(self) -> None:
        os.close(self._descriptor)

    @property
    def width(self) -> int:
        """Return the terminal's columns. Pytest's own writer asks descriptor 1, which is a file while a test runs."""
        try:
            columns = os.get_terminal_size(self._descriptor).columns
        except OSError:
            columns = 0
        return columns or shutil.get_terminal_size().columns

    @property
    def column(self) -> int | None:
        """Return the column at which pytest goes on; None at the edge, where terminals differ in what a cursor does."""
        num_columns = self._writer.width_of_current_line
        column = num_columns % self.width
        return None if num_columns and not column else column


class _EverySecond:
    """Calls ``tick`` once a second, from a thread of its own, until the block ends."""

    interval_s = 1.0

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmeval-live", daemon=True)

    def _run(self) -> None:
        while not self._ended.wait(self.interval_s):
            try:
                self._tick()
            except OSError:
                return  # the terminal has gone: the next write by pytest will say so

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class LiveReporting:
    """Says that a model loads, and for how long; then how many samples it has answered.

    :param in_bar: node ids of the samples that a bar stands for, in place of their letters.
    """

    def __init__(
        self,
        screen: _PytestScreen,
        *,
        num_samples: int,
        clock: Callable[[], float],
        in_bar: Collection[str] = frozenset(),
    ) -> None:
        self._in_bar = in_bar
        self._line = LiveLine(screen, clock)
        self._clock = clock
        self._num_samples = num_samples
        self._num_done = 0
        self._started: float | None = None
        self._loaded: set[tuple[str, str]] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Say which model loads. The fixture of several models is set up for each test, but loads each model once."""
        settings, fixture = request.config.stash[settings_key], fixturedef.argname
        role = next((role for role in ROLES if fixture == f"llm_{role}"), None)
        if fixture != "llm_model" and role is None:
            return (yield)
        given = settings.models if role is None else [spec.name for spec in settings.specs_of(role)]
        model = given[0] if given else f"the {role or 'model'}"
        if role is None:
            model = request.node.stash.get(model_key, None) or model
        if (fixture, model) in self._loaded:
            return (yield)
        self._loaded.add((fixture, model))
        started = self._clock()

        def tick() -> None:
            elapsed_s = self._clock() - started
            self._line.show(lambda width: loading_text(model, elapsed_s, width), at_once=True)

        self._line.show(lambda width: loading_text(model, 0.0, width), at_once=True)
        try:
            with _EverySecond(tick):
                return (yield)
        finally:
            self._line.clear()
            if self._started is not None:
                self._started += self._clock() - started  # the time that is left counts answers, no loading

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, Any, Any]:
        """Leave out a sample's letter with ``-q``, unless it failed or was skipped: the bar shows how many have run.

        As long as no model has been asked, replies come from the data, and there is no bar.
        """
        status = yield
        is_in_bar = self._started is not None and report.nodeid in self._in_bar
        if is_in_bar and report.passed and report.when == "call" and status:
            category, _, word = status
            return category, "", word
        return status

    @contextmanager
    def answering(self, model: object, num_samples: int) -> Iterator[None]:
        """Show the progress of a call for ``num_samples`` samples; the batcher makes it inside."""
        if self._started is None:
            self._started = self._clock()
        name = identify(model).name

        def progress(num_requests_done: int, num_requests: int) -> None:
            part = num_samples * num_requests_done // max(num_requests, 1)
            self._show(name, self._num_done + part)

        backend = model if isinstance(model, Backend) else None
        if backend is not None:
            backend.on_progress = progress

        def tick() -> None:
            self._show(name, self._num_done, background_texts(getattr(model, "num_in_flight", 0), _use_of(model)))

        try:
            if answers_in_background(model):
                tick()
                with _EverySecond(tick):
                    yield
            else:
                self._show(name, self._num_done)
                yield
            self._num_done += num_samples
        finally:
            if backend is not None:
                backend.on_progress = None
            self._line.clear()

    def _show(self, model: str, num_done: int, background: Sequence[str] = ()) -> None:
        elapsed_s = 0.0 if self._started is None else self._clock() - self._started
        progress = Progress(
            model=model,
            num_done=min(num_done, self._num_samples),
            num_total=self._num_samples,
            elapsed_s=elapsed_s,
            background=background,
        )
        self._line.show(lambda width: progress_text(progress, width, with_bar=bool(self._in_bar)))
