"""A model whose replicas run on a Ray cluster: ``ReplicatedModel``."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Failed, UniformBackend
from pytest_llmeval.models.ray.fleet import Fleet
from pytest_llmeval.models.ray.handshake import Handshake
from pytest_llmeval.types import (
    EmbeddingRequest,
    EngineUse,
    GenerateRequest,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Request,
    Response,
    ServerUse,
)

__all__ = ["AuditedReplicatedModel", "ReplicatedModel", "header_of"]

_HEADER_CHARACTERS = 200
"""Samples whose prompts agree so far are taken to share a header: instructions, few-shot examples."""
_CHUNKS_PER_REPLICA = 3
"""Half of what is open at once: two chunks are with each replica, and others wait, done or not."""


class ReplicatedModel(UniformBackend):
    """Gives samples to the replicas of ``fleet``, and is known as one model. ``engine`` plain has all of them scored
    plain.
    """

    def __init__(
        self,
        fleet: Fleet,
        first: Handshake,
        *,
        num_replicas: int,
        chunk_size: int,
        engine: str | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._fleet = fleet
        self._first = first
        self._num_replicas = num_replicas
        self._chunk_size = chunk_size
        self._engine = engine
        self._on_close = on_close
        self._process = os.getpid()
        details = {**first.identity.details, "replicas": num_replicas}
        self._identity = dataclasses.replace(first.identity, details=details)
        self._use = ServerUse()

    @property
    def identity(self) -> ModelIdentity:  # type: ignore[override]
        """That of the replicas, with their number."""
        return self._identity

    @property
    def num_concurrent(self) -> int:
        """Requests that are worth having at once."""
        return _CHUNKS_PER_REPLICA * self._chunk_size * self._num_replicas

    @property
    def num_in_flight(self) -> int:
        """Requests that were not answered yet."""
        return self._fleet.num_open

    @property
    def server_use(self) -> ServerUse:
        """What each replica has answered, and those that ended; the same object as long as nothing has changed."""
        counts, ended = self._fleet.counts, _counted(self._fleet.lost)
        if counts != self._use.replicas or ended != self._use.ended:
            self._use = ServerUse(num_requests=sum(counts.values()), replicas=counts, ended=ended)
        return self._use

    def submit(self, requests: Sequence[Request], /) -> list[Future[Response | Failed]]:
        """See ``BackgroundModel``. The requests of one call stay together."""
        self._check_process()
        if not requests:
            return []
        (entry,) = self._fleet.submit([(requests, header_of(requests[0]))], self._engine)
        return list(entry.futures)

    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        """See ``Backend``. Each request is a sample of its own."""
        self._check_process()
        listener = self.take_listener()
        samples: list[tuple[Sequence[Request], Hashable]] = [([request], header_of(request)) for request in requests]
        return self.await_all([entry.futures[0] for entry in self._fleet.submit(samples, self._engine)], listener)

    def _check_process(self) -> None:
        """A forked process has not the thread that asks the replicas: it would wait for ever."""
        if os.getpid() != self._process:
            raise ModelError(f"model {self.identity.name}: its replicas cannot be asked from a forked process")

    def close(self) -> None:
        """End the replicas, and what was started for them."""
        self._fleet.close()
        if self._on_close is not None:
            self._on_close()


class AuditedReplicatedModel(ReplicatedModel):
    """One whose replicas audit their fast path."""

    def audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
        """The same model, or one that scores everything plain, as the audit in one of the replicas finds."""
        self._check_process()
        use = self._fleet.audit(requests).result()
        if use.engine == "tree" or str(self.identity.details.get("engine", "")).startswith("plain"):
            return self, use
        plain = type(self)(
            self._fleet, self._first, num_replicas=self._num_replicas, chunk_size=self._chunk_size, engine="plain"
        )
        return plain, use


def _counted(lost: Sequence[str]) -> tuple[str, ...]:
    """Each reason once; a replica that is started again has its number, and may end again."""
    return tuple(reason if num == 1 else f"{reason} ({num} times)" for reason, num in Counter(lost).items())


def header_of(request: Request) -> Hashable:
    """What stands for the beginning of a request's prompt; None where the prompt is short."""
    match request:
        case LoglikelihoodRequest():
            prompt = request.context
        case GenerateRequest():
            prompt = request.prompt
        case LoglikelihoodRollingRequest() | EmbeddingRequest():
            return None
    text = prompt if isinstance(prompt, str) else "\n".join(turn.content for turn in prompt)
    return hash(text[:_HEADER_CHARACTERS]) if len(text) > _HEADER_CHARACTERS else None
