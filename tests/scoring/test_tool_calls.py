"""Tool calls: what texts and JSON are read as, and how calls are judged."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.tool_calls import ToolCallsSettings
from pytest_llmeval.text.tool_calls import calls_as_json, calls_in_text, described_calls, read_tool_calls
from pytest_llmeval.text.tool_schemas import short_names, tool_schemas, tools_as_text
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Score, ToolCall
from tests.scoring.helpers import a_sample

WEATHER = {
    "name": "weather.get",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "zip": {"type": "string"}},
        "required": ["city"],
    },
}
TOOLS = tools_as_text([WEATHER, {"name": "f"}])

ONE = '{"name": "f", "arguments": {"a": 1}}'
TEXTS = {
    # Hermes 2 Pro and 3, Qwen 2.5 and 3: what their chat templates ask for.
    "hermes": (f"<tool_call>\n{ONE}\n</tool_call>", "f(a=1)"),
    "hermes, after a sentence, several": (f"Let me see.\n<tool_call>{ONE}</tool_call>\n<tool_call>{ONE}</tool_call>",
                                          "f(a=1), f(a=1)"),
    "hermes, cut before the closing tag": (f"<tool_call>\n{ONE}", "f(a=1)"),
    "hermes, the closing tag in a text": ('<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
                                          'f(a="</tool_call>")'),
    "hermes, as Python writes it": ("<tool_call>{'name': 'f', 'arguments': {'a': True}}</tool_call>", "f(a=true)"),
    "hermes, arguments as text": ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "f(a=1)"),
    "hermes, without arguments": ('<tool_call>{"name": "f"}</tool_call>', "f()"),
    "hermes, a line break in a text": ('<tool_call>{"name": "f", "arguments": {"a": "b\nc"}}</tool_call>',
                                       'f(a="b\\nc")'),
    # Qwen3-Coder
    "coder": ("<tool_call>\n<function=weather.get>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n"
              "</parameter>\n<parameter=zip>\n01234\n</parameter>\n</function>\n</tool_call>",
              'weather.get(city="Paris", days=2, zip="01234")'),
    "coder, a function that is not known": ("<function=g><parameter=a>[1, 2]</parameter><parameter=b>x y</parameter>"
                                            "<parameter=c>True</parameter></function>", 'g(a=[1, 2], b="x y", c=true)'),
    # Qwen-Agent
    "agent": ('✿FUNCTION✿: f\n✿ARGS✿: {"a": 1}\n✿FUNCTION✿: f\n✿ARGS✿: {}\n✿RESULT✿: no', "f(a=1), f()"),
    # Llama 3.1 to 3.3
    "llama": ('{"name": "f", "parameters": {"a": 1}}', "f(a=1)"),
    "llama, several": ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}}<|eom_id|>',
                       "f(a=1), f()"),
    "llama, a built-in tool": ('<|python_tag|>brave_search.call(query="a b")<|eom_id|>', 'brave_search(query="a b")'),
    "llama, a custom function": ('<function=f>{"a": 1}</function>', "f(a=1)"),
    "llama, pythonic": ('[f(a=1, b=[-1, 2.5], c={"d": true}), weather.get(city=\'x\')]',
                        'f(a=1, b=[-1, 2.5], c={"d": true}), weather.get(city="x")'),
    "pythonic, without names": ('[weather.get("x", 2)]', 'weather.get(city="x", days=2)'),
    "pythonic, what is no literal": ("[f(a=x + 1, b=Paris)]", 'f(a="x + 1", b="Paris")'),
    # Mistral: the tokenizer's versions 2 to 7, 11 and 13
    "mistral": (f"[TOOL_CALLS][{ONE}, {ONE}]", "f(a=1), f(a=1)"),
    "mistral, 11": ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f[CALL_ID]abc123[ARGS]{}', "f(a=1), f()"),
    "mistral, 13": ('[TOOL_CALLS]f{"a": 1}', "f(a=1)"),
    "mistral, marks left out": ('f{"a": 1}', "f(a=1)"),
    # What a tokenizer that leaves special tokens out makes of these
    "a list": (f"[{ONE}]", "f(a=1)"),
    "fenced": (f"```json\n[{ONE}]\n```", "f(a=1)"),
    "as OpenAI's API has it": ('{"type": "function", "function": {"name": "f", "arguments": "{}"}}', "f()"),
}  # fmt: skip
NO_CALLS = [
    "", "Hello", "[]", "[1, 2]", "[f]", "I would call [f(a=1)].", '{"name": "Bob"}', '{"name": "Bob", "parameters": 3}',
    '{"a": 1}', 'g{"a": 1}', "[f(a=1), 2]", '[{"name": "f", "arguments": {}}, 3]', "```json\n{}\n```", "x" * 300_000,
    f"[f(a=0x{'f' * 9000})]",
]  # fmt: skip
NO_JSON = {
    "hermes": ('<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>', "f"),
    "hermes, NaN": ('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "f"),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', ""),
    "arguments that are a list": ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "f"),
    "llama": ('<|python_tag|>{"name": "f", "parameters"', "f"),
    "code": ("<|python_tag|>import os\nprint(1)", ""),
    "mistral": ('[TOOL_CALLS]f[ARGS]{"a": 1', "f"),
    "mistral, list": ('[TOOL_CALLS][{"name": "f", "argu', "f"),
    "more values than parameters": ("[f(1)]", "f"),
    "a long number": (f'<tool_call>{{"name": "f", "arguments": {{"a": {"9" * 4000}}}}}</tool_call>', "f"),
    "a longer number": (f'<tool_call>{{"name": "f", "arguments": {{"a": 0x{"f" * 9000}}}}}</tool_call>', "f"),
    "nested too deep": (f'<tool_call>{{"name": "f", "arguments": {{"a": {"[" * 60}{"]" * 60}}}}}</tool_call>', "f"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_calls_of_a_text(text: str, expected: str) -> None:
    calls = calls_in_text(text, TOOLS)
    assert described_calls(calls) == expected
    assert read_tool_calls(calls_as_json(calls)) == calls


@pytest.mark.parametrize("text", NO_CALLS, ids=lambda text: text[:20])
def test_texts_without_calls(text: str) -> None:
    assert calls_in_text(text, TOOLS) == ()


@pytest.mark.parametrize(("text", "name"), NO_JSON.values(), ids=NO_JSON.keys())
def test_a_call_that_is_no_json_keeps_its_text(text: str, name: str) -> None:
    (call,) = calls_in_text(text, TOOLS)
    assert (call.name, call.arguments) == (name, None)
    assert call.text in text or json.loads(call.text) == json.loads(text[11:-12])["arguments"]


PIECES = [
    "<tool_call>", "</tool_call>", "{", "}", '"name": "f"', '"arguments": ', ",", "[", "]", "f(a=1)", "<function=f>",
    "<parameter=a>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "✿FUNCTION✿", "✿ARGS✿", "```", "\n", "\ud800", "-",
    " ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_read_into_what_a_report_can_hold(text: str) -> None:
    for call in calls_in_text(text, TOOLS):
        json.dumps(calls_as_json([call]), allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize("piece", [*PIECES, '<tool_call>{"', "```\n", "[f(", "<function=f><parameter=a>"])
def test_long_texts_are_read(piece: str) -> None:
    # With a regular expression that backtracks, or a copy of the text for each mark, this takes minutes.
    for before in ("", "[f(", "✿FUNCTION✿: a", "<tool_call>"):
        for call in calls_in_text(before + piece * (199_000 // len(piece)), TOOLS):
            assert call.arguments is None or isinstance(call.arguments, dict)


JSON_CALLS = {
    "own form": [{"name": "f", "arguments": {"a": 1}}],
    "OpenAI": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    "Ollama": [{"function": {"name": "f", "arguments": {"a": 1}}}],
    "Anthropic": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}],
    "LangChain": [{"name": "f", "args": {"a": 1}, "id": "1", "type": "tool_call"}],
    "one alone": {"name": "f", "parameters": {"a": 1}},
    "text": '[{"name": "f", "arguments": {"a": 1}}]',
    "objects": [SimpleNamespace(function=SimpleNamespace(name="f", arguments='{"a": 1}'))],
    "ToolCall": [ToolCall(name="f", arguments={"a": 1})],
}


@pytest.mark.parametrize("value", JSON_CALLS.values(), ids=JSON_CALLS.keys())
def test_calls_of_apis_and_libraries(value: object) -> None:
    assert read_tool_calls(value) == (ToolCall(name="f", arguments={"a": 1}),)


def test_arguments_that_are_no_object_stay_a_text() -> None:
    assert read_tool_calls([{"name": "f", "arguments": "{'a'"}]) == (ToolCall(name="f", text="{'a'"),)
    assert read_tool_calls([{"name": "f", "arguments": [1]}]) == (ToolCall(name="f", text="[1]"),)
    deep = f'{{"a": {"[" * 60}{"]" * 60}}}'
    for arguments in (deep, json.loads(deep)):  # of a model, whose server reads the JSON or leaves it
        assert read_tool_calls([{"name": "f", "arguments": arguments}]) == (ToolCall(name="f", text=deep),)
    assert read_tool_calls(None) == read_tool_calls([]) == read_tool_calls("") == ()


NO_CALL_AT_ALL = [
    "f(1)", "3", 3, [3], ["f"], [{"arguments": {}}], [{"name": 3}], [[]],
    [{"name": "f", "arguments": {"a": float("nan")}}], [{"name": "f", "args": {"a": b""}}],
]  # fmt: skip


@pytest.mark.parametrize("value", NO_CALL_AT_ALL)
def test_what_is_no_call_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="found "):
        read_tool_calls(value)


# Tools


def test_tools_in_any_form_are_openai_s() -> None:
    written = {"type": "dict", "properties": {"type": {"type": "float", "default": 1}, "b": {"type": "tuple",
               "items": {"type": "any"}, "enum": ["float"]}}}  # fmt: skip
    schema = {"type": "object", "properties": {"type": {"type": "number", "default": 1},
              "b": {"type": "array", "items": {}, "enum": ["float"]}}}  # fmt: skip
    expected = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    for given_form in (
        [{"name": "f", "parameters": written}],
        {"name": "f", "input_schema": written},
        [{"type": "function", "function": {"name": "f", "parameters": written}}],
        json.dumps([{"name": "f", "parameters": written}]),
    ):
        assert tool_schemas(given_form) == expected
    assert tools_as_text([]) == tools_as_text(None) == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "found 3"),
        ("{", "no JSON"),
        ([3], "entry 1 is 3"),
        ([{"name": ""}], "entry 1 has no name"),
        ([{"name": "f"}, {"function": {}}], "entry 2 has no name"),
        ([{"type": "retrieval", "function": {}}], "entry 1 has the type 'retrieval'"),
        ([{"name": "f", "parameters": 3}], "'f': parameters: found 3"),
        ([{"name": "f", "description": 3}], "'f': description: found 3"),
        ([{"name": "f", "parameters": {"properties": ["a"]}}], "'f': properties: found a list"),
        ([{"name": "f", "parameters": {"properties": {"a": "string"}}}], "'f': properties.a: found 'string'"),
        ([{"name": "f", "parameters": {"required": "a"}}], "'f': required: found 'a'"),
        ([{"name": "f"}, {"name": "f"}], "the function 'f' twice"),
    ],
)
def test_what_is_no_tool_is_said(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tool_schemas(value)


def test_names_that_apis_take() -> None:
    tools = tool_schemas([{"name": name} for name in ("a.b", "a_b", "a b", "x" * 70, "f")])
    assert short_names(tools) == {"a.b": "a_b_2", "a b": "a_b_3", "x" * 70: "x" * 60}


# Judging


def judge(target: Any, calls: Any, tools: str = TOOLS, **settings: Any) -> Score:
    scorer = make_scorer(ToolCallsSettings(**settings))
    presented = replace(scorer.present(a_sample(target)), requests=(GenerateRequest("q", tools=tools),))
    if isinstance(calls, str):
        return scorer.score(presented, [GenerateResponse(text=calls)])
    told = tuple(ToolCall(name=name, arguments=arguments) for name, arguments in calls)
    return scorer.score(presented, [GenerateResponse(text="", tool_calls=told)])


Called: TypeAlias = tuple[str, dict[str, Any]]
F1: Called = ("f", {"a": 1})
F2: Called = ("f", {"a": 2})
G: Called = ("g", {})
TWO = [{"f": {"a": 1}}, {"name": "g"}]
JUDGED: dict[str, tuple[Any, Any, dict[str, Any], tuple[float, float, float | None, float]]] = {
    # target, calls, settings: accuracy, of names, of arguments (None is not measurable), of the count
    "right": ([{"f": {"a": 1}}], [F1], {}, (1, 1, 1, 1)),
    "1.0 is 1": ([{"f": {"a": 1}}], [("f", {"a": 1.0})], {}, (1, 1, 1, 1)),
    "true is not 1": ([{"f": {"a": 1}}], [("f", {"a": True})], {}, (0, 1, 0, 1)),
    "text is not a number": ([{"f": {"a": 1}}], [("f", {"a": "1"})], {}, (0, 1, 0, 1)),
    "a right and a wrong argument": ([{"f": {"a": 1, "b": [1, {"c": 2}]}}], [("f", {"a": 1, "b": [1, {"c": 3}]})], {},
                                     (0, 1, 0.5, 1)),
    "a missing argument": ([{"f": {"a": 1, "b": 2}}], [F1], {}, (0, 1, 0.5, 1)),
    "an argument too many": ([{"f": {}}], [F1], {}, (0, 1, 0, 1)),
    "another function": ([{"f": {}}], [G], {}, (0, 0, 0, 1)),
    "no call is made": ([{"f": {}}], [], {}, (0, 0, 0, 0)),
    "no call is expected, and none made": ([], [], {}, (1, 1, None, 1)),
    "no call is expected, and one made": ([], [F1], {}, (0, 0, None, 0)),
    "another order": (TWO, [G, F1], {}, (1, 1, 1, 1)),
    "one too many": (TWO, [G, F1, F1], {}, (0, 0, 1, 0)),
    "one of two": (TWO, [F1], {}, (0, 0, 0.5, 0)),
    "not in order": (TWO, [G, F1], {"order": "same"}, (0, 0, 0, 1)),
    "in order": (TWO, [F1, G], {"order": "same"}, (1, 1, 1, 1)),
    "others beside": (TWO, [G, F2, F1], {"order": "subset"}, (1, 1, 1, 1)),
    "a subset that lacks one": (TWO, [F1, F2], {"order": "subset"}, (0, 0, 0.5, 1)),
    "each call counts once": ([{"f": {"a": 1}}, {"f": {"a": 1}}], [F1, F2], {}, (0, 1, 0.5, 1)),
    # The first expected call is met by both, the second only by the first.
    "the best pairs": ([{"f": {"a": {"$ignore": True}}}, {"f": {"a": 1}}], [F1, F2], {}, (1, 1, 1, 1)),
    "one of several": ([{"f": {"a": {"$any_of": [2, 1]}}}], [F1], {}, (1, 1, 1, 1)),
    "none of several": ([{"f": {"a": {"$any_of": [2, 3]}}}], [F1], {}, (0, 1, 0, 1)),
    "of a type": ([{"f": {"a": {"$type": "integer"}}}], [F1], {}, (1, 1, 1, 1)),
    "of another type": ([{"f": {"a": {"$type": "string"}}}], [F1], {}, (0, 1, 0, 1)),
    "true is no number": ([{"f": {"a": {"$type": "number"}}}], [("f", {"a": True})], {}, (0, 1, 0, 1)),
    "ignored": ([{"f": {"a": {"$ignore": True}}}], [F1], {}, (1, 1, 1, 1)),
    "ignored and absent": ([{"f": {"a": {"$ignore": True}}}], [("f", {})], {}, (1, 1, 1, 1)),
    "optional and absent": ([{"f": {"a": {"$optional": 1}}}], [("f", {})], {}, (1, 1, 1, 1)),
    "optional, of a type": ([{"f": {"a": {"$optional": {"$type": "integer"}}}}], [F1], {}, (1, 1, 1, 1)),
    "matchers inside of values": ([{"f": {"a": [{"b": {"$type": "null"}, "c": {"$optional": 1}}, {"$ignore": True}]}}],
                                  [("f", {"a": [{"b": None}, 3]})], {}, (1, 1, 1, 1)),
    "a wrong value inside": ([{"f": {"a": [{"b": {"$type": "null"}}]}}], [("f", {"a": [{"b": 0}]})], {}, (0, 1, 0, 1)),
    "a key too many inside": ([{"f": {"a": {"b": {"$ignore": True}}}}], [("f", {"a": {"c": 1}})], {}, (0, 1, 0, 1)),
    "optional and wrong": ([{"f": {"a": {"$optional": 1}}}], [F2], {}, (0, 1, 0, 1)),
    "a mapping of one key with $": ([{"f": {"a": {"$equal": {"$type": 1}}}}], [("f", {"a": {"$type": 1}})], {},
                                    (1, 1, 1, 1)),
    "matchers are no matchers in $equal": ([{"f": {"a": {"$equal": {"b": {"$ignore": True}}}}}], [("f", {"a": {}})], {},
                                           (0, 1, 0, 1)),
    # The wrong call is compared with the expected one that has no call of its own, wherever it stands.
    "a wrong call before the right one": ([{"f": {"a": 1, "b": 1}}] * 2, [("f", {"a": 1, "b": 2}),
                                          ("f", {"a": 1, "b": 1})], {}, (0, 1, 0.75, 1)),
    "a wrong call after the right one": ([{"f": {"a": 1, "b": 1}}] * 2, [("f", {"a": 1, "b": 1}),
                                         ("f", {"a": 1, "b": 2})], {}, (0, 1, 0.75, 1)),
    "no JSON": ([{"f": {}}], [("f", None)], {}, (0, 1, 0, 1)),
    "from the text": ([{"f": {"a": 1}}], f"<tool_call>{ONE}</tool_call>", {}, (1, 1, 1, 1)),
    "a text without calls": ([], "I do not know.", {}, (1, 1, None, 1)),
    "a target as text": ('[{"name": "f", "arguments": {"a": 1}}]', [F1], {}, (1, 1, 1, 1)),
    "bfcl: spelling": ([{"weather.get": {"city": ["New York, NY"]}}], [("weather.get", {"city": "new york NY."})],
                       {"rule": "bfcl"}, (1, 1, 1, 1)),
    "bfcl: may be left out": ([{"weather.get": {"city": ["x"], "days": [2, ""]}}], [("weather.get", {"city": "x"})],
                              {"rule": "bfcl"}, (1, 1, 1, 1)),
    "bfcl: another type": ([{"weather.get": {"city": ["x"], "days": [2]}}],
                           [("weather.get", {"city": "x", "days": "2"})], {"rule": "bfcl"}, (0, 1, 0.5, 1)),
    "bfcl: required, although the truth lets it out": ([{"weather.get": {"city": ["x", ""]}}], [("weather.get", {})],
                                                       {"rule": "bfcl"}, (0, 1, 0, 1)),
    "bfcl: without schemas": ([{"h": {"a": [1, ""]}}], [("h", {"a": 1})], {"rule": "bfcl"}, (1, 1, 1, 1)),
    # BFCL takes the first call that fits for each expected one, and then finds none for the second.
    "bfcl: the first that fits": ([{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}], [F1, F2], {"rule": "bfcl"},
                                  (0, 1, 0.5, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("target", "calls", "settings", "expected"), JUDGED.values(), ids=JUDGED.keys())
def test_calls_are_judged(
    target: Any, calls: Any, settings: dict[str, Any], expected: tuple[float, float, float | None, float]
) -> None:
    score = judge(target, calls, tools_as_text([WEATHER, {"name": "f", "parameters": {"properties": {"a": {
        "type": "integer"}}}}]), **settings)  # fmt: skip
    names = ("accuracy", "accuracy_name", "accuracy_arguments", "accuracy_count")
    assert tuple(score.values.get(name) for name in names) == expected
    assert score.status == ("correct" if expected[0] else "wrong")
    assert ("problem" in score.details) == (score.status == "wrong")
    assert score.no_answer == (not calls and bool(target))
    assert ("accuracy_arguments" in score.not_measurable) == (expected[2] is None)


def test_a_wrong_call_is_explained() -> None:
    def problem(target: Any, calls: Any, **settings: Any) -> Any:
        return judge(target, calls, **settings).details["problem"]

    assert problem([{"f": {"a": {"$any_of": [1, 2]}}}], [("f", {"a": 3})]) == "f: a is 3, expected one of [1, 2]"
    assert problem([{"f": {"a": 1}}], [("f", {})]) == "f: a is missing, expected 1"
    assert problem([{"f": {}}], [("f", {"b": 1})]) == "f: b is not expected"
    assert problem([{"f": {"a": {"$type": "null"}}}], [F1]) == "f: a is 1, expected a value of type null"
    assert problem([{"f": {"a": {"$optional": 2}}}], [F1]) == "f: a is 1, expected 2 or nothing"
    assert problem([{"f": {"a": [1, 2, ""]}}], [("f", {"a": 3})], rule="bfcl") == (
        "f: a is 3, expected one of [1, 2] or nothing"
    )
    assert problem([{"f": {}}], [("g", {})]) == "the reply calls g; expected f"
    assert problem([{"f": {}}, {"f": {}}], [("f", {})]) == "the reply calls f; expected f, f"
    assert problem([{"f": {}}, {"g": {}}], [("g", {}), ("f", {})], order="same") == (
        "the reply calls g, f; expected f, g, in this order"
    )
    assert problem([{"f": {}}], [("f", None)]) == "f: the arguments are no JSON object: ''"
    assert problem([], [("g", {})]) == "the reply calls g, and no call is expected"
    assert problem([{"f": {}}], []) == "the reply calls no function"
    assert problem([{"f": {}}], [("f", {})] * 12) == f"the reply calls {'f, ' * 10}…; expected f"


def test_the_target_is_shown_in_words() -> None:
    target = {"a": {"$any_of": [1, 2]}, "b": {"$optional": {"$type": "null"}}, "c": {"$ignore": True}, "d": "x"}
    presented = make_scorer(ToolCallsSettings()).present(a_sample([{"f": target}, {"g": {"a": {"$equal": [1]}}}]))
    assert presented.target == 'f(a=one of [1, 2], b=a value of type null or nothing, c=anything, d="x"), g(a=[1])'


def test_a_majority_counts_equal_calls_however_they_are_written() -> None:
    one, other = [("f", {"a": 1, "b": 2}), ("g", {})], [("g", {}), ("f", {"b": 2, "a": 1})]
    assert judge([], one).vote == judge([], other).vote
    assert judge([], one, order="same").vote != judge([], other, order="same").vote
    assert judge([], []).vote is None  # "no call" is its answer


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        (None, {}, "the sample has no target"),
        ("f(1)", {}, "is not JSON"),
        (3, {}, "expected a list of calls"),
        ([3], {}, "expected a call"),
        ([{"f": 3}], {}, "f: found 3 .*, expected a mapping of arguments"),
        ([{"f": {}, "g": {}}], {}, "expected a call"),
        ([{"name": "f", "arguments": 3}], {}, "f: found 3"),
        ([{"f": {"$ignore": True}}], {}, "f: .ignore .*expected {ARGUMENT: {.ignore: …}}"),
        ([{"f": {"a": [{"b": {"$typ": 1}}]}}], {}, "there is no matcher"),
        ([{"f": {"a": {"$optional": {"$any_of": []}}}}], {}, "expected a list of values"),
        ([{"f": {"a": {"$optional": 1, "$type": "null"}}}], {}, "stands alone"),
        ([{"f": {"a": {"$type": ["null"]}}}], {}, "type: found"),
        ([{"f": {"a": {"$anyof": [1]}}}], {}, "did you mean '?.any_of"),
        ([{"f": {"a": {"$any_of": 1}}}], {}, "expected a list of values"),
        ([{"f": {"a": {"$type": "int"}}}], {}, "type: found 'int'"),
        ([{"f": {"a": {"$ignore": False}}}], {}, "expected true"),
        ([{"f": {"a": 1}}], {"rule": "bfcl"}, "f.a: found 1, expected a list of accepted values"),
        ([{"f": {"a": [{"b": 1}]}}], {"rule": "bfcl"}, "f.a.b: found 1, expected a list of accepted values"),
    ],
)
def test_a_target_that_is_none_is_said(target: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_scorer(ToolCallsSettings(**settings)).present(a_sample(target))


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        (TWO, {}),
        ([{"f": {"a": {"$any_of": [{"$equal": [2]}, 1]}, "b": {"$ignore": True}, "c": {"$optional": 1}}}], {}),
        ([{"f": {"a": [{"b": {"$optional": 1}, "c": [{"$any_of": [1, 2]}]}]}}], {}),
        ([{"f": {"a": [2, 1], "b": [""], "c": ["", [3]], "d": [{"e": [4], "f": ["", 5]}]}}], {"rule": "bfcl"}),
    ],
)
def test_the_answer_of_an_example_is_right(target: Any, settings: dict[str, Any]) -> None:
    scorer = make_scorer(ToolCallsSettings(**settings))
    answer = scorer.answer_text(scorer.present(a_sample(target)))
    assert judge(target, answer, tools="", **settings).status == "correct"


def test_an_example_that_calls_nothing_has_no_text() -> None:
    scorer = make_scorer(ToolCallsSettings())
    for target in ([], [{"f": {"a": {"$type": "string"}}}], [{"f": {"a": [{"$ignore": True}]}}]):
        with pytest.raises(ValueError, match=r"prompt\.fewshot\.answer"):
            scorer.answer_text(scorer.present(a_sample(target)))
