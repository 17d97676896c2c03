"""The servers of one model: which is asked next, and what happens when one dies."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.servers.client import Client, ModelStopped, RequestRefused, Unreachable, Usage
from pytest_llmeval.models.servers.dialect import Dialect, FoundServer

__all__ = ["Replicas", "ServerReplica"]

_T = TypeVar("_T")
_SLACK = 4
"""So many questions more than its share may a server have that has read their prompt: as many as have options."""
_NUM_REMEMBERED = 1000


@dataclass(slots=True, kw_only=True)
class ServerReplica:
    """One server. ``error`` is what ended it."""

    client: Client
    dialect: Dialect
    found: FoundServer
    num_open: int = 0
    error: ModelError | None = None

    @property
    def load(self) -> float:
        return self.num_open / max(1, self.client.limit.width)


class Replicas:
    """Shares questions out, each to the server with the most room. Used on the event loop alone."""

    def __init__(self, members: Sequence[ServerReplica]) -> None:
        self.members = tuple(members)
        self._readers: OrderedDict[Hashable, ServerReplica] = OrderedDict()

    async def ask(self, question: Callable[[ServerReplica], Awaitable[_T]], prompt: Hashable = None) -> _T:
        """Return what the question's server answers. A server that is gone, or refuses to go on, is not asked again;
        one that fails for the moment, in all tries, leaves the question to another.

        The server that was last asked about the same ``prompt`` has read it already: it is asked again if it has
        little more to do than the others. Raises ``RequestError``, and what ended the last server.
        """
        tried: list[ServerReplica] = []
        while True:
            replica = self._next(prompt, tried)
            replica.num_open += 1
            try:
                return await question(replica)
            except (ModelStopped, Unreachable) as error:
                replica.error = replica.error or error
            except RequestRefused as error:
                tried.append(replica)
                if not error.may_pass or not self._living(tried):
                    raise
            finally:
                replica.num_open -= 1

    def _living(self, tried: Sequence[ServerReplica] = ()) -> list[ServerReplica]:
        return [m for m in self.members if m.error is None and not any(m is other for other in tried)]

    def _next(self, prompt: Hashable, tried: Sequence[ServerReplica]) -> ServerReplica:
        alive = self._living(tried) or self._living()
        if not alive:
            error = self.members[-1].error
            assert error is not None
            raise ModelStopped(str(error))
        chosen = min(alive, key=lambda replica: replica.load)
        if prompt is None or len(alive) == 1:
            return chosen
        reader = self._readers.pop(prompt, chosen)
        if any(reader is one for one in alive) and reader.num_open - _SLACK <= chosen.load * reader.client.limit.width:
            chosen = reader
        self._readers[prompt] = chosen
        if len(self._readers) > _NUM_REMEMBERED:
            self._readers.popitem(last=False)
        return chosen

    @property
    def num_concurrent(self) -> int:
        """Return how many questions the servers can work on at once: each connection on all that one request asks
        for.
        """
        return sum(one.client.limit.width * one.dialect.num_together for one in self.members if one.error is None)

    @property
    def usage(self) -> Usage:
        """Return the use of all servers together."""
        total = Usage()
        for replica in self.members:
            usage = replica.client.usage
            total.num_requests += usage.num_requests
            total.num_retries += Counter(dict(usage.num_retries))  # the loop may add a reason meanwhile
            total.num_prompt_tokens += usage.num_prompt_tokens
            total.num_tokens += usage.num_tokens
            total.num_in_flight += usage.num_in_flight
            total.max_in_flight += usage.max_in_flight
        return total
