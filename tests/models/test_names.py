from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.text.model_names import short_names

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
