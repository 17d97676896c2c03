"""Servers that the session starts: sessions with a fake server, which has scripted faults."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.errors import ModelError, ModelStoppedError
from pytest_llmeval.models.endpoints import ServerArguments
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.servers import loop
from pytest_llmeval.models.servers.keeper import log_file
from pytest_llmeval.models.servers.launching import (
    Keeper,
    LaunchedModel,
    LaunchedServers,
    LaunchPlan,
    _read_state,
    cause_of,
)
from pytest_llmeval.models.settings import ModelSettings, merge_model_args, parse_model_arg
from pytest_llmeval.types import GenerateRequest, ModelIdentity
from tests.servers.fake_server import executable, lives, starts
from tests.servers.gguf_files import gguf_bytes
from tests.servers.test_server_sessions import choices_suite, report_of, scored_once, written_suite
from tests.support import REPOSITORY

pytestmark = pytest.mark.usefixtures("quick_retries")


class Project:
    """A folder with a model that no real server could load, and the fake server's executable."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self._monkeypatch = pytester, monkeypatch
        self.folder = pytester.path
        model = self.folder / "ckpt"
        model.mkdir()
        model.joinpath("config.json").write_text("{}")
        model.joinpath("model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        (self.folder / "m.gguf").write_bytes(gguf_bytes({"general.file_type": 7}))
        self.log = self.folder / "starts.log"
        monkeypatch.setenv("FAKE_SERVER_LOG", str(self.log))
        self.command = executable(self.folder)
        self.llama = executable(self.folder, "llama-server")

    def faults(self, faults: str) -> None:
        self._monkeypatch.setenv("FAKE_SERVER", faults)

    def run(self, *arguments: str, model: str = "vllm:./ckpt") -> pytest.RunResult:
        command = f"--llm-model-arg=launch.command={self.command}"
        return self.pytester.runpytest(f"--llm-model={model}", command, "--llm-report=report.json", *arguments)

    @property
    def num_starts(self) -> int:
        return len(starts(self.log))

    def check_all_ended(self) -> None:
        """Check that none of the started processes lives, and that nothing but the server knew the key."""
        for start in starts(self.log):
            assert not lives(int(start["pid"])), start
            assert not re.search(r"[0-9a-f]{48}", start["arguments"])


@pytest.fixture
def project(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(llm_pytester, monkeypatch)


def test_one_server_answers_a_session_and_ends_with_it(project: Project, workers: list[str]) -> None:
    suites = choices_suite(project.pytester, 6), written_suite(project.pytester, 6)
    given = [*workers, *suites, "--llm-store=store", "--llm-dtype=bfloat16", "--llm-model-arg=max_length=2048"]
    given.append("--llm-model-arg=launch.tensor_parallel_size=1")
    assert project.run(*given, "--collect-only").ret == 0
    assert project.run(*given, "--llm-show-prompts").ret == 0
    assert project.num_starts == 0
    result = project.run(*given)
    scored_once(project.folder, 12)
    (start,) = starts(project.log)
    assert start["arguments"].startswith(f"serve {project.folder}/ckpt --host 127.0.0.1 --port ")
    assert start["arguments"].endswith(
        "--served-model-name ckpt --dtype bfloat16 --max-model-len 2048 --tensor-parallel-size 1"
    )
    project.check_all_ended()
    (model,) = report_of(project.folder)["models"]
    assert (model["name"], model["backend"], model["dtype"]) == ("vllm:./ckpt", "vllm", "bfloat16")
    result.stdout.fnmatch_lines(["* LLM evaluation: vllm:./ckpt (bfloat16, vllm 1.2.3) *"])
    assert model["details"]["self_test"]
    written = [path.read_text(errors="replace") for path in project.folder.rglob("*") if path.is_file()]
    assert not any(re.search(r"\b[0-9a-f]{48}\b", text) for text in (*written, result.stdout.str()))
    assert "PYTEST_LLM_LAUNCH_KEY" not in os.environ
    project.run(*given)
    scored_once(project.folder, 12)
    assert project.num_starts == 1, "the store has all replies"


def test_server_that_dies_at_its_start_is_one_error_with_its_last_lines(project: Project, workers: list[str]) -> None:
    project.faults("dies")
    result = project.run(*workers, written_suite(project.pytester, 4))
    assert result.ret == (2 if workers == ["-n2"] else 1)  # pytest-xdist says that it was interrupted
    text = result.stdout.str() + result.stderr.str()
    assert "model vllm:./ckpt: its server ended before it was ready (exit code 1): ValueError: no room for ckpt" in text
    assert "INFO reading weights" in text
    assert not re.search(r"\b[0-9a-f]{48}\b", text)
    assert project.num_starts == 1
    project.check_all_ended()


def conversations(pytester: pytest.Pytester, number: int) -> str:
    """Return a suite of conversations of three turns."""
    samples = [{"id": f"c{n}", "question": f"What is {n} + 1?", "target": f"{n + 1}"} for n in range(number)]
    prompt = {"chat": True, "turns": ["{{ question }}", "Are you sure of {{ question }}", "Say it again."]}
    suite = {"suite": "turns", "samples": samples, "prompt": prompt, "score": "exact", "generate": {"max_tokens": 4}}
    pytester.makefile(".yaml", turns=yaml.safe_dump(suite, sort_keys=False))
    return "turns.yaml"


@pytest.mark.parametrize("num_questions", [40, pytest.param(5, marks=pytest.mark.slow)])  # 5: in the self-test
def test_server_that_crashes_is_started_again_once(
    project: Project, workers: list[str], num_questions: int, caplog: pytest.LogCaptureFixture
) -> None:
    project.faults(f"dies-once-after:{num_questions}")
    result = project.run(*workers, conversations(project.pytester, 15), "--llm-store=store")
    scored_once(project.folder, 15)
    assert {len(record["details"]["conversation"]) for record in report_of(project.folder)["records"]} == {3}
    assert result.ret == 0
    assert project.num_starts == 2
    if num_questions > 5 and not workers:
        said = "vllm:./ckpt: its server ended in the middle of the run (exit code 1), and was started again"
        assert [line for line in caplog.messages if "ended" in line] == [said]
    project.check_all_ended()


@pytest.mark.slow
def test_server_that_crashes_twice_has_stopped_and_a_store_goes_on(project: Project, workers: list[str]) -> None:
    suite = written_suite(project.pytester, 90)
    given = [*workers, suite, "--llm-store=store", "--llm-model-arg=max_connections=2"]
    project.faults("dies-after:40")
    result = project.run(*given)
    assert result.ret == 1
    text = result.stdout.str()
    assert "model vllm:./ckpt: its server ended for the second time (exit code 1)" in text
    assert "replica" not in text
    assert project.num_starts == 2
    project.faults("")
    assert project.run(*given).ret == 0
    scored_once(project.folder, 90)
    project.check_all_ended()


_KILLER = """
import os, signal, time
from pathlib import Path
from tests.servers.fake_server import lives, starts

def pytest_runtest_logreport(report):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\\0")
        except OSError:
            continue
        if report.when == "call" and str(os.getpid()) in words and words[3].endswith("keeper.py"):
            os.kill(int(pid), signal.SIGKILL)
    while report.when == "call" and any(lives(int(start["pid"])) for start in starts(Path("starts.log"))):
        time.sleep(0.01)
"""


@pytest.mark.slow
def test_keeper_that_is_killed_stops_the_model_and_hangs_nobody(project: Project, workers: list[str]) -> None:
    project.pytester.makeconftest(_KILLER)
    result = project.run(*workers, "--llm-model-arg=max_connections=2", written_suite(project.pytester, 90))
    assert result.ret != 0
    assert "model vllm:./ckpt: the process that keeps its server has ended" in result.stdout.str()
    assert project.num_starts == 1
    project.check_all_ended()


@pytest.mark.slow
def test_judge_and_model_that_are_the_same_share_a_server(project: Project, workers: list[str]) -> None:
    samples = [{"id": f"j{n}", "question": f"What is {n} + 1?", "target": f"{n + 1}"} for n in range(3)]
    suite = {"suite": "judged", "samples": samples, "prompt": {"template": "{{ question }}"}, "score": "equivalence"}
    project.pytester.makefile(".yaml", judged=yaml.safe_dump(suite, sort_keys=False))
    project.run(*workers, "judged.yaml", "--llm-judge=vllm:./ckpt")
    assert project.num_starts == 1
    project.check_all_ended()


@pytest.mark.slow
def test_model_judge_and_embedder_of_hand_written_tests_share_a_server(project: Project, workers: list[str]) -> None:
    project.pytester.makepyfile(
        """
        def test_three(llm_model, llm_judge, llm_embedder):
            assert llm_model.generate("Question: What is 1 + 1?", max_tokens=2).text
            assert llm_judge.generate("Question: What is 1 + 1?", max_tokens=2).text
            assert len(llm_embedder.embed("a text").vector) > 1
        """
    )
    result = project.run(*workers, "--llm-judge=vllm:./ckpt", "--llm-embedder=vllm:./ckpt")
    result.assert_outcomes(passed=1)
    assert project.num_starts == 1
    project.check_all_ended()


@pytest.mark.slow
def test_model_is_loaded_without_a_session(project: Project) -> None:
    settings = ModelSettings(model_args=merge_model_args([parse_model_arg(f"launch.command={project.command}")]))
    model = load_model(parse_model_spec(f"vllm:{project.folder}/ckpt"), settings)
    assert isinstance(model, LaunchedModel)
    assert project.num_starts == 0
    assert model.generate("Question: What is 1 + 1?", max_tokens=2).text
    assert project.num_starts == 1
    model.close()
    project.check_all_ended()
    assert "PYTEST_LLM_LAUNCH_KEY" not in os.environ


@pytest.mark.slow
def test_request_from_the_event_loop_waits_for_the_start_elsewhere(project: Project) -> None:
    settings = ModelSettings(model_args=merge_model_args([parse_model_arg(f"launch.command={project.command}")]))
    model = load_model(parse_model_spec(f"vllm:{project.folder}/ckpt"), settings)
    assert isinstance(model, LaunchedModel)

    async def submitted() -> list[Future[Any]]:
        return model.submit([GenerateRequest("What is 1 + 1?", max_tokens=2)])

    (future,) = loop.run(submitted()).result(timeout=5.0)
    assert future.result(timeout=60.0).text
    model.close()


@pytest.mark.slow
def test_server_of_one_model_ends_before_that_of_the_next_starts(project: Project) -> None:
    shutil.copytree(project.folder / "ckpt", project.folder / "other")
    project.run(written_suite(project.pytester, 4), "--llm-model=vllm:./other")
    assert len(report_of(project.folder)["records"]) == 8
    assert [start["lived"] for start in starts(project.log)] == ["0", "0"]
    project.run("written.yaml", "--llm-model=vllm:./other", "-n2")
    assert len(report_of(project.folder)["records"]) == 8
    assert [start["lived"] for start in starts(project.log)] == ["0", "0", "0", "1"]
    project.check_all_ended()


@pytest.mark.slow
def test_replicas_are_servers_of_their_own(project: Project, workers: list[str]) -> None:
    result = project.run(*workers, written_suite(project.pytester, 30), "--llm-replicas=2", "--llm-device=cpu")
    scored_once(project.folder, 30)
    assert result.ret == 0
    assert [start["cards"] for start in starts(project.log)] == ["", ""]
    (model,) = report_of(project.folder)["models"]
    assert len(model["details"]["urls"]) == 2
    project.check_all_ended()


@pytest.mark.slow
def test_llama_server_is_waited_for_and_gets_its_own_words(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project.folder), prepend=os.pathsep)
    result = project.pytester.runpytest(
        "--llm-model=llama-cpp:m.gguf?launch.n_gpu_layers=-1",
        written_suite(project.pytester, 4),
        "--llm-report=report.json",
    )
    assert result.ret == 0
    (start,) = starts(project.log)
    assert start["arguments"].startswith(f"--model {project.folder}/m.gguf --alias m --host 127.0.0.1 --port ")
    assert start["arguments"].endswith("--ctx-size 0 --n-gpu-layers -1")
    result.stdout.fnmatch_lines(["*(a server that the session starts: llama-server; Q8_0, no chat template)*"])
    (model,) = report_of(project.folder)["models"]
    assert (model["dtype"], model["details"]["has_chat_template"]) == ("Q8_0", False)
    result.stdout.fnmatch_lines(["* LLM evaluation: llama-cpp:m.gguf* (Q8_0, llama-server 1.2.3) *"])
    project.check_all_ended()
    chats = written_suite(project.pytester, 2, chat=True)
    result = project.pytester.runpytest("--llm-model=llama-cpp:m.gguf", chats)
    result.stdout.fnmatch_lines(
        ["*sample 'w0': *the file has no chat template; give it one by --llm-model-arg launch.chat_template=NAME*"]
    )
    given = ("--llm-model=llama-cpp:m.gguf?launch.chat_template=chatml", "--llm-report=report.json")
    project.pytester.runpytest(*given, chats)
    scored_once(project.folder, 2)


@pytest.mark.slow
def test_what_cannot_be_started_is_one_line(project: Project) -> None:
    suite = written_suite(project.pytester, 2)
    refused = {
        (
            "--llm-model-arg=launch.no_such=1",
        ): "server refuses a setting: vllm: error: unrecognized arguments: --no-such",
        ("--llm-model-arg=launch.port=1",): "launch.port: the session decides this itself; leave it out",
        ("--llm-model-arg=launch.hf_token=abc",): "launch.hf_token: a secret is given to the server by its environment",
        ("--llm-device=mps",): "vLLM runs on CUDA and on CPUs",
        ("--llm-revision=main",): "--llm-revision main: vllm:./ckpt is a folder",
        ("--llm-ray=local",): "--llm-ray: the servers of vllm:./ckpt are started on this machine",
        ("--llm-model-arg=launch.command=/no/such",): "launch.command=/no/such: there is no such executable",
        ("--llm-model-arg=launch.command=/etc",): "launch.command=/etc: this is no file that can be executed",
    }
    for arguments, expected in refused.items():
        result = project.run(suite, *arguments)
        assert result.ret != 0
        text = result.stdout.str() + result.stderr.str()
        assert expected in text, text
        assert "Traceback" not in text
    shutil.copytree(project.folder / "ckpt", project.folder / "cut")
    (project.folder / "cut/model.safetensors").write_bytes(b"cut")
    for model, expected in {
        "vllm:./nowhere": "there is no folder",
        "vllm:./cut": "cut/model.safetensors is not a safetensors file: it is 3 bytes long",
        "llama-cpp:ckpt/config.json": "ckpt/config.json: it is no GGUF file",
        "llama-cpp:ckpt": "ckpt is a folder, expected a file .gguf; vLLM runs checkpoints",
        "llama-cpp:m.gguf?launch.timeout=soon": "launch.timeout: found 'soon', expected a number of seconds",
    }.items():
        result = project.run(suite, model=model)
        assert result.ret == 4
        result.stderr.fnmatch_lines([f"*{expected}*"])


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # as vLLM 0.32 wrote it for a folder without weights
        (
            "(Worker pid=7) ERROR 11-26 14:08:03 [multiproc_executor.py:953] RuntimeError: Cannot find any weights\n"
            "(EngineCore pid=5) ERROR 11-26 14:08:05 [core.py:1510] EngineCore failed to start.\n"
            "(EngineCore pid=5) ERROR 11-26 14:08:05 [core.py:1510]     raise e from None\n"
            "(EngineCore pid=5) ERROR 11-26 14:08:05 [core.py:1510] Exception: WorkerProc initialization failed due to "
            "an exception in a background process. See stack trace for root cause.\n"
            "(APIServer pid=3)     raise RuntimeError(\n"
            "(APIServer pid=3) RuntimeError: Engine core initialization failed. See root cause above.",
            ("RuntimeError: Cannot find any weights", 0),
        ),
        ("loading\nerror: no memory\nbye", ("error: no memory", 1)),
        ("loading\n  bye", ("bye", 1)),
        ("See root cause above", ("See root cause above", 0)),
    ],
)
def test_cause_is_found_above_the_lines_that_point_to_it(log: str, expected: tuple[str, int]) -> None:
    assert cause_of(log.split("\n")) == expected


