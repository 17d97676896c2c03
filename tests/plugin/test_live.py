"""The live line in a session: on a terminal while the model works, gone afterwards, and nowhere else."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyte
import pytest

from tests.plugin.suites_for_tests import SUMS

# Sequences that move the cursor or erase: those of the live line. Colours are pytest's own.
_CURSOR = re.compile(r"\x1b\[\d*[A-HJK]")

# What the live line writes, all of it: a text on the line below, and the way back.
_LIVE = re.compile(r"\r?\n\r[^\r\n\x1b]*\x1b\[J\x1b\[A\r(?:\x1b\[\d+C)?")

# What the scripted model writes when it has changed the size of the terminal.
_RESIZED = re.compile(r"\x1b\]9999;(\d+)\x07")

_BACKEND = """
import pytest
from pytest_llmeval.models.base import Backend, ModelIdentity
from pytest_llmeval.types import GenerateResponse


class Steps(Backend):
    identity = ModelIdentity(name="steps", backend="script")

    def run_loglikelihood(self, requests):
        raise NotImplementedError

    def run_generate(self, requests):
        responses = []
        for request in requests:
            responses.append(GenerateResponse(text="2"))
            if self.on_progress is not None:
                self.on_progress(len(responses), len(requests))
        return responses


@pytest.fixture(scope="session")
def llm_model():
    return Steps()
"""

# No update is left out: the clock of the live line moves by a second whenever it is read.
_CLOCK = """
import itertools
import time

seconds = itertools.count()
time.monotonic = lambda: float(next(seconds))
"""


_SLOW_TO_LOAD = """
import threading

from pytest_llmeval.plugin import live_line

shown, show = threading.Semaphore(0), live_line.loading_text


def told(*arguments):
    shown.release()
    return show(*arguments)


live_line.loading_text = told
live_line._EverySecond.interval_s = 0.01


@pytest.fixture(scope="session")
def llm_model():
    for _ in range(6):
        assert shown.acquire(timeout=600)
    return Steps()
"""

_RESIZE = """
import fcntl
import os
import struct
import termios


class Resizing(Steps):
    num_done = 0

    def run_generate(self, requests):
        with open(os.environ["TERMINAL_NAME"], "wb", buffering=0) as terminal:
            columns = (150, 60, 110, 45)[Resizing.num_done]
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            terminal.write(f"\\x1b]9999;{columns}\\x07".encode())
        Resizing.num_done += 1
        return super().run_generate(requests)


@pytest.fixture(scope="session")
def llm_model():
    return Resizing()
