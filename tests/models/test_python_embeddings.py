"""``--llm-embedder python:MODULE:NAME``: a function of texts, and objects with a method ``embed``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import NamedModel
from pytest_llmeval.models.python.model import EmbeddingFunction
from pytest_llmeval.models.registry import check_model, load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import EmbeddingRequest, EmbeddingResponse, GenerateRequest, ModelIdentity

SOURCE = """
import asyncio
from pytest_llmeval.types import EmbeddingResponse

calls = []

def plain(texts):
    calls.append(texts)
    return [[len(text), -0.0] for text in texts]

def scaled(texts, factor=1):
    return [(factor * len(text),) for text in texts]

def lazy(texts):
    return ((float(len(text)) for _ in range(2)) for text in texts)

async def later(texts):
    await asyncio.sleep(0)
    return plain(texts)

def told(texts):
    return [EmbeddingResponse(vector=(1.0,), num_prompt_tokens=9) for text in texts]

def in_numpy(texts):
    import numpy
    return numpy.array([[len(text), 0.1] for text in texts], dtype=numpy.float32)

def in_torch(texts):
    import torch
    return torch.tensor([[len(text), 0.1] for text in texts], requires_grad=True)

def breaks(texts, api_key="k"):
    if any("bad" in text for text in texts):
        raise ValueError(f"no luck with {api_key}")
    return plain(texts)

def missing(texts):
    return plain([text for text in texts if "bad" not in text])

WRONG = {
    "nan": [float("nan"), 1.0], "inf": [1.0, float("inf")], "empty": [], "word": "text", "none": None, "number": 5,
    "words": ["a", "b"], "truth": [True, False], "nested": [[1.0], [2.0]], "short": [1.0], "large": [10**400, 1],
}

def wrong(texts):
    return [WRONG.get(text, [1.0, 2.0]) for text in texts]

def no_list(texts):
    return None

class Object:
    def embed(self, requests):
        return [EmbeddingResponse(vector=[1.0]) for request in requests]

class Writer:
    def generate(self, requests):
        return []

class Called:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, texts):
        return scaled(texts, self.factor)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_embedders.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_embedders"
    sys.modules.pop("own_embedders", None)


def load(module: str, name: str) -> Any:
    return load_model(parse_model_spec(f"python:{module}:{name}", role="embedder"), ModelSettings())


def embedded(model: Any, *texts: str) -> list[Any]:
    found: list[Any] = model.embed([EmbeddingRequest(text) for text in texts])
    return found


@pytest.mark.parametrize(
    ("name", "vectors"),
    [
        ("plain", [(1.0, -0.0), (2.0, -0.0)]),
        ("scaled?factor=3", [(3.0,), (6.0,)]),
        ("lazy", [(1.0, 1.0), (2.0, 2.0)]),
        ("later", [(1.0, -0.0), (2.0, -0.0)]),
        ("told", [(1.0,), (1.0,)]),
        ("Called?factor=2", [(2.0,), (4.0,)]),
    ],
)
def test_what_a_function_of_texts_gives(module: str, name: str, vectors: list[tuple[float, ...]]) -> None:
    model = load(module, name)
    found = embedded(model, "a", "bb")
    assert [response.vector for response in found] == vectors
    assert all(type(number) is float for response in found for number in response.vector)
    assert model.embed("a").vector == vectors[0]


@pytest.mark.parametrize("name", ["in_numpy", "in_torch"])
def test_arrays_become_numbers_of_python(module: str, name: str) -> None:
    pytest.importorskip("torch")
    vector = embedded(load(module, name), "a", "bb")[1].vector
    assert vector == (2.0, pytest.approx(0.1))
    assert vector[1] != 0.1, "of single precision, as it was"
    assert {type(number) for number in vector} == {float}


def test_all_texts_are_given_in_one_call(module: str) -> None:
    model = load(module, "plain")
    found = embedded(model, "a", "b", "a")
    assert sys.modules[module].calls == [["a", "b", "a"]]
    assert all(response.seconds > 0 and not response.is_timed for response in found)
    assert model.embed("a").is_timed


def test_what_it_raises_is_the_error_of_the_text_that_is_to_blame(module: str) -> None:
    model = load(module, "breaks?api_key=secret-93")
    one, bad, other = embedded(model, "a", "bad", "ccc")
    assert (one.vector[0], other.vector[0]) == (1.0, 3.0)
    assert isinstance(bad, RequestError)
    assert str(bad).splitlines()[0].endswith("raised ValueError: no luck with ***")
    assert "secret-93" not in str(bad)


def test_another_number_of_vectors_belongs_to_no_text(module: str) -> None:
    one, bad, other = embedded(load(module, "missing"), "a", "bad", "ccc")
    assert (one.vector[0], other.vector[0]) == (1.0, 3.0)
    assert str(bad).endswith("returned 0 vectors for 1 text")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nan", "a vector with nan in it, expected finite numbers"),
        ("inf", "a vector with inf in it, expected finite numbers"),
        ("large", "in it, expected finite numbers"),
        ("empty", "a vector of 0 numbers, expected 2"),
        ("short", "a vector of 1 numbers, expected 2"),
        ("word", "'text' (str) in a vector's place"),
        ("none", "None (NoneType) in a vector's place"),
        ("number", "5 (int) in a vector's place"),
        ("words", "a vector with 'a' in it, expected finite numbers"),
        ("truth", "a vector with True in it, expected finite numbers"),
        ("nested", "a vector with [1.0] in it, expected finite numbers"),
    ],
)
def test_what_is_no_vector_is_an_error(module: str, text: str, words: str) -> None:
    first, found, last = embedded(load(module, "wrong"), "fine", text, "fine")
    assert first.vector == last.vector == (1.0, 2.0)
    assert isinstance(found, RequestError)
    assert str(found).endswith(words)


def test_what_is_no_list_is_an_error(module: str) -> None:
    (found,) = embedded(load(module, "no_list"), "a")
    assert str(found).endswith("returned None (NoneType), expected a vector for each text")


def test_an_object_with_the_method_is_asked_as_it_is(module: str) -> None:
    model = load(module, "Object")
    assert isinstance(model, NamedModel)
    assert embedded(model, "a")[0].vector == [1.0]


def test_an_embedder_writes_no_texts(module: str) -> None:
    with pytest.raises(ModelError, match="a function that is the embedder gives vectors, and no generate"):
        load(module, "plain").generate([GenerateRequest("a")])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Writer", "has no method embed(requests), by which a scorer asks the embedder"),
        ("WRONG", ": WRONG is a dict, expected a function of the prompt, a class, or an object with "),
        ("Plain", ": there is no 'Plain' in own_embedders ("),
    ],
)
def test_what_is_no_embedder_is_refused(module: str, name: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(module, name)
    assert words in str(caught.value)


def test_a_class_is_not_made_to_be_checked(module: str) -> None:
    check_model(parse_model_spec(f"python:{module}:Called", role="embedder"), ModelSettings())


@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), max_size=5))
def test_numbers_come_through_bit_for_bit(vectors: Sequence[list[float]]) -> None:
    model = EmbeddingFunction(lambda texts: vectors, ModelIdentity(name="m", backend="python"), {})
    found = model.embed([EmbeddingRequest("t")] * len(vectors))
    assert all(isinstance(response, EmbeddingResponse) for response in found)
    assert [[n.hex() for n in r.vector] for r in found] == [[n.hex() for n in v] for v in vectors]  # type: ignore[union-attr]
