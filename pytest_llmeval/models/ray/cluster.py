"""Finds out without Ray whether a cluster listens at an address, and how many replicas its machines have room for.

Ray itself waits for minutes where something else listens, such as its own dashboard, and then ends the whole process.
"""

from __future__ import annotations

import math
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.settings import ReplicaSettings
from pytest_llmeval.text.redaction import describe

__all__ = ["Needs", "check_reachable", "find_needs", "machines_in_words"]


_TIMEOUT_S = 10.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The first bytes of an HTTP/2 client, with empty settings. Ray's head speaks gRPC, which is HTTP/2."""
_SETTINGS = 4
"""The kind of the first frame of an HTTP/2 server, which stands in its fourth byte."""
_FRAME_BYTES = 9
_ADVICE = "`ray start --head` prints the address"


def check_reachable(address: str, environ: Mapping[str, str] | None = None) -> None:
    """Raise ``ModelError`` if nothing listens at ``HOST:PORT``, or something that is not Ray."""
    environ = os.environ if environ is None else environ
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ModelError(f"--llm-ray {address}: nothing listens there ({describe(error)}); {_ADVICE}") from None
    with connection:
        if environ.get("RAY_USE_TLS", "0") not in ("0", ""):
            return  # it answers nothing that is not encrypted
        if not _speaks_http2(connection):
            raise ModelError(f"--llm-ray {address}: what listens there is not the head of a Ray cluster; {_ADVICE}")


def _speaks_http2(connection: socket.socket) -> bool:
    found = b""
    try:
        connection.sendall(_GREETING)
        while len(found) < _FRAME_BYTES and (more := connection.recv(_FRAME_BYTES - len(found))):
            found += more
    except OSError:
        return False
    return len(found) == _FRAME_BYTES and found[3] == _SETTINGS


_NUM_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Needs:
    """Room for ``count`` replicas with ``cpus`` CPUs and ``gpus`` GPUs each; ``gpus`` may be a fraction."""

    count: int
    cpus: int
    gpus: float

    @property
    def of_each(self) -> str:
        """Describe what each replica takes."""
        return _in_words(self.cpus, self.gpus)


def find_needs(given: ReplicaSettings, machines: Sequence[Mapping[str, float]], *, device: str | None) -> Needs:
    """Fill in what was not given from the resources of the machines (by Ray's names).

    With GPUs, unless ``device`` is the CPU, each replica gets a GPU and a CPU, and there are as many replicas as GPUs.
    Otherwise there is one replica for each machine that has CPUs, and the CPUs of the smallest machine are shared by
    the replicas on it.
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
    """Describe the resources of machines in one line, the largest first."""
    found = Counter((machine.get("GPU", 0), machine.get("CPU", 0)) for machine in machines)
    parts = [f"{num} with {_in_words(cpus, gpus)}" for (gpus, cpus), num in sorted(found.items(), reverse=True)]
    return ", ".join(parts[:_NUM_SHOWN]) + (", …" if len(parts) > _NUM_SHOWN else "") if parts else "no machine"


def _in_words(cpus: float, gpus: float) -> str:
    words = f"{cpus:g} CPU{'' if cpus == 1 else 's'}"
    return f"{words} and {gpus:g} GPU{'' if gpus == 1 else 's'}" if gpus else words
