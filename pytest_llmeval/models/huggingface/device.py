"""The place where a model runs: its device, dtype, threads and memory, and the error of a full device.

Imports torch, and not transformers.
"""

from __future__ import annotations

import gc
import os
import platform
from pathlib import Path
from typing import Any, ClassVar

import torch

from pytest_llmeval.errors import ModelError, OptionError, RequestError
from pytest_llmeval.models.hardware import Busy, choose_threads, device_in_turn, is_set_by_user

__all__ = [
    "Threads",
    "available_cores",
    "configure_threads",
    "device_of_worker",
    "empty_cache",
    "is_out_of_memory",
    "kept_bytes",
    "release_memory",
    "resolve_device",
    "resolve_dtype",
    "tokens_in_memory",
    "too_little_memory",
]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_MAX_TOKENS = 16384
_KEPT_BYTES = 4 << 30
_KEPT_BYTES_ON_CPU = 256 << 20


def resolve_device(requested: str | None = None) -> str:
    """Return the device to run on: ``cpu``, ``mps``, ``cuda`` or ``cuda:1``.

    ``requested`` None or ``auto`` picks MPS on Apple silicon, then CUDA, then CPU. Raises ``ModelError`` for a device
    that this machine lacks, naming those that it has, and ``OptionError`` for what torch does not know as a device.
    """
    if requested is None or requested == "auto":
        if platform.machine() == "arm64" and torch.backends.mps.is_available():
            return "mps"
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(requested)
    except RuntimeError:
        raise OptionError(f"--llm-device {requested!r}: expected cpu, cuda, cuda:N or mps") from None
    if not _is_here(device):
        raise ModelError(f"--llm-device {requested}: there is no such device here; this machine has {_devices_here()}")
    return requested


def device_of_worker(device: str, slot: int) -> str:
    """Return the device of one of several processes that run models at once, in ``slot`` counted from 0.

    ``cuda`` without a number is each of the visible GPUs in turn; every other device is that device.
    """
    return device_in_turn(device, slot, torch.cuda.device_count() if device == "cuda" else 0)


def _is_here(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return bool(torch.backends.mps.is_available())
    if device.type == "cpu":
        return True
    module = getattr(torch, device.type, None)
    return bool(module is not None and hasattr(module, "is_available") and module.is_available())


def _devices_here() -> str:
    found = ["cpu"]
    if torch.backends.mps.is_available():
        found.append("mps")
    if torch.cuda.is_available():
        found.extend(f"cuda:{i}" for i in range(torch.cuda.device_count()))
    return ", ".join(found)


def resolve_dtype(requested: str | None, device: str, *, quantized: bool = False) -> torch.dtype | str:
    """Return what transformers is given as ``dtype``.

    None is float32 on CPU, where half precision is slow and coarse, and ``"auto"`` (the checkpoint's own) on other
    devices and for quantised weights. Raises ``OptionError`` for an unknown name.
    """
    if requested is None:
        return torch.float32 if device == "cpu" and not quantized else "auto"
    if requested == "auto":
        return "auto"
    if requested not in _DTYPES:
        raise OptionError(f"--llm-dtype {requested!r}: expected auto or one of {', '.join(_DTYPES)}")
    return _DTYPES[requested]


def configure_threads(worker_count: int) -> int:
    """Share the cores among ``worker_count`` processes that run models at once, and return the threads of this one.

    Torch would start as many threads as there are cores in each. ``OMP_NUM_THREADS``, where it is set, is left to rule.
    """
    if os.environ.get("OMP_NUM_THREADS"):
        return int(torch.get_num_threads())
    num_threads = max(1, available_cores() // max(1, worker_count))
    torch.set_num_threads(num_threads)
    return num_threads


class Threads:
    """The threads of this process, one of ``num_workers`` that run models at once; ``models/hardware.py`` says why.

    A number that the user sets is left alone: ``OMP_NUM_THREADS``, or ``torch.set_num_threads``, which shows as another
    number than torch begins with, or than was set here.
    """

    _set_here: ClassVar[int | None] = None
    """The number that torch was last set to. Its threads are the whole process's, so this is, too."""

    def __init__(self, num_workers: int = 1, *, busy: Busy | None = None) -> None:
        self._busy = Busy() if busy is None else busy
        affinity = getattr(os, "sched_getaffinity", None)
        begins_with = Threads._set_here or (len(affinity(0)) if affinity is not None else None)
        before = int(torch.get_num_threads())
        self._is_users = is_set_by_user() or begins_with not in (None, before)
        self._limit = before
        if not self._is_users:
            # Torch may begin with fewer than there are cores: a Mac has two kinds of cores.
            self._limit = configure_threads(num_workers)
            if Threads._set_here is None:
                self._limit = min(before, self._limit)
            self._set(self._limit)

    def adapt(self) -> None:
        """Use as many threads as the machine has free cores now. Called before each call of the model."""
        if self._is_users or torch.get_num_threads() != Threads._set_here:
            self._is_users = True
            return
        self._set(choose_threads(self._limit, self._busy.cores(), os.cpu_count() or 1))

    def _set(self, num_threads: int) -> None:
        if num_threads != torch.get_num_threads():
            torch.set_num_threads(num_threads)
        Threads._set_here = num_threads


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of cores that this process may use, by its CPU affinity and the quota of its control group."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _cgroup_quota(cgroup)
    return cores if quota is None else max(1, min(cores, int(quota)))


def _cgroup_quota(cgroup: Path) -> float | None:
    """Return how many cores' worth of time the control group allows (version 2's ``cpu.max``, else version 1's
    files).
    """
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except ValueError:  # "max": no quota
        return None


def tokens_in_memory(model: Any) -> int:
    """Return how many tokens one forward pass of ``model`` may hold on its device, so that a quarter of what is free
    suffices.

    Reckoned from what a token needs: keys and values in all layers, and the widest activations of one.
    """
    free = _free_bytes(model.device)
    if free is None:
        return _MAX_TOKENS
    config = model.config.get_text_config()
    hidden = getattr(config, "hidden_size", None) or 1024
    layers = getattr(config, "num_hidden_layers", None) or 32
    width = max(hidden, getattr(config, "intermediate_size", None) or 4 * hidden)
    size = torch.finfo(model.dtype).bits // 8
    per_token = size * (2 * layers * hidden + 8 * hidden + 4 * width)
    return max(64, min(_MAX_TOKENS, int(free / 4 / per_token)))


def kept_bytes(device: torch.device) -> int:
    """Return the bytes for keys and values kept between calls: an eighth of the free ones, on the CPU up to 256 MiB."""
    free = _free_bytes(device)
    limit = _KEPT_BYTES_ON_CPU if device.type == "cpu" else _KEPT_BYTES
    return limit if free is None else min(limit, free // 8)


def _free_bytes(device: torch.device) -> int | None:
    """Return the bytes that are free on a CUDA device; None for other devices."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def release_memory() -> None:
    """Give the memory of a model that is no longer referenced back to the system and to other models."""
    gc.collect()  # modules and their hooks hold each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def empty_cache() -> None:
    """Give memory that torch keeps for later back to the GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def too_little_memory(device: Any) -> RequestError:
    """Return what a request gets that does not fit into memory alone."""
    return RequestError(f"the device {device} has too little memory for this request")


_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that a device, or the machine, has no memory left."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)
