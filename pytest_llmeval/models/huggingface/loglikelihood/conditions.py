"""Under which conditions does a verdict on the tree hold? All that decides what it and the plain path compute."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
import json
import operator
import os
import platform
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import masking_utils
from transformers.integrations import sdpa_attention

from pytest_llmeval.models import encoding
from pytest_llmeval.models.settings import ModelSettings

__all__ = ["conditions_of_verdict"]

_LIBRARIES = (
    "accelerate",
    "autoawq",
    "bitsandbytes",
    "compressed-tensors",
    "fbgemm-gpu-genai",
    "gptqmodel",
    "hqq",
    "kernels",
    "optimum",
    "peft",
    "pytest-llmeval-suites",
    "torchao",
    "transformers",
    "triton",
)
"""Beside torch: those that decide which code computes a model, if they are installed."""
_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)
"""Variables of the environment by which a library below torch rounds otherwise."""
_PRECISIONS = (
    *("fp32_precision", "cuda.matmul.fp32_precision"),
    *("cudnn.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
    *("mkldnn.fp32_precision", "mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision"),
    "mkldnn.rnn.fp32_precision",
)
"""Settings of ``torch.backends``, since torch 2.9: once one of them is set, the older getters may raise
``RuntimeError``.
"""
_REDUCTIONS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
"""Settings of ``torch.backends.cuda.matmul``."""


def conditions_of_verdict(
    model: Any, fingerprint: str | None, max_length: int | None, settings: ModelSettings
) -> str | None:
    """Return a hash (hex) of the conditions; None where they cannot be known, and each process checks for itself.

    ``fingerprint`` is of the weights and of what changes responses (dtype, attention, quantisation). The number of the
    device does not count, its name does.
    """
    if fingerprint is None or settings.trust_remote_code:
        return None
    try:
        conditions = {
            "fingerprint": fingerprint,
            "versions": {"torch": str(torch.__version__)} | {name: _version(name) for name in _LIBRARIES},
            "code": _own_code(),
            "device": [model.device.type, _device_name(model.device), platform.platform()],
            "dtype": str(model.dtype),
            "attention": getattr(model.config, "_attn_implementation", None),
            "class": [type(model).__module__, type(model).__name__, _sources(type(model))],
            "max_length": max_length,
            "batch_size": settings.batch_size,
            "precision": _precision(),
            "attention_kernels": {name: _is_enabled(name) for name in ("flash", "mem_efficient", "math", "cudnn")},
            "environment": {name: os.environ.get(name) for name in _VARIABLES},
        }
        return hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
    except Exception:  # a getter of torch or of a device raises what it likes; checking once more costs little
        return None


def _precision() -> dict[str, Any]:
    """Return all that torch lets a user set, and that changes how the same kernels round."""
    found: dict[str, Any] = {name: _setting(name) for name in _PRECISIONS}
    if found["cuda.matmul.fp32_precision"] is None:
        found |= {"matmul": torch.get_float32_matmul_precision(), "cudnn": torch.backends.cudnn.allow_tf32}
    found |= {name: _setting(f"cuda.matmul.{name}") for name in _REDUCTIONS}
    return found | {
        "cudnn_version": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "mkldnn_enabled": torch.backends.mkldnn.enabled,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _setting(name: str) -> str | bool | None:
    """Return a setting of ``torch.backends``; None where this torch does not have it."""
    try:
        found: str | bool = operator.attrgetter(name)(torch.backends)
    except AttributeError:
        return None
    return found


def _is_enabled(kernel: str) -> bool | None:
    """Return whether torch may use this attention kernel; None where this torch does not know it."""
    enabled = getattr(torch.backends.cuda, f"{kernel}_sdp_enabled", None)
    return None if enabled is None else bool(enabled())


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device_name(device: torch.device) -> str:
    """Return what the device calls itself, where its part of torch says so; else the processor."""
    name = getattr(getattr(torch, device.type, None), "get_device_name", None)
    return _processor() if name is None else str(name(device))


def _processor() -> str:
    """Return the kind of processor, with the instructions that torch's kernels are chosen by."""
    return f"{platform.system()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _sources(model_class: type) -> list[str | None]:
    """Return hashes of the files that define the class, its masks and its attention: transformers may be edited in
    place, and keeps its version.
    """
    return [_source(of) for of in (model_class, masking_utils, sdpa_attention)]


def _source(of: type | ModuleType) -> str | None:
    path = inspect.getsourcefile(of)
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


@functools.cache
def _own_code() -> str:
    """Return a hash of all modules of ``models/huggingface``, and of ``models/encoding.py``.

    They decide what both paths compute and how they are compared, and an installation in development changes and keeps
    its version.
    """
    digest = hashlib.sha256(Path(encoding.__file__).read_bytes())
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"\n{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
