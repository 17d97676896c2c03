"""Which attention a model has, read from its config: what can be computed as a tree of tokens, and with which masks.

Pure: a config is a mapping, as in a checkpoint's ``config.json``. Only architectures that were compared with plain
scoring are known here; for everything else the answer is ``other``, which is always right and never fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = ["Attention", "AttentionWindow", "attention_of", "tells_layers"]

_ONE_MASK = """
biogpt codegen cohere deepseek_v3 falcon gemma gpt2 gpt_bigcode gpt_neox gptj granite granitemoe llama mistral
mixtral olmo olmo2 olmoe opt phi phi3 qwen3_moe stablelm starcoder2 xglm
"""
"""``model_type`` of models whose layers all read the one mask that the model is given."""

_MASK_PER_LAYER_TYPE = """
cohere2 gemma2 gemma3_text gpt_oss llama4_text ministral olmo3 qwen2 qwen2_moe qwen3 smollm3
"""
"""``model_type`` of models that take a mapping from layer type to mask."""

_WINDOWED_BY_DEFAULT = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})

_REASONS: Mapping[str, str] = {
    "ALiBi positions": "bloom mpt",
    "local attention that ignores the tree's mask": "gpt_neo",
    "recurrent layers": "falcon_mamba mamba mamba2 recurrent_gemma rwkv xlstm",
    "hybrid layers": "bamba falcon_h1 granitemoehybrid jamba lfm2 nemotron_h zamba zamba2",
    "linear attention": "qwen3_next",
}
_NOT_AS_A_TREE = {model_type: reason for reason, names in _REASONS.items() for model_type in names.split()}
"""Why a tree of tokens is not computed for models of these ``model_type``s."""

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
_GROWING_ROTARY = frozenset({"dynamic", "longrope", "su"})


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """The number of tokens that a layer reads back.

    ``sliding``: key position > query position - ``size``. ``chunked``: both lie in the same block of
    ``size`` positions.
    """

    kind: Literal["sliding", "chunked"]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Facts about a model's attention.

    ``full``: every layer reads all earlier positions. ``windowed``: some layers read a window of them. ``other``:
    neither, or not known. ``reason`` says it in words. ``layer_types`` are the keys of the mapping of masks that the
    model takes; empty where one mask serves all layers. ``window`` is that of the layers that have one.
    ``max_positions``: beyond so many positions the rotary angles of all positions change, None where they never do.
    """

    kind: Literal["full", "windowed", "other"]
    reason: str
    layer_types: tuple[str, ...] = ()
    window: AttentionWindow | None = None
    max_positions: int | None = None


def attention_of(config: Mapping[str, Any]) -> Attention:
    """Return the attention of the model that ``config`` describes."""
    if config.get("is_encoder_decoder"):
        return _other("an encoder-decoder model")
    return _with_rotary(config, _by_layers(config))


def _by_layers(config: Mapping[str, Any]) -> Attention:
    model_type = str(config.get("model_type"))
    if model_type in _NOT_AS_A_TREE:
        return _other(_NOT_AS_A_TREE[model_type])
    if config.get("alibi"):
        return _other("ALiBi positions")
    if config.get("use_bidirectional_attention"):
        return _other("attention in both directions")
    if model_type in _ONE_MASK.split():
        return _one_mask(config)
    if model_type in _MASK_PER_LAYER_TYPE.split():
        return _mask_per_layer_type(config)
    return _other(f"{model_type} has not been checked")


def tells_layers(config: Mapping[str, Any]) -> bool:
    """Return whether a raw ``config.json`` says what kinds of layers there are.

    What a published file leaves out, transformers fills in when it loads the model.
    """
    model_type = str(config.get("model_type"))
    if model_type in _MASK_PER_LAYER_TYPE.split():
        return "layer_types" in config
    return model_type not in _WINDOWED_BY_DEFAULT or "sliding_window" in config


def _other(reason: str) -> Attention:
    return Attention(kind="other", reason=reason)


def _one_mask(config: Mapping[str, Any]) -> Attention:
    window = config.get("sliding_window")
    if config.get("use_sliding_window") is False:
        window = None
    layer_types = _layer_types(config)
    if any(kind != "full_attention" for kind in layer_types):
        return _other("layers of several kinds where the model takes one mask")
    if not isinstance(window, int):
        return Attention(kind="full", reason="full attention")
    return Attention(kind="windowed", reason=f"windows of {window} tokens", window=AttentionWindow("sliding", window))


def _layer_types(config: Mapping[str, Any]) -> list[str]:
    """Return what the config says of each layer; a file that was written by hand may say anything."""
    found = config.get("layer_types")
    return [str(kind) for kind in found] if isinstance(found, list | tuple) else []


def _mask_per_layer_type(config: Mapping[str, Any]) -> Attention:
    layer_types = tuple(dict.fromkeys(_layer_types(config)))
    if not layer_types:
        return _other("a config that does not give the kinds of its layers")
    if unknown := [kind for kind in layer_types if kind not in _LAYER_TYPES]:
        return _other(f"layers of kind {unknown[0]}")
    if layer_types == ("full_attention",):
        return Attention(kind="full", reason="full attention", layer_types=layer_types)
    kind: Literal["sliding", "chunked"] = "sliding" if "sliding_attention" in layer_types else "chunked"
    size = config.get("sliding_window" if kind == "sliding" else "attention_chunk_size")
    if not isinstance(size, int) or {"sliding_attention", "chunked_attention"} <= set(layer_types):
        return _other("windows whose size the config does not give")
    word = "windows" if kind == "sliding" else "chunks"
    reason = f"{word} of {size} tokens in {'some' if 'full_attention' in layer_types else 'all'} layers"
    return Attention(kind="windowed", reason=reason, layer_types=layer_types, window=AttentionWindow(kind, size))


def _with_rotary(config: Mapping[str, Any], attention: Attention) -> Attention:
    """Return the attention bound to calls below the switch of its rotary angles, where these depend on the longest
    position of a call.
    """
    for key in ("rope_parameters", "rope_scaling"):
        for rotary in _rotaries(config.get(key)):
            kind = str(rotary.get("rope_type", rotary.get("type", "default")))
            if kind in _GROWING_ROTARY:
                switch = (
                    rotary.get("original_max_position_embeddings")
                    or config.get("original_max_position_embeddings")
                    or config.get("max_position_embeddings")
                )
                if not isinstance(switch, int):
                    return _other(f"{kind} rotary positions whose switch the config does not give")
                reason = attention.reason
                if attention.kind != "other":
                    reason += f", up to {switch} tokens ({kind} rotary positions)"
                return replace(attention, reason=reason, max_positions=switch)
    return attention


def _rotaries(parameters: object) -> list[Mapping[str, Any]]:
    """Return one set of rotary parameters, or one for each layer type."""
    if not isinstance(parameters, Mapping):
        return []
    inner = [value for value in parameters.values() if isinstance(value, Mapping)]
    return inner or [parameters]
