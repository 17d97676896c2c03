"""How many replicas there are, and what each takes of its machine. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.models.settings import ReplicaSettings

__all__ = ["Needs", "find_needs", "machines_in_words"]

_NUM_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Needs:
    """``count`` replicas of ``cpus`` CPUs and ``gpus`` GPUs each, which may be parts of one."""

    count: int
    cpus: int
    gpus: float

    @property
    def of_each(self) -> str:
        """What each replica takes, in words."""
        return _in_words(self.cpus, self.gpus)


def find_needs(given: ReplicaSettings, machines: Sequence[Mapping[str, float]], *, device: str | None) -> Needs:
    """What was given, and for the rest what the machines have, by Ray's names of resources.

    With GPUs, and unless ``device`` is the CPU: a GPU and a CPU for each replica, and as many replicas as GPUs. Else a
    replica for each machine that has CPUs, and the CPUs of the smallest shared among those on it.
    """
    num_gpus = sum(machine.get("GPU", 0) for machine in machines)
    gpus = given.gpus
    if gpus is None:
        gpus = 1.0 if num_gpus and device != "cpu" else 0.0
    cpus_of = [machine["CPU"] for machine in machines if machine.get("CPU", 0) >= 1] or [1.0]
    count = given.count or max(1, int(num_gpus / gpus) if gpus else len(cpus_of))
    cpus = given.cpus
    if cpus is None:
        cpus = 1 if gpus else max(1, int(min(cpus_of)) // math.ceil(count / len(cpus_of)))
    return Needs(count, cpus, gpus)


def machines_in_words(machines: Sequence[Mapping[str, float]]) -> str:
    """What machines have, by Ray's names of resources: one line, the largest first."""
    found = Counter((machine.get("GPU", 0), machine.get("CPU", 0)) for machine in machines)
    parts = [f"{num} with {_in_words(cpus, gpus)}" for (gpus, cpus), num in sorted(found.items(), reverse=True)]
    return ", ".join(parts[:_NUM_SHOWN]) + (", …" if len(parts) > _NUM_SHOWN else "") if parts else "no machine"


def _in_words(cpus: float, gpus: float) -> str:
    words = f"{cpus:g} CPU{'' if cpus == 1 else 's'}"
    return f"{words} and {gpus:g} GPU{'' if gpus == 1 else 's'}" if gpus else words
