"""Many architectures: batches give what single requests give, whatever the class makes of masks, windows and states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_llmeval.models.huggingface import HuggingFaceModel
from pytest_llmeval.models.huggingface_load import LoadedCheckpoint, quiet
from pytest_llmeval.models.registry import ModelSpec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse
from tests.models.support import naive_loglikelihood
from tests.tiny_models import make_tokenizer

pytestmark = pytest.mark.heavy

_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_WINDOWS = {"head_dim": 8, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {**_COMMON, "head_dim": 8},
    "mistral": {**_COMMON, "sliding_window": 8},
    "gemma2": {**_COMMON, "head_dim": 8, "sliding_window": 8},
    "gemma3_text": {**_COMMON, **_WINDOWS},
    "phi": {**_COMMON, "num_key_value_heads": 4},
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "word_embed_proj_dim": 32,
    },
    "gpt_neox": {k: v for k, v in _COMMON.items() if k != "num_key_value_heads"},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "expansion_ratio": 2, "max_seq_len": 256},
    "mixtral": {**_COMMON, "num_local_experts": 4, "sliding_window": None},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "recurrent_gemma": {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "lru_width": 32,
        "attention_window_size": 64,
    },
    "lfm2": {**_COMMON, "layer_types": ["conv", "full_attention"]},
}
_REQUESTS = [
    LoglikelihoodRequest("The capital of France is", " Paris"),
    LoglikelihoodRequest("Q: x\nA:", " yes"),
    LoglikelihoodRequest("Q: x\nA:", " no, it is not"),
    LoglikelihoodRequest("a b c d e f g h i j k l", " m"),
    LoglikelihoodRequest("", "Q"),
]
_PROMPTS = ["The capital of France is", "A", "Question: is that so?\nAnswer:"]


@pytest.fixture(params=sorted(_CONFIGS))
def model(request: pytest.FixtureRequest) -> HuggingFaceModel:
    """A model of the architecture, with wide random weights."""
    import transformers

    tokenizer = make_tokenizer()
    settings = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    settings |= {"bos_token_id": None, **_CONFIGS[request.param]}
    config: Any = transformers.AutoConfig.for_model(request.param, **settings)
    auto: Any = transformers.AutoModelForCausalLM
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = auto.from_config(config).eval()
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.data.normal_(0, 0.25)
    loaded = LoadedCheckpoint(
        model=module,
        tokenizer=tokenizer,
        folder=Path(),
        tokenizer_folder=Path(),
        adapter_folder=None,
        revision=None,
    )
    spec = ModelSpec(name=request.param, kind="folder", location=".")
    return HuggingFaceModel(spec, ModelSettings(device="cpu"), loaded)


def test_loglikelihoods(model: HuggingFaceModel) -> None:
    for request, response in zip(_REQUESTS, model.loglikelihood(_REQUESTS), strict=True):
        pair = model._encoder.pair(request.context, request.continuation)
        with quiet():
            expected, _ = naive_loglikelihood(model, pair.context, pair.continuation)
        assert isinstance(response, LoglikelihoodResponse)
        assert response.loglikelihood == pytest.approx(expected, abs=1e-5)


def test_texts(model: HuggingFaceModel) -> None:
    requests = [GenerateRequest(prompt, max_tokens=10) for prompt in _PROMPTS]
    for request, together in zip(requests, model.generate(requests), strict=True):
        (alone,) = model.generate([request])
        assert isinstance(alone, GenerateResponse)
        assert isinstance(together, GenerateResponse)
        assert together.text == alone.text
