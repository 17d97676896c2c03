"""Servers that a session starts: how its processes ask for them and wait for them, and the model that they are.

One process has the keeper (``keeper.py``), which starts a server when any process of the session wants it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import functools
import json
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.data.files import temporary_folder
from pytest_llmeval.errors import LLMEvalError, ModelStoppedError
from pytest_llmeval.models.base import Failed, UniformBackend
from pytest_llmeval.models.endpoints import LAUNCH_KEY, Endpoint, ServerArguments
from pytest_llmeval.models.servers import keeper, loop
from pytest_llmeval.models.servers.client import ModelStopped
from pytest_llmeval.models.settings import ShowStart
from pytest_llmeval.text.escaping import printable, without_commands
from pytest_llmeval.text.redaction import redact, remember
from pytest_llmeval.text.wording import time_text
from pytest_llmeval.types import JSON, ModelIdentity, Request, Response, ServerUse

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.model import ServerModel
    from pytest_llmeval.models.specs import ModelSpec

__all__ = ["Keeper", "LaunchPlan", "LaunchedModel", "LaunchedServers", "cause_of"]

_log = logging.getLogger(__name__)

_POLL_S = 0.05
_NOTICED_S = 0.5
"""Seconds after which the keeper has seen that a server has died."""
_FIRST_LINE_S, _BETWEEN_LINES_S = 2.0, 30.0
_END_S = 20.0
"""Seconds in which the keeper ends its servers: it takes two times four for one that ignores SIGTERM."""
_NUM_LINES, _LINE_WIDTH = 12, 300
_LINE_END, _LOG_END = 4096, 65536
"""The bytes of a log in which its last line is looked for, and the reason why a server has ended."""
_NUM_IN_FLIGHT = 64
_LONGEST_SOCKET_FOLDER = 60
"""A socket's path may have 103 characters on macOS, and vLLM's names have 36."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """The way in which one server is started. Models with the same ``digest`` share their servers.

    ``{port}`` in the command stands for the port; ``key_variable`` names the variable in which the server expects its
    key; ``without`` names variables that it must not have. It is ready when all ``paths`` answer, the last one with a
    list of models that has ``model``. ``commit`` is the hub's, for a model from there.
    """

    digest: str
    command: tuple[str, ...]
    environment: dict[str, str]
    without: tuple[str, ...]
    key_variable: str
    paths: tuple[str, ...]
    model: str
    timeout_s: float
    version: str | None
    commit: str | None = None


class Keeper:
    """The process that keeps a session's servers. ``close`` ends them; so does the end of this process, however it
    comes.
    """

    def __init__(self, plans: Sequence[LaunchPlan]) -> None:
        self._stack = contextlib.ExitStack()
        self.folder = self._stack.enter_context(temporary_folder(prefix="llmeval-servers-"))
        self._stack.callback(_share_key())
        # vLLM leaves its sockets behind when it ends; this folder is removed.
        if "VLLM_RPC_BASE_PATH" not in os.environ and len(str(self.folder)) <= _LONGEST_SOCKET_FOLDER:
            sockets = {"VLLM_RPC_BASE_PATH": str(self.folder)}
            plans = [replace(plan, environment={**plan.environment, **sockets}) for plan in plans]
        (self.folder / keeper.PLAN).write_text(json.dumps([asdict(plan) for plan in plans]), encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(self.folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._owner = os.getpid()
        atexit.register(self.close)
        assert self._process.stdout is not None
        with self._process.stdout as said:
            if not said.readline():
                self.close()
                raise ModelStoppedError("the process that keeps launched servers did not start")

    def close(self) -> None:
        """End the servers, and wait for that."""
        atexit.unregister(self.close)
        if os.getpid() != self._owner:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            pipe.write(b"end\n")  # a forked process may hold the pipe as well, which then stays open
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode < 0:  # it was killed, perhaps with the keeper, and left what servers had started
            keeper.end_left(self.folder)
        self._stack.close()


_num_keepers = 0


def _share_key() -> Callable[[], None]:
    """Put a random key into the environment, where workers and the keeper find it; return what takes it away again.

    All keepers of a process have one key: a client may look for it at any time.
    """
    global _num_keepers
    if not _num_keepers:
        os.environ[LAUNCH_KEY] = secrets.token_hex(24)
    _num_keepers += 1

    def take_away() -> None:
        global _num_keepers
        _num_keepers -= 1
        if not _num_keepers:
            os.environ.pop(LAUNCH_KEY, None)

    return take_away


def _read_state(folder: Path, number: int) -> dict[str, Any]:
    """Return how a server is; empty if it was not started."""
    try:
        state: dict[str, Any] = json.loads(keeper.state_file(folder, number).read_bytes())
    except FileNotFoundError:
        return {}
    return state


class LaunchedServers:
    """The servers of a session, as one of its processes sees them through the keeper's folder.

    :param show: that of ``ModelSettings``. If there is no live line, the log says from time to time what starts.
    """

    def __init__(self, folder: Path, show: ShowStart | None = None) -> None:
        self._folder, self._show = folder, show
        remember(os.environ[LAUNCH_KEY])

    @functools.cached_property
    def plans(self) -> list[LaunchPlan]:
        """Return the session's plans; a server's number is its place."""
        plans = json.loads((self._folder / keeper.PLAN).read_bytes())
        return [LaunchPlan(**{name: _frozen(value) for name, value in plan.items()}) for plan in plans]

    def numbers_of(self, digest: str) -> list[int]:
        """Return the numbers of a model's servers."""
        return [number for number, plan in enumerate(self.plans) if plan.digest == digest]

    def wait(self, name: str, numbers: Sequence[int]) -> list[int]:
        """Have these servers of the model ``name`` started, wait until they are ready, and return their ports.

        Raises ``ModelStopped`` with a server's last lines if it does not come up.
        """
        is_first = [self._want(number) for number in numbers]
        begin = time.monotonic()
        next_line_s = _FIRST_LINE_S
        shown = contextlib.nullcontext() if self._show is None else self._show(name, lambda: self._last_line(numbers))
        with shown:
            while True:
                states = [self._state(name, number) for number in numbers]
                if all(state.get("state") == "ready" for state in states):
                    return [state["port"] for state in states]
                elapsed_s = time.monotonic() - begin
                if self._show is None and any(is_first) and elapsed_s >= next_line_s:
                    line = self._last_line(numbers)
                    _log.warning(
                        "%s: its server starts (%s)%s", name, time_text(elapsed_s), f": {line}" if line else ""
                    )
                    next_line_s += _BETWEEN_LINES_S
                time.sleep(_POLL_S)

    def release(self, numbers: Sequence[int]) -> None:
        """Have these servers ended, and wait for that: the memory is for those of another model."""
        for number in numbers:
            if self._is_kept():
                keeper.done_file(self._folder, number).touch()
        while self._is_kept() and any(keeper.done_file(self._folder, number).exists() for number in numbers):
            time.sleep(_POLL_S)

    def _want(self, number: int) -> bool:
        try:
            keeper.want_file(self._folder, number).touch(exist_ok=False)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise ModelStopped("its servers have been ended") from None
        return True

    def _state(self, name: str, number: int) -> dict[str, Any]:
        state = _read_state(self._folder, number)
        if state.get("state") == "failed":
            raise ModelStopped(self._why_failed(name, number, state))
        if not self._is_kept():
            raise ModelStopped(f"model {name}: the process that keeps its server has ended")
        return state

    def _is_kept(self) -> bool:
        """Tell whether the keeper lives: it holds a lock as long as it does."""
        try:
            with (self._folder / keeper.ALIVE).open("rb") as alive:
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def num_restarts(self, numbers: Sequence[int]) -> int:
        """Return how often these servers were started anew."""
        return sum(_read_state(self._folder, number).get("restarts", 0) for number in numbers)

    async def wait_again(self, name: str, number: int) -> None:
        """Wait for a server that may have died and is started again. Raises ``ModelStopped`` if it is gone for good."""
        await asyncio.sleep(_NOTICED_S)
        while (state := self._state(name, number)).get("state") != "ready":
            await asyncio.sleep(_POLL_S)
        if state["restarts"]:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                keeper.told_file(self._folder, number).touch(exist_ok=False)
                how = _described_code(state["died_by"])
                _log.warning("%s: its server ended in the middle of the run (%s), and was started again", name, how)

    def _lines(self, number: int, num_bytes: int = _LINE_END) -> list[str]:
        """Return the last lines that a server has written, without secrets."""
        try:
            with keeper.log_file(self._folder, number).open("rb") as log:
                begin = max(0, log.seek(0, os.SEEK_END) - num_bytes)
                log.seek(begin)
                text = log.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        whole = text.split("\n")[begin > 0 :]  # of a line without its beginning, half a secret could be shown
        lines = (re.split(r"\r+", line.rstrip("\r"))[-1] for line in whole)  # a bar is drawn over itself
        shown = (redact(printable(without_commands(line)).rstrip()) for line in lines)
        return [line[:_LINE_WIDTH] for line in shown if line.strip()]

    def _last_line(self, numbers: Sequence[int]) -> str:
        """Return what one of the servers has written last, without what vLLM puts before each line."""
        last = next((lines[-1] for number in numbers if (lines := self._lines(number))), "")
        return _LOG_PREFIX.sub("", last).lstrip()

    def _why_failed(self, name: str, number: int, state: dict[str, Any]) -> str:
        """Return why a server has failed: one line if that says it, else with its last lines."""
        plan, lines, reason = self.plans[number], self._lines(number, _LOG_END), state["reason"]
        if reason == "cannot be run":
            return redact(f"model {name}: its server cannot be run: {state['error']}")
        if reason == "port taken":
            return f"model {name}: another server answers at each port that was tried for its own"
        if reason == "timed out":
            why = f"its server was not ready after {plan.timeout_s:g} s (launch.timeout=SECONDS gives it more time)"
        else:
            again = " for the second time" if state["restarts"] else ""
            while_ = "" if state["was_ready"] else " before it was ready"
            why = f"its server ended{again}{while_} ({_described_code(state['code'])})"
            refused = next((line for line in reversed(lines) if _REFUSED.search(line)), None)
            if refused is not None and not state["was_ready"]:
                return f"model {name}: its server refuses a setting: {refused.strip()}"
        if not lines:
            return f"model {name}: {why}, and wrote nothing"
        cause, place = cause_of(lines)
        is_last = place >= len(lines) - _NUM_LINES
        near = (lines if is_last else lines[: place + 1])[-_NUM_LINES:]
        shown = "\n".join(f"  {_LOG_PREFIX.sub('', line)}" for line in near)
        return f"model {name}: {why}: {cause}\nIts {'last lines' if is_last else 'lines up to that'}:\n{shown}"


