"""vLLM and SGLang: prompts as token ids, and the logprobs of several options from one request.

One request to vLLM has several prompts: they are echoed with their logprobs, or the logprobs of tokens that may follow
each of them are asked for. SGLang scores through its own ``/generate``, from any token of the prompt on, so that what
stands before it comes from the prefix cache; its OpenAI interface would compute, and send back, all of it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.batches import Batches, Take
from pytest_llmeval.models.servers.completions import (
    CompletionsDialect,
    logprob_lists,
    only_choice,
    token_id,
    usage_of,
)
from pytest_llmeval.models.servers.connections import served_by
from pytest_llmeval.models.servers.dialect import (
    FoundServer,
    NextLogprobs,
    Sampled,
    ScoredPrompt,
    TextPair,
    checked_logprob,
    count_in,
    looked_up,
    text_at,
    text_in,
    tokens_at,
)
from pytest_llmeval.models.servers.echoed_logprobs import scored_ids
from pytest_llmeval.types import JSON, GenerateRequest, Message

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = [
    "VLLM",
    "SGLang",
]


_MOST_PROMPTS = 8
"""The most prompts in one request: enough that the work for one request is shared, and few enough that several are
under way.
"""
_MOST_TOKENS = 16_384
"""The most tokens of the prompts of one request, where it has more than one."""
_MOST_LISTED = 100
"""The most tokens whose logprobs one request asks for, where it has more than one prompt; vLLM takes 128."""

_Q = TypeVar("_Q")
_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class _Place:
    """The end of a context, and the tokens whose logprobs are wanted there."""

    context: tuple[int, ...]
    tokens: tuple[int, ...]


class VLLM(CompletionsDialect):
    """The OpenAI server of vLLM, and servers that are built on it."""

    name = "vllm"
    always_sends_top_p = True
    scores = "ids"
    continues_chat = True
    heeds_max_length = True
    # Where a request leaves these out, vLLM takes them from the checkpoint's generation_config.json.
    sampling_names: ClassVar[Mapping[str, str]] = {"top_k": "top_k", "repetition_penalty": "repetition_penalty"}
    plain_sampling: ClassVar[Mapping[str, JSON]] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

    naming_tokens: ClassVar[Mapping[str, JSON]] = {"return_tokens_as_token_ids": True}
    num_together = _MOST_PROMPTS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._echoes: Batches[EncodedPair, ScoredPrompt] | None = None
        self._places: Batches[_Place, NextLogprobs | None] | None = None

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> FoundServer:
        found = await super().found(client, models, own)
        return replace(
            found,
            version=text_in(await looked_up(client, "//version"), "version"),
            root=text_in(own, "root"),  # often the served name itself; an adapter's root is its own folder
            details={"adapter_of": parent} if (parent := text_in(own, "parent")) is not None else {},
        )

    def chat_fields(self, request: GenerateRequest) -> dict[str, JSON]:
        return continued(request)

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        assert isinstance(pair, EncodedPair)
        if self._echoes is None:
            send = functools.partial(self._ask_together, client, self._echo, _scored)
            self._echoes = Batches(
                send,
                lambda one: len(one.context) + len(one.continuation),
                max_questions=_MOST_PROMPTS,
                max_size=_MOST_TOKENS,
            )
        return await self._echoes.ask(pair)

    async def next_logprobs(
        self, client: Client, context: tuple[int, ...], tokens: Sequence[int]
    ) -> NextLogprobs | None:
        if self._places is None:
            send = functools.partial(self._ask_together, client, self._next, _next_of)
            self._places = Batches(
                send,
                # Two bounds in one number: of the tokens of all prompts, and of those whose logprobs are wanted.
                lambda one: max(len(one.context) * _MOST_LISTED, len(one.tokens) * _MOST_TOKENS),
                max_questions=_MOST_PROMPTS,
                max_size=_MOST_TOKENS * _MOST_LISTED,
            )
        return await self._places.ask(_Place(context, tuple(tokens)))

    async def _ask_together(
        self,
        client: Client,
        fields: Callable[[Sequence[_Q]], dict[str, JSON]],
        read: Callable[[Mapping[str, Any], _Q, float], _A],
        take: Take[_Q],
    ) -> Sequence[_A | BaseException]:
        """Ask several questions in one request, and each by itself if that went wrong: the error belongs to the one
        that has it.
        """
        asked: list[_Q] = []

        def body() -> dict[str, JSON] | None:
            asked.extend(take())
            return self.body(fields(asked)) if asked else None

        async def ask_alone(question: _Q) -> _A:
            reply, seconds = await self.post(client, "/completions", fields([question]))
            return read(reply, question, seconds)

        try:
            reply = await client.post("/completions", body, tries=self.tries)
            if len(asked) > 1:
                choices, share = _choices(reply, fields(asked)["prompt"]), reply.seconds / len(asked)
                found = [read({"choices": [own]}, one, share) for own, one in zip(choices, asked, strict=True)]
                more = {"is_timed": False, **served_by(reply)}
                return [one if one is None else replace(one, **more) for one in found]  # type: ignore[type-var]
            return [read(reply, one, reply.seconds) for one in asked]
        except RequestError as error:
            if len(asked) == 1:
                return [error]
            if not asked:
                raise
        return await asyncio.gather(*map(ask_alone, asked), return_exceptions=True)

    def _echo(self, pairs: Sequence[EncodedPair]) -> dict[str, JSON]:
        prompts: list[JSON] = [[*pair.context, *pair.continuation] for pair in pairs]
        return {
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "echo": True,
            "logprobs": 1,
            "max_tokens": 0,
            "temperature": 0.0,
            **self.naming_tokens,
        }

    def _next(self, places: Sequence[_Place]) -> dict[str, JSON]:
        prompts: list[JSON] = [list(place.context) for place in places]
        return {
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": 1,
            "logprob_token_ids": list(dict.fromkeys(token for place in places for token in place.tokens)),
            "ignore_eos": True,  # a text that may end here has a next token too
            **self.plain_sampling,
            **self.naming_tokens,
        }

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        return await self._tokens(client, {"prompt": text, "add_special_tokens": add_special_tokens})

    async def _tokens(self, client: Client, fields: Mapping[str, JSON]) -> list[int]:
        return await tokens_at(client, "//tokenize", {"model": self.model, **fields})

    async def detokenize(self, client: Client, tokens: Sequence[int]) -> str | None:
        body: dict[str, JSON] = {"model": self.model, "tokens": list(tokens)}
        return await text_at(client, "//detokenize", body, "prompt")

    async def render(self, client: Client, messages: Sequence[Mapping[str, Any]], *, is_begun: bool) -> str | None:
        fields: dict[str, JSON] = {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": not is_begun,
            "continue_final_message": is_begun,
        }
        return await self.detokenize(client, await self._tokens(client, fields))


def _choices(reply: Mapping[str, Any], prompts: Any) -> list[Any]:
    """Return the choice for each prompt of a request, in order. Raises ``RequestError``."""
    choices, number = reply.get("choices"), len(prompts)
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise RequestError("the server's reply has no choices")
    by_place = {choice.get("index"): choice for choice in choices}
    if len(choices) != number or by_place.keys() != set(range(number)):
        raise RequestError(f"{number} prompts were sent and the server's reply has {len(choices)} choices")
    _check_read(reply, sum(map(len, prompts)))
    return [by_place[place] for place in range(number)]


def _check_read(reply: Mapping[str, Any], num_sent: int) -> None:
    num_prompt_tokens, _ = usage_of(reply)
    if num_prompt_tokens not in (None, num_sent):
        raise RequestError(f"{num_sent} tokens were sent and the server read {num_prompt_tokens}")


def _scored(reply: Mapping[str, Any], pair: EncodedPair, seconds: float) -> ScoredPrompt:
    return scored_ids(reply, pair, seconds, has_ids=True)


def _next_of(reply: Mapping[str, Any], place: _Place, seconds: float) -> NextLogprobs | None:
    """Return the logprobs in one place; None from a vLLM that does not know ``logprob_token_ids``."""
    _check_read(reply, len(place.context))
    written, _, tops, _ = logprob_lists(only_choice(reply))
    if len(written) != 1 or not isinstance(tops[0], dict):
        raise RequestError(f"the server gave {len(written)} tokens with top logprobs, expected 1")
    known = {token: checked_logprob(value) for text, value in tops[0].items() if (token := token_id(text)) is not None}
    if any(token not in known for token in place.tokens):
        return None
    return NextLogprobs(
        logprobs={token: known[token] for token in place.tokens},
        largest=max(known.values()),
        seconds=seconds,
        **served_by(reply),
    )


def continued(request: GenerateRequest) -> dict[str, JSON]:
    """Return what makes vLLM and SGLang continue a last turn of the assistant."""
    turns = request.prompt
    if isinstance(turns, tuple) and isinstance(turns[-1], Message) and turns[-1].role == "assistant":
        return {"continue_final_message": True, "add_generation_prompt": False}
    return {}


class SGLang(CompletionsDialect):
    """SGLang's server."""

    name = "sglang"
    always_sends_top_p = True
    scores = "ids"
    continues_chat = True
    # Where a request leaves these out, SGLang takes them from the checkpoint's generation_config.json.
    sampling_names: ClassVar[Mapping[str, str]] = {"top_k": "top_k", "repetition_penalty": "repetition_penalty"}
    plain_sampling: ClassVar[Mapping[str, JSON]] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> FoundServer:
        found = await super().found(client, models, own)
        info: dict[str, Any] = {}
        for path in ("//get_model_info", "//get_server_info"):
            info |= await looked_up(client, path)
        weights = text_in(info, "weight_version")
        return replace(
            found,
            version=text_in(info, "version"),
            root=text_in(info, "model_path") or found.root,
            details={} if weights is None else {"weight_version": weights},
        )

    def chat_fields(self, request: GenerateRequest) -> dict[str, JSON]:
        return continued(request)

    async def _generate(
        self, client: Client, fields: Mapping[str, JSON], num_new_tokens: int
    ) -> tuple[dict[str, Any], float]:
        """Return ``meta_info`` of a reply of the server's own interface, and its seconds."""
        sampling: dict[str, JSON] = {"max_new_tokens": num_new_tokens, "temperature": 0.0, **self.plain_sampling}
        body: dict[str, JSON] = {"sampling_params": sampling, "return_logprob": True, "top_logprobs_num": 1, **fields}
        reply, seconds = await self.post(client, "//generate", body)
        meta = reply.get("meta_info")
        if not isinstance(meta, dict):
            raise RequestError("the server's /generate gave no meta_info")
        return meta, seconds

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        assert isinstance(pair, EncodedPair)
        sent: list[JSON] = [*pair.context, *pair.continuation]
        # The first entry is that of the last token before the continuation; it has no logprob.
        start = len(pair.context) - 1
        meta, seconds = await self._generate(client, {"input_ids": sent, "logprob_start_len": start}, 0)
        _check_count(meta, len(sent))
        entries = _entries(meta, "input_token_logprobs")
        if [token for _, token in entries] != sent[start:]:
            raise RequestError(
                f"logprobs of {len(sent) - start} tokens were asked for, and the server gave {len(entries)} "
                "or those of other tokens"
            )
        values = tuple(checked_logprob(value) for value, _ in entries[1:])
        tops = meta.get("input_top_logprobs")
        largest = (
            [_largest(top) for top in tops[1:]] if isinstance(tops, list) and len(tops) == len(entries) else [None]
        )
        return ScoredPrompt(
            logprobs=values,
            is_greedy=None
            if None in largest
            else all(value >= top - 1e-9 for value, top in zip(values, largest, strict=True) if top is not None),
            num_context_tokens=len(pair.context),
            seconds=seconds,
        )

    async def next_logprobs(
        self, client: Client, context: tuple[int, ...], tokens: Sequence[int]
    ) -> NextLogprobs | None:
        fields: dict[str, JSON] = {"input_ids": list(context), "token_ids_logprob": list(tokens)}
        meta, seconds = await self._generate(client, fields, 1)
        _check_count(meta, len(context))
        own, written = meta.get("output_token_ids_logprobs"), _entries(meta, "output_token_logprobs")
        if not isinstance(own, list) or not own or not written:
            return None
        known = {token: checked_logprob(value) for value, token in _pairs(own[0])}
        if any(token not in known for token in tokens):
            return None
        return NextLogprobs(
            logprobs={token: known[token] for token in tokens}, largest=checked_logprob(written[0][0]), seconds=seconds
        )

    async def sample(self, client: Client, text: str, *, num_tokens: int, temperature: float) -> Sampled:
        sampling: dict[str, JSON] = {
            "max_new_tokens": num_tokens,
            "temperature": temperature,
            "top_p": 1.0,
            "sampling_seed": 1,
            **self.plain_sampling,
        }
        meta, _ = await self._generate(client, {"text": text, "sampling_params": sampling}, num_tokens)
        written = _entries(meta, "output_token_logprobs")
        return Sampled(
            tokens=tuple(token for _, token in written),
            logprobs=tuple(checked_logprob(value) for value, _ in written),
            num_prompt_tokens=count_in(meta, "prompt_tokens"),
        )

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        body: dict[str, JSON] = {"model": self.model, "prompt": text, "add_special_tokens": add_special_tokens}
        return await tokens_at(client, "/tokenize", body)

    async def detokenize(self, client: Client, tokens: Sequence[int]) -> str | None:
        body: dict[str, JSON] = {"model": self.model, "tokens": list(tokens), "skip_special_tokens": False}
        return await text_at(client, "/detokenize", body, "text")


def _check_count(meta: Mapping[str, Any], num_sent: int) -> None:
    count = count_in(meta, "prompt_tokens")
    if count not in (None, num_sent):
        raise RequestError(f"{num_sent} tokens were sent and the server read {count}")


def _entries(meta: Mapping[str, Any], key: str) -> list[tuple[Any, int]]:
    """Return pairs of logprob and token id. Raises ``RequestError``."""
    entries = _pairs(meta.get(key))
    if not entries:
        raise RequestError(f"the server's /generate gave no {key}")
    return entries


def _pairs(entries: object) -> list[tuple[Any, int]]:
    """Return ``[logprob, token id, text or null]`` each. Raises ``RequestError``."""
    if not isinstance(entries, list):
        return []
    for entry in entries:
        if not isinstance(entry, list) or len(entry) < 2 or type(entry[1]) is not int:
            raise RequestError("the server's logprobs are not pairs of a number and a token id")
    return [(entry[0], entry[1]) for entry in entries]


def _largest(top: object) -> float | None:
    values = [value for value, _ in _pairs(top)]
    return max(values) if values and all(isinstance(value, float) for value in values) else None
