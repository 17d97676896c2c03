"""A dialect: how one kind of server is asked for texts and log-likelihoods, and what its replies must look like."""

from __future__ import annotations

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.reasoning import both_paid, opened_in, without_reasoning
from pytest_llmeval.models.servers.client import RequestRefused
from pytest_llmeval.text.messages import called_names, openai_messages
from pytest_llmeval.text.reasoning import cut_behind_reasoning
from pytest_llmeval.text.redaction import one_line
from pytest_llmeval.text.tool_calls import read_tool_calls
from pytest_llmeval.text.tool_schemas import renamed, short_names
from pytest_llmeval.text.wording import expected_one_of
from pytest_llmeval.types import (
    JSON,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodResponse,
    Message,
    ToolCall,
)

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = [
    "Dialect",
    "FoundServer",
    "JSONWay",
    "NextLogprobs",
    "Sampled",
    "ScoredPrompt",
    "SentTools",
    "TextPair",
    "Written",
    "checked_logprob",
    "choose_model",
    "count_in",
    "looked_up",
    "seed_of",
    "text_at",
    "text_in",
    "tokens_at",
]

_ROUNDING = 1e-3
_LOWEST = -9999.0
"""The number that vLLM writes for a logprob of minus infinity."""


@dataclass(frozen=True, slots=True)
class TextPair:
    """Context and continuation for a server that takes no token ids. White space at the end of the context has been
    moved to the continuation.
    """

    context: str
    continuation: str


