"""Embeddings of a server: what it is asked, what is read of its replies, and that no fault becomes a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import EmbeddingRequest, EmbeddingResponse, GenerateRequest, LoglikelihoodRequest
from tests.plugin.embedder_for_tests import CLOSE_SUITE, write_embedder
from tests.plugin.judge_for_tests import records_of, report_of
from tests.servers.stub import StubServer

pytestmark = pytest.mark.usefixtures("quick_retries", "no_rests")

DIALECTS = ["vllm", "sglang", "llama-cpp-python", "llama-server", "ollama", "generic", "openai"]
Fault = Callable[[dict[str, Any]], object]


def embedder(stub: StubServer, arguments: str = "") -> Any:
    return load_model(parse_model_spec(f"{stub.url}{arguments}", role="embedder"), ModelSettings())


def right(text: str) -> tuple[float, ...]:
    """What the stub says of a text."""
    return (*(float(text.count(letter)) for letter in "abc"), len(text) / 8)


def embedded(model: Any, *texts: str) -> list[EmbeddingResponse | RequestError]:
    found: list[EmbeddingResponse | RequestError] = model.embed([EmbeddingRequest(text) for text in texts])
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_server_is_asked_for_embeddings_and_for_nothing_else(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "planted-key-93")
    with StubServer(dialect, instant=True) as stub:
        with closing(embedder(stub, "?api_key_env=A_KEY" if dialect == "openai" else "")) as model:
            texts = [f"a text, and {number} more: {'c' * number}" for number in range(5)]
            found = embedded(model, *texts, texts[0])
            assert model.embed("abba").vector == right("abba")
            with pytest.raises(RequestError, match="it is asked for embeddings alone"):
                model.generate("Once")
            (refused,) = model.loglikelihood([LoglikelihoodRequest("Once", " upon")])
            assert "embeddings alone" in str(refused)
        assert [one.vector for one in found] == [right(text) for text in (*texts, texts[0])]  # type: ignore[union-attr]
        asked = {path for path in stub.counts if path.endswith(("completions", "completion", "generate", "chat"))}
        assert not asked, "it may be unable to write"
        bodies = stub.bodies("/api/embed" if dialect == "ollama" else "/v1/embeddings")
    how = {"truncate": False} if dialect == "ollama" else {"encoding_format": "float"}
    assert bodies[-2] == {"model": bodies[-2]["model"], "input": texts, **how}, "each text once"
    assert model.identity.details["vector_length"] == 4
    assert model.identity.details["self_test"] == {"embeddings": "works"}
    assert (model.identity.fingerprint is None) == ("alias" in model.identity.details)


def test_what_it_takes_is_counted() -> None:
    with StubServer("vllm", instant=True) as stub, closing(embedder(stub, "?price_in=2")) as model:
        before = model.server_use
        found = [one for one in embedded(model, "aa", "bbbbb", "c") if isinstance(one, EmbeddingResponse)]
        use = model.server_use
        assert model.summary.endswith("self-test: embeddings")
    assert [one.num_prompt_tokens for one in found] == [2, 3, 3], "shares of what the server counts"
    assert use.num_requests == before.num_requests + 1
    assert use.num_prompt_tokens == before.num_prompt_tokens + 8
    assert use.cost == pytest.approx(use.num_prompt_tokens * 2e-6)
    assert not any(one.is_timed for one in found)


def test_many_texts_go_in_several_requests_each_of_a_size_that_servers_take() -> None:
    texts = [f"text {number}" for number in range(80)] + ["a" * 60_000, "b" * 60_000]
    with StubServer("vllm", instant=True, max_length=100_000) as stub, closing(embedder(stub)) as model:
        found = embedded(model, *texts)
        sizes = [body["input"] for body in stub.bodies("/v1/embeddings")[1:]]
    assert [one.vector for one in found] == list(map(right, texts))  # type: ignore[union-attr]
    assert max(map(len, sizes)) <= 32
    assert max(sum(map(len, texts)) for texts in sizes) <= 100_000
    assert len(sizes) <= 8


def test_a_text_that_is_refused_takes_no_other_with_it() -> None:
    with StubServer("vllm", instant=True, max_length=100) as stub, closing(embedder(stub)) as model:
        one, refused, other, empty = embedded(model, "one", "long " * 30, "other", "")
        surrogate, last = embedded(model, "\ud800", "last")
    assert [found.vector for found in (one, other, last)] == [right("one"), right("other"), right("last")]  # type: ignore[union-attr]
    assert "400: 'input' has 150 characters" in str(refused)
    assert "400: 'input' has 0 characters" in str(empty)
    assert "lone surrogate" in str(surrogate)


def test_ollama_is_told_to_cut_nothing() -> None:
    with StubServer("ollama", instant=True, max_length=100) as stub, closing(embedder(stub)) as model:
        one, refused = embedded(model, "one", "long " * 30)
    assert (one.vector, one.num_prompt_tokens) == (right("one"), 3)  # type: ignore[union-attr]
    assert "the input length exceeds the context length" in str(refused)


def entry_with(value: object) -> Fault:
    """The entry of a text has this in its embedding's place."""
    return lambda entry: {**entry, "embedding": value}


