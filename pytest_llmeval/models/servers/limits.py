"""How many requests a server has open at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

__all__ = ["FixedLimit", "Ticket"]


@dataclass(slots=True)
class Ticket:
    """A request's permission to be open. ``episode`` counts how often the limit had shrunk when it was given."""

    episode: int = 0


class FixedLimit:
    """At most ``width`` requests at once, in this process."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._num_taken = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def width(self) -> int:
        return self._width

    def set_width(self, width: int) -> None:
        self._width = width

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Ticket]:
        """Wait until a request may be sent, and hold its place until it is answered."""
        while self._num_taken >= self._width:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._num_taken += 1
        try:
            yield Ticket()
        finally:
            self._num_taken -= 1
            while self._waiting:
                turn = self._waiting.pop(0)
                if not turn.done():
                    turn.set_result(None)
                    break

    def refused(self, ticket: Ticket) -> None:
        """The server has answered 429 to the holder of this ticket."""

    def answered(self, ticket: Ticket) -> None:
        """The server has answered the holder of this ticket."""
