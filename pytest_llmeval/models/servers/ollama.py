"""Ollama, through its own interface: there a prompt can be sent raw, and one that is too long is refused.

Its OpenAI interface wraps every text into the model's template, and cuts what does not fit without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.servers.completions import CompletionsDialect, listed_models
from pytest_llmeval.models.servers.connections import served_by
from pytest_llmeval.models.servers.dialect import (
    FoundServer,
    JSONWay,
    SentTools,
    Written,
    choose_model,
    count_in,
    looked_up,
    seed_of,
    text_in,
)
from pytest_llmeval.types import JSON, GenerateRequest

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["OllamaDialect"]


class OllamaDialect(CompletionsDialect):
    """Ollama's server."""

    name = "ollama"
    why_no_scores = "Ollama gives no log-likelihoods of a prompt's tokens"
    sampling_names: ClassVar[Mapping[str, str]] = {"top_k": "top_k", "repetition_penalty": "repeat_penalty"}
    with_penalty: ClassVar[Mapping[str, JSON]] = {"repeat_last_n": -1}
    plain_sampling: ClassVar[Mapping[str, JSON]] = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
    embedding_path = "//api/embed"
    format_field = "format"

    async def identify(self, client: Client, wanted: str | None) -> FoundServer:
        tags = (await looked_up(client, "//api/tags")).get("models")
        entries = (
            [entry for entry in tags if isinstance(entry, dict) and "name" in entry] if isinstance(tags, list) else []
        )
        names = [str(entry["name"]) for entry in entries]
        names = names or [str(entry["id"]) for entry in await listed_models(client, wanted)]
        self.model = choose_model(names, wanted, client.endpoint.url)
        own = next((entry for entry in entries if entry["name"] == self.model), {})
        version = text_in(await looked_up(client, "//api/version"), "version")
        about = await client.post("//api/show", {"model": self.model})
        shown, abilities = about.get("details"), about.get("capabilities")
        if isinstance(abilities, list) and abilities and "tools" not in abilities:
            self.why_no_tools = f"Ollama's model {self.model} has no tools in its template; use one that has"
        kept = ((key, text_in(shown, key)) for key in ("family", "parameter_size", "quantization_level"))
        return FoundServer(
            model=self.model,
            models=tuple(names),
            version=version,
            build=text_in(own, "digest"),
            details={key: value for key, value in kept if value is not None},
        )

    async def write(self, client: Client, request: GenerateRequest) -> Written:
        """See ``Dialect``."""
        is_chat = isinstance(request.prompt, tuple)
        options: dict[str, JSON] = {
            "num_predict": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": seed_of(request),
            **self.plain_sampling,
            **self.sampling(request),
        }
        if request.stop:
            options["stop"] = list(request.stop)
        fields: dict[str, JSON] = {"stream": False, "options": options, "truncate": False, "shift": False}
        tools = SentTools(request, short=False)
        if is_chat:
            fields["messages"] = _messages(tools.messages())
            if request.tools:
                fields["tools"] = tools.openai()
        else:
            fields |= {"prompt": request.prompt, "raw": True}  # type: ignore[dict-item]
        if is_chat:
            reply, seconds = await self.post_chat(client, "//api/chat", fields, request)
        else:
            reply, seconds = await self.post(client, "//api/generate", fields)
        holder = reply.get("message") if is_chat else reply
        text = text_in(holder, "content" if is_chat else "response")
        calls = tools.calls(holder.get("tool_calls")) if is_chat and isinstance(holder, dict) else ()
        if text is None and not calls:
            raise RequestError("the server's reply has no text")
        written = await self._whole(client, reply, text or "", seconds, text_in(holder, "thinking") or None)
        return replace(written, tool_calls=calls) if calls else written

    def response_format(self, way: JSONWay, request: GenerateRequest) -> JSON:
        return "json" if way == "json_object" else self.schema(request)

    def embedding_fields(self, texts: Sequence[str]) -> dict[str, JSON]:
        return {"input": list(texts), "truncate": False}

    def embedding_reply(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the vectors of a reply: they stand in the order of the texts, without an index."""
        vectors = reply.get("embeddings")
        if not isinstance(vectors, list):
            return reply
        data = [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        return {"data": data, "usage": {"prompt_tokens": reply.get("prompt_eval_count")}}

    async def _whole(
        self, client: Client, reply: Mapping[str, Any], text: str, seconds: float, reasoning: str | None
    ) -> Written:
        """Return the reply, unless its prompt filled the context: then it was cut. Raises ``RequestError``."""
        prompt = count_in(reply, "prompt_eval_count")
        if self.max_length is None:  # known once the model is loaded
            self.max_length = await self._context_length(client)
        if prompt is not None and self.max_length is not None and prompt >= self.max_length - 1:
            raise RequestError(
                f"the prompt fills the server's num_ctx of {self.max_length} tokens: it was cut; raise that with "
                'extra_body={"options": {"num_ctx": N}}, or OLLAMA_CONTEXT_LENGTH'
            )
        return Written(
            text=text,
            finish_reason="length" if reply.get("done_reason") == "length" else "stop",
            num_prompt_tokens=prompt,
            num_tokens=count_in(reply, "eval_count"),
            seconds=seconds,
            reasoning=reasoning,
            **served_by(reply),
        )

    async def _context_length(self, client: Client) -> int | None:
        if (length := count_in(self.extra_body.get("options"), "num_ctx")) is not None:
            return length
        loaded = (await looked_up(client, "//api/ps")).get("models")
        for entry in loaded if isinstance(loaded, list) else ():
            if isinstance(entry, dict) and self.model in (entry.get("name"), entry.get("model")):
                return count_in(entry, "context_length")
        return None

    def body(self, fields: Mapping[str, JSON]) -> dict[str, JSON]:
        """See ``Dialect``. The user's options join ours, the others take the place of ours."""
        body = super().body(fields)
        ours, own = fields.get("options"), self.extra_body.get("options")
        if isinstance(ours, dict) and isinstance(own, dict):
            body["options"] = {**ours, **own}
        return body


def _messages(messages: Sequence[dict[str, Any]]) -> list[JSON]:
    """Return messages as this API takes them: arguments are a mapping, and a result has the name of its function."""
    names: dict[str, str] = {}
    made: list[JSON] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            for call in calls:
                del call["type"]
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            name = message.pop("name", None) or names.get(message.get("tool_call_id", ""))
            message |= {"tool_name": name} if name else {}
        made.append({**message, "content": message["content"] or ""})
    return made
