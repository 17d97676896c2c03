"""example_suites/agents with CrewAI itself, in a Python of its own, on a server with scripted replies.

A campaign, which .ci/run runs in a step of its own: CrewAI is installed first (``tests/servers/crew.py``).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.crew import AGENTS, install
from tests.servers.stub import StubServer
from tests.support import clean_environment

pytestmark = pytest.mark.campaign

_WITHOUT, _WITH = "python:agents:crew", "python:agents:crew?planning=true"
_BRACES = "What does f'{x:>{y}}' say of {question}, {tools}, {tool_names}, {input}, {0!r}, {{z}}, %s and \\boxed{}?"
_PLAN = "\nFirst think of {x}, then say %d."
_SUITES = {"gsm8k_agents": 12, "csqa_agents": 12, "math_agents": 10}

_GUARD = """
import os, sys

def note(event, arguments):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(arguments[1], tuple)):
        host, port = arguments[:2] if event == "socket.getaddrinfo" else arguments[1][:2]
        with open(os.environ["CONNECTIONS"], "a") as file:
            print(host, port, file=file)
        if host not in ("127.0.0.1", b"127.0.0.1"):
            raise OSError(f"no way to {host}")

sys.addaudithook(note)
"""


def says(body: dict[str, Any]) -> str:
    """A plan where one is asked for. Every third question is answered well by whoever has a plan, the others always."""
    if "response_format" in body:
        plan = {"task_number": 1, "task": "the question", "plan": _PLAN}
        return json.dumps({"list_of_plans_per_task": [plan]})
    prompt = body["messages"][-1]["content"]
    place, answer = next((number, answer) for number, (key, answer) in enumerate(_answers()) if key in prompt)
    if isinstance(answer, tuple):  # the letter before the right option
        answer = re.search(rf"^([A-E])\. {re.escape(answer[0])}$", prompt, re.MULTILINE)[1]  # type: ignore[index]
    if place % 3 == 0 and _PLAN not in prompt:
        return "I do not know."
    return f"The answer is {answer}"


def _answers() -> list[tuple[str, str | tuple[str]]]:
    """The text of each question, and its right answer."""
    found: list[tuple[str, str | tuple[str]]] = [(_BRACES, "braces")]
    sums = _rows(AGENTS.parent / "gsm8k" / "gsm8k.jsonl", 12)
    found += [(row["question"], row["answer"].partition("#### ")[2]) for row in sums]
    for row in _rows(AGENTS.parent / "csqa" / "csqa.jsonl", 12):
        options = {option["label"]: option["text"] for option in row["question"]["choices"]}
        found.append((row["question"]["stem"], (options[row["answerKey"]],)))
    for row in _rows(AGENTS / "math.jsonl", 10):
        solution = row["solution"]
        found += [(row["problem"], solution[solution.index(r"\boxed") :].rstrip("$."))]
    return found


def _rows(path: Path, count: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:count]]


@pytest.fixture(scope="module")
def crew_python() -> Path:
    return install()


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer("openai", instant=True, says=says) as server:
        yield server


class Place:
    """Where sessions run: a home and a temporary folder that are empty, and a note of each connection that is made."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self._python = folder, python
        for name in ("home", "guard", "temporary"):
            (folder / name).mkdir()
        (folder / "guard" / "sitecustomize.py").write_text(_GUARD, encoding="utf-8")
        self.connections = folder / "connections.txt"
        self.environment = {name: value for name, value in clean_environment().items() if "OPENAI" not in name} | {
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "temporary"),
            "PYTHONPATH": str(folder / "guard"),
            "CONNECTIONS": str(self.connections),
        }

    def session(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A session in the folder of the suites."""
        command = [str(self._python), "-m", "pytest", "-p", "no:cacheprovider", *options]
        report = ["--llm-report", str(self.folder / "out.json")]
        return subprocess.run(
            [*command, *report],
            cwd=AGENTS,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def report(self) -> Any:
        """What the last session has written."""
        return json.loads((self.folder / "out.json").read_text(encoding="utf-8"))


@pytest.fixture
def place(tmp_path: Path, crew_python: Path) -> Place:
    return Place(tmp_path, crew_python)


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["one process", "-n2"])
def test_two_crews_are_compared(place: Place, stub: StubServer, options: tuple[str, ...]) -> None:
    """The README's command: accuracy of both, what planning costs and gains, traces, and nobody else is spoken to."""
    done = place.session(
        *options,
        *("--llm-model", _WITHOUT, "--llm-model", _WITH, *(f"{name}.yaml" for name in _SUITES)),
        OPENAI_BASE_URL=stub.url,
        OPENAI_MODEL_NAME="demo",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = place.report()
    found = {(suite["name"], *suite["models"]): suite["metrics"]["accuracy"] for suite in report["suites"]}
    assert {key: (metric["n"], round(metric["value"] * metric["n"])) for key, metric in found.items()} == {
        ("gsm8k_agents", _WITHOUT): (12, 8),
        ("gsm8k_agents", _WITH): (12, 12),
        ("csqa_agents", _WITHOUT): (12, 8),
        ("csqa_agents", _WITH): (12, 12),
        ("math_agents", _WITHOUT): (10, 7),
        ("math_agents", _WITH): (10, 10),
    }
    assert re.search(r"^gsm8k_agents  accuracy  12 .* 1\.000 \(\+0\.333 \[.*\], \+4 -0\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^math_agents   accuracy  10 .* 1\.000 \(\+0\.300 \[.*\], \+3 -0\)$", done.stdout, re.MULTILINE)
    assert " warnings" not in done.stdout.splitlines()[-1]

    bodies = stub.bodies("/v1/chat/completions")
    plans = [body for body in bodies if "response_format" in body]
    assert (len(plans), len(bodies)) == (34, 3 * 34)
    records = report["records"]
    tokens = Counter[str]()
    for record in records:
        plan = [{"plan": _PLAN}] if record["model"] == _WITH else []
        assert record["details"]["trace"] == [*plan, {"agent": "Solver", "output": record["output"]}]
        tokens[record["model"]] += record["num_tokens"]
    assert tokens == {_WITHOUT: 34, _WITH: 2 * 34}  # the server says 1 of each reply
    check_silence(place, stub)


def test_a_question_with_braces_arrives(place: Place, stub: StubServer) -> None:
    """Word for word, in the question and in that for a plan, whatever CrewAI or Python would fill in."""
    suite = place.folder / "braces.yaml"
    suite.write_text(
        "suite: braces\nsamples:\n  - question: "
        + json.dumps(_BRACES)
        + "\n    target: braces\nprompt: {template: '{{ question }}'}\nscore: contains\n",
        encoding="utf-8",
    )
    done = place.session("--llm-model", f"{_WITH}&base_url={stub.url}&model=demo", str(suite))
    assert done.returncode == 0, done.stdout + done.stderr
    plan, answer = (body["messages"][-1]["content"] for body in stub.bodies("/v1/chat/completions"))
    assert _BRACES in plan
    assert _BRACES + _PLAN in answer
    check_silence(place, stub)


def test_a_server_that_fails_leaves_samples_unscored(place: Place) -> None:
    """Not wrong: who counts failures as wrong answers measures the server."""
    with StubServer("openai", faults=["unauthorized"], instant=True, says=says) as stub:
        done = place.session(
            *("--llm-model", f"{_WITHOUT}?base_url={stub.url}&model=demo", "--llm-limit", "2", "gsm8k_agents.yaml"),
            OPENAI_API_KEY="planted-4f7d2a91c0",
        )
    assert done.returncode == 1
    assert [record["status"] for record in place.report()["records"]] == ["unscored", "unscored"]
    written = done.stdout + done.stderr + (place.folder / "out.json").read_text(encoding="utf-8")
    assert "401" in written
    assert "planted-4f7d2a91c0" not in written


def test_a_crew_without_a_server_is_one_line(place: Place) -> None:
    done = place.session("--llm-model", _WITHOUT, "gsm8k_agents.yaml")
    assert done.returncode != 0
    assert "which server, and which model? python:agents:crew?base_url=" in done.stdout + done.stderr


def check_silence(place: Place, stub: StubServer) -> None:
    """Nobody else was spoken to, and nothing was left in the home folder nor among temporary files."""
    assert set(place.connections.read_text().splitlines()) == {stub.host.removeprefix("http://").replace(":", " ")}
    assert os.listdir(place.folder / "home") == []
    assert [name for name in os.listdir(place.folder / "temporary") if not name.startswith("pytest-of-")] == []
