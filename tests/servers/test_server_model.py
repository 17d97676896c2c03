"""``ServerModel``: futures, groups of options, cancelled requests, a model that stops, and a session with it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.servers.vllm_sglang import VLLM
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse
from tests.servers.conftest import Connect
from tests.servers.language_models import DEMO, Softened
from tests.servers.stub import StubServer

pytestmark = pytest.mark.usefixtures("no_rests")

_QUESTION = "Question: Which of these animals lives in the sea?\nA. horse\nB. whale\nC. eagle\nAnswer:"


def test_options_that_share_their_beginning(connect: Connect, demo: Any) -> None:
    """Each is what it is alone: by one request for what they share, and one for their last tokens."""
    requests = [LoglikelihoodRequest("The sun is", f" very {word}") for word in ("hot", "cold", "old")]
    expected = demo.loglikelihood(requests)
    with StubServer("vllm") as stub:
        model = connect(stub)
        before = stub.num_questions
        found = model.loglikelihood(requests)
        assert stub.num_questions - before == 2
    for own, other in zip(found, expected, strict=True):
        assert isinstance(own, LoglikelihoodResponse)
        assert own.loglikelihood == pytest.approx(other.loglikelihood, abs=1e-4)
        assert (own.num_tokens, own.is_greedy) == (other.num_tokens, other.is_greedy)
        assert own.is_timed is False


def test_a_server_that_comes_back_as_another_stops_the_model(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers would be taken for those of the first."""
    monkeypatch.setattr("pytest_llmeval.models.servers.client._BASE_DELAY_S", 0.01)
    monkeypatch.setattr("pytest_llmeval.models.servers.client._SHORTEST_RESTART_S", 0.0)
    request = GenerateRequest("Once", max_tokens=2)
    with StubServer("vllm", instant=True) as stub:
        model = connect(stub)
        port = int(stub.host.rpartition(":")[2])
    with StubServer("vllm", instant=True, port=port) as same:
        assert isinstance(model.generate([request])[0], GenerateResponse)
        assert same.counts["/v1/models"] >= 1
    with StubServer("vllm", instant=True, port=port) as other:
        other.wire.root = "/another/folder"
        for _ in range(2):
            with pytest.raises(ModelError, match=r"started anew in the middle.*/no/such/folder.*/another/folder"):
                model.generate([request])
        assert other.num_questions == 0


