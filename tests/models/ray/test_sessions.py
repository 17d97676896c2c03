"""Sessions whose model has replicas on a real Ray cluster of this machine."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.slow

_MARK = "LLMEVAL_TEST_RUN"
_LIMIT_S = 240.0

MODEL = '''
"""Writes back what it reads, slowly, and logs its calls."""

import json
import os
import signal
import time
from pathlib import Path

from pytest_llmeval.types import GenerateResponse, ModelIdentity


def log(what, prompts):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), "prompts": prompts}) + "\\n")


def agent(prompt):
    log("called", [prompt])
    time.sleep(0.3)
    return prompt


class Echo:
    identity = ModelIdentity(name="echo", backend="test", fingerprint="e" * 64)

    def __init__(self, pause=0.0):
        self.pause = pause
        log("load", [])

    def generate(self, requests):
        prompts = [request.prompt for request in requests]
        log("begin", prompts)
        while Path("hold").exists():
            time.sleep(0.02)
        for prompt in prompts:
            time.sleep(self.pause)
            if "ONCE" in prompt and not Path("killed").exists():
                Path("killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if "ALWAYS" in prompt:
                os.kill(os.getpid(), signal.SIGKILL)
        log("end", prompts)
        return [GenerateResponse(text=prompt) for prompt in prompts]
'''


@dataclass
class Project:
    """A folder with a suite, in which sessions run as processes of their own."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, questions: list[str]) -> None:
        samples = [
            {"id": f"s{place}", "question": question, "target": question} for place, question in enumerate(questions)
        ]
        suite = {"suite": "echo", "samples": samples, "prompt": {"template": "{{ question }}"}, "score": "exact"}
        self.folder.joinpath("echo.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
        self.folder.joinpath("my_model.py").write_text(MODEL)
        self.folder.joinpath("pytest.ini").write_text("[pytest]\n")

    def start(self, *options: str, model: str = "python:my_model:Echo") -> subprocess.Popen[str]:
        environment = clean_environment() | {_MARK: self.mark, "PYTHONPATH": str(REPOSITORY)} | self.environment
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", f"--llm-model={model}", "--llm-report=report.json", *options],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, session: subprocess.Popen[str], code: int = 0) -> str:
        output, _ = session.communicate(timeout=_LIMIT_S)
        assert session.returncode == code, output
        assert "Traceback" not in output
        assert "(raylet)" not in output
        assert "ray.io" not in output
        return output

    def run(self, *options: str, code: int = 0, model: str = "python:my_model:Echo") -> str:
        return self.finish(self.start(*options, model=model), code)

    @property
    def report(self) -> Any:
        return json.loads(self.folder.joinpath("report.json").read_text(encoding="utf-8"))

    def calls(self, what: str) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call["what"] == what]

    def asked(self) -> Counter[str]:
        return Counter(prompt for call in self.calls("begin") for prompt in call["prompts"])

    def wait_for(self, condition: Callable[[], bool], session: subprocess.Popen[str] | None = None) -> None:
        """Until something has happened, as long as the session runs that it happens in."""
        end = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < end, "it did not come"
            assert session is None or session.poll() is None, session.communicate()[0]
            time.sleep(0.05)

    def num_processes(self) -> int:
        """Of those that a session of this project has started, all that live."""
        count = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = f"{_MARK}={self.mark}".encode() in folder.joinpath("environ").read_bytes()
                is_alive = ") Z " not in folder.joinpath("stat").read_text()
            except OSError:
                continue
            count += is_ours and is_alive
        return count


@pytest.fixture
def project(tmp_path: Path) -> Project:
    pytest.importorskip("ray")
    return Project(tmp_path)


