"""Judges a program by tests: starts a sandbox for each, and passes lines between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
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
        answer = json.loads(found) if found.startswith(b'{"error"') else {}
        if "error" in answer:
            error = answer["error"]
            return CodeVerdict(_problem(error.get("kind")), f"{error.get('class')}: {error.get('text')}".strip(": "))
        with _process(sandbox, "tests_side", limits) as tests_side:
            line = tests_side.ask({"setup": setup, "tests": tests, "entry_points": list(entry_points)})
            while line is not None and line.startswith(b'{"call"'):
                found = program_side.ask(json.loads(line)["call"])
                if found is None:
                    return program_side.verdict_of_its_end()
                line = tests_side.ask_raw(found)
            if line is None:
                return tests_side.verdict_of_its_end()
            given = json.loads(line)
            if given["verdict"] == "passed":
                return CodeVerdict(None)
            return CodeVerdict(_problem(given["verdict"]), given.get("text", ""))


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
    """One process in a sandbox. ``is_late`` is set when its time was up."""

    def __init__(self, process: subprocess.Popen[bytes], limits: CodeLimits) -> None:
        self._process = process
        self._limits = limits
        self._to = cast("IO[bytes]", process.stdin)
        self._back = cast("IO[bytes]", process.stdout)
        self._started = time.monotonic()
        self.is_late = threading.Event()
        self._is_too_long = False

    def ask(self, message: dict[str, Any]) -> bytes | None:
        return self.ask_raw(json.dumps(message).encode("ascii") + b"\n")

    def ask_raw(self, line: bytes) -> bytes | None:
        """Send a line and return the next; None if the process has ended, or writes without end."""
        try:
            self._to.write(line)
            self._to.flush()
            found = self._back.readline(_MAX_LINE)
        except OSError:
            return None
        self._is_too_long = len(found) == _MAX_LINE
        return found if found.endswith(b"\n") and not self._is_too_long else None

    def verdict_of_command(self, asked: dict[str, Any]) -> CodeVerdict:
        """Start a command, and return the verdict of its exit code and its last line. Raises ``OSError``."""
        line = self.ask(asked)
        if line is None and not self.is_late.is_set():
            raise OSError(f"{asked['command'][0]} did not start")
        code, text = (-signal.SIGKILL, "") if line is None else json.loads(line)
        if code in _KILLED and self._has_had_time():
            return CodeVerdict("time", f"it took longer than {self._limits.timeout_s:g} s")
        return CodeVerdict(None) if code == 0 else CodeVerdict("assertion", text or f"exit code {code}")

    def verdict_of_its_end(self) -> CodeVerdict:
        """Return why the process gives no answer."""
        if self._is_too_long:
            return CodeVerdict("memory", f"a value of more than {_MAX_LINE // 1_000_000} MB")
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return CodeVerdict("exception", "the program closed its way to the tests")
        if self.is_late.is_set() or (code in _KILLED and self._has_had_time()):
            return CodeVerdict("time", f"it took longer than {self._limits.timeout_s:g} s")
        return CodeVerdict("exception", f"it ended its process (exit code {code})")

    def _has_had_time(self) -> bool:
        """Tell whether the process may have used up its time, with several threads: the system kills it then."""
        return time.monotonic() - self._started > self._limits.timeout_s / (os.cpu_count() or 1)


@contextmanager
def _process(sandbox: CodeSandbox, side: str, limits: CodeLimits) -> Iterator[_Side]:
    with sandbox.started(_code(side)) as process:
        one = _Side(process, limits)

        def give_up() -> None:
            one.is_late.set()
            process.kill()

        timer = threading.Timer(_SLOWNESS * limits.timeout_s + _PATIENCE_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield one
        finally:
            timer.cancel()


@cache
def _code(side: str) -> str:
    """Return the text that a sandbox's Python runs: ``values.py`` as a module, and then the side's own file.

    The files are not there to be read, as this package is outside of the sandbox.
    """
    folder, name = Path(__file__).parent, f"{__package__}.values"
    values, own = ((folder / f"{file}.py").read_text(encoding="utf-8") for file in ("values", side))
    return (
        f"import sys, types\nvalues = sys.modules[{name!r}] = types.ModuleType({name!r})\n"
        f"exec(compile({values!r}, 'values.py', 'exec'), values.__dict__)\n"
        f"exec(compile({own!r}, '{side}.py', 'exec'), {{'__name__': '__main__'}})\n"
    )
