"""llama-cpp-python's server: it takes texts only, so log-likelihoods are matched with an echoed text.

An echo is slow: the server sorts its vocabulary for each token of it, and computes a prompt anew that it has read just
before. A continuation of one token is therefore asked for without: the server is made to write that token.

Of a model without BOS its echo gives every token the logprob that belongs to the token after it; the self-test finds
that, and then the model has no log-likelihoods here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

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
    ScoredPrompt,
    TextPair,
    checked_logprob,
    looked_up,
    tokens_at,
)
from pytest_llmeval.models.servers.echo import is_greedy, scored_text
from pytest_llmeval.types import JSON, GenerateRequest

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["LlamaCppPython"]

_ADDED_LOGIT = 1e5
"""Added to a token's logit, it makes this token the likeliest. Logprobs are those without it."""
_LONGEST_FORCED = 24
"""Characters; a longer continuation is hardly one token, and not looked up."""
_NUM_CONTEXTS = 64


class LlamaCppPython(CompletionsDialect):
    """``python -m llama_cpp.server``; for log-likelihoods it has to be started with ``--logits_all true``."""

    name = "llama-cpp-python"
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
        version = info.get("version") if isinstance(info, dict) else None
        # Without an alias the model's name is the path of its file.
        is_path = self.model.endswith(".gguf")
        return replace(
            found,
            version=version if isinstance(version, str) else None,
            root=self.model if is_path else None,
        )

    def settings(self, request: Any) -> dict[str, JSON]:
        return {**super().settings(request), "top_p": request.top_p}

    def response_format(self, way: JSONWay, request: GenerateRequest) -> JSON:
        """Here a schema stands beside the type that asks for any object."""
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
        if not pair.context or len(pair.continuation) > _LONGEST_FORCED:
            return None
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