def numbers_of(record: Any) -> Iterator[tuple[str, Any]]:
    """What of a record does not depend on the clock, flat."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if "seconds" not in key and key != "duration":
                    yield from walk(inner, f"{path}/{key}")
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                yield from walk(inner, f"{path}/{place}")
        else:
            yield path, value

    return walk(record, "")


def test_two_replicas_and_none_give_the_same_records(project: Project) -> None:
    suite = str(REPOSITORY / "example_suites" / "boolq")
    project.folder.joinpath("pytest.ini").write_text("[pytest]\n")
    output = project.run("--llm-ray=local", "--llm-replicas=2", "--llm-batch-size=8", suite, model="demo")
    with_replicas = project.report
    project.run("--llm-batch-size=8", suite, model="demo")
    alone = project.report
    assert len(alone["records"]) == len(with_replicas["records"]) == 144
    for one, other in zip(alone["records"], with_replicas["records"], strict=True):
        found, expected = dict(numbers_of(other)), dict(numbers_of(one))
        assert found.keys() == expected.keys()
        for path, value in expected.items():
            is_close = isinstance(value, float) and math.isclose(value, found[path], rel_tol=0, abs_tol=1e-4)
            assert is_close or value == found[path], (path, value, found[path])
    (model,) = with_replicas["models"]
    assert model["fingerprint"] == alone["models"][0]["fingerprint"]
    assert model["details"]["replicas"] == 2
    assert sum(model["use"]["replicas"].values()) == model["use"]["num_requests"]
    assert "llm-ray: local (2 replicas)" in output
    assert "requests were also scored plain" in output
    assert "replica 1 on " in output or "replica 2 on " in output
    project.wait_for(lambda: project.num_processes() == 0)


def test_a_replica_that_is_killed_loses_and_repeats_nothing_that_was_finished(project: Project) -> None:
    project.write([f"q{place}" if place != 70 else "ONCE" for place in range(120)])
    output = project.run("--llm-ray=local", "--llm-replicas=2", "--llm-batch-size=8", "echo.yaml")
    assert "120 passed" in output
    assert "a replica ended: replica " in output
    finished = {tuple(call["prompts"]) for call in project.calls("end")}
    (lost,) = [call["prompts"] for call in project.calls("begin") if tuple(call["prompts"]) not in finished]
    assert "ONCE" in lost
    asked = project.asked()
    assert len(asked) == 120
    assert all(count == (2 if prompt in lost else 1) for prompt, count in asked.items())
    again = [call["prompts"] for call in project.calls("begin") if set(call["prompts"]) & set(lost)]
    assert sorted(again[1:]) == sorted([prompt] for prompt in lost)
    (model,) = project.report["models"]
    assert len(model["use"]["ended"]) == 1


@pytest.mark.campaign
def test_a_sample_that_kills_its_replicas_is_an_error_of_that_sample(project: Project) -> None:
    project.write([f"q{place}" if place != 20 else "ALWAYS" for place in range(40)])
    output = project.run("--llm-ray=local", "--llm-replicas=2", "--llm-batch-size=8", "echo.yaml", code=1)
    assert "39 passed" in output
    assert "1 failed" in output
    assert "two replicas of python:my_model:Echo ended while they worked on it alone" in output
    assert project.asked()["ALWAYS"] == 3


def test_ctrl_c_ends_all_that_was_started(project: Project) -> None:
    project.write([f"q{place}" for place in range(400)])
    session = project.start(
        "--llm-ray=local", "--llm-replicas=2", "--llm-batch-size=4", "echo.yaml", model="python:my_model:Echo?pause=0.1"
    )
    project.wait_for(lambda: len(project.calls("end")) >= 4, session)
    os.killpg(session.pid, signal.SIGINT)
    output = project.finish(session, code=2)
    assert "KeyboardInterrupt" in output
    project.wait_for(lambda: project.num_processes() == 0)
    assert 8 <= len(project.report["records"]) < 400


@pytest.mark.campaign
def test_a_session_that_was_killed_goes_on_where_it_was(project: Project) -> None:
    project.write([f"q{place}" for place in range(60)])
    options = ("--llm-ray=local", "--llm-replicas=2", "--llm-batch-size=4", "--llm-store=replies", "echo.yaml")
    session = project.start(*options, model="python:my_model:Echo?pause=0.1")
    project.wait_for(lambda: len(project.calls("end")) >= 6, session)
    session.kill()
    session.communicate(timeout=_LIMIT_S)
    project.wait_for(lambda: project.num_processes() == 0)
    first = project.asked()
    project.folder.joinpath("calls.jsonl").unlink()
    assert "60 passed" in project.run(*options, model="python:my_model:Echo?pause=0.1")
    second = project.asked()
    assert set(first) | set(second) == {f"q{place}" for place in range(60)}
    assert sum(second.values()) <= 60 - 16, "what four chunks were answered with was in the store"


@pytest.mark.campaign
def test_machines_come_and_go(project: Project) -> None:
    os.environ["RAY_AUTH_MODE"] = project.environment["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        first = cluster.add_node(num_cpus=1)
        project.write([f"q{place}" for place in range(240)])
        session = project.start(
            f"--llm-ray={cluster.address}",
            "--llm-replicas=3",
            "--llm-batch-size=4",
            "echo.yaml",
            model="python:my_model:Echo?pause=0.1",
        )
        project.wait_for(lambda: len(project.calls("end")) >= 2, session)
        assert len(project.calls("load")) == 1
        hold = project.folder / "hold"  # however long it takes, the work is not done meanwhile
        hold.touch()
        cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        project.wait_for(lambda: len(project.calls("load")) == 3, session)
        hold.unlink()
        project.wait_for(lambda: len({call["pid"] for call in project.calls("end")}) == 3, session)
        hold.touch()
        cluster.remove_node(first, allow_graceful=False)
        hold.unlink()
        assert "240 passed" in project.finish(session)
    finally:
        cluster.shutdown()
        del os.environ["RAY_AUTH_MODE"]
    asked = project.asked()
    assert len(asked) == 240
    finished = {tuple(call["prompts"]) for call in project.calls("end")}
    lost = [
        prompt
        for call in project.calls("begin")
        if tuple(call["prompts"]) not in finished
        for prompt in call["prompts"]
    ]
    assert len(lost) <= 4
    assert sum(asked.values()) <= 240 + 2 * 4
    (model,) = project.report["models"]
    assert len(model["use"]["replicas"]) == 3
    assert len(model["use"]["ended"]) >= 1


def num_stored(project: Project) -> int:
    return sum(path.read_bytes().count(b"\n") for path in project.folder.joinpath("kept").rglob("replies-*.jsonl"))


@pytest.mark.campaign
def test_replies_of_a_slow_function_are_stored_as_they_come(project: Project) -> None:
    project.write([f"q{number}" for number in range(30)])
    options = ("--llm-ray", "local", "--llm-replicas", "1", "--llm-store=kept", "--llm-store-max-age=1d")
    first = project.start(*options, model="python:my_model:agent")
    project.wait_for(lambda: num_stored(project) >= 5, first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=_LIMIT_S)
    project.run(*options, model="python:my_model:agent")
    assert len(project.calls("called")) <= 30 + 6, "what was with the replica, or on its way, when pytest was killed"
    assert len(project.report["records"]) == 30