FAULTS: dict[str, tuple[Fault, str]] = {
    "base64": (entry_with("AACAPwAAAEA="), "as text"),
    "null": (entry_with(None), "gave None in an embedding's place"),
    "a number": (entry_with(0.5), "gave 0.5 in an embedding's place"),
    "empty": (entry_with([]), "without numbers"),
    "NaN": (entry_with([1.0, math.nan, 0.0, 0.0]), "gave nan in an embedding"),
    "infinite": (entry_with([1.0, 2.0, math.inf, 0.0]), "gave inf in an embedding"),
    "beyond a float": (entry_with([1, 2, 3, 10**400]), "expected finite numbers"),
    "texts": (entry_with(["1", "2", "3", "4"]), "gave '1' in an embedding"),
    "true": (entry_with([True, 1.0, 1.0, 1.0]), "gave True in an embedding"),
    "nested": (entry_with([[1.0, 2.0, 3.0, 4.0]]), "gave [1.0, 2.0, 3.0, 4.0] in an embedding"),
    "too short": (entry_with([1.0, 2.0, 3.0]), "of 3 numbers, and others have 4"),
    "too long": (entry_with([1.0] * 5), "of 5 numbers, and others have 4"),
    "no index": (lambda entry: {"embedding": entry["embedding"]}, "have the index [None], expected 0 to 0"),
    "another index": (lambda entry: {**entry, "index": 7}, "have the index [7], expected 0 to 0"),
    "an index that is a text": (lambda entry: {**entry, "index": "0"}, "have the index ['0'], expected 0 to 0"),
    "an index that is a list": (lambda entry: {**entry, "index": [0]}, "have the index [[0]], expected 0 to 0"),
    "no entry": (lambda entry: None, "gave 0 embeddings for 1 text"),
    "an entry that is none": (lambda entry: [entry], "has no embeddings: "),
}


def faulty(fault: Fault) -> Callable[[list[str], dict[str, Any]], Any]:
    """The reply has this fault for texts that say so."""

    def reply(texts: list[str], payload: dict[str, Any]) -> Any:
        data = [fault(entry) if "FAULT" in texts[entry["index"]] else entry for entry in payload["data"]]
        return {**payload, "data": [entry for entry in data if entry is not None]}

    return reply


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_the_error_of_its_own_text(name: str) -> None:
    fault, words = FAULTS[name]
    with StubServer("vllm", instant=True, embeds=faulty(fault)) as stub, closing(embedder(stub)) as model:
        one, wrong, other = embedded(model, "one", "a FAULT", "other")
    assert isinstance(wrong, RequestError)
    assert words in str(wrong)
    assert "\n" not in str(wrong)
    assert [one.vector, other.vector] == [right("one"), right("other")]  # type: ignore[union-attr]


def without_data(texts: list[str], payload: dict[str, Any]) -> Any:
    return {"object": "list"}


def one_twice(texts: list[str], payload: dict[str, Any]) -> Any:
    return {**payload, "data": [{**entry, "index": 0} for entry in payload["data"]]}


def all_alike(texts: list[str], payload: dict[str, Any]) -> Any:
    return {**payload, "data": [{**entry, "embedding": [1.0, 0.0]} for entry in payload["data"]]}


