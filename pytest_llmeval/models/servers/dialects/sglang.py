"""SGLang: texts through its OpenAI interface, log-likelihoods through its own ``/generate``, which tells token ids.

``/generate`` scores from any token of the prompt on, so that what stands before it comes from the prefix cache; the
OpenAI interface would compute, and send back, all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.completions import CompletionsDialect
from pytest_llmeval.models.servers.dialect import (
    FoundServer,
    NextLogprobs,
    Sampled,
    ScoredPrompt,
    TextPair,
    checked_logprob,
    looked_up,
    text_at,
    tokens_at,
)
from pytest_llmeval.models.servers.dialects.vllm import continued
from pytest_llmeval.types import JSON, GenerateRequest

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["SGLang"]


class SGLang(CompletionsDialect):
    """SGLang's server."""

    name = "sglang"
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
        root, version, weights = (info.get(key) for key in ("model_path", "version", "weight_version"))
        self.max_length = found.max_length
        return replace(
            found,
            version=version if isinstance(version, str) else None,
            root=root if isinstance(root, str) else found.root,
            details={"weight_version": weights} if isinstance(weights, str) else {},
        )

    def settings(self, request: GenerateRequest) -> dict[str, JSON]:
        return {**super().settings(request), "top_p": request.top_p}

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
        count = meta.get("prompt_tokens")
        return Sampled(
            tokens=tuple(token for _, token in written),
            logprobs=tuple(checked_logprob(value) for value, _ in written),
            num_prompt_tokens=count if isinstance(count, int) else None,
        )

    async def tokenize(self, client: Client, text: str, *, add_special_tokens: bool) -> list[int] | None:
        body: dict[str, JSON] = {"model": self.model, "prompt": text, "add_special_tokens": add_special_tokens}
        return await tokens_at(client, "/tokenize", body)

    async def detokenize(self, client: Client, tokens: Sequence[int]) -> str | None:
        body: dict[str, JSON] = {"model": self.model, "tokens": list(tokens), "skip_special_tokens": False}
        return await text_at(client, "/detokenize", body, "text")


def _check_count(meta: Mapping[str, Any], num_sent: int) -> None:
    count = meta.get("prompt_tokens")
    if isinstance(count, int) and count != num_sent:
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
