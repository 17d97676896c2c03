"""What a worker of pytest-xdist is told when it starts, and what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmeval.inference.chunks import DEFAULT_CHUNK_SIZE
from pytest_llmeval.plugin.options.settings import settings_key
from pytest_llmeval.suites.format.sniff import is_suite_file
from pytest_llmeval.suites.lm_eval.recognize import stands_for_task
from pytest_llmeval.suites.python.benchmark_names import benchmark_names
from pytest_llmeval.text.node_ids import split_file

__all__ = ["Batching", "batching_of", "sample_places", "worker_slot"]

_BATCHING = "llmeval_batching"

_SLOT = "llmeval_slot"


@dataclass(frozen=True, slots=True)
class Batching:
    """How a process makes its lookahead plan: the arguments of ``plan_chunks``, and of ``Lookahead``."""

    limit: int
    num_workers: int = 0
    shares_chunks: bool = False
    mode: str = "load"


def batching_of(config: pytest.Config) -> Batching:
    """How this process makes its plan: as the controller said; a worker that was told nothing asks one by one."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        return Batching(_limit(config))
    return Batching(*worker.get(_BATCHING, (1,)))


def worker_slot(config: pytest.Config) -> int | None:
    """The worker's number among those that live, from 0; None in a session of one process."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    return None if worker is None else int(worker.get(_SLOT, 0))


def _limit(config: pytest.Config) -> int:
    return config.stash[settings_key].batch_size or DEFAULT_CHUNK_SIZE


def sample_places(config: pytest.Config, nodeids: Sequence[str]) -> list[tuple[int, str]]:
    """Which of ``nodeids`` are samples, with their places; judged by their files, as a controller collects nothing."""
    suites: dict[str, bool] = {}
    benchmarks: dict[str, frozenset[str]] = {}
    samples = []
    for place, nodeid in enumerate(nodeids):
        path, levels = split_file(nodeid)
        if path.endswith((".yaml", ".yml")):
            if path not in suites:
                file = config.rootpath / path
                suites[path] = is_suite_file(file) or stands_for_task(file)
            if suites[path]:
                samples.append((place, nodeid))
        elif path.endswith(".py") and "::" in levels:
            if path not in benchmarks:
                benchmarks[path] = benchmark_names(config.rootpath / path)
            if levels.partition("::")[0] in benchmarks[path]:
                samples.append((place, nodeid))
    return samples
