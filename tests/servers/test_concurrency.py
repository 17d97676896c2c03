"""How many requests are open at once: in one process, over several, and as a hosted API's refusals teach it."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.servers.concurrency import (
    AdaptiveLimit,
    CountedSlots,
    FileSlots,
    FileWidth,
    FixedLimit,
    Limit,
    Ticket,
    Width,
    limit_for,
)
from tests.support import REPOSITORY


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


class Holder:
    """Requests that hold a slot until they are let go."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self.num_held = self.most_held = 0
        self.order: list[int] = []
        self._ends: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, number: int) -> list[asyncio.Task[None]]:
        first = len(self._tasks)
        for place in range(first, first + number):
            self._ends.append(asyncio.Event())
            self._tasks.append(asyncio.create_task(self._hold(place)))
        return self._tasks[first:]

    async def _hold(self, place: int) -> None:
        async with self._limit.slot():
            self.order.append(place)
            self.num_held += 1
            self.most_held = max(self.most_held, self.num_held)
            try:
                await self._ends[place].wait()
            finally:
                self.num_held -= 1

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def let_go(self, *places: int) -> None:
        for place in places:
            self._ends[place].set()
        await self.settle()

    async def end(self) -> None:
        await self.let_go(*range(len(self._ends)))
        await asyncio.gather(*self._tasks, return_exceptions=True)


def test_no_more_than_the_width_and_in_order() -> None:
    async def main() -> None:
        holder = Holder(FixedLimit(3))
        holder.start(8)
        await holder.settle()
        assert holder.order == [0, 1, 2]
        await holder.let_go(1)
        assert holder.order == [0, 1, 2, 3]
        await holder.end()
        assert holder.most_held == 3
        assert holder.order == list(range(8))

    run(main())


def test_a_width_that_is_set_later() -> None:
    async def main() -> None:
        limit = FixedLimit(4)
        holder = Holder(limit)
        holder.start(10)
        await holder.settle()
        limit.set_width(1)
        await holder.let_go(0, 1, 2)
        assert holder.order == [0, 1, 2, 3]  # one is still held: the new width
        await holder.let_go(3)
        assert holder.order == [0, 1, 2, 3, 4]
        limit.set_width(3)
        await holder.settle()
        assert holder.num_held == 3
        await holder.end()
        assert sorted(holder.order) == list(range(10))

    run(main())


@pytest.mark.parametrize("moment", ["waiting", "just given"])
def test_a_request_that_is_cancelled_takes_no_slot_with_it(moment: str) -> None:
    async def main() -> None:
        holder = Holder(FixedLimit(1))
        _, second, _ = holder.start(3)
        await holder.settle()
        if moment == "just given":
            holder._ends[0].set()
            await asyncio.sleep(0)  # the first lets go, and the second has the slot but has not run yet
        second.cancel()
        await holder.let_go(0)
        assert 2 in holder.order
        await holder.end()
        assert 1 not in holder.order

    run(main())


# The adaptive rule


def answered(limit: AdaptiveLimit, number: int) -> None:
    for _ in range(number):
        limit.answered(Ticket(limit.episode))


class Full(AdaptiveLimit):
    """Somebody waits for a slot, always."""

    is_full = True


def test_it_grows_by_one_for_a_round_trip_while_it_is_full() -> None:
    limit = Full(20)
    answered(limit, 19)
    assert limit.width == 20
    answered(limit, 2)
    assert limit.width == 21
    answered(limit, 5000)
    assert limit.width == 100  # the most


def test_it_does_not_grow_while_it_is_not_full() -> None:
    limit = AdaptiveLimit(20)
    answered(limit, 5000)
    assert limit.width == 20


def test_many_refusals_of_one_round_trip_are_one_episode() -> None:
    limit = Full(20)
    sent = [Ticket(limit.episode) for _ in range(20)]
    for ticket in sent:
        limit.refused(ticket)
    assert limit.width == 16
    for ticket in sent:
        limit.answered(ticket)  # they were sent before it shrank
    assert limit.width == 16
    limit.refused(Ticket(limit.episode))
    assert limit.width == 12


