"""The schedulers: they give workers of pytest-xdist chunks that are asked together, and find why a worker has died.

A worker asks the model for a whole chunk when it runs the chunk's first sample. So it is given whole chunks. When it
dies, the rest of its chunk is asked sample by sample: only a sample that kills its worker alone is to blame.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol

from pytest_llmeval.inference.chunks import WorkQueue, WorkUnit

__all__ = ["ChunkScheduling", "Node", "Restarts", "SessionScheduling"]


class Node(Protocol):
    """The part of ``xdist.workermanage.WorkerController`` that the scheduler needs."""

    @property
    def gateway(self) -> Any: ...

    @property
    def shutting_down(self) -> bool: ...

    def send_runtest_some(self, indices: Sequence[int]) -> None: ...

    def shutdown(self) -> None: ...


class Restarts:
    """The number of workers that died, and of those that pytest-xdist replaces."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.num_deaths = 0

    @property
    def next_is_replaced(self) -> bool:
        """Tell whether a worker that dies from now on is replaced."""
        return self._limit is None or self.num_deaths < self._limit

    @property
    def are_used_up(self) -> bool:
        """Tell whether a worker died and was not replaced. From then on pytest-xdist takes in no new worker."""
        return self._limit is not None and self.num_deaths > self._limit


class ChunkScheduling:
    """A scheduler of pytest-xdist (its Protocol ``Scheduling``) for sessions with samples.

    :param num_nodes: the number of workers that the session begins with.
    :param plan: makes the work from the node ids that every worker has collected.
    :param restarts: hears of a worker's death before ``remove_node`` is called.
    :param is_stopping: tells whether the session ends before its work is done (``-x``, Ctrl-C).
    :param refuse: reports that a node collected other tests than another: their collections, then the nodes.
    """

    def __init__(
        self,
        *,
        num_nodes: int,
        plan: Callable[[Sequence[str]], WorkQueue],
        restarts: Restarts,
        is_stopping: Callable[[], bool],
        refuse: Callable[[Sequence[str], Sequence[str], Node, Node], None],
    ) -> None:
        self._num_nodes = num_nodes
        self._plan = plan
        self._restarts = restarts
        self._is_stopping = is_stopping
        self._refuse = refuse
        self._pending: dict[Node, deque[int]] = {}
        self._collections: dict[Node, Sequence[str]] = {}
        self._reference: Node | None = None
        self._nodeids: Sequence[str] | None = None
        self._work_queue = WorkQueue(())
        self._unit_of: dict[int, WorkUnit] = {}
        self._open: set[int] = set()

    @property
    def nodes(self) -> list[Node]:
        """Return the workers that pytest-xdist may shut down.

        It asks for them also when one has died that it will not replace. The others take over its work then, so they
        are left out here before all is done.
        """
        if self._nodeids is not None and self._restarts.are_used_up and not self.tests_finished:
            return [node for node in self._pending if node not in self._collections]
        return list(self._pending)

    @property
    def collections(self) -> Mapping[Node, Sequence[str]]:
        return self._collections

    @property
    def collection_is_completed(self) -> bool:
        """Tell whether all workers that the session began with, or their replacements, have collected."""
        return self._nodeids is not None or len(self._collections) >= self._num_nodes

    @property
    def tests_finished(self) -> bool:
        """Tell whether workers get no more tests. A worker runs its last test when it learns that none follows."""
        if self._is_stopping():
            return True
        if self._work_queue:  # pytest-xdist asks after each message
            return False
        return self.collection_is_completed and all(len(pending) < 2 for pending in self._pending.values())

    @property
    def has_pending(self) -> bool:
        return bool(self._work_queue) or any(self._pending.values())

    @property
    def unfinished(self) -> list[str] | None:
        """Return node ids of tests neither completed nor blamed for a worker's death, in the order of collection.

        None as long as there is no plan.
        """
        return None if self._nodeids is None else [self._nodeids[place] for place in sorted(self._open)]

    def add_node(self, node: Node) -> None:
        self._pending[node] = deque()

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        """Take what a worker has collected; a worker that came later must have found the same tests."""
        if self._nodeids is None or self._reference is None or collection == self._nodeids:
            self._collections[node] = collection
            return
        self._refuse(self._nodeids, collection, self._reference, node)
        del self._pending[node]
        node.shutdown()
        if all(other.shutting_down for other in self._collections):
            self._work_queue.clear()  # no worker is left to take it

    def schedule(self) -> None:
        """Give work to every worker that wants some; the first call makes the plan."""
        if self._nodeids is not None or self._begin():
            self._feed(self._pending)

    def _begin(self) -> bool:
        (reference, nodeids), *others = self._collections.items()
        differing = [(node, collection) for node, collection in others if collection != nodeids]
        for node, collection in differing:
            self._refuse(nodeids, collection, reference, node)
        if differing:
            return False
        self._nodeids, self._reference = nodeids, reference
        self._collections = {node: found for node, found in self._collections.items() if node in self._pending}
        self._work_queue = self._plan(nodeids)
        self._open.update(range(len(nodeids)))
        return True

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        pending = self._pending[node]
        if pending and pending[0] == item_index:
            pending.popleft()
        else:
            pending.remove(item_index)
        self._open.discard(item_index)
        if self._is_stopping():
            self.stop()
        elif len(pending) < self._low_water(pending):
            self._feed([node] if self._restarts.next_is_replaced else self._pending)

    def mark_test_pending(self, item: str) -> None:
        """Run a test once more: for plugins that give a test that killed its worker a second chance."""
        if self._nodeids is None:
            raise RuntimeError(f"{item} cannot run again: nothing has run")
        place = self._nodeids.index(item)
        self._open.add(place)
        self._work_queue.quarantine(
            [place], worker_key=self._unit_of[place].worker_key if place in self._unit_of else ""
        )
        self._feed(self._pending)

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        """Raise ``NotImplementedError``: only schedulers that take tests back implement it."""
        raise NotImplementedError

    def remove_node(self, node: Node) -> str | None:
        """Give the work of a worker that has ended to others. Return the test that it died of, if that is known.

        Raises ``KeyError`` for a worker that is not here, as pytest-xdist expects.
        """
        pending = self._pending.pop(node)
        if self._nodeids is not None:  # before there is a plan, the others would wait for a collection in its place
            self._collections.pop(node, None)
        self._work_queue.release(node)
        if self._is_stopping():
            self.stop()
            return None
        if not pending or self._nodeids is None:
            return None
        blamed = None
        (first, left), *untouched = [(unit, list(own)) for unit, own in groupby(pending, self._unit_of.__getitem__)]
        for unit, _ in reversed(untouched):
            self._work_queue.put_back(unit)
        if first.kind == "chunk" and len(left) > 1:
            self._work_queue.quarantine(left, worker_key=first.worker_key)
        else:  # nothing was computed ahead for the tests after it
            blamed = left.pop(0)
            self._open.discard(blamed)
            if left:
                self._work_queue.put_back(replace(first, places=tuple(left)))
        self._feed(self._pending)
        return None if blamed is None else self._nodeids[blamed]

    def stop(self) -> None:
        """Stop workers that wait for more, as the session ends before its work is done.

        pytest-xdist tells them once, and that may have been when they were hidden from it.
        """
        self._shut_down([node for node in self._pending if not node.shutting_down])

    def _low_water(self, pending: Sequence[int]) -> int:
        """Return the number of tests below which a worker is given more.

        It is two at least, since a worker does not run a test before it knows the next. It is larger for a chunk: once
        its first sample has asked for all, the others follow fast, and the next chunk has to be there in time. A file
        or a group of tests that one worker is to run can be long: it is given when it can be begun.
        """
        last = self._unit_of[pending[-1]] if pending else None
        if last is None or (last.kind == "tests" and last.worker_key):
            return 2
        return 2 + len(last.places) // 4

    def _feed(self, nodes: Iterable[Node]) -> None:
        """Give work to nodes that want some, in turn; end those for which there is none."""
        if self._is_stopping():
            self.stop()
            return
        hungry = {node: list[int]() for node in nodes if node in self._collections and not node.shutting_down}
        found = True
        while found:
            found = False
            for node, given in hungry.items():
                pending = self._pending[node]
                if len(pending) < self._low_water(pending) and (unit := self._work_queue.take(node)) is not None:
                    self._unit_of.update(dict.fromkeys(unit.places, unit))
                    pending.extend(unit.places)
                    given.extend(unit.places)
                    found = True
        for node, given in hungry.items():
            if given:
                # The work of a dead worker is taken back once pytest-xdist knows that it has died.
                with contextlib.suppress(OSError):
                    node.send_runtest_some(given)
        # A worker that was asked to end takes over no work: keep it as long as one may die without a replacement.
        if self._restarts.next_is_replaced or self.tests_finished:
            self._shut_down([node for node in hungry if not self._work_queue.has_for(node)])

    def _shut_down(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            node.shutdown()
            self._work_queue.release(node)


class SessionScheduling:
    """A scheduler that becomes ours in a session with samples, and pytest-xdist's own in a session without.

    pytest-xdist wants a scheduler before anything is collected, and which one fits is known afterwards.
    """

    def __init__(
        self,
        chunks: ChunkScheduling,
        *,
        has_samples: Callable[[Sequence[str]], bool],
        make_other: Callable[[], Any],
    ) -> None:
        self._current: Any = chunks
        self._has_samples = has_samples
        self._make_other = make_other
        self._is_decided = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current, name)

    @property
    def tests_finished(self) -> bool:
        """Tell what the current scheduler tells; spelled out, as it is asked after each message."""
        finished: bool = self._current.tests_finished
        return finished

    def schedule(self) -> None:
        """Choose the scheduler when all workers have collected, and have it give out work."""
        if not self._is_decided:
            self._is_decided = True
            collections = self._current.collections
            if not any(self._has_samples(nodeids) for nodeids in collections.values()):
                other = self._make_other()
                living = self._current.nodes
                for node in dict.fromkeys((*living, *collections)):
                    other.add_node(node)
                for node, nodeids in collections.items():
                    other.add_node_collection(node, nodeids)
                for node in collections:
                    if node not in living:
                        other.remove_node(node)
                self._current = other
        self._current.schedule()
