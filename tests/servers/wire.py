"""How each kind of server speaks on the wire: paths, requests, replies and errors, as their sources of 2026 have it.

A class answers ``(method, path, headers, body)`` with a JSON value or raises ``Refused``. Transport and its faults are
``stub.py``'s; numbers and theirs ``numbers_of_stub.py``'s.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tests.servers.language_models import BOS, DEMO, Generated
from tests.servers.numbers_of_stub import Numbers, log_softmax

__all__ = ["WIRES", "Refused", "Wire"]

Body = dict[str, Any]
Handler = Callable[[Body], Any]
_CREATED = 1_790_000_000
_numbers = itertools.count(1)


class Refused(Exception):
    """A reply that is an error."""

    def __init__(self, status: int, payload: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.payload = payload
        self.headers = dict(headers or {})


class Wire:
    """What the servers have in common: OpenAI's paths, and errors in OpenAI's shape."""

    owned_by: ClassVar[str] = "me"
    default_max_tokens: ClassVar[int] = 16
    counts_end: ClassVar[bool] = False
    """Whether the end-of-text token is one of a reply's."""
    software: ClassVar[str] = "uvicorn"
    """What the header ``Server`` says."""

    def __init__(
        self,
        numbers: Numbers,
        *,
        name: str = "demo",
        max_length: int = 4096,
        key: str | None = None,
        root: str = str(DEMO),
    ) -> None:
        self.numbers = numbers
        self.words = numbers.words
        self.faults = numbers.faults
        self.name = name
        self.max_length = max_length
        self.key = key
        self.root = root
        self.routes: dict[tuple[str, str], Handler] = {
            ("GET", "/v1/models"): lambda _: {"object": "list", "data": [self.model_card()]},
            ("POST", "/v1/completions"): self.completions,
            ("POST", "/v1/chat/completions"): self.chat,
        }

    # What the servers do in their own ways

    def error(self, status: int, message: str, kind: str = "BadRequestError", **more: Any) -> Refused:
        return Refused(status, {"error": {"message": message, "type": kind, "param": None, "code": status, **more}})

    def model_card(self) -> Body:
        return {"id": self.name, "object": "model", "created": _CREATED, "owned_by": self.owned_by}

    def authorize(self, headers: Mapping[str, str]) -> None:
        """Raise ``Refused`` where the key is wrong."""
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            raise self.error(401, "Unauthorized", "AuthenticationError")

    def missing_path(self, path: str) -> Refused:
        if any(path == known for _, known in self.routes):
            return Refused(405, {"detail": "Method Not Allowed"})
        return Refused(404, {"detail": "Not Found"})

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> Any:
        """The reply to one request."""
        handler = self.routes.get((method, path))
        if handler is None:
            raise self.missing_path(path)
        self.authorize(headers)
        return handler(body)

    # Parts of requests

    def check_model(self, body: Body) -> None:
        """Raise ``Refused`` where the body names another model."""
        if body.get("model") not in (None, self.name):
            raise self.error(404, f"The model `{body['model']}` does not exist.", "NotFoundError", param="model")

    def prompts(self, body: Body) -> list[tuple[str, list[int]]]:
        """The prompts of a request for completions: each as text and as tokens."""
        prompt = body["prompt"]
        if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
            prompt = [prompt]
        return [self.prompt(one) for one in prompt]

    def prompt(self, prompt: str | list[int]) -> tuple[str, list[int]]:
        if not isinstance(prompt, str) and "ids-as-text" in self.faults:
            prompt = str(prompt)
        tokens = self.numbers.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not tokens:
            raise self.error(400, "The decoder prompt cannot be empty")
        self.check_length(tokens)
        return (prompt if isinstance(prompt, str) else self.words.decode(tokens)), tokens

    def check_length(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= self.max_length:
            raise self.error(
                400,
                f"This model's maximum context length is {self.max_length} tokens. However, your prompt contains "
                f"{len(tokens)} input tokens. Please reduce the length of the input prompt.",
            )

    def generate(self, tokens: Sequence[int], body: Body, max_tokens: int, **more: Any) -> Generated:
        stop = body.get("stop") or []
        return self.numbers.generate(
            tokens,
            max_tokens=min(max_tokens, self.max_length - len(tokens)),
            stop=[stop] if isinstance(stop, str) else stop,
            temperature=float(body.get("temperature", 1.0)),
            seed=body.get("seed"),
            keep_end=self.counts_end,
            **more,
        )

    # Replies

    def usage(self, num_prompt: int, num_reply: int) -> Body:
        return {"prompt_tokens": num_prompt, "completion_tokens": num_reply, "total_tokens": num_prompt + num_reply}

    def reply(self, object_: str, choices: list[Body], usage: Body) -> Body:
        if "wrong-choices" in self.faults:
            choices = []
        number = next(_numbers)
        return {
            "id": f"stub-{number}",
            "object": object_,
            "created": int(time.time()),
            "model": self.name,
            "choices": choices,
            "usage": usage,
        }

    def finish(self, reply: Generated) -> str:
        if "content-filter" in self.faults:
            return "content_filter"
        return "length" if reply.reason == "limit" else "stop"

    def token_name(self, token: int, body: Body) -> str:
        return self.words.decode([token])

    def logprobs(
        self, prompt: Sequence[int], reply: Generated, body: Body, text_offset: int, wanted: Sequence[int] = ()
    ) -> Body | None:
        """OpenAI's ``logprobs`` of a completion: of ``prompt``, where it is echoed, and of the reply."""
        num_best = body.get("logprobs")
        if num_best is None:
            return None
        tokens: list[int] = []
        logprobs: list[float | None] = []
        best: list[dict[str, float] | None] = []
        if body.get("echo") and "echo-ignored" not in self.faults:
            logprobs, likeliest = self.numbers.prompt_logprobs(prompt)
            tokens = list(prompt)[: len(logprobs)]
            for token, logprob, top in zip(tokens, logprobs, likeliest, strict=True):
                named = {self.token_name(token, body): logprob} if logprob is not None else None
                best.append(
                    named and {**named, **({self.token_name(top[0], body): top[1]} if top and num_best else {})}
                )
        if body.get("max_tokens") != 0:
            rows = self.numbers.generated_logprobs(prompt, reply)
            for token, row in zip(reply.tokens, rows, strict=True):
                tokens.append(token)
                logprobs.append(float(row[token]))
                best.append(
                    {self.token_name(t, body): float(row[t]) for t in [token, *self.top(row, num_best), *wanted]}
                )
        texts = [self.token_name(token, body) for token in tokens]
        offsets = list(itertools.accumulate((len(text) for text in texts), initial=text_offset))[:-1]
        return {"text_offset": offsets, "token_logprobs": logprobs, "tokens": texts, "top_logprobs": best}

    def top(self, row: npt.NDArray[np.float64], count: int) -> list[int]:
        return [int(token) for token in np.argsort(-row)[:count]]

    def completions(self, body: Body) -> Any:
        self.check_model(body)
        choices: list[Body] = []
        num_prompt = num_reply = 0
        max_tokens = body.get("max_tokens")
        max_tokens = self.default_max_tokens if max_tokens is None else max_tokens
        for text, tokens in self.prompts(body):
            reply = self.generate(tokens, body, max(1, max_tokens))
            choices.append(self.completion(text, tokens, reply, {**body, "max_tokens": max_tokens}, len(choices)))
            num_prompt += len(tokens)
            num_reply += len(reply.tokens)
        return self.reply("text_completion", choices, self.usage(num_prompt, num_reply))

    def completion(self, text: str, tokens: list[int], reply: Generated, body: Body, index: int) -> Body:
        echo = bool(body.get("echo")) and "echo-ignored" not in self.faults
        written = "" if body["max_tokens"] == 0 or "content-filter" in self.faults else reply.text
        logprobs = self.logprobs(tokens, reply, body, 0, body.get("logprob_token_ids") or ())
        finish = self.finish(reply)
        return {"index": index, "text": echo * text + written, "logprobs": logprobs, "finish_reason": finish}

    def chat_tokens(self, messages: Sequence[Body]) -> list[int]:
        return self.words.encode(self.words.render(messages))

    def max_chat_tokens(self, body: Body) -> int:
        limit = body.get("max_completion_tokens")
        limit = body.get("max_tokens") if limit is None else limit
        return self.max_length if limit is None else int(limit)

    def chat(self, body: Body) -> Any:
        self.check_model(body)
        tokens = self.chat_tokens(body["messages"])
        self.check_length(tokens)
        reply = self.generate(tokens, body, self.max_chat_tokens(body))
        message: Body = {"role": "assistant", "content": reply.text, **self.message_fields()}
        if "content-null" in self.faults:
            message["content"] = None
        if "content-filter" in self.faults:
            message["content"] = ""
        logprobs = None
        if body.get("logprobs"):
            rows = self.numbers.generated_logprobs(tokens, reply)
            logprobs = {"content": [self.chat_logprob(t, row, body) for t, row in zip(reply.tokens, rows, strict=True)]}
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": self.finish(reply)}
        return self.reply("chat.completion", [choice], self.usage(len(tokens), len(reply.tokens)))

    def message_fields(self) -> Body:
        return {"reasoning_content": "Let me think.\n\nFirst:"} if "reasoning" in self.faults else {}

    def chat_logprob(self, token: int, row: npt.NDArray[np.float64], body: Body) -> Body:
        def named(token: int) -> Body:
            text = self.words.decode([token])
            return {"token": text, "logprob": float(row[token]), "bytes": list(text.encode())}

        return {**named(token), "top_logprobs": [named(t) for t in self.top(row, body.get("top_logprobs") or 0)]}


class Generic(Wire):
    """A server that speaks OpenAI's completions, echo and all, and says nothing of what it is."""


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
            "id": f"{next(_numbers):032x}",
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


class LlamaCppPython(Wire):
    """llama-cpp-python's server: text only, ``max_tokens: 0`` is without limit, and a row too far without a BOS."""

    def __init__(self, numbers: Numbers, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        self.routes |= {
            ("GET", "/openapi.json"): lambda _: {"info": {"title": "🦙 llama.cpp Python API"}, "paths": {}},
            ("POST", "/extras/tokenize"): lambda body: {"tokens": self.words.encode(body["input"], bos=True)},
            ("POST", "/extras/tokenize/count"): lambda body: {"count": len(self.words.encode(body["input"], bos=True))},
            ("POST", "/extras/detokenize"): lambda body: {"text": self.words.decode(body["tokens"])},
        }

    def error(self, status: int, message: str, kind: str = "internal_server_error", **more: Any) -> Refused:
        return Refused(status, {"error": {"message": message, "type": kind, "param": None, "code": None, **more}})

    def authorize(self, headers: Mapping[str, str]) -> None:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            raise Refused(401, {"detail": "Invalid API key"})

    def model_card(self) -> Body:
        return {"id": self.name, "object": "model", "owned_by": self.owned_by, "permissions": []}

    def check_model(self, body: Body) -> None:
        """Any name stands for the first model."""

    def check_length(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= self.max_length:
            raise self.error(
                400,
                f"This model's maximum context length is {self.max_length} tokens, however you requested {len(tokens)} "
                "tokens. Please reduce your prompt; or completion length.",
                "invalid_request_error",
                param="messages",
                code="context_length_exceeded",
            )

    def token_name(self, token: int, body: Body) -> str:
        return self.decoded([token])

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of tokens: what is not a whole character is left out, and so are special tokens."""
        return self.words.decode(tokens, special=False).replace("\ufffd", "")

    def completions(self, body: Body) -> Any:
        prompt = body.get("prompt", "")
        if isinstance(prompt, list) and (len(prompt) != 1 or not isinstance(prompt[0], str)):
            raise self.error(
                500, "[{'type': 'string_type', 'loc': ('body', 'prompt', 'str'), 'msg': 'Input should be …'}]"
            )
        if body.get("logprobs") is not None and "no-logits-all" in self.faults:
            raise self.error(500, "logprobs is not supported for models created with logits_all=False")
        if body.get("max_tokens") == 0:
            body = {**body, "max_tokens": self.max_length}
        return super().completions({"temperature": 0.8, **body})

    def logprobs(
        self, prompt: Sequence[int], reply: Generated, body: Body, text_offset: int, wanted: Sequence[int] = ()
    ) -> Body | None:
        if not body.get("echo"):
            return super().logprobs(prompt, reply, body, len(self.words.decode(prompt, special=False)))
        has_bos = prompt[0] == BOS
        own = [token for token in prompt if token != BOS]
        found = super().logprobs([BOS, *own], reply, body, text_offset)
        if found:
            found = {key: values[1:] for key, values in found.items()}
            scored = [*own, *reply.tokens][: len(found["tokens"])]
            found["text_offset"] = [len(self.decoded(scored[:end])) for end in range(len(scored))]
            if not has_bos:  # it takes the rows from the first on, which is right behind a BOS only
                rows = log_softmax(self.numbers.model.rows(tuple(prompt)))
                found["token_logprobs"][: len(own)] = [float(row[token]) for row, token in zip(rows, own, strict=True)]
        if found and body.get("echo") and found["tokens"]:
            found["token_logprobs"][0] = found["top_logprobs"][0] = None
        return found


class LlamaServer(Wire):
    """llama.cpp's llama-server: no echo; its own ``/completion`` takes ids and a bias."""

    owned_by = "llamacpp"
    software = "llama.cpp"

    def __init__(self, numbers: Numbers, *, num_slots: int = 4, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        self.num_slots = num_slots
        self.routes |= {
            ("GET", "/props"): lambda _: self.props(),
            ("GET", "/health"): lambda _: {"status": "ok"},
            ("GET", "/models"): lambda _: {"object": "list", "data": [self.model_card()]},
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/detokenize"): lambda body: {"content": self.words.decode(body["tokens"])},
            ("POST", "/apply-template"): lambda body: {"prompt": self.words.render(body["messages"])},
            ("POST", "/completion"): self.native,
        }

    def error(self, status: int, message: str, kind: str = "invalid_request_error", **more: Any) -> Refused:
        return Refused(status, {"error": {"code": status, "message": message, "type": kind, **more}})

    def authorize(self, headers: Mapping[str, str]) -> None:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            raise self.error(401, "Invalid API Key", "authentication_error")

    def missing_path(self, path: str) -> Refused:
        return self.error(404, "File Not Found", "not_found_error")

    def check_model(self, body: Body) -> None:
        """Any name will do."""

    def check_length(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= self.max_length:
            size = f"({len(tokens)} tokens) exceeds the available context size ({self.max_length} tokens)"
            counts = {"n_prompt_tokens": len(tokens), "n_ctx": self.max_length}
            raise self.error(400, f"request {size}, try increasing it", "exceed_context_size_error", **counts)

    def model_card(self) -> Body:
        meta = {"vocab_type": 2, "n_vocab": self.words.num_tokens, "n_ctx_train": 4096, "n_params": 1_117_312}
        return {**super().model_card(), "aliases": [], "tags": [], "meta": {**meta, "n_ctx": self.max_length}}

    def props(self) -> Body:
        return {
            "default_generation_settings": {"params": {"n_predict": -1}, "n_ctx": self.max_length},
            "total_slots": self.num_slots,
            "model_alias": self.name,
            "model_ftype": "all F32",
            "model_path": "/models/demo-f32.gguf",
            "chat_template": (DEMO / "chat_template.jinja").read_text(encoding="utf-8"),
            "bos_token": "<|endoftext|>",
            "eos_token": "<|endoftext|>",
            "build_info": "b9999-0123456",
        }

    def tokenize(self, body: Body) -> Body:
        if body.get("add_special"):
            return {"tokens": self.numbers.encode(body["content"])}
        return {"tokens": self.words.encode(body["content"])}

    def chat_tokens(self, messages: Sequence[Body]) -> list[int]:
        return self.numbers.encode(self.words.render(messages), bos=False)

    def completions(self, body: Body) -> Any:
        if body.get("echo"):
            raise self.error(500, "Only no echo is supported", "server_error")
        return super().completions(body)

    def native(self, body: Body) -> Any:
        prompt = body["prompt"]
        is_batch = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
        replies = [self.native_reply(self.prompt(one)[1], body) for one in (prompt if is_batch else [prompt])]
        return replies if is_batch else replies[0]

    def native_reply(self, tokens: list[int], body: Body) -> Body:
        given = body.get("logit_bias") or []
        pairs = given.items() if isinstance(given, dict) else given
        bias = {int(token): -1e9 if value is False else float(value) for token, value in pairs}
        limit = body.get("n_predict", -1)
        limit = self.max_length if limit < 0 else limit
        reply = self.generate(tokens, {"temperature": 0.8, **body}, limit, bias=bias)
        result: Body = {
            "index": 0,
            "content": reply.text,
            "tokens": reply.tokens if body.get("return_tokens") else [],
            "id_slot": 0,
            "stop": True,
            "model": self.name,
            "tokens_predicted": len(reply.tokens),
            "tokens_evaluated": len(tokens),
            "generation_settings": {"n_predict": limit},
            "prompt": self.words.decode(tokens),
            "has_new_line": "\n" in reply.text,
            "truncated": False,
            "stop_type": reply.reason,
            "stopping_word": reply.stop or "",
            "tokens_cached": len(tokens) + len(reply.tokens) - 1,
            "timings": {"cache_n": 0, "prompt_n": len(tokens), "predicted_n": len(reply.tokens)},
        }
        count = body.get("n_probs", 0)
        if count and reply.tokens and "echo-ignored" not in self.faults:
            rows = self.numbers.generated_logprobs(tokens, reply, bias)
            entries = [self.prob(t, row, count) for t, row in zip(reply.tokens, rows, strict=True)]
            if "nulls" in self.faults:
                entries[0]["logprob"] = None
            if "wrong-count" in self.faults:
                entries = entries[1:]
            result["completion_probabilities"] = entries
        return result

    def prob(self, token: int, row: npt.NDArray[np.float64], count: int) -> Body:
        def named(token: int) -> Body:
            text = self.words.decode([token])
            index = None if "texts-for-ids" in self.faults else token
            return {"id": index, "token": text, "bytes": list(text.encode()), "logprob": float(row[token])}

        return {**named(token), "top_logprobs": [named(t) for t in self.top(row, count)]}


class Ollama(Wire):
    """Ollama: no logprobs of a prompt; a prompt longer than ``num_ctx`` loses its beginning, and nothing says so."""

    owned_by = "library"
    software = "ollama"

    def __init__(self, numbers: Numbers, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        if ":" not in self.name:
            self.name += ":latest"
        self.routes |= {
            ("GET", "/"): lambda _: "Ollama is running",
            ("GET", "/api/version"): lambda _: {"version": "0.12.6"},
            ("GET", "/api/tags"): lambda _: {"models": [self.tag()]},
            ("GET", "/api/ps"): lambda _: {"models": [{**self.tag(), "context_length": self.max_length}]},
            ("POST", "/api/show"): self.show,
            ("POST", "/api/generate"): self.native,
            ("POST", "/api/chat"): self.native,
        }

    def error(self, status: int, message: str, kind: str = "api_error", **more: Any) -> Refused:
        return Refused(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})

    def tag(self) -> Body:
        details = {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"]}
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": "2026-09-01T12:00:00Z",
            "size": 4_500_000,
            "digest": "ab" * 32,
            "details": {**details, "parameter_size": "1.12M", "quantization_level": "F32"},
        }

    def authorize(self, headers: Mapping[str, str]) -> None:
        """Ollama has no keys."""

    def is_own(self, name: object) -> bool:
        return name in (self.name, self.name.removesuffix(":latest"))

    def show(self, body: Body) -> Body:
        if not self.is_own(body.get("model", body.get("name"))):
            raise Refused(404, {"error": f"model '{body.get('model')}' not found"})
        info = {"general.architecture": "llama", "general.parameter_count": 1_117_312, "llama.context_length": 4096}
        return {
            "modelfile": "FROM demo",
            "parameters": f"num_ctx {self.max_length}",
            "template": "{{ .Prompt }}",
            "details": self.tag()["details"],
            "model_info": info,
            "capabilities": ["completion"],
            "modified_at": "2026-09-01T12:00:00Z",
        }

    def check_model(self, body: Body) -> None:
        if not self.is_own(body.get("model")):
            raise self.error(404, f"model '{body.get('model')}' not found", "not_found_error")

    def check_length(self, tokens: Sequence[int]) -> None:
        """Nothing is too long: it is cut."""

    def cut(self, tokens: list[int]) -> list[int]:
        limit = self.max_length - 1
        return tokens if len(tokens) <= limit else [*tokens[:1], *tokens[-limit + 1 :]]

    def prompts(self, body: Body) -> list[tuple[str, list[int]]]:
        if not isinstance(body["prompt"], str):
            message = "json: cannot unmarshal array into Go struct field CompletionRequest.prompt of type string"
            raise self.error(400, message, "invalid_request_error")
        return [(body["prompt"], self.cut(self.numbers.encode(body["prompt"])))]

    def chat_tokens(self, messages: Sequence[Body]) -> list[int]:
        return self.cut(super().chat_tokens(messages))

    def completion(self, text: str, tokens: list[int], reply: Generated, body: Body, index: int) -> Body:
        return super().completion(text, tokens, reply, {**body, "echo": False, "logprobs": None}, index)

    def native(self, body: Body) -> Body:
        self.check_model(body)
        options = body.get("options") or {}
        is_chat = "messages" in body
        tokens = self.chat_tokens(body["messages"]) if is_chat else self.cut(self.numbers.encode(body["prompt"]))
        limit = options.get("num_predict", -1)
        reply = self.generate(tokens, {"temperature": 0.8, **options}, self.max_length if limit < 0 else limit)
        written = {"message": {"role": "assistant", "content": reply.text}} if is_chat else {"response": reply.text}
        return {
            "model": self.name,
            "created_at": "2026-09-01T12:00:00Z",
            **written,
            "done": True,
            "done_reason": self.finish(reply),
            "prompt_eval_count": len(tokens),
            "eval_count": len(reply.tokens),
        }


class OpenAI(Wire):
    """The hosted API: chat alone, a key, and a field of their own for reasoning models (``o…`` and ``gpt-5…``)."""

    owned_by = "system"
    software = "cloudflare"

    def error(self, status: int, message: str, kind: str = "invalid_request_error", **more: Any) -> Refused:
        return Refused(status, {"error": {"message": message, "type": kind, "param": None, "code": None, **more}})

    def authorize(self, headers: Mapping[str, str]) -> None:
        given = headers.get("authorization", "")
        if not given:
            raise self.error(
                401, "You didn't provide an API key. You need to provide your API key in an Authorization …"
            )
        if self.key is not None and given != f"Bearer {self.key}":
            shown = given.removeprefix("Bearer ")
            raise self.error(401, f"Incorrect API key provided: {shown}. You can find …", code="invalid_api_key")

    def check_model(self, body: Body) -> None:
        if body.get("model") != self.name:
            message = f"The model `{body.get('model')}` does not exist or you do not have access to it."
            raise self.error(404, message, code="model_not_found")

    def completions(self, body: Body) -> Any:
        message = (
            "This is a chat model and not supported in the v1/completions endpoint. Did you mean to use v1/chat/…?"
        )
        raise self.error(404, message, param="model")

    @property
    def reasons(self) -> bool:
        return self.name.startswith(("o1", "o3", "o4", "gpt-5"))

    def chat(self, body: Body) -> Any:
        if self.reasons:
            for field in ("max_tokens", "stop"):
                if field in body:
                    hint = " Use 'max_completion_tokens' instead." if field == "max_tokens" else ""
                    message = f"Unsupported parameter: '{field}' is not supported with this model.{hint}"
                    raise self.error(400, message, param=field, code="unsupported_parameter")
            if body.get("temperature", 1) != 1:
                message = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) …"
                raise self.error(400, message, param="temperature", code="unsupported_value")
            body = {**body, "temperature": 0}
        return super().chat(body)

    def usage(self, num_prompt: int, num_reply: int) -> Body:
        usage = super().usage(num_prompt, num_reply)
        details = {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
        return {**usage, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": details}

    def message_fields(self) -> Body:
        return {"refusal": None, "annotations": []}


class Anthropic(Wire):
    """The Messages API."""

    def __init__(self, numbers: Numbers, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        card = {"type": "model", "id": self.name, "display_name": self.name, "created_at": "2026-02-19T00:00:00Z"}
        models = {"data": [card], "has_more": False, "first_id": self.name, "last_id": self.name}
        self.routes = {
            ("GET", "/v1/models"): lambda _: models,
            ("GET", f"/v1/models/{self.name}"): lambda _: card,
            ("POST", "/v1/messages"): self.messages,
        }

    def error(self, status: int, message: str, kind: str = "invalid_request_error", **more: Any) -> Refused:
        request = f"req_{next(_numbers)}"
        payload = {"type": "error", "error": {"type": kind, "message": message}, "request_id": request}
        return Refused(status, payload, {"request-id": request})

    def missing_path(self, path: str) -> Refused:
        return self.error(404, "Not Found", "not_found_error")

    def authorize(self, headers: Mapping[str, str]) -> None:
        if not headers.get("x-api-key"):
            raise self.error(401, "x-api-key header is required", "authentication_error")
        if self.key is not None and headers["x-api-key"] != self.key:
            raise self.error(401, "invalid x-api-key", "authentication_error")
        if not headers.get("anthropic-version"):
            raise self.error(400, "anthropic-version: header is required")

    def messages(self, body: Body) -> Any:
        turns = body["messages"]
        if body.get("model") != self.name:
            raise self.error(404, f"model: {body.get('model')}", "not_found_error")
        if not body.get("max_tokens"):
            raise self.error(400, "max_tokens: Field required")
        if any(turn["role"] == "system" for turn in turns):
            raise self.error(400, 'messages: Unexpected role "system". The Messages API accepts a top-level `system`.')
        if any(not string.strip() for string in body.get("stop_sequences") or []):
            raise self.error(400, "stop_sequences: each stop sequence must contain non-whitespace")
        last = turns[-1]
        if last["role"] == "assistant" and last["content"] != last["content"].rstrip():
            raise self.error(400, "messages: final assistant content cannot end with trailing whitespace")
        system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
        tokens = self.chat_tokens([*system, *turns])
        self.check_length(tokens)
        reply = self.generate(tokens, {**body, "stop": body.get("stop_sequences")}, body["max_tokens"])
        reasons = {"eos": "end_turn", "limit": "max_tokens", "word": "stop_sequence"}
        refused = "content-filter" in self.faults
        content = [{"type": "text", "text": reply.text}]
        return {
            "id": f"msg_{next(_numbers)}",
            "type": "message",
            "role": "assistant",
            "model": self.name,
            "content": [] if refused or self.faults.keys() & {"content-null", "wrong-choices"} else content,
            "stop_reason": "refusal" if refused else reasons[reply.reason],
            "stop_sequence": reply.stop,
            "usage": {"input_tokens": len(tokens), "output_tokens": len(reply.tokens)},
        }


class TransformersServe(Wire):
    """``transformers serve``: chat, and logprobs of nothing."""

    owned_by = "hf"

    def __init__(self, numbers: Numbers, **settings: Any) -> None:
        super().__init__(numbers, **settings)
        del self.routes["POST", "/v1/completions"]
        self.routes["GET", "/health"] = lambda _: {"status": "ok"}

    def check_model(self, body: Body) -> None:
        """It loads whatever it is asked for."""

    def chat(self, body: Body) -> Any:
        for field in ("logprobs", "top_logprobs", "n"):
            if body.get(field):
                raise Refused(422, {"detail": f"Unsupported fields in the request: {{'{field}'}}"})
        return super().chat(body)


WIRES: dict[str, type[Wire]] = {
    "generic": Generic,
    "vllm": Vllm,
    "sglang": Sglang,
    "llama-cpp-python": LlamaCppPython,
    "llama-server": LlamaServer,
    "ollama": Ollama,
    "openai": OpenAI,
    "anthropic": Anthropic,
    "transformers": TransformersServe,
}
