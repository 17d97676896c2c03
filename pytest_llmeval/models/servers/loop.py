"""Background threads with an event loop for each process: requests to servers run on one, users' functions on another.

So both work where a loop runs already, in an async test or a notebook, and where several threads ask at once.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

__all__ = ["SharedLoop", "at_shutdown", "forget", "is_running_here", "run", "shutdown", "shutdown_if_unused", "wait"]

_T = TypeVar("_T")


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str, patience_s: float) -> None:
        self.pid = os.getpid()
        self._patience_s = patience_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._is_ending = False
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_ending:
                with contextlib.suppress(KeyboardInterrupt, SystemExit):  # which a task has, and whoever awaits it gets
                    self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start the coroutine on the loop, from any thread but the loop's own."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def is_running_here(self) -> bool:
        """Return whether this is called from its own thread."""
        return threading.current_thread() is self._thread

    def shutdown(self) -> None:
        """Cancel what still runs, close what was to be closed, and end the thread."""
        if self._loop.is_closed() or not self._thread.is_alive():
            return
        with contextlib.suppress(TimeoutError, CancelledError):
            self.run(self._wind_up()).result(self._patience_s)
        self._is_ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._patience_s)

    async def _wind_up(self) -> None:
        self._loop.set_exception_handler(lambda *_: None)  # of what cannot be ended the user knows already
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self.closers:
            await self.closers.pop()()
        await self._loop.shutdown_asyncgens()


class SharedLoop:
    """The event loop that all in one process share who use it, in a thread that starts with the first use.

    A fork of a process that has one starts another, since threads are not forked. Its end waits ``patience_s`` at most
    for what is cancelled, and as long for its thread.
    """

    def __init__(self, name: str, *, patience_s: float) -> None:
        self._name = name
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._current: _LoopThread | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.shutdown)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start the coroutine on the loop, from any other thread. Cancelling the future cancels it."""
        with self._lock:
            if self._current is None or self._current.pid != os.getpid():
                self._current = _LoopThread(self._name, self._patience_s)
            return self._current.run(coroutine)

    def wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return what the coroutine does. Ctrl-C and all else that ends the waiting cancels it. Not from the loop."""
        future = self.run(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def is_running_here(self) -> bool:
        """Return whether this is called from the loop's thread."""
        return self._current is not None and self._current.is_running_here()

    def at_shutdown(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have ``close`` awaited when the loop ends, after all tasks. On another loop nothing happens."""
        if self._current is not None and self._current.is_running_here():
            self._current.closers.append(close)

    def forget(self, close: Callable[[], Awaitable[None]]) -> None:
        """Take back what was given to ``at_shutdown``."""
        if self._current is not None and close in self._current.closers:
            self._current.closers.remove(close)

    def shutdown(self) -> None:
        """End the loop, if there is one; ``run`` starts another."""
        with self._lock:
            thread, self._current = self._current, None
        if thread is not None and thread.pid == os.getpid():
            thread.shutdown()

    def shutdown_if_unused(self) -> None:
        """End the loop where nothing is left that is to be closed at its end."""
        if self._current is not None and not self._current.closers:
            self.shutdown()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._current = None


_servers = SharedLoop("llmeval-servers", patience_s=5.0)
run, wait, is_running_here = _servers.run, _servers.wait, _servers.is_running_here
at_shutdown, forget = _servers.at_shutdown, _servers.forget
shutdown, shutdown_if_unused = _servers.shutdown, _servers.shutdown_if_unused
