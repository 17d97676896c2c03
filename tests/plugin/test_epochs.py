"""Suites whose samples are asked several times, on a model that answers by epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CONFTEST = """
import json
from pathlib import Path

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import ModelIdentity
from pytest_llmeval.types import GenerateResponse

REPLIES = {"1 + 1": "2222", "2 + 3": "4554", "4 + 4": "??7?"}


class ByEpoch:
    identity = ModelIdentity(name="by-epoch", backend="script", fingerprint="by-epoch")

    def generate(self, requests):
        return [self.reply(request) for request in requests]

    def reply(self, request):
        found = next((found for part, found in REPLIES.items() if part in request.prompt), None)
        if found is None:
            return RequestError("out of paper") if request.epoch == 2 else GenerateResponse(text="9")
        return GenerateResponse(text=found[request.epoch], num_prompt_tokens=3, num_tokens=1)


@pytest.fixture(scope="session")
def llm_model():
    return ByEpoch()
"""
SUMS = """\
suite: sums
samples:
  - {id: s1, question: "1 + 1 =", target: "2"}
  - {id: s2, question: "2 + 3 =", target: "5"}
  - {id: s3, question: "4 + 4 =", target: "8"}
generate: {temperature: 0.8}
filters: [{regex: "[0-9]"}]
score: exact
epochs: @EPOCHS@
"""
"""s1 is right four times, s2 twice, s3 never, and only once with an answer."""


def run(pytester: pytest.Pytester, epochs: str, *options: str, ret: int = 0, suite: str = SUMS) -> Any:
    pytester.makeconftest(CONFTEST)
    pytester.makefile(".yaml", sums=suite.replace("@EPOCHS@", epochs))
    result = pytester.runpytest(*options, "--llm-report=out.json", "sums.yaml")
    assert result.ret == ret
    return result


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((Path(pytester.path) / "out.json").read_text(encoding="ascii"))
    return report


def test_mean(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, "4", *workers)
    result.stdout.fnmatch_lines(["sums*3*0.500*", "*2 passed, 1 wrong in*"])
    report = report_of(llm_pytester)
    records = {record["id"]: record for record in report["records"]}
    assert {name: (record["status"], record["values"]) for name, record in records.items()} == {
        "s1": ("correct", {"accuracy": 1.0}),
        "s2": ("scored", {"accuracy": 0.5}),
        "s3": ("wrong", {"accuracy": 0.0}),
    }
    assert records["s2"]["details"]["outputs"] == ["4", "5", "5", "4"]
    assert [epoch["status"] for epoch in records["s2"]["details"]["epochs"]] == ["wrong", "correct", "correct", "wrong"]
    assert records["s2"]["num_tokens"] == 4
    assert report["suites"][0]["settings"]["epochs"] == {"count": 4, "reduce": ["mean"], "vote": "answer"}


def test_majority(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, "{count: 4, reduce: mode}", *workers)
    result.stdout.fnmatch_lines(["sums*3*0.333*", "*1 passed, 2 wrong in*"])
    records = {record["id"]: record for record in report_of(llm_pytester)["records"]}
    # The reply without an answer is the most frequent one of s3, and does not vote.
    assert {name: (record["answer"], record["output"]) for name, record in records.items()} == {
        "s1": ("2", "2"),
        "s2": ("4", "4"),
        "s3": ("7", "7"),
    }


def test_pass_at_k(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, "{count: 4, reduce: [pass@1, pass@2, pass^2]}", *workers)
    result.stdout.fnmatch_lines(["*pass@1*"])
    metrics = report_of(llm_pytester)["suites"][0]["metrics"]
    assert {name: metric["value"] for name, metric in metrics.items()} == {
        "pass@1": pytest.approx((1 + 1 / 2 + 0) / 3),
        "no_answer": 0,
        "pass@2": pytest.approx((1 + 5 / 6 + 0) / 3),
        "pass^2": pytest.approx((1 + 1 / 6 + 0) / 3),
    }


def test_several_scorers_reduce_each_their_own(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    several = """\
score:
  several:
    scorers:
      one: {score: exact, reduce: first}
      best: {score: exact, reduce: any}
"""
    result = run(llm_pytester, "4", *workers, suite=SUMS.replace("score: exact\n", several))
    result.stdout.fnmatch_lines(["sums*3*0.333*0.667*", "*1 passed, 2 wrong in*"])


def test_one_epoch_that_fails_leaves_its_sample_unscored(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = SUMS.replace("generate:", '  - {id: s4, question: "9 + 9 =", target: "18"}\ngenerate:')
    result = run(llm_pytester, "4", *workers, ret=1, suite=suite)
    result.stdout.fnmatch_lines(["  sums.yaml::s4: out of paper", "*1 failed, 2 passed, 1 wrong in*"])


def test_greedy_replies_are_not_asked_for_twice(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, "4", ret=2, suite=SUMS.replace("0.8", "0"))
    result.stdout.fnmatch_lines(
        ["sums.yaml:9: epochs: every sample is asked 4 times, and at temperature 0 all replies are the same; set *"]
    )


def test_fingerprints_cover_epochs_and_filters(llm_pytester: pytest.Pytester) -> None:
    found = set()
    for epochs, suite in (
        ("4", SUMS),
        ("3", SUMS),
        ("{count: 4, reduce: mode}", SUMS),
        ("4", SUMS.replace("[0-9]", "[0-8]")),
    ):
        run(llm_pytester, epochs, suite=suite)
        report = report_of(llm_pytester)
        found.add(report["suites"][0]["fingerprint"])
        found.add(report["records"][0]["fingerprint"])
    assert len(found) == 8
