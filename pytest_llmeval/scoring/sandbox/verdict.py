"""Judges a program by tests: starts a sandbox for each, and passes lines between them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast, get_args

from pytest_llmeval.scoring.sandbox.launch import CodeSandbox

__all__ = ["PROBLEMS", "CodeLimits", "CodeVerdict", "Problem", "judge", "judge_by_command"]

Problem: TypeAlias = Literal["syntax", "assertion", "exception", "time", "memory", "forbidden"]
PROBLEMS: tuple[Problem, ...] = get_args(Problem)
_MAX_LINE = 16_000_000
_SLOWNESS = 4.0
_PATIENCE_S = 5.0
"""A program that computes is ended by its processor time, which a busy machine does not shorten; one that waits, by
this many seconds more than four times that."""
_READY = b"ready\n"
"""The first line of each process: what comes after it is the work of a program or of tests."""
_MAX_DETAIL = 500
_KILLED = (-signal.SIGKILL, -signal.SIGXCPU, 128 + signal.SIGKILL, 128 + signal.SIGXCPU)


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """Seconds of processor time and MiB of memory that a program may take."""

    timeout_s: float
    memory_mb: int


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """The outcome of the tests: ``problem`` is None if all passed. ``detail`` is a line for a reader."""

    problem: Problem | None
    detail: str = ""


def judge(
    sandbox: CodeSandbox, program: str, *, setup: str, tests: str, entry_points: Sequence[str], limits: CodeLimits
) -> CodeVerdict:
    """Return the verdict of ``tests`` on ``program``.

    ``setup`` is code that the tests may use, such as helpers that the prompt defines. A name that the tests use, and
    that neither they nor the setup nor Python define, is the program's; ``entry_points`` always are. Raises ``OSError``
    if a sandbox does not start.
    """
    with _process(sandbox, "program_side", limits) as program_side:
        found = program_side.ask({"program": program, "timeout_s": limits.timeout_s, "memory_mb": limits.memory_mb})
        if found is None:
            return program_side.verdict_of_its_end()
        if (problem := _problem_of_answer(found)) is not None:
            return problem
        is_used = False
        with _process(sandbox, "tests_side", limits) as tests_side:
            line = tests_side.ask({"setup": setup, "tests": tests, "entry_points": list(entry_points)})
            while line is not None and line.startswith(b'{"call"'):
                asked = json.loads(line)["call"]
                found = program_side.ask(asked)
                if found is None:
                    return program_side.verdict_of_its_end()
                is_used |= "get" not in asked or not found.startswith((b'{"value": {"object"', b'{"error"'))
                line = tests_side.ask_raw(found)
            if line is None:
                return tests_side.verdict_of_tests_end()
            given = json.loads(line)
            if given["verdict"] != "passed":
                return CodeVerdict(_problem(given["verdict"]), given.get("text", ""))
            if not is_used:
                raise OSError("the tests never used the program, so that any would pass")
            return CodeVerdict(None)


def _problem_of_answer(line: bytes) -> CodeVerdict | None:
    """Return why a program could not be loaded, None if it was. The program may have written the line itself."""
    if line.startswith(b'{"value"'):
        return None
    try:
        error = json.loads(line)["error"]
        return CodeVerdict(_problem(error["kind"]), f"{error['class']}: {error['text']}".strip(": ")[:_MAX_DETAIL])
    except (ValueError, TypeError, KeyError, RecursionError):
        return CodeVerdict("exception", "the program wrote something else in place of its answer")


def _problem(name: Any) -> Problem:
    return name if name in PROBLEMS else "exception"


def judge_by_command(
    sandbox: CodeSandbox, program: str, tests: str, command: Sequence[str], limits: CodeLimits
) -> CodeVerdict:
    """Return the verdict of a command that runs tests of another language; exit code 0 is a pass.

    The tests are in the file that the command's last word names, the program in ``reply`` with the same suffix. Both
    run in one process, which can end itself with 0. Raises ``OSError`` if the sandbox does not start.
    """
    files = {command[-1]: tests, f"reply{Path(command[-1]).suffix}": program}
    asked = {"files": files, "command": list(command), "timeout_s": limits.timeout_s, "memory_mb": limits.memory_mb}
    with _process(sandbox, "command_side", limits) as side:
        return side.verdict_of_command(asked)


class _Side:
    """One process in a sandbox, which is asked by lines, within a time."""

    def __init__(self, process: subprocess.Popen[bytes], limits: CodeLimits) -> None:
        self._process = process
        self._limits = limits
        self._to, self._back = (cast("IO[bytes]", stream).fileno() for stream in (process.stdin, process.stdout))
        os.set_blocking(self._to, False)
        self._started = time.monotonic()
        self._deadline = self._started + _SLOWNESS * limits.timeout_s + _PATIENCE_S
        self._read = bytearray()
        self._is_late = self._is_too_long = False

    def ask(self, message: dict[str, Any]) -> bytes | None:
        return self.ask_raw(json.dumps(message).encode("ascii") + b"\n")

    def ask_raw(self, line: bytes) -> bytes | None:
        """Send a line and return the next; None if the process has ended, is late, or writes without end.

        Nothing here waits for the end of the process: a child of it may hold its files open for longer.
        """
        try:
            while line and self._waits_for(to=self._to):
                line = line[os.write(self._to, line) :]
        except OSError:
            return None
        return None if line else self.read_line()

    def read_line(self) -> bytes | None:
        while (end := self._read.find(b"\n")) < 0:
            self._is_too_long = len(self._read) > _MAX_LINE
            if self._is_too_long or not self._waits_for(back=self._back):
                return None
            part = os.read(self._back, 1 << 20)
            if not part:
                return None
            self._read += part
        line = bytes(self._read[: end + 1])
        del self._read[: end + 1]
        return line

    def _waits_for(self, *, to: int | None = None, back: int | None = None) -> bool:
        """Wait until the process reads or has written; return False if its time is up."""
        left = max(0.0, self._deadline - time.monotonic())
        found = select.select([] if back is None else [back], [] if to is None else [to], [], left)
        self._is_late = not (found[0] or found[1])
        return not self._is_late

    def verdict_of_command(self, asked: dict[str, Any]) -> CodeVerdict:
        """Start a command, and return the verdict of its exit code and its last line. Raises ``OSError``."""
        line = self.ask(asked)
        if line is None:
            return self.verdict_of_its_end()
        try:
            code, text = json.loads(line)
        except (ValueError, TypeError, RecursionError):  # the program can reach the process that writes this
            return CodeVerdict("exception", "the program wrote something else in place of the exit code")
        if code is None:
            raise OSError(text)
        if code in _KILLED and self._has_had_time():
            return self._out_of_time()
        return CodeVerdict(None) if code == 0 else CodeVerdict("assertion", str(text) or f"exit code {code}")

    def verdict_of_its_end(self) -> CodeVerdict:
        """Return why the process of the program gives no answer."""
        if self._is_too_long:
            return CodeVerdict("memory", f"a value of more than {_MAX_LINE // 1_000_000} MB")
        if self._is_late:
            return self._out_of_time()
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return CodeVerdict("exception", "the program closed its way to the tests")
        if code in _KILLED and self._has_had_time():
            return self._out_of_time()
        return CodeVerdict("exception", f"it ended its process (exit code {code})")

    def verdict_of_tests_end(self) -> CodeVerdict:
        """Return the verdict where the tests give none in time. Raises ``OSError`` if they have ended their process."""
        if self._is_late:
            return self._out_of_time()
        raise OSError("the tests ended their own process, or took more memory or time than a test may")

    def _out_of_time(self) -> CodeVerdict:
        return CodeVerdict("time", f"it took longer than {self._limits.timeout_s:g} s")

    def _has_had_time(self) -> bool:
        """Tell whether the process may have used up its time, with several threads: the system kills it then."""
        return time.monotonic() - self._started > self._limits.timeout_s / (os.cpu_count() or 1)


@contextmanager
def _process(sandbox: CodeSandbox, side: str, limits: CodeLimits) -> Iterator[_Side]:
    """Start a process in a sandbox. Raises ``OSError`` if it does not say that it is there."""
    with sandbox.started(_code(side)) as process:
        one = _Side(process, limits)
        if one.read_line() != _READY:
            raise OSError(f"the sandbox ended at once (exit code {process.poll()})")
        yield one


@cache
def _code(side: str) -> str:
    """Return the text that a sandbox's Python runs: ``values.py`` as a module, and then the side's own file.

    The files are not there to be read, as this package is outside of the sandbox.
    """
    folder, name = Path(__file__).parent, f"{__package__}.values"
    values, own = ((folder / f"{file}.py").read_text(encoding="utf-8") for file in ("values", side))
    return (
        f"import sys, types\nsys.stdout.write({_READY.decode()!r})\nsys.stdout.flush()\n"
        f"values = sys.modules[{name!r}] = types.ModuleType({name!r})\n"
        f"exec(compile({values!r}, 'values.py', 'exec'), values.__dict__)\n"
        f"exec(compile({own!r}, '{side}.py', 'exec'), {{'__name__': '__main__'}})\n"
    )
