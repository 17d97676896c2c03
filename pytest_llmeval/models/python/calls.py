"""Calls a user's function: several at a time, each with a limit of time, in coroutines or in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import inspect
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pytest_llmeval.models.servers.limits import FixedLimit
from pytest_llmeval.models.servers.slots import FileSlots

__all__ = ["Bounds", "Calls", "Outcome", "is_async"]

_T = TypeVar("_T")
_FAILURES = (Exception, SystemExit, asyncio.CancelledError)
"""What is a call's own failure; Ctrl-C is not, nor what ends a test of pytest."""
_PATIENCE_S = 1.0
"""For so long a coroutine that was cancelled may clean up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many calls run at a time, None for as many as is usual, and how long one may take.

    ``most`` is what the user allows models in general, in the place of what is usual. In ``folder`` the processes of a
    session agree on the number; None where there is one process.
    """

    concurrency: int | None = None
    most: int | None = None
    timeout_s: float | None = None
    folder: Path | None = None


class Outcome(NamedTuple):
    """What a call returned or raised. ``is_late``: it did neither in its time."""

    returned: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    is_late: bool = False


class Calls:
    """Runs calls of one function, in one event loop for all: clients of HTTP belong to the loop of their first use.

    Those of an async function are coroutines, 8 at a time. Those of another one run one after the other where they are
    asked for; where it is told how many at a time, or how long one may take, each runs in a thread of its own. In time
    means from the call on, not from the waiting for its turn. What is late is cancelled, or where it is a thread, left
    behind: nothing can end it.
    """

    def __init__(self, function: object, name: str, bounds: Bounds) -> None:
        self._is_async = is_async(function)
        self.concurrency = bounds.concurrency or ((bounds.most or _USUAL) if self._is_async else 1)
        self._name = name
        self._bounds = bounds
        self._limit: FixedLimit | None = None
        self._runner: asyncio.Runner | None = None

    def run(self, calls: Sequence[Callable[[], Any]], take: Callable[[int, Outcome], None]) -> None:
        """Make the calls, and give ``take`` each one's place and outcome as soon as it is there."""
        if self._is_direct:
            for place, call in enumerate(calls):
                take(place, self._direct(call))
        else:
            self._in_loop(self._gather(calls, take))

    @property
    def _is_direct(self) -> bool:
        """Whether a call can run in this thread: no other call has to run meanwhile, and none has a limit of time."""
        bounds = self._bounds
        shares = bounds.concurrency is not None and bounds.folder is not None
        return not self._is_async and self.concurrency == 1 and bounds.timeout_s is None and not shares

    def _direct(self, call: Callable[[], Any]) -> Outcome:
        started = time.perf_counter()
        try:
            returned = call()
            if inspect.isawaitable(returned):
                returned = self._in_loop(_waited(returned))
        except _FAILURES as error:
            return Outcome(error=error)
        return Outcome(returned, seconds=time.perf_counter() - started)

    async def _gather(self, calls: Sequence[Callable[[], Any]], take: Callable[[int, Outcome], None]) -> None:
        limit = self._shared_limit()

        async def one(place: int, call: Callable[[], Any]) -> None:
            async with limit.slot():
                outcome = await self._bounded(call)
            take(place, outcome)

        if len(calls) == 1:  # what is raised comes through as it is
            await one(0, calls[0])
            return
        async with asyncio.TaskGroup() as group:
            for place, call in enumerate(calls):
                group.create_task(one(place, call))

    def _shared_limit(self) -> FixedLimit:
        if self._limit is None:
            folder = self._bounds.folder
            of_model = None if folder is None else folder / hashlib.sha256(self._name.encode()).hexdigest()[:16]
            self._limit = FixedLimit(self.concurrency, None if of_model is None else FileSlots(of_model))
        return self._limit

    async def _bounded(self, call: Callable[[], Any]) -> Outcome:
        started = time.perf_counter()
        task = asyncio.create_task(_outcome(call if self._is_async else lambda: _in_thread(call, self._name)))
        try:
            done, _ = await asyncio.wait((task,), timeout=self._bounds.timeout_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        seconds = time.perf_counter() - started
        if not done:
            task.cancel()
            await asyncio.wait((task,), timeout=_PATIENCE_S)
            return Outcome(is_late=True, seconds=seconds)
        if task.cancelled():
            return Outcome(error=asyncio.CancelledError("the call was cancelled from within"))
        return task.result()._replace(seconds=seconds)

    def _in_loop(self, calls: Coroutine[Any, Any, _T]) -> _T:
        if self._runner is None:
            loop = asyncio.new_event_loop()
            self._runner = asyncio.Runner(loop_factory=lambda: loop)
            weakref.finalize(self, _close, loop)
        try:
            return self._runner.run(calls)
        except BaseException:
            _end_tasks(self._runner.get_loop())
            raise


_USUAL = 8
"""Calls of an async function at a time."""


def is_async(function: object) -> bool:
    """Whether it is called for a coroutine. A function that merely returns one is not known for that."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _outcome(call: Callable[[], Any]) -> Outcome:
    try:
        returned = call()
        while inspect.isawaitable(returned):  # the thread's, and what the function in it has returned
            returned = await returned
    except (Exception, SystemExit) as error:
        return Outcome(error=error)
    return Outcome(returned)


def _in_thread(call: Callable[[], Any], name: str) -> asyncio.Future[Any]:
    """What a thread will have returned; the process can end without waiting for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(returned: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if isinstance(error, StopIteration):  # no future can raise it
            future.set_exception(RuntimeError(f"the call raised {error!r}"))
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(returned)

    def work() -> None:
        returned, raised = None, None
        try:
            returned = context.run(call)
        except BaseException as error:
            raised = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the session has ended meanwhile
            loop.call_soon_threadsafe(tell, returned, raised)

    threading.Thread(target=work, name=f"call of {name}", daemon=True).start()
    return future


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Without a word of calls that were too late, and that nothing could end: the user knows of them."""
    loop.set_exception_handler(lambda *_: None)
    loop.close()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what Ctrl-C has left in the loop, and wait for its end: asyncio would complain of it when pytest ends."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    ends = asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(2):  # Ctrl-C comes through once more, from the task that waited for the one that it hit
        with contextlib.suppress(KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            loop.run_until_complete(ends)


async def _waited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
