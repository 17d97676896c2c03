"""The servers of one model: who is asked next, and what happens when one dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.servers.client import Client, ModelStopped, Unreachable, Usage
from pytest_llmeval.models.servers.dialects.base import Dialect, Found

__all__ = ["Replica", "Replicas"]

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Replica:
    """One server. ``error`` is what ended it."""

    client: Client
    dialect: Dialect
    found: Found
    num_open: int = 0
    error: ModelError | None = None

    @property
    def load(self) -> float:
        return self.num_open / max(1, self.client.limit.width)


class Replicas:
    """Shares questions out, each to the server with the most room. Used on the event loop alone."""

    def __init__(self, members: Sequence[Replica]) -> None:
        self.members = tuple(members)

    async def ask(self, question: Callable[[Replica], Awaitable[_T]]) -> _T:
        """What the question's server answers. A server that is gone, or refuses to go on, is not asked again.

        Raises ``RequestError``, and what ended the last server.
        """
        while True:
            replica = self._next()
            replica.num_open += 1
            try:
                return await question(replica)
            except (ModelStopped, Unreachable) as error:
                replica.error = replica.error or error
            finally:
                replica.num_open -= 1

    def _next(self) -> Replica:
        alive = [replica for replica in self.members if replica.error is None]
        if not alive:
            error = self.members[-1].error
            assert error is not None
            raise ModelStopped(str(error))
        return min(alive, key=lambda replica: replica.load)

    @property
    def num_concurrent(self) -> int:
        return sum(replica.client.limit.width for replica in self.members if replica.error is None)

    @property
    def usage(self) -> Usage:
        """Over all servers."""
        total = Usage()
        for replica in self.members:
            usage = replica.client.usage
            total.num_requests += usage.num_requests
            total.num_retries += usage.num_retries
            total.num_prompt_tokens += usage.num_prompt_tokens
            total.num_tokens += usage.num_tokens
            total.num_in_flight += usage.num_in_flight
            total.max_in_flight += usage.max_in_flight
        return total
