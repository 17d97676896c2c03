"""A model that answers in the background is given samples ahead, and what was sent to it is told."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.reporting.tables.session import server_texts
from pytest_llmeval.types import ServerUse

MODEL = '''
"""Answers each sum after others, as a server would, and counts what it is sent."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from pytest_llmeval.errors import ModelStoppedError, RequestError
from pytest_llmeval.types import GenerateResponse, ServerUse


class Server:
    num_concurrent = 4

    def __init__(self, stops_at="", refuses="", replicas=False):
        self.pool = ThreadPoolExecutor(4)
        self.use = ServerUse()
        if replicas:
            counts = {"replica 2 on b": 10, "replica 1 on a": 30}
            self.use = ServerUse(replicas=counts, ended=("replica 2 on b: killed",))
        self.lock = threading.Lock()
        self.stops_at, self.refuses = stops_at, refuses
        self.given = []
        self.num_in_flight = 0

    @property
    def server_use(self):
        with self.lock:
            return self.use

    def submit(self, requests):
        self.given += [request.prompt for request in requests]
        return [self.pool.submit(self.answer, request) for request in requests]

    def answer(self, request):
        prompt = request.prompt
        if self.stops_at and self.stops_at in prompt:
            raise ModelStoppedError("model is gone: 401")
        deadline = time.monotonic() + 60
        while self.stops_at and int(prompt.split()[0]) > 3 and not os.path.exists("heard"):
            assert time.monotonic() < deadline, "the session did not hear that the model is gone"
            time.sleep(0.005)
        with self.lock:
            self.use += ServerUse(num_requests=1, retries={"429": 1}, num_prompt_tokens=5, num_tokens=1, cost=0.25)
        if self.refuses and self.refuses in prompt:
            return RequestError("refused by the content filter")
        return GenerateResponse(text=str(eval(prompt.removesuffix("="))), num_prompt_tokens=5, num_tokens=1)

    def generate(self, requests):
        raise AssertionError("it is asked in the background")

    def close(self):
        self.pool.shutdown()
        with open(f"closed-{os.getpid()}.json", "w") as file:
            json.dump(self.given, file)
'''


def run(pytester: pytest.Pytester, workers: list[str], *options: str, arguments: str = "") -> pytest.RunResult:
    samples = [{"id": f"s{n}", "question": f"{n} + {n}=", "target": str(2 * n)} for n in range(40)]
    suite = {"suite": "sums", "samples": samples, "prompt": {"template": "{{ question }}"}, "score": "exact"}
    pytester.makefile(".yaml", sums=yaml.safe_dump(suite, sort_keys=False))
    pytester.makepyfile(my_server=MODEL)
    model = f"--llm-model=python:my_server:Server{arguments}"
    return pytester.runpytest(*workers, model, "--llm-report=report.json", *options, "sums.yaml")


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_replicas_on_ray_are_told_by_what_they_answered(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, [], arguments="?replicas=true")
    result.stdout.fnmatch_lines(
        [
            "40 requests to 2 replicas (replica 1 on a 30, replica 2 on b 10)*",
            "a replica ended: replica 2 on b: killed",
        ]
    )
    (model,) = report_of(llm_pytester.path)["models"]
    assert model["use"]["replicas"] == {"replica 1 on a": 30, "replica 2 on b": 10}


@pytest.mark.parametrize(
    ("num_replicas", "counts", "expected"),
    [
        (2, {}, "m: 0 requests to 2 replicas"),  # all was in the store: and there is no server
        (1, {}, "m: 0 requests to 1 replica"),
        (2, {"replica 2 on a": 5}, "m: 5 requests to 1 of 2 replicas (replica 2 on a 5)"),
        (
            2,
            {"replica 10 on a": 5, "replica 2 on a": 1},
            "m: 6 requests to 2 replicas (replica 2 on a 1, replica 10 on a 5)",
        ),
    ],
)
def test_replicas_that_answered_nothing(num_replicas: int, counts: dict[str, int], expected: str) -> None:
    use = ServerUse(num_requests=sum(counts.values()), replicas=counts, ended=("replica 1 on a: killed",))
    model: dict[str, Any] = {"name": "m", "details": {"replicas": num_replicas}, "use": asdict(use)}
    assert list(server_texts([model, {"name": "n"}])) == [expected, "m: a replica ended: replica 1 on a: killed"]


def test_samples_are_given_ahead_and_the_use_is_summed(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, workers)
    assert result.ret == 0
    report = report_of(llm_pytester.path)
    assert [record["status"] for record in report["records"]] == ["correct"] * 40
    (model,) = report["models"]
    assert model["use"] == {
        "num_requests": 40,
        "served_models": {},
        "system_fingerprints": {},
        "retries": {"429": 40},
        "num_prompt_tokens": 200,
        "num_tokens": 40,
        "cost": 10.0,
        "left_out": [],
        "ended": [],
        "replicas": {},
    }
    result.stdout.fnmatch_lines(
        [
            "40 requests to the server, 200 prompt tokens and 40 generated as it counts them, tried again 40 times "
            "(429: 40), cost 10.00"
        ]
    )
    given = [json.loads(path.read_text()) for path in llm_pytester.path.glob("closed-*.json")]
    assert sorted(prompt for prompts in given for prompt in prompts) == sorted(f"{n} + {n}=" for n in range(40))
    assert len(given) == (2 if "-n2" in workers else 1)


def test_a_request_that_fails_is_its_samples_own(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, workers, arguments="?refuses=7 + 7")
    result.assert_outcomes(passed=39, failed=1)
    result.stdout.fnmatch_lines(["*not scored: *refused by the content filter*"])


def test_a_model_that_stops_ends_the_session_in_one_line(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """The other worker's samples wait until the session has heard of it, or they could all be answered before."""
    llm_pytester.makeconftest(
        """
        import os

        def pytest_runtest_logreport(report):
            if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
                open("heard", "w").close()
        """
    )
    result = run(llm_pytester, workers, arguments="?stops_at=3 + 3=")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["not scored: model is gone: 401", "stopped early (*"])
    result.stdout.fnmatch_lines(["  … and * more: the model stopped: model is gone: 401"])
    assert result.stdout.str().count("not scored:") <= 2, "at most one in each worker"
    report = report_of(llm_pytester.path)
    assert report["stopped"] == "the model stopped: model is gone: 401"
    statuses = [record["status"] for record in report["records"]]
    assert len(statuses) == 40
    assert statuses.count("unscored") > 20


def test_one_failure_ends_the_session_and_takes_back_the_rest(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, ["-p", "no:xdist"], "-x", arguments="?refuses=0 + 0=")
    result.assert_outcomes(failed=1)
    (given,) = (json.loads(path.read_text()) for path in llm_pytester.path.glob("closed-*.json"))
    assert len(given) <= 8
    assert os.path.exists(llm_pytester.path / "report.json")
