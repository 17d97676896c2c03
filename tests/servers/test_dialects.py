"""What dialects make of replies: each that is not what was asked for is an error of its sample, and no number."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair, Encoder
from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.reasoning import without_reasoning
from pytest_llmeval.models.servers.client import Client, RequestRefused
from pytest_llmeval.models.servers.connections import Reply, TimedReply
from pytest_llmeval.models.servers.dialect import Dialect, TextPair, seed_of
from pytest_llmeval.models.servers.echoed_logprobs import is_greedy
from pytest_llmeval.models.servers.loading import DIALECT_CLASSES, ServerTokenizer
from pytest_llmeval.text.messages import read_messages
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.text.tool_schemas import tools_as_text
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Message, ToolCall

PAIR = EncodedPair((0, 11), (12, 13))
CHAT = (Message(role="user", content="Hello"),)


class FakeClient:
    """Answers each post with what ``reply`` makes of its body, and keeps the bodies."""

    def __init__(self, reply: Callable[[Mapping[str, Any]], Any] | Any) -> None:
        self.endpoint = Endpoint(url="http://fake/v1")
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self._reply = reply

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | Callable[[], Any],
        *,
        tries: int | None = None,
        is_optional: bool = False,
    ) -> TimedReply:
        await asyncio.sleep(0)
        body = body() if callable(body) else body
        self.paths.append(path)
        self.bodies.append(dict(body))
        found = self._reply(body) if callable(self._reply) else self._reply
        if isinstance(found, Exception):
            raise found
        return TimedReply(found, seconds=0.5)

    async def get(self, path: str, **settings: Any) -> Reply:
        return Reply(status=404, headers={}, body=None, text="")


def dialect_of(name: str, **settings: Any) -> Dialect:
    return DIALECT_CLASSES[name](model="m", **settings)


def generate(name: str, reply: Any, request: GenerateRequest, **settings: Any) -> tuple[GenerateResponse, FakeClient]:
    client = FakeClient(reply)
    return asyncio.run(dialect_of(name, **settings).generate(cast("Client", client), request)), client


def chat_reply(**message: Any) -> dict[str, Any]:
    reason = message.pop("finish", "stop")
    choice = {"message": {"role": "assistant", **message}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}


def anthropic_reply(*blocks: dict[str, Any], stop_reason: str = "end_turn") -> dict[str, Any]:
    return {"content": [*blocks], "stop_reason": stop_reason, "usage": {"input_tokens": 5, "output_tokens": 2}}


def echo(tokens: list[str], logprobs: list[Any], **more: Any) -> dict[str, Any]:
    tops = [None if value is None else {token: value} for token, value in zip(tokens, logprobs, strict=False)]
    found = {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": tops, **more}
    choice = {"text": "".join(tokens), "logprobs": found, "finish_reason": "length"}
    return {"choices": [choice], "usage": {"prompt_tokens": len(tokens), "completion_tokens": 0}}


IDS = ["token_id:0", "token_id:11", "token_id:12", "token_id:13"]


def test_echo_of_ids() -> None:
    client = FakeClient(echo(IDS, [None, -1.0, -2.0, -3.0]))
    response = asyncio.run(dialect_of("vllm").loglikelihood(cast("Client", client), PAIR))
    assert (response.loglikelihood, response.num_tokens, response.num_context_tokens) == (-5.0, 2, 2)
    assert (response.is_greedy, response.seconds, response.is_timed) == (True, 0.5, True)
    assert client.bodies[0]["prompt"] == [0, 11, 12, 13]


@pytest.mark.parametrize(
    ("tokens", "logprobs", "reason"),
    [
        (IDS[:3], [None, -1.0, -2.0], "4 tokens were sent and the server's echo has 3"),
        (IDS, [None, -1.0, -2.0], "4 tokens and 3 logprobs"),
        ([*IDS[:3], "token_id:14"], [None, -1.0, -2.0, -3.0], "other tokens than were sent"),
        (["a", "b", "c", "d"], [None, -1.0, -2.0, -3.0], "by their texts, and not by their ids"),
        (IDS, [-0.5, -1.0, -2.0, -3.0], "a logprob for the first token"),
        (IDS, [None, None, -2.0, -3.0], "None in a logprob's place"),
        (IDS, [None, -1.0, -2.0, float("nan")], "not a finite number"),
        (IDS, [None, -1.0, -2.0, float("-inf")], "not a finite number"),
        (IDS, [None, -1.0, -2.0, -9999.0], "not a finite number"),
        (IDS, [None, -1.0, -2.0, 0.2], "a logprob is at most 0"),
        (IDS, [None, -1.0, -2.0, "-3.0"], "'-3.0' in a logprob's place"),
    ],
)
def test_echo_that_is_refused(tokens: list[str], logprobs: list[Any], reason: str) -> None:
    client = FakeClient(echo(tokens, logprobs))
    with pytest.raises(RequestError) as caught:
        asyncio.run(dialect_of("vllm").score(cast("Client", client), PAIR))
    assert reason in str(caught.value)


def test_what_is_refused_together_is_asked_one_by_one() -> None:
    """One prompt that the server refuses takes no other with it."""

    def reply(body: Mapping[str, Any]) -> Any:
        if isinstance(body["prompt"][0], list) or body["prompt"][-1] == 99:
            return RequestRefused("too long", 400)
        return echo([f"token_id:{token}" for token in body["prompt"]], [None, -1.0, -2.0, -3.0])

    async def ask() -> list[Any]:
        dialect, client = dialect_of("vllm"), cast("Client", FakeClient(reply))
        pairs = [EncodedPair((0, 11), (12, last)) for last in (13, 99, 14)]
        return await asyncio.gather(*(dialect.score(client, pair) for pair in pairs), return_exceptions=True)

    first, second, third = asyncio.run(ask())
    assert first.logprobs == third.logprobs == (-2.0, -3.0)
    assert str(second) == "too long"


@pytest.mark.parametrize("order", [[1, 0], [0, 0], [0], [0, 1, 2]])
def test_prompts_of_one_request_have_a_choice_each(order: list[int]) -> None:
    """By its index; where they do not fit the prompts, each is asked by itself."""

    def reply(body: Mapping[str, Any]) -> Any:
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        replies = [
            echo([f"token_id:{token}" for token in prompt], [None, -1.0, -2.0, -float(prompt[-1])])
            for prompt in prompts
        ]
        if len(prompts) == 1:
            return replies[0]
        choices = [{**replies[min(index, 1)]["choices"][0], "index": index} for index in order]
        return {"choices": choices, "usage": {"prompt_tokens": 8}}

    async def ask() -> list[Any]:
        dialect, client = dialect_of("vllm"), cast("Client", FakeClient(reply))
        return await asyncio.gather(*(dialect.score(client, EncodedPair((0, 11), (12, n))) for n in (13, 14)))

    found = asyncio.run(ask())
    assert [scored.logprobs for scored in found] == [(-2.0, -13.0), (-2.0, -14.0)]
    assert {scored.is_timed for scored in found} == {order != [1, 0]}


@pytest.mark.parametrize("read", [7, 8])
def test_contexts_of_one_request_have_their_own_tokens(read: int) -> None:
    """The tokens of all are asked for; where the server has read another number, each context is asked by itself."""
    asked: list[Any] = []

    def reply(body: Mapping[str, Any]) -> Any:
        asked.append((body["prompt"], body["logprob_token_ids"]))
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        choices: list[Any] = []
        for prompt in prompts:
            top = {f"token_id:{token}": -float(token + prompt[-1]) for token in body["logprob_token_ids"]}
            found = {"tokens": ["token_id:1"], "token_logprobs": [-0.5], "top_logprobs": [{"token_id:1": -0.5, **top}]}
            choices.insert(0, {"index": len(choices), "text": "", "logprobs": found})
        return {"choices": choices, "usage": {"prompt_tokens": read if len(prompts) > 1 else len(prompts[0])}}

    async def ask() -> list[Any]:
        dialect, client = dialect_of("vllm"), cast("Client", FakeClient(reply))
        questions = [((1, 2, 3), [7, 8]), ((4, 5), [8, 9]), ((4, 5, 6), [7])]
        return await asyncio.gather(*(dialect.next_logprobs(client, *question) for question in questions))

    found = asyncio.run(ask())
    assert [one.logprobs for one in found] == [{7: -10.0, 8: -11.0}, {8: -13.0, 9: -14.0}, {7: -13.0}]
    assert {(one.largest, one.is_timed, one.seconds) for one in found} == (
        {(-0.5, False, 0.5 / 3)} if read == 8 else {(-0.5, True, 0.5)}
    )
    assert asked[0] == ([[1, 2, 3], [4, 5], [4, 5, 6]], [7, 8, 9])
    assert len(asked) == (1 if read == 8 else 4)


def test_prompt_that_the_server_reads_otherwise() -> None:
    reply = echo(IDS, [None, -1.0, -2.0, -3.0])
    reply["usage"]["prompt_tokens"] = 5
    with pytest.raises(RequestError, match="4 tokens were sent and the server read 5"):
        asyncio.run(dialect_of("vllm").score(cast("Client", FakeClient(reply)), PAIR))


def text_echo(tokens: list[str], offsets: list[int], logprobs: list[float | None]) -> dict[str, Any]:
    reply = echo(tokens, logprobs, text_offset=offsets)
    reply["usage"] = {"prompt_tokens": len(tokens), "completion_tokens": 1}
    return reply


def test_echo_of_text() -> None:
    """The last token was written behind the text; the server has read a BOS more than it echoes."""
    client = FakeClient(text_echo(["The", " sun", " is", " hot"], [0, 3, 7, 10], [None, -1.0, -2.0, -3.0]))
    pair = TextPair("The", " sun is")
    scored = asyncio.run(dialect_of("llama-cpp-python").score(cast("Client", client), pair))
    assert (scored.logprobs, scored.num_context_tokens) == ((-1.0, -2.0), 2)
    assert (client.bodies[0]["prompt"], client.bodies[0]["max_tokens"]) == ("The sun is", 1)


def test_echo_with_parts_of_a_character() -> None:
    """Their texts are empty; their logprobs count."""
    tokens, offsets = ["A", " caf", "", "", " x", "!"], [0, 1, 5, 5, 6, 8]
    reply = text_echo(tokens, offsets, [None, -1.0, -2.0, -3.0, -4.0, -5.0])
    reply["choices"][0]["text"] = "A café x!"
    scored = asyncio.run(
        dialect_of("llama-cpp-python").score(cast("Client", FakeClient(reply)), TextPair("A", " café x"))
    )
    assert scored.logprobs == (-1.0, -2.0, -3.0, -4.0)


@pytest.mark.parametrize(
    ("tokens", "offsets", "pair", "reason"),
    [
        (["The", " sun", "!"], [0, 3, 7], TextPair("The s", "un"), "both an end of the context and a beginning"),
        (["The", " sun", "!"], [0, 3, 7], TextPair("", "The sun"), "the context is empty"),
        (["Tha", " sun", "!"], [0, 3, 7], TextPair("The", " sun"), "it ignores echo"),
        (["The", " sun", "!"], [0, 4, 7], TextPair("The", " sun"), "do not join back"),
        (["The", " sun", "!"], [1, 3, 7], TextPair("The", " sun"), "do not rise from 0"),
        (["The", "!"], [0, 3], TextPair("The", " sun"), "it ignores echo"),
    ],
)
def test_text_that_cannot_be_matched(tokens: list[str], offsets: list[int], pair: TextPair, reason: str) -> None:
    reply = text_echo(tokens, offsets, [None, *[-1.0] * (len(tokens) - 1)])
    with pytest.raises(RequestError) as caught:
        asyncio.run(dialect_of("llama-cpp-python").score(cast("Client", FakeClient(reply)), pair))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat_reply(content=None), "content is null"),
        (chat_reply(content=None, refusal="I cannot."), "the model refused (I cannot.)"),
        (chat_reply(content=["a"]), "list in the place of its text"),
        ({"choices": [], "usage": {}}, "0 choices, expected 1"),
        ({"choices": [*chat_reply(content="a")["choices"] * 2]}, "2 choices, expected 1"),
        ({"object": "error"}, "has no choices"),
        *(
            ({"choices": [{"message": {"content": "a"}, "finish_reason": reason}]}, f"by the server: {reason.lower()}")
            for reason in ("content_filter", "SAFETY", "insufficient_system_resource", "cancelled", "abort")
        ),
    ],
)
def test_chat_without_a_reply(reply: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        generate("generic", reply, GenerateRequest(CHAT))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        *((reason, "stop") for reason in ("stop", "eos", "end_turn", None)),
        *((reason, "length") for reason in ("length", "MAX_TOKENS", "model_length", "model_context_window_exceeded")),
    ],
)
def test_finish_reasons_of_many_servers(reason: str | None, expected: str) -> None:
    response, _ = generate("generic", chat_reply(content="one", finish=reason), GenerateRequest(CHAT))
    assert response.finish_reason == expected


def test_reply_is_cut_at_the_first_stop_string() -> None:
    response, _ = generate(
        "openai", chat_reply(content="one\ntwo END three"), GenerateRequest(CHAT, stop=("END", "\n"))
    )
    assert (response.text, response.finish_reason) == ("one", "stop")


def test_reasoning_does_not_meet_stop_strings() -> None:
    """The server would end it there: the request is sent again without them, as are all that follow."""

    def reply(body: Mapping[str, Any]) -> dict[str, Any]:
        return chat_reply(content="" if "stop" in body else "4\nSure.", reasoning_content="Two and\ntwo …")

    response, client = generate("vllm", reply, GenerateRequest(CHAT, stop=("\n",)))
    assert response.text == "4"
    assert ["stop" in body for body in client.bodies] == [True, False]


THINKS = GenerateRequest(CHAT, stop=("\n\n",), reasoning=DEFAULT_TAGS)


def with_usage(reply: dict[str, Any], num_reasoning_tokens: int) -> dict[str, Any]:
    return {**reply, "usage": {"completion_tokens_details": {"reasoning_tokens": num_reasoning_tokens}}}


OLLAMA = {"message": {"content": "", "thinking": "Hm …"}, "done_reason": "length", "eval_count": 9}


@pytest.mark.parametrize(
    ("name", "reply", "reasoning"),
    [
        ("vllm", chat_reply(content=None, reasoning_content="Hm …", finish="length"), "Hm …"),
        ("vllm", chat_reply(content="", reasoning="Hm …", finish="length"), "Hm …"),
        ("openai", with_usage(chat_reply(content="", finish="length"), 9), ""),
        ("anthropic", anthropic_reply({"type": "thinking", "thinking": "Hm …"}, stop_reason="max_tokens"), "Hm …"),
        ("ollama", OLLAMA, "Hm …"),
    ],
)
def test_a_reply_that_ended_in_its_reasoning(name: str, reply: dict[str, Any], reasoning: str) -> None:
    response, client = generate(name, reply, replace(THINKS, stop=()))
    assert (response.text, response.reasoning, response.is_unfinished) == ("", reasoning, True)
    assert response.finish_reason == "length"
    assert sum("messages" in body for body in client.bodies) == 1


def test_a_refusal_is_no_reasoning() -> None:
    reply = chat_reply(content=None, refusal="I will not.", reasoning_content="Hm …")
    with pytest.raises(RequestError, match=r"the model refused \(I will not\.\)"):
        generate("vllm", reply, THINKS)


def asked_twice(whole: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A server that looks for stop strings everywhere in a text."""

    def reply(body: Mapping[str, Any]) -> dict[str, Any]:
        starts = [whole.find(stop) for stop in body.get("stop", ()) if stop in whole]
        text = whole[: min(starts, default=len(whole))]
        return chat_reply(content=text) if "messages" in body else completion(text)

    return reply


