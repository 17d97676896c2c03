"""What a replica is to whoever asks it, wherever it runs; and how long it is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_llmeval.models.ray.handshake import Handshake
from pytest_llmeval.types import EngineUse, Request

__all__ = ["Handle", "Limits", "ReplicaLost"]


class ReplicaLost(Exception):
    """The replica's process, or its machine, has ended. ``str()`` says how, in one line."""


class Handle(Protocol):
    """A replica from outside. Every future raises ``ReplicaLost`` when the replica ends."""

    def where(self) -> Future[str]:
        """The machine that it runs on, once it has room there."""

    def load(self) -> Future[Handshake]: ...

    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> Future[Any]: ...

    def withdraw(self, number: int) -> Future[bool]: ...

    def audit(self, requests: Sequence[Request]) -> Future[EngineUse]: ...

    def watch(self) -> Future[None]:
        """Is never done before the replica ends."""

    def end(self) -> None:
        """End its process; what is under way raises ``ReplicaLost``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``linger_s``: so long after the last sample a chunk waits for more. ``max_failed_starts`` of one replica in a row
    end it, and so do more than ``restarts_per_replica`` on average. Without any replica for ``patience_s`` the model
    has stopped.
    """

    linger_s: float = 0.01
    max_failed_starts: int = 3
    restarts_per_replica: int = 8
    patience_s: float = 300.0
