"""Chunks: which samples are asked for together, and which of those chunks a worker takes next.

Pure. The plan is a function of node ids, number of workers and chunk size alone, so that the controller of
pytest-xdist and its workers, who exchange no more than node ids, each make the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Literal, TypeAlias

from pytest_llmeval.text.node_ids import split_file

__all__ = [
    "DEFAULT_CHUNK_SIZE",
    "KEEPS_FILES",
    "Backlog",
    "Unit",
    "bond_of",
    "chunk_size",
    "group_of",
    "plan_bonded",
    "plan_chunks",
    "plan_others",
]

DEFAULT_CHUNK_SIZE = 128
"""Samples asked for together: enough for a prefix tree to pay, few enough that ``-x`` wastes little."""

_CHUNKS_PER_WORKER = 4
"""The least number of chunks for each worker, so that one slow chunk leaves the others something to do."""

KEEPS_FILES = ("loadfile", "loadscope")
"""Modes of ``--dist`` under which one worker runs the whole of a suite."""

_TESTS_PER_UNIT = 16
_UNITS_PER_WORKER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a worker is given in one piece. ``places`` count from 0 in the order of collection.

    A ``chunk`` holds samples of one group, asked for together. ``tests`` are not samples, run one after another. Those
    in ``quarantine`` were to be asked for together when a worker died: each is asked for alone. Units of one ``bond``
    run on one worker, unless it dies; an empty text is no bond.
    """

    places: tuple[int, ...]
    kind: Literal["chunk", "tests", "quarantine"]
    group: str = ""
    bond: str = ""


def group_of(nodeid: str) -> str:
    """The suite's node, with the model's where there are several: what stands before a sample's own name."""
    return nodeid.rpartition("::")[0]


def bond_of(nodeid: str, mode: str) -> str:
    """What a mode of ``--dist`` keeps on one worker with this test, in pytest-xdist's own definition; empty if nothing.

    ``loadfile``: its file. ``loadscope``: its class, else its file. ``loadgroup``: the group of its mark
    ``xdist_group``, which pytest-xdist writes behind the node id; an ``@`` in a folder's name begins none.
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
    """The most samples that a chunk holds: ``limit``, or fewer where workers would have less than four chunks each."""
    if num_workers == 0:
        return limit
    return max(1, min(limit, num_samples // (num_workers * _CHUNKS_PER_WORKER)))


def plan_chunks(
    samples: Sequence[tuple[int, str]], *, limit: int, num_workers: int = 0, mode: str = "load"
) -> list[Unit]:
    """Cut ``samples``, each its place and node id, into chunks of one group, as equal in size as can be.

    Groups come in the order in which they first appear, a group's chunks one after another, and the samples of a chunk
    in their own order, so that a shuffled order batches no worse. ``num_workers`` 0 is a session of one process. Chunks
    have the bonds of ``mode``, one of pytest-xdist's; where it keeps suites whole, workers need no small chunks.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for place, nodeid in samples:
        groups.setdefault((group_of(nodeid), bond_of(nodeid, mode)), []).append(place)
    size = chunk_size(len(samples), limit=limit, num_workers=0 if mode in KEEPS_FILES else num_workers)
    return [
        Unit(places=places, kind="chunk", group=group, bond=bond)
        for (group, bond), members in groups.items()
        for places in _cut(members, size)
    ]


def plan_bonded(
    tests: Sequence[tuple[int, str]], *, num_workers: int, mode: str, largest_first: bool = True
) -> list[Unit]:
    """Units of the tests that are not samples, each its place and node id: what ``mode`` keeps together is one unit."""
    bonds: dict[str, list[int]] = {}
    for place, nodeid in tests:
        bonds.setdefault(bond_of(nodeid, mode), []).append(place)
    free = bonds.pop("", [])
    units = [Unit(places=tuple(places), kind="tests", bond=bond) for bond, places in bonds.items()]
    if largest_first:
        units.sort(key=lambda unit: -len(unit.places))
    return [*units, *plan_others(free, num_workers=num_workers)]


