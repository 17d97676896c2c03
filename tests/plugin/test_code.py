"""Suites whose replies are programs: what runs them, what a user is told, and where they run."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.scoring.sandbox import launch
from pytest_llmeval.scoring.sandbox.verdict import end_tests
from tests.support import fake_model_conftest

SUITE = """\
suite: sums
samples:
  - {question: "add", setup: "def add(a, b):\\n", entry_point: add, tests: "assert add(1, 2) == 3"}
  - {question: "mul", setup: "def mul(a, b):\\n", entry_point: mul, tests: ["assert mul(2, 3) == 6", "mul(0, 9)"]}
  - {question: "neg", setup: "def neg(a):\\n", entry_point: neg, tests: "assert neg(2) == -2"}
score: code
"""
REPLIES = {"add": "    return a + b\n", "mul": "    return a\n", "neg": "    import os\n    os._exit(0)\n"}
ALLOWED = ("--llm-allow-code", "--llm-sandbox=none", "-Wdefault")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES))
    llm_pytester.makefile(".yaml", sums=SUITE)
    return llm_pytester


def report(project: pytest.Pytester) -> Any:
    return json.loads((project.path / "out.json").read_text())


def test_programs_are_judged_by_their_tests(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, *ALLOWED, "--llm-report=out.json", "--llm-show-wrong=5", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  problem: assertion: AssertionError",
            "    line 1 of the tests: assert mul(2, 3) == 6",
            "    the last call: mul(2, 3) returned 2",
            "  problem: exception: it ended its process (exit code 0)",
        ]
    )
    result.stdout.no_fnmatch_line("  expected:*")
    result.stdout.fnmatch_lines(
        ["sums * 3 *0.333*", "sums: failed assertion 1, failed exception 1", "*1 passed*, 2 wrong*"]
    )
    found = report(project)
    details = {record["id"]: record["details"] for record in found["records"]}
    assert details["1"] == {}
    assert details["2"] == {
        "problem": "assertion",
        "detail": "AssertionError\nline 1 of the tests: assert mul(2, 3) == 6\nthe last call: mul(2, 3) returned 2",
    }
    assert details["3"] == {"problem": "exception", "detail": "it ended its process (exit code 0)"}
    assert [record["target"] for record in found["records"]] == [[], [], []]
    assert found["suites"][0]["settings"]["sandbox"] == "none"
    result.stdout.fnmatch_lines(
        ["*code of replies runs without a sandbox (--llm-sandbox none): it can do what you can do*"]
    )


def test_nothing_runs_without_leave(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "sums.yaml")
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        ["sums.yaml:6: score: runs code that the model writes: allow that with --llm-allow-code"]
    )
    assert project.runpytest("sums.yaml", "--llm-show-prompts").ret == 0
    assert project.runpytest("sums.yaml", "--collect-only").ret == 0


def test_a_sandbox_that_there_is_not(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    monkeypatch.setattr(launch, "find_sandbox", launch.find_sandbox.__wrapped__)  # other tests may have found one
    for kind, why in (
        ("auto", "bubblewrap is not installed *; neither docker nor podman is installed"),
        ("bubblewrap", "bubblewrap is not installed *"),
        ("docker", "neither docker nor podman is installed"),
    ):
        result = project.runpytest("sums.yaml", "--llm-allow-code", f"--llm-sandbox={kind}")
        result.stdout.fnmatch_lines([f"--llm-sandbox {kind}: {why}"])


def test_pass_at_k(project: pytest.Pytester) -> None:
    project.makefile(
        ".yaml", sums=SUITE + "generate: {temperature: 1.0}\nepochs: {count: 4, reduce: [pass@1, pass@2]}\n"
    )
    result = project.runpytest(*ALLOWED, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    (suite,) = report(project)["suites"]
    assert [suite["metrics"][name]["value"] for name in ("pass@1", "pass@2")] == [1 / 3, 1 / 3]


FAKE_DOCKER = """\
#!{python}
import json, os, signal, sys
from pathlib import Path
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "run":
    for option in sys.argv:
        if option.startswith("--name="):
            Path({log!r}).with_name(option.removeprefix("--name=")).write_text(str(os.getpid()))
    place = sys.argv.index("example/python:3")
    os.execv({python!r}, [{python!r}, *sys.argv[place + 2:]])
if sys.argv[1] == "kill":
    os.kill(int(Path({log!r}).with_name(sys.argv[2]).read_text()), signal.SIGKILL)