@pytest.mark.parametrize("dialect", ["generic", "llama-server"])
def test_other_weights_under_the_same_name_are_found(
    dialect: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_llmeval.models.servers.client._BASE_DELAY_S", 0.01)
    monkeypatch.setattr("pytest_llmeval.models.servers.client._SHORTEST_RESTART_S", 0.0)
    request = LoglikelihoodRequest("Once", " upon a time")
    with StubServer(dialect) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        (before,) = model.loglikelihood([request])
        port = int(stub.host.rpartition(":")[2])
    with StubServer(dialect, port=port):
        assert model.loglikelihood([request])[0].loglikelihood == pytest.approx(before.loglikelihood, abs=1e-4)
    with StubServer(dialect, port=port) as other:
        other.wire.numbers.model = Softened(other.wire.numbers.model)
        with pytest.raises(ModelError, match=r"as another one: the logprob of a token differs by|is another one"):
            model.loglikelihood([request])


def test_a_server_that_is_still_loading_is_waited_for(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama-server lists its model before it says anything else of it."""
    monkeypatch.setattr("pytest_llmeval.models.servers.client._BASE_DELAY_S", 0.01)
    monkeypatch.setattr("pytest_llmeval.models.servers.client._SHORTEST_RESTART_S", 0.0)
    with StubServer("llama-server", instant=True) as stub:
        model = connect(stub)
        port = int(stub.host.rpartition(":")[2])
    with StubServer("llama-server", instant=True, port=port) as same:
        answer, num_asked = same.wire.routes["GET", "/props"], 0

        def loading(body: Any) -> Any:
            nonlocal num_asked
            num_asked += 1
            if num_asked < 4:
                raise same.wire.error(503, "Loading model")
            return answer(body)

        same.wire.routes["GET", "/props"] = loading
        assert isinstance(model.generate([GenerateRequest("Once", max_tokens=2)])[0], GenerateResponse)
    assert num_asked >= 4


def test_equal_requests_are_asked_once(connect: Connect) -> None:
    with StubServer("llama-cpp-python") as stub:
        model = connect(stub)
        before = stub.num_questions
        found = model.loglikelihood([LoglikelihoodRequest(_QUESTION, " B")] * 3)
        assert stub.num_questions - before == 1
    assert len({response.loglikelihood for response in found}) == 1


def test_submit_does_not_wait_and_cancelled_requests_are_not_sent(connect: Connect) -> None:
    may_answer, num_held = threading.Event(), threading.Semaphore(0)
    with StubServer("vllm", instant=True) as stub:
        model = connect(stub, "max_connections=2")
        before, answer = stub.num_questions, stub.wire.completions

        def completions(body: dict[str, Any]) -> Any:
            num_held.release()
            may_answer.wait(60)
            return answer(body)

        stub.wire.routes["POST", "/v1/completions"] = completions
        futures: list[Future[Any]] = model.submit([GenerateRequest(f"number {n}", max_tokens=1) for n in range(40)])
        assert not any(future.done() for future in futures)
        assert model.num_concurrent == 2 * VLLM.num_together
        for _ in range(2):
            assert num_held.acquire(timeout=60)
        for future in futures[2:]:
            future.cancel()
        may_answer.set()
        assert all(isinstance(future.result(), GenerateResponse) for future in futures[:2])
        assert isinstance(model.generate([GenerateRequest("the last", max_tokens=1)])[0], GenerateResponse)
        assert stub.num_questions - before == 3


def test_error_belongs_to_its_request(connect: Connect) -> None:
    with StubServer("vllm") as stub:
        good, bad = connect(stub).loglikelihood(
            [LoglikelihoodRequest(_QUESTION, " B"), LoglikelihoodRequest(_QUESTION, "")]
        )
    assert isinstance(good, LoglikelihoodResponse)
    assert isinstance(bad, RequestError)


def test_model_that_stops_fails_all_that_follows_with_one_line(connect: Connect) -> None:
    with StubServer("vllm") as stub:
        model = connect(stub)
        stub.faults["unauthorized"] = 1.0
        lines = set()
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                model.generate("The sun is", max_tokens=1)
            lines.add(str(caught.value))
        before = stub.num_questions
        with pytest.raises(ModelError):
            model.generate("The sun is", max_tokens=1)
        assert stub.num_questions == before
    assert len(lines) == 1
    assert "\n" not in lines.pop()


SUITE = """\
suite: animals
samples:
  - {question: "Which lives in the sea?", target: 1}
choices: [horse, whale]
prompt: {template: "{{ question }}\\nAnswer:"}
score: choice
"""


def test_session_says_what_the_self_test_found(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", animals=SUITE)
    with StubServer("vllm", instant=True) as stub:
        result = llm_pytester.runpytest_subprocess(
            f"--llm-model={stub.url}", "animals.yaml", "--llm-report=report.json"
        )
    result.stdout.fnmatch_lines(
        [f"llm-model: {stub.url} (vllm 0.32.0, demo; self-test: text, chat, log-likelihoods (echo and generation*"]
    )
    assert '"log-likelihoods": "works"' in (llm_pytester.path / "report.json").read_text("utf-8")


def test_suite_that_needs_log_likelihoods_is_refused_with_the_reason(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", animals=SUITE)
    with StubServer("vllm", faults=["echo-ignored"], instant=True) as stub:
        result = llm_pytester.runpytest_subprocess(f"--llm-model={stub.url}", "animals.yaml")
    result.stdout.fnmatch_lines(
        ["*animals.yaml:6: score: choice compares log-likelihoods, and http* gives texts only (27 tokens*: letter*"]
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
