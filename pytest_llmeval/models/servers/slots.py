"""The slots of a limit, and its width: in this process, or in a folder that several share."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["CountedSlots", "FileSlots", "FileWidth", "OwnWidth", "Slots", "Width", "WidthStore"]

_MOST_SLOTS = 4096
_KEEP_S = 0.5
"""For so long a process passes a slot on among its own requests; then another process has a chance to get it."""
_SUSPECT_S = 1.0
"""So often slots that are marked as taken are tried too: their holder may have died."""


class Slots(Protocol):
    """Slots that are taken and given back."""

    are_shared: bool
    """Whether other processes take from the same."""

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
