"""Decides which samples are asked for together, in chunks, which chunk a worker of pytest-xdist takes next, and which
samples are scored by the slow path too, before the fast one is trusted with their suite.

The plan is a pure function of node ids, number of workers and chunk size, so that the controller of
pytest-xdist and its workers, who exchange no more than node ids, each make the same one.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Literal, TypeAlias

from pytest_llmeval.text.names import split_file

__all__ = [
    "DEFAULT_CHUNK_SIZE",
    "KEEPS_FILES",
    "WorkQueue",
    "WorkUnit",
    "choose_audited",
    "choose_spares",
    "chunk_size",
    "group_of",
    "plan_chunks",
    "plan_others",
    "plan_tests",
    "worker_key_of",
]

DEFAULT_CHUNK_SIZE = 128
"""Samples asked for together: enough for a prefix tree to pay, few enough that ``-x`` wastes little."""
_CHUNKS_PER_WORKER = 4
"""The least number of chunks for each worker, so that one slow chunk leaves the others something to do."""
KEEPS_FILES = ("loadfile", "loadscope")
"""Modes of ``--dist`` under which one worker runs the whole of a suite."""
_TESTS_PER_UNIT = 16
_UNITS_PER_WORKER = 8
"""The most tests of a unit that are not samples, and the least number of such units for each worker, so that all are
busy to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnit:
    """Tests that a worker is given in one piece. ``places`` count from 0 in the order of collection.

    A ``chunk`` holds samples of one group, which are asked for together. ``tests`` are not samples and run one after
    another. Samples in ``quarantine`` were asked for together when a worker died: now each is asked for alone. Units
    with the same ``worker_key`` run on one worker, unless it dies; an empty key binds nothing.
    """

    places: tuple[int, ...]
    kind: Literal["chunk", "tests", "quarantine"]
    group: str = ""
    worker_key: str = ""


def group_of(nodeid: str) -> str:
    """Return the node id of a sample's suite, with its model's name if there are several models."""
    return nodeid.rpartition("::")[0]


def worker_key_of(nodeid: str, mode: str) -> str:
    """Return a key that all tests share which a mode of ``--dist`` keeps on one worker; empty if there are none.

    The definitions are pytest-xdist's. ``loadfile``: the test's file. ``loadscope``: its class, else its file.
    ``loadgroup``: the group of its mark ``xdist_group``, which pytest-xdist writes behind the node id; an ``@`` in a
    folder's name begins none.
    """
    match mode:
        case "loadfile":
            return nodeid.partition("::")[0]
        case "loadscope":
            return nodeid.rsplit("::", 1)[0]
        case "loadgroup" if "@" in nodeid:
            levels = split_file(nodeid)[1]
            return levels.rpartition("@")[2] if levels.rfind("@") > levels.rfind("]") else ""
    return ""


