"""The number of requests that a host has open at once, over all processes of a session.

A request holds a slot for as long as it is under way, tries and waits between them included. In one process slots are
counted. Processes that share a folder have a lock file for each slot, which the kernel frees when its holder dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
import json
import mmap
import os
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from pytest_llmeval.models.endpoints import Endpoint

__all__ = [
    "AdaptiveLimit",
    "CountedSlots",
    "FileSlots",
    "FileWidth",
    "FixedLimit",
    "Limit",
    "OwnWidth",
    "Slots",
    "Ticket",
    "Width",
    "WidthStore",
    "limit_for",
]


_MOST_SLOTS = 4096
_KEEP_S = 0.5
"""Seconds for which a process passes a slot on among its own requests; then another process has a chance to get it."""
_SUSPECT_S = 1.0
"""Seconds after which slots that are marked as taken are tried too: their holder may have died."""


class Slots(Protocol):
    """Slots that are taken and given back."""

    are_shared: bool
    """True if other processes take from the same slots."""

    def take(self, width: int) -> Any:
        """Return a slot; None where the first ``width`` are taken."""
        ...

    def give(self, held: Any) -> None: ...

    def may_keep(self, held: Any, width: int) -> bool:
        """Return whether the holder may pass it to another request of this process."""
        ...


class CountedSlots:
    """The slots of one process."""

    are_shared = False

    def __init__(self) -> None:
        self._num_taken = 0

    def take(self, width: int) -> Any:
        if self._num_taken >= width:
            return None
        self._num_taken += 1
        return True

    def give(self, held: Any) -> None:
        self._num_taken -= 1

    def may_keep(self, held: Any, width: int) -> bool:
        return self._num_taken <= width


@dataclass(frozen=True, slots=True)
class _HeldFile:
    number: int
    lock: Any
    since: float


class FileSlots:
    """A lock file for each slot, in a folder that processes share.

    Trying a lock costs a tenth of a millisecond, and many are tried where most are taken. So a map of marks, one byte
    for each slot, says which are worth trying; it is a hint, and the lock decides.
    """

    are_shared = True

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._own: set[int] = set()
        self._suspected_at = clock()
        marks = folder / "marks"
        with marks.open("ab") as file:
            file.truncate(_MOST_SLOTS)
        with marks.open("r+b") as file:
            self._marks = mmap.mmap(file.fileno(), _MOST_SLOTS)

    def take(self, width: int) -> Any:
        """See ``Slots``."""
        now = self._clock()
        suspects = now - self._suspected_at > _SUSPECT_S
        if suspects:
            self._suspected_at = now
        for number in range(min(width, _MOST_SLOTS)):
            if number in self._own or (self._marks[number] and not suspects):
                continue
            if (lock := self._locked(number)) is not None:
                self._own.add(number)
                self._marks[number] = 1
                return _HeldFile(number, lock, now)
        return None

    def _locked(self, number: int) -> Any:
        from filelock import FileLock, Timeout

        lock = FileLock(self._folder / f"{number}.lock", thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            self._marks[number] = 1
            return None
        return lock

    def give(self, held: _HeldFile) -> None:
        """See ``Slots``."""
        self._own.discard(held.number)
        self._marks[held.number] = 0
        held.lock.release()

    def may_keep(self, held: _HeldFile, width: int) -> bool:
        """See ``Slots``."""
        return held.number < width and self._clock() - held.since < _KEEP_S


# Where the width is kept


@dataclass(frozen=True, slots=True)
class Width:
    """The number of slots, which grows by fractions, and of the episodes of 429 that made it smaller."""

    value: float
    episode: int = 0


@dataclass(slots=True)
class _Change:
    width: Width


class WidthStore(Protocol):
    """The width of one limit."""

    is_shared: bool

    def read(self, known: Width) -> Width:
        """Return the present width; ``known`` where it cannot be read."""
        ...

    def changing(self, known: Width) -> contextlib.AbstractContextManager[_Change]:
        """Return the present width, and the one to put into its place; meanwhile no other process changes it."""
        ...


class OwnWidth:
    """The width of one process, which knows it."""

    is_shared = False

    def read(self, known: Width) -> Width:
        return known

    @contextlib.contextmanager
    def changing(self, known: Width) -> Iterator[_Change]:
        yield _Change(known)


class FileWidth:
    """A small JSON file, changed under a lock."""

    is_shared = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "width.json"

    def read(self, known: Width) -> Width:
        """See ``WidthStore``."""
        try:
            value, episode = json.loads(self._path.read_bytes())
            return Width(float(value), int(episode))
        except (OSError, ValueError, TypeError):
            return known

    @contextlib.contextmanager
    def changing(self, known: Width) -> Iterator[_Change]:
        """See ``WidthStore``."""
        from filelock import FileLock

        with FileLock(self._path.with_suffix(".lock"), thread_local=False):
            before = self.read(known)
            change = _Change(before)
            yield change
            if change.width != before or not self._path.exists():
                written = self._path.with_suffix(f".{os.getpid()}")
                written.write_text(json.dumps([change.width.value, change.width.episode]))
                os.replace(written, self._path)


OWN_SERVER_WIDTH = 64
FIRST_WIDTH, LEAST_WIDTH, MOST_WIDTH = 20, 4, 100
"""The widths of hosted APIs: the first one, and the bounds."""
_SHRINKING = 0.8
_POLL_S = 0.01
_REFRESH_S = 0.5


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request's permission to be under way. ``episode`` is the width's when it was given."""

    episode: int
    slot: Any = None


