"""Freshly initialised small models of many architectures, with weights wide enough that a wrong mask shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from pytest_llmeval.models.huggingface.kind import Folder
from pytest_llmeval.models.huggingface.loading import LoadedCheckpoint, quiet
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from tests.tiny_models import make_tokenizer

__all__ = ["ARCHITECTURES", "make_model", "make_random", "tiers"]

_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_ALL_HEADS = {**_COMMON, "num_key_value_heads": 4}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
_OPT = {
    "hidden_size": 32,
    "ffn_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "word_embed_proj_dim": 32,
}
_MIXED = {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

ARCHITECTURES: MappingProxyType[str, tuple[str, str, dict[str, Any]]] = MappingProxyType(
    {
        # name: (model_type, the engine that is right for it, settings)
        "gpt2": ("gpt2", "tree", _GPT),
        "llama": ("llama", "tree", _COMMON),
        "qwen2": ("qwen2", "tree", _COMMON),
        "qwen2_window_8": (
            "qwen2",
            "tree",
            {**_COMMON, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        ),
        "qwen3": ("qwen3", "tree", {**_COMMON, "head_dim": 8}),
        "gemma": ("gemma", "tree", {**_COMMON, "head_dim": 8}),
        "gemma2_window_8": ("gemma2", "tree", {**_COMMON, "head_dim": 8, "sliding_window": 8}),
        "gemma2_window_200": ("gemma2", "tree", {**_COMMON, "head_dim": 8, "sliding_window": 200}),
        "gemma3_window_8": ("gemma3_text", "tree", {**_COMMON, **_MIXED, "sliding_window": 8}),
        "gemma3_window_200": ("gemma3_text", "tree", {**_COMMON, **_MIXED, "sliding_window": 200}),
        "mistral_window_8": ("mistral", "tree", {**_COMMON, "sliding_window": 8}),
        "mistral_window_200": ("mistral", "tree", {**_COMMON, "sliding_window": 200}),
        "mistral": ("mistral", "tree", {**_COMMON, "sliding_window": None}),
        "cohere2_window_8": (
            "cohere2",
            "tree",
            {**_COMMON, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
        ),
        "olmo3_window_8": ("olmo3", "tree", {**_COMMON, "sliding_window": 8}),
        "gpt_oss_window_8": (
            "gpt_oss",
            "tree",
            {**_COMMON, **_MIXED, "num_local_experts": 4, "sliding_window": 8},
        ),
        "llama4_chunk_8": (
            "llama4_text",
            "tree",
            {
                **_COMMON,
                "head_dim": 8,
                "intermediate_size_mlp": 64,
                "num_local_experts": 2,
                "attention_chunk_size": 8,
                "no_rope_layers": [1, 0],
                "moe_layers": [],
            },
        ),
        "phi": ("phi", "tree", _ALL_HEADS),
        "phi3": ("phi3", "tree", _COMMON),
        "opt": ("opt", "tree", _OPT),
        "gpt_neox": ("gpt_neox", "tree", {k: v for k, v in _COMMON.items() if k != "num_key_value_heads"}),
        "gptj": ("gptj", "tree", {**_GPT, "rotary_dim": 4}),
        "falcon": (
            "falcon",
            "tree",
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": False},
        ),
        "olmo2": ("olmo2", "tree", _COMMON),
        "granite": ("granite", "tree", {**_COMMON, "logits_scaling": 3.0}),
        "stablelm": ("stablelm", "tree", _COMMON),
        "starcoder2": ("starcoder2", "tree", {**_COMMON, "sliding_window": None}),
        "mixtral": ("mixtral", "tree", {**_COMMON, "num_local_experts": 4, "sliding_window": None}),
        "qwen3_moe": ("qwen3_moe", "tree", {**_COMMON, **_EXPERTS, "head_dim": 8}),
        "qwen2_moe": ("qwen2_moe", "tree", {**_COMMON, **_EXPERTS, "shared_expert_intermediate_size": 32}),
        "olmoe": ("olmoe", "tree", {**_COMMON, "num_experts": 4, "num_experts_per_tok": 2}),
        "deepseek_v3": (
            "deepseek_v3",
            "tree",
            {
                **_ALL_HEADS,
                "q_lora_rank": 16,
                "kv_lora_rank": 16,
                "qk_rope_head_dim": 8,
                "v_head_dim": 8,
                "qk_nope_head_dim": 8,
                "n_routed_experts": 4,
                "n_group": 1,
                "topk_group": 1,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "first_k_dense_replace": 1,
                "n_shared_experts": 1,
            },
        ),
        "llama_dynamic": (
            "llama",
            "tree",
            {
                **_COMMON,
                "max_position_embeddings": 60,
                "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
            },
        ),
        "phi3_longrope": (
            "phi3",
            "tree",
            {
                **_COMMON,
                "original_max_position_embeddings": 60,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 10000.0,
                    "short_factor": [1.0] * 4,
                    "long_factor": [4.0] * 4,
                    "original_max_position_embeddings": 60,
                },
            },
        ),
        "bloom": ("bloom", "plain", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
        "falcon_alibi": (
            "falcon",
            "plain",
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True},
        ),
        "mpt": ("mpt", "plain", {"d_model": 32, "n_layers": 2, "n_heads": 4, "expansion_ratio": 2, "max_seq_len": 256}),
        "gpt_neo": (
            "gpt_neo",
            "plain",
            {
                "hidden_size": 32,
                "num_layers": 2,
                "num_heads": 4,
                "attention_types": [[["global", "local"], 1]],
                "window_size": 8,
                "max_position_embeddings": 256,
                "intermediate_size": 64,
            },
        ),
        "mamba": ("mamba", "plain", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
        "falcon_h1": (
            "falcon_h1",
            "plain",
            {
                **_COMMON,
                "mamba_d_ssm": 32,
                "mamba_n_heads": 4,
                "mamba_d_head": 8,
                "mamba_d_state": 8,
                "mamba_n_groups": 1,
            },
        ),
        "recurrent_gemma": (
            "recurrent_gemma",
            "plain",
            {
                "hidden_size": 32,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "intermediate_size": 96,
                "lru_width": 32,
                "attention_window_size": 64,
            },
        ),
    }
)


_DEFAULT_TIER = frozenset(
    {
        "gpt2",  # learned positions
        "llama",  # rotary positions, fewer heads of keys than of queries
        *("qwen3", "opt"),  # as those two, in tests that name them by model_type
        *("gemma3_window_8", "gemma3_text"),  # sliding windows beside full attention, soft-capped
        "llama4_chunk_8",  # chunks
        "deepseek_v3",  # latent keys and values, experts
        "bloom",  # ALiBi
        "mamba",  # no attention but a state
    }
)
"""One for each kind of attention."""


def tiers(names: Iterable[str]) -> list[Any]:
    """Parameters of a test, one for each architecture: one of each kind of attention in the default tier, else slow."""
    return [pytest.param(name, marks=() if name in _DEFAULT_TIER else pytest.mark.slow) for name in names]


def make_random(
    name: str, model_type: str, config_settings: Mapping[str, Any], settings: ModelSettings
) -> HuggingFaceModel:
    """A model that is called ``name``, with wide random weights, and with the tokenizer of the small checkpoints."""
    import transformers

    tokenizer = make_tokenizer()
    known = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    config: Any = transformers.AutoConfig.for_model(model_type, **{**known, "bos_token_id": None, **config_settings})
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
    return HuggingFaceModel(ModelSpec(name=name, kind=Folder(), location="."), settings, loaded)


def make_model(name: str, **settings: Any) -> HuggingFaceModel:
    """The model called ``name`` in ``ARCHITECTURES``; ``settings`` are ``ModelSettings``."""
    model_type, _, config_settings = ARCHITECTURES[name]
    given = ModelSettings(**{"device": "cpu", "model_args": {"max_length": 256}, **settings})
    model = make_random(name, model_type, config_settings, given)
    model.check_engine()
    return model
