"""Decides which replica is asked which samples next. Pure: no Ray, no clock, no threads.

Samples wait in the order in which they were given, which is the order in which their tests run. A replica gets chunks
of them, two at a time: one that it works on, and one that it begins at once afterwards. Towards the end chunks shrink
(guided self-scheduling: Polychronopoulos and Kuck 1987, with half of each replica's share at a time), and a replica
that has nothing left takes over a chunk that another has not begun.
"""

from __future__ import annotations

import bisect
import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.types import Request, Response

__all__ = ["Chunk", "Entry", "Pace", "Schedule"]


_MAX_DEATHS = 2
_SMALLEST_PART = 16
"""The last chunks are no smaller than this fraction (1/16) of a full one."""
_NUM_HEADERS = 4


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """The requests of one sample, which stay together, and their futures.

    ``number`` is the place in the order of all entries. Entries with the same ``header`` begin with the same text;
    None means that no text is shared. ``engine`` is how the log-likelihoods are computed; None leaves it to the model.
    ``num_deaths`` counts replicas that ended while they worked on this entry alone.
    """

    number: int
    requests: Sequence[Request]
    futures: Sequence[Future[Response | Failed]] = ()
    header: Hashable = None
    engine: str | None = None
    num_deaths: int = 0

    @property
    def is_wanted(self) -> bool:
        """Tell whether anybody still waits for the answer."""
        return not self.futures or any(not future.done() for future in self.futures)

    def resolve(self, answer: list[Response | Failed] | ModelError) -> None:
        """Set the results of the futures that are not done."""
        if isinstance(answer, ModelError):
            self.fail(answer)
            return
        for future, response in zip(self.futures, answer, strict=True):
            if not future.done() and future.set_running_or_notify_cancel():
                future.set_result(response)

    def fail(self, error: ModelError) -> None:
        """Set the error on the futures that are not done."""
        for future in self.futures:
            if not future.done() and future.set_running_or_notify_cancel():
                future.set_exception(error)


@dataclass(slots=True, eq=False)
class Chunk:
    """Samples that a replica is asked for together. ``is_alone`` marks a single sample that may end its replica."""

    number: int
    replica: object
    entries: list[Entry]
    is_alone: bool = False
    was_asked_back: bool = False


@dataclass(slots=True)
class _Work:
    """A replica's chunks, in the order in which it works on them, and the headers that it met last."""

    chunks: list[Chunk] = field(default_factory=list)
    headers: OrderedDict[Hashable, None] = field(default_factory=OrderedDict)


