"""Judges a program by tests: starts a sandbox for each program and one for all tests, and passes lines between them."""

from __future__ import annotations

import atexit
import binascii
import json
import marshal
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
_WORDS: dict[Problem, tuple[str, ...]] = {
    "syntax": ("SyntaxError",),
    "memory": ("heap out of memory", "MemoryError", "OutOfMemoryError", "Cannot allocate memory"),
    "assertion": ("AssertionError", "assert"),
    "exception": ("Error",),
}
"""Words by which the errors of a command are told apart; without one the tests are not met."""
_TESTS_MB = 2048
_KILLED = (-signal.SIGKILL, -signal.SIGXCPU, 128 + signal.SIGKILL, 128 + signal.SIGXCPU)


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """Seconds of processor time and MiB of memory that a program may take."""

    timeout_s: float
    memory_mb: int

    @property
    def most_seconds(self) -> float:
        """Return the seconds by the clock after which nobody waits for the program."""
        return _SLOWNESS * self.timeout_s + _PATIENCE_S


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
    with _program(sandbox, "program_side", limits) as program_side, _tests(sandbox, limits) as tests_side:
        found = program_side.ask({"program": program, "timeout_s": limits.timeout_s, "memory_mb": limits.memory_mb})
        if found is None:
            return program_side.verdict_of_its_end()
        if (problem := _problem_of_answer(found)) is not None:
            return problem
        is_used = False
        line = tests_side.ask({"setup": setup, "tests": tests, "entry_points": list(entry_points)})
        while line is not None and line.startswith(b'{"call"'):
            asked = json.loads(line)["call"]
            found = program_side.ask(asked)
            if found is None:
                return program_side.verdict_of_its_end()
            is_used |= "get" not in asked or not found.startswith((b'{"value": {"object"', b'{"error"'))
            line = tests_side.ask_raw(found)
        given = {} if line is None else json.loads(line)
        if "verdict" not in given:
            return tests_side.verdict_of_tests_end(given.get("ended"))
        tests_side.is_idle = True
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
        text = f"{error['class']}: {error['text']}".strip(": ")[:_MAX_DETAIL]
        return CodeVerdict(
            _problem(error["kind"]), "\n".join(filter(None, (text, str(error.get("where", ""))[:_MAX_DETAIL])))
        )
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
    with _program(sandbox, "command_side", limits) as side:
        return side.verdict_of_command(asked)


class _Side:
    """One process in a sandbox, which is asked by lines, within a time."""

    def __init__(self, process: subprocess.Popen[bytes], limits: CodeLimits) -> None:
        self.is_idle = False
        """True if it can take another sample's tests."""
        self._process = process
        self._to, self._back = (cast("IO[bytes]", stream).fileno() for stream in (process.stdin, process.stdout))
        os.set_blocking(self._to, False)
        self._read = bytearray()
        self.begin(limits)

    def begin(self, limits: CodeLimits) -> None:
        """Let its time begin."""
        self._limits = limits
        self._started = time.monotonic()
        self._deadline = self._started + limits.most_seconds

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

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
        if code == 0:
            return CodeVerdict(None)
        text = str(text)
        found = next((problem for problem, words in _WORDS.items() if any(word in text for word in words)), "assertion")
        return CodeVerdict(cast("Problem", found), text or f"exit code {code}")

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

    def verdict_of_tests_end(self, code: int | None) -> CodeVerdict:
        """Return the verdict where the tests give none in time. Raises ``OSError`` if they have ended their process."""
        if self._is_late or code in _KILLED:
            return self._out_of_time()
        raise OSError("the tests ended their own process, or took more memory than a test may")

    def _out_of_time(self) -> CodeVerdict:
        return CodeVerdict("time", f"it took longer than {self._limits.timeout_s:g} s")

    def _has_had_time(self) -> bool:
        """Tell whether the process may have used up its time, with several threads: the system kills it then."""
        return time.monotonic() - self._started > self._limits.timeout_s / (os.cpu_count() or 1)


@contextmanager
def _program(sandbox: CodeSandbox, side: str, limits: CodeLimits) -> Iterator[_Side]:
    """Start the process of a program. Raises ``OSError`` if it does not say that it is there."""
    started = sandbox.started(
        _code(side, not sandbox.image), memory_mb=limits.memory_mb, seconds=limits.most_seconds + _PATIENCE_S
    )
    with started as process:
        yield _ready(process, limits)


_idle: dict[tuple[int, CodeSandbox], list[tuple[_Side, ExitStack]]] = {}
"""Processes that wait for tests, by the process that has started them: a fork of it has its files, but not its turn."""


@contextmanager
def _tests(sandbox: CodeSandbox, limits: CodeLimits) -> Iterator[_Side]:
    """Return a process for tests that waits, or start one. Raises ``OSError`` if it does not say that it is there.

    It is kept for the next sample if it has given a verdict, and ended otherwise.
    """
    waiting = _idle.setdefault((os.getpid(), sandbox), [])
    side = None
    while waiting and side is None:
        side, stack = waiting.pop()
        if side.has_ended:
            stack.close()
            side = None
    if side is None:
        stack = ExitStack()
        with stack:
            process = stack.enter_context(sandbox.started(_code("tests_side", not sandbox.image), memory_mb=_TESTS_MB))
            side = _ready(process, limits)
            stack = stack.pop_all()
    side.is_idle = False
    side.begin(limits)
    try:
        yield side
    finally:
        if side.is_idle:
            waiting.append((side, stack))
        else:
            stack.close()


@atexit.register
def end_tests() -> None:
    """End the processes that wait for tests; the next sample starts one again."""
    for (process, _), waiting in _idle.items():
        while waiting and process == os.getpid():
            waiting.pop()[1].close()


def _ready(process: subprocess.Popen[bytes], limits: CodeLimits) -> _Side:
    """Return the side of a process that has started. Raises ``OSError`` if it does not say that it is there."""
    side = _Side(process, limits)
    if side.read_line() != _READY:
        raise OSError(f"the sandbox ended at once (exit code {process.poll()})")
    return side


@cache
def _code(side: str, is_own_python: bool) -> str:
    """Return the text that a sandbox's Python runs: ``values.py`` as a module, and then the side's own file.

    The files are not there to be read, as this package is outside of the sandbox. Where Python is ``is_own_python``,
    they are compiled here, once and not for each reply.
    """
    name = f"{__package__}.values"

    def run(file: str, names: str) -> str:
        text = Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8")
        if not is_own_python:
            return f"exec(compile({text!r}, '{file}.py', 'exec'), {names})\n"
        code = binascii.b2a_base64(marshal.dumps(compile(text, f"{file}.py", "exec", dont_inherit=True)), newline=False)
        return f"exec(marshal.loads(binascii.a2b_base64({code!r})), {names})\n"

    return (
        f"import binascii, marshal, sys, types\nsys.stdout.write({_READY.decode()!r})\nsys.stdout.flush()\n"
        f"values = sys.modules[{name!r}] = types.ModuleType({name!r})\n"
        + run("values", "values.__dict__")
        + run(side, "{'__name__': '__main__'}")
    )
