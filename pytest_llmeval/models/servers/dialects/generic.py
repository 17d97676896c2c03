"""A server that speaks OpenAI's interface and is not known here: what it can do is what the self-test finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.completions import CompletionsDialect
from pytest_llmeval.models.servers.dialect import ScoredPrompt, TextPair
from pytest_llmeval.models.servers.dialects.echo import scored_ids, scored_text
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["Generic"]


class Generic(CompletionsDialect):
    """An unknown server. By token ids where a tokenizer is given, else by text; ``scores`` is set when it is tried."""

    name = "generic"
    scores = "text"

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        prompt: JSON
        if isinstance(pair, EncodedPair):
            prompt = [*pair.context, *pair.continuation]
        else:
            prompt = pair.context + pair.continuation
        fields: dict[str, JSON] = {
            "prompt": prompt,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,  # 0 is refused by some servers, and taken for «no limit» by others
            "temperature": 0.0,
        }
        reply, seconds = await self.post(client, "/completions", fields)
        return scored_ids(reply, pair, seconds) if isinstance(pair, EncodedPair) else scored_text(reply, pair, seconds)
