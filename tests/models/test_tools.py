"""Tools on their way to models, and calls on their way back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.dispatch import ask
from pytest_llmeval.models.encoding import NO_TOOLS, Encoder
from pytest_llmeval.models.huggingface.checkpoint import has_tools
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.text.tool_schemas import tools_as_text
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Message, ToolCall
from tests.models.support import load
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint, make_tokenizer

TOOLS = tools_as_text([{"name": "f", "description": "A function.", "parameters": {"type": "object"}}])
WITH_TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}" + CHAT_TEMPLATE
CHAT = (Message(role="user", content="one"),)


def test_a_chat_template_is_given_the_tools() -> None:
    encoder = Encoder(make_tokenizer(chat_template=WITH_TOOLS))
    begun = (*CHAT, Message(role="assistant", content="So"))
    shown = f"<tools>{json.dumps(json.loads(TOOLS))}</tools>"
    assert encoder.render(CHAT, TOOLS) == f"{shown}<user>one\n<assistant>"
    assert encoder.render(begun, TOOLS).startswith(shown)
    assert encoder.render(begun, TOOLS).endswith("<assistant>So")
    assert encoder.render(CHAT) == "<user>one\n<assistant>"


def test_tools_without_a_place_in_the_prompt_are_refused() -> None:
    encoder = Encoder(make_tokenizer(chat_template=CHAT_TEMPLATE))
    with pytest.raises(RequestError, match="has no tools"):
        encoder.render(CHAT, TOOLS)
    with pytest.raises(RequestError, match=r"prompt\.chat: true"):
        encoder.render("a text", TOOLS)


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, WITH_TOOLS], ids=["plain", "with tools"])
def test_a_folder_says_whether_its_model_takes_tools(template: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "model", chat_template=template, max_length=256)
    assert has_tools("m", folder) == (template is WITH_TOOLS)
    model = load(folder)
    plain, asked = GenerateRequest(CHAT, max_tokens=2), GenerateRequest(CHAT, max_tokens=2, tools=TOOLS)
    first, second = ask(model, [plain, asked])
    assert isinstance(first, GenerateResponse)
    assert first.tool_calls is None
    if template is CHAT_TEMPLATE:
        assert isinstance(second, RequestError)
        assert str(second) == NO_TOOLS
    else:
        assert isinstance(second, GenerateResponse)
        assert second.num_prompt_tokens > first.num_prompt_tokens
        assert second.tool_calls == ()
    spec = parse_model_spec(str(folder))
    assert spec.kind.refuses_tools(spec, ModelSettings()) == (None if template is WITH_TOOLS else NO_TOOLS)


FUNCTIONS = """
from types import SimpleNamespace
from pytest_llmeval.types import GenerateResponse, ToolCall

def takes(prompt, tools):
    calls = [{"name": tool["function"]["name"], "args": {"n": len(tools)}} for tool in tools]
    return {"text": None if calls else "", "tool_calls": calls}

def may_take(prompt, tools=("own",)): return str(tools)
def writes(prompt, tools): return '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
def says(prompt, tools): return {"tool_calls": []}
def tells(prompt, tools): return GenerateResponse(text="", tool_calls=(ToolCall(name="f", arguments={}),))
def library(prompt, tools):
    return {"text": "a", "tool_calls": [SimpleNamespace(function=SimpleNamespace(name="f", arguments="{}"))]}
def wrong(prompt, tools): return {"text": "a", "tool_calls": [3]}
def plain(prompt): return "a"
def factory(k=1): return plain
class Object:
    def generate(self, requests): return [GenerateResponse(text=request.tools[:2]) for request in requests]
"""
CALL = ToolCall(name="f", arguments={})


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "functions_with_tools.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("functions_with_tools", None)


def answer(name: str, request: GenerateRequest) -> object:
    model = load_model(parse_model_spec(f"python:functions_with_tools:{name}"), ModelSettings())
    return ask(model, [request])[0]


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("takes", "", (ToolCall(name="f", arguments={"n": 1}),)),
        ("writes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>', (CALL,)),
        ("says", "", ()),
        ("tells", "", (CALL,)),
        ("library", "a", (CALL,)),
        ("Object", "[{", ()),
    ],
)
def test_functions_get_tools_and_give_calls(name: str, text: str, calls: tuple[ToolCall, ...]) -> None:
    response = answer(name, GenerateRequest(CHAT, tools=TOOLS))
    assert isinstance(response, GenerateResponse)
    assert (response.text, response.tool_calls) == (text, calls)


@pytest.mark.usefixtures("functions")
def test_functions_and_suites_without_tools() -> None:
    plain, asked = GenerateRequest("q"), GenerateRequest("q", tools=TOOLS)
    own, none = answer("may_take", plain), answer("takes", plain)
    assert isinstance(own, GenerateResponse)
    assert (own.text, own.tool_calls) == ("('own',)", None)
    assert isinstance(none, GenerateResponse)
    assert none.tool_calls == ()
    assert "takes no tools" in str(answer("plain", asked))
    assert "takes no tools" in str(answer("factory", asked))
    assert "returned tool_calls: found 3" in str(answer("wrong", asked))


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("name", "is_refused"),
    [("plain", True), ("takes", False), ("may_take", False), ("factory", False), ("Object", False)],
)
def test_what_is_known_before_a_function_is_called(name: str, is_refused: bool) -> None:
    spec = parse_model_spec(f"python:functions_with_tools:{name}")
    assert (spec.kind.refuses_tools(spec, ModelSettings()) is not None) == is_refused
