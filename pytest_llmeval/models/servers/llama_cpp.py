"""The two servers of llama.cpp: llama-server, and llama-cpp-python's.

llama-server refuses ``echo``, so each token of a continuation is forced and its logprob read: ``/completion`` reports
the logprobs of the raw logits, whatever ``logit_bias`` made of them, and ``cache_prompt`` keeps what the tokens of one
continuation, and the options of one question, have in common.

llama-cpp-python takes texts only, so log-likelihoods are matched with an echoed text. An echo is slow: the server sorts
its vocabulary for each token of it, and computes a prompt anew that it has read just before. A continuation of one
token is therefore forced as well. If a model has no BOS, the echo gives every token the logprob of the token after it;
the self-test finds that, and then the model has no log-likelihoods here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.completions import (
    CompletionsDialect,
    logprob_lists,
    only_choice,
    usage_of,
)
from pytest_llmeval.models.servers.connections import served_by
from pytest_llmeval.models.servers.dialect import (
    FoundServer,
    JSONWay,
    NextLogprobs,
    Sampled,
    ScoredPrompt,
    TextPair,
    Written,
    checked_logprob,
    count_in,
    looked_up,
    seed_of,
    text_at,
    text_in,
    tokens_at,
)
from pytest_llmeval.models.servers.echoed_logprobs import is_greedy, scored_text
from pytest_llmeval.types import JSON, GenerateRequest

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["LlamaCppPython", "LlamaServer"]


_FORCE = 1e4
"""A bias on a token's logit with which no other token can be the likeliest."""
_MOST_LISTED = 100
"""The number of likeliest tokens that one request lists."""


