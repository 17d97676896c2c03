"""Loads a model of text and its tokenizer with transformers; every failure becomes one ``ModelError`` sentence."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub
import transformers
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file, extract_commit_hash

from pytest_llmeval.errors import LLMEvalError, ModelError
from pytest_llmeval.models.findings import Digests
from pytest_llmeval.models.huggingface.checkpoint import (
    ADAPTER_CONFIG,
    ALLOW_PICKLE,
    CONFIG,
    check_adapter,
    weight_files,
)
from pytest_llmeval.models.huggingface.device import is_out_of_memory, resolve_device, resolve_dtype
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.text.redaction import describe, model_error
from pytest_llmeval.types import JSON

__all__ = ["LoadedCheckpoint", "cause", "explain", "load_checkpoint", "load_tokenizer", "quiet"]

_LOG = logging.getLogger("pytest_llmeval")
_DISTRIBUTION = "pytest-llmeval-suites"
_CONVERSION = "DISABLE_SAFETENSORS_CONVERSION"


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A model ready to run. ``folder`` holds the files that it was read from; ``revision`` is the hub's commit.

    ``digests`` has the hashes of its weights, or will have them soon.
    """

    model: Any
    tokenizer: Any
    folder: Path
    tokenizer_folder: Path
    adapter_folder: Path | None
    revision: str | None
    digests: Digests = field(default_factory=Digests)


def load_checkpoint(spec: ModelSpec, settings: ModelSettings) -> LoadedCheckpoint:
    """Load what ``spec`` names. Raises ``ModelError``."""
    device = resolve_device(settings.device)
    _need_extras(spec, settings)
    try:
        with quiet():
            return _load(spec, settings, device)
    except LLMEvalError:
        raise
    except Exception as error:  # transformers, the hub, safetensors, torch: each has its own
        _LOG.debug("loading %s failed", spec.name, exc_info=error)
        raise explain(error, spec, settings) from error


def _load(spec: ModelSpec, settings: ModelSettings, device: str) -> LoadedCheckpoint:
    common: dict[str, Any] = {"revision": settings.revision or "main", "trust_remote_code": settings.trust_remote_code}
    subfolder = settings.model_args.get("subfolder")
    if subfolder:
        common["subfolder"] = subfolder
    folder = _folder_of(spec.location, CONFIG, common)
    digests = Digests(settings.findings)
    digests.begin(weight_files(folder, allow_pickle=settings.allow_pickle))  # takes as long as loading them
    commit = extract_commit_hash(str(folder / CONFIG), None) if spec.kind.name == "hub" else None
    # A branch may move between two files; and for a branch, transformers would take what a hub robot has converted.
    if commit is not None:
        common["revision"] = commit
    config = transformers.AutoConfig.from_pretrained(spec.location, **common)
    auto = _auto_class(spec, config)
    tokenizer, tokenizer_folder = _load_tokenizer(spec, settings, common)
    adapter_folder = _fetch_adapter(spec, settings)
    model = _load_weights(spec, settings, config, device, common, auto)
    if adapter_folder is not None:
        model = _with_adapter(spec, model, adapter_folder)
    return LoadedCheckpoint(
        model=model.eval(),
        tokenizer=tokenizer,
        folder=folder,
        tokenizer_folder=tokenizer_folder or folder,
        adapter_folder=adapter_folder,
        revision=commit,
        digests=digests,
    )


def _auto_class(spec: ModelSpec, config: Any) -> Any:
    """Return the class of transformers that loads what ``config`` describes."""
    if getattr(config, "is_encoder_decoder", False):
        own_code = "AutoModelForSeq2SeqLM" in (getattr(config, "auto_map", None) or {})
        if config.model_type not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES and not own_code:
            problem = f"{config.model_type} is an encoder-decoder model, but not from text to text"
            raise model_error(spec.name, f"{problem}; only text models are supported")
        return transformers.AutoModelForSeq2SeqLM
    if any(str(a).endswith("ForMaskedLM") for a in getattr(config, "architectures", None) or ()):
        problem = f"{config.model_type} is a masked language model"
        raise model_error(spec.name, f"{problem}; only causal and encoder-decoder models are supported")
    return transformers.AutoModelForCausalLM


def _load_tokenizer(spec: ModelSpec, settings: ModelSettings, common: Mapping[str, Any]) -> tuple[Any, Path | None]:
    """Return the tokenizer, and its folder where that is not the model's."""
    arguments = dict(common)
    if "add_bos" in settings.model_args:
        arguments["add_bos_token"] = settings.model_args["add_bos"]
    other = settings.model_args.get("tokenizer")
    if not isinstance(other, str):
        return _tokenizer(spec, spec.location, arguments), None
    location = str(Path(other).expanduser()) if Path(other).expanduser().is_dir() else other
    arguments.pop("subfolder", None)
    arguments["revision"] = "main"
    tokenizer = _tokenizer(spec, location, arguments)
    return tokenizer, Path(location) if Path(location).is_dir() else _folder_of(location, "tokenizer_config.json", {})


