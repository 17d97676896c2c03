"""Programs and the verdicts of tests on them, with and without a sandbox around."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.scorers.code import CodeScorer, CodeSettings, code_of
from pytest_llmeval.scoring.sandbox import launch
from pytest_llmeval.scoring.sandbox.launch import CodeSandbox, find_sandbox
from pytest_llmeval.scoring.sandbox.verdict import (
    CodeLimits,
    CodeVerdict,
    _idle,
    end_tests,
    judge,
    judge_by_command,
)
from pytest_llmeval.types import GenerateResponse, Sample
from tests.scoring.code.hostile import HARMFUL, HOSTILE, RIGHT, TESTS

LIMITS = CodeLimits(timeout_s=5, memory_mb=512)
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")


@pytest.fixture(params=["none", pytest.param("bubblewrap", marks=[needs_bubblewrap, pytest.mark.slow])])
def sandbox(request: pytest.FixtureRequest) -> CodeSandbox:
    return find_sandbox(request.param)


def verdict(
    sandbox: CodeSandbox, program: str, tests: str, setup: str = "", entry_points: tuple[str, ...] = ()
) -> CodeVerdict:
    return judge(sandbox, program, setup=setup, tests=tests, entry_points=entry_points, limits=LIMITS)


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (RIGHT, TESTS),
        ("def f(*a, **k):\n    return a, k\n", "assert f(1, [2], b=3) == ((1, [2]), {'b': 3})"),
        ("def f():\n    return [1.5, {'a': {1, 2}}, (None, True), b'x']\n",
         "assert f() == [1.5, {'a': {2, 1}}, (None, True), b'x']"),
        ("def f(x):\n    raise ValueError('no')\n",
         "try:\n    f(1)\nexcept ValueError as e:\n    assert str(e) == 'no'\nelse:\n    raise AssertionError"),
        ("class Node:\n    def __init__(self, v): self.v = v\n    def twice(self):\n        return self.v * 2\n",
         "n = Node(3)\nassert n.v == 3\nn.v = 4\nassert n.twice() == 8\nassert Node(n).v.v == 4"),
        ("def f(kind, values):\n    return [v for v in values if isinstance(v, kind)]\n",
         "assert f(int, [1, 'a']) == [1]"),
        ("def f(n):\n    yield from range(n)\n", "assert list(f(3)) == [0, 1, 2]"),
        ("import math\nPI = math.pi\n", "import math\nassert PI == math.pi"),
        ("def outer():\n    def inner(x):\n        return x + 1\n    return inner\n", "assert outer()(1) == 2"),
        ("class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n"
         "    def __len__(self): return len(self.x)\n    def __getitem__(self, i): return self.x[i]\n"
         "    def __setitem__(self, i, v): self.x[i] = v\n    def __delitem__(self, i): del self.x[i]\n",
         "s = Stack()\ns.push(3)\nassert len(s) == 1 and s[0] == 3 and 3 in s\ns[0] = 4\n"
         "assert list(s) == [4]\ndel s[0]\nassert len(s) == 0"),
        ("def count():\n    n = 0\n    while True:\n        yield n\n        n += 1\n",
         "numbers = count()\nassert next(numbers) == 0\nassert next(numbers) == 1"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f():\n    return P(3)\n",
         "assert f().x == 3"),
        ("print('hello')\nif __name__ == '__main__':\n    raise SystemExit\ndef f():\n    return input\n",
         "assert f() is not None"),
    ],
)  # fmt: skip
def test_right_programs(sandbox: CodeSandbox, program: str, tests: str) -> None:
    assert verdict(sandbox, program, tests) == CodeVerdict(None)


@pytest.mark.parametrize(
    ("program", "tests", "problem", "detail"),
    [
        ("def f(:\n", "f()", "syntax",
         "SyntaxError: invalid syntax (reply.py, line 1)\nline 1 of the program: def f(:"),
        ("def f():\n    return 1\n",
         "x = 1\nassert f() == 2, 'two'", "assertion",
         "AssertionError: two\nline 2 of the tests: assert f() == 2, 'two'\nthe last call: f() returned 1"),
        ("def f(x, y):\n    return x * y\n", "assert f('ab', y=2) == 'ab'", "assertion",
         "AssertionError\nline 1 of the tests: assert f('ab', y=2) == 'ab'\n"
         "the last call: f('ab', y=2) returned 'abab'"),
        ("def f():\n    return {}['a']\n", "f()", "exception",
         "KeyError: \"'a'\"\nline 1 of the tests: f()\nline 2 of the program: return {}['a']"),
        ("raise RuntimeError('at load')\n", "f()", "exception",
         "RuntimeError: at load\nline 1 of the program: raise RuntimeError('at load')"),
        ("import nothing_of_this_name\n", "f()", "exception",
         "ModuleNotFoundError: No module named 'nothing_of_this_name'\n*"),
        ("def f():\n    return bytearray(10 ** 12)\n", "f()", "memory", "MemoryError\nline 1 of the tests: f()*"),
        ("import os\ndef f():\n    os._exit(3)\n", "f()", "exception", "it ended its process (exit code 3)"),
        ("def f():\n    return 'x' * 20_000_000\n", "f()", "memory", "a value of more than 16 MB"),
        ("class A:\n    pass\n",
         "assert A() == A()", "exception", "TypeError: the tests compare two objects of the program's classes*"),
        ("class A:\n    def __eq__(self, other):\n        return True\n",
         "assert A() == 1", "assertion", "AssertionError\nline 1 of the tests: assert A() == 1*"),
        ("class A:\n    def __len__(self):\n        return 5\n"
         "    def __contains__(self, other):\n        return True\n",
         "assert len(A()) == 5\nassert 3 in A()", "exception", "TypeError: *"),
        ("def f():\n    yield 1\n",
         "g = f()\nassert next(g) == 1\nall(next(g) == n for n in [2])", "exception", "ProgramError: StopIteration*"),
        ("def f():\n    return 10 ** 5000\n",
         "assert f() == 1, f()", "assertion", "AssertionError\nline 1 of the tests*"),
        ("class A:\n    pass\n",
         "assert A()", "exception", "TypeError: the program returned an object of a class of its own*"),
        ("def f(g):\n    return g()\n",
         "f(lambda: 1)", "exception", "TypeError: the tests give the program a function*"),
        ("def f():\n    pass\n", "g(", "exception", "SyntaxError: '(' was never closed (tests.py, line 1)"),
    ],
)  # fmt: skip
def test_wrong_programs(sandbox: CodeSandbox, program: str, tests: str, problem: str, detail: str) -> None:
    found = verdict(sandbox, program, tests)
    assert found.problem == problem
    assert found.detail == detail or (detail.endswith("*") and found.detail.startswith(detail[:-1]))


FORGED = """\
import os
for fd in range(3, 64):
    try:
        os.write(fd, LINE)
    except OSError:
        pass