class Limit:
    """A queue for slots. All methods run on one event loop, except for ``width``."""

    def __init__(self, slots: Slots | None = None) -> None:
        self._slots = CountedSlots() if slots is None else slots
        self._cap: int | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._poll: asyncio.Task[None] | None = None

    @property
    def width(self) -> int:
        """Return how many requests may be under way at present, in all processes together."""
        raise NotImplementedError

    @property
    def episode(self) -> int:
        """Return how often the width has shrunk."""
        return 0

    def set_width(self, width: int) -> None:
        """Have exactly so many slots from now on."""
        raise NotImplementedError

    def cap(self, most: int) -> None:
        """Have no more slots than ``most`` from now on, whatever ``set_width`` says."""
        self._cap = min(most, self._cap or most)
        if most < self.width:
            self.set_width(most)

    def refused(self, ticket: Ticket) -> None:
        """Learn that a request was answered with 429."""

    def answered(self, ticket: Ticket) -> None:
        """Learn that a request was answered."""

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Ticket]:
        """Wait for a slot, first come first served, and hold it."""
        held = None if self._waiting else self._take()
        if held is None:
            held = await self._wait()
        try:
            yield Ticket(self.episode, held)
        finally:
            self._pass_on(held)

    @property
    def is_full(self) -> bool:
        """Return whether a request waits for a slot."""
        return any(not turn.done() for turn in self._waiting)

    async def _wait(self) -> Any:
        turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if self._slots.are_shared and (self._poll is None or self._poll.done()):
            self._poll = asyncio.create_task(self._ask_again())
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on(turn.result())
            raise

    def _pass_on(self, held: Any) -> None:
        while self._waiting and self._slots.may_keep(held, self.width):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(held)
                return
        self._slots.give(held)
        if not self._slots.are_shared:
            self._fill()

    def _take(self) -> Any:
        """Return a slot, if one is free. Where this process has too many files open, none is."""
        try:
            return self._slots.take(self.width)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return None

    def _fill(self) -> None:
        """Give free slots to those that wait."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
            elif (held := self._take()) is not None:
                self._waiting.popleft().set_result(held)
            else:
                return

    async def _ask_again(self) -> None:
        """Ask again and again for a slot: other processes do not say when they free one."""
        while self._waiting:
            await asyncio.sleep(_POLL_S * random.uniform(0.5, 1.5))
            try:
                self._fill()
            except OSError as error:  # the folder is gone
                while self._waiting:
                    if not (turn := self._waiting.popleft()).done():
                        turn.set_exception(OSError(*error.args))


class FixedLimit(Limit):
    """A limit of so many requests at once."""

    def __init__(self, width: int, slots: Slots | None = None) -> None:
        super().__init__(slots)
        self._width = width

    @property
    def width(self) -> int:
        return self._width

    def set_width(self, width: int) -> None:
        self._width = min(width, self._cap or width)
        self._fill()


class AdaptiveLimit(Limit):
    """A limit of as many requests as the host takes without refusing any.

    The width grows by 1 for as many answers as it is wide, while requests wait for slots. It shrinks by a fifth when a
    request is refused that was sent at the present width: of many refusals in one round-trip, all but the first were
    sent before it shrank, and are of the same episode.
    """

    def __init__(
        self,
        first: int = FIRST_WIDTH,
        least: int = LEAST_WIDTH,
        most: int = MOST_WIDTH,
        *,
        slots: Slots | None = None,
        store: WidthStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(slots)
        self._least, self._most = min(least, first), max(most, first)
        self._store = store or OwnWidth()
        self._clock = clock
        with self._store.changing(Width(first)) as change:
            self._width: Width = change.width
        self._read_at = clock()
        self._credit = 0.0

    @property
    def width(self) -> int:
        if self._store.is_shared and self._clock() - self._read_at > _REFRESH_S:
            self._refresh(self._store.read(self._width))
        return int(self._width.value)

    @property
    def episode(self) -> int:
        return self._width.episode

    def set_width(self, width: int) -> None:
        self._least = self._most = width
        with self._store.changing(self._width) as change:
            change.width = Width(width, change.width.episode)
        self._refresh(change.width)
        self._fill()

    def cap(self, most: int) -> None:
        """See ``Limit``."""
        self._least, self._most = min(self._least, most), min(self._most, most)
        with self._store.changing(self._width) as change:
            change.width = Width(min(change.width.value, most), change.width.episode)
        self._refresh(change.width)

    def refused(self, ticket: Ticket) -> None:
        """See ``Limit``."""
        with self._store.changing(self._width) as change:
            if ticket.episode == change.width.episode:
                change.width = Width(max(self._least, change.width.value * _SHRINKING), ticket.episode + 1)
        self._credit = 0.0
        self._refresh(change.width)

    def answered(self, ticket: Ticket) -> None:
        """See ``Limit``."""
        if ticket.episode != self._width.episode or self._width.value >= self._most or not self.is_full:
            return
        self._credit += 1 / self._width.value
        if self._credit < 1:
            return
        with self._store.changing(self._width) as change:
            if ticket.episode == change.width.episode:
                change.width = Width(min(self._most, change.width.value + 1), ticket.episode)
        self._credit = 0.0
        self._refresh(change.width)
        self._fill()

    def _refresh(self, width: Width) -> None:
        self._width, self._read_at = width, self._clock()


# The limits of this process

_limits: WeakValueDictionary[tuple[str, Path | None], Limit] = WeakValueDictionary()
_limits_lock = threading.Lock()


def limit_for(endpoint: Endpoint, shared: Path | None) -> Limit:
    """Return the limit of the endpoint's host, which all models on it share; hosted APIs have one for each key.

    ``shared`` is the folder of the session's processes. ``max_connections`` is the width of a server of one's own, and
    the upper bound for a hosted one; the smallest of several models on one host counts.
    """
    with _limits_lock:
        key = (_counted(endpoint), shared)
        limit = _limits.get(key)
        if limit is None:
            limit = _limits[key] = _make_limit(endpoint, shared)
        if endpoint.max_connections is not None:
            limit.cap(endpoint.max_connections)
        return limit


def _counted(endpoint: Endpoint) -> str:
    """Return the name of what a limit counts for: a host, and on hosted APIs also the variable that holds the key."""
    return f"{endpoint.host} {endpoint.api_key_env}" if is_public(endpoint) else endpoint.host


def _make_limit(endpoint: Endpoint, shared: Path | None) -> Limit:
    folder = None if shared is None else shared / hashlib.sha256(_counted(endpoint).encode()).hexdigest()[:16]
    slots = None if folder is None else FileSlots(folder)
    most = endpoint.max_connections
    if not is_public(endpoint):
        return FixedLimit(most or OWN_SERVER_WIDTH, slots)
    first = min(FIRST_WIDTH, most or MOST_WIDTH)
    store = None if folder is None else FileWidth(folder)
    return AdaptiveLimit(first, min(LEAST_WIDTH, first), most or MOST_WIDTH, slots=slots, store=store)


def _after_fork() -> None:
    """Forget the limits of the parent: its requests are not this process's."""
    global _limits_lock
    _limits_lock = threading.Lock()
    _limits.clear()


os.register_at_fork(after_in_child=_after_fork) if hasattr(os, "register_at_fork") else None


def is_public(endpoint: Endpoint) -> bool:
    """Return whether the host is one of the internet, where limits are learned by being refused."""
    parts = urlsplit(endpoint.url)
    host = parts.hostname or ""
    if parts.scheme != "https" or endpoint.is_local:
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".local", ".internal", ".lan", ".home.arpa"))
