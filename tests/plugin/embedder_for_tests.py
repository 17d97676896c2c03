"""An embedder of two letters and scorers that ask one, as modules that plugin tests write beside their suites."""

from __future__ import annotations

import pytest

__all__ = ["CLOSE_SUITE", "EMBEDDER", "write_embedder"]

EMBEDDER = "--llm-embedder=python:my_embedder:Embedder"

_EMBEDDER = '''
"""A text's vector is how many a and b it has."""

import json
import os
from pathlib import Path

from pytest_llmeval.errors import RequestError
from pytest_llmeval.types import EmbeddingResponse, ModelIdentity

HERE = Path(__file__).parent


def log(name, texts):
    with HERE.joinpath("asked.jsonl").open("a") as file:
        file.write(json.dumps({"name": name, "texts": texts, "pid": os.getpid()}) + "\\n")


def vector(text):
    return [float(text.count("a")), float(text.count("b"))]


class Embedder:
    def __init__(self, weights="1"):
        self.identity = ModelIdentity(name=f"embedder-{weights}", backend="test", fingerprint=weights)
        log("load-embedder", [])

    def embed(self, requests):
        log("embedder", [request.text for request in requests])
        return [
            RequestError("refused by the embedder")
            if "REFUSE" in request.text
            else EmbeddingResponse(vector=vector(request.text), num_prompt_tokens=7, seconds=0.25)
            for request in requests
        ]


def by_function(texts):
    """As Embedder does."""
    log("embedder", texts)
    return [vector(text) for text in texts]


class Judge:
    def __init__(self):
        self.identity = ModelIdentity(name="judge", backend="test", fingerprint="j")

    def generate(self, requests):
        from pytest_llmeval.types import GenerateResponse

        return [GenerateResponse(text="fine", num_prompt_tokens=3, num_tokens=1) for request in requests]


class Unloadable:
    def __init__(self):
        raise RuntimeError("no weights here")

    def embed(self, requests):
        raise NotImplementedError
'''

_SCORERS = '''
import math

from pytest_llmeval.errors import RequestError
from pytest_llmeval.scoring.base import Scorer
from pytest_llmeval.types import Ask, EmbeddingRequest, GenerateRequest, Score


class Close(Scorer):
    """The cosine of the embeddings of reply and target."""

    name, metrics, roles = "close", ("closeness",), frozenset(("embedder",))

    def score(self, presented, responses):
        raise RuntimeError("it asks")

    def asking(self, presented, responses):
        texts = (responses[0].text, presented.target)
        found = yield Ask("embedder", tuple(EmbeddingRequest(text) for text in texts))
        errors = [one for one in found if isinstance(one, RequestError)]
        if errors:
            return Score(status="unscored", reason=f"no embedding: {errors[0]}")
        one, other = (response.vector for response in found)
        cosine = sum(x * y for x, y in zip(one, other)) / (math.hypot(*one) * math.hypot(*other))
        return Score(status="scored", values={"closeness": cosine})


class Both(Close):
    """The same, after a judge was asked."""

    name, roles = "both", frozenset(("embedder", "judge"))

    def asking(self, presented, responses):
        yield Ask("judge", (GenerateRequest("Is it fine?"),))
        return (yield from super().asking(presented, responses))


def pytest_llmeval_scorers():
    return {"close": Close, "both": Both}
'''

CLOSE_SUITE = """\
suite: close
samples:
  - {id: c1, question: Say it., response: aab, target: abb}
  - {id: c2, question: Say it., response: aa, target: a}
  - {id: c3, question: Say it., response: a, target: b}
score: close
"""
"""Cosines 0.8, 1 and 0."""


def write_embedder(pytester: pytest.Pytester) -> None:
    """The module ``my_embedder`` (``Embedder``, ``by_function``, ``Judge``, ``Unloadable``), and the scorers ``close``
    and ``both``, which asks a judge as well.
    """
    pytester.makepyfile(my_embedder=_EMBEDDER)
    pytester.makeconftest(_SCORERS)