def f():
    return 1
"""
LINES = (b'{"error": 5}\n', b'{"error"\n', b"[" * 50_000 + b"\n", b"\xff\n", b'{"error": {}}\n')


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_what_a_program_writes_in_place_of_an_answer_costs_its_own_sample(sandbox: CodeSandbox, line: bytes) -> None:
    assert verdict(sandbox, FORGED.replace("LINE", repr(line)), "assert f() == 1").problem == "exception"


def test_a_sandbox_that_does_not_start_makes_no_reply_wrong() -> None:
    for command in (("false",), ("sh", "-c", "exit 3", "sh"), ("echo",)):
        with pytest.raises(OSError, match="the sandbox ended at once"):
            verdict(CodeSandbox("bubblewrap", command, ("python3",)), RIGHT, TESTS)


def test_tests_that_end_their_process_make_no_reply_wrong(sandbox: CodeSandbox) -> None:
    with pytest.raises(OSError, match="the tests ended their own process"):
        verdict(sandbox, RIGHT, "double(1)\nimport os\nos._exit(0)")


def test_tests_that_use_nothing_of_the_program_say_nothing_of_it(sandbox: CodeSandbox) -> None:
    for tests in ("def test_double():\n    assert double(2) == 4\n", "assert 1 == 1", "double"):
        with pytest.raises(OSError, match="the tests never used the program"):
            verdict(sandbox, "def double(x):\n    return None\n", tests)


def test_an_end_of_iteration_is_no_end_of_a_loop_of_the_tests(sandbox: CodeSandbox) -> None:
    program = "def f(x):\n    raise StopIteration\n"
    for tests in ("assert all(map(f, [1, 2]))", "for a, b in zip(map(f, [1]), [2]):\n    assert a == b"):
        assert verdict(sandbox, program, tests).problem == "exception"


CHILD = """\
import os, time
def f():
    if os.fork() == 0:
        os.setsid()
        time.sleep(90)
    os._exit(0)