def completion(text: str) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": "stop"}]}


@pytest.mark.parametrize("prompt", [CHAT, "Hello"])
@pytest.mark.parametrize("whole", ["<think>Two\n\nand two</think>\n\n4\n\nSure.", "<think>Two</think>\n\n4\n\nSure."])
def test_tags_in_texts_do_not_meet_stop_strings(prompt: Any, whole: str) -> None:
    """Nor does the white space behind them. Later requests of the same kind have no stop strings."""
    client = FakeClient(asked_twice(whole))
    dialect = dialect_of("vllm")
    request = replace(THINKS, prompt=prompt)
    for _ in range(2):
        response = asyncio.run(dialect.generate(cast("Client", client), request))
        assert without_reasoning(request, response).text == "4"
        assert (response.text, response.finish_reason) == (whole.removesuffix("\n\nSure."), "stop")
    assert ["stop" in body for body in client.bodies] == [True, False, False]
    other = asyncio.run(dialect.generate(cast("Client", client), replace(request, prompt=("Hi", CHAT)[prompt != CHAT])))
    assert other.text == response.text
    assert ["stop" in body for body in client.bodies[3:]] == [True, False]


def test_a_reply_that_is_asked_for_twice_counts_what_both_took() -> None:
    counted = {"prompt_tokens": 9, "completion_tokens": 4}
    reply = asked_twice("<think>Two\n\nand two</think>4")
    response, client = generate("vllm", lambda body: {**reply(body), "usage": counted}, THINKS)
    assert len(client.bodies) == 2
    assert (response.num_prompt_tokens, response.num_tokens) == (18, 8)


