"""What models write to break a comparison: it costs the one sample, and the next is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_llmeval.scorers.math import Comparison, MathProcess, MathSettings, MathVerdict
from pytest_llmeval.scorers.mathematics import worker as math_worker
from pytest_llmeval.scoring import bounded_process
from pytest_llmeval.scoring.bounded_process import Bounds
from tests.scoring.helpers import judge_reply
from tests.support import REPOSITORY, clean_environment

BOUNDS = Bounds(timeout_s=60, memory_mb=512, setting="score.math")
SHORT = Bounds(timeout_s=0.5, memory_mb=512, setting="score.math")
EQUAL = MathVerdict(equal=True, target="1/2", reply="1/2")

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and processes of POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process")


@pytest.fixture
def process() -> Iterator[MathProcess]:
    process = MathProcess()
    yield process
    process.close()


@pytest.fixture(scope="module")
def lasting() -> Iterator[MathProcess]:
    """For tests that need no process of their own: to load sympy takes seconds. Bombs end it, and it is replaced."""
    process = MathProcess()
    yield process
    process.close()


def half(process: MathProcess) -> MathVerdict:
    return process.compare("math_verify", r"\frac{1}{2}", "0.5", BOUNDS)


def running(process: MathProcess) -> subprocess.Popen[str]:
    """Its process, which a test ends from outside."""
    assert process._process is not None
    return process._process


@posix
@pytest.mark.parametrize(
    ("comparison", "bomb"),
    [
        pytest.param("math_verify", "9^{9^{9^9}}", marks=pytest.mark.slow),
        pytest.param("math_verify", r"\sum_{n=1}^{10^{12}} \frac{1}{n^3+n!}", marks=pytest.mark.slow),
        pytest.param("math_verify", "((9!)!)!", marks=pytest.mark.slow),
        pytest.param("math_verify", "{" * 4000 + "1" + "}" * 4000, marks=pytest.mark.slow),
        pytest.param("searched", r"So \boxed{10^{10^9}+1}", marks=pytest.mark.slow),
        ("minerva", r"\binom{10^{9}}{10^8}"),
    ],
)
def test_a_bomb_costs_one_comparison(lasting: MathProcess, comparison: Comparison, bomb: str) -> None:
    verdict = lasting.compare(comparison, "5", bomb, SHORT)
    assert verdict == MathVerdict(False, problem="it took longer than 0.5 s (score.math.timeout_s)")
    assert half(lasting) == EQUAL


@linux
def test_memory_is_bounded(process: MathProcess) -> None:
    verdict = process.compare("minerva", "5", "2^{10^{10}}", Bounds(60, 64, "score.math"))
    assert verdict == MathVerdict(False, problem="it took more than 64 MiB of memory (score.math.memory_mb)")
    assert half(process) == EQUAL


def test_nesting_ends_no_process(lasting: MathProcess) -> None:
    half(lasting)
    pid = running(lasting).pid
    verdict = lasting.compare("minerva", "5", "{" * 3000 + "1" + "}" * 3000, BOUNDS)
    assert verdict.note is not None
    assert "RecursionError" in verdict.note
    assert half(lasting) == EQUAL
    assert running(lasting).pid == pid


@pytest.mark.parametrize("comparison", ["math_verify", "searched", "minerva"])
def test_no_code_of_a_reply_runs(lasting: MathProcess, comparison: Comparison, tmp_path: Path) -> None:
    target = tmp_path / "made"
    code = f"__import__('os').system('touch {target}')"
    for text in (
        code,
        f"\\text{{{code}}}",
        f"\\boxed{{{code}}}",
        f"$({code})$ or 1/2",
        f"open('{target}', 'w')",
        f"\\operatorname{{exec}}({code!r})",
        f"(lambda: {code})()",
        f"{{{{ {code} }}}}",
    ):
        assert not lasting.compare(comparison, "5", text, BOUNDS).equal
    assert half(lasting) == EQUAL
    assert not target.exists()


@posix
@pytest.mark.parametrize(
    "effect",
    [
        "os.system('touch made')",
        "open('made', 'w')",
        "os.open('made', os.O_CREAT | os.O_WRONLY)",
        "os.mkdir('made')",
        "os.rename('kept', 'made')",
        "os.remove('kept')",
        "subprocess.run(['touch', 'made'])",
        "os.posix_spawn('/bin/touch', ['touch', 'made'], {})",
        "os.fork() and open('made', 'w')",
        "socket.create_connection(('127.0.0.1', 9))",
    ],
)
def test_the_guard_behind_ends_the_process(effect: str, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    program = f"""
        import os, runpy, socket, subprocess, sys
        runpy.run_path({math_worker.__file__!r})["forbid_side_effects"]()
        open("kept").read()
        {effect}
        """
    done = subprocess.run([sys.executable, "-I", "-c", textwrap.dedent(program)], cwd=tmp_path, check=False)
    assert done.returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@posix
def test_a_process_that_was_ended_between_comparisons_is_replaced(lasting: MathProcess) -> None:
    assert half(lasting) == EQUAL
    first = running(lasting)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert half(lasting) == EQUAL
    assert running(lasting).pid != first.pid


@posix
def test_a_process_that_is_ended_from_outside_costs_nothing(
    lasting: MathProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    half(lasting)
    first, exchange = running(lasting), bounded_process._one_line

    def killed(*arguments: object) -> str:
        monkeypatch.setattr(bounded_process, "_one_line", exchange)
        os.kill(first.pid, signal.SIGKILL)
        return exchange(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bounded_process, "_one_line", killed)
    assert half(lasting) == EQUAL


@posix
def test_what_ends_a_new_process_is_named(
    process: MathProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import os\ndef services():\n return {'math_verify': lambda **_: os.abort()}\n")
    monkeypatch.setattr(math_worker, "__file__", str(worker))
    assert half(process) == MathVerdict(False, problem="it ended the process that compares (SIGABRT)")


def test_an_interrupted_comparison_leaves_no_answer_behind(
    lasting: MathProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    half(lasting)

    def interrupted(to: object, back: object, document: object) -> str:
        arguments = '"arguments": {"target": "1", "reply": "2"}'
        to.write(f'{{"service": "math_verify", {arguments}, "timeout_s": 9, "memory_mb": 99}}\n')  # type: ignore[attr-defined]
        to.flush()  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bounded_process, "_one_line", interrupted)
        with pytest.raises(KeyboardInterrupt):
            half(lasting)
    assert half(lasting) == EQUAL


def test_a_process_that_cannot_start_is_explained(process: MathProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", os.path.join(os.sep, "no", "python"))
    problem = half(process).problem
    assert problem is not None
    assert problem.startswith("the process that compares mathematics did not start: ")


def test_a_library_that_does_not_load_is_explained(
    process: MathProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("def services():\n raise ImportError('no sympy')\n")
    monkeypatch.setattr(math_worker, "__file__", str(worker))
    assert half(process).problem == "the process that compares mathematics did not start: ImportError: no sympy"


def test_libraries_that_do_not_fit_make_no_wrong_answers(
    process: MathProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of Math-Verify that takes other arguments is an error, which a wrong answer must not hide."""
    worker = tmp_path / "worker.py"
    source = Path(math_worker.__file__).read_text(encoding="utf-8")
    worker.write_text(source.replace("allow_set_relation_comp=True", "unheard_of=True"), encoding="utf-8")
    monkeypatch.setattr(math_worker, "__file__", str(worker))
    verdict = half(process)
    assert not verdict.equal
    assert verdict.problem is not None
    assert verdict.problem.startswith("with the libraries installed here 1/2 and 0.5 are not equal (TypeError: ")
    assert process.compare("searched", "$1/2$", "$0.5$", BOUNDS).equal


