"""Errors that the libraries raise while a model is loaded or run, in one sentence that says what to do."""

from __future__ import annotations

import torch
from huggingface_hub import errors as hub_errors

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.huggingface.checkpoint import ALLOW_PICKLE
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.text.redaction import describe, model_error

__all__ = ["cause", "explain", "is_device_broken", "is_out_of_memory", "needs_remote_code"]


_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)

_BROKEN_DEVICE = (
    "device-side assert",
    "an illegal memory access",
    "illegal instruction was encountered",
    "misaligned address",
    "uncorrectable ECC error",
    "unspecified launch failure",
    "GPU has fallen off the bus",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "NCCL communicator was aborted",
)
"""Words of CUDA in errors after which it fails every call of the process ("sticky" errors of its runtime API)."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that a device, or the machine, has no memory left."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)


def is_device_broken(error: BaseException) -> bool:
    """Return whether the process can use its device no more: CUDA fails every call after an error of a kernel."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _BROKEN_DEVICE)


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