def test_an_answer_that_quotes_the_tags_is_whole() -> None:
    """A server that tells reasoning apart itself has left nothing to split off; stops apply to all of its answer."""
    answer = "It is closed by\n</think>\nand opened by\n<think>"
    request = replace(THINKS, stop=("STOP",))
    response, _ = generate("vllm", chat_reply(content=f"{answer}STOP", reasoning_content="Hm …"), request)
    found = without_reasoning(request, response)
    assert (found.text, found.reasoning, found.is_unfinished) == (answer, "Hm …", False)


def test_without_tags_stop_strings_are_sent_and_apply_everywhere() -> None:
    response, client = generate("vllm", asked_twice("<think>Two\n\nand two</think>4"), replace(THINKS, reasoning=()))
    assert response.text == "<think>Two"
    assert [body["stop"] for body in client.bodies] == [["\n\n"]]


def test_what_the_servers_template_opens() -> None:
    """Where it is known that it does, replies begin inside of reasoning, and stop strings are never sent."""
    client = FakeClient(asked_twice("Two\n\nand two</think>4\n\nSure."))
    response = asyncio.run(dialect_of("vllm").generate(cast("Client", client), THINKS, "<think>"))
    assert (response.tagged, "stop" in client.bodies[0]) == ("<think>Two\n\nand two</think>4", False)
    assert without_reasoning(THINKS, response).text == "4"
    client = FakeClient(chat_reply(content="Two\n\nand", finish="length"))
    response = asyncio.run(dialect_of("vllm").generate(cast("Client", client), THINKS, "<think>"))
    found = without_reasoning(THINKS, response)
    assert (found.text, found.reasoning, found.is_unfinished) == ("", "Two\n\nand", True)
    told = FakeClient(chat_reply(content="\n\n4\n\nSure.", reasoning_content="Two"))
    response = asyncio.run(dialect_of("vllm").generate(cast("Client", told), THINKS, "<think>"))
    assert (response.text, response.reasoning, response.tagged) == ("4", "Two", None)