class Schedule:
    """Shares samples out among the replicas that have joined.

    ``chunk_size`` is the most samples of a chunk, and may change. No sample is with two replicas at once, and none is
    lost: it waits, is in one chunk, was answered, or was given up by ``leave``.
    """

    def __init__(self, *, chunk_size: int, max_in_flight: int = 2) -> None:
        self.chunk_size = chunk_size
        self._max_in_flight = max_in_flight
        self._waiting: list[Entry] = []
        self._suspects: deque[Entry] = deque()
        self._works: dict[object, _Work] = {}
        self._numbers = count()
        self._num_asked_back = 0

    @property
    def num_waiting(self) -> int:
        """Return the number of samples that no replica has."""
        return len(self._waiting) + len(self._suspects)

    def load_of(self, replica: object) -> int:
        """Return how many chunks a replica has."""
        return len(self._works[replica].chunks)

    def chunks_of(self, replica: object) -> Sequence[Chunk]:
        """Return the chunks of a replica in their order; none if the replica has ended."""
        work = self._works.get(replica)
        return () if work is None else tuple(work.chunks)

    def join(self, replica: object) -> None:
        """Add a replica that is ready."""
        self._works[replica] = _Work()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add samples to those that wait."""
        for entry in entries:
            bisect.insort(self._waiting, entry, key=lambda one: one.number)

    def remaining(self) -> list[Entry]:
        """Return all samples that are not answered, whether they wait or are with a replica."""
        works = self._works.values()
        return [
            *self._suspects,
            *self._waiting,
            *(entry for work in works for chunk in work.chunks for entry in chunk.entries),
        ]

    # Giving

    def give(self, *, is_quiet: bool) -> list[Chunk]:
        """Return the chunks that replicas get now, in this order.

        With ``is_quiet`` no more samples are expected. Without it only full chunks are returned, because the next
        sample may belong to the same chunk.
        """
        has_room = any(len(work.chunks) < self._max_in_flight for work in self._works.values())
        has_work = self._suspects or (self._waiting if is_quiet else len(self._waiting) >= self.chunk_size)
        if not has_room or not has_work:  # mostly so: this is called for every sample that is added
            return []
        self._waiting = [entry for entry in self._waiting if entry.is_wanted]
        given: list[Chunk] = []
        for depth in range(self._max_in_flight):
            for replica, work in self._works.items():
                if len(work.chunks) != depth or any(chunk.is_alone for chunk in work.chunks):
                    continue
                suspect = self._next_suspect() if depth == 0 else None
                if suspect is not None:
                    entries = [suspect]
                elif size := self._size(is_quiet=is_quiet):
                    entries = self._take(work, size)
                else:
                    continue
                chunk = Chunk(next(self._numbers), replica, entries, is_alone=suspect is not None)
                work.chunks.append(chunk)
                given.append(chunk)
        return given

    def _next_suspect(self) -> Entry | None:
        while self._suspects:
            entry = self._suspects.popleft()
            if entry.is_wanted:
                return entry
        return None

    def _size(self, *, is_quiet: bool) -> int:
        """Return the size of the next chunk; 0 if there is none yet."""
        num_waiting = len(self._waiting)
        if num_waiting >= self.chunk_size and not is_quiet:
            return self.chunk_size
        if not is_quiet:
            return 0
        share = math.ceil(num_waiting / (self._max_in_flight * len(self._works)))
        smallest = max(1, self.chunk_size // _SMALLEST_PART)
        return min(self.chunk_size, num_waiting, max(share, smallest))

    def _take(self, work: _Work, size: int) -> list[Entry]:
        """Remove and return the next chunk's samples.

        They share a header that the replica has met, else one that no replica has met, else that of the oldest sample.
        The oldest others fill the chunk.
        """
        first = self._first_for(work)
        chosen = [entry for entry in self._waiting if (entry.header, entry.engine) == (first.header, first.engine)]
        chosen = chosen[:size]
        if len(chosen) < size:
            known = set(map(id, chosen))
            others = (one for one in self._waiting if one.engine == first.engine and id(one) not in known)
            chosen += [entry for entry, _ in zip(others, range(size - len(chosen)), strict=False)]
        taken = set(map(id, chosen))
        self._waiting = [entry for entry in self._waiting if id(entry) not in taken]
        for header in {entry.header for entry in chosen} - {None}:
            work.headers[header] = None
            work.headers.move_to_end(header)
        while len(work.headers) > _NUM_HEADERS:
            work.headers.popitem(last=False)
        return sorted(chosen, key=lambda entry: entry.number)

    def _first_for(self, work: _Work) -> Entry:
        """Return the sample whose header a chunk has. The oldest sample is never passed over for long, since its test
        waits for it.
        """
        oldest = self._waiting[0]
        patience = self._max_in_flight * self.chunk_size * len(self._works)
        near = [entry for entry in self._waiting if entry.number - oldest.number < patience]
        if own := next((entry for entry in near if entry.header is not None and entry.header in work.headers), None):
            return own
        met = {header for other in self._works.values() for header in other.headers}
        return next((entry for entry in near if entry.header not in met), oldest)

    # What comes back

    def ask_back(self) -> Iterator[Chunk]:
        """Choose chunks to withdraw from replicas that may not have begun them, one for each idle replica."""
        if self.num_waiting:
            return
        num_idle = sum(not work.chunks for work in self._works.values())
        while self._num_asked_back < num_idle:
            later = (chunk for work in self._works.values() for chunk in work.chunks[1:] if not chunk.was_asked_back)
            largest = max(later, key=lambda chunk: len(chunk.entries), default=None)
            if largest is None:
                return
            largest.was_asked_back = True
            self._num_asked_back += 1
            yield largest

    def settle_asked_back(self, chunk: Chunk, *, was_given: bool) -> None:
        """Note the outcome of a withdrawal: the replica gave the chunk back, had begun it, or has ended."""
        self._num_asked_back -= 1
        if was_given:
            self.take_back(chunk)

    def take_back(self, chunk: Chunk) -> None:
        """Let the samples of an unanswered chunk wait again, unless they do already."""
        if self._remove(chunk):
            self.add(chunk.entries)

    def answered(self, chunk: Chunk) -> bool:
        """Remove an answered chunk. Return False if its replica had left, so that its samples went elsewhere."""
        return self._remove(chunk)

    def _remove(self, chunk: Chunk) -> bool:
        work = self._works.get(chunk.replica)
        if work is None or not any(one is chunk for one in work.chunks):
            return False
        work.chunks = [one for one in work.chunks if one is not chunk]
        return True

    def leave(self, replica: object) -> list[Entry]:
        """Remove a replica that has ended. Return samples that are given up, because each has ended two replicas alone.

        The replica worked on the first of its chunks. Any of that chunk's samples may have ended it, so each is asked
        for alone. The samples of its other chunks wait again.
        """
        work = self._works.pop(replica, None)
        if work is None or not work.chunks:
            return []
        first, *others = work.chunks
        for chunk in others:
            self.add(chunk.entries)
        given_up = []
        for entry in first.entries:
            entry.num_deaths += len(first.entries) == 1
            if entry.num_deaths >= _MAX_DEATHS:
                given_up.append(entry)
            else:
                self._suspects.append(entry)
        return given_up


_SECONDS_OF_CHUNK = 0.5


class Pace:
    """The size of the chunks of a model that is called for one sample at a time: about half a second of work.

    Replies reach the session and its store with their chunk, so that at most one chunk's replies are lost with a
    replica. (A model that answers many requests in one pass gets larger chunks.) The size begins at ``num_at_once``,
    the number of concurrent calls, is never below it nor above ``most``, and at most doubles from one chunk to the
    next.
    """

    def __init__(self, *, num_at_once: int, most: int) -> None:
        self._least = min(num_at_once, most)
        self._most = most
        self.size = self._least

    def took(self, num_samples: int, seconds: float) -> None:
        """Adapt the size to a chunk of ``num_samples`` that took ``seconds``."""
        fitting = _SECONDS_OF_CHUNK * num_samples / max(seconds, 1e-9)
        self.size = max(self._least, min(self._most, int(min(fitting, 2 * self.size))))