_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server's own account of itself.

    ``models``: the names that it serves. ``root``: the folder or hub id of the weights, where it names one. ``build``
    identifies the weights (a digest, or a path with size); None for a bare name. ``max_length``: tokens of prompt and
    reply together.
    """

    model: str
    models: tuple[str, ...]
    version: str | None = None
    root: str | None = None
    build: str | None = None
    max_length: int | None = None
    num_slots: int | None = None
    details: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str | None, ...]:
        """Return what stays the same as long as the same model is served."""
        return self.version, self.model, self.root, self.build

    @property
    def names_weights(self) -> bool:
        """Tell whether ``build`` is a hash of the weights."""
        return _DIGEST.fullmatch(self.build or "") is not None

    def described_identity(self) -> str:
        """Return ``vllm 0.32, qwen3``: what there is of it, for a message."""
        return one_line(", ".join(filter(None, self.identity)), 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPrompt:
    """The logprob (nats) of each token of a continuation. ``is_greedy`` None: the server did not say.

    ``seconds`` are a share where one request asked for several (``is_timed`` False).
    """

    logprobs: tuple[float, ...]
    is_greedy: bool | None
    num_context_tokens: int
    seconds: float
    is_timed: bool = True
    served_model: str | None = None
    system_fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Tokens that a server wrote, by id or by text, each with the logprob that it gave them when it wrote them.

    ``num_prompt_tokens`` is how many tokens the server says that the prompt had; None if it does not.
    """

    tokens: tuple[int, ...] | tuple[str, ...]
    logprobs: tuple[float, ...]
    num_prompt_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLogprobs:
    """The logprobs of some tokens in one place, and of the likeliest token there.

    ``seconds`` are a share where one request asked about several places (``is_timed`` False).
    """

    logprobs: Mapping[int, float]
    largest: float
    seconds: float
    is_timed: bool = True
    served_model: str | None = None
    system_fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A reply as the server gave it: ``text`` may go on after a stop string.

    ``reasoning`` is what came before it, where the server tells it apart; the empty text if it says no more than
    that there was some. ``tool_calls`` are those that the server tells apart from the text; None if it tells none, and
    they may stand in the text.
    """

    text: str
    finish_reason: Literal["stop", "length"]
    num_prompt_tokens: int | None
    num_tokens: int | None
    seconds: float
    reasoning: str | None = None
    served_model: str | None = None
    system_fingerprint: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None

    def response(self, request: GenerateRequest, opened: str = "") -> GenerateResponse:
        """Return the reply up to its first stop string behind the reasoning. ``opened`` is the tag that the chat
        template has opened, if that is known.
        """
        is_apart = self.reasoning is not None
        whole = self.text.lstrip() if is_apart else self.text
        opened = "" if is_apart else opened or opened_in(request.prompt, request.reasoning)
        text, was_cut = cut_behind_reasoning(whole, request.stop, () if is_apart else request.reasoning, opened)
        return GenerateResponse(
            text=text,
            finish_reason="stop" if was_cut else self.finish_reason,
            reasoning=self.reasoning,
            is_unfinished=is_apart and not whole and not self.tool_calls,
            tagged=f"{opened}{text}" if opened else None,
            num_prompt_tokens=self.num_prompt_tokens or 0,
            num_tokens=self.num_tokens or 0,
            seconds=self.seconds,
            is_timed=True,
            served_model=self.served_model,
            system_fingerprint=self.system_fingerprint,
            tool_calls=self.tool_calls,
        )


JSONWay: TypeAlias = Literal["json_schema", "json_object", "text"]
"""Ways to hold a server to JSON, the strictest first: by the schema, to any object, by the prompt alone."""
WEAKER: Mapping[JSONWay, JSONWay] = {"json_schema": "json_object", "json_object": "text"}


class Dialect(ABC):
    """One server's way of being asked. An object belongs to one server, whose model it has chosen in ``identify``.

    A setting that the server's API refuses by name is left out from then on and kept in ``left_out``.
    ``forces_tokens``: the self-test has found that ``score_forced`` gives the numbers of ``score``. ``json_way`` is how
    the server is asked for a reply that follows a JSON schema; once ``is_json_way_known`` it stays. ``vector_length``:
    numbers in an embedding, as the first had them. ``reasons``: whether its model has been seen to reason before it
    answers chats (True), and texts (False).
    """

    name: ClassVar[str]
    scores: Literal["ids", "text"] | None = None
    """The form in which it is asked for log-likelihoods; None if it cannot give them, for the reason ``why_no_scores``.
    """
    why_no_scores: ClassVar[str] = "the server gives no log-likelihoods of a prompt's tokens"
    takes_text: bool = True
    """True if a text prompt reaches the model as it is; else it is sent as one turn of the user."""
    continues_chat: ClassVar[bool] = False
    """True if it continues a last turn of the assistant; else such a chat has to be rendered here."""
    num_together: ClassVar[int] = 1
    """The most log-likelihoods that one request may ask for."""
    sampling_names: ClassVar[Mapping[str, str]] = {}
    """The API's names for ``top_k`` and ``repetition_penalty``; empty if it has neither."""
    with_penalty: ClassVar[Mapping[str, JSON]] = {}
    """Fields that make a repetition penalty count all tokens, as transformers does."""
    why_no_tools: str | None = None
    """Why its model cannot be given tools; None if it can, or if only a request will show it."""
    is_hosted: ClassVar[bool] = False
    """True for a company's API, where each reply costs money and a name stands for weights that may change."""

    def __init__(
        self, *, model: str = "", extra_body: Mapping[str, JSON] | None = None, max_tokens_field: str | None = None
    ) -> None:
        self.model = model
        self.extra_body = dict(extra_body or {})
        self.max_tokens_field = max_tokens_field or "max_tokens"
        self.left_out: dict[str, str] = {}
        self.reasons: set[bool] = set()
        self.json_way: JSONWay = "text"
        self.is_json_way_known = True
        self.forces_tokens = False
        self.vector_length: int | None = None
        self.max_length: int | None = None
        self.tries: int | None = None

    @abstractmethod
    async def identify(self, client: Client, wanted: str | None) -> FoundServer:
        """Ask what the server is, and choose the model ``wanted`` (None: its only one). Raises ``ModelError``."""

    @abstractmethod
    async def write(self, client: Client, request: GenerateRequest) -> Written:
        """Have the model write a text. Raises ``RequestError``."""

    def sampling(self, request: GenerateRequest) -> dict[str, JSON]:
        """Return ``top_k`` and ``repetition_penalty`` as the server names them, where the request has them."""
        used, names = request.special_sampling, self.sampling_names
        fields: dict[str, JSON] = {names[name]: value for name, value in used.items() if name in names}
        return {**fields, **self.with_penalty} if "repetition_penalty" in used else fields

    async def generate(self, client: Client, request: GenerateRequest, opened: str = "") -> GenerateResponse:
        """Return the reply to a request, cut at its first stop string behind the reasoning. Raises ``RequestError``.

        Servers look for stop strings in a model's reasoning too, and would end it there. The first reply to a chat, or
        to a text, that has reasoning shows that this is such a model: from then on its replies are cut here only, and
        one that has no answer is asked for again, and counts what both took. ``opened``: the chat template opens the
        reasoning with this tag.
        """
        is_chat = isinstance(request.prompt, tuple)
        if opened:
            self.reasons.add(is_chat)
        asked = replace(request, stop=()) if is_chat in self.reasons else request
        response = (await self.write(client, asked)).response(request, opened)
        found = without_reasoning(request, response)
        if asked.stop and "stop" not in self.left_out and found.reasoning is not None:
            self.reasons.add(is_chat)
            if found.finish_reason == "stop" and not found.text.strip() and not found.tool_calls:
                whole = (await self.write(client, replace(request, stop=()))).response(request, opened)
                response = both_paid(request, response, whole)
        return response

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        """Return the logprobs of a continuation's tokens. Raises ``RequestError``."""
        raise RequestError(self.why_no_scores)

    async def score_forced(self, client: Client, pair: TextPair) -> ScoredPrompt | None:
        """Return the same of a continuation that is one token, by having the server write it instead of an echo; None
        where it is more tokens, or the server has no such way. Raises ``RequestError``.
        """
        return None

    async def loglikelihood(self, client: Client, pair: EncodedPair | TextPair) -> LoglikelihoodResponse:
        """Return how likely the continuation is after the context. Raises ``RequestError``."""
        scored = await self.score(client, pair)
        return LoglikelihoodResponse(
            loglikelihood=math.fsum(scored.logprobs),
            num_tokens=len(scored.logprobs),
            is_greedy=scored.is_greedy,
            num_context_tokens=scored.num_context_tokens,
            seconds=scored.seconds,
            is_timed=scored.is_timed,
            served_model=scored.served_model,
            system_fingerprint=scored.system_fingerprint,
        )

    async def next_logprobs(
        self, client: Client, context: tuple[int, ...], tokens: Sequence[int]
    ) -> NextLogprobs | None:
        """Return the logprobs of several tokens after one context, in few requests; None if the server has no such
        way.

        Raises ``RequestError``.
        """
        return None

    async def sample(self, client: Client, text: str, *, num_tokens: int, temperature: float) -> Sampled:
        """Return some tokens that the server writes after a text, fewer where the text ends. Raises
        ``RequestError``.
        """
        raise RequestError(self.why_no_scores)

    async def embed(self, client: Client, text: str) -> EmbeddingResponse:
        """Return the embedding of a text; those that are wanted at the same time are asked for together.

        Raises ``RequestError``.
        """
        raise RequestError("this server's API has no embeddings")

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        """Return the server's own token ids of a text; None if it does not tell them. Raises ``RequestError``."""
        return None

    async def detokenize(self, client: Client, tokens: Sequence[int]) -> str | None:
        """Return the text of token ids, special tokens included; None if the server does not tell it."""
        return None

    async def render(self, client: Client, messages: Sequence[Mapping[str, Any]], *, is_begun: bool) -> str | None:
        """Return a chat by the server's own template, as text; None if it does not tell it. ``is_begun``: the last
        turn is the assistant's, to be continued.
        """
        return None

    # What the dialects share

    def body(self, fields: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return a request's body: without what the server has refused, and with the user's own fields last."""
        return {
            "model": self.model,
            **{name: value for name, value in fields.items() if name not in self.left_out},
            **self.extra_body,
        }

    async def post(self, client: Client, path: str, fields: Mapping[str, JSON]) -> tuple[dict[str, Any], float]:
        """Return the reply to ``fields``, and how many seconds it took.

        A setting that the server says it does not support is left out and the request sent again; where that helps, it
        is left out of all later requests too.
        """
        left_out: dict[str, str] = {}
        limit_field = self.max_tokens_field
        while True:
            named = {limit_field if name == "max_tokens" else name: value for name, value in fields.items()}
            sent = self.body({name: value for name, value in named.items() if name not in left_out})
            try:
                reply = await client.post(path, sent, tries=self.tries)
            except RequestRefused as error:
                name = self._unsupported(str(error), sent)
                if name is None:
                    raise
                if name == "max_tokens":
                    limit_field = "max_completion_tokens"
                else:
                    left_out[name] = str(error)
            else:
                self.max_tokens_field = limit_field
                self.left_out |= left_out
                return reply, reply.seconds

    def _unsupported(self, message: str, sent: Mapping[str, JSON]) -> str | None:
        """Return the setting of ``sent``, and not of the user's own fields, that this refusal says is not supported."""
        words = message.lower()
        # vLLM names both fields where a limit is too large, which is an error of that sample
        wants_other = any(word in words for word in ("unsupported", "not support", "instead"))
        if (
            "max_completion_tokens" in message
            and wants_other
            and "messages" in sent
            and "max_tokens" in sent
            and "max_tokens" not in self.extra_body
        ):
            return "max_tokens"
        if not any(word in words for word in ("unsupported", "not support", "deprecated", "unrecognized")):
            return None
        for name in ("stop", "stop_sequences", "temperature", "top_p", "seed"):
            is_named = f"'{name}'" in message or f"`{name}`" in message or f'"{name}"' in message
            if is_named and name in sent and name not in self.extra_body:
                return name
        return None


# Parts that several dialects use


class SentTools:
    """The turns and tools of a request as an API takes them, and the calls of its reply as the suite names them.

    Hosted APIs refuse names such as ``math.sqrt``, which get others there (``short``).
    """

    def __init__(self, request: GenerateRequest, *, short: bool) -> None:
        self._tools: list[Any] = json.loads(request.tools) if request.tools else []
        prompt = request.prompt
        self._turns = prompt if isinstance(prompt, tuple) else (Message(role="user", content=prompt),)
        self._names = short_names(self._tools, called_names(self._turns)) if short else {}

    def messages(self) -> list[Any]:
        """Return the turns in the form of OpenAI's API; a text is one turn of the user."""
        return openai_messages(self._turns, self._names)

    def functions(self) -> list[Any]:
        """Return the functions, each with its name, and with a description and parameters if it has these."""
        return [tool["function"] for tool in self.openai()]

    def openai(self) -> list[Any]:
        """Return the tools in the form of OpenAI's API."""
        return renamed(self._tools, self._names)

    def calls(self, found: object) -> tuple[ToolCall, ...]:
        """Return the calls of a reply. Raises ``RequestError`` for what is none."""
        own = {short: name for name, short in self._names.items()}
        try:
            calls = read_tool_calls(found)
        except ValueError as error:
            raise RequestError(f"the server's tool_calls: {error}") from None
        return tuple(replace(call, name=own.get(call.name, call.name)) for call in calls)


def seed_of(request: GenerateRequest) -> int:
    """Return the seed of one asking: another for each epoch, the same in every run."""
    if request.epoch == 0 or request.temperature == 0:
        return request.seed
    digest = hashlib.sha256(f"{request.seed}:{request.epoch}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def checked_logprob(value: object) -> float:
    """Return a logprob of a reply as a number of at most 0. Raises ``RequestError``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"the server gave {value!r} in a logprob's place")
    if not math.isfinite(value) or value <= _LOWEST:
        raise RequestError(f"the server gave the logprob {value}, which is not a finite number")
    if value > _ROUNDING:
        raise RequestError(f"the server gave the logprob {value}, and a logprob is at most 0")
    return min(float(value), 0.0)


def text_in(found: object, key: str) -> str | None:
    """Return the text at a key of a JSON object; None if there is none."""
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None


def count_in(found: object, key: str) -> int | None:
    """Return the number at a key of a JSON object, 0 or more; None if there is none."""
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, int) and value >= 0 else None


async def tokens_at(client: Client, path: str, body: Mapping[str, JSON]) -> list[int]:
    """Return the token ids that a server answers with at a path beside OpenAI's. Raises ``RequestError``."""
    tokens = (await client.post(path, body, is_optional=True)).get("tokens")
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise RequestError(f"the server's /{path.lstrip('/')} gave no token ids")
    return tokens


async def text_at(client: Client, path: str, body: Mapping[str, JSON], key: str) -> str:
    """Return the text that a server answers with at a path beside OpenAI's. Raises ``RequestError``."""
    text = (await client.post(path, body, is_optional=True)).get(key)
    if not isinstance(text, str):
        raise RequestError(f"the server's /{path.lstrip('/')} gave no text")
    return text


async def looked_up(client: Client, path: str) -> dict[str, Any]:
    """Return the JSON object that stands at a path which not every server has; empty if there is none.

    Raises ``RequestRefused`` where the server is busy or loading its model: it may have the path all the same.
    """
    try:
        reply = await client.get(path)
    except RequestRefused as error:
        if error.status != 500:  # what some servers say of any path that they do not have
            raise
        return {}
    return reply.body if reply.status == 200 and isinstance(reply.body, dict) else {}


def choose_model(models: Sequence[str], wanted: str | None, url: str) -> str:
    """Return the model to ask: the one that was named, or the server's only one. Raises ``ModelError``."""
    if wanted is not None:
        if wanted in models or not models:
            return wanted
        if (tagged := f"{wanted}:latest") in models:
            return tagged
        raise ModelError(f"{url} has no model {wanted!r}{expected_one_of(wanted, models)}")
    if len(models) == 1:
        return models[0]
    if not models:
        raise ModelError(f"{url} does not say which models it serves; name one: {url}#NAME")
    listed = ", ".join(models[:10]) + (", …" if len(models) > 10 else "")
    raise ModelError(f"{url} serves {len(models)} models, name one of them ({url}#NAME): {listed}")
