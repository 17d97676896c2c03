"""Suites whose replies are programs: what runs them, what a user is told, and where they run."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.scoring.sandbox import launch
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
    result = project.runpytest(*workers, *ALLOWED, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["sums * 3 *0.333*", "sums: failed assertion 1, failed exception 1", "*1 passed*, 2 wrong*"]
    )
    found = report(project)
    details = {record["id"]: record["details"] for record in found["records"]}
    assert details["1"] == {}
    assert details["2"]["problem"] == "assertion"
    assert details["3"] == {"problem": "exception", "detail": "it ended its process (exit code 0)"}
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
import json, os, subprocess, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
place = sys.argv.index("python:3.11-slim")
os.execv({python!r}, [{python!r}, *sys.argv[place + 2:]])
"""


def test_the_command_of_a_container(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon runs here: a program in its place keeps the command, and runs Python as the container would."""
    folder = project.mkdir("bin")
    docker = folder / "docker"
    docker.write_text(FAKE_DOCKER.format(python=sys.executable, log=str(project.path / "log")))
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    result = project.runpytest("--llm-allow-code", "--llm-sandbox=docker", "--llm-report=out.json", "sums.yaml")
    result.stdout.fnmatch_lines(["*1 passed*, 2 wrong*"])
    assert report(project)["suites"][0]["settings"]["sandbox"] == "docker"
    commands = [json.loads(line) for line in Path(project.path / "log").read_text().splitlines()]
    for command in commands:
        assert command[0] == "run"
        for option in ("--rm", "--interactive", "--network=none", "--read-only", "--cap-drop=ALL", "--pids-limit=64"):
            assert option in command
        assert "--security-opt=no-new-privileges" in command
        assert command[command.index("python:3.11-slim") + 1 :][:3] == ["python3", "-I", "-S"]
        assert not any(one.startswith(("-v", "--volume", "--mount", "--privileged")) for one in command)


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
