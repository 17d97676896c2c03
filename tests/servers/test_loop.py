"""The event loop behind the scenes: it starts on first use, ends quietly, and is not inherited."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pytest_llmeval.models.servers import loop
from tests.support import REPOSITORY


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    loop.shutdown()
    yield
    loop.shutdown()
    gc.collect()  # what was not closed warns now, and fails this test


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "llmeval-servers"]


async def number(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_one_thread_on_first_use() -> None:
    assert threads() == []
    assert [loop.run(number(value)).result() for value in range(3)] == [0, 1, 2]
    assert threads() == ["llmeval-servers"]
    loop.shutdown()
    assert threads() == []
    assert loop.run(number(7)).result() == 7  # another


def test_shutdown_cancels_tasks_then_closes() -> None:
    events: list[str] = []
    begun = threading.Event()

    async def close() -> None:
        events.append("closed")

    async def forever() -> None:
        loop.at_shutdown(close)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("cancelled")

    futures = [loop.run(forever()), loop.run(forever())]
    assert begun.wait(60)
    loop.run(number(0)).result()
    loop.shutdown()
    assert events == ["cancelled", "cancelled", "closed", "closed"]
    assert all(future.cancelled() for future in futures)


def test_it_ends_with_its_last_user() -> None:
    async def close() -> None: ...

    async def use() -> None:
        loop.at_shutdown(close)

    async def end() -> None:
        loop.forget(close)

    loop.run(use()).result()
    loop.shutdown_if_unused()
    assert threads() == ["llmeval-servers"]
    loop.run(end()).result()
    loop.shutdown_if_unused()
    assert threads() == []


def test_cancelling_a_future_cancels_its_coroutine() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    future = loop.run(forever())
    assert begun.wait(60)
    assert future.cancel()
    assert ended.wait(60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    code = """
import asyncio, os, warnings
from pytest_llmeval.models.servers import loop

async def number(value):
    return value

assert loop.run(number(1)).result() == 1
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of forking with threads
    child = os.fork()
if child == 0:
    found = loop.run(number(2)).result(30)
    loop.shutdown()
    os._exit(0 if found == 2 else 1)
_, status = os.waitpid(child, 0)
assert loop.run(number(3)).result() == 3
print(status)
"""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    assert (found.stdout, found.stderr) == ("0\n", "")


def test_a_process_ends_with_requests_under_way() -> None:
    code = """
import asyncio
from pytest_llmeval.models.servers import loop

loop.run(asyncio.sleep(600))
print("end")
"""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    assert (found.stdout, found.stderr) == ("end\n", "")
