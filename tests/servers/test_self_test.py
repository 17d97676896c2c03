"""What the self-test says of a server: what works, and in one line why the rest is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.huggingface.kind import demo_folder
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.servers.model import ServerModel
from pytest_llmeval.models.settings import ModelSettings
from tests.servers.language_models import Softened
from tests.servers.stub import StubServer

SCORING = ("vllm", "sglang", "llama-server", "llama-cpp-python")


def load(url: str, **arguments: str) -> ServerModel:
    text = "&".join(f"{name}={value}" for name, value in arguments.items())
    model = load_model(parse_model_spec(f"{url}?{text}" if text else url), ModelSettings())
    assert isinstance(model, ServerModel)
    return model


def refusal(dialect: str, *faults: str, **arguments: str) -> str | None:
    """Why the log-likelihoods of a server with these faults are refused."""
    with StubServer(dialect, faults=faults) as stub:
        model = load(stub.url, **arguments)
        model.close()
    return model.verdict.loglikelihood


@pytest.mark.parametrize("dialect", SCORING)
def test_sound(dialect: str) -> None:
    with StubServer(dialect) as stub:
        model = load(stub.url)
        model.close()
    verdict = model.verdict
    assert (verdict.text, verdict.chat, verdict.loglikelihood) == (None, None, None)
    knows_tokenizer = dialect in ("vllm", "sglang")  # which name its folder
    assert [note.split(",")[0] for note in verdict.notes] == ["tokens and BOS are the server's own"][knows_tokenizer:]
    assert verdict.largest_difference is not None
    assert verdict.largest_difference < 1e-4
    assert verdict.uses_next == (dialect != "llama-cpp-python")
    assert model.identity.details["server"] == dialect
    assert model.identity.details["self_test"] == verdict.as_json()
    assert (model.identity.fingerprint is None) == ("alias" in model.identity.details)
    assert "self-test: text, chat, log-likelihoods (echo and generation within" in model.summary
    assert stub.num_questions < (130 if dialect == "llama-server" else 40)  # which is asked token by token


REASONS = {
    "echo-ignored": "tokens were sent and the server's echo has 0",
    "shifted": "changes by up to",
    "doubled-bos": "tokens of a text than the server",
    "processed": "when the server writes them",
}


@pytest.mark.parametrize("fault", REASONS)
def test_reason(fault: str) -> None:
    assert REASONS[fault] in str(refusal("vllm", fault))


def test_missing_logits() -> None:
    reason = str(refusal("llama-cpp-python", "no-logits-all"))
    assert reason.endswith("start it with --logits_all true")


@pytest.mark.parametrize("fault", ["no-bos", "doubled-bos"])
def test_local_tokenizer_and_server_disagree(fault: str) -> None:
    """Of the server's own tokenizer these faults are habits; a tokenizer that was named shows them."""
    reason = str(refusal("llama-server", fault, tokenizer=str(demo_folder())))
    assert "makes 69 other tokens of a text than the server" in reason


@pytest.mark.parametrize("arguments", [{}, pytest.param({"tokenizer": str(demo_folder())}, marks=pytest.mark.slow)])
def test_unknown_server(arguments: dict[str, str]) -> None:
    """It is tried by ids where a tokenizer is known, and by text."""
    assert refusal("generic", **arguments) is None
    assert refusal("generic", "shifted", **arguments)


def test_no_echo_at_all() -> None:
    with StubServer("transformers") as stub:
        model = load(stub.url)
        model.close()
    assert "404" in str(model.verdict.loglikelihood)
    assert model.lacks_method("suite", "loglikelihood") == model.verdict.loglikelihood
    assert model.lacks_method("suite", "generate") is None
    assert any("sent as one turn of the user" in note for note in model.verdict.notes)