def test_fields_that_a_model_refuses() -> None:
    """They are left out, or named otherwise, from then on."""

    def reply(body: Mapping[str, Any]) -> Any:
        if "max_tokens" in body:
            return RequestRefused("400: 'max_tokens' is not supported; use 'max_completion_tokens' instead.", 400)
        if "temperature" in body:
            return RequestRefused("400: Unsupported value: 'temperature' does not support 0.", 400)
        return chat_reply(content="Yes")

    client = FakeClient(reply)
    dialect = dialect_of("openai")
    for _ in range(2):
        asyncio.run(dialect.generate(cast("Client", client), GenerateRequest(CHAT, max_tokens=7)))
    assert [sorted(body) for body in client.bodies[2:]] == [["max_completion_tokens", "messages", "model", "seed"]] * 2
    assert list(dialect.left_out) == ["temperature"]


def test_requests_that_are_refused_at_the_same_time_all_go_on() -> None:
    def reply(body: Mapping[str, Any]) -> Any:
        if "max_tokens" in body:
            return RequestRefused("400: 'max_tokens' is not supported, use 'max_completion_tokens' instead.", 400)
        for name in ("temperature", "seed"):
            if name in body:
                return RequestRefused(f"400: Unsupported parameter: '{name}'", 400)
        return chat_reply(content="Hi")

    client, dialect = FakeClient(reply), dialect_of("openai")

    async def ask_all() -> list[GenerateResponse]:
        requests = [GenerateRequest(CHAT, max_tokens=5 + number) for number in range(4)]
        return await asyncio.gather(*(dialect.generate(cast("Client", client), request) for request in requests))

    assert [found.text for found in asyncio.run(ask_all())] == ["Hi"] * 4
    assert set(dialect.left_out) == {"temperature", "seed"}


