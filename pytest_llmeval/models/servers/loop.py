"""One background thread with an event loop for each process, on which all requests to servers run."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

__all__ = ["at_shutdown", "forget", "run", "shutdown", "shutdown_if_unused", "wait"]

_T = TypeVar("_T")
_PATIENCE_S = 5.0
"""How long the end waits for what is cancelled."""


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="llmeval-servers", daemon=True)
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start the coroutine on the loop, from any thread but the loop's own."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def is_running_here(self) -> bool:
        """Whether this is called from its own thread."""
        return threading.current_thread() is self._thread

    def shutdown(self) -> None:
        """Cancel what still runs, close what was to be closed, and end the thread."""
        if self._loop.is_closed() or not self._thread.is_alive():
            return
        with contextlib.suppress(TimeoutError, CancelledError):
            self.run(self._wind_up()).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)

    async def _wind_up(self) -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self.closers:
            await self.closers.pop()()
        await self._loop.shutdown_asyncgens()


_lock = threading.Lock()
_current: LoopThread | None = None


def _thread() -> LoopThread:
    """This process's own; a fork of a process that has one starts another, since threads are not forked."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def run(coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Start the coroutine on this process's loop, from any other thread. Cancelling the future cancels it."""
    return _thread().run(coroutine)


def wait(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """What the coroutine returns. Ctrl-C and all else that ends the waiting cancels it. Not from the loop's thread."""
    future = run(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def at_shutdown(close: Callable[[], Awaitable[None]]) -> None:
    """On this process's loop: have ``close`` awaited when it ends, after all tasks. On another loop nothing happens."""
    if _current is not None and _current.is_running_here():
        _current.closers.append(close)


def forget(close: Callable[[], Awaitable[None]]) -> None:
    """Take back what was given to ``at_shutdown``."""
    if _current is not None and close in _current.closers:
        _current.closers.remove(close)


def shutdown() -> None:
    """End this process's loop, if it has one; ``run`` starts another."""
    global _current
    with _lock:
        thread, _current = _current, None
    if thread is not None and thread.pid == os.getpid():
        thread.shutdown()


def shutdown_if_unused() -> None:
    """End this process's loop where nothing is left that is to be closed at its end."""
    if _current is not None and not _current.closers:
        shutdown()


def _after_fork() -> None:
    global _lock, _current
    _lock = threading.Lock()
    _current = None


os.register_at_fork(after_in_child=_after_fork) if hasattr(os, "register_at_fork") else None
atexit.register(shutdown)