"""


def test_the_command_of_a_container(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon runs here: a program in its place keeps the commands, and runs Python as the container would."""
    folder = project.mkdir("bin")
    docker = folder / "docker"
    docker.write_text(FAKE_DOCKER.format(python=sys.executable, log=str(project.path / "log")))
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    result = project.runpytest(
        "--llm-allow-code", "--llm-sandbox=docker:example/python:3", "--llm-report=out.json", "sums.yaml"
    )
    result.stdout.fnmatch_lines(["*1 passed*, 2 wrong*"])
    assert report(project)["suites"][0]["settings"]["sandbox"] == "docker:example/python:3"
    end_tests()
    commands = [json.loads(line) for line in Path(project.path / "log").read_text().splitlines()]
    names, killed, memories = [], [], []
    for command in commands:
        if command[0] == "kill":
            killed += command[1:]
            continue
        options, image = dict(one.partition("=")[::2] for one in command), command.index("example/python:3")
        assert command[0] == "run"
        for option in ("--rm", "--init", "--interactive", "--read-only"):
            assert option in options
        assert (options["--network"], options["--cap-drop"], options["--pids-limit"]) == ("none", "ALL", "64")
        assert (options["--security-opt"], options["--user"]) == ("no-new-privileges", "65534:65534")
        assert command[image + 1 :][:3] == ["python3", "-I", "-S"]
        assert not any(one.startswith(("-v", "--volume", "--mount", "--privileged")) for one in command)
        if "--name" in options:  # all but the one that tells whether containers start
            names.append(options["--name"])
            memories.append(options["--memory"])
            assert options["--memory-swap"] == options["--memory"]
    assert len(set(names)) == len(names) >= 4
    assert all(name.startswith("llmeval-") for name in names)
    assert sorted(killed) == sorted(names)
    assert set(memories) == {"1088m", "2112m"}


def test_data_that_cannot_be_judged(project: pytest.Pytester) -> None:
    project.makefile(".yaml", sums=SUITE.replace('tests: "assert add(1, 2) == 3"', 'tests: "assert add("'))
    result = project.runpytest(*ALLOWED, "sums.yaml")
    result.stdout.fnmatch_lines(["sums.yaml:3: *the column tests is no Python: '(' was never closed (line 1)*"])
    project.makefile(".yaml", sums=SUITE.replace("score: code", "score: {code: {run: [node]}}"))
    result = project.runpytest(*ALLOWED, "sums.yaml")
    result.stdout.fnmatch_lines(["sums.yaml:*score.code.run: expected a command whose last word names the file*"])


def test_a_command_for_another_language(project: pytest.Pytester) -> None:
    """The prompt's beginning stands before the reply, in one file with it."""
    project.makeconftest(fake_model_conftest(replies={"two": "2; }\n", "bad": "exit 3; }\n"}))
    rows = "".join(
        f'  - {{question: "{name}", setup: "number() {{ echo ", tests: ". ./reply.sh; [ $(number) = 2 ]"}}\n'
        for name in ("two", "bad")
    )
    project.makefile(".yaml", sums=f"suite: sums\nsamples:\n{rows}score: {{code: {{run: [sh, test.sh]}}}}\n")
    result = project.runpytest(*ALLOWED, "sums.yaml")
    result.stdout.fnmatch_lines(["*1 passed*, 1 wrong*"])


def descendants(process: int) -> set[int]:
    found: set[int] = set()
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="needs Linux's list of children"
)
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("none", 6),
        pytest.param("bubblewrap", 8, marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")),
    ],
)
def test_a_killed_session_leaves_no_program(project: pytest.Pytester, kind: str, number: int) -> None:
    """After a kill -9 nothing of pytest cleans up; the program has a child, and both sleep."""
    reply = "    import os, time\n    os.fork()\n    time.sleep(600)\n"
    project.makeconftest(fake_model_conftest(replies=dict.fromkeys(REPLIES, reply)))
    session = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--llm-allow-code",
            f"--llm-sandbox={kind}",
            "sums.yaml",
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 120
        while len(started := descendants(session.pid)) < number:
            assert time.monotonic() < end, started
            assert session.poll() is None, started
            time.sleep(0.1)
    finally:
        session.kill()
        session.wait()
    end = time.monotonic() + 30
    while left := [one for one in started if is_running(one)]:
        assert time.monotonic() < end, left
        time.sleep(0.1)
