"""Conversations through chat templates: the same text as transformers' ``apply_chat_template`` makes of the data.

The templates are written here, each after the habits of a family: ChatML, Llama 3, Mistral (strict alternation), Gemma
(no system turn) and Hermes or Qwen (tools, and results of tools in a turn of the user).
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.dispatch import ask
from pytest_llmeval.models.encoding import Encoder, shows_tools
from pytest_llmeval.text.messages import read_messages
from pytest_llmeval.text.tool_schemas import tools_as_text
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse
from tests.models.support import load
from tests.properties import examples
from tests.tiny_models import make_checkpoint, make_tokenizer

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}{{ ' name=' + message.name if message.name }}\n"
    "{{ message['content'] if message['content'] is not none else '<null>' }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = 'You are useful.' %}
{%- endif %}
{{- '<|head|>system<|/head|>\n\n' + system + '<|eot|>' }}
{%- if tools is not none and tools is defined %}
    {%- if messages | length == 0 or messages[0]['role'] != 'user' %}
        {{- raise_exception('Tools belong into the first turn of the user, and there is none') }}
    {%- endif %}
    {{- '<|head|>user<|/head|>\n\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) + '\n' }}{%- endfor %}
    {{- messages[0]['content'] | trim + '<|eot|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at once') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\n\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|eot|>' }}
    {%- elif message.role == 'tool' or message.role == 'ipython' %}
        {{- '<|head|>ipython<|/head|>\n\n' }}
        {{- message.content | tojson if message.content is mapping else message.content }}
        {{- '<|eot|>' }}
    {%- else %}
        {{- '<|head|>' + message['role'] + '<|/head|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\n\n' }}{%- endif %}
"""
MISTRAL = """{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- set ns = namespace(place=0) %}
{%- for turn in turns %}
    {%- if not (turn.role == 'tool' or turn.tool_calls is defined) %}
        {%- if (turn.role == 'user') != (ns.place % 2 == 0) %}
            {{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
        {%- endif %}
        {%- set ns.place = ns.place + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for turn in turns %}
    {%- if turn.role == 'user' %}
        {%- if tools and turn == (turns | selectattr('role', 'equalto', 'user') | list)[-1] %}
            {{- '[AVAILABLE_TOOLS]' }}{{- tools | tojson }}{{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + (system + '\n\n' if loop.first and system is defined else '') + turn.content + ' [/INST]' }}
    {%- elif turn.tool_calls is defined %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in turn.tool_calls %}
            {%- if call.id is undefined or call.id | length != 9 %}
                {{- raise_exception('ids of calls have 9 characters') }}
            {%- endif %}
            {{- call.function | tojson }}{{- ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
        {%- endfor %}
        {{- ']</s>' }}
    {%- elif turn.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + turn.content | string + ', "call_id": "' }}
        {{- turn.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- elif turn.role == 'assistant' %}
        {{- ' ' + turn.content + '</s>' }}
    {%- else %}
        {{- raise_exception('Only user, assistant and tool roles are supported') }}
    {%- endif %}
{%- endfor %}
"""
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n"
    "{{ message['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
HERMES = """{%- if tools %}
    {{- '<|im_start|>system\n' + (messages[0].content + '\n\n' if messages[0].role == 'system' else '') }}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first)
        or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' + ('\n' + message.content if message.content else '') }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "mistral": MISTRAL, "gemma": GEMMA, "hermes": HERMES}
PUBLISHED: dict[str, Path] = {}
"""Templates in a folder that a user names, by their paths in it."""
if folder := os.environ.get("PYTEST_LLM_TEST_TEMPLATES"):
    PUBLISHED = {str(path.relative_to(folder)): path for path in sorted(Path(folder).rglob("*.jinja"))}
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": 'Does <it> & "that", où?', "parameters": {}}},
    {"type": "function", "function": {"name": "g"}},
]

TEXTS = st.one_of(
    st.sampled_from(["", "Hi.", " spaces \n", "{{ 7 * 7 }}", "<|im_end|>", "</s>", "où? 日本 🙂", '"\\n"', "<s>"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=4,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages in OpenAI's form, in most orders that templates take and some that they refuse."""
    made: list[dict[str, Any]] = []
    if draw(st.booleans()):
        made.append({"role": "system", "content": draw(TEXTS)})
    for _ in range(draw(st.integers(1, 3))):
        made.append({"role": "user", "content": draw(TEXTS)})
        if draw(st.booleans()):
            number = draw(st.integers(1, 2))
            made.append({"role": "assistant", "content": draw(st.none() | TEXTS), "tool_calls": []})
            for place in range(number):
                arguments = draw(st.dictionaries(TEXTS, VALUES, max_size=2))
                call = {"id": f"call{len(made):03}_{place}", "type": "function"}
                made[-1]["tool_calls"].append({**call, "function": {"name": "f", "arguments": arguments}})
            for call in list(made[-1]["tool_calls"]):
                name = {"name": "f"} if draw(st.booleans()) else {}
                made.append({"role": "tool", "content": draw(TEXTS), "tool_call_id": call["id"], **name})
        if draw(st.integers(0, 9)):
            made.append({"role": "assistant", "content": draw(TEXTS)})
    if made[-1]["role"] == "assistant":
        made.append({"role": "user", "content": draw(TEXTS)})
    return made