def by_place(texts: list[str], payload: dict[str, Any]) -> Any:
    """Each text of a request has an embedding of another length."""
    return {**payload, "data": [{**entry, "embedding": [0.5] * (1 + entry["index"])} for entry in payload["data"]]}


@pytest.mark.parametrize(
    ("embeds", "words"),
    [
        (without_data, "no embeddings: the server's reply has no embeddings"),
        (all_alike, "two texts have the same embedding"),
        (by_place, "no embeddings: the server gave an embedding of 2 numbers, and others have 1"),
    ],
)
def test_a_server_that_gives_no_embeddings_is_refused_at_once(embeds: Any, words: str) -> None:
    with StubServer("vllm", instant=True, embeds=embeds) as stub, pytest.raises(ModelError, match=words) as caught:
        embedder(stub)
    assert "\n" not in str(caught.value)


def test_several_that_cannot_be_told_apart_are_asked_for_one_by_one() -> None:
    with StubServer("vllm", instant=True, embeds=one_twice) as stub, closing(embedder(stub)) as model:
        found = embedded(model, "a", "b", "c")
    assert [one.vector for one in found] == [right(text) for text in "abc"]  # type: ignore[union-attr]


def test_an_api_without_the_path_is_refused() -> None:
    with StubServer("vllm", instant=True) as stub:
        del stub.wire.routes["POST", "/v1/embeddings"]
        with pytest.raises(ModelError, match=r"nothing of it can be used: no embeddings: .* 404: "):
            embedder(stub)


def test_servers_of_other_lengths_are_no_replicas() -> None:
    def longer(texts: list[str], payload: dict[str, Any]) -> Any:
        return {**payload, "data": [{**e, "embedding": [*e["embedding"], 1.0]} for e in payload["data"]]}

    words = r"no replicas of one model: their embeddings have [45] and [45] numbers"
    with (
        StubServer("vllm", instant=True) as one,
        StubServer("vllm", instant=True, embeds=longer) as other,
        pytest.raises(ModelError, match=words),
    ):
        embedder(one, f"?base_url={other.url}")


def test_a_model_that_writes_can_be_asked_for_embeddings_too() -> None:
    with StubServer("vllm", instant=True) as stub:
        model: Any = load_model(parse_model_spec(stub.url), ModelSettings())
        with closing(model):
            assert model.embed("aab").vector == right("aab")
            assert model.generate([GenerateRequest("Once", max_tokens=2)])[0].text


@pytest.mark.parametrize(
    "workers", [["-p", "no:xdist"], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=["one-process", "n2"]
)
def test_the_same_server_writes_and_embeds_in_a_session(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    write_embedder(llm_pytester)
    suite = CLOSE_SUITE.replace(" response: aab,", "").replace(" response: aa,", "").replace(" response: a,", "")
    llm_pytester.makefile(".yaml", close=f"{suite}prompt: {{template: '{{{{ question }}}}'}}\n")
    with StubServer("vllm", instant=True) as stub:
        options = [f"--llm-model={stub.url}", f"--llm-embedder={stub.url}", "--llm-report=report.json"]
        result = llm_pytester.runpytest(*workers, *options, "close.yaml")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines([f"llm-embedder: {stub.url} (vllm *; self-test: embeddings)"])
    assert report_of(llm_pytester.path)["suites"][0]["judged_by"][0].startswith(f"the embedder {stub.url} (server, ")
    for record in records_of(llm_pytester.path).values():
        assert record["num_judge_requests"] == 2
        one, other = right(record["output"]), right(record["target"])
        dot = math.fsum(x * y for x, y in zip(one, other, strict=True))
        assert record["values"]["closeness"] == pytest.approx(dot / (math.hypot(*one) * math.hypot(*other)))


def test_no_key_in_what_an_embedder_says(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING_KEY", "planted-5e1f77a0c3")
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=CLOSE_SUITE)
    with StubServer("openai", instant=True, faults=["unauthorized"], key="another") as stub:
        option = f"--llm-embedder={stub.url}?api_key_env=EMBEDDING_KEY"
        result = llm_pytester.runpytest("-p", "no:xdist", option, "close.yaml")
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "refuses access (401" in text
    assert "planted-5e1f77a0c3" not in text
