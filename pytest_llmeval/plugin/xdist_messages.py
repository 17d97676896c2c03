"""Messages between the controller of pytest-xdist and its workers, but for test reports.

pytest-xdist sends node ids only, and ends a worker that sends an event which it does not know. So the controller opens
a channel to each worker and puts it into the worker's input. Both use one connection, and a worker sends what it has
collected before pytest-xdist sends its node ids: the message is there when they arrive.

What was found out about models is kept in pytest's cache (``.pytest_cache``). As with all that pytest keeps there, only
the controller reads and writes it: a worker gets it with its input, and returns what is new with its output.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.inference.chunks import DEFAULT_CHUNK_SIZE
from pytest_llmeval.plugin.process_roles import is_worker
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import suite_paths_key

if TYPE_CHECKING:
    from pytest_llmeval.models.findings import Findings
    from pytest_llmeval.reporting.report.records import SuiteInfo
    from pytest_llmeval.types import Role

__all__ = [
    "BATCHING_KEY",
    "SHARED_KEY",
    "SLOT_KEY",
    "Batching",
    "Collected",
    "Inbox",
    "UsageErrors",
    "add_findings",
    "batching_of",
    "chunk_limit",
    "findings_of",
    "report_usage_errors",
    "send",
    "share_findings",
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
    """The settings by which a process makes its plan: arguments of ``plan_chunks``, and of ``Batcher``."""

    limit: int
    num_workers: int = 0
    shares_chunks: bool = False
    mode: str = "load"


def batching_of(config: pytest.Config) -> Batching:
    """Return how this process makes its plan: as the controller says, or one sample after the other if it does not."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        return Batching(chunk_limit(config))
    return Batching(*worker.get(BATCHING_KEY, (1,)))


def worker_slot(config: pytest.Config) -> int | None:
    """Return the worker's number among those that live, from 0; None in a session of one process."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    return None if worker is None else int(worker.get(SLOT_KEY, 0))


def shared_folder(config: pytest.Config) -> Path | None:
    """Return a folder that the session's workers share; None without workers, and in a worker on another machine."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    path = None if worker is None else worker.get(SHARED_KEY)
    return Path(path) if path is not None and os.path.isdir(path) else None


def chunk_limit(config: pytest.Config) -> int:
    """Return the largest number of samples that are asked together."""
    return config.stash[settings_key].batch_size or DEFAULT_CHUNK_SIZE


def report_usage_errors(session: pytest.Session, messages: Sequence[str]) -> None:
    """Have the controller end the session with these messages: raised in a worker, a ``UsageError`` is not shown."""
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
    """The hook of a worker that reports usage errors."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Report files and tests that were not found, in sessions with a model or a suite, as one process does."""
        try:
            return (yield)
        except pytest.UsageError as error:
            if batching_of(session.config).shares_chunks or suite_paths_key in session.stash:
                report_usage_errors(session, [str(message) for message in error.args])
            raise


_CHANNEL = "llmeval_collected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The samples and suites among the tests of a session.

    ``samples`` are the places of samples among the tests that are to run. ``suites`` have such samples, ``absent`` are
    suites that were collected without any. ``num_deselected`` tests were left out. Three fields name the file of the
    first suite that cannot run, None if there is none: ``unanswered`` has neither a model nor replies of its own,
    ``lacking`` has a scorer that asks a model in a role (for each role without a model), ``without_baseline`` compares
    its replies with those of a baseline, and there is none. ``has_model`` says that there is a model, be it one of a
    conftest.py. ``categories`` are those of each suite's samples. ``may_have_others`` says that there may be more
    suites: of hand-written tests, or in files that could not be collected. ``variants`` are lines on the suites with
    variants: how many requests these make.
    """

    samples: Sequence[int]
    suites: Sequence[SuiteInfo]
    absent: Sequence[SuiteInfo]
    num_deselected: int
    unanswered: str | None
    lacking: Mapping[Role, str]
    without_baseline: str | None
    has_model: bool
    categories: Mapping[str, Sequence[str]]
    may_have_others: bool
    variants: Sequence[str]

    def encode(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def decode(cls, text: str) -> Collected:
        from pytest_llmeval.reporting.report.records import SuiteInfo

        found = json.loads(text)
        infos = {name: list(map(SuiteInfo.from_dict, found[name])) for name in ("suites", "absent")}
        return cls(**{**found, **infos})


def send(config: pytest.Config, collected: Collected) -> None:
    """Send what was collected to the controller of this worker, if the plugin is loaded there."""
    channel = config.workerinput.get(_CHANNEL)  # type: ignore[attr-defined]
    if channel is not None:
        channel.send(collected.encode())


class Inbox:
    """The messages of one worker; made before the worker starts."""

    def __init__(self, node: Any) -> None:
        self._texts: list[str] = []
        channel = node.workerinput[_CHANNEL] = node.gateway.newchannel()
        channel.setcallback(self._texts.append)

    def pop(self) -> Collected | None:
        """Return what the worker has collected; None if it has no suite, has not sent it, or it was taken before."""
        return Collected.decode(self._texts.pop()) if self._texts else None


_CACHED = "llmeval/trees_that_are_right"
_INPUT = _OUTPUT = "llmeval_trees_that_are_right"
_MOST = 256
"""The number of keys that are kept, the newest."""
_KEY = re.compile("[0-9a-f]{64}")
"""The form of a key, a hash: other content of a damaged file could perhaps not be written again."""

_findings_key: pytest.StashKey[Findings] = pytest.StashKey()


def findings_of(config: pytest.Config) -> Findings:
    """Return what this process knows of models: which ways of computing were found to be right."""
    from pytest_llmeval.models.findings import Findings

    if _findings_key not in config.stash:
        given: dict[str, object] | None = getattr(config, "workerinput", None)
        known = _read(config) if given is None else _keys(given.get(_INPUT))
        config.stash[_findings_key] = Findings(
            known, keep=lambda key: _keep(config, [key]), folder=shared_folder(config)
        )
    return config.stash[_findings_key]


def share_findings(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Give a worker the findings that the controller knows, before it starts."""
    workerinput[_INPUT] = _read(config)


def add_findings(config: pytest.Config, workeroutput: dict[str, Any]) -> None:
    """Keep the findings of a worker."""
    if found := _keys(workeroutput.get(_OUTPUT)):
        _keep(config, found)


def _keep(config: pytest.Config, new: Iterable[str]) -> None:
    if is_worker(config):
        config.workeroutput.setdefault(_OUTPUT, []).extend(new)  # type: ignore[attr-defined]
        return
    cache: pytest.Cache | None = getattr(config, "cache", None)  # None under -p no:cacheprovider
    if cache is None:
        return
    known = _read(config)
    kept = list(dict.fromkeys([*known, *new]))[-_MOST:]
    if kept != known:
        with warnings.catch_warnings():  # pytest itself warns of a cache that cannot be written
            warnings.simplefilter("ignore")
            cache.set(_CACHED, kept)


def _read(config: pytest.Config) -> list[str]:
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is None:
        return []
    try:
        return _keys(cache.get(_CACHED, None))
    except RecursionError:  # the JSON of a damaged file may be nested deeply; of other damage pytest makes the default
        return []


def _keys(found: object) -> list[str]:
    """Return the newest keys of a value that was read, or that a worker sent; none if it is damaged."""
    if not isinstance(found, list):
        return []
    return [key for key in found if isinstance(key, str) and _KEY.fullmatch(key)][-_MOST:]
