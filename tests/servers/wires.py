"""Hosted APIs and ``transformers serve`` on the wire; and all wires by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.servers.numbers_of_stub import Numbers
from tests.servers.wire import Body, Generic, Refused, Wire, reply_numbers
from tests.servers.wires_of_engines import Sglang, Vllm
from tests.servers.wires_of_llama_cpp import LlamaCppPython, LlamaServer, Ollama

__all__ = ["WIRES"]


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
        request = f"req_{next(reply_numbers)}"
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
            "id": f"msg_{next(reply_numbers)}",
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