def test_it_never_shrinks_below_the_least() -> None:
    limit = Full(20)
    for _ in range(50):
        limit.refused(Ticket(limit.episode))
    assert limit.width == 4


KINDS = st.sampled_from(["answered", "refused"])


@given(
    first=st.integers(4, 100),
    events=st.lists(st.tuples(KINDS, st.integers(0, 40), st.booleans()), max_size=80),
)
def test_what_holds_of_any_course(first: int, events: list[tuple[str, int, bool]]) -> None:
    """Bounds; growth of one for a round-trip at most; a shrinking only by a ticket of the present width."""
    limit = AdaptiveLimit(first)
    for kind, number, is_full in events:
        before, episode = limit._width, limit.episode
        type(limit).is_full = property(lambda _, full=is_full: full)  # type: ignore[assignment,misc]
        try:
            if kind == "answered":
                answered(limit, number)
                grown = limit._width.value - before.value
                assert 0 <= grown <= number / before.value + 1
                assert is_full or grown == 0
                assert limit.episode == episode
            else:
                tickets = [Ticket(episode)] * number
                for ticket in tickets:
                    limit.refused(ticket)
                assert limit.episode == episode + (number > 0)
                assert limit._width.value == (max(4, before.value * 0.8) if number else before.value)
                limit.refused(Ticket(episode - 1))
                assert limit.episode == episode + (number > 0)
        finally:
            del type(limit).is_full
        assert 4 <= limit.width <= 100


def test_a_width_that_a_server_tells_does_not_adapt() -> None:
    limit = Full(20)
    limit.set_width(7)
    limit.refused(Ticket(limit.episode))
    answered(limit, 100)
    assert limit.width == 7


@pytest.mark.parametrize(
    ("url", "most", "kind", "width"),
    [
        ("http://localhost:8000/v1", None, FixedLimit, 64),
        ("http://localhost:8000/v1", 3, FixedLimit, 3),
        ("http://gpu7:8000/v1", None, FixedLimit, 64),
        ("https://10.0.0.7/v1", None, FixedLimit, 64),
        ("https://gpu.internal/v1", None, FixedLimit, 64),
        ("https://api.openai.com/v1", None, AdaptiveLimit, 20),
        ("https://api.openai.com/v1", 8, AdaptiveLimit, 8),
    ],
)
def test_limits_of_hosts(url: str, most: int | None, kind: type[Limit], width: int) -> None:
    limit = limit_for(Endpoint(url=url, max_connections=most), None)
    assert (type(limit), limit.width) == (kind, width)


def test_models_of_one_host_share_its_limit() -> None:
    one = limit_for(Endpoint(url="http://host:1/v1"), None)
    assert limit_for(Endpoint(url="http://host:1/other/v1"), None) is one
    assert limit_for(Endpoint(url="http://host:2/v1"), None) is not one


@pytest.mark.parametrize("url", ["http://host:3/v1", "https://api.example.com/v1"])
def test_of_two_models_on_a_host_the_smaller_number_counts(url: str) -> None:
    limit = limit_for(Endpoint(url=url), None)
    limit_for(Endpoint(url=url, max_connections=7), None)
    limit_for(Endpoint(url=url, max_connections=9), None)
    assert limit.width == 7
    assert isinstance(limit, FixedLimit) or limit._most == 7  # type: ignore[attr-defined]


# Several processes


def test_what_a_server_tells_does_not_widen_what_the_user_allows() -> None:
    host = "http://narrow:9/v1"
    one = limit_for(Endpoint(url=host, max_connections=1), None)
    other = limit_for(Endpoint(url=host), None)
    other.set_width(4)
    assert (one.width, other.width) == (1, 1)


def test_too_many_open_files_are_waited_for() -> None:
    class Slots(CountedSlots):
        are_shared = True
        errors: ClassVar = [errno.EMFILE, errno.ENFILE]

        def take(self, width: int) -> Any:
            if self.errors:
                raise OSError(self.errors.pop(), "too many open files")
            return super().take(width)

    async def main() -> None:
        async with FixedLimit(1, Slots()).slot():
            pass

    run(main())


