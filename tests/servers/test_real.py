"""Real servers with the demo model beside the model in this process: all example suites, with one process and with
workers, published questions by the text of their options, and each kind of request.

A campaign, which .ci/run leaves out. What is missing is installed first (``tests/servers/real.py``), from the package
index alone.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.inference.dispatch import ask
from pytest_llmeval.models.encoding import Encoder
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.text.tool_calls import read_tool_calls
from pytest_llmeval.text.tool_schemas import tools_as_text
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Message
from tests.servers.language_models import DEMO
from tests.servers.real import CHAT_TEMPLATE, SERVERS, running
from tests.servers.test_numbers import REQUESTS
from tests.support import REPOSITORY

pytestmark = pytest.mark.campaign

_TOLERANCE = {"vllm": 5e-4, "llama-cpp-python": 1e-3}
"""Nats of a continuation's log-likelihood. Of both sides each differs from float64 by that much (docs/servers.md)."""
_NUM_QUESTIONS = {"vllm": 150, "llama-cpp-python": 20}
_CSQA = REPOSITORY.parent / "shared" / "data" / "commonsense_qa" / "validation.jsonl"
_WITH_WORKERS = ("boolq_loglikelihood", "csqa_letter", "gsm8k")
_SUITES = REPOSITORY / "example_suites"


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The name of a server that runs, and its URL."""
    with running(request.param) as url:
        yield request.param, url


def session(model: str, report: Path, *options: str, suites: tuple[Path, ...] = (_SUITES,)) -> Any:
    """The report of suites on ``model``."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, suites)]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    options = ("--llm-model", model, "--llm-report", str(report), *options)
    done = subprocess.run([*command, *options], cwd=report.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def demo_report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of all example suites on the model in this process."""
    return session("demo", tmp_path_factory.mktemp("demo") / "demo.json")


def test_example_suites(server: tuple[str, str], tmp_path: Path, demo_report: Any) -> None:
    name, url = server
    check(session(url, tmp_path / "server.json"), demo_report, _TOLERANCE[name])


def test_letters_and_generation_with_workers(server: tuple[str, str], tmp_path: Path, demo_report: Any) -> None:
    name, url = server
    suites = tuple(next(_SUITES.rglob(f"{suite}.yaml")) for suite in _WITH_WORKERS)
    found = session(url, tmp_path / "workers.json", "-n2", suites=suites)
    expected = {
        key: [entry for entry in demo_report[key] if entry[field] in _WITH_WORKERS]
        for key, field in (("suites", "name"), ("records", "suite"))
    }
    check(found, expected, _TOLERANCE[name])


@pytest.mark.skipif(not _CSQA.is_file(), reason=f"no published questions at {_CSQA}")
def test_published_questions_by_text(server: tuple[str, str], tmp_path: Path) -> None:
    name, url = server
    suite = tmp_path / "csqa.yaml"
    data = json.dumps({"path": str(_CSQA), "limit": _NUM_QUESTIONS[name]})
    suite.write_text(f"suite: csqa\npreset: csqa-text\ndataset: {data}\n", encoding="utf-8")
    found, expected = (session(model, tmp_path / f"{i}.json", suites=(suite,)) for i, model in enumerate((url, "demo")))
    assert len(found["records"]) == _NUM_QUESTIONS[name]
    check(found, expected, _TOLERANCE[name])


_JUDGED = """
suite: {name}
samples:
  - {{id: one, question: What is the capital of France?, target: "Paris, in France", other: It is Paris.}}
  - {{id: two, question: How many legs has a spider?, target: "8", other: Eight.}}
  - {{id: three, question: Which is larger, 3 or 5?, target: "5", other: "`5`"}}
prompt: {{template: "Question: {{{{ question }}}}\\nAnswer:"}}
generate: {{max_tokens: 12}}
score: {{{score}}}
"""
_SCORES = {
    "aspects": "aspects: {n_iter: 2}",
    "rubric": "rubric: {criteria: {right: It is right., kind: {text: It is kind., labels: [rude, so so, kind]}}}",
    "equivalence": "equivalence: {math: false, prompt: '{{ default_prompt }} Be brief.'}",
    "pairwise": "pairwise: {against: other}",
}


def test_each_verdict_of_a_judge_that_is_held_to_a_schema_is_read(server: tuple[str, str], tmp_path: Path) -> None:
    """The demo model as a judge writes nonsense in the form that was asked for: worthless, and all of it read."""
    suites = []
    for name, score in _SCORES.items():
        suites.append(tmp_path / f"{name}.yaml")
        suites[-1].write_text(_JUDGED.format(name=name, score=score), encoding="utf-8")
    report = session("demo", tmp_path / "judged.json", "--llm-judge", server[1], suites=tuple(suites))
    assert {suite["name"]: suite["num_scored"] for suite in report["suites"]} == dict.fromkeys(sorted(_SCORES), 3)
    verdicts = [one for record in report["records"] for one in record["details"].get("verdicts", [])]
    assert len(verdicts) == 3 * (2 + 1 + 1 + 2)
    assert {one["tries"] for one in verdicts} == {1}
    assert all("value" in one for one in verdicts)


def check(found: Any, expected: Any, tolerance: float) -> None:
    """Whether two reports have the same suites with the same answers, and nearly the same numbers."""
    for suite, other in zip(found["suites"], expected["suites"], strict=True):
        assert suite["name"] == other["name"]
        for metric in ("accuracy", "brier"):
            values = [report["metrics"].get(metric, {}).get("value") for report in (suite, other)]
            assert values[0] == pytest.approx(values[1], abs=tolerance), suite["name"]
    answers = {(record["suite"], record["id"]): record["answer"] for record in expected["records"]}
    assert {(record["suite"], record["id"]): record["answer"] for record in found["records"]} == answers
    difference = largest_difference(found, expected)
    print(f"largest difference of a log-likelihood: {difference:.2g} nats")  # noqa: T201
    assert difference < tolerance


def logprobs(report: Any) -> dict[tuple[str, str], list[float]]:
    """The log-likelihoods of the options of each sample that has them."""
    return {
        (record["suite"], record["id"]): [value for value in numbers if math.isfinite(value)]
        for record in report["records"]
        if (numbers := record["details"].get("loglikelihoods"))
    }


def largest_difference(one: Any, other: Any) -> float:
    """Of the log-likelihoods (nats) of two reports."""
    first, second = logprobs(one), logprobs(other)
    assert first.keys() == second.keys()
    assert first, "no log-likelihoods to compare"
    return max(abs(a - b) for key in first for a, b in zip(first[key], second[key], strict=True))


def test_each_kind_of_request(server: tuple[str, str]) -> None:
    name, url = server
    question = "Question: Ada has 3 coins and finds 4 more. How many coins has Ada?\nAnswer:"
    written = [
        GenerateRequest(question, max_tokens=24, stop=("\n",)),
        GenerateRequest((Message(role="user", content=question),), max_tokens=24, stop=("\n",)),
    ]
    demo: Any = load_model(parse_model_spec("demo"), ModelSettings(device="cpu"))
    model: Any = load_model(parse_model_spec(url), ModelSettings())
    try:
        for found, expected in zip(model.loglikelihood(REQUESTS), demo.loglikelihood(REQUESTS), strict=True):
            assert found.loglikelihood == pytest.approx(expected.loglikelihood, abs=_TOLERANCE[name])
            assert found.num_tokens == expected.num_tokens
        texts = [reply.text for reply in demo.generate(written)]
        assert [reply.text for reply in model.generate(written)] == texts
    finally:
        model.close()


_WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
_TOOLS = tools_as_text([_WEATHER, {**_WEATHER, "name": "climate"}])
_CHAT = (Message(role="user", content="How will the weather be in Paris?"),)


def test_the_server_puts_tools_into_the_prompt(server: tuple[str, str]) -> None:
    """Tokens are counted as in this process, where the same template is given the same tools."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(DEMO), chat_template=CHAT_TEMPLATE)
    encoder = Encoder(tokenizer)
    model: Any = load_model(parse_model_spec(server[1]), ModelSettings())
    try:
        replies = ask(model, [GenerateRequest(_CHAT, max_tokens=8, tools=tools) for tools in ("", _TOOLS)])
    finally:
        model.close()
    for reply, tools in zip(replies, ("", _TOOLS), strict=True):
        assert isinstance(reply, GenerateResponse)
        assert reply.num_prompt_tokens == len(encoder.prompt(encoder.render(_CHAT, tools)))
        assert reply.tool_calls == (() if tools else None)


def test_a_call_in_the_server_s_own_field_is_read(server: tuple[str, str]) -> None:
    """The demo model calls nothing by itself: the server holds it to a call, which suites do not ask for."""
    fields = {
        "model": "demo",
        "messages": [{"role": "user", "content": _CHAT[0].content}],
        "tools": json.loads(tools_as_text([{**_WEATHER, "strict": True}])),  # else vLLM lets arguments be any JSON
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "max_tokens": 200,
        "temperature": 0,
        "frequency_penalty": 2,  # else it writes line breaks for ever
    }
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{server[1]}/chat/completions", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(asked, timeout=300) as answer:
        message = json.load(answer)["choices"][0]["message"]
    call = read_tool_calls(message["tool_calls"])[0]
    assert call.name == "weather"
    assert call.arguments is not None
    assert call.arguments["city"] in ("Paris", "Rome")


def test_a_suite_with_tools(server: tuple[str, str], tmp_path: Path) -> None:
    suite = tmp_path / "tools.yaml"
    samples = [
        {"question": _CHAT[0].content, "target": [{"weather": {"city": "Paris"}}]},
        {"question": "a", "target": []},
    ]
    head = {"prompt": {"chat": True, "tools": [_WEATHER]}, "generate": {"max_tokens": 8}, "score": "tool_calls"}
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in {"suite": "tools", **head, "samples": samples}.items()]
    suite.write_text("".join(lines), encoding="utf-8")
    report = session(server[1], tmp_path / "tools.json", suites=(suite,))
    assert [record["status"] for record in report["records"]] == ["wrong", "correct"]
    assert [record["answer"] for record in report["records"]] == [None, "no call"]