def test_a_refusal_that_quotes_the_request_leaves_nothing_out() -> None:
    """Where the repeat does not help, the setting was not what the server means."""
    message = (
        "400: {'type': 'value_error', 'input': {'temperature': 0.0, 'stop': ['x'], 'seed': 0}}: role not supported"
    )
    client, dialect = FakeClient(RequestRefused(message, 400)), dialect_of("vllm")
    with pytest.raises(RequestRefused):
        asyncio.run(dialect.generate(cast("Client", client), GenerateRequest(CHAT, stop=("x",))))
    assert not dialect.left_out
    assert dialect.max_tokens_field == "max_tokens"


def test_a_setting_of_the_users_own_is_not_left_out() -> None:
    client = FakeClient(RequestRefused("400: Unsupported parameter: 'seed'", 400))
    dialect = dialect_of("generic", extra_body={"seed": 3})
    with pytest.raises(RequestRefused, match="'seed'"):
        asyncio.run(dialect.generate(cast("Client", client), GenerateRequest(CHAT)))
    assert len(client.bodies) == 1


def test_other_refusals_are_the_samples() -> None:
    with pytest.raises(RequestRefused, match="too long"):
        generate("openai", RequestRefused("400: the prompt is too long", 400), GenerateRequest(CHAT))


def test_users_fields_come_last() -> None:
    _, client = generate(
        "vllm", chat_reply(content="a"), GenerateRequest(CHAT), extra_body={"top_k": 5}, max_tokens_field="limit"
    )
    assert (client.bodies[0]["top_k"], client.bodies[0]["limit"]) == (5, 256)


SAMPLED = GenerateRequest(CHAT, temperature=0.7, top_k=40, repetition_penalty=1.2)
PENALTIES = {"vllm": "repetition_penalty", "sglang": "repetition_penalty"}


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama-server", "llama-cpp-python"])
@pytest.mark.parametrize("prompt", [CHAT, "Once"])
def test_top_k_and_a_penalty_by_the_servers_own_names(name: str, prompt: Any) -> None:
    def reply(body: Mapping[str, Any]) -> Any:
        if "messages" in body:
            return chat_reply(content="a")
        return {"content": "a", "choices": [{"text": "a", "finish_reason": "stop"}]}

    _, client = generate(name, reply, replace(SAMPLED, prompt=prompt))
    penalty = PENALTIES.get(name, "repeat_penalty")
    assert (client.bodies[0]["top_k"], client.bodies[0][penalty]) == (40, 1.2)
    assert client.bodies[0].get("repeat_last_n") == (-1 if name == "llama-server" else None), "it counts all tokens"
    _, client = generate(name, reply, GenerateRequest(prompt))
    assert (client.bodies[0]["top_k"], client.bodies[0][penalty]) == ((-1 if name == "sglang" else 0), 1.0)
    assert "repeat_last_n" not in client.bodies[0]


def test_top_k_and_a_penalty_among_the_options_of_ollama() -> None:
    reply = {"message": {"content": "a"}, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1}
    _, client = generate("ollama", reply, SAMPLED)
    options = client.bodies[0]["options"]
    assert (options["top_k"], options["repeat_penalty"], options["repeat_last_n"]) == (40, 1.2, -1)


def test_anthropic_has_top_k() -> None:
    text = anthropic_reply({"type": "text", "text": "a"})
    _, client = generate("anthropic", text, replace(SAMPLED, repetition_penalty=1.0))
    assert client.bodies[0]["top_k"] == 40
    _, client = generate("anthropic", text, GenerateRequest(CHAT))
    assert "top_k" not in client.bodies[0]


TOOLS = tools_as_text(
    [{"name": "math.sqrt", "description": "A root.", "parameters": {"type": "object"}}, {"name": "f"}]
)
WITH_TOOLS = GenerateRequest(CHAT, tools=TOOLS)
SQRT = {"name": "math.sqrt", "arguments": '{"x": 2}'}
CALLED = (ToolCall(name="math.sqrt", arguments={"x": 2}),)
SENT = [function["function"] for function in json.loads(TOOLS)]


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama-server", "llama-cpp-python", "generic"])
def test_tools_of_servers_with_openai_s_chats(name: str) -> None:
    reply = chat_reply(content=None, tool_calls=[{"id": "1", "function": SQRT}], finish="tool_calls")
    response, client = generate(name, reply, WITH_TOOLS)
    assert client.bodies[0]["tools"] == json.loads(TOOLS)
    assert (response.text, response.tool_calls, response.finish_reason) == ("", CALLED, "stop")
    response, client = generate(name, chat_reply(content="a"), WITH_TOOLS)
    assert response.tool_calls is None, "they may stand in the text"
    _, client = generate(name, chat_reply(content="a"), GenerateRequest(CHAT))
    assert "tools" not in client.bodies[0]


def test_tools_of_the_hosted_api_have_names_that_it_takes() -> None:
    call = {"id": "1", "type": "function", "function": {**SQRT, "name": "math_sqrt"}}
    response, client = generate("openai", chat_reply(content="Let me see.", tool_calls=[call]), WITH_TOOLS)
    assert [tool["function"]["name"] for tool in client.bodies[0]["tools"]] == ["math_sqrt", "f"]
    assert (response.text, response.tool_calls) == ("Let me see.", CALLED)
    response, _ = generate("openai", chat_reply(content="a"), WITH_TOOLS)
    assert response.tool_calls == (), "it says that there are none"
    response, _ = generate("openai", chat_reply(content="a"), GenerateRequest(CHAT))
    assert response.tool_calls is None


