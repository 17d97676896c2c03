"""Under which conditions does a verdict on the tree hold? All that decides what it and the plain path compute."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import torch

from pytest_llmeval.models.settings import ModelSettings

__all__ = ["conditions_of_verdict"]

_LIBRARIES = ("accelerate", "bitsandbytes", "kernels", "peft", "pytest-llmeval-suites", "transformers")
"""Beside torch: those that decide which code computes a model, if they are installed."""


def conditions_of_verdict(
    model: Any, fingerprint: str | None, max_length: int | None, settings: ModelSettings
) -> str | None:
    """A hash (hex) of the conditions; None where they cannot be known, and each process checks for itself.

    ``fingerprint`` is of the weights and of what changes responses (dtype, attention, quantisation). The number of the
    device does not count, its name does.
    """
    if fingerprint is None or settings.trust_remote_code:
        return None
    device = model.device.type
    conditions = {
        "fingerprint": fingerprint,
        "versions": {"torch": str(torch.__version__)} | {name: _version(name) for name in _LIBRARIES},
        "code": _own_code(),
        "device": [device, torch.cuda.get_device_name(model.device) if device == "cuda" else _processor()],
        "dtype": str(model.dtype),
        "attention": getattr(model.config, "_attn_implementation", None),
        "class": type(model).__name__,
        "max_length": max_length,
        "batch_size": settings.batch_size,
        "precision": [
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
            torch.backends.mkldnn.enabled,
            torch.are_deterministic_algorithms_enabled(),
        ],
        "attention_kernels": {name: _is_enabled(name) for name in ("flash", "mem_efficient", "math", "cudnn")},
    }
    return hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()


def _is_enabled(kernel: str) -> bool | None:
    """Whether torch may use this attention kernel; None where this torch does not know it."""
    enabled = getattr(torch.backends.cuda, f"{kernel}_sdp_enabled", None)
    return None if enabled is None else bool(enabled())


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The kind of processor, with the instructions that torch's kernels are chosen by."""
    return f"{platform.system()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


@functools.cache
def _own_code() -> str:
    """A hash of the modules beside this one: an installation in development changes and keeps its version."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