def cause_of(lines: Sequence[str]) -> tuple[str, int]:
    """Return the line of a log that most likely says why the server has ended, and its place.

    The last errors of vLLM's processes only point to a root cause above: then it is the last exception that does not.
    """
    pattern = _CAUSE
    for place in reversed(range(len(lines))):
        line = _LOG_PREFIX.sub("", lines[place]).strip()
        if "root cause" in line:
            pattern = _RAISED
        elif pattern.search(line):
            return line, place
    return lines[-1].strip(), len(lines) - 1


_REFUSED = re.compile(r"^(?:[\w./ -]+: )?error: .*\b(?:argument|arguments|option|unrecognized|invalid)\b")
"""Matches the line by which argparse and llama.cpp refuse an argument."""
_LOG_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
"""Matches what vLLM puts before the lines of its processes."""
_RAISED = re.compile(r"^[\w.]*(?:Error|Exception)\b: ")
_CAUSE = re.compile(r"\b\w*(?:Error|Exception)\b: |\b(?:error|fatal|failed)\b", re.IGNORECASE)


def _described_code(code: int) -> str:
    if code == -signal.SIGKILL:
        return "signal 9, with which the system also ends what uses up its memory"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


class LaunchedModel(UniformBackend):
    """A model that launched servers run. They are started when it is asked for the first time, or by ``start``.

    :param identity: what is known of it before a server runs.
    :param numbers: its servers' numbers in the keeper's plan.
    :param arguments_at: returns the arguments by which servers at these URLs are asked.
    :param on_close: called when the model is closed.
    """

    has_stops_behind_reasoning = True

    def __init__(
        self,
        spec: ModelSpec,
        identity: ModelIdentity,
        servers: LaunchedServers,
        numbers: Sequence[int],
        arguments_at: Callable[[Sequence[str]], ServerArguments],
        *,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._spec, self._known, self._servers, self._numbers = spec, identity, servers, tuple(numbers)
        self._arguments_at, self._on_close = arguments_at, on_close
        self._model: ServerModel | None = None
        self._error: str | None = None
        self._lock = threading.Lock()
        self.starting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Returns the context in which the servers are started: the time is not the test's that needs them first."""

    @property
    def identity(self) -> ModelIdentity:  # type: ignore[override]
        """Return what decides the replies, which is known before the server starts; then with its self-test."""
        if self._model is None:
            return self._known
        found = self._model.identity.details
        more: dict[str, JSON] = {name: found[name] for name in ("urls", "self_test") if name in found}
        return replace(self._known, details={**self._known.details, **more})

    def start(self) -> ServerModel:
        """Start the servers, if nobody has, and test them. Raises ``ModelStoppedError``, also when called again."""
        with self._lock:
            if self._error is not None:
                raise ModelStoppedError(self._error)
            if self._model is None:
                try:
                    with self.starting():
                        self._model = self._loaded()
                except LLMEvalError as error:
                    self._error = str(error)
                    raise ModelStoppedError(self._error) from None
            return self._model

    def _loaded(self) -> ServerModel:
        """Wait for the servers, and test them; again, if one was started anew in the meantime."""
        from pytest_llmeval.models.servers.loading import load_server

        while True:
            ports = self._servers.wait(self._spec.name, self._numbers)
            num_restarts = self._servers.num_restarts(self._numbers)
            urls = dict(zip(map(_url, ports), self._numbers, strict=True))

            def wait_again(endpoint: Endpoint, numbers: dict[str, int] = urls) -> Awaitable[None]:
                return self._servers.wait_again(self._spec.name, numbers[endpoint.url])

            arguments = replace(self._arguments_at(list(urls)), on_lost=wait_again)
            try:
                return load_server(self._spec.name, arguments, self._spec.role)
            except LLMEvalError:
                time.sleep(_NOTICED_S)
                self._servers.wait(self._spec.name, self._numbers)
                if self._servers.num_restarts(self._numbers) == num_restarts:
                    raise

    @property
    def num_concurrent(self) -> int:
        """Return how many requests the servers can work on at once; a guess before they run."""
        return _NUM_IN_FLIGHT if self._model is None else self._model.num_concurrent

    @property
    def num_in_flight(self) -> int:
        """Return how many requests are open now."""
        return 0 if self._model is None else self._model.num_in_flight

    @property
    def server_use(self) -> ServerUse:
        """Return what was asked so far."""
        return ServerUse() if self._model is None else self._model.server_use

    def submit(self, requests: Sequence[Request]) -> list[Future[Response | Failed]]:
        """Do as ``ServerModel`` does; the first call waits for the servers, but not on the event loop that they need.

        A request comes from there if it has waited for another model's reply to the same one, and got none.
        """
        if self._model is None and loop.is_running_here():
            return [loop.run(self._answer_later(request)) for request in requests]
        return self.start().submit(requests)

    async def _answer_later(self, request: Request) -> Response | Failed:
        model = await asyncio.get_running_loop().run_in_executor(None, self.start)
        (future,) = model.submit([request])
        return await asyncio.wrap_future(future)

    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        listener = self.take_listener()
        return self.await_all(self.submit(requests), listener)

    def release(self) -> None:
        """End the connections and the servers, of a model that is not asked any more."""
        if self._model is not None:
            self._model.close()
        self._servers.release(self._numbers)  # also after a self-test that has failed

    def close(self) -> None:
        """End the connections; also the servers, if nobody else has them."""
        if self._model is not None and not self._model.is_closed:
            self._model.close()
        if self._on_close is not None:
            self._on_close()
