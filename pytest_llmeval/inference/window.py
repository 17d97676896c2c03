"""A window of samples that are open at once: for models that answer in the background (``BackgroundModel``).

Chunks are for models that are asked for many requests in one call. A server is asked for each by itself, and has to be
kept busy also at the end of a chunk: as many samples as the model can take, and as many again, are with it, and a
sample waits for its own replies alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.dispatch import received, submitted
from pytest_llmeval.models.base import BackgroundModel, Failed
from pytest_llmeval.types import Request, Response

__all__ = ["Window"]

_PORTIONS = 64
"""A large window is filled when a part of it, one in so many, is free: to look for the next sample takes time."""


class Window:
    """The samples whose requests are with ``model``, by key."""

    def __init__(self, model: BackgroundModel) -> None:
        self._model = model
        self._open: dict[Hashable, tuple[Sequence[Request], list[Future[Response | Failed]]]] = {}
        self._is_closed = False

    def __contains__(self, key: Hashable) -> bool:
        return key in self._open

    @property
    def num_free(self) -> int:
        """Return how many more samples are worth opening: twice what the model works on is open at the most."""
        return 0 if self._is_closed else 2 * self._model.num_concurrent - len(self._open)

    def open(self, key: Hashable, requests: Sequence[Request], answerer: BackgroundModel | None = None) -> None:
        """Give the model, or what answers for it, the requests of one more sample. Raises what ``submit`` does."""
        self._open[key] = requests, submitted(answerer or self._model, requests)

    def fill(
        self, candidates: Iterable[tuple[Hashable, Callable[[], tuple[Sequence[Request], BackgroundModel]]]]
    ) -> None:
        """Open samples while there is room. One for which that fails is passed over: it fails when it runs."""
        if self.num_free <= 2 * self._model.num_concurrent // _PORTIONS:
            return
        for key, make_requests in candidates:
            try:
                self.open(key, *make_requests())
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException:  # pytest's own outcomes (skip, fail) are no Exceptions
                continue
            if self.num_free <= 0:
                return

    def drop_before(self, key: Hashable) -> None:
        """Take back samples that were opened before this one: they did not run in their turn (skipped, a fixture)."""
        while self._open and (other := next(iter(self._open))) != key:
            _cancel(self._open.pop(other)[1])

    def is_answered(self, key: Hashable) -> bool:
        """Return whether all replies of a sample are there, and were not taken yet."""
        return key in self._open and all(future.done() and not future.cancelled() for future in self._open[key][1])

    @property
    def answered(self) -> list[Hashable]:
        """Return the samples whose replies are all there, and were not taken yet."""
        return [key for key in self._open if self.is_answered(key)]

    def responses(self, key: Hashable) -> list[Response] | None:
        """Return what was answered of such a sample, which stays open; None where a request failed."""
        requests, futures = self._open[key]
        try:
            found = received(self._model, requests, futures)
        except Exception:  # the sample will hear of it
            return None
        responses = [one for one in found if not isinstance(one, RequestError)]
        return responses if len(responses) == len(found) else None

    def take(self, key: Hashable) -> list[Response | Failed]:
        """Wait for the replies of an open sample, which is open no more. What ends the wait cancels its requests."""
        __tracebackhide__ = True
        requests, futures = self._open.pop(key)
        try:
            return received(self._model, requests, futures)
        finally:
            _cancel(futures)

    def close(self) -> None:
        """Open no more, and take back what was not answered; what was stays to be taken."""
        self._is_closed = True
        for key in [key for key in self._open if not self.is_answered(key)]:
            _cancel(self._open.pop(key)[1])


def _cancel(futures: Iterable[Future[Response | Failed]]) -> None:
    for future in futures:
        future.cancel()
