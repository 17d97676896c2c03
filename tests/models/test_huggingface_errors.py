"""What the hub and its library raise, said in one sentence. No network: the exceptions are made here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import errors

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.huggingface.device import is_out_of_memory
from pytest_llmeval.models.huggingface.kind import Hub
from pytest_llmeval.models.huggingface.loading import cause, explain
from pytest_llmeval.models.registry import check_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from tests.models.support import one_line_of

_SPEC = ModelSpec(name="org/name", kind=Hub(), location="org/name")


def _http(kind: type[errors.HfHubHTTPError], status: int) -> errors.HfHubHTTPError:
    url = "https://user:pa55word@hub.example/org/name?token=s3cr3tvalue"
    response: Any = SimpleNamespace(headers={}, request=None, status_code=status)  # whichever HTTP library the hub uses
    return kind(f"{status} Client Error: {url}\nline two", response=response)


def _wrapped(inner: Exception) -> OSError:
    """As transformers raises it: an ``OSError`` from the hub's own."""
    outer = OSError("Can't load it.\nSee https://user:pa55word@hub.example/?token=s3cr3tvalue")
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (_http(errors.GatedRepoError, 403), "is gated on the hub"),
        (_http(errors.RepositoryNotFoundError, 404), "no such model on the hub"),
        (_http(errors.RevisionNotFoundError, 404), "has no revision v9"),
        (errors.LocalEntryNotFoundError("nothing cached"), "not in the hub's cache at revision v9"),
        (errors.OfflineModeIsEnabled("offline"), "not in the hub's cache at revision v9"),
        (errors.HFValidationError("Repo id must be …"), "nor a valid hub id"),
        (ConnectionError("no route"), "the hub cannot be reached"),
    ],
)
def test_hub(error: Exception, words: str) -> None:
    for raised in (error, _wrapped(error)):
        message = one_line_of(explain(raised, _SPEC, ModelSettings(revision="v9")))
        assert message.startswith("model org/name: ")
        assert words in message
        assert "pa55word" not in message
        assert "s3cr3tvalue" not in message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("org/name does not appear to have a file named model.safetensors or …"), "--llm-allow-pickle"),
        (OSError("org/name does not appear to have a file named config.json."), "lacks a file"),
        (
            ValueError("custom code. Please pass the argument `trust_remote_code=True`"),
            "--llm-trust-remote-code",
        ),
        (ImportError("sentencepiece is needed\nto go on"), "needs a package that is not installed"),
        (MemoryError(), "does not fit into memory"),
        (ValueError("a puzzle\nin two lines https://user:pa55word@hub.example/"), "ValueError: a puzzle in two lines"),
    ],
)
def test_others(error: Exception, words: str) -> None:
    message = one_line_of(explain(error, _SPEC, ModelSettings()))
    assert words in message
    assert "pa55word" not in message


def test_out_of_memory() -> None:
    assert is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory."))
    assert is_out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"))
    assert is_out_of_memory(RuntimeError("MPS backend out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_cause() -> None:
    inner, other = KeyError("x"), ValueError("y")
    outer = OSError("z")
    outer.__cause__ = inner
    inner.__context__ = other
    other.__context__ = outer  # a ring ends the search
    assert cause(outer, ValueError) is other
    assert cause(outer, TypeError) is None
    assert cause(outer, OSError) is outer
    inner.__suppress_context__ = True
    assert cause(outer, ValueError) is None


@pytest.mark.parametrize(("text", "near"), [("demoo", "demo"), ("Random", "random"), ("majorty", "majority")])
def test_a_name_near_a_built_in_one_is_not_looked_for_on_the_hub(
    text: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=rf"did you mean {near}\?"):
        check_model(parse_model_spec(text), ModelSettings())


@pytest.mark.parametrize("text", ["gpt2", "org/demo"])
def test_other_names_are_left_to_the_hub(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    check_model(parse_model_spec(text), ModelSettings())
