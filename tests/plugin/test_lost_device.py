"""A CUDA device that is lost in the middle of a session ends it: all later calls would fail, and be no numbers."""

from __future__ import annotations

import json

import pytest

MODEL = '''
"""A device that is lost after the first call of a process, as long as there is a file `breaks`."""

import os

from pytest_llmeval.types import EmbeddingResponse, GenerateResponse, LoglikelihoodResponse, ModelIdentity

num_calls = 0


def call():
    global num_calls
    num_calls += 1
    with open("calls", "a") as file:
        file.write("1")
    if num_calls > 1 and os.path.exists("breaks"):
        raise RuntimeError("CUDA error: device-side assert triggered\\nCompile with TORCH_USE_CUDA_DSA.")


class Model:
    identity = ModelIdentity(name="model", backend="test", fingerprint="1")

    def generate(self, requests):
        call()
        return [GenerateResponse(text="yes") for _ in requests]

    def loglikelihood(self, requests):
        call()
        return [LoglikelihoodResponse(loglikelihood=-len(one.continuation), num_tokens=1) for one in requests]

    def embed(self, requests):
        call()
        return [EmbeddingResponse(vector=[1.0, 0.0]) for _ in requests]


def function(prompt):
    call()
    return "yes"


def echo(prompt):
    return prompt
'''

SUITE = "suite: yes\nprompt: {template: '{{ question }}'}\nsamples:\n" + "".join(
    f"- {{id: s{number}, question: 'Is {number} a number?', target: 'yes'}}\n" for number in range(16)
)
CHOICE = "choices: ['yes', 'never']\nscore: choice\n"
EMBEDDED = "score: similarity\n"
ERROR = "RuntimeError: CUDA error: device-side assert triggered"
FUNCTION = "--llm-model=python:lost:function"
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("settings", "options", "unscored"),
    [
        ("score: exact\n", ["--llm-model=python:lost:Model"], 12),
        pytest.param(CHOICE, ["--llm-model=python:lost:Model"], 12, marks=slow),
        (EMBEDDED, ["--llm-model=python:lost:echo", "--llm-embedder=python:lost:Model"], 15),
        pytest.param("score: exact\n", [FUNCTION], 15, marks=slow),
        pytest.param("score: exact\n", ["-n2", "--llm-model=python:lost:Model"], None, marks=slow),
    ],
    ids=["replies", "log-likelihoods", "embeddings", "function", "n2"],
)
def test_a_lost_device_ends_the_session(
    llm_pytester: pytest.Pytester, settings: str, options: list[str], unscored: int | None
) -> None:
    llm_pytester.makefile(".yaml", yes=SUITE + settings)
    llm_pytester.makepyfile(lost=MODEL)
    calls, breaks = llm_pytester.path / "calls", llm_pytester.path / "breaks"
    breaks.touch()
    arguments = ["--llm-batch-size=4", "--llm-report=report.json", "--llm-store=store", *options, "yes.yaml"]
    result = llm_pytester.runpytest_subprocess(*arguments)
    assert result.ret == 1
    report = json.loads((llm_pytester.path / "report.json").read_text(encoding="utf-8"))
    assert report["stopped"].startswith(f"the model stopped: {ERROR}")
    reasons = [record["reason"] for record in report["records"] if record["status"] == "unscored"]
    assert len(report["records"]) == 16
    assert {reason.removeprefix("the model stopped: ") for reason in reasons} == {ERROR}
    assert unscored in (len(reasons), None)
    # Of the calls that failed the second shows whether the first sample of the first was to blame for it.
    assert len(calls.read_text()) <= (6 if "-n2" in options else 3)
    breaks.unlink()
    result = llm_pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=16)