def _tokenizer(spec: ModelSpec, location: str, arguments: Mapping[str, Any]) -> Any:
    advice = "name another with --llm-model-arg tokenizer=ID_OR_FOLDER"
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(location, **arguments)
    except ImportError:
        raise
    except Exception as error:
        if needs_remote_code(error) or cause(error, hub_errors.HfHubHTTPError, hub_errors.LocalEntryNotFoundError):
            raise
        problem = f"cannot load a tokenizer from {location}; {advice} ({describe(error)})"
        raise model_error(spec.name, problem) from error
    # Where the files are missing, transformers makes an empty tokenizer and says nothing.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise model_error(spec.name, f"{location} has no tokenizer; {advice}")
    return tokenizer


def _load_weights(
    spec: ModelSpec, settings: ModelSettings, config: Any, device: str, common: Mapping[str, Any], auto: Any
) -> Any:
    arguments: dict[str, Any] = dict(common)
    quantization = settings.model_args.get("quantization_config")
    quantized = quantization is not None or getattr(config, "quantization_config", None) is not None
    arguments["dtype"] = resolve_dtype(settings.dtype, device, quantized=quantized)
    arguments["use_safetensors"] = None if settings.allow_pickle else True
    if isinstance(quantization, dict):
        arguments["quantization_config"] = _quantization_config(spec, quantization)
    device_map = settings.model_args.get("device_map", {"": device} if quantized else None)
    if device_map is not None:
        arguments["device_map"] = device_map
    if "attn_implementation" in settings.model_args:
        arguments["attn_implementation"] = settings.model_args["attn_implementation"]
    with _without_conversion():
        model, info = auto.from_pretrained(spec.location, config=config, output_loading_info=True, **arguments)
    _check_complete(spec, info)
    return model.to(device) if device_map is None else model


@contextlib.contextmanager
def _without_conversion() -> Iterator[None]:
    """Keep transformers from asking a robot on the hub to convert pickles, which it does from a thread of its own."""
    before = os.environ.get(_CONVERSION)
    os.environ[_CONVERSION] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CONVERSION]
        else:
            os.environ[_CONVERSION] = before


def _check_complete(spec: ModelSpec, info: Mapping[str, Any]) -> None:
    """Raise ``ModelError`` for weights that the checkpoint lacks: transformers only warns, and makes random numbers."""
    missing = sorted(info["missing_keys"])
    if missing:
        raise model_error(
            spec.name,
            f"the checkpoint lacks {len(missing)} of the model's weights, which would be random numbers; "
            f"the first is {missing[0]}; it may have another architecture, or saved without its head",
        )
    mismatched = sorted(str(key[0]) for key in info["mismatched_keys"])
    if mismatched:
        raise model_error(
            spec.name,
            f"{len(mismatched)} weights have another shape than config.json says, the first is {mismatched[0]}",
        )


def _quantization_config(spec: ModelSpec, mapping: Mapping[str, JSON]) -> Any:
    try:
        if "quant_method" in mapping:
            from transformers.quantizers.auto import AutoQuantizationConfig

            return AutoQuantizationConfig.from_dict(dict(mapping))
        bits_and_bytes: Any = transformers.BitsAndBytesConfig
        unknown = [key for key in mapping if key not in inspect.signature(bits_and_bytes.__init__).parameters]
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r}")
        return bits_and_bytes(**mapping)
    except (TypeError, ValueError) as error:
        raise model_error(spec.name, f"--llm-model-arg quantization_config: {describe(error)}") from None


def _fetch_adapter(spec: ModelSpec, settings: ModelSettings) -> Path | None:
    """Return the folder of the PEFT adapter that was asked for: the one that was named, or one from the hub."""
    adapter = settings.model_args.get("peft")
    if not isinstance(adapter, str):
        return None
    folder = Path(adapter).expanduser()
    if not folder.is_dir():
        files = [ADAPTER_CONFIG, "adapter_model.safetensors", *(["adapter_model.bin"] if settings.allow_pickle else [])]
        try:
            folder = Path(huggingface_hub.snapshot_download(adapter, allow_patterns=files))
        except Exception as error:
            problem = f"the adapter {adapter} is neither a folder here nor available on the hub ({describe(error)})"
            raise model_error(spec.name, problem) from error
    check_adapter(spec.name, folder, allow_pickle=settings.allow_pickle)
    return folder


def _with_adapter(spec: ModelSpec, model: Any, adapter: Path) -> Any:
    """Return the model with a PEFT adapter's layers in it; the adapter is not merged into the weights."""
    import peft

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapted = peft.PeftModel.from_pretrained(model, str(adapter), torch_device=str(model.device))
    missing = next((str(w.message) for w in caught if "missing adapter keys" in str(w.message)), None)
    if missing is not None:
        raise model_error(spec.name, f"the adapter {adapter} does not fit the model: {missing}")
    if any(config.is_prompt_learning for config in adapted.peft_config.values()):
        problem = f"the adapter {adapter} is for learned prompts; only LoRA and similar adapters are supported"
        raise model_error(spec.name, problem)
    return adapted.get_base_model()


