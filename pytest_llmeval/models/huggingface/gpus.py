"""GPUs that CUDA would show, counted without starting it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["device_in_turn", "num_visible_gpus"]


def num_visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """Return how many NVIDIA GPUs a process with this environment may use, on Linux; 0 where that cannot be known.

    ``CUDA_VISIBLE_DEVICES`` lists indices or ids, and ends at the first that is not there, as in CUDA's own reading.
    """
    try:
        present = sum(re.fullmatch(r"nvidia[0-9]+", path.name) is not None for path in devices.iterdir())
    except OSError:
        present = 0
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None or not present:
        return present
    count = 0
    for name in (text.strip() for text in listed.split(",")):
        is_index = re.fullmatch(r"[0-9]+", name) is not None
        if not name or name.startswith("-") or (is_index and int(name) >= present):
            break
        count += 1
    return count


def device_in_turn(device: str, slot: int, num_gpus: int) -> str:
    """Return the device of the worker in ``slot``, counted from 0: ``cuda`` without a number is each GPU in turn."""
    return f"cuda:{slot % num_gpus}" if device == "cuda" and num_gpus > 1 else device
