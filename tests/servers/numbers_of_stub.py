"""The numbers that the stub server hands out, and the faults that make them wrong."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.servers.language_models import BOS, Generated, LanguageModel, Rows, Words, generate

__all__ = ["FAULTS", "Numbers", "log_softmax", "parse_faults"]

FAULTS: dict[str, str] = {
    # of numbers
    "echo-ignored": "the prompt's logprobs are left out, as if nobody had asked for them",
    "shifted": "each prompt logprob stands one place too early",
    "no-bos": "a prompt is scored without its BOS, and a text is encoded without one",
    "doubled-bos": "a prompt is scored after a second BOS, and a text is encoded with two",
    "nulls": "every third logprob of the prompt is null",
    "texts-for-ids": "tokens are named by their texts, also where their ids were asked for",
    "ids-as-text": "a prompt of token ids is read as text: '[0, 17, …]'",
    "order-dependent": "a prefix that an earlier prompt had changes the logprobs behind it",
    "processed": "logprobs of generated tokens are taken after temperature, sampling and bias",
    "wrong-count": "one logprob of the prompt is missing",
    "wrong-choices": "a reply has no choices",
    "no-logits-all": "llama-cpp-python, started without --logits_all",
    # of obedience
    "stop-ignored": "stop strings are not heeded",
    "max-tokens-ignored": "replies are longer than asked for",
    "content-null": "a chat's reply is null",
    "content-filter": "replies end by a content filter, empty",
    "reasoning": "a chat's reply comes with reasoning text",
    # of transport; the value is the share of requests that are hit
    "429": "too many requests, with Retry-After (share, 0.3)",
    "429-no-retry-after": "too many requests, without it (share, 0.3)",
    "quota": "the quota is used up (share, 1)",
    "errors-30": "500 (share, 0.3)",
    "cut-body": "the body ends in the middle (share, 1)",
    "not-json": "the body is no JSON (share, 1)",
    "twice": "the body comes twice (share, 1)",
    "html": "every path is an HTML page",
    "slow": "replies come late (seconds, 5)",
    "redirect": "every request is sent elsewhere (302)",
    "unauthorized": "the key is refused, and repeated in the error",
    "dies-after": "the server is gone after so many questions (30)",
}
"""What can be wrong, by name. ``name:value`` gives a number."""

_DEFAULTS = {"429": 0.3, "429-no-retry-after": 0.3, "errors-30": 0.3, "slow": 5.0, "dies-after": 30.0}


def parse_faults(faults: Sequence[str]) -> dict[str, float]:
    """``["shifted", "errors-30:0.5"]`` as a mapping. Raises ``ValueError`` for an unknown name."""
    parsed = {}
    for text in faults:
        name, _, value = text.partition(":")
        if name not in FAULTS:
            raise ValueError(f"unknown fault {name!r}; known are {', '.join(FAULTS)}")
        parsed[name] = float(value) if value else _DEFAULTS.get(name, 1.0)
    return parsed


def log_softmax(logits: Rows) -> Rows:
    """Natural logarithms of the probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    differs = (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differs, min(len(first), len(second)))


class Numbers:
    """A language model behind a server, with the faults that are switched on."""

    def __init__(self, model: LanguageModel, words: Words, faults: Mapping[str, float]) -> None:
        self.model = model
        self.words = words
        self.faults = faults
        self._seen: deque[tuple[int, ...]] = deque(maxlen=256)
        self._lock = threading.Lock()

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        """The tokens of a prompt that came as text."""
        tokens = self.words.encode(text)
        if "no-bos" in self.faults:
            return tokens
        return [BOS] * (bos + ("doubled-bos" in self.faults)) + tokens

    def _cached(self, tokens: Sequence[int]) -> int:
        """How many first tokens an earlier prompt had as well (0 without the fault)."""
        if "order-dependent" not in self.faults:
            return 0
        longest = 0
        with self._lock:
            for earlier in self._seen:
                longest = max(longest, _common_length(earlier, tokens))
            self._seen.append(tuple(tokens))
        return longest

    def prompt_logprobs(self, tokens: Sequence[int]) -> tuple[list[float | None], list[tuple[int, float] | None]]:
        """Of each token of a prompt: its logprob, and the likeliest token at its place. The first has neither."""
        fed = list(tokens)
        if fed[0] == BOS and "doubled-bos" in self.faults:
            fed = [BOS, *fed]
        if fed[0] == BOS and "no-bos" in self.faults and len(fed) > 2:
            fed = fed[1:]
        rows = log_softmax(self.model.rows(tuple(fed)))[-len(tokens) :]
        if len(rows) < len(tokens):
            rows = np.concatenate([log_softmax(self.model.rows((BOS,))), rows])
        before = rows[:-1]  # the row that a token is predicted by
        logprobs: list[float | None] = [None, *before[np.arange(len(before)), list(tokens[1:])].tolist()]
        best: list[tuple[int, float] | None] = [None, *((int(row.argmax()), float(row.max())) for row in before)]
        cached = self._cached(tokens)
        if cached:
            start = max(1, min(cached, len(tokens) - 1))
            logprobs[start:] = [value - 0.01 * cached for value in logprobs[start:] if value is not None]
        if "shifted" in self.faults:
            logprobs = [None, *logprobs[2:], logprobs[-1]]
            best = [None, *best[2:], best[-1]]
        if "nulls" in self.faults:
            logprobs = [None if place % 3 == 2 or place == len(logprobs) - 1 else v for place, v in enumerate(logprobs)]
        if "wrong-count" in self.faults:
            del logprobs[-1], best[-1]
        return logprobs, best

    def generate(
        self, prompt: Sequence[int], *, max_tokens: int, stop: Sequence[str] = (), **settings: Any
    ) -> Generated:
        """A reply, where the faults of obedience are heeded."""
        return generate(
            self.model,
            self.words,
            prompt,
            max_tokens=3 * max_tokens + 5 if "max-tokens-ignored" in self.faults else max_tokens,
            stop=() if "stop-ignored" in self.faults else stop,
            **settings,
        )

    def generated_logprobs(
        self, prompt: Sequence[int], reply: Generated, bias: Mapping[int, float] | None = None
    ) -> list[npt.NDArray[np.float64]]:
        """Of each token of a reply: the logprobs of the whole vocabulary at its place."""
        rows = list(reply.rows)
        if bias and "shifted" in self.faults and len(prompt) > 1:
            rows = [self.model.rows(tuple(prompt[:-1]))[-1], *rows[:-1]][: len(rows)]
        if "processed" in self.faults:
            rows = [row / 0.5 for row in rows]
            for row in rows:
                for token, value in (bias or {}).items():
                    row[token] += value
        cached = self._cached(prompt)
        return [log_softmax(row) - 0.01 * cached for row in rows]
