"""vLLM and SGLang on the wire, as their sources of 2026 have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.servers.language_models import Generated
from tests.servers.numbers_of_stub import Numbers
from tests.servers.wire import Body, Refused, Wire, reply_numbers

__all__ = ["Sglang", "Vllm"]


class Vllm(Wire):
    """vLLM 0.32."""

    owned_by = "vllm"
    counts_end = True

    def __init__(self, numbers: Numbers, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        self.routes |= {
            ("GET", "/version"): lambda _: {"version": "0.32.0"},
            ("GET", "/health"): lambda _: {},
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/detokenize"): lambda body: {"prompt": self.words.decode(body["tokens"])},
        }

    def authorize(self, headers: Mapping[str, str]) -> None:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            raise Refused(401, {"error": "Unauthorized"})

    def model_card(self) -> Body:
        return {**super().model_card(), "root": self.root, "parent": None, "max_model_len": self.max_length}

    def tokenize(self, body: Body) -> Body:
        if "messages" in body:
            tokens = self.chat_tokens(body["messages"])
        elif body.get("add_special_tokens", True):
            tokens = self.numbers.encode(body["prompt"])
        else:
            tokens = self.words.encode(body["prompt"])
        return {"count": len(tokens), "max_model_len": self.max_length, "tokens": tokens, "token_strs": None}

    def token_name(self, token: int, body: Body) -> str:
        if body.get("return_tokens_as_token_ids") and "texts-for-ids" not in self.faults:
            return f"token_id:{token}"
        return super().token_name(token, body)

    def completion(self, text: str, tokens: list[int], reply: Generated, body: Body, index: int) -> Body:
        if body["max_tokens"] == 0 and not body.get("echo"):
            raise self.error(400, "max_tokens must be at least 1, got 0.", param="max_tokens")
        if body.get("logprob_token_ids") and body.get("logprobs") is None:
            raise self.error(400, "when using `logprob_token_ids`, `logprobs` must be set.")
        choice = super().completion(text, tokens, reply, body, index)
        return {**choice, "stop_reason": reply.stop, "prompt_logprobs": None, "token_ids": None}

    def message_fields(self) -> Body:
        reasoning = "Let me think.\n\nFirst:" if "reasoning" in self.faults else None
        return {"refusal": None, "tool_calls": [], "reasoning": reasoning}


class Sglang(Wire):
    """SGLang: OpenAI's paths, where ``logprobs: 0`` has no prompt logprobs, and its own ``/generate``."""

    owned_by = "sglang"
    counts_end = True

    def __init__(self, numbers: Numbers, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        info = {"model_path": self.root, "tokenizer_path": self.root, "served_model_name": self.name}
        server = {**info, "version": "0.5.9", "context_length": self.max_length, "max_total_num_tokens": 100_000}
        self.routes |= {
            ("GET", "/get_server_info"): lambda _: server,
            ("GET", "/server_info"): lambda _: server,
            ("GET", "/get_model_info"): lambda _: {**info, "is_generation": True, "weight_version": "default"},
            ("GET", "/model_info"): lambda _: {**info, "is_generation": True, "weight_version": "default"},
            ("GET", "/health"): lambda _: {},
            ("POST", "/generate"): self.native,
            ("POST", "/tokenize"): self.tokenize,
        }

    def error(self, status: int, message: str, kind: str = "BadRequest", **more: Any) -> Refused:
        return Refused(status, {"object": "error", "message": message, "type": kind, "param": None, "code": status})

    def model_card(self) -> Body:
        return {**super().model_card(), "root": self.name, "max_model_len": self.max_length}

    def tokenize(self, body: Body) -> Body:
        tokens = self.numbers.encode(body["prompt"], bos=body.get("add_special_tokens", True))
        return {"tokens": tokens, "count": len(tokens), "max_model_len": self.max_length}

    def completion(self, text: str, tokens: list[int], reply: Generated, body: Body, index: int) -> Body:
        if body.get("logprobs") == 0:
            body = {**body, "echo": False}
        choice = super().completion(text, tokens, reply, body, index)
        if choice["logprobs"]:
            choice["logprobs"]["text_offset"] = [-1] * len(choice["logprobs"]["tokens"])
        return {**choice, "matched_stop": reply.stop}

    def native(self, body: Body) -> Any:
        given = body.get("input_ids", body.get("text"))
        if given is None:
            raise Refused(400, {"error": {"message": "Either text, input_ids or input_embeds should be provided."}})
        is_batch = isinstance(given, list) and given and not isinstance(given[0], int)
        replies = [self.native_reply(self.prompt(one)[1], body) for one in (given if is_batch else [given])]
        return replies if is_batch else replies[0]

    def native_reply(self, tokens: list[int], body: Body) -> Body:
        sampling = body.get("sampling_params") or {}
        max_tokens = sampling.get("max_new_tokens", 128)
        reply = self.generate(tokens, sampling, max(1, max_tokens))
        if max_tokens == 0 and "max-tokens-ignored" not in self.faults:
            reply = Generated(tokens=[], rows=[], text="", reason="limit")
        finish = {"type": "length", "length": max_tokens}
        if reply.reason != "limit":
            finish = {"type": "stop", "matched": reply.stop or 0}
        meta: Body = {
            "id": f"{next(reply_numbers):032x}",
            "finish_reason": finish,
            "prompt_tokens": len(tokens),
            "completion_tokens": len(reply.tokens),
            "cached_tokens": 0,
            "weight_version": "default",
            "e2e_latency": 0.001,
        }
        if body.get("return_logprob"):
            meta |= self.native_logprobs(tokens, reply, body)
        return {"text": reply.text, "output_ids": reply.tokens, "meta_info": meta}

    def native_logprobs(self, tokens: list[int], reply: Generated, body: Body) -> Body:
        as_texts = "texts-for-ids" in self.faults
        start = body.get("logprob_start_len", -1)
        logprobs, best = self.numbers.prompt_logprobs(tokens)

        def entry(logprob: float | None, token: int) -> list[Any]:
            text = self.words.decode([token]) if body.get("return_text_in_logprobs") or as_texts else None
            return [logprob, None if as_texts else token, text]

        rows = self.numbers.generated_logprobs(tokens, reply)
        wanted = body.get("token_ids_logprob")
        count = body.get("top_logprobs_num", 0)
        start = len(tokens) if start == -1 or "echo-ignored" in self.faults else start
        scored = list(zip(logprobs, tokens, strict=False))
        if 0 < start < len(scored):
            scored[start] = (None, tokens[start])  # the first place asked for is conditioned on nothing
        scored = scored[start:]
        result: Body = {
            "input_token_logprobs": [entry(*pair) for pair in scored],
            "output_token_logprobs": [entry(float(r[t]), t) for t, r in zip(reply.tokens, rows, strict=True)],
            "input_top_logprobs": [top and [entry(top[1], top[0])] for top in best[start:]] if count else [],
            "output_top_logprobs": [[entry(float(r[t]), t) for t in self.top(r, count)] for r in rows],
        }
        if wanted is not None:
            result["input_token_ids_logprobs"] = []
            result["output_token_ids_logprobs"] = [[entry(float(r[t]), t) for t in wanted] for r in rows]
        return result
