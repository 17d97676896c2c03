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

from tests.servers.language_models import DEMO, Generated
from tests.servers.numbers_of_stub import Numbers

__all__ = ["CREATED", "Body", "Generic", "Handler", "Refused", "Wire", "reply_numbers"]

Body = dict[str, Any]
Handler = Callable[[Body], Any]
CREATED = 1_790_000_000
reply_numbers = itertools.count(1)


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
            ("POST", "/v1/embeddings"): self.embeddings,
        }

    # What the servers do in their own ways

    def error(self, status: int, message: str, kind: str = "BadRequestError", **more: Any) -> Refused:
        return Refused(status, {"error": {"message": message, "type": kind, "param": None, "code": status, **more}})

    def model_card(self) -> Body:
        return {"id": self.name, "object": "model", "created": CREATED, "owned_by": self.owned_by}

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
        number = next(reply_numbers)
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

    def embeddings(self, body: Body) -> Any:
        """How often each text has a, b and c, and how long it is; in the order that the API does not promise."""
        self.check_model(body)
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        for text in texts:
            if not text or len(text) > self.max_length:
                raise self.error(400, f"'input' has {len(text)} characters")
        data = [
            {"object": "embedding", "index": place, "embedding": [*map(text.count, "abc"), len(text) / 8]}
            for place, text in enumerate(texts)
        ]
        num_tokens = sum(map(len, texts))
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        return {"object": "list", "model": self.name, "data": data[::-1], "usage": usage}

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