def chunk_size(num_samples: int, *, limit: int, num_workers: int) -> int:
    """Return the most samples of a chunk: ``limit``, or fewer if workers would have less than four chunks each."""
    if num_workers == 0:
        return limit
    return max(1, min(limit, num_samples // (num_workers * _CHUNKS_PER_WORKER)))


def plan_chunks(
    samples: Sequence[tuple[int, str]], *, limit: int, num_workers: int = 0, mode: str = "load"
) -> list[WorkUnit]:
    """Cut ``samples``, each its place and node id, into chunks of one group, as equal in size as can be.

    Groups come in the order in which they first appear, a group's chunks one after another, and the samples of a chunk
    in their own order, so that a shuffled order batches no worse. ``num_workers`` 0 is a session of one process. Chunks
    have the worker keys of ``mode``, one of pytest-xdist's. If it keeps suites whole, workers need no small chunks.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for place, nodeid in samples:
        groups.setdefault((group_of(nodeid), worker_key_of(nodeid, mode)), []).append(place)
    size = chunk_size(len(samples), limit=limit, num_workers=0 if mode in KEEPS_FILES else num_workers)
    return [
        WorkUnit(places=places, kind="chunk", group=group, worker_key=worker_key)
        for (group, worker_key), members in groups.items()
        for places in _cut(members, size)
    ]


def plan_tests(
    tests: Sequence[tuple[int, str]], *, num_workers: int, mode: str, largest_first: bool = True
) -> list[WorkUnit]:
    """Return units of the tests that are not samples, each given by its place and node id.

    Tests that ``mode`` keeps together are one unit.
    """
    worker_keys: dict[str, list[int]] = {}
    for place, nodeid in tests:
        worker_keys.setdefault(worker_key_of(nodeid, mode), []).append(place)
    free = worker_keys.pop("", [])
    units = [
        WorkUnit(places=tuple(places), kind="tests", worker_key=worker_key)
        for worker_key, places in worker_keys.items()
    ]
    if largest_first:
        units.sort(key=lambda unit: -len(unit.places))
    return [*units, *plan_others(free, num_workers=num_workers)]


def plan_others(places: Sequence[int], *, num_workers: int) -> list[WorkUnit]:
    """Cut the tests that are not samples into small runs of neighbours, which share fixtures."""
    size = max(1, min(_TESTS_PER_UNIT, len(places) // (num_workers * _UNITS_PER_WORKER)))
    return [WorkUnit(places=cut, kind="tests") for cut in _cut(places, size)]


def _cut(members: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    parts = -(-len(members) // size)
    bounds = [-(-part * len(members) // parts) for part in range(parts + 1)] if parts else []
    return (tuple(members[start:end]) for start, end in pairwise(bounds))


_Key: TypeAlias = tuple[str | int, str]
"""The key of a queue: a group, or the number of a unit without group, and the worker key of its units."""
_Rank: TypeAlias = tuple[int, ...]
"""The rank of a queue, which no other queue of its ``_WorkerQueues`` has."""


class _WorkerQueues:
    """Queues of units, ordered by rank.

    A worker may take from queues whose worker key is its own or has no owner. There can be as many keys as tests, so
    not every queue is looked at for each unit: a queue of another worker that comes to the top of the common heap moves
    to that worker's heap. A queue is in a heap once for each rank that it had; only its last rank counts.
    """

    def __init__(self, owners: Mapping[str, object]) -> None:
        self.queues: dict[_Key, deque[WorkUnit]] = {}
        self._owners = owners
        self._ranks: dict[_Key, _Rank] = {}
        self._of_all: list[tuple[_Rank, _Key]] = []
        self._of_one: dict[object, list[tuple[_Rank, _Key]]] = {}

    def rank(self, key: _Key, rank: _Rank) -> None:
        """Give a queue its first or a new rank."""
        self._ranks[key] = rank
        heappush(self._of_all, (rank, key))

    def pop(self, key: _Key) -> None:
        """Remove the first unit of a queue, and the queue if it is empty then."""
        self.queues[key].popleft()
        if not self.queues[key]:
            del self.queues[key], self._ranks[key]

    def is_free(self, key: _Key, worker: object) -> bool:
        """Tell whether there is such a queue and ``worker`` may take from it."""
        return key in self.queues and self._owner(key, worker) == worker

    def first(self, worker: object) -> _Key | None:
        """Return the queue of the least rank from which ``worker`` may take."""
        heads = [self._head(heap, worker) for heap in (self._of_all, self._of_one.get(worker, []))]
        return min((head for head in heads if head is not None), default=((), None))[1]

    def _head(self, heap: list[tuple[_Rank, _Key]], worker: object) -> tuple[_Rank, _Key] | None:
        while heap:
            rank, key = heap[0]
            if self._ranks.get(key) != rank:
                heappop(heap)
            elif (owner := self._owner(key, worker)) == worker:
                return heap[0]
            else:
                heappush(self._of_one.setdefault(owner, []), heappop(heap))
        return None

    def _owner(self, key: _Key, worker: object) -> object:
        return self._owners.get(key[1], worker)

    def release(self, worker: object) -> None:
        """Return this worker's queues to the common heap."""
        for head in self._of_one.pop(worker, []):
            heappush(self._of_all, head)


class WorkQueue:
    """Units that no worker has been given yet, and the order in which workers take them.

    A model is loaded once in each worker, so all units of one model go before the next model's. So do those of a
    variant, since the next variant finds in the store what it asks as well. Among these a worker stays with its group,
    whose shared header it has computed. Then it begins a group that no worker has begun, the largest first, then it
    helps with the group that has most left. Tests that are not samples come after all chunks, and samples that may kill
    their worker come last. The worker that takes the first unit of a worker key is the only one to take the others.
    """

    def __init__(self, chunks: Iterable[WorkUnit], others: Iterable[WorkUnit] = ()) -> None:
        self._owners: dict[str, object] = {}
        self._models: dict[str, _WorkerQueues] = {}
        self._others, self._quarantine = _WorkerQueues(self._owners), _WorkerQueues(self._owners)
        self._last: dict[object, _Key] = {}
        self._sizes: dict[_Key, int] = {}
        for chunk in chunks:
            self._queue_of(chunk).append(chunk)
            self._sizes[_key(chunk)] = self._sizes.get(_key(chunk), 0) + len(chunk.places)
        largest_first = sorted(self._sizes, key=lambda key: -self._sizes[key])
        self._orders = {key: order for order, key in enumerate(largest_first)}
        self._untouched = set(self._sizes)
        for ranked in self._models.values():
            for key in ranked.queues:
                ranked.rank(key, self._rank(key))
        self._later, self._sooner = count(), count(-1, -1)
        for unit in others:
            _put(self._others, unit, next(self._later))

    def _queue_of(self, chunk: WorkUnit) -> deque[WorkUnit]:
        ranked = self._models.setdefault(_model_of(chunk.group), _WorkerQueues(self._owners))
        return ranked.queues.setdefault(_key(chunk), deque())

    def _rank(self, key: _Key) -> _Rank:
        order = self._orders[key]
        return (0, order) if key in self._untouched else (1, -self._sizes[key], order)

    @property
    def _all_queues(self) -> tuple[_WorkerQueues, ...]:
        return *self._models.values(), self._others, self._quarantine

    def __bool__(self) -> bool:
        return bool(self._models or self._others.queues or self._quarantine.queues)  # a model without queues is gone

    def has_for(self, worker: object) -> bool:
        """Tell whether there is a unit that ``worker`` may take."""
        return any(ranked.first(worker) is not None for ranked in self._all_queues)

    def take(self, worker: object) -> WorkUnit | None:
        """Remove and return the next unit for ``worker``; None if there is none that it may take."""
        for ranked in self._all_queues:
            key = ranked.first(worker)
            if key is not None:
                last = self._last.get(worker)
                return self._take(ranked, last if last is not None and ranked.is_free(last, worker) else key, worker)
        return None

    def _take(self, ranked: _WorkerQueues, key: _Key, worker: object) -> WorkUnit:
        unit = ranked.queues[key][0]
        ranked.pop(key)
        if unit.worker_key:
            self._owners[unit.worker_key] = worker
        if unit.kind == "chunk":
            self._last[worker] = key
            self._untouched.discard(key)
            self._sizes[key] -= len(unit.places)
            if key in ranked.queues:
                ranked.rank(key, self._rank(key))
            if not ranked.queues:
                del self._models[_model_of(unit.group)]
        return unit

    def put_back(self, unit: WorkUnit) -> None:
        """Put back a unit that a worker was given and had not begun, or the rest of a unit of ``tests``."""
        if unit.kind == "chunk":
            key = _key(unit)
            self._queue_of(unit).appendleft(unit)
            self._sizes[key] += len(unit.places)
            self._models[_model_of(unit.group)].rank(key, self._rank(key))
        else:
            _put(self._others if unit.kind == "tests" else self._quarantine, unit, next(self._sooner))

    def quarantine(self, places: Iterable[int], worker_key: str = "") -> None:
        """Put back the rest of a chunk whose worker died: for one worker, and in the order opposite to the chunk's.

        A worker asks for a sample's neighbours if the test that it runs next is the chunk's next sample (see
        ``Batcher``). In the opposite order, and with the rest in one piece, that is never so: each is asked alone.
        """
        unit = WorkUnit(places=tuple(sorted(places, reverse=True)), kind="quarantine", worker_key=worker_key)
        _put(self._quarantine, unit, next(self._later))

    def release(self, worker: object) -> None:
        """Let other workers take the units that were bound to this worker, which takes nothing more."""
        for worker_key in [worker_key for worker_key, owner in self._owners.items() if owner == worker]:
            del self._owners[worker_key]
        for ranked in self._all_queues:
            ranked.release(worker)

    def clear(self) -> None:
        """Drop all units."""
        self._models.clear()
        self._others, self._quarantine = _WorkerQueues(self._owners), _WorkerQueues(self._owners)


def _put(ranked: _WorkerQueues, unit: WorkUnit, number: int) -> None:
    """Add a unit as a queue of its own, ordered by number: tests that are not samples, or samples in quarantine."""
    ranked.queues[number, unit.worker_key] = deque([unit])
    ranked.rank((number, unit.worker_key), (number,))


def _key(unit: WorkUnit) -> _Key:
    return unit.group, unit.worker_key


def _model_of(group: str) -> str:
    """Return the levels above the group's samples in node ids, below its suite: of the model and of the variant."""
    file, _, levels = group.partition("::")
    return levels.partition("::")[2] if file.endswith(".py") else levels


_ONE_IN = 200
_MOST = 16
"""Every process that runs the suite does the audit before its first answer, so a large suite's must stay small."""


def choose_audited(sizes: Mapping[str, int]) -> list[str]:
    """Return ids of the longest sample and of one in 200 others, at most 16 of those; ``sizes`` are lengths by id.

    The longest reaches across every limit that any sample does: a window, a switch of rotary angles. The others are
    drawn by their ids, so that no other sample, worker or run changes who they are.
    """
    if not sizes:
        return []
    longest = max(sizes, key=lambda sample_id: (sizes[sample_id], sample_id))
    others = sorted((sample_id for sample_id in sizes if sample_id != longest), key=_draw)
    return [longest, *others[: min(_MOST, len(sizes) // _ONE_IN)]]


def choose_spares(sizes: Mapping[str, int]) -> list[str]:
    """Return ids of ever shorter samples, to try one by one if none of ``choose_audited`` fits into the model."""
    by_size = sorted(sizes, key=lambda sample_id: (-sizes[sample_id], sample_id))
    places = {len(by_size) * part // 8 for part in range(8)} | {len(by_size) - 1}
    return [by_size[place] for place in sorted(places) if 0 < place < len(by_size)]


def _draw(sample_id: str) -> bytes:
    return hashlib.sha256(f"audit:{sample_id}".encode("utf-8", "surrogatepass")).digest()
