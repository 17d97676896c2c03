"""The live line: it says on a terminal what the model is doing while pytest waits for it.

It is there only if pytest shows progress of its own to a person: not in a pipe or a file, not in CI, not with ``-s``,
and not under pytest-xdist, whose models work in other processes, of which only test reports reach this one. Without it,
a server that makes the session wait is told of on lines of their own.

With ``-q``, and with more than a few suites, a bar in this line stands for the letters of samples. In a file or pipe, a
line tells of many suites from time to time.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeAlias

import pytest

from pytest_llmeval.models.base import Backend, answers_in_background, identify
from pytest_llmeval.plugin.process_roles import is_worker
from pytest_llmeval.plugin.sample_item import SampleItem
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import batcher_key, model_key
from pytest_llmeval.reporting.terminal import (
    LiveLine,
    Progress,
    background_texts,
    loading_text,
    progress_text,
)
from pytest_llmeval.reporting.writers.text_report import MAX_DETAILED
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
    is_wanted = not is_worker(config) and _has_room(config)
    has_terminal = is_wanted and _is_terminal()
    samples = [item for item in session.items if isinstance(item, SampleItem)]
    verbosity = config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES)
    has_many = verbosity <= 0 and len({item.key[:2] for item in samples}) > MAX_DETAILED
    is_remote = any(spec.kind.is_remote for spec in config.stash[settings_key].all_specs)
    if is_remote and not has_terminal and not _logs_live(config):
        _write_waits(config)
    if not has_terminal and not (is_wanted and has_many):
        return
    try:
        screen = _PytestScreen(config, os.dup(sys.stdout.fileno()), encoding=sys.stdout.encoding)
    except (AttributeError, OSError, ValueError):  # no file, or a closed one
        return
    config.get_terminal_writer().flush()  # what pytest has written comes first, also in a pipe
    in_bar = frozenset(item.nodeid for item in samples) if has_many or verbosity < 0 else frozenset[str]()
    clock = time.monotonic
    line: _Line = LiveLine(screen, clock) if has_terminal else _ProgressLines(screen, clock)
    live = LiveReporting(line, num_samples=len(samples), clock=clock, in_bar=in_bar)
    if has_many and len(samples) == len(session.items):
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # as pytest-xdist does: there are no letters to stand behind names of files
    config.pluginmanager.register(live, "llmeval-live")
    config.add_cleanup(screen.close)
    config.stash[batcher_key].answering = live.answering


def _is_terminal() -> bool:
    """Tell whether a person reads the output; not in CI, by the variables that pytest looks at."""
    try:
        return sys.stdout.isatty() and not any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    except (AttributeError, ValueError):  # no file, or a closed one
        return False


def _has_room(config: pytest.Config) -> bool:
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
    )


def _logs_live(config: pytest.Config) -> bool:
    try:
        return bool(config.getini("log_cli"))
    except ValueError:  # -p no:logging takes the option away
        return False


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
    """The terminal, with the column at which pytest goes on. It has a descriptor, since a test's output is captured."""

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


class _ProgressLines:
    """Writes to a file or pipe, in place of the live line, one line in half a minute."""

    def __init__(self, screen: _PytestScreen, clock: Callable[[], float], *, interval_s: float = 30.0) -> None:
        self._screen = screen
        self._clock = clock
        self._interval_s = interval_s
        self._written_at = clock()

    def show(self, make_text: Callable[[int], str], *, at_once: bool = False) -> None:
        """Write the text that ``make_text`` gives for the columns there are, unless there was one a while ago."""
        now = self._clock()
        if now - self._written_at >= self._interval_s:
            start = "" if self._screen.column == 0 else "\n"
            self._screen.write(f"{start}{make_text(self._screen.width - 1)}\n")
            self._written_at = now

    def clear(self) -> None:
        """Leave what is written."""


_Line: TypeAlias = LiveLine | _ProgressLines


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
        line: _Line,
        *,
        num_samples: int,
        clock: Callable[[], float],
        in_bar: Collection[str] = frozenset(),
    ) -> None:
        self._in_bar = in_bar
        self._line = line
        self._clock = clock
        self._num_samples = num_samples
        self._num_done = 0
        self._started: float | None = None
        self._loaded: set[tuple[str, str]] = set()
        self._is_loading = False
        self._said_by_server: Callable[[], str] | None = None

    @contextmanager
    def starting(self, model: str, last_line: Callable[[], str]) -> Iterator[None]:
        """Say that a model's server starts, and what it wrote last, until the block ends."""
        started = self._clock()

        def tick() -> None:
            elapsed_s = self._clock() - started
            self._line.show(lambda width: loading_text(model, elapsed_s, width, last_line()), at_once=True)

        self._said_by_server = last_line
        try:
            with nullcontext() if self._is_loading else _EverySecond(tick):
                yield
        finally:
            self._said_by_server = None
            if not self._is_loading:
                self._line.clear()

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
            said = "" if self._said_by_server is None else self._said_by_server()
            self._line.show(lambda width: loading_text(model, elapsed_s, width, said), at_once=True)

        self._line.show(lambda width: loading_text(model, 0.0, width), at_once=True)
        self._is_loading = True
        try:
            with _EverySecond(tick):
                return (yield)
        finally:
            self._is_loading = False
            self._line.clear()
            if self._started is not None:
                self._started += self._clock() - started  # the time that is left counts answers, no loading

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, Any, Any]:
        """Leave out a sample's letter, unless it failed or was skipped, where the bar shows how many have run.

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
