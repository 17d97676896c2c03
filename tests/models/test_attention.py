"""Which attention a config describes: the rule that decides whether the tree may be used, and with which masks."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmeval.models.huggingface.checkpoint import AttentionWindow, attention_of, tells_layers


def test_full_attention() -> None:
    for model_type in ("gpt2", "llama", "opt", "phi", "gpt_neox", "mixtral"):
        attention = attention_of({"model_type": model_type})
        assert (attention.kind, attention.window, attention.layer_types) == ("full", None, ())


def test_full_attention_of_a_model_that_takes_a_mapping() -> None:
    attention = attention_of({"model_type": "qwen3", "layer_types": ["full_attention"] * 4, "sliding_window": 4096})
    assert (attention.kind, attention.window, attention.layer_types) == ("full", None, ("full_attention",))


def test_windows_in_all_layers() -> None:
    attention = attention_of({"model_type": "mistral", "sliding_window": 4096})
    assert (attention.kind, attention.window, attention.layer_types) == (
        "windowed",
        AttentionWindow("sliding", 4096),
        (),
    )
    assert "4096" in attention.reason
    assert attention_of({"model_type": "mistral", "sliding_window": None}).kind == "full"


def test_windows_in_some_layers() -> None:
    layers = ["sliding_attention", "sliding_attention", "full_attention"]
    attention = attention_of({"model_type": "gemma3_text", "layer_types": layers, "sliding_window": 512})
    assert attention.kind == "windowed"
    assert attention.window == AttentionWindow("sliding", 512)
    assert attention.layer_types == ("sliding_attention", "full_attention")


def test_chunks() -> None:
    layers = ["chunked_attention", "full_attention"]
    attention = attention_of({"model_type": "llama4_text", "layer_types": layers, "attention_chunk_size": 8192})
    assert attention.window == AttentionWindow("chunked", 8192)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "bloom"}, "ALiBi"),
        ({"model_type": "falcon", "alibi": True}, "ALiBi"),
        ({"model_type": "mpt"}, "ALiBi"),
        ({"model_type": "gpt_neo"}, "local attention"),
        ({"model_type": "mamba"}, "recurrent"),
        ({"model_type": "falcon_h1"}, "hybrid"),
        ({"model_type": "qwen3_next"}, "linear"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "both directions"),
        ({"model_type": "brand_new"}, "brand_new has not been checked"),
        ({"model_type": "gemma2"}, "kinds of its layers"),
        ({"model_type": "gemma2", "layer_types": ["sliding_attention"]}, "size"),
        ({"model_type": "gemma2", "layer_types": ["linear_attention"]}, "linear_attention"),
        ({"model_type": "mixtral", "layer_types": ["sliding_attention", "full_attention"]}, "several kinds"),
        (
            {
                "model_type": "gemma2",
                "layer_types": ["sliding_attention", "chunked_attention"],
                "sliding_window": 8,
                "attention_chunk_size": 8,
            },
            "size",
        ),
        ({}, "has not been checked"),
    ],
)
def test_what_the_tree_is_not_for(config: dict[str, Any], word: str) -> None:
    attention = attention_of(config)
    assert attention.kind == "other"
    assert word in attention.reason


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(
    ("rotary", "config", "switch"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, {"max_position_embeddings": 2048}, 2048),
        ({"type": "longrope"}, {"original_max_position_embeddings": 4096, "max_position_embeddings": 131072}, 4096),
        ({"rope_type": "longrope", "original_max_position_embeddings": 30}, {"max_position_embeddings": 256}, 30),
        ({"full_attention": {"rope_type": "dynamic"}}, {"max_position_embeddings": 100}, 100),
        ({"rope_type": "linear", "factor": 2.0}, {"max_position_embeddings": 2048}, None),
        ({"rope_type": "yarn", "factor": 2.0}, {"max_position_embeddings": 2048}, None),
        ({"rope_type": "default"}, {"max_position_embeddings": 2048}, None),
    ],
)
def test_rotary_angles_that_follow_the_length(
    key: str, rotary: dict[str, Any], config: dict[str, Any], switch: int | None
) -> None:
    attention = attention_of({"model_type": "llama", key: rotary, **config})
    assert (attention.kind, attention.max_positions) == ("full", switch)


def test_a_switch_of_a_model_that_is_scored_plain() -> None:
    """Its texts must not be padded beside longer ones either."""
    config = {"model_type": "phimoe", "rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}
    attention = attention_of(config)
    assert (attention.kind, attention.max_positions) == ("other", 4096)
    assert "phimoe" in attention.reason


def test_what_a_published_config_leaves_out_is_not_known() -> None:
    assert not tells_layers({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 131072})
    assert not tells_layers({"model_type": "mistral"})
    assert tells_layers({"model_type": "mistral", "sliding_window": None})
    assert tells_layers({"model_type": "gemma2", "layer_types": ["full_attention"]})
    assert tells_layers({"model_type": "gpt2"})


def test_a_switch_that_nobody_tells() -> None:
    assert attention_of({"model_type": "llama", "rope_scaling": {"rope_type": "dynamic"}}).kind == "other"
