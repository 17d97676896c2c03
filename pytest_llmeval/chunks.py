"""Chunks: which samples are asked for together, and which of those chunks a worker takes next.

Pure. The plan is a function of node ids, number of workers and chunk size alone, so that the controller of
pytest-xdist and its workers, who exchange no more than node ids, each make the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

__all__ = ["DEFAULT_CHUNK_SIZE", "Backlog", "Unit", "chunk_size", "group_of", "plan_chunks", "plan_others"]

DEFAULT_CHUNK_SIZE = 64
"""Samples asked for together: enough for a prefix tree to pay, few enough that ``-x`` wastes little."""

_CHUNKS_PER_WORKER = 4
"""The least number of chunks for each worker, so that one slow chunk leaves the others something to do."""

_TESTS_PER_UNIT = 16
_UNITS_PER_WORKER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a worker is given in one piece. ``places`` count from 0 in the order of collection.

    A ``chunk`` holds samples of one group, asked for together. ``tests`` are not samples, run one after another. Those
    in ``quarantine`` were to be asked for together when a worker died: each is asked for alone.
    """

    places: tuple[int, ...]
    kind: Literal["chunk", "tests", "quarantine"]
    group: str = ""


def group_of(nodeid: str) -> str:
    """The suite's node, with the model's where there are several: what stands before a sample's own name."""
    return nodeid.rpartition("::")[0]


def chunk_size(num_samples: int, *, limit: int, num_workers: int) -> int:
    """The most samples that a chunk holds: ``limit``, or fewer where workers would have less than four chunks each."""
    if num_workers == 0:
        return limit
    return max(1, min(limit, num_samples // (num_workers * _CHUNKS_PER_WORKER)))


def plan_chunks(samples: Sequence[tuple[int, str]], *, limit: int, num_workers: int = 0) -> list[Unit]:
    """Cut ``samples``, each its place and node id, into chunks of one group, as equal in size as can be.

    Groups come in the order in which they first appear, a group's chunks one after another, and the samples of a chunk
    in their own order, so that a shuffled order batches no worse. ``num_workers`` 0 is a session of one process.
    """
    groups: dict[str, list[int]] = {}
    for place, nodeid in samples:
        groups.setdefault(group_of(nodeid), []).append(place)
    size = chunk_size(len(samples), limit=limit, num_workers=num_workers)
    return [
        Unit(places=places, kind="chunk", group=group)
        for group, members in groups.items()
        for places in _cut(members, size)
    ]


def plan_others(places: Sequence[int], *, num_workers: int) -> list[Unit]:
    """Cut the tests that are no samples into small runs of neighbours, which share fixtures."""
    size = max(1, min(_TESTS_PER_UNIT, len(places) // (num_workers * _UNITS_PER_WORKER)))
    return [Unit(places=cut, kind="tests") for cut in _cut(places, size)]


def _cut(members: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    count = -(-len(members) // size)
    bounds = [-(-part * len(members) // count) for part in range(count + 1)] if count else []
    return (tuple(members[start:end]) for start, end in pairwise(bounds))


class Backlog:
    """Units that no worker has been given, and which one a worker had best take.

    A model loads once in each worker, so all work of one model goes before the next model's. Within a model a worker
    stays with its group, whose shared header it has computed, then begins one that nobody has begun, the largest first,
    then helps with the one that has most left. Tests that are no samples come after all chunks. Last comes what may
    kill its worker.
    """

    def __init__(self, chunks: Iterable[Unit], others: Iterable[Unit] = ()) -> None:
        self._models: dict[str, dict[str, deque[Unit]]] = {}
        self._untouched: set[str] = set()
        self._sizes: dict[str, int] = {}
        for chunk in chunks:
            self._of(chunk.group).append(chunk)
            self._sizes[chunk.group] = self._sizes.get(chunk.group, 0) + len(chunk.places)
        self._untouched.update(self._sizes)
        for model, groups in self._models.items():
            largest_first = sorted(groups.items(), key=lambda item: -self._sizes[item[0]])
            self._models[model] = dict(largest_first)
        self._others = deque(others)
        self._quarantine: deque[Unit] = deque()
        self._last_group: dict[object, str] = {}

    def _of(self, group: str) -> deque[Unit]:
        return self._models.setdefault(_model_of(group), {}).setdefault(group, deque())

    def __bool__(self) -> bool:
        return bool(self._models or self._others or self._quarantine)

    def take(self, worker: object) -> Unit:
        """The next unit for ``worker``. Raises ``IndexError`` when there is none."""
        if self._models:
            return self._take_chunk(worker)
        return (self._others or self._quarantine).popleft()

    def _take_chunk(self, worker: object) -> Unit:
        model, groups = next(iter(self._models.items()))
        group = self._last_group.get(worker)
        if group not in groups:
            fresh = (name for name in groups if name in self._untouched)
            group = next(fresh, None) or max(groups, key=lambda name: self._sizes[name])
        chunk = groups[group].popleft()
        self._last_group[worker] = group
        self._untouched.discard(group)
        self._sizes[group] -= len(chunk.places)
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._models[model]
        return chunk

    def put_back(self, unit: Unit) -> None:
        """Take in a unit that a worker was given and had not begun, or what is left of ``tests``."""
        if unit.kind == "chunk":
            self._of(unit.group).appendleft(unit)
            self._sizes[unit.group] += len(unit.places)
        elif unit.kind == "tests":
            self._others.appendleft(unit)
        else:
            self._quarantine.appendleft(unit)

    def quarantine(self, places: Iterable[int]) -> None:
        """Take in the rest of a chunk whose worker died: for one worker, and in the order opposite to the chunk's.

        A worker asks for a sample's neighbours when what it runs next is the chunk's next sample (see ``Lookahead``):
        backwards, and with the rest in one piece, that is never so, and each is asked for alone.
        """
        self._quarantine.append(Unit(places=tuple(sorted(places, reverse=True)), kind="quarantine"))

    def clear(self) -> None:
        """Give up all work."""
        self._models.clear()
        self._others.clear()
        self._quarantine.clear()


def _model_of(group: str) -> str:
    file, _, levels = group.partition("::")
    return levels.partition("::")[2] if file.endswith(".py") else levels
