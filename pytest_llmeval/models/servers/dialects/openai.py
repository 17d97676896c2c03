"""The hosted OpenAI API: chats only. A text prompt is sent as one turn of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.servers.dialect import FoundServer, Written
from pytest_llmeval.models.servers.dialects.completions import CompletionsDialect
from pytest_llmeval.types import JSON, GenerateRequest, Message

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["OpenAIDialect"]

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
