"""What a worker of pytest-xdist is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmeval.inference.chunks import DEFAULT_CHUNK_SIZE
from pytest_llmeval.plugin.options.settings import settings_key

__all__ = ["Batching", "batching_of", "worker_slot"]

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
    """How this process makes its plan: as the controller said; without its word, samples run one by one."""
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
