"""Work that makes many objects and no cycles of them, which the garbage collector would walk again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FrozenObjects", "making_what_stays", "without_collection"]


@contextmanager
def without_collection() -> Iterator[None]:
    """Look for no cycles in this context; what is no longer referenced is freed as ever."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_WHILE_MADE = (50_000, 20, 1_000_000)
"""Thresholds of ``gc`` with which new objects are looked at, as other people's code may make cycles of them, and all
objects practically never.
"""
_MOST_OF_INTERPRETER = 2_000
"""Python 3.12 has left out some 400 objects of its own when it starts; ``gc.freeze`` leaves out tens of thousands."""


class FrozenObjects:
    """Objects that stay to the end of a session, and that the garbage collector does not walk again and again.

    A pass over all objects comes whenever their number has grown by a quarter: with 35 objects for each sample these
    passes were a third of the time of 20,000 samples. There are none from when this is made until ``freeze``, which
    leaves the objects out that are there by then. It does nothing if the collector is off, or if somebody has frozen
    objects before it (``gc.freeze``), as in a session within a session.
    """

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None
        self._has_frozen = False
        if gc.isenabled() and gc.get_freeze_count() < _MOST_OF_INTERPRETER and not _is_while_made():
            self._before = gc.get_threshold()
            gc.set_threshold(*_WHILE_MADE)

    def freeze(self) -> None:
        """Look for cycles as before, but not among the objects that there are now. Garbage among them is freed."""
        if self._before is not None and not self._has_frozen:
            self._restore(self._before)
            gc.collect()
            gc.freeze()
            self._has_frozen = True

    def close(self) -> None:
        """Look for cycles among all objects, as before."""
        if self._before is None:
            return
        if self._has_frozen:
            gc.unfreeze()
        else:
            self._restore(self._before)
        self._before = None

    def _restore(self, before: tuple[int, int, int]) -> None:
        if _is_while_made():  # nobody has set others
            gc.set_threshold(*before)


def _is_while_made() -> bool:
    return gc.get_threshold()[:2] == _WHILE_MADE[:2]  # Python 3.14 says 0 for the third, whatever was set


@contextmanager
def making_what_stays() -> Iterator[None]:
    """Look for no cycles in this context, and leave out what it has made where ``FrozenObjects`` has left out others.

    Garbage from before it is freed; that of the context itself, as modules leave it, when objects are left out no more.
    """
    leaves_out = gc.isenabled() and gc.get_freeze_count() >= _MOST_OF_INTERPRETER
    if leaves_out:
        gc.collect()
    with without_collection():
        yield
    if leaves_out:
        gc.freeze()