class LlamaServer(CompletionsDialect):
    """The server ``llama-server``."""

    name = "llama-server"
    always_sends_top_p = True
    scores = "ids"
    sampling_names: ClassVar[Mapping[str, str]] = {"top_k": "top_k", "repetition_penalty": "repeat_penalty"}
    with_penalty: ClassVar[Mapping[str, JSON]] = {"repeat_last_n": -1}
    plain_sampling: ClassVar[Mapping[str, JSON]] = {
        "top_k": 0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> FoundServer:
        found = await super().found(client, models, own)
        props = await looked_up(client, "//props")
        meta, root = own.get("meta"), text_in(props, "model_path")
        size, parameters = count_in(meta, "size"), count_in(meta, "n_params")
        return replace(
            found,
            version=text_in(props, "build_info"),
            root=root,
            build=None if root is None or size is None else f"{root} of {size} bytes",
            max_length=count_in(props.get("default_generation_settings"), "n_ctx"),
            num_slots=count_in(props, "total_slots"),
            details={} if parameters is None else {"num_parameters": parameters},
        )

    async def write(self, client: Client, request: GenerateRequest) -> Written:
        """See ``Dialect``. A text goes to ``/completion``, which says whether the prompt was cut."""
        if isinstance(request.prompt, tuple):
            return await self.write_chat(client, request)
        fields: dict[str, JSON] = {
            "prompt": request.prompt,
            "n_predict": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": seed_of(request),
            "stop": list(request.stop),
            "cache_prompt": True,
            **self.plain_sampling,
            **self.sampling(request),
        }
        reply, seconds = await self.post(client, "//completion", fields)
        _check_whole(reply)
        text = reply.get("content")
        if not isinstance(text, str):
            raise RequestError("the server's /completion gave no text")
        return Written(
            text=text,
            finish_reason="length" if reply.get("stop_type") == "limit" else "stop",
            num_prompt_tokens=count_in(reply, "tokens_evaluated"),
            num_tokens=count_in(reply, "tokens_predicted"),
            seconds=seconds,
        )

    async def _next(
        self, client: Client, prompt: Sequence[int], *, num_listed: int, forced: int | None = None
    ) -> tuple[dict[str, Any], float]:
        """Return the entry of the one token that was written, and its seconds."""
        fields: dict[str, JSON] = {
            "prompt": list(prompt),
            "n_predict": 1,
            "temperature": 0.0,
            "n_probs": num_listed,
            "cache_prompt": True,
            **self.plain_sampling,
        }
        if forced is not None:
            fields["logit_bias"] = [[forced, _FORCE]]
        reply, seconds = await self.post(client, "//completion", fields)
        _check_whole(reply)
        count = count_in(reply, "tokens_evaluated")
        if count not in (None, len(prompt)):
            raise RequestError(f"{len(prompt)} tokens were sent and the server read {count}")
        entries = reply.get("completion_probabilities")
        if not isinstance(entries, list) or len(entries) != 1 or not isinstance(entries[0], dict):
            raise RequestError("the server's /completion gave no probabilities of its token")
        return entries[0], seconds

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        assert isinstance(pair, EncodedPair)
        values, total, is_greedy = [], 0.0, True
        for place, token in enumerate(pair.continuation):
            prompt = (*pair.context, *pair.continuation[:place])
            entry, seconds = await self._next(client, prompt, num_listed=1, forced=token)
            if entry.get("id") != token:
                raise RequestError(f"token {token} was forced and the server wrote {entry.get('id')}")
            values.append(checked_logprob(entry.get("logprob")))
            is_greedy = is_greedy and _listed(entry)[:1] == [(token, values[-1])]
            total += seconds
        return ScoredPrompt(
            logprobs=tuple(values), is_greedy=is_greedy, num_context_tokens=len(pair.context), seconds=total
        )

    async def next_logprobs(
        self, client: Client, context: tuple[int, ...], tokens: Sequence[int]
    ) -> NextLogprobs | None:
        entry, total = await self._next(client, context, num_listed=_MOST_LISTED)
        listed = _listed(entry)
        if not listed:
            raise RequestError("the server's /completion lists no likeliest tokens")
        known = dict(listed)
        for token in tokens:
            if token not in known:
                entry, seconds = await self._next(client, context, num_listed=1, forced=token)
                if entry.get("id") != token:
                    raise RequestError(f"token {token} was forced and the server wrote {entry.get('id')}")
                known[token] = checked_logprob(entry.get("logprob"))
                total += seconds
        return NextLogprobs(logprobs={token: known[token] for token in tokens}, largest=listed[0][1], seconds=total)

    async def sample(self, client: Client, text: str, *, num_tokens: int, temperature: float) -> Sampled:
        fields: dict[str, JSON] = {
            "prompt": text,
            "n_predict": num_tokens,
            "temperature": temperature,
            "top_p": 1.0,
            "seed": 1,
            "n_probs": 1,
            "cache_prompt": True,
            **self.plain_sampling,
        }
        reply, _ = await self.post(client, "//completion", fields)
        entries = reply.get("completion_probabilities")
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and type(entry.get("id")) is int for entry in entries
        ):
            raise RequestError("the server's /completion gave no probabilities of its tokens, by their ids")
        return Sampled(
            tokens=tuple(entry["id"] for entry in entries),
            logprobs=tuple(checked_logprob(entry.get("logprob")) for entry in entries),
            num_prompt_tokens=count_in(reply, "tokens_evaluated"),
        )

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        return await tokens_at(client, "//tokenize", {"content": text, "add_special": add_special_tokens})

    async def detokenize(self, client: Client, tokens: Sequence[int]) -> str | None:
        return await text_at(client, "//detokenize", {"tokens": list(tokens)}, "content")

    async def render(self, client: Client, messages: Sequence[Mapping[str, Any]], *, is_begun: bool) -> str | None:
        body: dict[str, JSON] = {"messages": [dict(message) for message in messages]}
        return await text_at(client, "//apply-template", body, "prompt")


def _check_whole(reply: Mapping[str, Any]) -> None:
    if reply.get("truncated") is True:
        raise RequestError("the server has cut the prompt: it does not fit into its context (--ctx-size)")