"""


def test_a_child_that_lives_on_holds_nothing_up(sandbox: CodeSandbox) -> None:
    """It has the program's files open, and is in a group of its own: the time of the program bounds the wait."""
    limits = CodeLimits(timeout_s=0.1, memory_mb=512)
    started = time.monotonic()
    assert judge(sandbox, CHILD, setup="", tests="assert f() == 1", entry_points=(), limits=limits).problem is not None
    assert time.monotonic() - started < 80


def test_tests_share_a_sandbox_and_neither_files_nor_modules(sandbox: CodeSandbox) -> None:
    """Python starts once for the tests of all samples, and each sample's tests run in a process of their own."""
    tests = "import math, os\nassert f() == 1 and os.listdir('.') == [] and math.pi > 3\n"
    tests += "math.pi = 3\nopen('left', 'w').close()"
    waiting = []
    for _ in range(3):
        assert verdict(sandbox, "def f():\n    return 1\n", tests) == CodeVerdict(None)
        waiting.append([*_idle[os.getpid(), sandbox]])
    assert len(waiting[0]) == 1
    assert waiting[0] == waiting[1] == waiting[2]
    end_tests()
    assert not _idle[os.getpid(), sandbox]


def test_tests_have_bounds_of_their_own(sandbox: CodeSandbox) -> None:
    program = "def f():\n    return range(10 ** 12)\n"
    assert verdict(sandbox, program, "assert sorted(f()) == []").problem in ("memory", "exception")


def test_time_is_bounded(sandbox: CodeSandbox) -> None:
    limits = CodeLimits(timeout_s=0.5, memory_mb=512)
    found = judge(
        sandbox, "def f():\n    while True:\n        pass\n", setup="", tests="f()", entry_points=(), limits=limits
    )
    assert found == CodeVerdict("time", "it took longer than 0.5 s")


def test_a_helper_of_the_prompt_is_not_the_programs(sandbox: CodeSandbox) -> None:
    """What the setup defines stays its own, also where the program defines it again, but for the entry point."""
    setup = "def square(x):\n    return x * x\ndef root(x):\n    '''Return the root.'''\n"
    tests = "assert square(root(9)) == 9"
    assert verdict(sandbox, f"{setup}    return x ** 0.5\n", tests, setup, ("root",)).problem is None
    cheat = f"{setup}    return 0\ndef square(x):\n    return 9\n"
    assert verdict(sandbox, cheat, tests, setup, ("root",)).problem == "assertion"


def test_a_program_may_define_what_python_defines(sandbox: CodeSandbox) -> None:
    """Only where the solution does so, too: else a program could say what ``all`` and ``set`` are."""
    program = "def sum(a, b):\n    return a + b\n"
    assert verdict(sandbox, program, "assert sum(1, 2) == 3", entry_points=("sum",)).problem is None
    assert verdict(sandbox, program + "def two():\n    return 2\n", "assert sum([1, two()]) == 3").problem is None


def test_nothing_stays_between_two_programs(sandbox: CodeSandbox) -> None:
    program = "import os\nopen('left', 'w').close()\ndef f():\n    return sorted(os.listdir('.'))\n"
    for _ in range(2):
        assert verdict(sandbox, program, "assert f() == ['left']") == CodeVerdict(None)


SOME = (
    *("os._exit(0) in a call", "equal object", "print passed", "patched json", "settrace", "write a list"),
    *("read the tests by the stack", "write to all descriptors"),
)


