"""What the command line may say of a model, and how a slip is answered."""

from __future__ import annotations

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.settings import MODEL_ARGS, ModelSettings, check_device, parse_model_arg
from tests.models.support import one_line_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_length=2048", ("max_length", 2048)),
        ("add_bos=true", ("add_bos", True)),
        ("add_bos=False", ("add_bos", False)),
        ("peft=./adapter=1", ("peft", "./adapter=1")),
        ("subfolder=2024", ("subfolder", "2024")),
        ("device_map=auto", ("device_map", "auto")),
        ('device_map={"": 0}', ("device_map", {"": 0})),
        ('quantization_config={"load_in_4bit": true}', ("quantization_config", {"load_in_4bit": True})),
        (" tokenizer = gpt2 ", ("tokenizer", "gpt2")),
        ("attn_implementation=eager", ("attn_implementation", "eager")),
    ],
)
def test_parse_model_arg(text: str, expected: tuple[str, object]) -> None:
    assert parse_model_arg(text) == (*expected, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_length", "expected key=value"),
        ("=3", "expected key=value"),
        ("max_lenght=3", "did you mean max_length?"),
        ("lunch.n_batch=3", "did you mean launch.n_batch?"),
        ("launch.--n_batch=3", "'launch.--n_batch': expected launch. and a setting of the server"),
        ("launch.hf_repo=org/name", "launch.hf_repo: the session decides this itself"),
        ("zzz=3", "known are peft, quantization_config"),
        ("max_length=long", "a whole number"),
        ("max_length=0", "a whole number"),
        ("max_length=true", "a whole number"),
        ("max_length=NaN", "a whole number"),
        ("add_bos=1", "true or false"),
        ("quantization_config=4bit", "a JSON mapping"),
        ("quantization_config={load: 4}", "not valid JSON"),
        ("peft=", "a text"),
    ],
)
def test_parse_model_arg_refuses(text: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_model_arg(text)
    assert words in one_line_of(caught.value)


@pytest.mark.parametrize("device", [None, "auto", "cpu", "cuda", "cuda:3", "mps"])
def test_devices(device: str | None) -> None:
    check_device(ModelSettings(device=device))


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("gpu", "expected cpu, cuda, cuda:N or mps"),
        ("CUDA", "did you mean cuda?"),
        ("cuda:x", "did you mean cuda:0?"),
    ],
)
def test_a_device_that_no_machine_has(device: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_device(ModelSettings(device=device))
    assert words in one_line_of(caught.value)


def test_every_model_arg_says_what_it_is() -> None:
    assert all(MODEL_ARGS.values())
