"""The cores and GPUs of this machine, found without torch: how many threads a model on the CPU gets, how they wait for
each other, which GPUs CUDA would show, and the error of a device that is lost.

Threads of OpenMP wait in a busy loop for some milliseconds. While another process needs the core, that takes time from
the thread that they wait for: on two busy cores two threads take three times as long as one. So a
model has as many threads as there are free cores, and they wait in the loop only briefly before they sleep.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pytest_llmeval.data.garbage import making_what_stays, without_collection

__all__ = [
    "Busy",
    "choose_threads",
    "device_in_turn",
    "importing_torch",
    "is_device_lost",
    "is_set_by_user",
    "num_visible_gpus",
    "waiting_briefly",
]


_WAITING = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}
"""Settings of OpenMP. GNU's (torch's own on Linux) counts turns of the loop, a millisecond at most. On an idle machine
that is long enough that the threads of a small model do not sleep between two operations; on a busy one little is lost
until ``Busy`` sees that others need the cores. Intel's counts milliseconds."""

_WAITING_BY_USER = ("OMP_WAIT_POLICY", *_WAITING)
_COUNT_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SHORTEST_S = 0.2
"""The shortest time that is measured: processor times are counted in hundredths of a second."""


def is_set_by_user(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the environment says how many threads there are to be."""
    return any(environment.get(name) for name in _COUNT_BY_USER)


@contextmanager
def waiting_briefly() -> Iterator[None]:
    """Import torch in this context, and its threads wait briefly before they sleep; unless the environment says how.

    OpenMP reads its variables when it is loaded: later they would change nothing, and what processes that are started
    from this one do is not ours to say.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _WAITING_BY_USER):
        yield
        return
    os.environ.update(_WAITING)
    try:
        yield
    finally:
        for name in _WAITING:
            os.environ.pop(name, None)


def choose_threads(limit: int, busy_elsewhere: float | None, num_cores: int) -> int:
    """Return the number of threads for one process, 1 to ``limit``: no more than cores that others leave free.

    ``busy_elsewhere``: how many of the machine's ``num_cores`` other processes keep busy, None if that is not known.
    Half a core is left to others before it costs a thread.
    """
    if busy_elsewhere is None:
        return max(1, limit)
    return max(1, min(limit, int(num_cores - busy_elsewhere + 0.5)))


class _Reading(NamedTuple):
    at_s: float
    all_s: float
    own_s: float


class Busy:
    """A meter of the cores that other processes keep busy, from one call to the next; on Linux."""

    def __init__(
        self,
        stat: Path = Path("/proc/stat"),
        *,
        clock: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = time.process_time,
    ) -> None:
        self._stat = stat
        self._clock = clock
        self._own = own
        self._last = self._read()
        self._found: float | None = None

    def cores(self) -> float | None:
        """Return the cores that were busy since the last call; the last number again if that is less than 0.2 s ago."""
        now, last = self._read(), self._last
        if now is None or last is None:
            return None
        seconds = now.at_s - last.at_s
        if seconds >= _SHORTEST_S:
            self._last = now
            self._found = max(0.0, (now.all_s - last.all_s - (now.own_s - last.own_s)) / seconds)
        return self._found

    def _read(self) -> _Reading | None:
        try:
            label, *fields = self._stat.read_text(encoding="ascii").splitlines()[0].split()
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            ticks = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        if label != "cpu":
            return None
        used = user + nice + system + irq + softirq + steal
        return _Reading(self._clock(), used / ticks, self._own())


def num_visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """Return how many NVIDIA GPUs a process with this environment may use, on Linux; 0 if that cannot be known.

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


_LOST_DEVICE = (
    "device-side assert",
    "an illegal memory access",
    "illegal instruction was encountered",
    "misaligned address",
    "invalid program counter",
    "hardware stack error",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "unspecified launch failure",
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "GPU has fallen off the bus",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "NCCL communicator was aborted",
)
"""Words of CUDA in errors after which it fails every call of the process ("sticky" errors of its runtime API)."""


def is_device_lost(error: BaseException) -> bool:
    """Return whether the process can use its device no more: CUDA fails every call after an error of a kernel."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _LOST_DEVICE)


@contextmanager
def importing_torch() -> Iterator[None]:
    """Import torch, and what builds on it, in this context: its threads wait briefly, and it takes less time.

    The imports make 300,000 objects that stay: a walk over them, of which pytest makes two at its end, takes a quarter
    of a second. They are left out only where no model can be loaded yet, which would stay with them.
    """
    has_models = sys.modules.keys() >= {"torch", "transformers"}
    with without_collection() if has_models else making_what_stays(), waiting_briefly():
        yield
