"""The live line in a session: on a terminal while the model works, gone afterwards, and nowhere else."""

from __future__ import annotations

import errno
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.plugin.suites_for_tests import SUMS

# Sequences that move the cursor or erase: those of the live line. Colours are pytest's own.
_CURSOR = re.compile(r"\x1b\[\d*[A-HJK]")

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


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> Path:
    llm_pytester.makeconftest(_BACKEND + _CLOCK)
    llm_pytester.makefile(".yaml", sums=SUMS)
    return llm_pytester.path


def run_on_terminal(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None, exit_code: int = 0
) -> str:
    """What a pytest run writes to a pseudo-terminal."""
    terminal, end = pty.openpty()
    environment = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", **(variables or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={name: value for name, value in (os.environ | environment).items() if value},
        stdin=subprocess.DEVNULL,
        stdout=end,
        stderr=end,
    )
    os.close(end)
    parts = []
    while part := _read(terminal):
        parts.append(part)
    os.close(terminal)
    assert process.wait(timeout=60) == exit_code
    return b"".join(parts).decode("utf-8").replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError as error:
        if error.errno != errno.EIO:  # what Linux says when the other end is closed
            raise
        return b""


def screen(written: str) -> str:
    """What a terminal shows in the end."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\][^\x1b\x07]*(?:\x1b\\|\x07)|\x1b\[[\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written):
        if part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            rows[row] = rows[row][:column]
        elif part == "\x1b[A":
            row -= 1
        elif part.startswith("\x1b["):
            column += int(part[2:-1]) if part.endswith("C") else 0
        elif not part.startswith("\x1b]"):
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
    return "\n".join(line.rstrip() for line in rows)


def without_times(text: str) -> str:
    return re.sub(r"=+|in [\d.]+s", "", text)


@pytest.mark.parametrize("verbosity", ["-q", "-v", "-rN"])
def test_a_terminal_shows_loading_and_progress(project: Path, verbosity: str) -> None:
    written = run_on_terminal(project, verbosity, "--llm-batch-size=2", "sums.yaml")
    assert "\n\rloading the model …\x1b[K" in written
    assert "\n\rsteps: 0/4 samples\x1b[K" in written
    shown = re.findall(r"steps: \d/4 samples, [\d.]+ samples/s, \d+ s left", written)
    assert [line.split()[1] for line in shown] == ["1/4", "2/4", "2/4", "3/4", "4/4"]


@pytest.mark.parametrize("verbosity", ["-q", "-v", "-rN"])
def test_the_terminal_holds_in_the_end_what_pytest_wrote(project: Path, verbosity: str) -> None:
    arguments = ("-p", "no:xdist", "--no-header", verbosity, "--llm-batch-size=2", "sums.yaml")
    live = run_on_terminal(project, *arguments)
    plain = run_on_terminal(project, *arguments, variables={"CI": "true"})
    assert "samples/s" in live
    assert without_times(screen(live)) == without_times(screen(plain))


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
def test_no_live_line(project: Path, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    written = run_on_terminal(project, *arguments, "sums.yaml", variables=variables)
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


def test_a_call_that_fails_leaves_nothing_behind(llm_pytester: pytest.Pytester, project: Path) -> None:
    broken = _BACKEND.replace('responses.append(GenerateResponse(text="2"))', 'pytest.skip("no answer today")')
    llm_pytester.makeconftest(broken + _CLOCK)
    written = run_on_terminal(project, "-p", "no:xdist", "--no-summary", "sums.yaml", exit_code=1)
    assert "steps: 0/4 samples" in written
    assert "samples" not in screen(written)
