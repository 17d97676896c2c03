"""Log-likelihoods through servers are those of the model in this process, and what is wrong with a server is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.servers.llama_cpp import LlamaCppPython
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest, LoglikelihoodRollingRequest, Message
from tests.servers.conftest import Connect
from tests.servers.language_models import DEMO
from tests.servers.stub import StubServer

pytestmark = pytest.mark.usefixtures("no_rests")

_CONTEXT = "Question: What do people use to cut paper?\nA. a pair of scissors\nB. a lamp\nAnswer:"
REQUESTS = [
    # lettered options, which differ in one token
    *(LoglikelihoodRequest(_CONTEXT, f" {letter}") for letter in "ABCD"),
    # options of several tokens, some of which share their beginnings
    *(LoglikelihoodRequest(_CONTEXT, text) for text in (" scissors", " a lamp", " a pair of scissors", " a pair")),
    LoglikelihoodRequest("Question: What is 2 + 2? \n", "Answer: 4"),  # white space moves to the continuation
    LoglikelihoodRequest("The café — naïve, 漢字", " été 🙂!"),
    LoglikelihoodRequest("Ada has 17 coins.\nBen has 5", " coins."),
]
EMPTY = LoglikelihoodRequest("", "Passage: The lamp is red.")
SCORING = {
    "vllm": [],
    "vllm-tokenizer": [f"tokenizer={DEMO}"],
    "sglang": [f"tokenizer={DEMO}"],
    "llama-cpp-python": [],
    "llama-server": [],
    "generic": [f"tokenizer={DEMO}"],
}


def values(responses: Any) -> list[tuple[float, int]]:
    return [(response.loglikelihood, response.num_tokens) for response in responses]


_SLOW = {"vllm", "generic", "llama-server"}  # of which others are siblings; the last one is asked token by token


@pytest.mark.parametrize("dialect", [pytest.param(one, marks=[pytest.mark.slow] * (one in _SLOW)) for one in SCORING])
def test_loglikelihoods_are_the_models_own(dialect: str, connect: Connect, demo: Any) -> None:
    expected = demo.loglikelihood(REQUESTS)
    with StubServer(dialect.removesuffix("-tokenizer")) as stub:
        model = connect(stub, *SCORING[dialect])
        found = model.loglikelihood(REQUESTS)
    assert [number for _, number in values(found)] == [number for _, number in values(expected)]
    assert [value for value, _ in values(found)] == pytest.approx([value for value, _ in values(expected)], abs=1e-4)
    greedy = [(a.is_greedy, b.is_greedy) for a, b in zip(found, expected, strict=True) if a.is_greedy is not None]
    assert all(one == other for one, other in greedy)


@pytest.mark.parametrize(
    "dialect", ["vllm", "generic", *(pytest.param(one, marks=pytest.mark.slow) for one in ("sglang", "llama-server"))]
)
def test_an_empty_context_is_the_models_own(dialect: str, connect: Connect, demo: Any) -> None:
    with StubServer(dialect) as stub:
        (found,) = connect(stub, f"tokenizer={DEMO}").loglikelihood([EMPTY])
    assert found.loglikelihood == pytest.approx(demo.loglikelihood([EMPTY])[0].loglikelihood, abs=1e-4)


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_whole_texts_are_the_models_own(dialect: str, connect: Connect, demo: Any) -> None:
    requests = [LoglikelihoodRollingRequest("The lamp is red. The river is long.\nAda has 7 coins.")]
    with StubServer(dialect) as stub:
        (found,) = connect(stub, f"tokenizer={DEMO}").loglikelihood_rolling(requests)
    (expected,) = demo.loglikelihood_rolling(requests)
    assert found.loglikelihood == pytest.approx(expected.loglikelihood, abs=1e-4)


def test_windows_of_a_length_that_was_given(connect: Connect) -> None:
    """They are those of a model in this process with that ``max_length``; of its own, the server has two less."""
    text = LoglikelihoodRollingRequest(
        "The lamp is red. The river is long.\nAda has 7 coins and gives two to Ben. " * 20
    )
    local: Any = load_model(parse_model_spec("demo"), ModelSettings(device="cpu", model_args={"max_length": 128}))
    (expected,) = local.loglikelihood_rolling([text])
    with StubServer("vllm", max_length=130) as stub:
        found = [connect(stub, f"tokenizer={DEMO}", *more) for more in ([], ["max_length=128"])]
        values = [model.loglikelihood_rolling([text])[0].loglikelihood for model in found]
    assert values == pytest.approx([expected.loglikelihood] * 2, abs=1e-4)
    with StubServer("generic") as stub:
        (refused,) = connect(stub, f"tokenizer={DEMO}").loglikelihood_rolling([text])
    assert "--llm-model-arg max_length=N" in str(refused)


@pytest.mark.parametrize(
    "dialect",
    ["vllm", "sglang", "llama-cpp-python", pytest.param("llama-server", marks=pytest.mark.slow), "generic"],
)
def test_texts_and_chats_are_the_models_own(dialect: str, connect: Connect, demo: Any) -> None:
    question = "Question: Ada has 3 coins and finds 4 more. How many coins has Ada?\nAnswer:"
    requests = [
        GenerateRequest(question, max_tokens=24, stop=("\n",)),
        GenerateRequest((Message(role="user", content=question),), max_tokens=24, stop=("\n",)),
    ]
    with StubServer(dialect) as stub:
        found = connect(stub).generate(requests)
    expected = demo.generate(requests)
    assert [reply.text for reply in found] == [reply.text for reply in expected]
    assert [reply.finish_reason for reply in found] == [reply.finish_reason for reply in expected]
    assert [reply.num_tokens for reply in found] == pytest.approx([reply.num_tokens for reply in expected], abs=1)


@pytest.mark.parametrize("dialect", ["ollama", "openai", "anthropic", "transformers"])
def test_chats_of_servers_without_scores(
    dialect: str, connect: Connect, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_KEY", "sk-stub")
    chat = GenerateRequest((Message(role="user", content="Question: What is 3 + 4?\nAnswer:"),), max_tokens=12)
    key = [] if dialect == "ollama" else ["api_key_env=STUB_KEY"]
    with StubServer(dialect, key="sk-stub" if key else None) as stub:
        model = connect(stub, *key, *([f"dialect={dialect}"] if dialect in ("openai", "anthropic") else []))
        assert model.generate([chat])[0].text == demo.generate([chat])[0].text
        refusal = model.lacks_method("capitals", "loglikelihood")
    assert refusal


def refused(model: Any) -> str:
    """The reason why log-likelihoods are refused; asserts that they are."""
    reason = model.lacks_method("capitals", "loglikelihood")
    assert isinstance(reason, str), "the server is believed"
    return reason


_IDS = ("echo-ignored", "shifted", "no-bos", "doubled-bos", "nulls", "wrong-count", "order-dependent", "processed")
_BY_TEXT = (
    "echo-ignored",
    "nulls",
    "wrong-count",
    "shifted",
    "order-dependent",
    "processed",
    "no-bos",
    "no-logits-all",
)
_FAULTS = [
    *(("vllm", fault) for fault in (*_IDS, "ids-as-text")),
    *(("sglang", fault) for fault in (*_IDS, "ids-as-text")),
    *(("generic", fault) for fault in _IDS),
    *(("llama-cpp-python", fault) for fault in (*_BY_TEXT, "doubled-bos", "no-logits-all")),
    *(("llama-server", fault) for fault in ("echo-ignored", "shifted", "processed", "nulls", "wrong-count")),
    ("llama-server", "order-dependent"),
]


def _faults() -> Iterator[Any]:
    """Every one in the slow tier; each fault once, and each dialect, in the default run."""
    seen = set[str]()
    for dialect, fault in _FAULTS:
        marks = [pytest.mark.slow] if {dialect, fault} <= seen else []
        seen |= {dialect, fault}
        yield pytest.param(dialect, fault, marks=marks, id=f"{dialect}-{fault}")


@pytest.mark.parametrize(("dialect", "fault"), list(_faults()))
def test_a_fault_of_numbers_is_found(dialect: str, fault: str, connect: Connect) -> None:
    with StubServer(dialect, faults=[fault]) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        reason = refused(model)
        assert "\n" not in reason
        assert stub.num_questions < 60


def test_an_unknown_server_that_reads_ids_as_text_is_asked_by_text(connect: Connect, demo: Any) -> None:
    with StubServer("generic", faults=["ids-as-text"]) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        assert model.verdict.scores == "text"
        requests = [LoglikelihoodRequest(_CONTEXT, f" {letter}") for letter in "ABCD"]
        found, expected = model.loglikelihood(requests), demo.loglikelihood(requests)
    assert [value for value, _ in values(found)] == pytest.approx([value for value, _ in values(expected)], abs=1e-4)


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_texts_in_the_place_of_ids_are_found_or_do_no_harm(dialect: str, connect: Connect, demo: Any) -> None:
    with StubServer(dialect, faults=["texts-for-ids"]) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        if model.lacks_method("capitals", "loglikelihood") is None:
            found, expected = model.loglikelihood(REQUESTS), demo.loglikelihood(REQUESTS)
            assert [value for value, _ in values(found)] == pytest.approx([v for v, _ in values(expected)], abs=1e-4)


def test_another_tokenizer_than_the_servers_is_found(connect: Connect, tmp_path: Any) -> None:
    for file in DEMO.iterdir():
        if file.suffix in (".json", ".jinja"):
            text = file.read_text(encoding="utf-8")
            (tmp_path / file.name).write_text(text.replace(r" ?\\d+", r"\\d") if file.stem == "tokenizer" else text)
    with StubServer("vllm", instant=True) as stub:
        assert "token" in refused(connect(stub, f"tokenizer={tmp_path}"))


def test_a_server_that_writes_too_much_is_found(connect: Connect) -> None:
    with StubServer("vllm", instant=True, faults=["max-tokens-ignored"]) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        assert "max_tokens" in str(model.lacks_method("gsm8k", "generate"))


def test_stop_strings_are_cut_on_this_side(connect: Connect, demo: Any) -> None:
    request = GenerateRequest("Question: What is 3 + 4?\nAnswer:", max_tokens=24, stop=("oin",))
    with StubServer("vllm", faults=["stop-ignored"]) as stub:
        (found,) = connect(stub, f"tokenizer={DEMO}").generate([request])
    assert found.text == demo.generate([request])[0].text


@pytest.mark.parametrize("fault", ["content-null", "content-filter", "wrong-choices"])
def test_no_reply_is_an_error_of_its_sample(fault: str, connect: Connect) -> None:
    request = GenerateRequest((Message(role="user", content="What is 3 + 4?"),), max_tokens=8)
    with StubServer("vllm", instant=True) as stub:
        model = connect(stub)
        stub.faults[fault] = 1.0
        (found,) = model.generate([request])
    assert isinstance(found, RequestError)


def test_reasoning_is_kept_apart_from_the_reply(connect: Connect, demo: Any) -> None:
    request = GenerateRequest((Message(role="user", content="What is 3 + 4?"),), max_tokens=12, stop=("First",))
    with StubServer("vllm", faults=["reasoning"]) as stub:
        (found,) = connect(stub).generate([request])
    assert found.text == demo.generate([request])[0].text.lstrip()
    assert found.reasoning == "Let me think.\n\nFirst:"


def test_a_prompt_that_the_server_cuts_is_an_error(connect: Connect) -> None:
    with StubServer("ollama", instant=True, max_length=64) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        (found,) = model.generate([GenerateRequest("Once upon a time. " * 40, max_tokens=4)])
    assert isinstance(found, RequestError)


def test_a_prompt_longer_than_the_model_is_an_error_of_its_sample(connect: Connect) -> None:
    with StubServer("vllm", instant=True, max_length=128) as stub:
        model = connect(stub)
        requests = [LoglikelihoodRequest("Once upon a time. " * 60, " the"), LoglikelihoodRequest("Once", " upon")]
        long, short = model.loglikelihood(requests)
    assert isinstance(long, RequestError)
    assert short.num_tokens >= 1


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_options_of_one_token_are_asked_for_once(dialect: str, connect: Connect) -> None:
    requests = [LoglikelihoodRequest(f"{_CONTEXT}{number}", f" {letter}") for number in range(5) for letter in "ABCD"]
    with StubServer(dialect) as stub:
        model = connect(stub, f"tokenizer={DEMO}")
        before = stub.num_questions
        model.loglikelihood(requests)
        assert stub.num_questions - before == {"vllm": 1, "sglang": 5}[dialect]


def _echoes(stub: StubServer) -> int:
    return sum(bool(body.get("echo")) for body in stub.bodies("/v1/completions"))


def test_options_of_one_token_need_no_echo(connect: Connect, demo: Any) -> None:
    requests = [LoglikelihoodRequest(_CONTEXT, f" {letter}") for letter in "ABCD"]
    with StubServer("llama-cpp-python") as stub:
        model = connect(stub)
        before = _echoes(stub)
        found, expected = model.loglikelihood(requests), demo.loglikelihood(requests)
        assert _echoes(stub) == before
    assert [value for value, _ in values(found)] == pytest.approx([value for value, _ in values(expected)], abs=1e-4)
    assert [one.is_greedy for one in found] == [one.is_greedy for one in expected]
    assert [one.num_context_tokens for one in found] == [one.num_context_tokens for one in expected]


def test_tokens_of_several_words_are_not_asked_for(connect: Connect) -> None:
    with StubServer("llama-cpp-python") as stub:
        model = connect(stub)
        before = len(stub.bodies("/extras/tokenize"))
        model.loglikelihood([LoglikelihoodRequest(_CONTEXT, option) for option in (" a b", " c d", " e")])
        assert len(stub.bodies("/extras/tokenize")) - before == 2, "of the context, and of it with the one word"


def test_a_forced_token_with_another_number_than_its_echo_is_not_used(
    connect: Connect, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that shows logprobs after the bias."""
    forced = LlamaCppPython.score_forced

    async def likely(self: LlamaCppPython, client: Any, pair: Any) -> Any:
        found = await forced(self, client, pair)
        return found and replace(found, logprobs=(-0.0,))

    monkeypatch.setattr(LlamaCppPython, "score_forced", likely)
    requests = [LoglikelihoodRequest(_CONTEXT, f" {letter}") for letter in "ABCD"]
    with StubServer("llama-cpp-python") as stub:
        found, expected = connect(stub).loglikelihood(requests), demo.loglikelihood(requests)
    assert [value for value, _ in values(found)] == pytest.approx([value for value, _ in values(expected)], abs=1e-4)


def test_a_server_of_several_models_wants_a_name(connect: Connect) -> None:
    with StubServer("vllm", instant=True, name="demo-model") as stub:
        with pytest.raises(ModelError, match="demo-model"):
            connect(f"{stub.url}#demo-modle")
        assert connect(f"{stub.url}#demo-model").identity.details["model"] == "demo-model"