def test_a_folder_that_is_gone_fails_those_that_wait() -> None:
    class Slots(CountedSlots):
        are_shared = True

        def take(self, width: int) -> Any:
            if self._num_taken:
                raise FileNotFoundError(errno.ENOENT, "the folder is gone")
            return super().take(width)

        def may_keep(self, held: Any, width: int) -> bool:
            return False

    async def wait_for_a_slot(limit: Limit) -> None:
        async with limit.slot():
            pass

    async def main() -> None:
        limit = FixedLimit(1, Slots())
        async with limit.slot():
            limit._waiting.append(asyncio.get_running_loop().create_future())
            waiting = asyncio.create_task(wait_for_a_slot(limit))
            with pytest.raises(FileNotFoundError):
                await waiting

    run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_has_slots_of_its_own() -> None:
    endpoint = Endpoint(url="http://forked:9/v1", max_connections=1)

    async def main() -> int:
        async with limit_for(endpoint, None).slot():
            child = os.fork()
            if child == 0:
                is_free = limit_for(endpoint, None)._take() is not None
                os._exit(0 if is_free else 1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert asyncio.run(main()) == 0


def test_two_limits_with_one_folder_are_one(tmp_path: Path) -> None:
    async def main() -> None:
        holders = [Holder(FixedLimit(5, FileSlots(tmp_path))) for _ in range(2)]
        for holder in holders:
            holder.start(20)
            await holder.settle()
        first, second = holders
        assert (first.num_held, second.num_held) == (5, 0)
        await first.let_go(*range(20))  # the first five pass their slots on, until all are answered
        while second.num_held < 5:
            await asyncio.sleep(0.001)
        assert first.num_held == 0
        await second.end()
        assert (first.most_held, second.most_held) == (5, 5)
        await first.end()

    run(main())


def test_a_slot_that_was_kept_for_long_goes_to_others(tmp_path: Path) -> None:
    now = [0.0]
    slots = FileSlots(tmp_path, clock=lambda: now[0])
    held = slots.take(1)
    assert slots.may_keep(held, 1)
    now[0] = 60.0
    assert not slots.may_keep(held, 1)
    slots.give(held)
    assert slots.take(1) is not None


_HOLDER = """
import asyncio, sys
from pathlib import Path
from pytest_llmeval.models.servers.concurrency import FixedLimit
from pytest_llmeval.models.servers.concurrency import FileSlots

async def main():
    limit = FixedLimit(6, FileSlots(Path(sys.argv[1])))
    slots = [limit.slot() for _ in range(4)]
    for slot in slots:
        await slot.__aenter__()
    print("held", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_slots_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert process.stdout is not None

    async def main() -> None:
        limit = FixedLimit(6, FileSlots(tmp_path))
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(limit.slot())
            holder = Holder(limit)
            holder.start(4)
            for _ in range(10):
                await asyncio.sleep(0.01)
            assert holder.num_held == 0  # six are taken
            process.kill()
            process.wait()
            while holder.num_held < 4:
                await asyncio.sleep(0.01)
            await holder.end()

    try:
        assert process.stdout.readline() == "held\n"
        run(main())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_width_that_processes_share(tmp_path: Path) -> None:
    now = [0.0]
    one, other = (Full(20, store=FileWidth(tmp_path), clock=lambda: now[0]) for _ in range(2))
    ticket = Ticket(one.episode)
    one.refused(ticket)
    assert (one.width, other.width) == (16, 20)  # the other looks twice a second
    other.refused(ticket)  # sent before the other process's shrank it: one episode
    assert (one.width, other.width) == (16, 16)
    answered(other, 17)
    now[0] = 1.0
    assert (one.width, other.width) == (17, 17)


def test_a_torn_width_changes_nothing(tmp_path: Path) -> None:
    store = FileWidth(tmp_path)
    (tmp_path / "width.json").write_text("[20.")
    assert store.read(Width(7.0)) == Width(7.0)
