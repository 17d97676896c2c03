"""How many samples a replica is asked for together, of a model that is called for each of them by itself. Pure."""

from __future__ import annotations

__all__ = ["Pace"]

_SECONDS_OF_CHUNK = 0.5


class Pace:
    """A chunk is about half a second of work, by what samples have taken.

    Replies reach the session, and its store, with their chunk: what is lost with a replica, or with the session, are
    those of the chunk that was worked on. A model that answers many requests in one pass gets larger ones instead. The
    size begins at ``num_at_once``, how many calls a replica makes at a time, is never below it nor above ``most``, and
    at most doubles from one chunk to the next.
    """

    def __init__(self, *, num_at_once: int, most: int) -> None:
        self._least = min(num_at_once, most)
        self._most = most
        self.size = self._least

    def took(self, num_samples: int, seconds: float) -> None:
        """Learn that a chunk of so many samples took so long (s)."""
        fitting = _SECONDS_OF_CHUNK * num_samples / max(seconds, 1e-9)
        self.size = max(self._least, min(self._most, int(min(fitting, 2 * self.size))))
