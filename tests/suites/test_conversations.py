"""``prompt.messages``: how messages are read from data and suites, and what is refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.inference.stored_lines import StoredRequest
from pytest_llmeval.text.messages import message_as_json, read_messages
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest, Message, Prompt
from tests.suites.conftest import Load

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
CHAT: list[Any] = [{"role": "user", "content": "a"}, CALLS, {"role": "tool", "content": "1", "tool_call_id": "c1"}]
HEAD = "suite: s\nscore: contains\ntarget: \"{{ 'x' }}\"\n"


def prompts(load: Load, prompt: str, *rows: dict[str, Any], head: str = HEAD) -> list[Prompt]:
    files = {"d.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    evaluation = Evaluation(load(f"{head}dataset: {{path: d.jsonl}}\nprompt: {prompt}\n", files))
    found: list[Prompt] = []
    for sample in evaluation.suite.samples:
        request = evaluation.question(sample).requests[0]
        assert isinstance(request, GenerateRequest | LoglikelihoodRequest)
        found.append(request.prompt if isinstance(request, GenerateRequest) else request.context)
    return found


def problem(load: Load, prompt: str, *rows: dict[str, Any], head: str = HEAD) -> str:
    with pytest.raises(SuiteError) as raised:
        prompts(load, prompt, *rows, head=head)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_column_of_messages_or_of_their_text(load: Load) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "image_url": None}]
    developer = [{"role": "developer", "content": "a"}, USER]
    rows: list[Any] = [
        {"m": CHAT},
        {"m": json.dumps(CHAT)},
        {"m": str(CHAT)},
        {"m": [{"role": "user", "content": parts}]},
    ]
    first, second, third, fourth, fifth = prompts(load, "{messages: m}", *rows, {"m": developer})
    assert first == second == third
    assert [message_as_json(turn) for turn in first if isinstance(turn, Message)] == CHAT
    assert fourth == (Message(role="user", content="a\nb"),)
    assert [turn.role for turn in fifth if isinstance(turn, Message)] == ["system", "user"]


def test_nulls_of_a_table_and_keys_that_say_nothing_of_the_conversation(load: Load) -> None:
    """Parquet has every key in every message, and replies of OpenAI's API have keys that are null or empty."""
    row: list[Any] = [
        {"tool_calls": None, "name": "", "images": [], "weight": 1, "refusal": None, "role": "user", "content": "a"}
    ]
    assert prompts(load, "{messages: a.b}", {"a": {"b": row}}) == [(Message(role="user", content="a"),)]


def test_templates_columns_system_text_and_prefix(load: Load) -> None:
    prompt = """
  system: "S {{ q }}"
  prefix: "So {{ q }}"
  messages:
    - {role: user, content: "{{ q }}", name: "n{{ q }}"}
    - {role: assistant, tool_calls: [{name: f, arguments: {a: "{{ n }}", b: ["x {{ n }}"]}}]}
    - {role: tool, content: "{{ n }}", name: f}
    - {column: rest}
    - {role: assistant, content: "{{ q }}", tool_calls: "{{ calls | tojson }}"}
    - {role: tool, content: "", tool_call_id: "{{ calls[0].id }}"}
"""
    row = {"q": "hu", "n": 5, "rest": [{"role": "user", "content": "{{ q }}"}], "calls": [CALL]}
    function = {"name": "f", "arguments": {"a": 5, "b": ["x 5"]}}
    (found,) = prompts(load, prompt, row)
    assert [message_as_json(turn) for turn in found if isinstance(turn, Message)] == [
        {"role": "system", "content": "S hu"},
        {"role": "user", "content": "hu", "name": "nhu"},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "content": "5", "name": "f"},
        {"role": "user", "content": "{{ q }}"},
        {"role": "assistant", "content": "hu", "tool_calls": [CALL]},
        {"role": "tool", "content": "", "tool_call_id": "c1"},
        {"role": "assistant", "content": "So hu"},
    ]


def test_a_field_made_of_a_column_is_a_column_too(load: Load) -> None:
    head = HEAD + "dataset: {path: d.jsonl, fields: {asked: '{{ m[:-1] | tojson }}'}}\nprompt: {messages: asked}\n"
    suite = load(head, {"d.jsonl": json.dumps({"m": [*CHAT, {"role": "assistant", "content": "the reference"}]})})
    (sample,) = suite.samples
    prompt = Evaluation(suite).question(sample).prompt
    assert [message_as_json(turn) for turn in prompt if isinstance(turn, Message)] == CHAT


def test_options_are_scored_after_a_conversation(load: Load) -> None:
    head = "suite: s\nscore: choice\nchoices: ['yes', 'no']\ntarget: 0\n"
    plain = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    (found,) = prompts(load, "{messages: m}", {"m": plain}, head=head)
    assert [message_as_json(turn) for turn in found if isinstance(turn, Message)] == plain
    message = problem(load, "{messages: m}", {"m": plain}, head=HEAD.replace("contains", "perplexity"))
    expected = (
        "prompt.messages: found a conversation; score: perplexity scores a text as it is, without a chat template"
    )
    assert message == f"s.yaml:5: {expected}"


