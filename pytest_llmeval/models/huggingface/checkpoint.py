"""Reads what a checkpoint folder says without torch: its files, and the attention that its config describes.

Weights, config and tokenizer files have the names that transformers gives them. A safetensors file is 8 bytes (the
length of its header, little-endian), a JSON header with ``data_offsets`` of every tensor, and the tensors' bytes.

A sentence-embedding model is a chain of modules (a transformer, pooling, …). ``modules.json`` names them, each with its
class and its folder, which for the first module is often the model's own.

The attention decides whether a model can be computed as a tree of tokens, and with which masks. Only architectures that
were compared with plain scoring are known; for everything else the answer is ``other``, which is always right and never
fast.
"""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pytest_llmeval.models.encoding import shows_tools
from pytest_llmeval.text.redaction import model_error, one_line
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

__all__ = [
    "UNUSED",
    "Attention",
    "AttentionWindow",
    "attention_of",
    "check_adapter",
    "check_checkpoint",
    "check_embedder",
    "check_library",
    "deciding_files",
    "read_config",
    "tells_layers",
    "tokenizer_files",
    "weight_files",
]


CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
ALLOW_PICKLE = "convert them to safetensors, or trust them with --llm-allow-pickle"

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler", "trainer")
_VOCABULARIES = """
tokenizer.json tokenizer.model tekken.json vocab.json vocab.txt spiece.model sentencepiece.bpe.model sentencepiece.model
"""
_TOKENIZER_EXTRAS = """
tokenizer_config.json special_tokens_map.json added_tokens.json merges.txt chat_template.jinja chat_template.json
"""
_AUTO_CLASSES = frozenset({"AutoConfig", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"})
_NO_VOCABULARY_NEEDED = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
_LARGEST_HEADER = 100_000_000
"""The most bytes of a header; safetensors itself refuses longer ones."""


_TOKENIZER_CONFIG = "tokenizer_config.json"


def check_checkpoint(
    name: str, folder: Path, *, allow_pickle: bool, trust_remote_code: bool, needs_tokenizer: bool = True
) -> None:
    """Raise ``ModelError`` unless ``folder`` looks like a causal model that can be loaded under these settings.

    ``name`` is how the user named the model; ``needs_tokenizer`` is false where the tokenizer comes from elsewhere.
    """
    _check_folder(name, folder)
    config = read_config(name, folder)
    _check_architecture(name, folder, config, trust_remote_code=trust_remote_code)
    if needs_tokenizer:
        check_tokenizer(name, folder)
    check_weights(name, folder, allow_pickle=allow_pickle)


def _check_folder(name: str, folder: Path) -> None:
    if not folder.exists():
        raise model_error(name, f"there is no folder {folder}")
    if not folder.is_dir():
        hint = f"; llama.cpp runs it: --llm-model llama-cpp:{name}" if folder.suffix.lower() == ".gguf" else ""
        raise model_error(name, f"{folder} is a file; --llm-model takes the folder that holds {CONFIG}{hint}")
    if (folder / CONFIG).exists():
        return
    if (folder / ADAPTER_CONFIG).exists():
        base = _base_of_adapter(folder) or "BASE"
        raise model_error(
            name, f"{folder} holds a PEFT adapter and no {CONFIG}; use --llm-model {base} --llm-model-arg peft={folder}"
        )
    raise model_error(name, f"{folder} has no {CONFIG}; it holds {_listing(folder)}{_nested_hint(folder)}")


def _base_of_adapter(folder: Path) -> str | None:
    try:
        base = json.loads((folder / ADAPTER_CONFIG).read_text("utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        return None
    return one_line(base) if isinstance(base, str) and base else None


def _listing(folder: Path, limit: int = 8) -> str:
    names = sorted(p.name + "/" * p.is_dir() for p in folder.iterdir())
    if not names:
        return "nothing"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return one_line(", ".join(names[:limit]) + more)


def _nested_hint(folder: Path) -> str:
    nested = sorted(p.parent for p in folder.glob(f"*/{CONFIG}"))
    return f"; did you mean {nested[-1]}?" if nested else ""


def read_config(name: str, folder: Path) -> dict[str, JSON]:
    """Return ``config.json`` as a mapping; ``ModelError`` where it cannot be read or is not a JSON mapping."""
    path = folder / CONFIG
    config = _read_json(name, path)
    if not isinstance(config, dict):
        raise model_error(name, f"{path} should contain a JSON mapping, but contains a {type(config).__name__}")
    return config


def _read_json(name: str, path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise model_error(name, f"cannot read {path}: {one_line(str(error))}") from None
    if _is_lfs_pointer(text.encode()):
        raise model_error(name, f"{path} is a git-lfs pointer; run `git lfs pull` in its folder")
    try:
        return json.loads(text)
    except ValueError as error:
        raise model_error(name, f"{path} is not valid JSON: {one_line(str(error))}") from None


def _check_architecture(name: str, folder: Path, config: Mapping[str, JSON], *, trust_remote_code: bool) -> None:
    if trust_remote_code or _is_known(config.get("model_type")):
        return
    auto_map = config.get("auto_map")
    if isinstance(auto_map, dict) and not _AUTO_CLASSES.isdisjoint(auto_map):
        raise model_error(
            name,
            f"model_type {config.get('model_type')!r} needs Python code that comes with the checkpoint; "
            f"read it in {folder}, and allow it with --llm-trust-remote-code",
        )


def _is_known(model_type: JSON) -> bool:
    """Return whether the installed transformers has a folder for this model type; true where that cannot be known."""
    if not isinstance(model_type, str):
        return False
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return True
    models = Path(spec.submodule_search_locations[0]) / "models"
    return (models / model_type.replace("-", "_")).is_dir() or not models.is_dir()


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of ``folder`` that decide how text becomes tokens, sorted by name."""
    named = (folder / name for name in (_VOCABULARIES + _TOKENIZER_EXTRAS).split())
    return sorted({path for path in named if path.is_file()} | set(folder.glob("*.tiktoken")))


def check_tokenizer(name: str, folder: Path) -> None:
    """Raise ``ModelError`` unless ``folder`` holds a tokenizer."""
    files = tokenizer_files(folder)
    if (folder / "tokenizer.json").is_file():
        _read_json(name, folder / "tokenizer.json")
    if any(path.name in _VOCABULARIES.split() or path.suffix == ".tiktoken" for path in files):
        return
    if (folder / _TOKENIZER_CONFIG).is_file():
        config = _read_json(name, folder / _TOKENIZER_CONFIG)
        if isinstance(config, dict) and (
            config.get("tokenizer_class") in _NO_VOCABULARY_NEEDED or "auto_map" in config
        ):
            return
    raise model_error(
        name,
        f"{folder} has no tokenizer (tokenizer.json, tokenizer.model, vocab.json, …); "
        "save it there, or name another with --llm-model-arg tokenizer=ID_OR_FOLDER",
    )


def has_tools(name: str, folder: Path) -> bool:
    """Tell whether the chat template of a folder shows a model the tools that it may call."""
    templates = [*folder.glob("*.jinja"), *folder.glob("additional_chat_templates/*.jinja")]
    templates += [path for file in ("chat_template.json", _TOKENIZER_CONFIG) if (path := folder / file).is_file()]
    for path in templates:
        if path.suffix == ".jinja":
            try:
                found: object = path.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                return True  # the tokenizer says what is wrong with it when it is loaded
        else:
            config = _read_json(name, path)
            found = config.get("chat_template") if isinstance(config, dict) else None
        if shows_tools(found):
            return True
    return False


def weight_files(folder: Path, *, allow_pickle: bool = False) -> list[Path]:
    """Return the files that transformers loads weights from, in its order of preference; [] where there are none."""
    for single, index in ((SAFETENSORS, SAFETENSORS_INDEX), (PICKLE, PICKLE_INDEX)):
        if single == PICKLE and not allow_pickle:
            continue
        if (folder / single).exists():
            return [folder / single]
        if (folder / index).exists():
            return [folder / shard for shard in _shards(str(folder), folder / index)]
    return []


def _shards(name: str, index: Path) -> list[str]:
    content = _read_json(name, index)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise model_error(name, f"{index} has no weight_map")
    return sorted({str(shard) for shard in weight_map.values()})


def check_weights(name: str, folder: Path, *, allow_pickle: bool) -> None:
    """Raise ``ModelError`` unless the weights of ``folder`` are there and whole."""
    files = weight_files(folder, allow_pickle=allow_pickle)
    if not files:
        raise model_error(name, f"{_no_weights(folder)}")
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise model_error(
            name,
            f"{len(missing)} of {len(files)} weight files named by the index in {folder} are missing, "
            f"the first is {missing[0]}",
        )
    for path in files:
        if path.suffix == ".safetensors":
            check_safetensors(name, path)


def _no_weights(folder: Path) -> str:
    pickles = sorted(
        p.name
        for p in folder.iterdir()
        if p.suffix in _PICKLE_SUFFIXES and not p.name.startswith(_NOT_WEIGHTS) and p.is_file()
    )
    others = sorted(p.name for p in folder.glob("*.safetensors")) + sorted(p.name for p in folder.glob("*.gguf"))
    if (folder / PICKLE).exists() or (folder / PICKLE_INDEX).exists():
        return f"the weights in {folder} are pickles ({pickles[0]}), which can run code; {ALLOW_PICKLE}"
    if pickles and not others:
        return (
            f"{folder} has weights only as {pickles[0]}, but {SAFETENSORS} is needed; save the model with transformers"
        )
    if others:
        return f"{folder} has {others[0]}, and {SAFETENSORS} is needed"
    return f"{folder} has no weights ({SAFETENSORS}); it holds {_listing(folder)}"


def check_safetensors(name: str, path: Path) -> None:
    """Raise ``ModelError`` unless the header of a safetensors file is sound and its size what the header says."""
    problem = _safetensors_problem(path)
    if problem is not None:
        raise model_error(name, f"{path} {problem}")


def _safetensors_problem(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if _is_lfs_pointer(start):
            return "is a git-lfs pointer, not weights; run `git lfs pull` in its folder"
        if len(start) < 8:
            return f"is not a safetensors file: it is {size} bytes long; download or save it again"
        (header_length,) = struct.unpack("<Q", start)
        if header_length > _LARGEST_HEADER:
            return "is not a safetensors file; download or save it again"
        if 8 + header_length > size:
            return f"is truncated: its header alone needs {8 + header_length} bytes, and the file has {size}"
        raw_header = file.read(header_length)
    try:
        header = json.loads(raw_header)
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        expected = 8 + header_length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return "has a broken safetensors header; download or save it again"
    if size < expected:
        return f"is truncated: {size} bytes of {expected}; download it again"
    if size > expected:
        return f"is longer than its header says: {size} bytes instead of {expected}; download or save it again"
    return None


def _is_lfs_pointer(start: bytes) -> bool:
    return start.startswith(b"version ")


def check_adapter(name: str, folder: Path, *, allow_pickle: bool) -> None:
    """Raise ``ModelError`` unless ``folder`` holds a PEFT adapter with weights that may be loaded."""
    if not folder.is_dir():
        raise model_error(name, f"--llm-model-arg peft={folder}: there is no such folder")
    if not (folder / ADAPTER_CONFIG).is_file():
        raise model_error(
            name, f"--llm-model-arg peft={folder}: no {ADAPTER_CONFIG} there; it holds {_listing(folder)}"
        )
    _read_json(name, folder / ADAPTER_CONFIG)
    if (folder / "adapter_model.safetensors").exists():
        check_safetensors(name, folder / "adapter_model.safetensors")
    elif not (folder / "adapter_model.bin").exists():
        raise model_error(name, f"{folder} has no adapter_model.safetensors; it holds {_listing(folder)}")
    elif not allow_pickle:
        raise model_error(name, f"the adapter in {folder} is a pickle, which can run code; {ALLOW_PICKLE}")


UNUSED = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.md", "*.png")
"""Files that are not downloaded: the same weights for other libraries, and texts for people."""

_MODULES = "modules.json"
_OURS = "sentence_transformers."
_WEIGHTS = (".safetensors", ".bin")
_DECIDING = (*_WEIGHTS, ".json", ".txt", ".model", ".py")
_CONFIGS = (_MODULES, "config.json", "config_sentence_transformers.json", "preprocessor_config.json")


def check_library(name: str) -> None:
    """Raise ``ModelError`` where the library that runs such models is not installed."""
    if importlib.util.find_spec("sentence_transformers") is None:
        raise model_error(
            name, "needs the package sentence-transformers: pip install 'pytest-llmeval-suites[embeddings]'"
        )


def check_embedder(name: str, folder: Path, *, allow_pickle: bool, trust_remote_code: bool) -> None:
    """Raise ``ModelError`` unless ``folder`` holds a sentence-embedding model that may be loaded."""
    if not folder.is_dir():
        raise model_error(name, f"there is no folder {folder}")
    for kind, part in _modules(name, folder):
        if not kind.startswith(_OURS) and not trust_remote_code:
            raise model_error(
                name,
                f"{one_line(kind)} is Python code that comes with the model; read it in {folder}, and allow it with "
                "--llm-trust-remote-code",
            )
        pickles = sorted(path.name for path in part.glob("*.bin"))
        if pickles and not any(part.glob("*.safetensors")) and not allow_pickle:
            raise model_error(
                name, f"the weights in {part} are pickles ({pickles[0]}), which can run code; {ALLOW_PICKLE}"
            )


def deciding_files(name: str, folder: Path) -> list[tuple[str, Path]]:
    """Return the files that decide the embeddings, each with its path in the folder; those of no other copy or
    library.
    """
    found = {folder / config for config in _CONFIGS} | {*folder.glob("sentence_*_config.json"), *folder.glob("*.py")}
    found |= {*weight_files(folder, allow_pickle=True), *tokenizer_files(folder)}
    for _, part in _modules(name, folder):
        if part != folder:
            found |= {path for path in part.rglob("*") if path.suffix in _DECIDING}
    return sorted((path.relative_to(folder).as_posix(), path) for path in found if path.is_file())


def _modules(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Return the class and the folder of each module."""
    path = folder / _MODULES
    try:
        modules = json.loads(path.read_text("utf-8"))
        found = [(str(module["type"]), Path(str(module["path"]))) for module in modules]
    except FileNotFoundError:
        raise model_error(name, f"{folder} is no sentence-embedding model: it has no {_MODULES}") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise model_error(name, f"cannot read {path}: {type(error).__name__}: {one_line(str(error))}") from None
    for kind, part in found:
        if part.is_absolute() or ".." in part.parts:
            raise model_error(name, f"{path}: the path {quoted(str(part))} leads out of the model's folder")
        yield kind, folder / part


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
"""Reasons why a tree of tokens is not computed, by ``model_type``."""

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
    model takes; empty if one mask serves all layers. ``window`` is that of the layers that have one.
    ``max_positions``: beyond so many positions the rotary angles of all positions change, None if they never do.
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

    Keys that a published file leaves out are filled in by transformers when it loads the model.
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