def test_tools_of_anthropic() -> None:
    block = {"type": "tool_use", "id": "1", "name": "math_sqrt", "input": {"x": 2}}
    response, client = generate("anthropic", anthropic_reply(block, stop_reason="tool_use"), WITH_TOOLS)
    assert client.bodies[0]["tools"] == [
        {"name": "math_sqrt", "description": "A root.", "input_schema": {"type": "object"}},
        {"name": "f", "input_schema": {"type": "object", "properties": {}}},
    ]
    assert (response.text, response.tool_calls) == ("", CALLED)
    response, _ = generate("anthropic", anthropic_reply({"type": "text", "text": "a"}), WITH_TOOLS)
    assert (response.text, response.tool_calls) == ("a", ())


def test_tools_of_ollama() -> None:
    message = {"content": "", "tool_calls": [{"function": {"name": "math.sqrt", "arguments": {"x": 2}}}]}
    reply = {"message": message, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1}
    response, client = generate("ollama", reply, WITH_TOOLS)
    assert client.bodies[0]["tools"] == json.loads(TOOLS)
    assert (response.text, response.tool_calls) == ("", CALLED)


@pytest.mark.parametrize(
    ("capabilities", "is_refused"), [(["completion"], True), (["completion", "tools"], False), (None, False)]
)
def test_ollama_says_whether_a_model_has_tools(capabilities: list[str] | None, is_refused: bool) -> None:
    dialect = dialect_of("ollama")
    client = FakeClient({"details": {"family": "llama"}, "capabilities": capabilities})
    found = asyncio.run(dialect.identify(cast("Client", client), "m"))
    assert found.details == {"family": "llama"}
    assert (dialect.why_no_tools is not None) == is_refused


def test_calls_that_are_no_json_stay_a_text_and_others_are_an_error() -> None:
    def reply(call: Any) -> Any:
        return chat_reply(content=None, tool_calls=[call])

    response, _ = generate("vllm", reply({"function": {"name": "f", "arguments": "{'a'"}}), WITH_TOOLS)
    assert response.tool_calls == (ToolCall(name="f", text="{'a'"),)
    with pytest.raises(RequestError, match="the server's tool_calls: found a mapping"):
        generate("vllm", reply({"function": {}}), WITH_TOOLS)


@pytest.mark.parametrize("name", ["vllm", "openai"])
def test_a_reply_of_reasoning_and_calls_is_whole(name: str) -> None:
    calls = [{"function": {"name": "f", "arguments": "{}"}}]
    asked = replace(WITH_TOOLS, stop=("\n",), reasoning=DEFAULT_TAGS)
    reply = chat_reply(content=None, reasoning_content="Hm", tool_calls=calls)
    response, client = generate(name, reply, asked)
    assert (response.reasoning, response.is_unfinished, len(client.bodies)) == ("Hm", False, 1)
    assert response.tool_calls == (ToolCall(name="f", arguments={}),)


def test_which_servers_have_which_setting() -> None:
    both = {"top_k", "repetition_penalty"}
    assert {name: set(dialect.sampling_names) for name, dialect in DIALECT_CLASSES.items()} == {
        "vllm": both,
        "sglang": both,
        "llama-server": both,
        "llama-cpp-python": both,
        "ollama": both,
        "anthropic": {"top_k"},
        "openai": set(),
        "generic": set(),
    }


def test_begun_turn_is_continued() -> None:
    prompt = (*CHAT, Message(role="assistant", content="The answer is"))
    for name in ("vllm", "sglang"):
        _, client = generate(name, chat_reply(content=" 4"), GenerateRequest(prompt))
        assert client.bodies[0]["continue_final_message"] is True
        assert client.bodies[0]["add_generation_prompt"] is False
    with pytest.raises(RequestError, match="cannot continue one"):
        generate("openai", chat_reply(content=" 4"), GenerateRequest(prompt))


def test_each_epoch_has_a_seed_of_its_own() -> None:
    seeds = [seed_of(GenerateRequest("a", temperature=1.0, seed=3, epoch=epoch)) for epoch in range(4)]
    assert len(set(seeds)) == 4
    assert seeds[0] == 3
    assert {seed_of(GenerateRequest("a", seed=3, epoch=epoch)) for epoch in range(4)} == {3}


