"""Which dialect a server speaks: by its list of models, its paths and its headers, unless the user says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.servers.dialect import Dialect, looked_up
from pytest_llmeval.models.servers.dialects.anthropic import AnthropicDialect
from pytest_llmeval.models.servers.dialects.completions import what_came
from pytest_llmeval.models.servers.dialects.generic import Generic
from pytest_llmeval.models.servers.dialects.llama_cpp_python import LlamaCppPython
from pytest_llmeval.models.servers.dialects.llama_server import LlamaServer
from pytest_llmeval.models.servers.dialects.ollama import OllamaDialect
from pytest_llmeval.models.servers.dialects.openai import OpenAIDialect
from pytest_llmeval.models.servers.dialects.sglang import SGLang
from pytest_llmeval.models.servers.dialects.vllm import VLLM

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["DIALECT_CLASSES", "detect"]

DIALECT_CLASSES: Mapping[str, type[Dialect]] = {
    dialect.name: dialect
    for dialect in (VLLM, SGLang, LlamaCppPython, LlamaServer, OllamaDialect, OpenAIDialect, AnthropicDialect, Generic)
}

_HOSTS: Mapping[str, type[Dialect]] = {"api.openai.com": OpenAIDialect, "api.anthropic.com": AnthropicDialect}
_OWNERS: Mapping[str, type[Dialect]] = {
    "vllm": VLLM,
    "sglang": SGLang,
    "llamacpp": LlamaServer,
    "library": OllamaDialect,
}
"""Dialects by what ``owned_by`` says in an entry of ``/models``."""


async def detect(client: Client, dialect: str | None, *, has_name: bool) -> type[Dialect]:
    """Return the dialect that the user named, or the server's own. ``has_name``: the user has named a model, which a
    server without a list of models needs.

    Raises ``ModelError`` for what is no server of models.
    """
    if dialect is not None:
        return DIALECT_CLASSES[dialect]
    hosted = _HOSTS.get(urlsplit(client.endpoint.url).hostname or "")
    if hosted is not None:
        return hosted
    reply = await client.get("/models")
    if 300 <= reply.status < 400 or reply.status in (401, 402, 403):
        raise client.error_of(reply)
    data = reply.body.get("data") if isinstance(reply.body, dict) else None
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    for entry in entries:
        if (known := _OWNERS.get(str(entry.get("owned_by")))) is not None:
            return known
        if "display_name" in entry and entry.get("type") == "model":
            return AnthropicDialect
    if reply.headers.get("server", "").lower().startswith("llama.cpp"):
        return LlamaServer
    if (found := await _by_paths(client)) is not None:
        return found
    if not entries and not (has_name and reply.status in (404, 405, 501) and "<" not in reply.text[:200]):
        raise ModelError(f"{client.endpoint.url} is not a model server: {what_came(reply)}")
    return Generic


async def _by_paths(client: Client) -> type[Dialect] | None:
    """Return the dialect, found by what the kinds of servers have beside the OpenAI interface."""
    if "version" in await looked_up(client, "//api/version"):
        return OllamaDialect
    info = (await looked_up(client, "//openapi.json")).get("info")
    if isinstance(info, dict) and "llama.cpp Python" in str(info.get("title")):
        return LlamaCppPython
    if "default_generation_settings" in await looked_up(client, "//props"):
        return LlamaServer
    return SGLang if "model_path" in await looked_up(client, "//get_model_info") else None
