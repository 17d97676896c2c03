"""The keeper of launched servers: a process that starts them, watches them, and ends them with its session.

It is run as a file, ``keeper.py FOLDER SESSION``, by the standard library alone. ``FOLDER`` has the plan
(``plan.json``) and is where it talks with the session's processes: a file ``want-N`` asks for server N, ``done-N`` has
it ended, and ``state-N.json`` says how it is. Its standard input is a pipe from ``SESSION``, the process that started
it: the session is over when something comes by the pipe or it is closed, or when that process is not the parent any
more, as after ``kill -9`` of a session whose forked children still hold the pipe.

A server is the leader of a process group, which is ended as a whole. On Linux, processes that left the group become the
keeper's children, so that it finds them. The keeper itself has a parent, the guard, which does nothing but wait for its
end: if either is killed, the other one ends what is left. If the keeper is, the kernel kills the servers, and all that
they have started become the guard's children.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["ALIVE", "PLAN", "done_file", "end_left", "log_file", "main", "state_file", "told_file", "want_file"]

_KEY_VARIABLE = "PYTEST_LLM_LAUNCH_KEY"
"""The environment variable of ``models.endpoints.LAUNCH_KEY``: nothing of the package is imported here."""
PLAN, ALIVE = "plan.json", "alive"
"""Files in the folder. The keeper holds a lock on ``ALIVE`` as long as it lives."""

_POLL_S = 0.1
_PROBE_S = 1.0
_BETWEEN_PROBES_S = 0.25
_GRACE_S = 4.0
"""Seconds between SIGTERM and SIGKILL."""
_MOST_PORTS = 5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def want_file(folder: Path, number: int) -> Path:
    """Return the file that asks for a server; whoever makes it is the first to do so."""
    return folder / f"want-{number}"


def told_file(folder: Path, number: int) -> Path:
    """Return the file that says that the user knows of a server's restart."""
    return folder / f"told-{number}"


def done_file(folder: Path, number: int) -> Path:
    """Return the file that has a server ended before the session is over."""
    return folder / f"done-{number}"


def state_file(folder: Path, number: int) -> Path:
    """Return the file that says how a server is."""
    return folder / f"state-{number}.json"


def log_file(folder: Path, number: int) -> Path:
    """Return the file with all that a server has written."""
    return folder / f"server-{number}.log"


def _prctl() -> Callable[[int, int], object] | None:
    """Return Linux's ``prctl``; it is looked up here, since a process that was just forked should load nothing."""
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


def _die_with(keeper: int, prctl: Callable[[int, int], object]) -> None:
    """Have the kernel kill this process when the keeper, its parent, is killed; it may have been by now."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)


class _Server:
    """One server of the plan. ``state`` is idle, starting, ready, died or failed; ended, if it is not needed any more.

    It is died until what it has left is ended, which takes seconds if that ignores SIGTERM.
    """

    def __init__(self, number: int, plan: Mapping[str, Any], folder: Path, key: str, prctl: Any) -> None:
        self._number, self._plan, self._folder, self._key, self._prctl = number, plan, folder, key, prctl
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._started_s = self._probed_s = 0.0
        self._num_ports = 0
        self._num_restarts = 0
        self._died_by: int | None = None
        self.state = "idle"

    @property
    def group(self) -> int | None:
        return None if self._process is None else self._process.pid

    def forget(self) -> None:
        """Leave no number of its process group, which may be that of another one later."""
        state_file(self._folder, self._number).unlink(missing_ok=True)

    def start(self, *, port: int | None = None) -> None:
        """Start it on this port, else on a free one."""
        self._port = _free_port() if port is None else port
        self._num_ports += port is None
        command = [str(self._port) if part == "{port}" else part for part in self._plan["command"]]
        environment = {**os.environ, **self._plan["environment"], self._plan["key_variable"]: self._key}
        for name in (_KEY_VARIABLE, *self._plan["without"]):
            environment.pop(name, None)
        self._started_s = time.monotonic()
        prctl, keeper = self._prctl, os.getpid()
        with log_file(self._folder, self._number).open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=None if prctl is None else lambda: _die_with(keeper, prctl),
                )
            except OSError as error:
                self._fail("cannot be run", error=f"{error.strerror}: {command[0]}")
                return
        self._say("starting")

    def _say(self, state: str, **more: object) -> None:
        self.state = state
        path = state_file(self._folder, self._number)
        written = path.with_suffix(".part")
        said = {"state": state, "port": self._port, "group": self.group, "since": time.time(), **more}
        written.write_text(json.dumps({"restarts": self._num_restarts, "died_by": self._died_by, **said}))
        os.replace(written, path)

    def _fail(self, reason: str, **more: object) -> None:
        """Say why there is no server; its process has ended."""
        self._process = None
        self._say("failed", reason=reason, **more)

    def look(self) -> None:
        """Look whether it lives, and whether it is ready; what has died is started again, or has failed."""
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            before = self.state
            self._say("died")
            _end_groups([self._process.pid])
            self._go_on_after(before, code)
        elif self.state == "starting":
            self._look_at_start()

    def _look_at_start(self) -> None:
        now = time.monotonic()
        if now - self._started_s > self._plan["timeout_s"]:
            self._end()
            self._fail("timed out")
        elif now - self._probed_s >= _BETWEEN_PROBES_S:
            found = self._probe()
            self._probed_s = time.monotonic()
            if found == "ready":
                self._say("ready")
            elif found == "another":
                self._end()
                self._on_port_taken()

    def look_at_wishes(self) -> None:
        """Start it if it is wanted, and end it if it is done with; after that it may be wanted again."""
        want, done = want_file(self._folder, self._number), done_file(self._folder, self._number)
        if done.exists():
            self._end()
            self._process, self._num_ports, self._num_restarts = None, 0, 0
            want.unlink(missing_ok=True)
            done.unlink()
            self._say("ended")
        elif self.state in ("idle", "ended") and want.exists():
            self.start()

    def _end(self) -> None:
        if self._process is not None:
            _end_groups([self._process.pid], [self._process])

    def _on_port_taken(self) -> None:
        """Try another port; a server that was ready before has to keep its own, which its clients know."""
        if self._num_restarts or self._num_ports >= _MOST_PORTS:
            self._fail("port taken")
        else:
            self.start()

    def _go_on_after(self, before: str, code: int) -> None:
        if before == "starting" and _is_open(self._port):
            self._on_port_taken()
        elif before == "starting" or self._num_restarts:
            self._fail("ended", code=code, was_ready=before == "ready" or self._num_restarts > 0)
        else:
            self._num_restarts += 1
            self._died_by = code
            self.start(port=self._port)

    def _probe(self) -> str:
        """Return whether the server at the port is ``ready``, ``another`` one, or does not answer yet (empty)."""
        body: Any = None
        for path in self._plan["paths"]:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PROBE_S)
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {self._key}"})
                reply = connection.getresponse()
                body = reply.read()
            except (OSError, http.client.HTTPException):
                return ""
            finally:
                connection.close()
            if reply.status in (401, 403):
                return "another"
            if reply.status != 200:
                return ""
        try:
            names = [one["id"] for one in json.loads(body)["data"]]
        except (ValueError, LookupError, TypeError):
            return "another"
        return "ready" if self._plan["model"] in names else "another"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_PROBE_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS, of a group of zombies
        return False
    return True


def _end_groups(groups: Iterable[int], leaders: Iterable[subprocess.Popen[bytes]] = ()) -> None:
    """End these process groups: by SIGTERM, and those that are still there a while later by SIGKILL."""
    left = [group for group in groups if _is_alive(group)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        until = time.monotonic() + _GRACE_S
        while left and time.monotonic() < until:
            time.sleep(0.02)
            for leader in leaders:
                leader.poll()
            _reap_strays(left)
            left = [group for group in left if _is_alive(group)]


def _strays() -> Iterable[tuple[int, int, str]]:
    """Yield this process's children on Linux, with process group and state: those that lost their parents, too."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                state, parent, group = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:3]
                if int(parent) == os.getpid():
                    yield int(name), int(group), state