USER = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "found an empty list, expected messages in the form of OpenAI's API: [{role: user, content: …}]"),
        (None, "m: found nothing (null), expected messages"),
        ("Hello", "m: found 'Hello', expected messages in the form of OpenAI's API: [{role: user, content: …}], or"),
        ({"role": "user"}, "m: found a mapping with the keys 'role', expected messages"),
        ([USER, "b"], "m: message 2: found 'b' (text), expected messages"),
        ([{"from": "human", "value": "a"}], "m: message 1: it has no role, expected messages"),
        ([{"role": "usr", "content": "a"}], "m: message 1: role: found 'usr' (text); did you mean 'user'?"),
        ([{"role": "human", "content": "a"}], "found 'human' (text); expected one of system, user, assistant, tool"),
        ([{"role": "user"}], "m: message 1: content: found nothing (null), expected text: only a message with"),
        ([{"role": "user", "content": 5}], "m: message 1: content: found 5 (a whole number), expected text"),
        ([{"role": "user", "content": "a\0"}], "m: message 1: content: found NUL (U+0000) at character 2"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "m: message 1: content: part 1 is of type 'image_url', and only text can be shown to a model here",
        ),
        ([{**USER, "images": ["x"]}], "m: message 1: images: found it, and only text can be shown to a model here"),
        ([{**USER, "tool_calls": [CALL]}], "found them in a message of the role user, only the assistant calls tools"),
        ([{**USER, "tool_call_id": "c1"}], "found it in a message of the role user, only a tool's message has one"),
        ([{**CALLS, "tool_calls": [{"name": "f", "arguments": "{a"}]}], "arguments of 'f' are '{a', expected a JSON"),
        ([{**CALLS, "tool_calls": [5]}], "m: message 1: tool_calls: found 5 (a whole number), expected a list of"),
        (
            [{**USER, "function_call": {"name": "f"}}],
            "function_call: found the old form of a call, expected",
        ),
        ([USER, CALLS], "the last message calls tools, expected a tool's message with the result behind it"),
    ],
)
def test_what_a_column_may_not_hold(load: Load, messages: object, expected: str) -> None:
    message = problem(load, "{messages: m}", {"id": "q1", "m": messages})
    assert message.startswith("s.yaml:5: prompt.messages: sample 'q1' (d.jsonl:1): ")
    assert expected in message


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("{messages: n}", "sample '1' (d.jsonl:1): there is no column 'n'; expected one of m"),
        ("{messages: []}", "prompt.messages: found an empty list, expected a column, or a list of messages"),
        ("{messages: 5}", "prompt.messages: found 5 (a whole number), expected a column, or a list of messages"),
        ("{messages: m, template: a}", "prompt.template: messages have the question; remove this template"),
        ("{messages: m, fewshot: {count: 1}}", "prompt.fewshot: messages show their own examples; remove them here"),
        ("{messages: m, chat: false}", "prompt.chat: messages are a chat; remove this"),
        ("{messages: m, system: a}", "prompt.system: sample '1' (d.jsonl:1): the messages begin with a system message"),
        ("{messages: m, prefix: a}", "prompt.prefix: sample '1' (d.jsonl:1): the last message is the assistant's"),
        ("{messages: [{role: usr, content: a}]}", "prompt.messages.0.role: found 'usr' (text), expected one of system"),
        ("{messages: [{rol: user, content: a}]}", "unknown key 'rol' in prompt.messages.0; did you mean 'role'?"),
        ("{messages: [{content: a}]}", "prompt.messages.0: found no role, expected one, or a column"),
        ("{messages: [{role: user}]}", "prompt.messages.0: found no content, expected a template: only a message"),
        ("{messages: [{role: user, content: a, tool_calls: c}]}", "messages.0.tool_calls: only the assistant calls"),
        ("{messages: [{role: user, content: a, tool_call_id: c}]}", "tool_call_id: only a tool's message has one"),
        ("{messages: [{role: assistant, tool_calls: 5}]}", "messages.0.tool_calls: found 5 (a whole number), expected"),
        ("{messages: [{column: m, content: a}]}", "messages.0.content: a column has whole messages; remove this"),
        ("{messages: [{role: user, content: '{{ a'}]}", "prompt.messages.0.content: line 1 of the template: "),
        ("{messages: [{role: user, content: '{{ x }}'}]}", "messages.0.content: sample '1' (d.jsonl:1): 'x' is undef"),
        (
            "{messages: [{role: assistant, tool_calls: [{name: f, arguments: {a: '{{ x }}'}}]}]}",
            "prompt.messages.0.tool_calls.0.arguments.a: sample '1' (d.jsonl:1): 'x' is undefined",
        ),
    ],
)
def test_what_a_suite_may_not_say(load: Load, prompt: str, expected: str) -> None:
    row = {"m": [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "b"}]}
    message = problem(load, prompt, row)
    assert message.startswith("s.yaml:5: ")
    assert expected in message


def test_other_messages_make_another_fingerprint_and_those_of_before_stay(load: Load) -> None:
    def printed(messages: list[Any]) -> tuple[str, dict[str, str]]:
        files = {"d.jsonl": json.dumps({"m": messages})}
        return Evaluation(load(HEAD + "dataset: {path: d.jsonl}\nprompt: {messages: m}\n", files)).fingerprints()

    first = printed(CHAT)
    assert first == printed(json.loads(json.dumps(CHAT)))
    for other in (
        [USER, {**CALLS, "content": ""}, CHAT[2]],
        [USER, CALLS, {**CHAT[2], "name": "f"}],
        [USER, {**CALLS, "tool_calls": [{**CALL, "id": "c2"}]}, {**CHAT[2], "tool_call_id": "c2"}],
    ):
        assert printed(other) != first
    plain = GenerateRequest((Message(role="user", content="a"),))
    assert '"prompt":[{"content":"a","role":"user"}]' in StoredRequest("m", plain).text


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.text(max_size=5)}
        )
    )
)
def test_plain_messages_are_read_as_they_are(messages: list[dict[str, str]]) -> None:
    if any("\0" in message["content"] for message in messages):
        return
    assert [message_as_json(turn) for turn in read_messages(messages)] == messages
    assert read_messages(json.dumps(messages)) == read_messages(messages)