@pytest.mark.parametrize("name", SOME)
def test_some_programs_that_want_to_be_called_right(sandbox: CodeSandbox, name: str) -> None:
    assert verdict(sandbox, HOSTILE[name], TESTS).problem is not None


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", HOSTILE)
def test_all_programs_that_want_to_be_called_right(sandbox: CodeSandbox, name: str) -> None:
    found = judge(sandbox, HOSTILE[name], setup="", tests=TESTS, entry_points=("double",), limits=CodeLimits(2, 512))
    assert found.problem is not None
    assert verdict(sandbox, RIGHT, TESTS) == CodeVerdict(None), "the next program is judged as ever"


@pytest.mark.slow
@pytest.mark.campaign
@needs_bubblewrap
@pytest.mark.parametrize("name", HARMFUL)
def test_programs_that_only_a_sandbox_keeps_from_harm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_FOR_TESTS", "secret")
    sandbox = find_sandbox("bubblewrap")
    if sandbox.weakness is not None:
        pytest.skip(sandbox.weakness)  # a fork bomb would take the machine down
    found = judge(sandbox, HARMFUL[name], setup="", tests=TESTS, entry_points=(), limits=CodeLimits(1, 512))
    assert found.problem is not None
    assert "secret" not in found.detail


@pytest.mark.parametrize(
    ("user", "fails_with", "weakness"),
    [
        (1000, "setpriv", None),
        (0, "nothing", None),
        (0, "unshare", None),
        (0, "setpriv", "the number of processes is not bounded, since pytest runs as root"),
    ],
)
def test_bubblewrap_is_another_users_where_pytest_is_roots(
    monkeypatch: pytest.MonkeyPatch, user: int, fails_with: str, weakness: str | None
) -> None:
    def probed(sandbox: CodeSandbox) -> CodeSandbox:
        if fails_with in sandbox.command:
            raise launch.SandboxError("it does not start")
        return sandbox

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(launch, "_probed", probed)
    found = launch._bubblewrap()
    assert (found.weakness or "").startswith(weakness or "")
    assert (found.weakness is None) == (weakness is None)
    assert ("setpriv" in found.command) == (user == 0 and weakness is None)


def test_a_sandbox_that_does_not_start_says_why() -> None:
    said = "docker: Cannot connect to the Docker daemon.\n\nRun 'docker run --help' for more information"
    command = (sys.executable, "-c", f"import sys; sys.exit({said!r})")
    with pytest.raises(
        launch.SandboxError, match=r"^docker does not start: docker: Cannot connect to the Docker daemon\.$"
    ):
        launch._probed(CodeSandbox("docker", command, ("python3",), "image"))


def test_values_of_the_option() -> None:
    for value in ("auto", "bubblewrap", "docker", "docker:example/python:3", "none"):
        assert launch.parse_sandbox(value) == value
    for value in ("", "podman", "docker:", "docker: x", "none:x", "auto:python"):
        with pytest.raises(ValueError, match="expected auto, bubblewrap, docker, docker:IMAGE or none"):
            launch.parse_sandbox(value)


FORKS = """\
import os, time
def forked():
    for number in range(100):
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError:
            return number
    return 100
"""


@pytest.mark.slow
@needs_bubblewrap
def test_processes_are_bounded_in_bubblewrap_also_for_root() -> None:
    """The kernel bounds no processes of root's; those here end with the sandbox."""
    sandbox = find_sandbox("bubblewrap")
    assert sandbox.weakness is None
    assert verdict(sandbox, FORKS, "assert 32 < forked() < 64") == CodeVerdict(None)


CONTAINED = """\
import ctypes, os, socket

def number(work):
    try:
        return work()
    except OSError as error:
        return error.errno

def found():
    kinds = os.CLONE_NEWUSER if hasattr(os, "CLONE_NEWUSER") else 0x10000000
    return {
        "files": os.listdir("."),
        "written": [
            number(lambda: open(path, "w").close()) for path in ("/x", "/usr/x", "/dev/x", "/dev/shm/x", "here")
        ],
        "read": [os.path.exists(path) for path in ("/etc/passwd", "/home", "/tmp", "/proc/1/root/etc/passwd")],
        "network": number(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
        "processes": max(int(name) for name in os.listdir("/proc") if name.isdigit()) < 20,
        "secret": os.environ.get("SECRET_FOR_TESTS"),
        "new namespace": ctypes.CDLL(None).unshare(kinds),
    }
"""
EXPECTED = {
    "files": [],
    "written": [30, 30, 30, 30, None],
    "read": [False, False, False, False],
    "network": 101,
    "processes": True,
    "secret": None,
    "new namespace": -1,
}


