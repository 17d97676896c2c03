"""Forked processes are what fresh ones would be, as far as the sessions of these tests can see."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import ForkedProcess, is_possible
from tests.forked import ForkServer
from tests.support import clean_environment

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

_LOOK = """\
import json, os, random, sys
found = [os.getcwd(), dict(os.environ), sys.argv, __name__, random.random(), os.getpid(), sorted(sys.modules)]
print(json.dumps(found))
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int, int]]:
    """An empty stdin, and files called ``stdout`` and ``stderr``."""
    with contextlib.ExitStack() as stack:
        numbers = [
            stack.enter_context((tmp_path / name).open("w+b")).fileno() for name in ("stdin", "stdout", "stderr")
        ]
        yield numbers[0], numbers[1], numbers[2]


def start(server: ForkServer, files: tuple[int, int, int], code: str, *arguments: str) -> ForkedProcess:
    return server.start(code, arguments, stdin=files[0], stdout=files[1], stderr=files[2])


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import os; os._exit(4)", 4, ""),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import atexit, sys; atexit.register(lambda: print('last', file=sys.stderr))", 0, "last\n"),
    ],
)
def test_an_exit_status_arrives(
    fork_server: ForkServer, files: tuple[int, int, int], tmp_path: Path, code: str, status: int, error: str
) -> None:
    process = start(fork_server, files, code)
    assert process.wait(60) == process.wait() == status
    assert (tmp_path / "stderr").read_text() == error


def test_an_error_is_printed(fork_server: ForkServer, files: tuple[int, int, int], tmp_path: Path) -> None:
    assert start(fork_server, files, "1 / 0").wait(60) == 1
    assert (tmp_path / "stderr").read_text().endswith("ZeroDivisionError: division by zero\n")


def test_a_process_may_be_killed(fork_server: ForkServer, files: tuple[int, int, int]) -> None:
    process = start(fork_server, files, "import time; time.sleep(1000)")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    process.kill()  # as Popen does, this leaves a process that has ended alone


def test_each_has_folder_environment_and_chance_of_its_own(
    fork_server: ForkServer, files: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONE_MORE", "é")
    monkeypatch.delenv("COLUMNS", raising=False)
    for _ in range(2):
        assert start(fork_server, files, _LOOK, "-x", "y z").wait(60) == 0
    first, second = map(json.loads, (tmp_path / "stdout").read_text().splitlines())
    for folder, environment, arguments, name, _, _, modules in (first, second):
        assert folder == str(tmp_path)
        assert environment == dict(os.environ)
        assert arguments == ["-c", "-x", "y z"]
        assert name == "__main__"
        assert not {"tests", "torch", "transformers"} & set(modules)
    assert first[4] != second[4]
    assert first[5] != second[5]


_MODULES = """\
import os, sys
from pathlib import Path

def test_it():
    modules = sorted(sys.modules)
    Path("found").write_text(f"{os.getpid()} {os.getppid()} {'scipy.stats' in modules} {'torch' in modules}")
"""


def where_it_ran(llm_pytester: pytest.Pytester, *arguments: str, in_this_process: bool) -> list[str]:
    """Number of the process, its parent's, and whether it had loaded scipy and torch."""
    run = llm_pytester.runpytest if in_this_process else llm_pytester.runpytest_subprocess
    llm_pytester.makepyfile(_MODULES)
    assert run(*arguments).ret == 0
    return (llm_pytester.path / "found").read_text().split()


@pytest.mark.parametrize(("arguments", "in_this_process"), [(["-n1"], True), (["-n1"], False), (["-n0"], False)])
def test_processes_of_sessions_are_forks(
    llm_pytester: pytest.Pytester, arguments: list[str], in_this_process: bool
) -> None:
    process, parent, *loaded = where_it_ran(llm_pytester, *arguments, in_this_process=in_this_process)
    assert str(os.getpid()) not in (process, parent)
    assert loaded == ["True", "False"]


@pytest.mark.parametrize("in_this_process", [True, False])
def test_forks_have_nothing_to_warn_of(llm_pytester: pytest.Pytester, in_this_process: bool) -> None:
    """A plugin that is loaded before pytest can rewrite its assertions is warned of by each process."""
    llm_pytester.makepyfile("def test_it(): pass")
    run = llm_pytester.runpytest if in_this_process else llm_pytester.runpytest_subprocess
    run("-n1").assert_outcomes(passed=1, warnings=0)


@pytest.mark.slow
@pytest.mark.forks_torch
@pytest.mark.parametrize("arguments", [["-n0"], ["-n1"]])
def test_processes_of_sessions_with_a_model_have_torch(llm_pytester: pytest.Pytester, arguments: list[str]) -> None:
    assert where_it_ran(llm_pytester, *arguments, in_this_process=False)[2:] == ["True", "True"]


@pytest.mark.fresh_interpreters
@pytest.mark.parametrize("in_this_process", [True, False])
def test_or_fresh_interpreters(llm_pytester: pytest.Pytester, in_this_process: bool) -> None:
    _, parent, *loaded = where_it_ran(llm_pytester, "-n1", in_this_process=in_this_process)
    assert loaded == ["False", "False"]
    assert (parent == str(os.getpid())) == in_this_process


def test_a_session_that_hangs_is_killed(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile("import time\n\ndef test_it(): time.sleep(1000)\n")
    with pytest.raises(llm_pytester.TimeoutExpired):
        llm_pytester.runpytest_subprocess(timeout=1)


def test_an_environment_for_another_interpreter_needs_a_fresh_one() -> None:
    environment = clean_environment()
    assert is_possible(environment | {"COLUMNS": "7", "PYTHONPATH": "here"}, environment)
    assert not is_possible(environment | {"PYTHONHASHSEED": "7"}, environment)
    assert not is_possible(environment | {"PYTHONDONTWRITEBYTECODE": "1"}, environment)
    assert not is_possible({name: environment[name] for name in environment if name != "PYTHONIOENCODING"}, environment)