def _reap_strays(leaders: Iterable[int]) -> None:
    """Wait for dead grandchildren; a leader is waited for by whoever started it."""
    for pid, _, state in _strays():
        if state == "Z" and pid not in leaders:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _end_strays() -> None:
    """Kill what has left the servers' process groups, and their children, which become ours."""
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and (found := [pid for pid, _, _ in _strays()]):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)


def end_left(folder: Path) -> None:
    """End the process groups of a keeper's servers, in place of a keeper that was killed."""
    states = [json.loads(path.read_bytes()) for path in folder.glob("state-*.json")]
    _end_groups([state["group"] for state in states if state["group"] is not None])


def _keep(folder: Path, guard: int, prctl: Callable[[int, int], object] | None) -> None:
    """Keep the servers of the folder's plan until the session is over, or the guard, the parent, is gone."""
    alive = (folder / ALIVE).open("wb")
    fcntl.flock(alive, fcntl.LOCK_EX)
    key = os.environ[_KEY_VARIABLE]
    plans = json.loads((folder / PLAN).read_bytes())
    servers = [_Server(number, plan, folder, key, prctl) for number, plan in enumerate(plans)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        while os.getppid() == guard:
            readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
            if readable:
                break
            for server in servers:
                server.look_at_wishes()
                server.look()
                if os.getppid() != guard:
                    break
    finally:
        _ignore_signals()
        processes = [server._process for server in servers if server._process is not None]
        _end_groups([process.pid for process in processes], processes)
        if prctl is not None:
            _end_strays()
        for server in servers:
            server.forget()


def _ignore_signals() -> None:
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)


def main(folder: Path, session: int) -> None:
    """Have the servers of the folder's plan kept until ``session``, the parent, is over, and guard their keeper."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the session, which then closes the pipe
    prctl, guard = _prctl(), os.getpid()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    end_of_keeper, held_by_keeper = os.pipe()
    keeper = os.fork()
    if not keeper:
        if prctl is not None:
            prctl(_PR_SET_CHILD_SUBREAPER, 1)  # it is not inherited
        _keep(folder, guard, prctl)
        return
    os.close(held_by_keeper)
    try:
        while os.getppid() == session and not select.select([end_of_keeper], [], [], _POLL_S)[0]:
            pass
    finally:
        _ignore_signals()
        os.kill(keeper, signal.SIGTERM)
        _, status = os.waitpid(keeper, 0)
        if prctl is not None:
            _end_strays()
        if os.WIFSIGNALED(status):
            end_left(folder)
        if os.getppid() != session:  # else the folder is removed by the session, which reads it still
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
