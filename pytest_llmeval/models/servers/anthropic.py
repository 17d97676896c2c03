"""The hosted Anthropic API (``/messages``): chats only, no seed, no logprobs. A text prompt is one turn of the user."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.servers.client import tokens_in
from pytest_llmeval.models.servers.completions import listed_models
from pytest_llmeval.models.servers.connections import served_by
from pytest_llmeval.models.servers.dialect import (
    Dialect,
    FoundServer,
    SentTools,
    Written,
    choose_model,
    count_in,
)
from pytest_llmeval.types import JSON, GenerateRequest

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["AnthropicDialect"]

_COMPLETE = ("end_turn", "stop_sequence", "max_tokens", "tool_use")


class AnthropicDialect(Dialect):
    """Anthropic's own API, and what behaves as it does."""

    name = "anthropic"
    why_no_scores = "the hosted Anthropic API gives no log-likelihoods"
    sampling_names: ClassVar[Mapping[str, str]] = {"top_k": "top_k"}
    takes_text = False
    continues_chat = True
    is_hosted = True

    async def identify(self, client: Client, wanted: str | None) -> FoundServer:
        """See ``Dialect``. The list leaves out aliases such as ``…-latest``, so that a name which is not in it is
        tried.
        """
        models = [str(entry["id"]) for entry in await listed_models(client, wanted)]
        if wanted is not None and wanted.endswith("-latest"):
            models = []
        self.model = choose_model(models, wanted, client.endpoint.url)
        return FoundServer(model=self.model, models=(self.model,))

    async def write(self, client: Client, request: GenerateRequest) -> Written:
        tools = SentTools(request, short=True)
        turns = tools.messages()
        system = "\n\n".join(turn["content"] for turn in turns if turn["role"] == "system")
        fields: dict[str, JSON] = {
            "messages": _messages(turns),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }
        if system:
            fields["system"] = system
        if request.top_p != 1:
            fields["top_p"] = request.top_p
        fields |= self.sampling(request)
        if stop := [string for string in request.stop if string.strip()]:  # white space alone is refused
            fields["stop_sequences"] = list(stop)
        if request.tools:
            fields["tools"] = [_as_tool(function) for function in tools.functions()]
        reply, seconds = await self.post(client, "/messages", fields)
        reason, blocks = reply.get("stop_reason"), reply.get("content")
        if reason not in _COMPLETE:
            raise RequestError(f"the reply was ended by the server: {reason}")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise RequestError("the server's reply has no content")
        texts = [block.get("text") for block in blocks if block.get("type") == "text"]
        if not all(isinstance(text, str) for text in texts):
            raise RequestError("the server's reply has something else than text in a text's place")
        reasoning = "".join(str(block.get("thinking", "")) for block in blocks if block.get("type") == "thinking")
        calls = tools.calls([block for block in blocks if block.get("type") == "tool_use"])
        if not texts and not reasoning and not calls and reason != "stop_sequence":
            raise RequestError(f"the server's reply has no text (it ended with {reason}); is max_tokens large enough?")
        return Written(
            text="".join(map(str, texts)),
            finish_reason="length" if reason == "max_tokens" else "stop",
            num_prompt_tokens=tokens_in(reply)[0] or None,
            num_tokens=count_in(reply.get("usage"), "output_tokens"),
            seconds=seconds,
            reasoning=reasoning or None,
            tool_calls=calls if request.tools else None,
            **served_by(reply),
        )


def _messages(turns: Sequence[dict[str, Any]]) -> list[JSON]:
    """Return turns as this API takes them: calls and their results are blocks, and results of one turn stand together.

    It knows no names of speakers, and refuses blocks of text that are empty.
    """
    made: list[dict[str, Any]] = []
    results: list[JSON] = []
    for turn in turns:
        if turn["role"] == "tool":
            id_, text = _usable_id(turn.get("tool_call_id", "")), turn["content"]
            if not results:
                made.append({"role": "user", "content": results})
            results.append({"type": "tool_result", "tool_use_id": id_, "content": text})
            continue
        results = []
        if calls := turn.get("tool_calls"):
            blocks: list[JSON] = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
            blocks += [_as_block(call) for call in calls]
            made.append({"role": turn["role"], "content": blocks})
        elif turn["role"] != "system":
            made.append({"role": turn["role"], "content": turn["content"]})
    return list(made)


def _as_block(call: Mapping[str, Any]) -> JSON:
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return {"type": "tool_use", "id": _usable_id(call["id"]), "name": function["name"], "input": arguments}


def _usable_id(id_: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", id_)


def _as_tool(function: Mapping[str, Any]) -> dict[str, JSON]:
    """Return a function as this API takes it, which wants a schema also of one without parameters."""
    tool: dict[str, JSON] = {"name": function["name"]}
    if "description" in function:
        tool["description"] = function["description"]
    return {**tool, "input_schema": function.get("parameters") or {"type": "object", "properties": {}}}