# The keeper by itself


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAKE_SERVER_LOG", str(tmp_path / "starts.log"))
    return tmp_path / "starts.log"


def plan_in(folder: Path, timeout_s: float = 60.0) -> LaunchPlan:
    command = (str(executable(folder)), "serve", "m", "--port", "{port}", "--served-model-name", "m")
    return LaunchPlan(
        digest="d",
        command=command,
        environment={},
        without=(),
        key_variable="VLLM_API_KEY",
        paths=("/v1/models",),
        model="m",
        timeout_s=timeout_s,
        version=None,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "num_starts", "error"),
    [
        ("slow:2", 1, None),
        ("taken", 3, None),  # with the other server
        ("grandchild", 2, None),
        ("ignores-sigterm", 1, None),
        ("another", 5, "another server answers at each port that was tried for its own"),
        ("hangs", 1, "its server was not ready after 2 s (launch.timeout=SECONDS gives it more time)"),
    ],
)
def test_server_is_started_and_ended(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, faults: str, num_starts: int, error: str | None
) -> None:
    monkeypatch.setenv("FAKE_SERVER", faults)
    keeper = Keeper([plan_in(tmp_path, timeout_s=2.0 if faults == "hangs" else 60.0)])
    try:
        servers = LaunchedServers(keeper.folder)
        if error is None:
            assert len(servers.wait("vllm:m", [0])) == 1
        else:
            with pytest.raises(ModelStoppedError, match=re.escape(error)):
                servers.wait("vllm:m", [0])
        with pytest.raises(ModelStoppedError) if error else contextlib.nullcontext():
            servers.wait("vllm:m", [0])
    finally:
        keeper.close()
    assert len(starts(log)) == num_starts
    assert not [start for start in starts(log) if lives(int(start["pid"]))]
    assert not keeper.folder.exists()