def test_closed_and_used_again(lasting: MathProcess) -> None:
    lasting.close()
    assert half(lasting) == EQUAL
    first = running(lasting)
    lasting.close()
    assert first.returncode is not None
    assert half(lasting) == EQUAL


def test_threads_wait_for_each_other(lasting: MathProcess) -> None:
    found: list[bool] = []

    def compare(number: int) -> None:
        for other in range(10):
            equal = lasting.compare("math_verify", str(number), f"{other}+0", BOUNDS).equal
            found.append(equal == (number == other))

    threads = [threading.Thread(target=compare, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 40


@pytest.mark.parametrize(
    "end",
    [
        *(pytest.param(end, marks=pytest.mark.slow) for end in ("", "os._exit(0)")),
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
@posix
def test_the_process_ends_with_its_parent_and_runs_nothing_of_the_user(end: str, tmp_path: Path) -> None:
    """A program without a guard around its main part, beside a file that would shadow a module that sympy needs."""
    (tmp_path / "random.py").write_text("raise SystemExit('imported')")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import sys
            folder = sys.path.pop(0)
            import os, random, signal
            from pytest_llmeval.scoring.bounded_process import Bounds
            from pytest_llmeval.scorers.math import shared_process
            sys.path.insert(0, folder)
            process = shared_process()
            print("main", process.compare("math_verify", "1/2", "0.5", Bounds(60, 512, "score.math")).equal, flush=True)
            print(process._process.pid, flush=True)
            {end}
            """
        )
    )
    environment = clean_environment() | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    first, pid = done.stdout.splitlines()  # waits until nobody holds the pipe any more
    assert first == "main True"
    assert done.stderr == ""
    while _is_there(int(pid)):
        time.sleep(0.01)  # it reads the end of its input; a test that never ends has failed


@posix
@pytest.mark.parametrize(
    ("platform", "computation"),
    [
        pytest.param("linux", "sum(9**9**9 for _ in iter(int, 1))", marks=linux),  # one call of a C function
        ("other", "sum(0 for _ in iter(int, 1))"),
    ],
)
def test_a_parent_that_is_killed_ends_a_computation_that_runs(platform: str, computation: str, tmp_path: Path) -> None:
    """Not only at its bound of an hour."""
    module, started = tmp_path / "module.py", tmp_path / "started"
    module.write_text(
        f"from pathlib import Path\ndef work():\n Path({str(started)!r}).touch()\n {computation}\n"
        "def services():\n return {'work': work}\n"
    )
    program = f"""
        import sys, threading
        from pytest_llmeval.scoring.bounded_process import BoundedProcess, Bounds
        sys.platform = {platform!r}
        process = BoundedProcess(lambda: {str(module)!r}, "computes")
        arguments = ("work", {{}}, Bounds(3600, None, "score.math"))
        thread = threading.Thread(target=process.compute, args=arguments)
        thread.start()
        while process._process is None: pass
        print(process._process.pid, flush=True)
        thread.join()  # Python 3.12 starts no thread once the main one has ended
        """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _comes_true(started.exists)
        parent.kill()
    ended = _comes_true(lambda: not _is_there(pid))
    if not ended:
        os.kill(pid, signal.SIGKILL)
    assert ended


def _comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it is so within a minute."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@posix
def test_a_fork_starts_its_own(tmp_path: Path) -> None:
    program = """
        import os
        from pytest_llmeval.scoring.bounded_process import Bounds
        from pytest_llmeval.scorers.math import MathProcess
        process = MathProcess()
        half = lambda: process.compare("math_verify", "1/2", "0.5", Bounds(60, 512, "score.math")).equal
        half()
        pid = process._process.pid
        child = os.fork()
        if not child:
            os._exit(0 if half() and process._process.pid != pid else 1)
        print(os.waitpid(child, 0)[1], half(), process._process.pid == pid)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["0", "True", "True"]


@posix
def test_a_reply_that_takes_too_long_is_wrong_and_says_why() -> None:
    score = judge_reply(MathSettings(timeout_s=0.5), "5", r"So \boxed{9^{9^{9^9}}}")
    assert (score.status, score.answer, score.no_answer) == ("wrong", "9^{9^{9^9}}", False)
    assert score.details == {"extracted_by": "boxed", "why": "it took longer than 0.5 s (score.math.timeout_s)"}


@pytest.mark.slow
@posix
def test_a_target_that_takes_too_long_is_the_suites_mistake() -> None:
    score = judge_reply(MathSettings(timeout_s=0.5), "9^{9^{9^9}}", r"So \boxed{5}")
    assert (score.status, score.values) == ("unscored", {})
    assert score.reason == "target '9^{9^{9^9}}': it took longer than 0.5 s (score.math.timeout_s)"
    assert judge_reply(MathSettings(timeout_s=0.5), "9^{9^{9^9}}", r"\boxed{9^{9^{9^9}}}").status == "correct"
