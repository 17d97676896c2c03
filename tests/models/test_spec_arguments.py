"""What stands after ``?`` in a model's name."""

from __future__ import annotations

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.registry import parse_model_spec
from pytest_llmeval.models.specs import hide_secrets, parse_arguments, split_arguments
from pytest_llmeval.text.redaction import is_secret_name
from pytest_llmeval.types import JSON


def test_values_are_typed_as_in_yaml() -> None:
    text = "planning=true&k=3&t=0.5&name=crew a&nothing=null&quoted='7'&url=http%3A//x%3Fa%3D1%26b&empty=''&list=[1]"
    expected: dict[str, JSON] = {
        "planning": True,
        "k": 3,
        "t": 0.5,
        "name": "crew a",
        "nothing": None,
        "quoted": "7",
        "url": "http://x?a=1&b",
        "empty": "",
        "list": "[1]",
    }
    found = parse_arguments(text, "m")
    assert found == expected
    assert [type(found[name]) for name in expected] == [type(value) for value in expected.values()]


def test_only_the_first_question_mark_counts() -> None:
    assert split_arguments("a:b?c=d?e") == ("a:b", "c=d?e")
    assert parse_arguments("", "m") == {}


@pytest.mark.parametrize("text", ["a", "=1", "a=1&&b=2", "a=1&a=2"])
def test_what_is_no_argument(text: str) -> None:
    with pytest.raises(OptionError, match=r"--llm-model m: found .* after '\?', expected"):
        parse_arguments(text, "m")


@pytest.mark.parametrize(
    "name", ["api_key", "apiKey", "key", "OPENAI_API_KEY", "token", "hf-token", "password", "auth"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "num_tokens", "keyword", "k", "author", "monkey", "passes"])
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_hidden() -> None:
    assert hide_secrets("python:a:f?k=1&api_key=abc&max_tokens=9") == "python:a:f?k=1&api_key=***&max_tokens=9"
    assert "pw123456" not in hide_secrets("python:a:f?url=https://user:pw123456@host/x")
    assert parse_model_spec("replay:x.json?key=records").name == "replay:x.json?key=records"
    assert hide_secrets("org/name") == "org/name"
    with pytest.raises(OptionError) as caught:
        parse_model_spec("python:a:f?token=abc&x")
    assert "abc" not in str(caught.value)
