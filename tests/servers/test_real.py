"""Real servers with the demo model beside the model in this process: all example suites, and each kind of request.

A campaign, which .ci/run leaves out. What is missing is installed first (``tests/servers/real.py``), from the package
index alone.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, Message
from tests.servers.real import SERVERS, running
from tests.servers.test_numbers import REQUESTS
from tests.support import REPOSITORY

pytestmark = pytest.mark.campaign

_TOLERANCE = {"vllm": 1e-4, "llama-cpp-python": 1e-3}
_SUITES = REPOSITORY / "example_suites"


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The name of a server that runs, and its URL."""
    with running(request.param) as url:
        yield request.param, url


def session(model: str, report: Path) -> Any:
    """The report of all example suites on ``model``."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(_SUITES)]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    options = ["--llm-model", model, "--llm-report", str(report)]
    done = subprocess.run([*command, *options], cwd=report.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text(encoding="utf-8"))


@cache
def _demo(folder: Path) -> Any:
    return session("demo", folder / "demo.json")


def test_example_suites(server: tuple[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    name, url = server
    found = session(url, tmp_path / "server.json")
    expected = _demo(tmp_path_factory.getbasetemp())
    for suite, other in zip(found["suites"], expected["suites"], strict=True):
        assert suite["name"] == other["name"]
        for metric in ("accuracy", "brier"):
            values = [report["metrics"].get(metric, {}).get("value") for report in (suite, other)]
            assert values[0] == pytest.approx(values[1], abs=_TOLERANCE[name]), suite["name"]
    answers = {(record["suite"], record["id"]): record["answer"] for record in expected["records"]}
    assert {(record["suite"], record["id"]): record["answer"] for record in found["records"]} == answers
    assert largest_difference(found, expected) < _TOLERANCE[name]


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