@pytest.mark.slow
@needs_bubblewrap
def test_what_a_program_finds_in_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program says what it got; in no sandbox it gets more."""
    monkeypatch.setenv("SECRET_FOR_TESTS", "secret")
    tests = f"expected = {EXPECTED}\nfor name, value in found().items():\n    assert value == expected[name], name\n"
    assert verdict(find_sandbox("bubblewrap"), CONTAINED, tests) == CodeVerdict(None)
    assert verdict(find_sandbox("none"), CONTAINED, tests).problem == "assertion"


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A shell that runs the tests: every line of ``reply.sh`` is a line of the tests' own process."""
    if shutil.which("sh") is None:
        pytest.skip("there is no shell")
    return ". ./reply.sh\n[ \"$(double 2)\" = 4 ] || { echo 'AssertionError: double 2' >&2; exit 1; }\n"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("double() { echo $(($1 * 2)); }", CodeVerdict(None)),
        ("double() { echo $(($1 * 3)); }", CodeVerdict("assertion", "AssertionError: double 2")),
        ("double() {", CodeVerdict("assertion", "*")),
        (
            "echo 'x.js:3' >&2; echo 'SyntaxError: no' >&2; echo '  at x' >&2; exit 1",
            CodeVerdict("syntax", "SyntaxError: no\nat x"),
        ),
        ("echo 'TypeError: no' >&2; exit 1", CodeVerdict("exception", "TypeError: no")),
        ("echo 'JavaScript heap out of memory' >&2; exit 134", CodeVerdict("memory", "JavaScript heap out of memory")),
        ("exit 3", CodeVerdict("assertion", "exit code 3")),
        ("exit 0", CodeVerdict(None)),  # as docs/code.md says
    ],
)
def test_another_language_by_a_command(sandbox: CodeSandbox, script: str, program: str, expected: CodeVerdict) -> None:
    found = judge_by_command(sandbox, program, script, ["sh", "test.sh"], LIMITS)
    assert found == expected or (expected.detail == "*" and found.problem == expected.problem)


