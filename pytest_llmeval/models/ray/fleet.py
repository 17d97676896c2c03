"""The replicas of one model: starting and loading them, asking them, and starting them again when they end.

One thread does all of it, event by event. It knows Ray only through ``Handle``, which tests replace.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeVar

from pytest_llmeval.errors import LLMEvalError, ModelError, ModelStoppedError, RequestError
from pytest_llmeval.models.ray.replica import Answer, Handle, Handshake, Limits, ReplicaLost, disagreement
from pytest_llmeval.models.ray.schedule import Chunk, Entry, Pace, Schedule
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import EngineUse, Request

__all__ = [
    "Audit",
    "Audits",
    "Fleet",
]


@dataclass(slots=True, eq=False)
class Audit:
    """One audit of the fast path. ``num_lost`` replicas have ended during it."""

    requests: Sequence[Request]
    found: Future[EngineUse] = field(default_factory=Future)
    num_lost: int = 0


class Audits:
    """The unfinished audits of the model ``name``. An audit fails when two replicas have ended during it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: set[Future[EngineUse]] = set()
        self._waiting: list[Audit] = []

    def begin(self, requests: Sequence[Request]) -> Audit:
        """Return a new audit."""
        audit = Audit(requests)
        self._open.add(audit.found)
        audit.found.add_done_callback(self._open.discard)
        return audit

    def let_wait(self, audit: Audit) -> None:
        """Keep an audit for which no replica is ready yet."""
        self._waiting.append(audit)

    def take_waiting(self) -> list[Audit]:
        """Remove and return the audits that had no replica."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def settle(self, audit: Audit, done: Future[EngineUse]) -> bool:
        """Store a replica's result. Return True if the replica ended, so that another one has to be asked."""
        error = done.exception()
        if audit.found.done():  # the model has stopped
            return False
        if isinstance(error, ReplicaLost) and audit.num_lost == 0:
            audit.num_lost += 1
            return True
        if error is None:
            audit.found.set_result(done.result())
        elif isinstance(error, LLMEvalError):
            audit.found.set_exception(error)
        else:
            audit.found.set_exception(ModelError(f"model {self._name}: two replicas ended in the audit: {error}"))
        return False

    def fail(self, error: Exception) -> None:
        """Fail all unfinished audits with this error."""
        for found in list(self._open):
            found.set_exception(error)
        self._waiting.clear()

    def cancel(self) -> None:
        for found in list(self._open):
            found.cancel()


