"""The seconds that belong to each text, where texts are written together."""

from __future__ import annotations

import time
from collections.abc import Collection

__all__ = ["Seconds"]


class Seconds:
    """Shares out the time since it was made: reading prompts to those that are read, writing to all rows of the moment.

    All rows' seconds add up to the time until the last of them ended.
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._written_s = 0.0
        """The seconds of writing that a row would have, had it been there from the beginning."""
        self._rows: dict[int, tuple[float, float]] = {}

    def write(self) -> None:
        """Count the time until now as writing, where there are rows."""
        if self._rows:
            self._written_s += self._passed_s() / len(self._rows)

    def read(self, rows: Collection[int]) -> None:
        """Count the time until now as reading the prompts of these ``rows``, which begin to be written."""
        share_s = self._passed_s() / len(rows)
        self._rows.update(dict.fromkeys(rows, (share_s, self._written_s)))

    def end(self, row: int) -> tuple[float, float]:
        """Return the seconds of a row that is done now: all, and those of its prompt."""
        self.write()
        prefill_s, written_before_s = self._rows.pop(row)
        return prefill_s + self._written_s - written_before_s, prefill_s

    def _passed_s(self) -> float:
        now = time.perf_counter()
        passed_s, self._last = now - self._last, now
        return passed_s