"""

_LONG = "a_suite_whose_name_takes_more_than_eighty_columns_so_that_its_results_stand_further_right_than_that"


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> Path:
    llm_pytester.makeconftest(_BACKEND + _CLOCK)
    llm_pytester.makefile(".yaml", sums=SUMS, **{_LONG: SUMS.replace("suite: sums", "suite: long")})
    return llm_pytester.path


class RunOnTerminal(Protocol):
    """What ``run_on_terminal`` is."""

    def __call__(
        self, *arguments: str, variables: Mapping[str, str] | None = None, exit_code: int = 0, columns: int = 80
    ) -> str: ...


@pytest.fixture
def run_on_terminal(llm_pytester: pytest.Pytester) -> RunOnTerminal:
    """What a pytest run writes to a pseudo-terminal of so many columns, which no variable tells."""
    return functools.partial(_run_on_terminal, llm_pytester)


def _run_on_terminal(
    pytester: pytest.Pytester,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    exit_code: int = 0,
    columns: int = 80,
) -> str:
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {"TERM": "xterm", "COLUMNS": "", "TERMINAL_NAME": os.ttyname(end), **(variables or {})}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            if value:
                patch.setenv(name, value)
            else:
                patch.delenv(name, raising=False)
        process = pytester.popen(
            [sys.executable, "-mpytest", "-p", "no:cacheprovider", *arguments], stdout=end, stderr=end
        )
    os.close(end)
    parts = []
    while part := _read(terminal):
        parts.append(part)
    os.close(terminal)
    assert process.wait() == exit_code
    return b"".join(parts).decode("utf-8")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError as error:
        if error.errno != errno.EIO:  # what Linux says when the other end is closed
            raise
        return b""


def screen(written: str, *, columns: int = 80) -> list[str]:
    """What a terminal shows in the end, on a screen of so many columns and as many lines as it takes."""
    shown = pyte.Screen(columns, 400)
    pyte.Stream(shown).feed(written)
    return [line.rstrip() for line in shown.display]


@pytest.mark.parametrize("verbosity", ["-q", "-v", "-rN"])
def test_a_terminal_shows_loading_and_progress(project: Path, verbosity: str, run_on_terminal: RunOnTerminal) -> None:
    written = run_on_terminal(verbosity, "--llm-batch-size=2", "sums.yaml")
    assert "\n\rloading the model …\x1b[J" in written
    bar = "[....................] " if verbosity == "-q" else ""
    assert f"\n\r{bar}steps: 0/4 samples\x1b[J" in written
    shown = re.findall(r"steps: \d/4 samples, [\d.]+ samples/s, \d+ s left", written)
    assert [line.split()[1] for line in shown] == ["1/4", "2/4", "2/4", "3/4", "4/4"]


def test_what_scorers_ask_loads_in_the_same_way(project: Path, run_on_terminal: RunOnTerminal) -> None:
    with project.joinpath("conftest.py").open("a") as file:
        file.write("\n@pytest.fixture(scope='session')\ndef llm_judge():\n    return Steps()\n")
    project.joinpath("test_own.py").write_text("def test_own(llm_judge): pass\n")
    written = run_on_terminal("sums.yaml", "test_own.py")
    assert "\n\rloading the model …\x1b[J" in written
    assert "loading the judge …\x1b[J" in written


def test_loading_says_for_how_long(project: Path, run_on_terminal: RunOnTerminal) -> None:
    project.joinpath("conftest.py").write_text(_BACKEND + _CLOCK + _SLOW_TO_LOAD)
    written = run_on_terminal("-p", "no:xdist", "sums.yaml")
    times = [int(seconds) for seconds in re.findall(r"\n\rloading the model: (\d+) s\x1b\[J", written)]
    assert len(times) >= 5
    assert times == sorted(set(times))
    assert "loading the model" not in "".join(screen(written))


@pytest.mark.parametrize(
    ("columns", "verbosity"),
    [
        *((45, "-rN"), (120, "-rN"), (200, "-v")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(80, "-rN"), (100, "-rN"), (120, "-q")]),
    ],
)
def test_the_terminal_holds_in_the_end_what_pytest_wrote(
    project: Path, verbosity: str, columns: int, run_on_terminal: RunOnTerminal
) -> None:
    written = run_on_terminal("-p", "no:xdist", verbosity, "--llm-batch-size=2", ".", columns=columns)
    without, num_shown = _LIVE.subn("", written)
    assert num_shown > 10
    assert not re.search(r"\x1b\[\d*[ABCJ]", without)
    assert screen(written, columns=columns) == screen(without, columns=columns)
    _, _, summary = re.sub(r"\x1b\[\d*m|\r", "", without).partition("LLM evaluation")
    assert [line for line in summary.splitlines() if len(line) > columns and " " in line.strip()] == []


def test_the_live_line_follows_a_terminal_that_changes_its_size(project: Path, run_on_terminal: RunOnTerminal) -> None:
    """It goes back to where pytest's line goes on in a terminal that has so many columns now."""
    project.joinpath("conftest.py").write_text(_BACKEND + _CLOCK + _RESIZE)
    arguments = ("-p", "no:xdist", "--llm-batch-size=1", f"{_LONG}.yaml")
    written = run_on_terminal(*arguments, columns=200)
    _, *resized = _RESIZED.split(written)
    columns, after = [int(number) for number in resized[::2]], resized[1::2]
    assert columns == [150, 60, 110, 45]
    for done, part in enumerate(after):
        way_back = re.search(r"\x1b\[J\x1b\[A\r\x1b\[(\d+)C", part)
        assert way_back is not None
        assert int(way_back[1]) == (len(f"{_LONG}.yaml ") + done) % columns[done]


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        ((), {"CI": "true"}),
        ((), {"TERM": "dumb"}),
        (("-s",), {}),
        (("--capture=tee-sys",), {}),
        (("-o", "console_output_style=classic"), {}),
        (("--setup-show",), {}),
        (("-n2",), {}),
        (("--collect-only",), {}),
        (("-p", "no:terminal"), {}),
    ],
)
def test_no_live_line(
    project: Path, arguments: tuple[str, ...], variables: dict[str, str], run_on_terminal: RunOnTerminal
) -> None:
    written = run_on_terminal(*arguments, "sums.yaml", variables=variables)
    assert "loading" not in written
    assert "/4 samples" not in written
    if "-n2" not in arguments:  # pytest-xdist has a line of its own for its workers' start
        assert not _CURSOR.search(written)


def test_a_pipe_gets_none_of_it(llm_pytester: pytest.Pytester, project: Path, workers: list[str]) -> None:
    result = llm_pytester.runpytest_subprocess(*workers, "-v", "sums.yaml")
    assert result.ret == 0
    everything = result.stdout.str() + result.stderr.str()
    assert not {"\r", "\x1b"} & set(everything)
    assert "loading" not in everything
    assert "/4 samples" not in everything