def plan_others(places: Sequence[int], *, num_workers: int) -> list[Unit]:
    """Cut the tests that are not samples into small runs of neighbours, which share fixtures."""
    size = max(1, min(_TESTS_PER_UNIT, len(places) // (num_workers * _UNITS_PER_WORKER)))
    return [Unit(places=cut, kind="tests") for cut in _cut(places, size)]


def _cut(members: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    parts = -(-len(members) // size)
    bounds = [-(-part * len(members) // parts) for part in range(parts + 1)] if parts else []
    return (tuple(members[start:end]) for start, end in pairwise(bounds))


_Key: TypeAlias = tuple[str | int, str]
"""What a queue is of, a group or the number of a unit that has none, and the bond of its units."""
_Rank: TypeAlias = tuple[int, ...]
"""Of a queue; no two of one lane have the same."""


class _Lane:
    """Queues of units; the queue of the least rank goes first.

    A worker may take from those whose bond is its own or has no owner. Bonds can be as many as tests, so not every
    queue is looked at for each unit: what comes to the top of the heap of all and is another worker's moves to that
    one's heap. A queue is in a heap once for each rank that it had; only its last counts.
    """

    def __init__(self, owners: Mapping[str, object]) -> None:
        self.queues: dict[_Key, deque[Unit]] = {}
        self._owners = owners
        self._ranks: dict[_Key, _Rank] = {}
        self._of_all: list[tuple[_Rank, _Key]] = []
        self._of_one: dict[object, list[tuple[_Rank, _Key]]] = {}

    def rank(self, key: _Key, rank: _Rank) -> None:
        """Give a queue its rank, the first or another."""
        self._ranks[key] = rank
        heappush(self._of_all, (rank, key))

    def pop(self, key: _Key) -> None:
        """Take the first unit out of a queue, and the queue away when it is empty."""
        self.queues[key].popleft()
        if not self.queues[key]:
            del self.queues[key], self._ranks[key]

    def is_free(self, key: _Key, worker: object) -> bool:
        """Whether there is such a queue, and ``worker`` may take from it."""
        return key in self.queues and self._owner(key, worker) == worker

    def first(self, worker: object) -> _Key | None:
        """The queue of the least rank of those that ``worker`` may take from."""
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
        """What was this worker's is for all."""
        for head in self._of_one.pop(worker, []):
            heappush(self._of_all, head)


class Backlog:
    """Units that no worker has been given, and which one a worker had best take.

    A model loads once in each worker, so all work of one model goes before the next model's. Within a model a worker
    stays with its group, whose shared header it has computed, then begins one that no worker has begun, the largest
    first, then helps with the one that has most left. Tests that are not samples come after all chunks. Last comes what
    may kill its worker. Who takes the first unit of a bond is the only one to take the others.
    """

    def __init__(self, chunks: Iterable[Unit], others: Iterable[Unit] = ()) -> None:
        self._owners: dict[str, object] = {}
        self._models: dict[str, _Lane] = {}
        self._others, self._quarantine = _Lane(self._owners), _Lane(self._owners)
        self._last: dict[object, _Key] = {}
        self._sizes: dict[_Key, int] = {}
        for chunk in chunks:
            self._queue_of(chunk).append(chunk)
            self._sizes[_key(chunk)] = self._sizes.get(_key(chunk), 0) + len(chunk.places)
        largest_first = sorted(self._sizes, key=lambda key: -self._sizes[key])
        self._orders = {key: order for order, key in enumerate(largest_first)}
        self._untouched = set(self._sizes)
        for lane in self._models.values():
            for key in lane.queues:
                lane.rank(key, self._rank(key))
        self._later, self._sooner = count(), count(-1, -1)
        for unit in others:
            _put(self._others, unit, next(self._later))

    def _queue_of(self, chunk: Unit) -> deque[Unit]:
        lane = self._models.setdefault(_model_of(chunk.group), _Lane(self._owners))
        return lane.queues.setdefault(_key(chunk), deque())

    def _rank(self, key: _Key) -> _Rank:
        order = self._orders[key]
        return (0, order) if key in self._untouched else (1, -self._sizes[key], order)

    @property
    def _lanes(self) -> tuple[_Lane, ...]:
        return *self._models.values(), self._others, self._quarantine

    def __bool__(self) -> bool:
        return bool(self._models or self._others.queues or self._quarantine.queues)  # a model without queues is gone

    def has_for(self, worker: object) -> bool:
        """Whether there is a unit that ``worker`` may take."""
        return any(lane.first(worker) is not None for lane in self._lanes)

    def take(self, worker: object) -> Unit | None:
        """The next unit for ``worker``; None when there is none that it may take."""
        for lane in self._lanes:
            key = lane.first(worker)
            if key is not None:
                last = self._last.get(worker)
                return self._take(lane, last if last is not None and lane.is_free(last, worker) else key, worker)
        return None

    def _take(self, lane: _Lane, key: _Key, worker: object) -> Unit:
        unit = lane.queues[key][0]
        lane.pop(key)
        if unit.bond:
            self._owners[unit.bond] = worker
        if unit.kind == "chunk":
            self._last[worker] = key
            self._untouched.discard(key)
            self._sizes[key] -= len(unit.places)
            if key in lane.queues:
                lane.rank(key, self._rank(key))
            if not lane.queues:
                del self._models[_model_of(unit.group)]
        return unit

    def put_back(self, unit: Unit) -> None:
        """Take in a unit that a worker was given and had not begun, or what is left of ``tests``."""
        if unit.kind == "chunk":
            key = _key(unit)
            self._queue_of(unit).appendleft(unit)
            self._sizes[key] += len(unit.places)
            self._models[_model_of(unit.group)].rank(key, self._rank(key))
        else:
            _put(self._others if unit.kind == "tests" else self._quarantine, unit, next(self._sooner))

    def quarantine(self, places: Iterable[int], bond: str = "") -> None:
        """Take in the rest of a chunk whose worker died: for one worker, and in the order opposite to the chunk's.

        A worker asks for a sample's neighbours when what it runs next is the chunk's next sample (see ``Lookahead``):
        backwards, and with the rest in one piece, that is never so, and each is asked for alone.
        """
        unit = Unit(places=tuple(sorted(places, reverse=True)), kind="quarantine", bond=bond)
        _put(self._quarantine, unit, next(self._later))

    def release(self, worker: object) -> None:
        """This worker takes nothing more: what it was the only one to take is for the others."""
        for bond in [bond for bond, owner in self._owners.items() if owner == worker]:
            del self._owners[bond]
        for lane in self._lanes:
            lane.release(worker)

    def clear(self) -> None:
        """Give up all work."""
        self._models.clear()
        self._others, self._quarantine = _Lane(self._owners), _Lane(self._owners)


def _put(lane: _Lane, unit: Unit, number: int) -> None:
    """Tests that are not samples, and what may kill its worker, go by number: each unit is a queue of its own."""
    lane.queues[number, unit.bond] = deque([unit])
    lane.rank((number, unit.bond), (number,))


def _key(unit: Unit) -> _Key:
    return unit.group, unit.bond


def _model_of(group: str) -> str:
    file, _, levels = group.partition("::")
    return levels.partition("::")[2] if file.endswith(".py") else levels
