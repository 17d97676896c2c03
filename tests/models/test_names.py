from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.models.registry import parse_model_spec
from pytest_llmeval.text.names import plain_name, short_names

PARTS = st.sampled_from(["a", "b", "gpt2", "gpt2-2", ".", "..", "~", "x:y"])
MODELS = st.lists(st.lists(PARTS, min_size=1, max_size=4).map("/".join), min_size=1, max_size=6, unique=True)


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (["demo"], ["demo"]),
        (["openai-community/gpt2", "demo"], ["gpt2", "demo"]),
        (["mine/llama", "org/llama"], ["mine/llama", "org/llama"]),
        (["runs/one/last", "runs/two/last", "best"], ["one/last", "two/last", "best"]),
        (["a/b/c", "d/b/c", "b/c"], ["a/b/c", "d/b/c", "b/c"]),
        (["gpt2", "models/gpt2"], ["gpt2", "models/gpt2"]),
        (["gpt2", "./gpt2"], ["gpt2", "gpt2-2"]),
        (["gpt2", "./gpt2", "gpt2-2"], ["gpt2", "gpt2-3", "gpt2-2"]),
        (["./ckpt/"], ["ckpt"]),
        (["C:\\models\\ckpt"], ["ckpt"]),
        (["replay:out/a.jsonl?id=x/y", "replay:b.jsonl"], ["a.jsonl?id=x/y", "replay:b.jsonl"]),
        (["python:agents:crew?k=1", "python:agents:crew?k=2"], ["python:agents:crew?k=1", "python:agents:crew?k=2"]),
        (["http://a:8000/v1", "https://b.org/v1/", "demo"], ["a:8000", "b.org", "demo"]),
        (["http://a:1/v1#org/x?timeout=3", "http://a:1/v1?timeout=3&model=org/y"], ["x", "y"]),
        (["http://a:1/v1#x", "http://b:1/v1#x", "http://b:1/v1#x?timeout=3"], ["a:1/x", "b:1/x", "b:1/x-2"]),
        (["python:a/x.py:f", "python:b/x.py:f?u=c/d"], ["x.py:f", "x.py:f?u=c/d"]),
    ],
)
def test_by_example(models: list[str], names: list[str]) -> None:
    assert list(short_names(models)) == names


PLAIN = {
    "http://h:1/v1?timeout=5": "http://h:1/v1",
    "http://h:1/v1?timeout=5&tokenizer=gpt2&price_in=3&price_out=4": "http://h:1/v1?tokenizer=gpt2",
    "http://h:1/v1?max_connections=2#org/x": "http://h:1/v1#org/x",
    "http://h:1/v1#org/x?api_key_env=MY_KEY": "http://h:1/v1#org/x",
    "http://h:1/v1?requests_per_minute=60&dialect=vllm": "http://h:1/v1?dialect=vllm",
    "http://h:1/v1?model=x&t%69meout=5": "http://h:1/v1?model=x",
    "http://h:1/v1?base_url=http://two:2/v1,max_connections=3&dialect=vllm": "http://h:1/v1?dialect=vllm",
    "openai:gpt-5-mini?timeout=5": "openai:gpt-5-mini",
    "openai:x?base_url=http://h:1,api_key_env=K&base_url=http://two:2": "openai:x?base_url=http://h:1",
    "anthropic:claude?max_connections=4": "anthropic:claude",
    "ollama:llama3.2:1b?max_length=100&timeout=9": "ollama:llama3.2:1b?max_length=100",
    "python:m:f?concurrency=4&k=3&timeout=2.5": "python:m:f?k=3",
    "python:m:f?max_connections=3&k=3&price_in=1&price_out=2": "python:m:f?k=3",
    "python:m:f?k=timeout=5&shown=k": "python:m:f?k=timeout=5",
}


@pytest.mark.parametrize(("given", "name"), PLAIN.items())
def test_what_decides_no_reply_is_in_no_name(given: str, name: str) -> None:
    assert plain_name(given) == name
    assert plain_name(name) == name
    assert parse_model_spec(given).name == name


@pytest.mark.parametrize(
    "name",
    [
        "demo",
        "org/timeout",
        "./a?timeout=5",
        "replay:r.jsonl?partial=true",
        "random?seed=3",
        "C:\\x",
        "mine:x?timeout=5",
    ],
)
def test_other_names_stay_as_they_are(name: str) -> None:
    assert plain_name(name) == name


def test_a_folder_without_a_name_has_that_of_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.chdir(str(tmp_path))
    (name,) = short_names(["."])
    assert name == os.path.basename(str(tmp_path))
    assert short_names([".."]) == (os.path.basename(os.path.dirname(str(tmp_path))),)
    assert short_names(["/"]) == ("/",)


@given(MODELS)
def test_no_two_are_alike(models: list[str]) -> None:
    names = short_names(models)
    assert len(set(names)) == len(models)
    assert all(names)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join), min_size=1, unique=True))
def test_a_name_is_the_end_of_its_model_whatever_the_order(models: list[str]) -> None:
    names = dict(zip(models, short_names(models), strict=True))
    assert dict(zip(models[::-1], short_names(models[::-1]), strict=True)) == names
    for model, name in names.items():
        assert ("/" + model).endswith("/" + name)