def test_a_call_that_fails_leaves_nothing_behind(
    llm_pytester: pytest.Pytester, project: Path, run_on_terminal: RunOnTerminal
) -> None:
    broken = _BACKEND.replace('responses.append(GenerateResponse(text="2"))', 'pytest.skip("no answer today")')
    llm_pytester.makeconftest(broken + _CLOCK)
    written = run_on_terminal("-p", "no:xdist", "--no-summary", "sums.yaml", exit_code=1)
    assert "steps: 0/4 samples" in written
    assert not any("samples" in line for line in screen(written))


def test_q_shows_a_bar_in_place_of_letters_of_samples(
    llm_pytester: pytest.Pytester, project: Path, run_on_terminal: RunOnTerminal
) -> None:
    """Failures and hand-written tests keep their letters; where there is no bar, so do samples."""
    llm_pytester.makepyfile(test_own="def test_one(): pass\n\n\ndef test_two(): assert False\n")
    arguments = ("-p", "no:xdist", "--llm-batch-size=2", "sums.yaml", "test_own.py")
    written = run_on_terminal("-q", *arguments, exit_code=1)
    assert "[####################] steps: 4/4 samples" in written
    assert "[##########..........] steps: 2/4 samples" in written
    progress = next(line for line in screen(written) if line.endswith("[100%]"))
    assert progress.split() == [".F", "[100%]"]
    shown = screen(written)
    assert any("wrong" in line and "passed" in line and "1 failed" in line for line in shown)
    assert not any("####" in line for line in shown)
    assert "[####" not in run_on_terminal(*arguments, exit_code=1)
    piped = llm_pytester.runpytest_subprocess("-q", *arguments)
    piped.stdout.re_match_lines([r"[.w]{4}\.F +\[100%\]"])


def test_q_keeps_the_letters_of_samples_that_ask_no_model(
    llm_pytester: pytest.Pytester, run_on_terminal: RunOnTerminal
) -> None:
    """Their replies stand in the data: there is no bar that could say how far the session is."""
    llm_pytester.makefile(
        ".yaml",
        given="suite: given\nsamples: [{question: a, target: 1, response: 1}, {question: b, target: 1, response: 1}]\n"
        "score: number\n",
    )
    written = run_on_terminal("-q", "--color=no", "given.yaml", exit_code=0)
    assert ".." in written


def many_suites(project: Path, num_suites: int) -> None:
    for number in range(num_suites):
        (project / f"s{number}.yaml").write_text(SUMS.replace("suite: sums", f"suite: s{number}"))


@pytest.mark.parametrize(("num_suites", "has_bar"), [(4, False), (5, True)])
def test_a_bar_stands_for_the_letters_of_many_suites(
    llm_pytester: pytest.Pytester, num_suites: int, has_bar: bool, run_on_terminal: RunOnTerminal
) -> None:
    llm_pytester.makeconftest(_BACKEND + _CLOCK)
    many_suites(llm_pytester.path, num_suites)
    arguments = ("-p", "no:xdist", "--color=no", ".")
    shown = screen(run_on_terminal(*arguments))
    assert ("s0.yaml .www" in "\n".join(shown)) is not has_bar
    assert next(line.split()[0] for line in shown if line.endswith("[100%]")) == ("[100%]" if has_bar else "s3.yaml")
    assert any(line.startswith("more: ") for line in shown) is has_bar
    shown = screen(run_on_terminal("-v", *arguments))
    assert any(line.startswith("s0.yaml::s1 ") for line in shown)
    assert not any(line.startswith("more: ") for line in shown)


def test_a_pipe_tells_of_many_suites_from_time_to_time(llm_pytester: pytest.Pytester) -> None:
    """A log that stays silent for long looks as if nothing happened, and some CI ends such a job."""
    llm_pytester.makeconftest(_BACKEND + _CLOCK.replace("float(next(seconds))", "5.0 * next(seconds)"))
    many_suites(llm_pytester.path, 5)
    result = llm_pytester.runpytest_subprocess("-p", "no:xdist", "--llm-batch-size=1", ".")
    lines = [line for line in result.outlines if re.match(r"\[[#.]{20}\] steps: \d+/20 samples, ", line)]
    assert 3 < len(lines) < 20
    assert result.outlines.index("collected 20 items") < result.outlines.index(lines[0])
    result.stdout.no_re_match_line(r"(s0.yaml )?[.w]{3,}")
    letters = llm_pytester.runpytest_subprocess("-n2", ".")
    letters.stdout.re_match_lines([r"[.w]{20} +\[100%\]"])
