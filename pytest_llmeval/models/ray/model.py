"""A model whose replicas run on a Ray cluster, and how it is loaded (``--llm-ray``)."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.models.base import Failed, UniformBackend
from pytest_llmeval.models.hardware import num_visible_gpus
from pytest_llmeval.models.ray.cluster import Needs, find_needs, machines_in_words
from pytest_llmeval.models.ray.fleet import Fleet
from pytest_llmeval.models.ray.replica import Handshake, Loading
from pytest_llmeval.models.settings import ModelSettings, ReplicaSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.text.redaction import describe
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

__all__ = ["AuditedReplicatedModel", "ReplicatedModel", "check_replicas", "header_of", "load_replicas"]


_HEADER_CHARACTERS = 200
"""Prompts that agree in so many characters are taken to share a header, such as few-shot examples."""
_CHUNKS_PER_REPLICA = 3
"""Half of the chunks that are open at once: each replica has two, and others wait or are done."""


class ReplicatedModel(UniformBackend):
    """One model that gives its samples to the replicas of ``fleet``.

    With ``engine`` plain, the replicas use the slow path for everything.
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
        """Return the identity that all replicas share, with their number."""
        return self._identity

    @property
    def num_concurrent(self) -> int:
        """Return how many requests are worth having in flight at once."""
        return _CHUNKS_PER_REPLICA * self._chunk_size * self._num_replicas

    @property
    def num_in_flight(self) -> int:
        """Return how many requests are not answered yet."""
        return self._fleet.num_open

    @property
    def server_use(self) -> ServerUse:
        """Return the counts of each replica and those that ended; the same object as long as nothing has changed."""
        counts, ended = self._fleet.counts, _counted(self._fleet.lost)
        if counts != self._use.replicas or ended != self._use.ended:
            self._use = ServerUse(num_requests=sum(counts.values()), replicas=counts, ended=ended)
        return self._use

    def submit(self, requests: Sequence[Request], /) -> list[Future[Response | Failed]]:
        """Queue requests, as in ``BackgroundModel``. The requests of one call go to the same replica."""
        self._check_process()
        if not requests:
            return []
        (entry,) = self._fleet.submit([(requests, header_of(requests[0]))], self._engine)
        return list(entry.futures)

    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        """Answer requests, as in ``Backend``. Each request may go to another replica."""
        self._check_process()
        listener = self.take_listener()
        samples: list[tuple[Sequence[Request], Hashable]] = [([request], header_of(request)) for request in requests]
        return self.await_all([entry.futures[0] for entry in self._fleet.submit(samples, self._engine)], listener)

    def _check_process(self) -> None:
        """Raise ``ModelError`` in a forked process, which lacks the thread that asks the replicas."""
        if os.getpid() != self._process:
            raise ModelError(f"model {self.identity.name}: its replicas cannot be asked from a forked process")

    def close(self) -> None:
        """End the replicas and the cluster that was started for them."""
        self._fleet.close()
        if self._on_close is not None:
            self._on_close()


class AuditedReplicatedModel(ReplicatedModel):
    """A ``ReplicatedModel`` whose replicas audit their fast path."""

    def audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
        """Audit in one of the replicas. Return this model, or one that uses the slow path if the audit says so."""
        self._check_process()
        use = self._fleet.audit(requests).result()
        if use.engine == "tree" or str(self.identity.details.get("engine", "")).startswith("plain"):
            return self, use
        plain = type(self)(
            self._fleet, self._first, num_replicas=self._num_replicas, chunk_size=self._chunk_size, engine="plain"
        )
        return plain, use


def _counted(lost: Sequence[str]) -> tuple[str, ...]:
    """Count equal reasons. A replica that is started again keeps its number and may end again."""
    return tuple(reason if num == 1 else f"{reason} ({num} times)" for reason, num in Counter(lost).items())


def header_of(request: Request) -> Hashable:
    """Return a key for the beginning of a request's prompt, or None if the prompt is short."""
    match request:
        case LoglikelihoodRequest():
            prompt = request.context
        case GenerateRequest():
            prompt = request.prompt
        case LoglikelihoodRollingRequest() | EmbeddingRequest():
            return None
    text = prompt if isinstance(prompt, str) else "\n".join(turn.content for turn in prompt)
    return hash(text[:_HEADER_CHARACTERS]) if len(text) > _HEADER_CHARACTERS else None