@pytest.mark.parametrize("dialect", ["vllm", "ollama"])
def test_obedience(dialect: str) -> None:
    with StubServer(dialect, faults=["stop-ignored"]) as stub:
        model = load(stub.url)
        model.close()
    assert any("does not obey stop strings" in note for note in model.verdict.notes)
    with StubServer(dialect, faults=["max-tokens-ignored"]) as stub:
        if dialect == "ollama":  # which gives texts only
            with pytest.raises(ModelError, match="no text: max_tokens was 2 and"):
                load(stub.url)
            return
        model = load(stub.url)
        model.close()
    assert "max_tokens was 2 and" in str(model.verdict.text)
    assert "max_tokens was 2 and" in str(model.lacks_method("suite", "generate"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow one another at once."""
    monkeypatch.setattr("pytest_llmeval.models.servers.client._BASE_DELAY_S", 0.001)


def load_replicas(*stubs: StubServer, **arguments: str) -> ServerModel:
    first, *others = stubs
    text = "&".join([f"base_url={other.url}" for other in others] + [f"{k}={v}" for k, v in arguments.items()])
    model = load_model(parse_model_spec(f"{first.url}?{text}"), ModelSettings())
    assert isinstance(model, ServerModel)
    model.close()
    return model


@pytest.mark.parametrize("first_echo_fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_replicas_of_other_weights_are_refused(first_echo_fails: bool, impatient: None) -> None:
    """Also of weights that are nearly the same, and where not all went well on the way."""
    with StubServer("generic") as one, StubServer("generic") as other:
        other.wire.numbers.model = Softened(other.wire.numbers.model)
        answer, failures = other.wire.completions, [first_echo_fails]

        def completions(body: dict[str, Any]) -> Any:
            if body.get("echo") and failures and failures.pop():
                raise other.wire.error(500, "out of memory")
            return answer(body)

        other.wire.routes["POST", "/v1/completions"] = completions
        model = load_replicas(one, other, tokenizer=str(demo_folder()))
    reason = str(model.verdict.loglikelihood)
    assert reason.startswith(f"{other.url} has other weights: of one text the logprob of a token differs by")


def test_replicas_of_equal_weights_are_taken() -> None:
    with StubServer("generic") as one, StubServer("generic", max_length=2048) as other:
        model = load_replicas(one, other, tokenizer=str(demo_folder()))
    assert model.verdict.loglikelihood is None


def test_the_shortest_context_of_replicas_counts() -> None:
    with StubServer("vllm", instant=True, max_length=600) as one, StubServer("vllm", instant=True) as other:
        model = load_replicas(other, one)
    assert model.identity.details["max_length"] == 600


def test_replicas_of_other_names_are_refused() -> None:
    with StubServer("vllm", instant=True) as one, StubServer("vllm", instant=True) as other:
        other.wire.root = "/another/folder"
        with pytest.raises(ModelError, match=r"no replicas of one model.*/no/such/folder.*/another/folder"):
            load_replicas(one, other)


@pytest.mark.parametrize("dying", [0, 1])
@pytest.mark.parametrize("after", [0, 5, 20])
def test_a_replica_that_dies_in_its_self_test_is_left_out(dying: int, after: int, impatient: None) -> None:
    faults = [[f"dies-after:{after}"] if place == dying else [] for place in range(2)]
    with (
        StubServer("vllm", instant=True, faults=faults[0]) as one,
        StubServer("vllm", instant=True, faults=faults[1]) as other,
    ):
        url = (one, other)[dying].url
        model = load_replicas(one, other, tokenizer=str(demo_folder()))
    assert model.verdict.loglikelihood is None
    assert model.verdict.notes == (f"{url} does not answer: left out",)


@pytest.mark.parametrize("dialect", ["vllm", "generic", "llama-server"])
def test_a_server_that_is_busy_is_not_one_that_cannot(dialect: str, impatient: None) -> None:
    with StubServer(dialect, instant=True, faults=["429-no-retry-after:1"]) as stub:
        arguments = {"dialect": dialect, "model": "demo"}
        with pytest.raises(ModelError, match=r"the self-test of chats could not be ended: .*429"):
            load(stub.url, **arguments)


def test_a_server_that_is_busy_with_log_likelihoods(impatient: None) -> None:
    with StubServer("vllm", instant=True) as stub:
        answer = stub.wire.completions

        def completions(body: dict[str, Any]) -> Any:
            if body.get("echo"):
                raise stub.wire.error(503, "no slot is free")
            return answer(body)

        stub.wire.routes["POST", "/v1/completions"] = completions
        with pytest.raises(ModelError, match=r"the self-test of log-likelihoods could not be ended: .*503"):
            load(stub.url)


def test_a_path_that_a_proxy_keeps_back_ends_nothing() -> None:
    with StubServer("vllm", instant=True) as stub:

        def keep_back(body: dict[str, Any]) -> Any:
            raise stub.wire.error(403, "Forbidden")

        stub.wire.routes["POST", "/tokenize"] = keep_back
        model = load(stub.url, tokenizer=str(demo_folder()))
        model.close()
    assert (model.verdict.text, model.verdict.loglikelihood) == (None, None)


def test_nothing_works() -> None:
    with StubServer("vllm", instant=True, faults=["wrong-choices"]) as stub, pytest.raises(ModelError) as caught:
        load(stub.url)
    assert re.search(r"nothing of it can be used: .*no text: .*0 choices, expected 1", str(caught.value))


def test_a_redirect_is_named() -> None:
    with StubServer("vllm", instant=True, faults=["redirect"]) as stub, pytest.raises(ModelError) as caught:
        load(stub.url)
    assert "redirects to 127.0.0.1:9, which is not followed: give that URL" in str(caught.value)


def test_a_tokenizer_that_is_not_there() -> None:
    with StubServer("vllm", instant=True) as stub, pytest.raises(ModelError) as caught:
        load(stub.url, tokenizer="/no/such/tokenizer")
    assert str(caught.value).count("model ") == 1
    assert str(caught.value).endswith("tokenizer=/no/such/tokenizer: there is no such folder")


def test_is_no_model_server() -> None:
    with StubServer("vllm", faults=["html"]) as stub, pytest.raises(ModelError) as caught:
        load(stub.url)
    assert "is not a model server: GET /models answered 200 with an HTML page" in str(caught.value)


def test_name_with_a_typo() -> None:
    with StubServer("vllm", name="llama-8b") as stub, pytest.raises(ModelError) as caught:
        load(stub.url, model="lama-8b")
    assert str(caught.value).endswith("has no model 'lama-8b'; did you mean 'llama-8b'?")