def test_anthropic() -> None:
    prompt = (Message(role="system", content="Be brief."), *CHAT)
    blocks = ({"type": "thinking", "thinking": "Hm.\n"}, {"type": "text", "text": "Hi\nthere"})
    response, client = generate("anthropic", anthropic_reply(*blocks), GenerateRequest(prompt, stop=("\n", "x")))
    assert (response.text, response.num_prompt_tokens, response.num_tokens) == ("Hi", 5, 2)
    body = client.bodies[0]
    assert (body["system"], body["stop_sequences"], "seed" in body) == ("Be brief.", ["x"], False)
    assert body["messages"] == [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (anthropic_reply(), "has no text"),
        (anthropic_reply({"type": "text", "text": ""}, stop_reason="refusal"), "ended by the server: refusal"),
        (anthropic_reply({"type": "text", "text": None}), "something else than text"),
    ],
)
def test_anthropic_without_a_reply(reply: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        generate("anthropic", reply, GenerateRequest(CHAT))
    assert reason in str(caught.value)


def test_ollama_is_asked_raw_and_may_not_cut() -> None:
    reply = {"response": "4\nSure", "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3}
    response, client = generate(
        "ollama", reply, GenerateRequest("2 + 2 =", stop=("\n",)), extra_body={"options": {"num_ctx": 64}}
    )
    body = client.bodies[0]
    assert (response.text, client.paths, body["raw"], body["truncate"]) == ("4", ["//api/generate"], True, False)
    assert (body["options"]["num_ctx"], body["options"]["num_predict"]) == (64, 256)
    with pytest.raises(RequestError, match="num_ctx of 8 tokens"):
        generate("ollama", reply, GenerateRequest("2 + 2 ="), extra_body={"options": {"num_ctx": 8}})


@pytest.mark.parametrize("value", [None, "-0.5", True])
def test_a_top_logprob_that_is_no_number(value: object) -> None:
    assert is_greedy([-0.5], [{"a": -0.5, "b": -2.0}])
    with pytest.raises(RequestError, match="in a logprob's place"):
        is_greedy([-0.5], [{"a": -0.5, "b": value}])


FORMATTED = GenerateRequest(CHAT, json_schema='{"type": "object"}')
REFUSALS = {
    "openai": "400: Invalid parameter: 'response_format' of type '{way}' is not supported with this model.",
    "llama-cpp-python": "422: body.response_format: Extra inputs are not permitted, found '{way}'",
    "vllm": "400: guided decoding is not available for {way}",
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize(("taken", "num_refused"), [("json_schema", 0), ("json_object", 1), ("text", 2)])
def test_a_server_is_held_to_json_as_strictly_as_it_takes(name: str, taken: str, num_refused: int) -> None:
    def answer(body: Mapping[str, Any]) -> Any:
        way = way_of(body)
        return chat_reply(content="{}") if way == taken else RequestRefused(REFUSALS[name].format(way=way), 400)

    dialect, client = dialect_of(name), FakeClient(answer)
    for _ in range(2):
        assert asyncio.run(dialect.generate(cast("Client", client), FORMATTED)).text == "{}"
    ways = [way_of(body) for body in client.bodies]
    assert ways == [*["json_schema", "json_object"][:num_refused], taken, taken], "found out once"
    if taken == "json_schema" and name == "llama-cpp-python":
        assert client.bodies[0]["response_format"] == {"type": "json_object", "schema": {"type": "object"}}
    elif taken == "json_schema":
        schema = client.bodies[0]["response_format"]["json_schema"]
        assert (schema["schema"], schema["strict"]) == ({"type": "object"}, True)


def way_of(body: Mapping[str, Any]) -> str:
    """How a request asks for JSON; llama-cpp-python's schema stands beside another type."""
    wanted = body.get("response_format", {"type": "text"})
    return "json_schema" if "schema" in wanted else str(wanted["type"])


def test_texts_of_a_verdict_end_where_the_server_can_see_to_it() -> None:
    """A model that does not end its reason would fill the reply with it."""
    entry = {"type": "object", "properties": {"reason": {"type": "string"}, "label": {"type": "string", "enum": ["a"]}}}
    schema = {
        "type": "object",
        "properties": {"type": entry, "kind": entry, "short": {"type": "string", "maxLength": 5}},
    }
    for max_tokens, most in ((1024, 512), (90, 100), (100_000, 1000)):
        request = GenerateRequest(CHAT, max_tokens=max_tokens, json_schema=json.dumps(schema))
        for name in ("vllm", "openai"):
            _, client = generate(name, chat_reply(content="{}"), request)
            sent = client.bodies[0]["response_format"]["json_schema"]["schema"]
            if name == "openai":
                assert sent == schema
                continue
            for place in ("type", "kind"):
                assert sent["properties"][place]["properties"].pop("reason") == {"type": "string", "maxLength": most}
                sent["properties"][place]["properties"]["reason"] = {"type": "string"}
            assert sent == schema


def test_requests_whose_schema_is_refused_at_the_same_time_all_go_on() -> None:
    def answer(body: Mapping[str, Any]) -> Any:
        way = body.get("response_format", {}).get("type", "text")
        return RequestRefused("400: response_format", 400) if way == "json_schema" else chat_reply(content="{}")

    client, dialect = FakeClient(answer), dialect_of("openai")

    async def ask_all() -> list[GenerateResponse]:
        return await asyncio.gather(*(dialect.generate(cast("Client", client), FORMATTED) for _ in range(4)))

    assert [found.text for found in asyncio.run(ask_all())] == ["{}"] * 4
    assert dialect.json_way == "json_object"


def test_a_schema_that_is_refused_late_is_asked_for_as_the_others_are() -> None:
    """By then another request has found the way, and had a reply."""

    class Late(FakeClient):
        async def post(self, path: str, body: Any, **settings: Any) -> TimedReply:
            while body["max_tokens"] == 2 and not dialect.is_json_way_known:
                await asyncio.sleep(0)
            return await super().post(path, body, **settings)

    def answer(body: Mapping[str, Any]) -> Any:
        way = body.get("response_format", {}).get("type", "text")
        return RequestRefused("400: response_format", 400) if way == "json_schema" else chat_reply(content="{}")

    client, dialect = Late(answer), dialect_of("openai")

    async def ask_both() -> list[GenerateResponse]:
        requests = [GenerateRequest(CHAT, max_tokens=number, json_schema="{}") for number in (1, 2)]
        return await asyncio.gather(*(dialect.generate(cast("Client", client), request) for request in requests))

    assert [found.text for found in asyncio.run(ask_both())] == ["{}", "{}"]


def test_an_error_of_a_sample_is_not_taken_for_a_refusal_of_the_schema() -> None:
    for message in ("400: the prompt has 9 tokens too many", "400: maximum context length exceeded"):
        with pytest.raises(RequestError, match="400"):
            generate("openai", RequestRefused(message, 400), FORMATTED)
    replies = iter([chat_reply(content="{}"), RequestRefused("400: the json_schema is too large", 400)])
    dialect, client = dialect_of("openai"), FakeClient(lambda body: next(replies))
    asyncio.run(dialect.generate(cast("Client", client), FORMATTED))
    with pytest.raises(RequestError, match="too large"):
        asyncio.run(dialect.generate(cast("Client", client), FORMATTED))
    assert dialect.json_way == "json_schema"


def test_a_response_format_of_the_users_own_stays() -> None:
    own = {"response_format": {"type": "json_object"}}
    _, client = generate("openai", chat_reply(content="{}"), FORMATTED, extra_body=own)
    assert client.bodies[0]["response_format"] == own["response_format"]


def test_requests_without_a_schema_have_no_response_format() -> None:
    _, client = generate("openai", chat_reply(content="{}"), GenerateRequest(CHAT))
    assert "response_format" not in client.bodies[0]


CONVERSATION = read_messages(
    [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a", "name": "Ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "functions.f:0", "function": SQRT}, {"name": "f", "arguments": {}}],
        },
        {"role": "tool", "content": "1.4", "tool_call_id": "functions.f:0", "name": "math.sqrt"},
        {"role": "tool", "content": ""},
        {"role": "user", "content": "b"},
    ]
)
CALLS = [
    {"id": "functions.f:0", "type": "function", "function": SQRT},
    {"type": "function", "function": {"name": "f", "arguments": "{}"}, "id": "call_2"},
]


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama-server", "llama-cpp-python", "generic", "openai"])
def test_conversations_of_servers_with_openai_s_chats(name: str) -> None:
    """A call without an id gets one, and the result that names no call is that of the first call without a result."""
    _, client = generate(name, chat_reply(content="a"), GenerateRequest(CONVERSATION))
    sqrt = "math_sqrt" if name == "openai" else "math.sqrt"
    first, second = CALLS
    assert client.bodies[0]["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a", "name": "Ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**first, "function": {**SQRT, "name": sqrt}}, second],
        },
        {"role": "tool", "content": "1.4", "tool_call_id": "functions.f:0", "name": sqrt},
        {"role": "tool", "content": "", "tool_call_id": "call_2"},
        {"role": "user", "content": "b"},
    ]