_MOST_PER_CORE = 64
"""The most replicas for each core. They may be more than cores, since a replica can spend its time waiting."""


def check_replicas(specs: Sequence[ModelSpec], settings: ModelSettings, replicas: ReplicaSettings) -> None:
    """Raise ``OptionError`` or ``ModelError``, within milliseconds, if no model can have replicas on Ray."""
    if not any(spec.kind.takes_replicas for spec in specs):
        names = ", ".join(spec.name for spec in specs) or "no --llm-model"
        raise OptionError(f"--llm-ray is for checkpoints and python:MODULE:NAME; found {names}: leave --llm-ray out")
    if settings.device is not None and ":" in settings.device:
        raise OptionError(f"--llm-device {settings.device}: with --llm-ray, Ray chooses the GPUs: give cuda")
    if importlib.util.find_spec("ray") is None:
        raise ModelError("--llm-ray needs the package ray: pip install 'pytest-llmeval-suites[ray]'")
    if replicas.address == "local":
        _check_room(find_needs(replicas, [this_machine()], device=settings.device))


def load_replicas(
    spec: ModelSpec,
    settings: ModelSettings,
    replicas: ReplicaSettings,
    *,
    chunk_size: int,
    import_paths: tuple[str, ...] = (),
) -> ReplicatedModel:
    """Start the replicas and wait for the first one. Raise ``ModelError`` or ``OptionError``.

    A replica is asked for at most ``chunk_size`` samples together. The user's Python code is found in
    ``import_paths``.
    """
    try:
        from pytest_llmeval.models.ray.actors import Cluster
    except ImportError as error:  # it is there, as `check_replicas` has seen, but not whole
        raise ModelError(f"--llm-ray: the package ray cannot be imported: {describe(error)}") from None

    if replicas.address == "local":
        needs = find_needs(replicas, [this_machine()], device=settings.device)
        _check_room(needs)
        cluster = Cluster("local", num_cpus=max(_num_cores(), needs.count * needs.cpus))
    else:
        cluster = Cluster(replicas.address)
        needs = find_needs(replicas, cluster.nodes(), device=settings.device)
    device = "cpu" if not needs.gpus and settings.device in (None, "auto") else settings.device
    loading = Loading(
        spec=spec,
        settings=replace(settings, device=device, num_workers=None, shared_folder=None),
        folder=os.getcwd(),
        import_paths=import_paths,
    )
    fleet = Fleet(
        spec.name,
        lambda: cluster.start(loading, needs),
        num_replicas=needs.count,
        chunk_size=chunk_size,
        room=lambda: f"each takes {needs.of_each}; the cluster has {machines_in_words(cluster.nodes())}",
    )
    try:
        fleet.begin()
        first = fleet.first.result()
    except BaseException:
        fleet.close()
        cluster.close()
        raise
    kind = AuditedReplicatedModel if first.has_audit else ReplicatedModel
    return kind(fleet, first, num_replicas=needs.count, chunk_size=chunk_size, on_close=cluster.close)


def this_machine() -> dict[str, float]:
    """Return the resources of this machine, by Ray's names."""
    return {"CPU": _num_cores(), "GPU": num_visible_gpus(os.environ)}


def _num_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _check_room(needs: Needs) -> None:
    """Refuse more replicas than this machine has room for: they would never start, or would overload it."""
    machine = this_machine()
    cores, num_gpus = int(machine["CPU"]), machine["GPU"]
    if needs.count > cores * _MOST_PER_CORE:
        raise OptionError(
            f"--llm-ray local: replicas: {needs.count}, more than {_MOST_PER_CORE} for each core of this machine "
            f"({cores}); each is a process of its own"
        )
    if needs.cpus > cores:
        raise OptionError(f"--llm-ray local: CPUs of each replica: {needs.cpus}, on this machine: {cores}")
    if needs.count * needs.gpus > num_gpus:
        raise OptionError(
            f"--llm-ray local: GPUs needed: {needs.count * needs.gpus:g} (replicas: {needs.count}, GPUs of each: "
            f"{needs.gpus:g}), on this machine: {num_gpus:g}"
        )
