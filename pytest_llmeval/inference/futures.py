"""Replies that a model in the background gives one after another: each decides what is asked next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from pytest_llmeval.models.base import Failed
from pytest_llmeval.types import Response

__all__ = ["Reply", "chain"]

Reply: TypeAlias = "Future[Response | Failed]"


def chain(first: Reply, then: Callable[[Reply], Reply | Response | Failed], found: Reply | None = None) -> Reply:
    """Return ``found``, or a new future, which gets the last reply of requests that follow one on another.

    ``then`` is given the future of each reply once it is there, and returns that of the next request, or the last
    reply; what it raises ends the chain. The request that is open is cancelled with the chain, and the chain with it.
    """
    whole: Reply = Future() if found is None else found
    asked = first

    def go_on(done: Reply) -> None:
        nonlocal asked
        end: Reply | Response | Failed | None = None
        if done.cancelled():
            whole.cancel()
        try:
            if not whole.cancelled():
                end = then(done)
        except BaseException as error:  # in a callback it would be lost, and the wait for the reply have no end
            if whole.set_running_or_notify_cancel():
                whole.set_exception(error)
            return
        if isinstance(end, Future):
            asked = end
            end.add_done_callback(go_on)
        elif whole.set_running_or_notify_cancel() and end is not None:
            whole.set_result(end)

    whole.add_done_callback(lambda _: whole.cancelled() and asked.cancel())
    first.add_done_callback(go_on)
    return whole