def test_conversations_of_anthropic() -> None:
    _, client = generate("anthropic", anthropic_reply({"type": "text", "text": "a"}), GenerateRequest(CONVERSATION))
    assert client.bodies[0]["system"] == "s"
    assert client.bodies[0]["messages"] == [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "functions_f_0", "name": "math_sqrt", "input": {"x": 2}},
                {"type": "tool_use", "id": "call_2", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "functions_f_0", "content": "1.4"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": ""},
            ],
        },
        {"role": "user", "content": "b"},
    ]
    calling = (*CONVERSATION[:2], replace(CONVERSATION[2], content="Let me see.", has_content=True), *CONVERSATION[3:])
    _, client = generate("anthropic", anthropic_reply({"type": "text", "text": "a"}), GenerateRequest(calling))
    assert client.bodies[0]["messages"][1]["content"][0] == {"type": "text", "text": "Let me see."}


def test_conversations_of_ollama() -> None:
    reply = {"message": {"content": "a"}, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1}
    _, client = generate("ollama", reply, GenerateRequest(CONVERSATION))
    sent = client.bodies[0]["messages"]
    assert sent[2:5] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "functions.f:0", "function": {"name": "math.sqrt", "arguments": {"x": 2}}},
                {"id": "call_2", "function": {"name": "f", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "1.4", "tool_call_id": "functions.f:0", "tool_name": "math.sqrt"},
        {"role": "tool", "content": "", "tool_call_id": "call_2", "tool_name": "f"},
    ]
    assert [message["role"] for message in sent] == [turn.role for turn in CONVERSATION]


def test_log_likelihoods_after_a_conversation_are_of_the_server_s_own_rendering() -> None:
    """A chat template here takes arguments as a mapping, and the server takes them as text."""
    client = FakeClient({"prompt": "<rendered>"})
    replica = SimpleNamespace(dialect=dialect_of("llama-server"), client=client)
    tokenizer: Any = ServerTokenizer(cast("Any", None))
    tokenizer._ask = lambda question: asyncio.run(question(replica))
    assert Encoder(tokenizer).render(CONVERSATION) == "<rendered>"
    calls = client.bodies[0]["messages"][2]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"x": 2}', "{}"]
