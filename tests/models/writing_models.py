"""Tiny models of several architectures that write texts, and what they write one request at a time."""

from __future__ import annotations

import functools
from typing import Any

from transformers import GPTJForCausalLM

from pytest_llmeval.models.huggingface.generation import RowsWriter
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse
from tests.models.architectures_for_tests import ARCHITECTURES, make_random

__all__ = [
    "CONFIGS",
    "HEADER",
    "IN_LOOP",
    "OTHER_HEADER",
    "QUESTIONS",
    "SHARING",
    "alone",
    "build",
    "rows_writer",
    "texts",
]

HEADER = "Question: is the quick brown fox 7?\nAnswer: no.\n\nQuestion: 1 + 2?\nAnswer: 3.\n\n"
OTHER_HEADER = "The capital of France is Paris, of Italy Rome; def add(a, b): the lazy dog jumps.\n\n"
QUESTIONS = ["A", "The capital of France is", "is that so?", "One, two, three, four, five, six; the quick", "B?"]

_NAMED_SO = ("gpt2", "llama", "qwen2", "gptj", "deepseek_v3", "mamba", "bloom")
_NAMES = {"mistral": "mistral_window_8", "gemma3_text": "gemma3_window_8", "llama4_text": "llama4_chunk_8"}
"""What ``ARCHITECTURES`` calls the others: their layers read windows or chunks of 8 tokens."""
_LONG_ROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0, 3.0, 2.0, 1.5],
    "original_max_position_embeddings": 96,
}
CONFIGS: dict[str, dict[str, Any]] = {
    **{model_type: ARCHITECTURES[_NAMES.get(model_type, model_type)][2] for model_type in (*_NAMED_SO, *_NAMES)},
    "long_rope": {**ARCHITECTURES["llama"][2], "rope_parameters": _LONG_ROPE},
}
SHARING = {"gpt2", "llama", "long_rope", "qwen2"}
if getattr(GPTJForCausalLM, "_supports_attention_backend", False):  # since transformers 5.24
    SHARING.add("gptj")
IN_LOOP = {*SHARING, "mistral", "gemma3_text", "llama4_text", "gptj", "deepseek_v3"}


@functools.cache
def build(model_type: str, batch_size: int | None = None, **config_settings: Any) -> HuggingFaceModel:
    """A model of the architecture, with wide random weights: ``gpt2``, or ``mistral`` with windows of 8, and so on."""
    config = {**CONFIGS[model_type], **config_settings}
    kind = "llama" if model_type == "long_rope" else model_type
    return make_random(model_type, kind, config, ModelSettings(device="cpu", batch_size=batch_size))


def texts(model: HuggingFaceModel, requests: list[GenerateRequest]) -> list[str]:
    """What is written; fails on an error."""
    found = []
    for response in model.generate(requests):
        assert isinstance(response, GenerateResponse), response
        found.append(response.text)
    return found


def alone(model: HuggingFaceModel, requests: list[GenerateRequest]) -> list[str]:
    """What is written when each request is a call of its own, without what an earlier call may have kept."""
    found = []
    for request in requests:
        if (writer := model.text_engine.rows_writer) is not None:
            writer.forget()
        found += texts(model, [request])
    return found


def rows_writer(model: HuggingFaceModel) -> RowsWriter:
    """The model's own loop."""
    writer = model.text_engine.rows_writer
    assert writer is not None
    return writer
