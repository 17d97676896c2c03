"""llama-cpp-python's server: it takes texts only, so log-likelihoods are matched with an echoed text.

Of a model without BOS its echo gives every token the logprob that belongs to the token after it; the self-test finds
that, and then the model has no log-likelihoods here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.dialects.base import Found, Scored, TextPair, looked_up, tokens_at
from pytest_llmeval.models.servers.dialects.completions import CompletionsDialect
from pytest_llmeval.models.servers.dialects.echo import scored_text
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["LlamaCppPython"]


class LlamaCppPython(CompletionsDialect):
    """``python -m llama_cpp.server``; for log-likelihoods it has to be started with ``--logits_all true``."""

    name = "llama-cpp-python"
    scores = "text"
    # The server's own defaults are top-k 40, min-p 0.05 and, in the older releases, a repeat penalty of 1.1.
    plain_sampling: ClassVar[Mapping[str, JSON]] = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}

    async def found(self, client: Client, models: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> Found:
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

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> Scored:
        assert isinstance(pair, TextPair)
        fields: dict[str, JSON] = {
            "prompt": pair.context + pair.continuation,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,  # 0 means as many as there is room for
            "temperature": 0.0,
        }
        reply, seconds = await self.post(client, "/completions", fields)
        return scored_text(reply, pair, seconds)

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        if not add_special_tokens:
            return None  # the server always adds them
        return await tokens_at(client, "//extras/tokenize", {"model": self.model, "input": text})
