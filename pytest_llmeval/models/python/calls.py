"""Calls a user's function: several at a time, each with a limit of time, in coroutines or in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import inspect
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.servers.concurrency import FileSlots, FixedLimit
from pytest_llmeval.models.servers.loop import SharedLoop

__all__ = ["CallBounds", "CallOutcome", "Calls", "is_async"]

_FAILURES = (Exception, SystemExit, asyncio.CancelledError)
"""Exceptions that are a call's own failure. Ctrl-C is none, nor is one that ends a test of pytest."""
_PATIENCE_S = 1.0
"""The seconds that a cancelled coroutine may take to clean up."""
_WAIT_S = 0.02
"""Seconds between looks whether a call may begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBounds:
    """Bounds on the calls of a function: how many run at a time, and how long one may take.

    ``concurrency`` None leaves the number to ``most``, which the user allows every model, or to the default. In
    ``folder`` the processes of a session agree on the number; None if there is one process.
    """

    concurrency: int | None = None
    most: int | None = None
    timeout_s: float | None = None
    folder: Path | None = None


class CallOutcome(NamedTuple):
    """The value that a call returned, or the error that it raised. ``is_late``: it did neither in its time."""

    returned: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    is_late: bool = False


_loop = SharedLoop("llmeval-functions", patience_s=_PATIENCE_S)
"""One loop for all functions of a process: an HTTP client belongs to the loop of its first use, and is shared."""


_Ended: TypeAlias = "queue.SimpleQueue[tuple[int, CallOutcome, threading.Event] | None]"


class _Stopped(Exception):
    """Carries an exception that ends all calls, such as Ctrl-C or the end of a test; a failure of one call does not."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Calls:
    """Runs calls of one function.

    Calls of an async function are coroutines on one event loop, 8 at a time. Calls of any other function run one after
    the other in the asking thread; with a number of concurrent calls, a time limit, or an event loop that runs already,
    each runs in a thread of its own. The time limit counts from the start of a call, not from the wait for its turn. A
    coroutine that is late is cancelled; a thread is left behind, since nothing can end it.
    """

    def __init__(self, function: object, name: str, bounds: CallBounds) -> None:
        self._is_async = is_async(function)
        self.concurrency = bounds.concurrency or ((bounds.most or _USUAL) if self._is_async else 1)
        self._name = name
        self._bounds = bounds
        self._limit: FixedLimit | None = None

    def run(
        self,
        calls: Sequence[Callable[[], Any]],
        take: Callable[[int, CallOutcome], None],
        may_begin: Callable[[int], bool] = lambda place: True,
    ) -> None:
        """Make the calls, and give ``take`` each one's place and outcome before another call begins in its place.

        So a process that is killed loses no reply that was complete. A call waits until ``may_begin`` of its place is
        true, and counts its time from then; an exception of ``may_begin`` is its outcome.
        """
        if not self._is_direct:
            self._on_loop(calls, take, may_begin)
            return
        for place, call in enumerate(calls):
            try:
                while not may_begin(place):
                    time.sleep(_WAIT_S)
            except RequestError as error:
                take(place, CallOutcome(error=error))
            else:
                take(place, self._direct(call))

    @property
    def _is_direct(self) -> bool:
        """Tell whether calls can run in this thread: one at a time, and without a limit of time.

        In a thread whose event loop runs, a function could not run a loop of its own, as many frameworks do.
        """
        bounds = self._bounds
        shares = bounds.concurrency is not None and bounds.folder is not None
        is_plain = not self._is_async and self.concurrency == 1 and bounds.timeout_s is None and not shares
        return is_plain and (not _has_running_loop() or _loop.is_running_here())

    def _direct(self, call: Callable[[], Any]) -> CallOutcome:
        started = time.perf_counter()
        try:
            returned = call()
        except _FAILURES as error:
            return CallOutcome(error=error)
        if not inspect.isawaitable(returned):
            return CallOutcome(returned, seconds=time.perf_counter() - started)
        found: list[CallOutcome] = []
        self._on_loop([lambda: returned], lambda _, outcome: found.append(outcome))
        return found[0]._replace(seconds=time.perf_counter() - started)

    def _on_loop(
        self,
        calls: Sequence[Callable[[], Any]],
        take: Callable[[int, CallOutcome], None],
        may_begin: Callable[[int], bool] = lambda place: True,
    ) -> None:
        if _loop.is_running_here():
            raise RuntimeError(
                f"{self._name} is asked within a coroutine on whose event loop its own would run: write await "
                "asyncio.to_thread(model.generate, request)"
            )
        ended: _Ended = queue.SimpleQueue()
        future = _loop.run(self._gather(calls, ended, may_begin))
        try:
            while (one := ended.get()) is not None:
                place, outcome, is_taken = one
                try:
                    take(place, outcome)
                finally:
                    is_taken.set()
        except BaseException:
            future.cancel()
            with contextlib.suppress(queue.Empty):
                while (one := ended.get(timeout=_PATIENCE_S)) is not None:
                    one[2].set()
            raise
        try:
            future.result()
        except* _Stopped as group:
            stopped: BaseException = group
            while isinstance(stopped, BaseExceptionGroup):
                stopped = stopped.exceptions[0]
            error = stopped.error if isinstance(stopped, _Stopped) else stopped
        else:
            return
        raise error

    async def _gather(
        self, calls: Sequence[Callable[[], Any]], ended: _Ended, may_begin: Callable[[int], bool]
    ) -> None:
        """Make the calls. Each one's place and outcome go to ``ended``, and None after all.

        The loop waits until the asking thread has taken an outcome. Otherwise a process that dies in the next call
        could lose replies that were complete.
        """

        async def one(limit: FixedLimit, place: int, call: Callable[[], Any]) -> None:
            async with limit.slot():
                try:
                    while not may_begin(place):
                        await asyncio.sleep(_WAIT_S)
                except RequestError as error:
                    outcome = CallOutcome(error=error)
                else:
                    outcome = await self._bounded(call)
            if outcome.error is not None and not isinstance(outcome.error, _FAILURES):
                raise _Stopped(outcome.error)
            is_taken = threading.Event()
            ended.put((place, outcome, is_taken))
            is_taken.wait(_PATIENCE_S)

        try:
            limit = self._shared_limit()
            async with asyncio.TaskGroup() as group:
                for place, call in enumerate(calls):
                    group.create_task(one(limit, place, call))
        finally:
            ended.put(None)

    def _shared_limit(self) -> FixedLimit:
        if self._limit is None:
            folder = self._bounds.folder
            of_model = None if folder is None else folder / hashlib.sha256(self._name.encode()).hexdigest()[:16]
            self._limit = FixedLimit(self.concurrency, None if of_model is None else FileSlots(of_model))
        return self._limit

    async def _bounded(self, call: Callable[[], Any]) -> CallOutcome:
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
            return CallOutcome(is_late=True, seconds=seconds)
        if task.cancelled():
            return CallOutcome(error=asyncio.CancelledError("the call was cancelled from within"))
        return task.result()._replace(seconds=seconds)


_USUAL = 8
"""Concurrent calls of an async function, if nothing says how many."""


def is_async(function: object) -> bool:
    """Tell whether it is called for a coroutine. A function that merely returns one is not known for that."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _outcome(call: Callable[[], Any]) -> CallOutcome:
    try:
        returned = call()
        while inspect.isawaitable(returned):  # the thread's, and what the function in it has returned
            returned = await returned
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # Ctrl-C too: left to asyncio, it would end the thread of the loop
        return CallOutcome(error=error)
    return CallOutcome(returned)


def _in_thread(call: Callable[[], Any], name: str) -> asyncio.Future[Any]:
    """Return what a thread will have returned; the process can end without waiting for it."""
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


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
