"""The number of requests that a host has open at once, over all processes of a session.

A request holds a slot for as long as it is under way, tries and waits between them included. In one process slots are
counted. Processes that share a folder have a lock file for each slot, which the kernel frees when its holder dies.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import ipaddress
import mmap
import os
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.shared import SharedValue

__all__ = [
    "AdaptiveLimit",
    "CountedSlots",
    "FileSlots",
    "FileWidth",
    "FixedLimit",
    "Limit",
    "Ticket",
    "Width",
    "limit_for",
]


_MOST_SLOTS = 4096
"""The most slots of one folder. Its map of marks has a byte for each, from the beginning."""
_KEEP_S = 0.5
"""Seconds for which a process passes a slot on among its own requests; then another process has a chance to get it."""
_SUSPECT_S = 1.0
"""Seconds after which slots that are marked as taken are tried too: their holder may have died."""


class CountedSlots:
    """Slots that are taken and given back; these are of one process, which counts them."""

    are_shared = False
    """True if other processes take from the same slots."""

    def __init__(self) -> None:
        self._num_taken = 0

    def take(self, width: int) -> Any:
        """Return a slot; None if the first ``width`` are taken."""
        if self._num_taken >= width:
            return None
        self._num_taken += 1
        return True

    def give(self, held: Any) -> None:
        """Take back a slot."""
        self._num_taken -= 1

    def may_keep(self, held: Any, width: int) -> bool:
        """Tell whether the holder of a slot may pass it to another request of this process."""
        return self._num_taken <= width


@dataclass(frozen=True, slots=True)
class _HeldFile:
    number: int
    lock: Any
    since: float


class FileSlots(CountedSlots):
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
        """See ``CountedSlots``."""
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
        """See ``CountedSlots``."""
        self._own.discard(held.number)
        self._marks[held.number] = 0
        held.lock.release()

    def may_keep(self, held: _HeldFile, width: int) -> bool:
        """See ``CountedSlots``."""
        return held.number < width and self._clock() - held.since < _KEEP_S


# Where the width is kept


@dataclass(frozen=True, slots=True)
class Width:
    """The number of slots, which grows by fractions, and of the episodes of 429 that made it smaller."""

    value: float
    episode: int = 0


class FileWidth(SharedValue[Width]):
    """The width of one limit, in a folder that processes share."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "width.json", _width_of, lambda width: [width.value, width.episode])


def _width_of(found: Any) -> Width:
    value, episode = found
    return Width(float(value), int(episode))


OWN_SERVER_WIDTH = 64
"""The width for a server that is no hosted API, unless ``max_connections`` gives another."""
FIRST_WIDTH, LEAST_WIDTH, MOST_WIDTH = 20, 4, 100
"""The widths of hosted APIs: the first one, and the bounds."""
_SHRINKING = 0.8
_POLL_S = 0.01
"""Seconds between looks for a slot that another process has freed."""
_REFRESH_S = 0.5
"""Seconds for which a width that was read from its file is believed."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request's permission to be under way. ``episode`` is the width's when it was given."""

    episode: int
    slot: Any = None


class Limit:
    """A queue for slots. All methods run on one event loop, except for ``width``."""

    def __init__(self, slots: CountedSlots | None = None) -> None:
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
    """A limit that stays at the width that was set."""

    def __init__(self, width: int, slots: CountedSlots | None = None) -> None:
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
        slots: CountedSlots | None = None,
        store: FileWidth | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(slots)
        self._least, self._most = min(least, first), max(most, first)
        self._store = store
        self._clock = clock
        self._credit = 0.0
        self._width, self._read_at = Width(first), clock()
        self._change(lambda width: width)

    @property
    def width(self) -> int:
        if self._store is not None and self._clock() - self._read_at > _REFRESH_S:
            self._refresh(self._store.read(self._width))
        return int(self._width.value)

    @property
    def episode(self) -> int:
        return self._width.episode

    def set_width(self, width: int) -> None:
        self._least = self._most = width
        self._change(lambda now: Width(width, now.episode))
        self._fill()

    def cap(self, most: int) -> None:
        """See ``Limit``."""
        self._least, self._most = min(self._least, most), min(self._most, most)
        self._change(lambda now: Width(min(now.value, most), now.episode))

    def refused(self, ticket: Ticket) -> None:
        """See ``Limit``."""

        def smaller(now: Width) -> Width:
            return Width(max(self._least, now.value * _SHRINKING), now.episode + 1)

        self._change(lambda now: smaller(now) if ticket.episode == now.episode else now)
        self._credit = 0.0

    def answered(self, ticket: Ticket) -> None:
        """See ``Limit``."""
        if ticket.episode != self._width.episode or self._width.value >= self._most or not self.is_full:
            return
        self._credit += 1 / self._width.value
        if self._credit < 1:
            return

        def larger(now: Width) -> Width:
            return Width(min(self._most, now.value + 1), now.episode)

        self._change(lambda now: larger(now) if ticket.episode == now.episode else now)
        self._credit = 0.0
        self._fill()

    def _change(self, changed: Callable[[Width], Width]) -> None:
        """Change the width, for all processes that share it."""
        self._refresh(changed(self._width) if self._store is None else self._store.change(self._width, changed))

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