def _listed(entry: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return the likeliest tokens of a place, the first first. Raises ``RequestError``."""
    tops = entry.get("top_logprobs")
    if not isinstance(tops, list):
        return []
    if not all(isinstance(top, dict) and type(top.get("id")) is int for top in tops):
        raise RequestError("the server's top_logprobs have no token ids")
    return [(top["id"], checked_logprob(top.get("logprob"))) for top in tops]


_ADDED_LOGIT = 1e5
"""A bias on a token's logit that makes this token the likeliest. Logprobs are those without it."""
_LONGEST_FORCED = 24
"""The most characters of a continuation that may be one token; a longer one is not looked up."""
_NUM_CONTEXTS = 64


class LlamaCppPython(CompletionsDialect):
    """The server ``python -m llama_cpp.server``; log-likelihoods need its option ``--logits_all true``."""

    name = "llama-cpp-python"
    always_sends_top_p = True
    scores = "text"
    heeds_max_length = True
    # The server's own defaults are top-k 40, min-p 0.05 and, in the older releases, a repeat penalty of 1.1.
    # A penalty counts as many of the last tokens as the server was started with: no request can say how many.
    sampling_names: ClassVar[Mapping[str, str]] = {"top_k": "top_k", "repetition_penalty": "repeat_penalty"}
    plain_sampling: ClassVar[Mapping[str, JSON]] = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._contexts: dict[str, list[int]] = {}

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> FoundServer:
        found = await super().found(client, models, own)
        info = (await looked_up(client, "//openapi.json")).get("info")
        is_path = self.model.endswith(".gguf")  # without an alias the model's name is the path of its file
        return replace(found, version=text_in(info, "version"), root=self.model if is_path else None)

    def response_format(self, way: JSONWay, request: GenerateRequest) -> JSON:
        """See ``CompletionsDialect``. The schema stands beside the type that asks for any object."""
        if way == "json_object":
            return super().response_format(way, request)
        return {"type": "json_object", "schema": self.schema(request)}

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        assert isinstance(pair, TextPair)
        if self.forces_tokens and (forced := await self.score_forced(client, pair)) is not None:
            return forced
        fields: dict[str, JSON] = {
            "prompt": pair.context + pair.continuation,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,  # 0 means as many as there is room for
            "temperature": 0.0,
        }
        reply, seconds = await self.post(client, "/completions", fields)
        return scored_text(reply, pair, seconds)

    async def score_forced(self, client: Client, pair: TextPair) -> ScoredPrompt | None:
        if not pair.context or len(pair.continuation) > _LONGEST_FORCED or len(pair.continuation.split()) > 1:
            return None  # several words are several tokens, and to ask for the tokens is a request of its own
        context = await self._context(client, pair.context)
        whole = await self.tokenize(client, pair.context + pair.continuation, add_special_tokens=True) or []
        if whole[:-1] != context:
            return None
        fields: dict[str, JSON] = {
            "prompt": pair.context,
            "logprobs": 1,
            "max_tokens": 1,
            "temperature": 0.0,
            "logit_bias": {str(whole[-1]): _ADDED_LOGIT},
            **self.plain_sampling,
        }
        reply, seconds = await self.post(client, "/completions", fields)
        tokens, logprobs, tops, _ = logprob_lists(only_choice(reply))
        num_prompt_tokens, _ = usage_of(reply)
        if [token.strip() for token in tokens] != [pair.continuation.strip()]:
            return None  # the token ends a text, or is a part of a character
        if num_prompt_tokens not in (None, len(context)):
            return None
        values = (checked_logprob(logprobs[0]),)
        return ScoredPrompt(
            logprobs=values,
            is_greedy=is_greedy(values, tops),
            num_context_tokens=len(context),
            seconds=seconds,
            **served_by(reply),
        )

    async def _context(self, client: Client, text: str) -> list[int]:
        """Return the tokens of a context, which all options of a question share."""
        if text not in self._contexts:
            tokens = await self.tokenize(client, text, add_special_tokens=True) or []
            if len(self._contexts) >= _NUM_CONTEXTS:
                self._contexts.clear()
            self._contexts[text] = tokens
        return self._contexts[text]

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        if not add_special_tokens:
            return None  # the server always adds them
        return await tokens_at(client, "//extras/tokenize", {"model": self.model, "input": text})
