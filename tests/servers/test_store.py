"""Replies of servers are kept: a rerun pays for what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.models.servers.model import ServerModel
from pytest_llmeval.types import GenerateRequest, GenerateResponse
from tests.servers.conftest import Connect
from tests.servers.stub import StubServer
from tests.servers.test_server_sessions import choices_suite, report_of, run, written_suite

_WEEK = "--llm-store-max-age=7d"


def questions_of(stub: StubServer, text: str = "What is") -> int:
    """Requests of the suite: those of a self-test ask something else."""
    return sum(text in json.dumps(seen.body) for seen in stub.seen)


def values(folder: Path) -> list[Any]:
    return [(record["id"], record["values"], record["output"]) for record in report_of(folder)["records"]]


@pytest.mark.parametrize("kind", ["choices", "written"])
def test_a_second_run_sends_its_self_test_only(llm_pytester: pytest.Pytester, workers: list[str], kind: str) -> None:
    suite = (choices_suite if kind == "choices" else written_suite)(llm_pytester, 20)
    with StubServer("vllm", instant=True) as stub:
        first = run(llm_pytester, workers, "--llm-model", stub.url, _WEEK, suite, "--llm-store")
        assert first.ret == 0, first.stdout.str()
        found = values(llm_pytester.path)
        assert questions_of(stub) >= 20
    with StubServer("vllm", instant=True, port=int(stub.host.rpartition(":")[2])) as again:
        second = run(llm_pytester, workers, "--llm-model", again.url, _WEEK, suite, "--llm-store")
        assert questions_of(again) == 0
    second.stdout.fnmatch_lines(["store .llmeval: 20 of 20 samples reused, *"])
    assert values(llm_pytester.path) == found


def test_a_server_that_does_not_say_which_weights_it_has_needs_a_limit_of_age(llm_pytester: pytest.Pytester) -> None:
    suite = written_suite(llm_pytester, 5)
    with StubServer("vllm", instant=True) as stub:
        for number in (5, 10):
            result = run(llm_pytester, ["-p", "no:xdist"], "--llm-model", stub.url, suite, "--llm-store")
            assert questions_of(stub) == number
    result.stdout.fnmatch_lines(["store: *: replies are kept, not reused: the server does not say which weights*"])


@pytest.mark.parametrize(("dialect", "is_known"), [("ollama", True), ("vllm", False), ("llama-server", False)])
def test_which_servers_name_their_weights(connect: Connect, dialect: str, is_known: bool) -> None:
    with StubServer(dialect, instant=True) as stub:
        model: ServerModel = connect(stub)
        assert (model.why_weights_may_change is None) == is_known
        assert model.identity.details.get("known_by_content", False) == is_known


def test_what_a_content_filter_ended_is_asked_again_and_nothing_else(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    suite = written_suite(llm_pytester, 20)
    with StubServer("vllm", instant=True) as stub:
        answer = stub.wire.answer

        def filtered(method: str, path: str, headers: Any, body: Any) -> Any:
            reply = answer(method, path, headers, body)
            if "What is 1" in str(body):  # w1 and w10 to w19
                reply["choices"][0]["finish_reason"] = "content_filter"
            return reply

        stub.wire.answer = filtered  # type: ignore[method-assign]
        arguments = ["--llm-model", stub.url, _WEEK, suite, "--llm-store"]
        run(llm_pytester, workers, *arguments)
        assert unscored(llm_pytester.path) == {"w1", *(f"w{n}" for n in range(10, 20))}
        before = questions_of(stub)
        stub.wire.answer = answer  # type: ignore[method-assign]
        run(llm_pytester, workers, *arguments)
        assert questions_of(stub) - before == 11
    assert unscored(llm_pytester.path) == set()


def unscored(folder: Path) -> set[str]:
    return {record["id"] for record in report_of(folder)["records"] if record["status"] == "unscored"}


def test_a_kept_reply_has_the_price_of_today(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """What the tokens cost when they were asked for is no part of the reply."""
    suite = written_suite(llm_pytester, 4)
    with StubServer("vllm", instant=True) as stub:
        found = []
        for prices in (["price_in=1000"], ["price_in=3000"], []):
            options = [f"--llm-model-arg={price}" for price in prices]
            result = run(llm_pytester, workers, "--llm-model", stub.url, *options, _WEEK, suite, "--llm-store")
            assert result.ret == 0, result.stdout.str()
            found.append(report_of(llm_pytester.path)["suites"][0]["cost"])
        assert questions_of(stub) == 4
    result.stdout.fnmatch_lines(["store .llmeval: 4 of 4 samples reused, *"])
    assert found[1] == pytest.approx(3 * found[0])
    assert found[2] is None


def test_equal_requests_cost_what_each_has_read(connect: Connect) -> None:
    """Each counts the tokens as its own, and so the cost."""
    with StubServer("vllm", instant=True) as stub:
        model: ServerModel = connect(stub, "price_in=1000")
        requests = [GenerateRequest("Say it.", max_tokens=2)] * 2
        answers = [future.result(timeout=60) for future in model.submit(requests)]
    for answer in answers:
        assert isinstance(answer, GenerateResponse)
        assert answer.cost == pytest.approx(answer.num_prompt_tokens * 1e-3)
