"""How a judge behind a server is held to JSON: found out once, before the first verdict, and part of what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, Message
from tests.plugin.judge_for_tests import report_of
from tests.servers.stub import StubServer

WAYS = ["json_schema", "json_object", "text"]
ALONE = ("-p", "no:xdist")
FORMATTED = GenerateRequest((Message(role="user", content="Well?"),), max_tokens=4, json_schema='{"type": "object"}')
ROWS = [{"id": f"r{number}", "question": "Q?", "response": "a reply", "target": "T"} for number in range(12)]
SUITE = f"suite: judged\nsamples: {json.dumps(ROWS)}\nscore: {{equivalence: {{math: false}}}}\n"


def way_of(body: Mapping[str, Any]) -> str:
    if "format" in body:  # Ollama's
        return "json_object" if body["format"] == "json" else "json_schema"
    return str(body.get("response_format", {"type": "text"})["type"])


class Strict(StubServer):
    """A server that refuses some ways, in words that do not name the format."""

    def __init__(self, *refused: str, dialect: str = "vllm", path: str = "/v1/chat/completions", **more: Any) -> None:
        super().__init__(dialect, instant=True, **more)
        self.refused = set(refused)
        chat = self.wire.routes["POST", path]

        def answer(body: dict[str, Any]) -> Any:
            if way_of(body) in self.refused:
                raise self.wire.error(400, "bad input")
            return chat(body)

        self.wire.routes["POST", path] = answer


@pytest.fixture
def stub() -> Iterator[Strict]:
    with Strict(says=lambda body: '{"reason": "r", "equivalent": true}') as started:
        yield started


def judge(*stubs: StubServer, arguments: str = "") -> Any:
    first, *others = (stub.url for stub in stubs)
    text = "&".join([*(f"base_url={url}" for url in others), *filter(None, [arguments])])
    return load_model(parse_model_spec(f"{first}?{text}" if text else first, role="judge"), ModelSettings())


@pytest.mark.parametrize("number", range(3))
def test_the_strictest_way_that_is_taken(stub: Strict, number: int) -> None:
    stub.refused |= set(WAYS[:number])
    model = judge(stub)
    assert model.identity.details["json"] == WAYS[number]
    before = len(stub.bodies("/v1/chat/completions"))
    model.generate([FORMATTED] * 3)
    model.close()
    assert [way_of(body) for body in stub.bodies("/v1/chat/completions")[before:]] == [WAYS[number]] * 3


@pytest.mark.parametrize("number", range(3))
def test_ollama_has_a_field_of_its_own(number: int) -> None:
    with Strict(*WAYS[:number], dialect="ollama", path="/api/chat") as stub:
        model = judge(stub)
        assert model.identity.details["json"] == WAYS[number]
        model.generate([FORMATTED])
        body = stub.bodies("/api/chat")[-1]
        model.close()
    assert body.get("format") == [{"type": "object"}, "json", None][number]


def test_a_refusal_in_the_middle_weakens_nothing(stub: Strict) -> None:
    """It is that request's own."""
    model = judge(stub)
    stub.refused.add("json_schema")
    (refused,) = model.generate([FORMATTED])
    assert "bad input" in str(refused)
    stub.refused.clear()
    before = len(stub.bodies("/v1/chat/completions"))
    model.generate([FORMATTED])
    model.close()
    assert [way_of(body) for body in stub.bodies("/v1/chat/completions")[before:]] == ["json_schema"]


def test_no_way_is_taken(stub: Strict) -> None:
    """The self-test's own chats went well."""
    chat = stub.wire.routes["POST", "/v1/chat/completions"]

    def answer(body: dict[str, Any]) -> Any:
        if "JSON" in body["messages"][-1]["content"]:
            raise stub.wire.error(400, "bad input")
        return chat(body)

    stub.wire.routes["POST", "/v1/chat/completions"] = answer
    with pytest.raises(ModelError, match=r"no reply in JSON: .*bad input"):
        judge(stub)


def test_replicas_take_it_in_one_way(stub: Strict) -> None:
    with Strict("json_schema") as other, pytest.raises(ModelError, match="asked in different ways"):
        judge(stub, other)


def test_only_a_judge_is_asked_for_it(stub: Strict) -> None:
    model: Any = load_model(parse_model_spec(stub.url), ModelSettings())
    model.close()
    assert "json" not in model.identity.details
    assert {way_of(body) for body in stub.bodies("/v1/chat/completions")} == {"text"}


def test_a_baseline_of_another_way_is_refused(llm_pytester: pytest.Pytester, stub: Strict) -> None:
    llm_pytester.makefile(".yaml", judged=SUITE)
    options = [*ALONE, f"--llm-judge={stub.url}", "judged.yaml"]
    assert llm_pytester.runpytest(*options, "--llm-report=before.json").ret == 0
    (found,) = report_of(llm_pytester.path, "before.json")["suites"]
    assert found["judged_by"][0].startswith(f"{stub.url} (server, demo, json_schema, ")
    assert llm_pytester.runpytest(*options, "--llm-baseline=before.json").ret == 0
    stub.refused.add("json_schema")
    other = llm_pytester.runpytest(*options, "--llm-baseline=before.json")
    assert other.ret != 0
    other.stdout.fnmatch_lines(["*another judge: '*(server, demo, json_schema, *'*", "*(server, demo, json_object, *"])