JAVASCRIPT = """\
const assert = require("assert");
const { double } = require("./reply.js");
assert.strictEqual(double(2), 4);
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node", path="/usr/local/bin:/usr/bin:/bin") is None, reason="node is not installed")
def test_javascript(sandbox: CodeSandbox) -> None:
    end = "\nmodule.exports = { double };\n"
    for program, problem, detail in (
        ("function double(x) { return 2 * x; }", None, ""),
        ("function double(x) { return 3 * x; }", "assertion", "AssertionError [ERR_ASSERTION]: Expected values"),
        ("function double(x) { return", "syntax", "SyntaxError: "),
        ("function double(x) { return x.y.z; }", "exception", "TypeError: Cannot read"),
        ("function double(x) { require('fs').writeFileSync('/usr/x', ''); }", "exception", "Error: E"),
        ("function double(x) { for (;;); }", "time", "it took longer than 1 s"),
    ):
        found = judge_by_command(sandbox, program + end, JAVASCRIPT, ["node", "test.js"], CodeLimits(1, 1024))
        if sandbox.kind != "none" or "/usr" not in program:
            assert (found.problem, found.detail[: len(detail)]) == (problem, detail)


def test_a_command_that_there_is_not(sandbox: CodeSandbox) -> None:
    with pytest.raises(OSError, match="no_such_command did not start: No such file"):
        judge_by_command(sandbox, "", "", ["no_such_command", "test.x"], LIMITS)


@pytest.mark.parametrize(
    ("text", "entry_points", "code"),
    [
        ("    return 1\n", (), "    return 1\n"),
        ("Here:\n```python\nx = 1\n```\nDone.", (), "x = 1\n"),
        ("```\nx = 1\n```", (), "x = 1\n"),
        ("```python\nx = 1\n", (), "x = 1\n"),
        ("~~~py\nx = 1\n~~~", (), "x = 1\n"),
        ("````\n```\nx\n```\n````", (), "```\nx\n```\n"),
        ("```\npip install x\n```\n```python\ndef f():\n    pass\n```", ("f",), "def f():\n    pass\n"),
        ("```\na\n```\n```\nb\n```", ("f",), "a\n"),
        ("```python\nclass Node:\n    pass\n```", ("f", "Node"), "class Node:\n    pass\n"),
        ("  ```python\n  x = 1\n  ```", (), "  x = 1\n"),
        ("    return a + b\n```\nThis adds.", (), "    return a + b\n"),
        ("```\n$ pip install x\n```\n```\nf = 1\n```", (), "f = 1\n"),
        ("```\nx = 1\n```\n```\nf = lambda: 1\n```", ("f",), "f = lambda: 1\n"),
    ],
)  # fmt: skip
def test_the_code_of_a_reply(text: str, entry_points: tuple[str, ...], code: str) -> None:
    assert code_of(text, entry_points) == code


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> CodeScorer:
    monkeypatch.setattr(launch, "_allowed", [find_sandbox("none")])
    return CodeSettings(timeout_s=5).make()


def sample(**variables: object) -> Sample:
    target = variables.pop("target", None)
    return Sample(id="1", path="s.jsonl", line=1, target=target, variables=variables)  # type: ignore[arg-type]


def test_scores(scorer: CodeScorer) -> None:
    prepared = scorer.present(
        sample(tests=["assert f(1) == 2", "assert f(2) == 3"], setup="def f(x):\n", entry_point="f")
    )
    right, wrong, none = (
        scorer.score(prepared, [GenerateResponse(text=text)])
        for text in ("    return x + 1\n", "    return x\n", " \n")
    )
    assert (right.status, right.values["accuracy"], right.details) == ("correct", 1.0, {})
    assert (wrong.status, wrong.values["failed_assertion"], wrong.values["failed_time"]) == ("wrong", 1.0, 0.0)
    assert wrong.details["problem"] == "assertion"
    assert str(wrong.details["detail"]).split("\n")[1:] == [
        "line 1 of the tests: assert f(1) == 2",
        "the last call: f(1) returned 1",
    ]
    assert (none.status, none.no_answer, sum(none.values.values())) == ("wrong", True, 0.0)


def test_a_solution_says_what_the_program_defines(scorer: CodeScorer) -> None:
    prepared = scorer.present(sample(tests="assert sum(1, 2) == 3", target="def sum(a, b):\n    return a + b"))
    assert scorer.score(prepared, [GenerateResponse(text="def sum(a, b):\n    return a - -b")]).status == "correct"


WHOLE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize("reply", ["    return x + 1\n", WHOLE, f"```python\n{WHOLE}```"])
@pytest.mark.parametrize("setup", ["def f(x):\n", 'import math\ndef f(x):\n    "Add one."\n'])
def test_a_reply_may_go_on_from_the_setup_or_say_all(scorer: CodeScorer, setup: str, reply: str) -> None:
    """The function that the setup ends with is the program's, also where nothing says so."""
    prepared = scorer.present(sample(tests="assert f(1) == 2", setup=setup))
    assert scorer.score(prepared, [GenerateResponse(text=reply)]).status == "correct"
    assert scorer.score(prepared, [GenerateResponse(text=reply.replace("+ 1", "+ 2"))]).status == "wrong"


def test_samples_that_cannot_be_judged(scorer: CodeScorer) -> None:
    for variables, why in (
        ({}, "has no tests, expected them in the column tests"),
        ({"tests": " "}, "has no tests"),
        ({"tests": 5}, "found 5 .* in the column tests, expected text"),
        ({"tests": ["a", None]}, "in the column tests, expected text or a list of texts"),
        ({"tests": "f("}, "the column tests is no Python: '.' was never closed .line 1."),
        ({"tests": "f()", "setup": "x ="}, "the column setup is no Python: invalid syntax .line 1."),
    ):
        with pytest.raises(ValueError, match=why):
            scorer.present(sample(**variables))


def test_without_leave_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_allowed", [])
    scorer = CodeSettings().make()
    prepared = scorer.present(sample(tests="f()"))
    with pytest.raises(ModelError, match="--llm-allow-code"):
        scorer.score(prepared, [GenerateResponse(text="def f():\n    pass")])
