"""OpenAI's interface, which many servers share: ``/completions``, ``/chat/completions`` and ``/embeddings``; and the
hosted API of OpenAI, which has chats only.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import ended_at_limit
from pytest_llmeval.models.servers.batches import Batches, Take
from pytest_llmeval.models.servers.client import RequestRefused
from pytest_llmeval.models.servers.connections import served_by
from pytest_llmeval.models.servers.dialect import (
    WEAKER,
    Dialect,
    FoundServer,
    JSONWay,
    Sampled,
    SentTools,
    Written,
    checked_logprob,
    choose_model,
    count_in,
    seed_of,
    text_in,
)
from pytest_llmeval.text.redaction import one_line
from pytest_llmeval.types import JSON, EmbeddingResponse, GenerateRequest, Message

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client
    from pytest_llmeval.models.servers.connections import Reply

__all__ = [
    "CompletionsDialect",
    "OpenAIDialect",
    "listed_models",
    "logprob_lists",
    "only_choice",
    "token_id",
    "usage_of",
    "what_came",
]


_TOKEN_ID = re.compile(r"token_id:(\d+)")
_MOST_TEXTS = 32
"""The most texts of one request for embeddings: as many as every server takes."""
_MOST_CHARS = 100_000
"""The most characters of the texts of one such request, where it has more than one."""


class CompletionsDialect(Dialect):
    """A server with OpenAI's ``/models``, ``/completions`` and ``/chat/completions``."""

    plain_sampling: ClassVar[Mapping[str, JSON]] = {}
    """Settings that switch off the server's own defaults of sampling (penalties, top-k), where it has such settings: a
    request means temperature, top-p and nothing else.
    """

    heeds_max_length: ClassVar[bool] = False
    """True if the server holds a reply to ``maxLength`` of a schema. Without it the reply of a weak model, which does
    not end a text by itself, is cut before it is JSON."""

    always_sends_top_p: ClassVar[bool] = False
    """True if a request without ``top_p`` gets the server's own default, which is not 1."""

    naming_tokens: ClassVar[Mapping[str, JSON]] = {}
    """Settings that have the server name tokens by their ids, where it can."""

    embedding_path: ClassVar[str] = "/embeddings"
    format_field: ClassVar[str] = "response_format"
    """The field that holds a reply to JSON."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.is_json_way_known = self.format_field in self.extra_body
        self.json_way = "text" if self.is_json_way_known else "json_schema"
        self._texts: Batches[str, EmbeddingResponse] | None = None

    async def identify(self, client: Client, wanted: str | None) -> FoundServer:
        models = await listed_models(client, wanted)
        self.model = choose_model([str(entry["id"]) for entry in models], wanted, client.endpoint.url)
        return await self.found(client, models, next((e for e in models if e["id"] == self.model), {}))

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> FoundServer:
        """Return what else there is to know of the model, whose entry of ``/models`` is ``own``."""
        root = text_in(own, "root")
        return FoundServer(
            model=self.model,
            models=tuple(str(entry["id"]) for entry in models),
            root=None if root == self.model else root,
            max_length=count_in(own, "max_model_len") or count_in(own, "context_length"),
        )

    async def write(self, client: Client, request: GenerateRequest) -> Written:
        if isinstance(request.prompt, tuple) or not self.takes_text:
            return await self.write_chat(client, request)
        fields = {"prompt": request.prompt, **self.settings(request)}
        reply, seconds = await self.post(client, "/completions", fields)
        choice = only_choice(reply)
        return self.written(reply, choice, text_of(choice, "text"), seconds)

    def chat_fields(self, request: GenerateRequest) -> dict[str, JSON]:
        """Return what this server takes for a chat beside the usual settings."""
        return {}

    def settings(self, request: GenerateRequest) -> dict[str, JSON]:
        """Return the settings of a request, as the API names them."""
        fields: dict[str, JSON] = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": seed_of(request),
            **self.plain_sampling,
            **self.sampling(request),
        }
        if request.top_p != 1 or self.always_sends_top_p:
            fields["top_p"] = request.top_p
        if request.stop:
            fields["stop"] = list(request.stop)
        return fields

    async def write_chat(self, client: Client, request: GenerateRequest) -> Written:
        """Return a reply to a chat. One that ended inside of its reasoning has an empty text."""
        tools = SentTools(request, short=self.is_hosted)
        fields = {"messages": tools.messages(), **self.settings(request), **self.chat_fields(request)}
        if request.tools:
            fields["tools"] = tools.openai()
        reply, seconds = await self.post_chat(client, "/chat/completions", fields, request)
        choice = only_choice(reply)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise RequestError("the server's reply has no message")
        found = (message.get(key) for key in ("reasoning_content", "reasoning"))
        reasoning = next((text for text in found if isinstance(text, str) and text), None)
        if reasoning is None and finish_reason_of(choice) == "length" and has_reasoned(reply):
            reasoning = ""  # which the server does not show
        calls = tools.calls(message.get("tool_calls"))
        has_other = reasoning is not None or bool(calls)
        is_empty = has_other and message.get("content") is None and message.get("refusal") is None
        text = "" if is_empty else text_of(message, "content")
        written = self.written(reply, choice, text, seconds, reasoning)
        return replace(written, tool_calls=calls) if calls or (request.tools and self.is_hosted) else written

    async def post_chat(
        self, client: Client, path: str, fields: Mapping[str, JSON], request: GenerateRequest
    ) -> tuple[dict[str, Any], float]:
        """Return the reply to a chat; of one that is to follow a JSON schema in the strictest way that the server
        takes.

        Which one that is, the first reply decides, where no self-test did. Raises ``RequestError``.
        """
        if not request.json_schema:
            return await self.post(client, path, fields)
        while True:
            way = self.json_way
            wanted = {} if way == "text" else {self.format_field: self.response_format(way, request)}
            try:
                reply = await self.post(client, path, {**fields, **wanted})
            except RequestRefused as error:
                if self.json_way != way:  # another request has found out meanwhile
                    continue
                is_about_format = any(word in str(error).lower() for word in _FORMAT_WORDS)
                if self.is_json_way_known or way == "text" or error.is_temporary or not is_about_format:
                    raise
                self.json_way = WEAKER[way]
            else:
                self.is_json_way_known = True
                return reply

    def response_format(self, way: JSONWay, request: GenerateRequest) -> JSON:
        """Return what stands in ``format_field``; here OpenAI's."""
        if way == "json_object":
            return {"type": "json_object"}
        return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": self.schema(request)}}

    def schema(self, request: GenerateRequest) -> JSON:
        """Return the JSON Schema that the server is sent."""
        schema: JSON = json.loads(request.json_schema)
        if self.heeds_max_length and (count := _num_texts(schema)):
            schema = _with_bounded_texts(schema, min(max(request.max_tokens // count, _SHORT), _LONG))
        return schema

    async def sample(self, client: Client, text: str, *, num_tokens: int, temperature: float) -> Sampled:
        fields: dict[str, JSON] = {
            "prompt": text,
            "max_tokens": num_tokens,
            "temperature": temperature,
            "seed": 1,
            "logprobs": 1,
            **self.plain_sampling,
            **self.naming_tokens,
        }
        if temperature:
            fields["top_p"] = 1.0
        reply, _ = await self.post(client, "/completions", fields)
        tokens, logprobs, _, _ = logprob_lists(only_choice(reply))
        ids = [token_id(token) for token in tokens]
        return Sampled(
            tokens=tuple(tokens) if None in ids else tuple(token for token in ids if token is not None),
            logprobs=tuple(map(checked_logprob, logprobs)),
            num_prompt_tokens=usage_of(reply)[0],
        )

    async def embed(self, client: Client, text: str) -> EmbeddingResponse:
        if self._texts is None:
            self._texts = Batches(
                functools.partial(self._embed_together, client), len, max_questions=_MOST_TEXTS, max_size=_MOST_CHARS
            )
        return await self._texts.ask(text)

    async def _embed_together(self, client: Client, take: Take[str]) -> Sequence[EmbeddingResponse | BaseException]:
        texts: list[str] = []

        def body() -> dict[str, JSON] | None:
            texts.extend(take())
            return self.body(self.embedding_fields(texts)) if texts else None

        try:
            reply = await client.post(self.embedding_path, body, tries=self.tries)
            return self._embeddings(reply, len(texts), reply.seconds) if texts else []
        except RequestError as error:
            if len(texts) == 1:
                return [error]
            if not texts:
                raise
        return await asyncio.gather(*(self._embed_alone(client, text) for text in texts), return_exceptions=True)

    async def _embed_alone(self, client: Client, text: str) -> EmbeddingResponse:
        """Ask for the embedding of one text, where several together went wrong: the error belongs to the text that has
        it.
        """
        reply, seconds = await self.post(client, self.embedding_path, self.embedding_fields([text]))
        (found,) = self._embeddings(reply, 1, seconds)
        if isinstance(found, RequestError):
            raise found
        return found

    def embedding_fields(self, texts: Sequence[str]) -> dict[str, JSON]:
        """Return what asks for the embeddings of texts at ``embedding_path``."""
        return {"input": list(texts), "encoding_format": "float"}

    def embedding_reply(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the reply to it as OpenAI's API has it."""
        return reply

    def _embeddings(
        self, reply: Mapping[str, Any], count: int, seconds: float
    ) -> Sequence[EmbeddingResponse | RequestError]:
        """Return the embedding of each text of a request, in order; each has its share of the tokens. Raises
        ``RequestError``.
        """
        found: list[EmbeddingResponse | RequestError] = []
        reply = self.embedding_reply(reply)
        num_tokens = usage_of(reply)[0] or 0
        for place, entry in enumerate(_embedding_entries(reply, count)):
            try:
                vector = _vector_in(entry, self.vector_length)
            except RequestError as error:
                found.append(error)
                continue
            self.vector_length = len(vector)
            share = num_tokens * (place + 1) // count - num_tokens * place // count
            found.append(
                EmbeddingResponse(
                    vector=vector,
                    num_prompt_tokens=share,
                    seconds=seconds / count,
                    is_timed=count == 1,
                    **served_by(reply),
                )
            )
        return found

    def written(
        self,
        reply: Mapping[str, Any],
        choice: Mapping[str, Any],
        text: str,
        seconds: float,
        reasoning: str | None = None,
    ) -> Written:
        """Return the reply in the form that all dialects share. Raises ``RequestError``."""
        num_prompt_tokens, num_tokens = usage_of(reply)
        return Written(
            text=text,
            finish_reason=finish_reason_of(choice),
            num_prompt_tokens=num_prompt_tokens,
            num_tokens=num_tokens,
            seconds=seconds,
            reasoning=reasoning,
            **served_by(reply),
        )


_SHORT, _LONG = 100, 1_000
"""Bounds for the limit of characters that a text in a reply gets, if the server heeds one."""
_FORMAT_WORDS = ("response_format", "json_schema", "json_object", "json schema", "grammar", "guided", "structured")


def _num_texts(schema: JSON) -> int:
    """Return the number of places of a JSON Schema where any text may stand, however long."""
    if isinstance(schema, dict):
        return int(_is_any_text(schema)) + sum(map(_num_texts, schema.values()))
    return sum(map(_num_texts, schema)) if isinstance(schema, list) else 0


def _with_bounded_texts(schema: JSON, most: int) -> JSON:
    if isinstance(schema, dict):
        own: dict[str, JSON] = {"maxLength": most} if _is_any_text(schema) else {}
        return {**{name: _with_bounded_texts(part, most) for name, part in schema.items()}, **own}
    return [_with_bounded_texts(part, most) for part in schema] if isinstance(schema, list) else schema


def _is_any_text(schema: Mapping[str, JSON]) -> bool:
    return schema.get("type") == "string" and schema.keys().isdisjoint(("enum", "const", "maxLength"))


async def listed_models(client: Client, wanted: str | None) -> list[dict[str, Any]]:
    """Return the entries of ``/models``; none if there is no such list and the model is named. Raises
    ``ModelError``.
    """
    reply = await client.get("/models")
    if 300 <= reply.status < 400 or reply.status in (401, 402, 403):
        raise client.error_of(reply)
    data = reply.body.get("data") if isinstance(reply.body, dict) else None
    if reply.status == 200 and isinstance(data, list):
        return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if wanted is not None and reply.status in (404, 405, 501):
        return []
    raise ModelError(f"{client.endpoint.url} is not a model server: {what_came(reply)}")


def what_came(reply: Reply) -> str:
    """Return what a server answered to ``/models``, in a few words."""
    if reply.body is None and "<" in reply.text[:200]:
        what = "an HTML page"
    elif reply.body is None:
        what = f"{one_line(reply.text, 60)!r}" if reply.text.strip() else "nothing"
    else:
        what = "JSON without a list of models"
    return f"GET /models answered {reply.status} with {what}; the URL usually ends in /v1"


# Reading replies


def only_choice(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one choice of a reply. Raises ``RequestError``."""
    choices = reply.get("choices")
    if not isinstance(choices, list):
        raise RequestError(f"the server's reply has no choices: {one_line(str(reply), 120)}")
    if len(choices) != 1 or not isinstance(choices[0], dict):
        raise RequestError(f"the server's reply has {len(choices)} choices, expected 1")
    return choices[0]


def text_of(holder: Mapping[str, Any], key: str) -> str:
    """Return the text of a reply. Raises ``RequestError`` where there is none."""
    text = holder.get(key)
    if text is None:
        refusal = holder.get("refusal")
        said = f": the model refused ({one_line(refusal, 120)})" if isinstance(refusal, str) else ""
        raise RequestError(f"the server's reply has no text ({key} is null){said}")
    if not isinstance(text, str):
        raise RequestError(f"the server's reply has {type(text).__name__} in the place of its text")
    return text


_ENDED_BY_SERVER = re.compile(
    r"content_?filter|safety|recitation|prohibited|block|error|abort|cancel|time_?out|insufficient"
)


def finish_reason_of(choice: Mapping[str, Any]) -> Literal["stop", "length"]:
    """Return why the reply ended, in the words of any server. Raises ``RequestError`` where it was not the model or a
    limit.

    Servers have many words for the model's own end (``stop``, ``eos``, ``end_turn``, none at all).
    """
    reason = str(choice.get("finish_reason") or "").lower()
    if _ENDED_BY_SERVER.search(reason):
        raise RequestError(f"the reply was ended by the server: {one_line(reason, 120)}")
    return "length" if ended_at_limit(reason) else "stop"


def usage_of(reply: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return tokens of prompt and reply, as far as the server counts them."""
    usage = reply.get("usage")
    return count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")


def has_reasoned(reply: Mapping[str, Any]) -> bool:
    """Return whether the server counts tokens of reasoning, which it may not show."""
    usage = reply.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    return isinstance(details, dict) and bool(details.get("reasoning_tokens"))


def token_id(token: str) -> int | None:
    """Return the id in ``token_id:17``, which is how vLLM writes tokens by their ids; None for a token's text."""
    match = _TOKEN_ID.fullmatch(token)
    return int(match[1]) if match else None


def logprob_lists(choice: Mapping[str, Any]) -> tuple[list[str], list[Any], list[Any], list[Any] | None]:
    """Return ``tokens``, ``token_logprobs``, ``top_logprobs`` and ``text_offset`` of a completion, all of one length.

    Raises ``RequestError``.
    """
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        raise RequestError("the server's reply has no logprobs")
    tokens, logprobs, tops = (found.get(key) for key in ("tokens", "token_logprobs", "top_logprobs"))
    offsets = found.get("text_offset")
    if not isinstance(tokens, list) or not isinstance(logprobs, list):
        raise RequestError("the server's logprobs are not those of /completions (tokens, token_logprobs)")
    if not isinstance(tops, list) or not tops:
        tops = [None] * len(tokens)
    if len(logprobs) != len(tokens) or len(tops) != len(tokens):
        raise RequestError(f"the server gave {len(tokens)} tokens and {len(logprobs)} logprobs")
    if not all(isinstance(token, str) for token in tokens):
        raise RequestError("the server's echo has something else than texts in the place of its tokens")
    return tokens, logprobs, tops, offsets if isinstance(offsets, list) and len(offsets) == len(tokens) else None


def _embedding_entries(reply: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return one entry for each of ``count`` texts, in the order in which they were sent. Raises ``RequestError``."""
    data = reply.get("data")
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise RequestError(f"the server's reply has no embeddings: {_shown(reply)}")
    if len(data) != count:
        raise RequestError(f"the server gave {len(data)} embeddings for {count} text{'' if count == 1 else 's'}")
    places = [entry.get("index") for entry in data]
    if not all(type(place) is int for place in places) or {*places} != {*range(count)}:
        raise RequestError(f"the server's embeddings have the index {_shown(places)}, expected 0 to {count - 1}")
    return sorted(data, key=lambda entry: int(entry["index"]))


def _vector_in(entry: Mapping[str, Any], length: int | None) -> tuple[float, ...]:
    """Return the numbers of one embedding, ``length`` of them if that is known. Raises ``RequestError``."""
    found = entry.get("embedding")
    if isinstance(found, str):
        raise RequestError("the server gave an embedding as text (base64?), and was asked for numbers")
    if not isinstance(found, list):
        raise RequestError(f"the server gave {_shown(found)} in an embedding's place")
    numbers = tuple(map(_number, found))
    if not numbers:
        raise RequestError("the server gave an embedding without numbers")
    if length is not None and len(numbers) != length:
        raise RequestError(f"the server gave an embedding of {len(numbers)} numbers, and others have {length}")
    return numbers


def _number(value: object) -> float:
    try:
        number = float(value) if type(value) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise RequestError(f"the server gave {_shown(value)} in an embedding, expected finite numbers")
    return number


def _shown(value: object) -> str:
    return one_line(repr(value), 60)


_MOST_STOPS = 4


class OpenAIDialect(CompletionsDialect):
    """OpenAI's own API, and what behaves as it does."""

    name = "openai"
    why_no_scores = "the hosted chat API gives no log-likelihoods of a prompt's tokens"
    takes_text = False
    is_hosted = True

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> FoundServer:
        return FoundServer(model=self.model, models=(self.model,))  # the list is that of the whole API

    def settings(self, request: GenerateRequest) -> dict[str, JSON]:
        fields = super().settings(request)
        if request.stop:
            fields["stop"] = list(request.stop[:_MOST_STOPS])  # the others are cut here
        return fields

    async def write_chat(self, client: Client, request: GenerateRequest) -> Written:
        last = request.prompt[-1] if isinstance(request.prompt, tuple) else None
        if isinstance(last, Message) and last.role == "assistant":
            raise RequestError(
                "the chat ends with a turn that the assistant has begun, and the hosted API cannot continue one"
            )
        return await super().write_chat(client, request)
