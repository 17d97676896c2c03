"""When a server may have been started anew, with another model perhaps, it is asked what it is before it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

__all__ = ["Watch"]

_SHORTEST_RESTART_S = 1.0
"""A server that nothing was asked for so long may have been started anew meanwhile."""


class Watch:
    """Watches one server. ``ask`` raises ``ModelError`` where the server is not what it was; None: it is not asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ask: Callable[[], Awaitable[None]] | None = None
        self._clock = clock
        self._num_open = 0
        self._quiet_since_s = clock()
        self._is_doubtful = False
        self._asking: asyncio.Task[None] | None = None

    def doubt(self) -> None:
        """Have it asked before the next request: a connection broke, or a gateway says that the server is gone."""
        self._is_doubtful = True

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Count a request as being at the server: it would break if the server went away."""
        self._num_open += 1
        try:
            yield
        finally:
            self._num_open -= 1
            self._quiet_since_s = self._clock()

    async def check(self) -> None:
        """Ask the server before a request, if there is doubt. All requests that come meanwhile wait for one asking.
        Raises what ``ask`` raises.
        """
        if not self._num_open and self._clock() - self._quiet_since_s > _SHORTEST_RESTART_S:
            self._is_doubtful = True
        if self.ask is not None and self._asking is None and self._is_doubtful:
            self._is_doubtful = False  # what breaks from here on is a doubt of its own
            self._asking = asyncio.create_task(self._ask(self.ask))
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._asking is not None:
            await asyncio.shield(self._asking)

    async def _ask(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except BaseException:
            self._is_doubtful = True
            raise
        finally:
            self._asking = None
            self._quiet_since_s = self._clock()