def as_data(messages: list[dict[str, Any]], *, as_text: bool) -> Any:
    """The messages as data sets have them: arguments are the text of JSON, contents may be parts."""
    found = json.loads(json.dumps(messages))
    for message in found:
        for call in message.get("tool_calls", ()) if as_text else ():
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        if message["role"] == "user" and as_text:
            message["content"] = [{"type": "text", "text": message["content"], "image_url": None}]
    return json.dumps(found) if as_text else found


@functools.cache
def tokenizer(name: str) -> Any:
    path = PUBLISHED.get(name)
    return make_tokenizer(adds_bos=True, chat_template=TEMPLATES[name] if path is None else path.read_text("utf-8"))


def applied(name: str, messages: list[dict[str, Any]], **settings: Any) -> str | None:
    """The text by the tokenizer itself; None where its template refuses the messages."""
    try:
        return str(tokenizer(name).apply_chat_template(messages, tokenize=False, **settings))
    except Exception:  # a template raises what it likes: adds a text and null, or looks for a turn that is not there
        return None


def check_text(name: str, messages: list[dict[str, Any]], *, has_tools: bool, as_text: bool) -> None:
    given_tools = {"tools": TOOLS} if has_tools else {}
    expected = applied(name, messages, add_generation_prompt=True, **given_tools)
    prompt = read_messages(as_data(messages, as_text=as_text))
    encoder = Encoder(tokenizer(name))
    tools = tools_as_text(TOOLS) if has_tools else ""
    if "tool_calls" not in tokenizer(name).chat_template and any("tool_calls" in message for message in messages):
        with pytest.raises(RequestError, match="does not show tool calls"):
            encoder.render(prompt, tools)
    elif expected is None:
        with pytest.raises(RequestError, match="the tokenizer's chat template refuses the prompt") as raised:
            encoder.render(prompt, tools)
        assert "\n" not in str(raised.value)
    else:
        assert encoder.render(prompt, tools) == expected


@settings(max_examples=examples(200))
@pytest.mark.parametrize("name", TEMPLATES)
@given(messages=conversations(), has_tools=st.booleans(), as_text=st.booleans())
def test_the_text_is_that_of_transformers(
    name: str, messages: list[dict[str, Any]], has_tools: bool, as_text: bool
) -> None:
    check_text(name, messages, has_tools=has_tools and name not in ("chatml", "gemma"), as_text=as_text)


@pytest.mark.campaign
@pytest.mark.skipif(not PUBLISHED, reason="the variable PYTEST_LLM_TEST_TEMPLATES names no folder of templates")
@settings(max_examples=examples(60))
@pytest.mark.parametrize("name", PUBLISHED)
@given(messages=conversations(), has_tools=st.booleans(), as_text=st.booleans())
def test_the_text_of_published_templates(
    name: str, messages: list[dict[str, Any]], has_tools: bool, as_text: bool
) -> None:
    """Those of TRL 1.16 and Axolotl 0.19, as their packages have them, passed on 2026-11-26."""
    has_tools = has_tools and shows_tools(tokenizer(name).chat_template)
    check_text(name, messages, has_tools=has_tools, as_text=as_text)


@settings(max_examples=examples(60))
@pytest.mark.parametrize("name", TEMPLATES)
@given(messages=conversations(), begun=st.sampled_from(["So", "Answer:", "où"]))
def test_the_model_goes_on_with_the_assistant_s_last_message(
    name: str, messages: list[dict[str, Any]], begun: str
) -> None:
    whole = [*messages, {"role": "assistant", "content": begun}]
    expected = applied(name, whole, continue_final_message=True)
    shows_calls = "tool_calls" in TEMPLATES[name] or all("tool_calls" not in message for message in messages)
    if expected is not None and shows_calls:
        assert Encoder(tokenizer(name)).render(read_messages(whole)) == expected


def test_most_conversations_are_taken() -> None:
    """The property above is not about refusals alone."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c" * 9, "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "1", "tool_call_id": "c" * 9},
    ]
    plain: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert [name for name in TEMPLATES if applied(name, messages) is None] == ["gemma"]
    assert [name for name in TEMPLATES if applied(name, plain) is None] == []
    system = [{"role": "system", "content": "s"}, *plain]
    assert [name for name in TEMPLATES if applied(name, system) is None] == ["gemma"]


@pytest.mark.parametrize("name", ["hermes", "mistral"])
def test_a_checkpoint_reads_conversations(name: str, tmp_path: Path) -> None:
    """Replies and log-likelihoods, and a conversation that the template refuses beside them."""
    folder = make_checkpoint(tmp_path / "model", chat_template=TEMPLATES[name], max_length=512)
    model = load(folder)
    call: dict[str, Any] = {"id": "c" * 9, "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "c" * 9},
    ]
    prompt = read_messages(turns)
    refused = read_messages([turns[0], turns[0]] if name == "mistral" else [{"role": "assistant", "content": "a"}] * 2)
    first, second = ask(model, [GenerateRequest(prompt, max_tokens=2), GenerateRequest(refused, max_tokens=2)])
    (scored,) = ask(model, [LoglikelihoodRequest(prompt, " yes")])
    call["function"]["arguments"] = {"a": 1}
    own = make_tokenizer(chat_template=TEMPLATES[name])
    text = own.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert isinstance(first, GenerateResponse)
    assert first.num_prompt_tokens == len(own.encode(text))
    assert isinstance(scored, LoglikelihoodResponse)
    assert scored.num_context_tokens == len(own.encode(text.rstrip()))
    if name == "mistral":
        assert "Roles must alternate" in str(second)
        assert str(second).endswith("(its messages: user, user)")
