"""Real servers that the session starts, beside the same model in this process; a campaign, as ``test_real.py``."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.launched_kills import processes_with
from tests.servers.language_models import DEMO
from tests.servers.real import SERVERS, gguf, install
from tests.servers.test_real import check, session
from tests.support import REPOSITORY

pytestmark = pytest.mark.campaign

_SUITES = (REPOSITORY / "example_suites/boolq",)


def options(server: str) -> tuple[str, list[str]]:
    """Return the model, and the options by which its server starts."""
    python = install(server)
    if server == "vllm":
        given = ["--llm-dtype=float32", "--llm-model-arg=launch.enforce_eager=true"]
        model, command = f"vllm:{DEMO}", python.with_name("vllm")
    else:
        given = ["--llm-model-arg=launch.type_k=0", "--llm-model-arg=launch.type_v=0"]
        model, command = f"llama-cpp:{gguf()}", python
    return model, [*given, "--llm-model-arg=max_length=2048", f"--llm-model-arg=launch.command={command}"]


@pytest.mark.parametrize("server", SERVERS)
def test_launched_server_gives_the_numbers_of_this_process(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("LAUNCHED_REAL", str(tmp_path))
    model, given = options(server)
    found = session(model, tmp_path / "launched.json", "--llm-store=store", *given, suites=_SUITES)
    check(found, session("demo", tmp_path / "demo.json", suites=_SUITES), 1e-3)
    assert found["models"][0]["details"]["self_test"]["log-likelihoods"] == "works"
    assert not list(processes_with("LAUNCHED_REAL", str(tmp_path)))
    workers = session(model, tmp_path / "again.json", "--llm-store=store", "-n2", *given, suites=_SUITES)
    assert "self_test" not in workers["models"][0]["details"], "no server was started"
    assert workers["models"][0]["fingerprint"] == found["models"][0]["fingerprint"]


@pytest.mark.parametrize("server", SERVERS)
def test_real_server_ends_with_a_session_that_is_killed(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("LAUNCHED_REAL", str(tmp_path))
    model, given = options(server)
    code = (
        "import os, signal, sys\nimport pytest\nclass Killed:\n    def pytest_runtest_teardown(self):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\npytest.main(sys.argv[1:], plugins=[Killed()])\n"
    )
    arguments = ["-q", "-p", "no:cacheprovider", f"--llm-model={model}", *given, *map(str, _SUITES)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == -9, done.stdout
    until = time.monotonic() + 10
    while (left := list(processes_with("LAUNCHED_REAL", str(tmp_path)))) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


@pytest.mark.parametrize("server", SERVERS)
def test_real_server_refuses_a_setting_in_one_line(server: str, tmp_path: Path) -> None:
    model, given = options(server)
    arguments = [*given, "--llm-model-arg=launch.no_such_setting=1", *map(str, _SUITES)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--llm-model={model}", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"its server refuses a setting: .*no.such.setting", done.stdout), done.stdout
