"""llama.cpp's servers and Ollama on the wire, as their sources of 2026 have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.servers.language_models import BOS, DEMO, Generated
from tests.servers.numbers_of_stub import Numbers, log_softmax
from tests.servers.wire import Body, Refused, Wire

__all__ = ["LlamaCppPython", "LlamaServer", "Ollama"]


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

    def generate(self, tokens: Sequence[int], body: Body, max_tokens: int, **more: Any) -> Generated:
        bias = {int(token): float(value) for token, value in (body.get("logit_bias") or {}).items()}
        return super().generate(tokens, body, max_tokens, bias=bias, **more)

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
            ("POST", "/api/embed"): self.embed,
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

    def embed(self, body: Body) -> Body:
        """Longer texts are cut unless the request says that they are not to be."""
        if body.get("truncate", True):
            body = {**body, "input": [text[: self.max_length] for text in body["input"]]}
        elif any(len(text) > self.max_length for text in body["input"]):
            raise Refused(400, {"error": "the input length exceeds the context length"})
        found = self.embeddings(body)
        vectors = [entry["embedding"] for entry in sorted(found["data"], key=lambda entry: int(entry["index"]))]
        return {
            "model": self.name,
            "embeddings": vectors,
            "total_duration": 14_143_917,
            "prompt_eval_count": found["usage"]["prompt_tokens"],
        }

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