def _need_extras(spec: ModelSpec, settings: ModelSettings) -> None:
    """Name the extra whose package a model arg needs, before a long load."""
    quantization = settings.model_args.get("quantization_config")
    needs = []
    if "peft" in settings.model_args:
        needs.append(("peft", "peft", "peft"))
    if isinstance(quantization, dict):
        needs.append(("quantization_config", "accelerate", "quantization"))
        if "quant_method" not in quantization or quantization["quant_method"] == "bitsandbytes":
            needs.append(("quantization_config", "bitsandbytes", "quantization"))
    if "device_map" in settings.model_args:
        needs.append(("device_map", "accelerate", "accelerate"))
    for argument, package, extra in needs:
        if importlib.util.find_spec(package) is None:
            raise model_error(
                spec.name,
                f"--llm-model-arg {argument} needs the package {package}: pip install '{_DISTRIBUTION}[{extra}]'",
            )


def _folder_of(location: str, filename: str, common: Mapping[str, Any]) -> Path:
    """Return the folder that ``filename`` of a checkpoint lies in: the one that was named, or the hub's snapshot."""
    arguments = {key: common[key] for key in ("revision", "subfolder") if key in common}
    return Path(str(cached_file(location, filename, **arguments))).parent


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' and the hub's progress bars, log lines and warnings out of pytest's output; restores all."""
    verbosity = transformers_logging.get_verbosity()
    hub_verbosity = hub_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    hub_bars = not are_progress_bars_disabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    hub_logging.set_verbosity(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        disable_progress_bars()
        try:
            yield
        finally:
            transformers_logging.set_verbosity(verbosity)
            hub_logging.set_verbosity(hub_verbosity)
            if bars:
                transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
            if hub_bars:
                enable_progress_bars()
            else:
                disable_progress_bars()


def load_tokenizer(model: str, location: str) -> Any:
    """Return the tokenizer of a folder or a hub id, for the model that the user calls ``model``. Raises
    ``ModelError``.
    """
    folder = Path(location).expanduser()
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else location)
    except Exception as error:  # transformers, the hub: each has its own
        raise model_error(model, f"cannot load a tokenizer from {location} ({describe(error)})") from error
    # Where the files are missing, transformers makes an empty tokenizer and says nothing.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise model_error(model, f"{location} has no tokenizer")
    return tokenizer


# Errors


def needs_remote_code(error: BaseException) -> bool:
    """Return whether transformers asks for ``trust_remote_code``."""
    return "trust_remote_code" in str(error)


def cause(error: BaseException, *kinds: type[BaseException]) -> BaseException | None:
    """Return the first exception of ``kinds`` among ``error`` and what it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, kinds):
            return current
        seen.add(id(current))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def explain(error: Exception, spec: ModelSpec, settings: ModelSettings) -> ModelError:
    """Return the one sentence for what the libraries raised while loading."""
    return model_error(spec.name, _hub_problem(error, spec, settings) or _local_problem(error, spec))


def _hub_problem(error: Exception, spec: ModelSpec, settings: ModelSettings) -> str | None:
    revision = settings.revision or "main"
    if cause(error, hub_errors.GatedRepoError):
        return "is gated on the hub; ask for access on its page, then log in with `hf auth login` or set HF_TOKEN"
    if cause(error, hub_errors.RevisionNotFoundError):
        return f"has no revision {revision} on the hub; check --llm-revision"
    if cause(error, hub_errors.RepositoryNotFoundError):
        return "no such model on the hub, or one that HF_TOKEN has no access to; check the spelling, or give a folder"
    if cause(error, hub_errors.HFValidationError):
        return f"is not a folder here, nor a valid hub id ({describe(error)})"
    if spec.kind.name == "hub" and "does not appear to have" in str(error):
        return _weights_problem(error)
    if cause(error, hub_errors.OfflineModeIsEnabled, hub_errors.LocalEntryNotFoundError, ConnectionError):
        return (
            f"not in the hub's cache at revision {revision}, and the hub cannot be reached; "
            "connect, or fill the cache with `hf download`, or give a folder"
        )
    return None


def _weights_problem(error: Exception) -> str:
    if "safetensors" in str(error):
        return f"has no safetensors weights, and pickles can run code; {ALLOW_PICKLE}"
    return f"lacks a file: {describe(error)}"


def _local_problem(error: Exception, spec: ModelSpec) -> str:
    if is_out_of_memory(error):
        return "does not fit into memory; use a smaller --llm-dtype, quantisation, or another device"
    if needs_remote_code(error):
        return "needs Python code that comes with the checkpoint; read it, and allow it with --llm-trust-remote-code"
    if isinstance(error, ImportError):
        return f"needs a package that is not installed: {describe(error)}"
    if "does not appear to have" in str(error) or "Error no file named" in str(error):
        return _weights_problem(error)
    if "ignore_mismatched_sizes" in str(error):
        return "its weights have other shapes than config.json says"
    if isinstance(error, ValueError) and ("model type" in str(error) or "Unrecognized" in str(error)):
        return (
            "transformers does not know it as a causal language model: check model_type in config.json, "
            f"or upgrade transformers ({describe(error)})"
        )
    return f"cannot be loaded from {spec.location}: {describe(error)}"