@pytest.mark.slow
def test_clients_wait_while_what_a_dead_server_left_is_ended(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SERVER", "stubborn")
    keeper = Keeper([plan_in(tmp_path)])
    try:
        servers = LaunchedServers(keeper.folder)
        servers.wait("vllm:m", [0])
        assert servers.plans[0].environment == {"VLLM_RPC_BASE_PATH": str(keeper.folder)}, "of sockets that it leaves"
        os.kill(int(starts(log)[0]["pid"]), signal.SIGKILL)
        while (state := _read_state(keeper.folder, 0)["state"]) == "ready":
            time.sleep(0.01)
        assert state == "died"
        servers.wait("vllm:m", [0])
        assert servers.num_restarts([0]) == 1
    finally:
        keeper.close()
    assert not [start for start in starts(log) if lives(int(start["pid"]))]


@pytest.mark.slow
def test_servers_of_a_model_that_cannot_be_used_end_before_the_next_model(tmp_path: Path, log: Path) -> None:
    def refused(urls: Sequence[str]) -> ServerArguments:
        raise ModelError("nothing of it can be used")

    keeper = Keeper([plan_in(tmp_path)])
    try:
        spec, identity = parse_model_spec("vllm:m"), ModelIdentity(name="vllm:m", backend="vllm")
        model = LaunchedModel(spec, identity, LaunchedServers(keeper.folder), [0], refused)
        with pytest.raises(ModelStoppedError, match="nothing of it can be used"):
            model.start()
        model.release()
        assert not lives(int(starts(log)[0]["pid"]))
    finally:
        keeper.close()


def test_last_lines_begin_with_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_LLM_LAUNCH_KEY", "0123456789abcdef")
    log_file(tmp_path, 0).write_text(
        "the key is 0123456789abcdef" + "." * 4067 + "\n(Worker pid=7) ValueError: no room\n"
    )
    servers = LaunchedServers(tmp_path)
    assert servers._lines(0) == ["(Worker pid=7) ValueError: no room"]
    assert servers._last_line([0]) == "ValueError: no room"


_SESSION = """
import sys, time
from pathlib import Path
from tests.servers.test_launched import plan_in
from pytest_llmeval.models.servers.launching import Keeper, LaunchedServers
keeper = Keeper([plan_in(Path(sys.argv[1]))])
LaunchedServers(keeper.folder).wait("vllm:m", [0])
print(keeper._process.pid, flush=True)
sys.stdin.readline()
try:
    while True:
        LaunchedServers(keeper.folder).wait("vllm:m", [0])
        time.sleep(0.05)
except Exception as error:
    print(error, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["session", "guard", "keeper"])
@pytest.mark.parametrize(
    ("number", "faults"), [(signal.SIGKILL, "grandchild,stubborn"), (signal.SIGTERM, "grandchild,ignores-sigterm")]
)
def test_nothing_outlives_a_session_that_is_killed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, victim: str, number: int, faults: str
) -> None:
    monkeypatch.setenv("FAKE_SERVER", faults)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    session = subprocess.Popen(
        [sys.executable, "-c", _SESSION, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert session.stdout is not None
    assert session.stdin is not None
    with session.stdout as said, session.stdin as told:
        guard = int(said.readline())
        (keeper,) = map(int, Path(f"/proc/{guard}/task/{guard}/children").read_text().split())
        os.kill({"session": session.pid, "guard": guard, "keeper": keeper}[victim], number)
        until = time.monotonic() + 10
        while time.monotonic() < until and any(lives(int(start["pid"])) for start in starts(log)):
            time.sleep(0.05)
        left = [start for start in starts(log) if lives(int(start["pid"]))]
        if victim != "session":
            told.write("\n")
            told.flush()
            assert said.readline() == "model vllm:m: the process that keeps its server has ended\n"
        session.kill()
        session.wait()
    assert not left
    while (lives(guard) or lives(keeper)) and time.monotonic() < until + 10:
        time.sleep(0.05)
    assert not lives(guard)
    assert not lives(keeper)
