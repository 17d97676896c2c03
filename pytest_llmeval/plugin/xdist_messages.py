"""What a worker of pytest-xdist learns from its controller when it starts, and the usage errors that it reports."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.inference.chunks import DEFAULT_CHUNK_SIZE
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import suite_paths_key

__all__ = [
    "BATCHING_KEY",
    "SHARED_KEY",
    "SLOT_KEY",
    "Batching",
    "UsageErrors",
    "batching_of",
    "chunk_limit",
    "report_usage_errors",
    "shared_folder",
    "usage_errors",
    "worker_slot",
]

BATCHING_KEY = "llmeval_batching"
SLOT_KEY = "llmeval_slot"
SHARED_KEY = "llmeval_shared"
"""Keys of the controller's messages in a worker's ``workerinput``."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The way in which a process makes its plan: the arguments of ``plan_chunks``, and of ``Batcher``."""

    limit: int
    num_workers: int = 0
    shares_chunks: bool = False
    mode: str = "load"


def batching_of(config: pytest.Config) -> Batching:
    """Return how this process makes its plan: as the controller said; without its word, samples run one by one."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        return Batching(chunk_limit(config))
    return Batching(*worker.get(BATCHING_KEY, (1,)))


def worker_slot(config: pytest.Config) -> int | None:
    """Return the worker's number among those that live, from 0; None in a session of one process."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    return None if worker is None else int(worker.get(SLOT_KEY, 0))


def shared_folder(config: pytest.Config) -> Path | None:
    """Return a folder that the session's workers share; None in one process, and on another machine."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    path = None if worker is None else worker.get(SHARED_KEY)
    return Path(path) if path is not None and os.path.isdir(path) else None


def chunk_limit(config: pytest.Config) -> int:
    """Return how many samples are asked together at most."""
    return config.stash[settings_key].batch_size or DEFAULT_CHUNK_SIZE


def report_usage_errors(session: pytest.Session, messages: Sequence[str]) -> None:
    """Have the controller end the session with these: raised in a worker, a ``UsageError`` is not shown."""
    report = pytest.CollectReport(
        nodeid="llmeval: usage",
        outcome="failed",
        longrepr="\n".join(messages),
        result=[],
        llm_usage_errors=list(messages),
    )
    session.ihook.pytest_collectreport(report=report)


def usage_errors(report: pytest.CollectReport) -> Sequence[str]:
    """Return the errors that a worker reported with ``report_usage_errors``; empty for any other report."""
    return getattr(report, "llm_usage_errors", ())


class UsageErrors:
    """Hooks of a worker."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Report what was not found, in sessions with a model or a suite, as one process does."""
        try:
            return (yield)
        except pytest.UsageError as error:
            if batching_of(session.config).shares_chunks or suite_paths_key in session.stash:
                report_usage_errors(session, [str(message) for message in error.args])
            raise