_LOG = logging.getLogger("pytest_llmeval")

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one replica, and the replica that is in it now."""

    number: int
    handle: Handle | None = None
    state: Literal["starting", "waiting", "loading", "ready", "ended"] = "starting"
    node: str = ""
    place: str = ""
    num_failed_starts: int = 0
    has_loaded: bool = False


class Fleet:
    """Keeps ``num_replicas`` replicas of the model ``name`` at work. ``start`` starts one without waiting for it.

    The first replica on a machine loads alone, so that the others find the files in the machine's caches. ``room``
    says what a replica takes and what the cluster has, for a message.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Handle],
        *,
        num_replicas: int,
        chunk_size: int,
        limits: Limits | None = None,
        room: Callable[[], str] = str,
    ) -> None:
        self._name = name
        self._start = start
        self._room = room
        self._limits = limits or Limits()
        self._schedule = Schedule(chunk_size=chunk_size)
        self._pace: Pace | None = None
        self._begun_at: dict[int, float] = {}
        """The time (s) at which its replica could begin a chunk, as far as is known, by the number of the chunk."""
        self._slots = [_Slot(number) for number in range(1, num_replicas + 1)]
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._numbers = count()
        self._added_at = 0.0
        self._was_quiet = True
        """True if no more samples were expected when chunks were last given."""
        self._any_at = time.monotonic()
        self._num_restarts = 0
        self._loaded_nodes: set[str] = set()
        self._error: ModelStoppedError | None = None
        self._closed = threading.Event()
        self._counts: Counter[str] = Counter()
        self._open: set[Entry] = set()
        self._audits = Audits(name)
        self._lost: list[str] = []
        self.first: Future[Handshake] = Future()
        """The first replica's handshake; it raises the error that keeps the model from being loaded."""
        self._thread = threading.Thread(target=self._run, name="llmeval-replicas", daemon=True)

    def begin(self) -> None:
        """Start all replicas."""
        for slot in self._slots:
            self._events.put(lambda slot=slot: self._start_slot(slot))  # type: ignore[misc]
        self._thread.start()

    def submit(self, samples: Sequence[tuple[Sequence[Request], Hashable]], engine: str | None = None) -> list[Entry]:
        """Queue samples, each given by its requests and its header, and return the futures of each at once."""
        if self._closed.is_set():
            raise ModelStoppedError(f"model {self._name}: its replicas were ended")
        entries = [
            Entry(
                number=next(self._numbers),
                requests=requests,
                futures=[Future() for _ in requests],
                header=header,
                engine=engine,
            )
            for requests, header in samples
        ]
        for entry in entries:
            self._open.add(entry)
            entry.futures[-1].add_done_callback(lambda _, entry=entry: self._open.discard(entry))  # type: ignore[misc]
        self._events.put(lambda: self._add(entries))
        if self._closed.is_set():  # since the look above: the thread may not have seen them
            _cancel(future for entry in entries for future in entry.futures)
        return entries

    def audit(self, requests: Sequence[Request]) -> Future[EngineUse]:
        """Let one of the replicas audit these requests, and return its result."""
        if self._closed.is_set():
            raise ModelStoppedError(f"model {self._name}: its replicas were ended")
        audit = self._audits.begin(requests)
        self._events.put(lambda: self._audit(audit))
        return audit.found

    def close(self) -> None:
        """End all replicas and cancel what they have not answered."""
        if not self._closed.is_set():
            self._closed.set()
            self._events.put(None)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def num_open(self) -> int:
        """Return the number of samples that wait for a replica or are with one."""
        return len(self._open)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many requests each replica has answered, by its number and machine."""
        return dict(self._counts)

    @property
    def lost(self) -> tuple[str, ...]:
        """Return a line for each replica that ended, with the reason."""
        return tuple(self._lost)

    # The thread

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                event = self._events.get(timeout=self._wait_s())
                if event is not None:
                    event()
                while not self._closed.is_set():
                    event = self._events.get_nowait()
                    if event is not None:
                        event()
            except queue.Empty:
                pass
            except Exception as defect:
                self._stop_for(defect)
            if not self._closed.is_set():
                try:
                    self._check_patience()
                    self._give()
                except Exception as defect:
                    self._stop_for(defect)
        _cancel(future for entry in list(self._open) for future in entry.futures)
        self._audits.cancel()
        self.first.cancel()
        for slot in self._slots:
            if slot.handle is not None:
                slot.handle.end()

    def _wait_s(self) -> float:
        """Return the seconds until something has to be done without an event."""
        if self._schedule.num_waiting and not self._was_quiet:
            return max(0.0, self._added_at + self._limits.linger_s - time.monotonic())
        return 1.0

    def _on(self, future: Future[_T], then: Callable[[Future[_T]], None]) -> None:
        """Turn the outcome of a future into an event."""
        future.add_done_callback(lambda done: self._events.put(lambda: then(done)))

    def _stop(self, reason: str) -> None:
        """Stop the model: everything that waits for it, now or later, gets the error."""
        if self._error is None:
            self._error = ModelStoppedError(reason)
            if not self.first.done():
                self.first.set_exception(ModelError(reason))
        for entry in self._schedule.remaining():
            entry.fail(self._error)
        self._audits.fail(self._error)

    def _stop_for(self, defect: Exception) -> None:
        """Stop the model for a defect of ours. If the thread just ended, whoever asks would wait for ever."""
        _LOG.debug("the replicas' thread failed", exc_info=defect)
        self._stop(f"model {self._name}: {describe(defect)}")

    # Starting

    def _start_slot(self, slot: _Slot) -> None:
        if self._error is not None:
            return
        slot.state, slot.node, slot.place = "starting", "", ""
        handle = slot.handle = self._start()
        self._on(handle.watch(), lambda done: self._on_lost(slot, handle, done.exception()))
        self._on(handle.where(), lambda done: self._on_placed(slot, handle, done))

    def _on_placed(self, slot: _Slot, handle: Handle, done: Future[str]) -> None:
        if slot.handle is not handle:
            return
        if (error := done.exception()) is not None:
            self._on_lost(slot, handle, error)
            return
        slot.node, slot.state = done.result(), "waiting"
        self._load_next(slot.node)

    def _load_next(self, node: str) -> None:
        """Let replicas on a machine load: all of them once one has loaded, one at a time before that."""
        here = [slot for slot in self._slots if slot.node == node]
        waiting = [slot for slot in here if slot.state == "waiting"]
        if node not in self._loaded_nodes:
            waiting = [] if any(slot.state == "loading" for slot in here) else waiting[:1]
        for slot in waiting:
            slot.state = "loading"
            handle = slot.handle
            assert handle is not None
            self._on(handle.load(), lambda done, slot=slot, handle=handle: self._on_loaded(slot, handle, done))  # type: ignore[misc]

    def _on_loaded(self, slot: _Slot, handle: Handle, done: Future[Handshake]) -> None:
        if slot.handle is not handle:
            return
        error = done.exception()
        if isinstance(error, ReplicaLost):
            self._on_lost(slot, handle, error)
            return
        if error is not None and slot.has_loaded:  # the others go on without this one, or it loads at the next try
            self._on_lost(slot, handle, error)
            return
        if error is not None:
            self._stop(str(error) if isinstance(error, LLMEvalError) else f"model {self._name}: {error}")
            return
        handshake = done.result()
        slot.place = handshake.place
        if not self.first.done():
            if handshake.num_at_once is not None:
                self._pace = Pace(num_at_once=handshake.num_at_once, most=self._schedule.chunk_size)
                self._schedule.chunk_size = self._pace.size
            self.first.set_result(handshake)
        elif (differing := disagreement(self.first.result(), handshake)) is not None:
            self._stop(
                f"model {self._name}: its replicas are not the same: {differing}; install one version, and put the "
                "same files, on all machines"
            )
            return
        slot.state, slot.num_failed_starts, slot.has_loaded = "ready", 0, True
        self._loaded_nodes.add(slot.node)
        self._schedule.join(handle)
        self._load_next(slot.node)
        for audit in self._audits.take_waiting():
            self._audit(audit)

    def _check_patience(self) -> None:
        now = time.monotonic()
        if any(slot.state in ("loading", "ready") for slot in self._slots):
            self._any_at = now
        elif now - self._any_at > self._limits.patience_s and self._error is None:
            reason = f"for {self._limits.patience_s:.0f} s the cluster has had no room for a replica"
            room = self._room()
            self._stop(f"model {self._name}: {reason}{room and f': {room}'}")

    # Asking

    def _add(self, entries: Sequence[Entry]) -> None:
        if self._error is not None:
            for entry in entries:
                entry.fail(self._error)
            return
        self._schedule.add(entries)
        self._added_at = time.monotonic()

    def _give(self) -> None:
        self._was_quiet = time.monotonic() - self._added_at >= self._limits.linger_s
        if self._error is not None:
            return
        for chunk in self._schedule.give(is_quiet=self._was_quiet):
            self._ask(chunk)
        for chunk in self._schedule.ask_back():
            handle: Any = chunk.replica
            self._on(handle.withdraw(chunk.number), lambda done, chunk=chunk: self._on_asked_back(chunk, done))  # type: ignore[misc]

    def _ask(self, chunk: Chunk) -> None:
        handle: Any = chunk.replica
        samples = [entry.requests for entry in chunk.entries]
        self._begun_at[chunk.number] = time.monotonic()
        self._on(
            handle.answer(chunk.number, samples, chunk.entries[0].engine), lambda done: self._on_answered(chunk, done)
        )

    def _on_asked_back(self, chunk: Chunk, done: Future[bool]) -> None:
        self._schedule.settle_asked_back(chunk, was_given=done.exception() is None and done.result())

    def _on_answered(self, chunk: Chunk, done: Future[list[Answer] | None]) -> None:
        slot = next((slot for slot in self._slots if slot.handle is chunk.replica), None)
        handle: Any = chunk.replica
        now_s = time.monotonic()
        began_s = self._begun_at.pop(chunk.number, now_s)
        error = done.exception()
        if isinstance(error, ReplicaLost):
            if slot is not None:
                self._on_lost(slot, handle, error)
            return
        if error is None and done.result() is None:  # withdrawn; this may be heard before what `withdraw` returned
            self._schedule.take_back(chunk)
            return
        self._schedule.answered(chunk)
        if error is not None:
            for entry in chunk.entries:
                entry.fail(ModelError(f"model {self._name}: {error}"))
            return
        answers: Any = done.result()
        for entry, answer in zip(chunk.entries, answers, strict=True):
            entry.resolve(answer)
        self._keep_pace(chunk, now_s - began_s)
        where = f"replica {slot.number} on {slot.place}" if slot is not None else "a replica that has ended"
        self._counts[where] += sum(len(entry.requests) for entry in chunk.entries)

    def _keep_pace(self, chunk: Chunk, seconds: float) -> None:
        """Adapt the size of chunks to the time that an answered one took, and note when the next one began."""
        if self._pace is None:
            return
        self._pace.took(len(chunk.entries), seconds)
        self._schedule.chunk_size = self._pace.size
        for following in self._schedule.chunks_of(chunk.replica):
            self._begun_at[following.number] = time.monotonic()

    def _audit(self, audit: Audit) -> None:
        if audit.found.done():
            return
        if self._error is not None:
            audit.found.set_exception(self._error)
            return
        ready = [slot for slot in self._slots if slot.state == "ready"]
        if not ready:
            self._audits.let_wait(audit)
            return
        slot = min(ready, key=lambda slot: self._schedule.load_of(slot.handle))
        handle = slot.handle
        assert handle is not None

        def then(done: Future[EngineUse]) -> None:
            error = done.exception()
            if isinstance(error, ReplicaLost):  # it may be heard of here first, and is not to be asked again
                self._on_lost(slot, handle, error)
            if self._audits.settle(audit, done):
                self._audit(audit)

        self._on(handle.audit(audit.requests), then)

    # Ending

    def _on_lost(self, slot: _Slot, handle: Handle, error: BaseException | None) -> None:
        """Start another replica in the place of one that has ended."""
        if slot.handle is not handle or self._closed.is_set():
            return
        reason = f"replica {slot.number}{f' on {slot.place}' if slot.place else ''}: {error}"
        self._lost.append(reason)
        slot.handle = None
        handle.end()
        slot.num_failed_starts += slot.state != "ready"
        for entry in self._schedule.leave(handle):
            problem = RequestError(f"two replicas of {self._name} ended while they worked on it alone ({error})")
            entry.resolve([problem for _ in entry.requests])
        node, slot.node = slot.node, ""
        self._num_restarts += 1
        too_many = self._num_restarts > self._limits.restarts_per_replica * len(self._slots)
        if too_many or slot.num_failed_starts >= self._limits.max_failed_starts:
            slot.state = "ended"
            if all(one.state == "ended" for one in self._slots):
                self._stop(f"model {self._name}: all replicas have ended; the last was {reason}")
        else:
            self._start_slot(slot)
        self._load_next(node)


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()
