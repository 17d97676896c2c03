"""Whose time a call of the model was: a sample's call answers its neighbours too, and each has its own share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

__all__ = ["TimeShares"]


class TimeShares:
    """Keeps, in seconds, what was spent on calls since the last sample was settled, and each sample's share of it."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._shares_s: dict[Hashable, float] = {}

    def share_out(self, spent_s: float, reported_s: Mapping[Hashable, float]) -> None:
        """Share a call that took ``spent_s`` among its samples, in proportion to the seconds that the model reported.

        Where it reported none, the shares are equal. In either case they sum to ``spent_s``.
        """
        total_s = math.fsum(reported_s.values())
        for key, seconds in reported_s.items():
            fraction = seconds / total_s if total_s > 0 else 1 / len(reported_s)
            self._shares_s[key] = self._shares_s.get(key, 0.0) + spent_s * fraction
        self._spent_s += spent_s

    def settle(self, key: Hashable) -> float:
        """What to add to the time that a sample's test took so that only its own share of the model's time is in it.

        Negative for a sample that asked for others; over all samples of a call these sum to 0. To be called once after
        each test of a sample, whether it asked or found its response waiting.
        """
        difference = self._shares_s.pop(key, 0.0) - self._spent_s
        self._spent_s = 0.0
        return difference
