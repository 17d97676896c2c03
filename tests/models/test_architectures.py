"""Many architectures on the plain path: batches give what single requests give, and what lm-eval 0.4.13 gives, whatever
the class makes of masks, windows and states.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from pytest_llmeval.models.huggingface.loading import quiet
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse
from tests.models.architectures_for_tests import make_random, tiers
from tests.models.support import naive_loglikelihood

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
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True},
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 8,
        "max_position_embeddings": 256,
        "intermediate_size": 64,
    },
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "expansion_ratio": 2, "max_seq_len": 256},
    "mixtral": {**_COMMON, "num_local_experts": 4, "sliding_window": None},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "mamba2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 8,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 1,
        "chunk_size": 4,
    },
    "falcon_mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "falcon_h1": {
        **_COMMON,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 4,
    },
    "qwen3_next": {
        **_COMMON,
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
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


@pytest.fixture(params=tiers(sorted(_CONFIGS)))
def model(request: pytest.FixtureRequest) -> HuggingFaceModel:
    """A model of the architecture, with wide random weights."""
    name = request.param
    return make_random(name, name, _CONFIGS[name], ModelSettings(device="cpu", engine="plain"))


def test_loglikelihoods(model: HuggingFaceModel) -> None:
    for request, response in zip(_REQUESTS, model.loglikelihood(_REQUESTS), strict=True):
        pair = model._encoder.pair(request.context, request.continuation)
        with quiet():
            expected, _ = naive_loglikelihood(model, pair.context, pair.continuation)
        assert isinstance(response, LoglikelihoodResponse)
        assert response.loglikelihood == pytest.approx(expected, abs=1e-5)


@pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'"
)
@pytest.mark.filterwarnings("default")  # lm-eval's own and its libraries'
def test_loglikelihoods_are_those_of_lm_eval(model: HuggingFaceModel) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    contexts = ["The capital of France is", "Q: x\nA: ", "a b c d e f g h i j k l m n o p q r s t", "", "é\u4e16 " * 6]
    pairs = [(context, continuation) for context in contexts for continuation in (" Paris", " yes, it is", " A", "B")]
    theirs = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=1)  # so that nothing is padded
    expected = theirs.loglikelihood(
        [Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=0) for pair in pairs], disable_tqdm=True
    )
    responses = model.loglikelihood([LoglikelihoodRequest(*pair) for pair in pairs])
    for pair, response, (loglikelihood, is_greedy) in zip(pairs, responses, expected, strict=True):
        assert isinstance(response, LoglikelihoodResponse), (pair, response)
        assert response.loglikelihood == pytest.approx(loglikelihood, abs=1e-4), pair
        assert response.is_greedy == is_greedy, pair


def test_texts(model: HuggingFaceModel) -> None:
    requests = [GenerateRequest(prompt, max_tokens=10) for prompt in _PROMPTS]
    for request, together in zip(requests, model.generate(requests), strict=True):
        (alone,) = model.generate([request])
        assert isinstance(alone, GenerateResponse)
        assert isinstance(together, GenerateResponse)
        assert together.text == alone.text
