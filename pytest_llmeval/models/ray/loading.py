"""Loads the model of a session with ``--llm-ray``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.models.hardware import num_visible_gpus
from pytest_llmeval.models.ray.cluster import Needs, find_needs, machines_in_words
from pytest_llmeval.models.ray.fleet import Fleet
from pytest_llmeval.models.ray.model import AuditedReplicatedModel, ReplicatedModel
from pytest_llmeval.models.ray.replica import Loading
from pytest_llmeval.models.specs import ModelSettings, ModelSpec, ReplicaSettings
from pytest_llmeval.text.redaction import describe

__all__ = ["check_replicas", "load_replicas"]


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
