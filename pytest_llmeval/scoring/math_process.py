"""One process that compares mathematics, with bounds: what ends it costs one comparison, and the next starts another.

A process of its own, because an expression can take for ever inside one call of a C function, take all memory, or end
the interpreter, and because no signal handler or thread of pytest's process may be touched. It is a plain subprocess
with a pipe: nothing is forked while torch has threads, and the user's ``__main__`` is not imported again.
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
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from pytest_llmeval.scoring import math_worker

__all__ = ["Bounds", "Comparison", "MathProcess", "Verdict", "shared_process"]

Comparison = Literal["math_verify", "searched", "minerva"]

_START_S = 300.0
_END_S = 10.0
_SLOWNESS = 20.0
_PATIENCE_S = 60.0
"""A busy machine may give a comparison a twentieth of a processor; one that still waits after that is stuck."""
_BOUNDS_PROCESSOR_TIME = hasattr(signal, "setitimer")
_OUT_OF_PROCESSOR_TIME = -signal.SIGPROF if _BOUNDS_PROCESSOR_TIME else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one comparison may take: seconds of processor time (of time where the system bounds no other), and MiB."""

    timeout_s: float
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether two expressions are equal, and what each was read as (None: as text only).

    ``note`` says what a library could not do with them. ``problem`` says why they were not compared at all: for want of
    time or memory, or because the process ended or did not start. ``equal`` is then False.
    """

    equal: bool
    target: str | None = None
    reply: str | None = None
    note: str | None = None
    problem: str | None = None


class MathProcess:
    """Starts its process with the first comparison, and ends it with ``close`` or with pytest's own process.

    One comparison at a time; a second thread waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._finalizer: Callable[[], object] | None = None
        self._owner = os.getpid()

    def compare(self, comparison: Comparison, target: str, reply: str, bounds: Bounds) -> Verdict:
        """Compare a target and a reply. Never raises for what they hold: ``problem`` says what went wrong."""
        request = {
            "compare": comparison,
            "target": target,
            "reply": reply,
            "timeout_s": bounds.timeout_s,
            "memory_mb": bounds.memory_mb,
        }
        with self._lock:
            fresh = not self._is_running()
            verdict, died = self._ask(request, bounds)
            # One that had worked for others may have been ended from outside; what ends a new one is this comparison.
            return self._ask(request, bounds)[0] if died and not fresh else verdict

    def close(self) -> None:
        """End the process. Another comparison starts a new one."""
        with self._lock:
            self._end()

    def _is_running(self) -> bool:
        if self._owner != os.getpid():  # after a fork the pipe belongs to the parent
            self._process, self._finalizer, self._owner = None, None, os.getpid()
        return self._process is not None and self._process.poll() is None

    def _ask(self, request: dict[str, Any], bounds: Bounds) -> tuple[Verdict, bool]:
        """The verdict, and whether the process died for no reason that the bounds explain."""
        if not self._is_running():
            problem = self._start()
            if problem is not None:
                return Verdict(False, problem=problem), False
        limit_s = _SLOWNESS * bounds.timeout_s + _PATIENCE_S if _BOUNDS_PROCESSOR_TIME else bounds.timeout_s
        answer, in_time = self._exchange(request, limit_s)
        if answer is None:
            code = self._code_of_its_end()
            if not in_time or code == _OUT_OF_PROCESSOR_TIME:
                problem = f"it took longer than {bounds.timeout_s:g} s (score.math.timeout_s)"
                return Verdict(False, problem=problem), False
            return Verdict(False, problem=f"it ended the process that compares ({_exit(code)})"), True
        if (problem := answer.get("problem")) is not None:
            self._end()  # after a failure inside a library its caches are not to be trusted
            if problem == "memory":
                problem = f"it took more than {bounds.memory_mb} MiB of memory (score.math.memory_mb)"
            return Verdict(False, problem=problem), False
        return Verdict(**answer), False

    def _start(self) -> str | None:
        """Start a process; why that failed, or None."""
        self._end()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", str(Path(math_worker.__file__))],  # -I: no file of the user's shadows a library
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="ascii",
            )
        except OSError as error:
            return f"the process that compares mathematics did not start: {error}"
        self._process = process
        self._finalizer = weakref.finalize(self, _end_process, process, os.getpid())
        answer, _ = self._exchange([os.path.abspath(path) for path in sys.path if path], _START_S)
        problem = "it ended at once" if answer is None else answer.get("problem")
        if problem is None:
            return None
        self._end()
        return f"the process that compares mathematics did not start: {problem}"

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
        except BaseException:  # a reply that nobody waits for must not answer the next comparison
            self._end()
            raise
        finally:
            timer.cancel()
        return (json.loads(line) if line.endswith("\n") else None), not late.is_set()

    def _code_of_its_end(self) -> int | None:
        """The exit code of a process that has closed its output."""
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


@cache
def shared_process() -> MathProcess:
    """The one of this process, whatever the number of suites and scorers.

    The only thing kept for all: a scorer is a frozen value, and a process of its own for each would cost every suite a
    second and a hundred megabytes. It holds no result; a comparison is the same in any process.
    """
    return MathProcess()


def _one_line(to: IO[str], back: IO[str], document: object) -> str:
    try:
        to.write(json.dumps(document) + "\n")
        to.flush()
    except OSError:
        return ""
    return back.readline()


def _end_process(process: subprocess.Popen[str], owner: int) -> None:
    if owner != os.getpid():
        return
    if process.poll() is None:
        process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()


def _exit(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
