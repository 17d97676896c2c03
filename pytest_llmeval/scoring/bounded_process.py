"""A process that computes for a scorer, with bounds: what ends it costs one computation, and the next starts another.

The process is one of its own, because a computation can take for ever inside one call of a C function, take all memory,
or end the interpreter, and because no signal handler or thread of pytest's process may be touched. It is a plain
subprocess with a pipe: nothing is forked while torch has threads, and the user's ``__main__`` is not imported again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pytest_llmeval.scoring import bounded_worker

__all__ = ["BoundedProcess", "Bounds", "ProcessError"]

_START_S = 300.0
_END_S = 10.0
_SLOWNESS = 20.0
_PATIENCE_S = 60.0
"""A busy machine may give a computation a twentieth of a processor; one that still waits after that is stuck."""
_BOUNDS_PROCESSOR_TIME = hasattr(signal, "setitimer")
_OUT_OF_PROCESSOR_TIME = -signal.SIGPROF if _BOUNDS_PROCESSOR_TIME else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one computation: seconds of processor time (of time where the system bounds no other), and MiB.

    ``setting`` is where a suite says so, such as ``score.math``; memory is not bounded where ``memory_mb`` is None.
    """

    timeout_s: float
    memory_mb: int | None
    setting: str


class ProcessError(Exception):
    """An error that says why nothing was computed: for want of time or memory, or because the process ended or did not
    start.
    """


class BoundedProcess:
    """Starts its process with the first computation, and ends it with ``close`` or with pytest's own process.

    ``module`` is the file of what the process loads (see ``bounded_worker.py``), asked for at each start. ``does`` says
    what the process does: "compares mathematics". One computation at a time; a second thread waits.
    """

    def __init__(self, module: Callable[[], str], does: str) -> None:
        self._module = module
        self._does = does
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._finalizer: Callable[[], object] | None = None
        self._owner = os.getpid()

    def compute(self, service: str, arguments: dict[str, Any], bounds: Bounds) -> dict[str, Any]:
        """Return the result of the service for these arguments. Raise ``ProcessError`` if there is none."""
        request = {
            "service": service,
            "arguments": arguments,
            "timeout_s": bounds.timeout_s,
            "memory_mb": bounds.memory_mb,
        }
        with self._lock:
            fresh = not self._is_running()
            answer, problem, died = self._ask(request, bounds)
            if died and not fresh:
                # One that had worked for others may have been ended from outside; what ends a new one is this work.
                answer, problem, _ = self._ask(request, bounds)
        if problem is not None:
            raise ProcessError(problem)
        return answer

    def close(self) -> None:
        """End the process. Another computation starts a new one."""
        with self._lock:
            self._end()

    def _is_running(self) -> bool:
        if self._owner != os.getpid():  # after a fork the pipe belongs to the parent
            self._process, self._finalizer, self._owner = None, None, os.getpid()
        return self._process is not None and self._process.poll() is None

    def _ask(self, request: dict[str, Any], bounds: Bounds) -> tuple[dict[str, Any], str | None, bool]:
        """Return the answer, the problem, and whether the process died for no reason that the bounds explain."""
        if not self._is_running():
            problem = self._start()
            if problem is not None:
                return {}, problem, False
        limit_s = _SLOWNESS * bounds.timeout_s + _PATIENCE_S if _BOUNDS_PROCESSOR_TIME else bounds.timeout_s
        answer, in_time = self._exchange(request, limit_s)
        if answer is None:
            code = self._code_of_its_end()
            if not in_time or code == _OUT_OF_PROCESSOR_TIME:
                return {}, f"it took longer than {bounds.timeout_s:g} s ({bounds.setting}.timeout_s)", False
            return {}, f"it ended the process that {self._does.split()[0]} ({_exit(code)})", True
        if (problem := answer.get("problem")) is not None:
            self._end()  # after a failure inside a library its caches are not to be trusted
            if problem == "memory":
                problem = f"it took more than {bounds.memory_mb} MiB of memory ({bounds.setting}.memory_mb)"
            return {}, problem, False
        return answer, None, False

    def _start(self) -> str | None:
        """Start a process; return why that failed, or None."""
        self._end()
        watched, lifeline = os.pipe() if sys.platform == "linux" else (None, None)
        inherited = () if watched is None else (watched,)
        worker = str(Path(bounded_worker.__file__))
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", worker, self._module(), *map(str, inherited)],  # -I: no file shadows a library
                pass_fds=inherited,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="ascii",
            )
        except OSError as error:
            _close(lifeline)
            return f"the process that {self._does} did not start: {error}"
        finally:
            _close(watched)
        self._process = process
        self._finalizer = weakref.finalize(self, _end_process, process, lifeline, os.getpid())
        answer, _ = self._exchange([os.path.abspath(path) for path in sys.path if path], _START_S)
        problem = "it ended at once" if answer is None else answer.get("problem")
        if problem is None:
            return None
        self._end()
        return f"the process that {self._does} did not start: {problem}"

    def _exchange(self, document: object, limit_s: float) -> tuple[dict[str, Any] | None, bool]:
        """Send one line and read one: None when the process ended; and whether that was in time."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return None, True
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            line = _one_line(process.stdin, process.stdout, document)
        except BaseException:  # a reply that is no longer awaited must not answer the next request
            self._end()
            raise
        finally:
            timer.cancel()
        return (json.loads(line) if line.endswith("\n") else None), not late.is_set()

    def _code_of_its_end(self) -> int | None:
        """Return the exit code of a process that has closed its output."""
        process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        self._end()
        return None if process is None else process.returncode

    def _end(self) -> None:
        finalizer = self._finalizer
        self._process = self._finalizer = None
        if finalizer is not None:
            finalizer()


def _one_line(to: IO[str], back: IO[str], document: object) -> str:
    try:
        to.write(json.dumps(document) + "\n")
        to.flush()
    except OSError:
        return ""
    return back.readline()


def _end_process(process: subprocess.Popen[str], lifeline: int | None, owner: int) -> None:
    """End the process. ``lifeline`` is a pipe whose closing ends it too, as this one's end does, however it comes."""
    if owner != os.getpid():
        return
    if process.poll() is None:
        process.kill()
    _close(lifeline)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _exit(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
