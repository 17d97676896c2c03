"""Whose seconds a response carries: its own or a share of its batch's; reading prompts and writing apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.inference.dispatch import ask
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.python.model import CallableModel
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    ModelIdentity,
)
from tests.models.support import load
from tests.tiny_models import make_checkpoint

REQUESTS = [GenerateRequest(text, max_tokens=4) for text in ("a cat", "the dog sat on", "no")]


@pytest.mark.parametrize("architecture", ["gpt2", "bloom", "t5"])
def test_reading_prompts_and_writing_are_timed_apart(architecture: str, tmp_path: Path) -> None:
    """By our own loop, by transformers' ``generate``, and with an encoder."""
    responses = ask(load(make_checkpoint(tmp_path, architecture)), REQUESTS)  # type: ignore[arg-type]
    for one in responses:
        assert isinstance(one, GenerateResponse)
        assert one.prefill_seconds is not None
        assert 0 < one.prefill_seconds < one.seconds
        assert not one.is_timed


def test_alone_in_its_batch_a_request_is_timed(gpt2_folder: Path, gpt2: HuggingFaceModel) -> None:
    pair = LoglikelihoodRequest("a cat", " and")
    for model, expected in ((gpt2, False), (load(gpt2_folder, batch_size=1), True)):
        found = ask(model, [pair, REQUESTS[0]])
        assert [one.is_timed for one in found if isinstance(one, LoglikelihoodResponse | GenerateResponse)] == [
            expected
        ] * 2


def test_the_calls_of_a_function_are_timed() -> None:
    model = CallableModel(str.upper, ModelIdentity(name="upper", backend="python"), {})
    (found,) = ask(model, REQUESTS[:1])
    assert isinstance(found, GenerateResponse)
    assert (found.is_timed, found.prefill_seconds) == (True, None)
