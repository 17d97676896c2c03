"""Audits of the fast path that are put to replicas: they wait for one, and for what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from pytest_llmeval.errors import LLMEvalError, ModelError
from pytest_llmeval.models.ray.handle import ReplicaLost
from pytest_llmeval.types import EngineUse, Request

__all__ = ["Audit", "Audits"]


@dataclass(slots=True, eq=False)
class Audit:
    """One audit. ``num_lost`` replicas have ended while they made it."""

    requests: Sequence[Request]
    found: Future[EngineUse] = field(default_factory=Future)
    num_lost: int = 0


class Audits:
    """Those of the model ``name`` that are not done. Two replicas that end in one are the end of it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: set[Future[EngineUse]] = set()
        self._waiting: list[Audit] = []

    def begin(self, requests: Sequence[Request]) -> Audit:
        """An audit that somebody waits for."""
        audit = Audit(requests)
        self._open.add(audit.found)
        audit.found.add_done_callback(self._open.discard)
        return audit

    def let_wait(self, audit: Audit) -> None:
        """There is no replica for it yet."""
        self._waiting.append(audit)

    def take_waiting(self) -> list[Audit]:
        """Those that had no replica: there is one now."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def settle(self, audit: Audit, done: Future[EngineUse]) -> bool:
        """Take what a replica has found; whether another one has to be asked, because it has ended."""
        error = done.exception()
        if audit.found.done():  # the model has stopped
            return False
        if isinstance(error, ReplicaLost) and audit.num_lost == 0:
            audit.num_lost += 1
            return True
        if error is None:
            audit.found.set_result(done.result())
        elif isinstance(error, LLMEvalError):
            audit.found.set_exception(error)
        else:
            audit.found.set_exception(ModelError(f"model {self._name}: two replicas ended in the audit: {error}"))
        return False

    def fail(self, error: Exception) -> None:
        """Nobody finds anything more."""
        for found in list(self._open):
            found.set_exception(error)
        self._waiting.clear()

    def cancel(self) -> None:
        for found in list(self._open):
            found.cancel()
