"""Requests per minute, and what servers say is left: headers, the pace by a fake clock, processes, sessions."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelStoppedError
from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.servers.client import Client
from pytest_llmeval.models.servers.rates import (
    LONGEST_WAIT_S,
    Allowance,
    RequestQueue,
    ServerPace,
    allowance_in,
    request_queue_for,
)
from tests.properties import examples
from tests.servers.scripted import Call, reply
from tests.servers.stub import StubServer
from tests.servers.test_client import KEY, OK, Clock, post_once, talk

WALL = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def bucket(left: int, reset_s: float, limit: int | None = None) -> Allowance:
    return Allowance(left=left, limit=limit, reset_s=reset_s, refills=True)


def window(left: int, reset_s: float, limit: int | None = None) -> Allowance:
    return Allowance(left=left, limit=limit, reset_s=reset_s, refills=False)


def openai(left: object, reset: object, limit: object = 60) -> dict[str, str]:
    names = ("remaining", "reset", "limit")
    return {f"x-ratelimit-{name}-requests": str(value) for name, value in zip(names, (left, reset, limit), strict=True)}


# What a server says


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        (openai(59, "1s"), bucket(59, 1.0, 60)),
        (openai(0, "6m0s"), bucket(0, 360.0, 60)),
        (openai(3, "2m59.56s"), bucket(3, 179.56, 60)),
        (openai(9999, "6ms", 10_000), bucket(9999, 0.006, 10_000)),
        (openai(1, "1h2m3s500ms"), bucket(1, 3723.5, 60)),
        (openai(1, "12"), bucket(1, 12.0, 60)),
        (openai(1, "0.25", ""), bucket(1, 0.25)),
        (openai("many", "1s"), None),
        (openai(-1, "1s"), None),
        (openai(1, "soon"), None),
        (openai(1, ""), None),
        (openai(1, "1e9"), None),
        (openai(1, "1s1"), None),
        ({"x-ratelimit-remaining-requests": "5"}, None),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "1s"}, None),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "48",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:22Z",
            },
            bucket(48, 2.0, 50),
        ),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2023-11-14T23:13:00+01:00",
            },
            bucket(0, 0.0),
        ),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:22",
            },
            None,
        ),
        ({"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "7", "ratelimit-reset": "30"}, window(7, 30, 100)),
        ({"ratelimit": "limit=100, remaining=50, reset=30"}, window(50, 30)),
        ({"ratelimit": '"minute";r=50;t=30'}, window(50, 30)),
        ({"ratelimit": '"minute";r=50;t=30, "day";r=9;t=7000'}, window(9, 7000)),
        ({"ratelimit": '"minute";r=50'}, None),
        ({"ratelimit": "nothing of the kind"}, None),
    ],
)
def test_headers(headers: dict[str, str], found: Allowance | None) -> None:
    assert allowance_in(headers, WALL) == found


@given(text=st.text(st.characters(max_codepoint=255), max_size=40))
def test_whatever_stands_in_a_header_is_no_error(text: str) -> None:
    names = [*openai(1, 1), "ratelimit-remaining", "ratelimit-reset", "ratelimit"]
    for name in names:
        allowance_in({**openai(1, "1s"), name: text}, WALL)
    allowance_in({"ratelimit": text}, WALL)


# The pace


def times_of(pace: ServerPace, number: int, models: Sequence[str] = ("m",)) -> list[float]:
    """When so many requests are sent that all wait, for one of the models after the other."""
    now, found = 0.0, []
    for _, model in zip(range(number), itertools.cycle(models), strict=False):
        while (wait_s := pace.wait_s(model, now)) > 0:
            now += wait_s
        pace = pace.after_request(model, now)
        found.append(now)
    return found


def test_requests_are_spread_over_the_minute() -> None:
    assert times_of(ServerPace().slowed_down(20, 0), 4) == [0, 20, 40, 60]
    assert times_of(ServerPace().slowed_down(20, 0).slowed_down(30, 0).slowed_down(1, 0), 3) == [0, 30, 60]
    assert times_of(ServerPace().slowed_down(20, 20), 3) == [20, 40, 60]
    assert times_of(ServerPace(), 3) == [0, 0, 0]


@pytest.mark.parametrize(
    ("found", "num_in_flight", "times"),
    [
        (window(2, 30.0), 0, [0, 0, 30, 30]),  # then nothing is known
        (window(2, 30.0, 3), 0, [0, 0, 30, 30, 30, 90]),  # then three, and the next window is told by a reply
        (window(2, 30.0), 1, [0, 30]),
        (window(0, 7200.0, 900), 0, [LONGEST_WAIT_S, LONGEST_WAIT_S + 60]),  # one request finds out
        (bucket(0, 60.0, 60), 0, [1, 2, 3]),
        (bucket(1, 59.0, 60), 0, [0, 1, 2]),
        (bucket(0, 30.0), 0, [30, 30]),  # of no limit: when it is full again
        (bucket(0, 86400.0, 14_400), 0, [6, 12, 18]),
        (bucket(0, 86400.0, 4), 0, [LONGEST_WAIT_S, 2 * LONGEST_WAIT_S]),
        (bucket(5, 0.0, 5), 0, [0] * 5),
        (window(0, 0.0), 0, [0, 0]),
    ],
)
def test_what_is_left(found: Allowance, num_in_flight: int, times: list[float]) -> None:
    pace = ServerPace().update_allowance("m", found, 0.0, num_in_flight)
    assert times_of(pace, len(times)) == pytest.approx(times)
    assert times_of(pace, 5, ["another"]) == [0] * 5


def test_models_of_one_key_have_limits_of_their_own_and_one_pace() -> None:
    pace = (
        ServerPace()
        .slowed_down(2, 0)
        .update_allowance("a", bucket(0, 60.0, 6), 0.0, 0)
        .update_allowance("b", bucket(9, 1.0, 10), 0.0, 0)
    )
    assert times_of(pace, 6, ["a", "b", "b"]) == pytest.approx([10, 12, 14, 20, 22, 24])


def test_a_late_reply_widens_nothing_and_a_new_window_does() -> None:
    pace = ServerPace().update_allowance("m", window(1, 30.0, 10), 0.0, 0).after_request("m", 0.0)
    assert pace.update_allowance("m", window(4, 29.0, 10), 1.0, 0).wait_s("m", 1.0) == 29.0
    assert pace.update_allowance("m", window(9, 60.0, 10), 29.5, 3).remaining["m"].num_left == 6


class Server:
    """Lets ``limit`` requests come in a window, or as a bucket that fills again in ``seconds``."""

    def __init__(self, limit: int, seconds: float, *, refills: bool) -> None:
        self.limit, self.seconds, self.refills = limit, seconds, refills
        self.left, self.at, self.num_refused = float(limit), 0.0, 0

    def ask(self, now: float) -> Allowance:
        if self.refills:
            self.left = min(self.limit, self.left + (now - self.at) * self.limit / self.seconds)
            self.at = now
        elif now >= self.at + self.seconds - 1e-6:
            self.left, self.at = self.limit, (now + 1e-6) // self.seconds * self.seconds
        if self.left < 1 - 1e-6:
            self.num_refused += 1
        else:
            self.left = max(0.0, self.left - 1)
        reset_s = (self.limit - self.left) * self.seconds / self.limit if self.refills else self.at + self.seconds - now
        return Allowance(left=math.floor(self.left + 1e-6), limit=self.limit, reset_s=reset_s, refills=self.refills)


@settings(max_examples=examples(100))
@given(
    limit=st.integers(1, 40),
    seconds=st.floats(1, 100),
    refills=st.booleans(),
    number=st.integers(1, 120),
    takes_s=st.floats(0, 3),
)
def test_a_server_that_says_what_is_left_refuses_nothing(
    limit: int, seconds: float, refills: bool, number: int, takes_s: float
) -> None:
    """Asked one after the other, and no slower than it lets us."""
    server, pace, now, slowest = Server(limit, seconds, refills=refills), ServerPace(), 0.0, 0.0
    for place in range(number):
        while (wait_s := pace.wait_s("m", now)) > 0:
            now += wait_s
        pace = pace.after_request("m", now)
        found = server.ask(now)
        now += takes_s
        pace = pace.update_allowance("m", found, now, 0)
        slowest = place * takes_s + (place // limit + 1) * (seconds + takes_s)
    assert server.num_refused == 0
    assert now <= slowest + number * takes_s + 1


# The queue


class Together(Clock):
    """Time for several that sleep: it passes once, and those who can do something do it first."""

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(10):
            await asyncio.sleep(0)
        self.now = max(self.now, until)


class Asked:
    """Requests that wait for their turns, with the times at which they were sent."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sent: list[tuple[str, float]] = []

    async def ask(self, queue: RequestQueue, name: str, *, model: str = "", is_again: bool = False) -> None:
        await queue.wait_for_turn(lambda: name, model, is_again=is_again)
        self.sent.append((name, self.clock() - 1_000_000))


def run(main: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def test_first_come_first_served_but_for_what_is_sent_again() -> None:
    clock = Clock()
    asked = Asked(clock)

    async def main() -> None:
        queue = RequestQueue("s", clock=clock, sleep=clock.sleep)
        queue.slow_down_to(60)
        queue.slow_down_to(30)
        queue.slow_down_to(90)  # the smallest counts
        tasks = [asyncio.create_task(asked.ask(queue, name)) for name in "abc"]
        tasks.append(asyncio.create_task(asked.ask(queue, "d", is_again=True)))
        await asyncio.gather(*tasks)

    run(main)
    assert [name for name, _ in asked.sent] == ["d", "a", "b", "c"]
    assert clock.sleeps == [2, 2, 2]


def test_a_model_that_waits_keeps_no_other_waiting() -> None:
    clock = Together()
    asked = Asked(clock)

    async def main() -> None:
        queue = RequestQueue("s", clock=clock, sleep=clock.sleep)
        queue.update_allowance(window(0, 100.0), 0, "a")
        await asyncio.gather(*(asked.ask(queue, name, model=name[0]) for name in ("a1", "a2", "b1", "b2")))

    run(main)
    assert asked.sent[:2] == [("b1", 0), ("b2", 0)]
    assert asked.sent[2:] == [("a1", 100), ("a2", 100)]


def test_models_take_turns() -> None:
    clock = Together()
    asked = Asked(clock)

    async def main() -> None:
        queue = RequestQueue("s", clock=clock, sleep=clock.sleep)
        queue.slow_down_to(6)
        await asyncio.gather(
            *(asked.ask(queue, name, model=name[0]) for name in ("a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"))
        )

    run(main)
    sent = "".join(name[0] for name, _ in asked.sent)
    assert all(abs(sent[:end].count("a") - sent[:end].count("b")) <= 2 for end in range(9)), sent
    assert [at for _, at in asked.sent] == [*range(0, 80, 10)]


def test_nothing_to_send_takes_no_turn_and_an_error_none_either() -> None:
    clock = Clock()

    def nothing() -> str | None:
        return None

    def stopped() -> str:
        raise ModelStoppedError("it stopped")

    async def main() -> None:
        queue = RequestQueue("s", clock=clock, sleep=clock.sleep)
        queue.slow_down_to(1)
        assert await queue.wait_for_turn(lambda: "first") == "first"
        assert await queue.wait_for_turn(nothing) is None
        with pytest.raises(ModelStoppedError):
            await queue.wait_for_turn(stopped)
        assert clock.sleeps == []
        cancelled = asyncio.create_task(queue.wait_for_turn(lambda: "never"))
        later = asyncio.create_task(queue.wait_for_turn(lambda: "later"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await later == "later"
        assert sum(clock.sleeps) <= 120

    run(main)


def test_without_a_limit_there_is_no_queue_and_no_file(tmp_path: Path) -> None:
    async def main() -> None:
        queue = RequestQueue("s", tmp_path / "folder", clock=Clock())
        assert await queue.wait_for_turn(lambda: 3) == 3
        assert queue._servers == {}
        queue.update_allowance(None, 0)

    run(main)
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("limit", ["by the user", "by the server"])
def test_processes_share_the_pace(tmp_path: Path, limit: str) -> None:
    """Two queues on one folder stand for two processes."""
    clock = Together()
    asked = Asked(clock)

    async def main() -> None:
        both = [RequestQueue("s", tmp_path, clock=clock, sleep=clock.sleep) for _ in range(2)]
        if limit == "by the user":
            for queue in both:
                queue.slow_down_to(6)
        else:
            both[0].update_allowance(bucket(1, 590.0, 60), 0)
        await asyncio.gather(*(asked.ask(both[number % 2], str(number)) for number in range(6)))

    run(main)
    first = 10 if limit == "by the user" else 0  # another process may have asked just before
    assert sorted(at - first for _, at in asked.sent) == pytest.approx([0, 10, 20, 30, 40, 50])


def test_the_smallest_number_of_all_processes_counts(tmp_path: Path) -> None:
    clock = Together()
    asked = Asked(clock)

    async def main() -> None:
        fast, slow = (RequestQueue("s", tmp_path, clock=clock, sleep=clock.sleep) for _ in range(2))
        fast.slow_down_to(600)
        slow.slow_down_to(6)  # a model that only one of the workers has loaded
        await asyncio.gather(*(asked.ask(fast, str(number)) for number in range(3)))

    run(main)
    assert numpy.diff([at for _, at in asked.sent]) == pytest.approx([10, 10])


def test_host_and_key_have_one_queue() -> None:
    endpoint = Endpoint(url="http://rated:1/v1", requests_per_minute=60)
    queue = request_queue_for(endpoint, None)
    assert request_queue_for(Endpoint(url="http://rated:1/other/v1"), None) is queue
    assert request_queue_for(Endpoint(url="http://rated:1/v1", api_key_env="OTHER"), None) is not queue
    assert request_queue_for(Endpoint(url="http://rated:1/v1", requests_per_minute=6), None)._known.between_s == 10


# The client


def paced(clock: Clock) -> RequestQueue:
    return RequestQueue("http://server/v1", clock=clock, sleep=clock.sleep)


def test_a_client_obeys_what_the_server_has_left(caplog: pytest.LogCaptureFixture) -> None:
    clock, times = Clock(), list[float]()

    def answer(call: Call) -> bytes:
        times.append(clock() - 1_000_000)
        left = (1, 0, 0)[min(len(times), 3) - 1]
        return reply({"choices": []}, 200, f"ratelimit-remaining: {left}", "ratelimit-reset: 20")

    async def ask(client: Any, server: Any) -> None:
        for _ in range(4):
            await post_once(client, server)

    with caplog.at_level(logging.WARNING):
        talk(answer, ask=ask, clock=clock, queue=paced(clock))
    assert times == [0, 0, 20, 40]
    said = "http://server/v1 allows no more requests now; the next one is sent in 20 s"
    assert [record.getMessage() for record in caplog.records] == [said]  # once a minute


def test_tries_count_as_requests() -> None:
    clock = Clock()
    queue = paced(clock)
    queue.slow_down_to(6)
    busy = reply({"error": {"message": "slow down"}}, 429, "retry-after: 1")
    talk(busy, busy, OK, ask=post_once, clock=clock, queue=queue)
    assert clock.now - 1_000_000 == pytest.approx(20)


def test_requests_that_wait_leave_slots_to_other_models() -> None:
    clock = Together()
    queue = RequestQueue("http://server/v1", clock=clock, sleep=clock.sleep)
    queue.update_allowance(window(0, 100.0), 0, "a")
    times: list[tuple[str, float]] = []

    def answer(call: Call) -> bytes:
        times.append((call.body["prompt"], clock() - 1_000_000))
        return OK

    async def ask(client: Any, server: Any) -> None:
        settings = {"sleep": clock.sleep, "clock": clock, "limit": client.limit, "queue": queue}
        other = Client(client.endpoint, model="b", **settings)
        asked = [client.post("/completions", {"prompt": f"a{number}"}) for number in range(5)]
        await asyncio.gather(*asked, other.post("/completions", {"prompt": "b"}))
        await other.close()

    talk(answer, ask=ask, clock=clock, model="a", queue=queue, endpoint={"max_connections": 2})
    assert [times[0], *sorted(times[1:])] == [("b", 0), *((f"a{number}", 100) for number in range(5))]


def test_a_model_that_has_stopped_keeps_nobody_waiting() -> None:
    clock = Clock()
    tasks: list[asyncio.Task[Any]] = []

    async def sleep(seconds: float) -> None:
        while not any(task.done() for task in tasks):
            await asyncio.sleep(0)
        await clock.sleep(seconds)

    queue = RequestQueue("s", clock=clock, sleep=sleep)
    queue.slow_down_to(1)

    async def ask(client: Any, server: Any) -> None:
        tasks.extend(asyncio.create_task(client.post("/completions", {"prompt": str(number)})) for number in range(50))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, ModelStoppedError) for one in found)
        assert len(server.calls) == 1

    talk(reply({"error": {"message": "who are you?"}}, 401), ask=ask, clock=clock, queue=queue)
    assert clock.sleeps == [60]


# Sessions


_FAKE_TIME = '''
import asyncio
from pathlib import Path

from filelock import FileLock
from pytest_llmeval.models.servers import rates

HERE = Path(__file__).parent
NOW = HERE / "now.txt"


def clock():
    """Time that all processes share, and that passes only by sleeping."""
    return float(NOW.read_text()) if NOW.exists() else 0.0


async def sleep(seconds):
    until = clock() + seconds
    await asyncio.sleep(0)
    with FileLock(HERE / "now.lock"):
        written = HERE / "written.txt"
        written.write_text(repr(max(clock(), until)))
        written.replace(NOW)


class RequestQueue(rates.RequestQueue):
    def __init__(self, name, folder=None):
        super().__init__(name, folder, clock=clock, sleep=sleep)


rates.RequestQueue = RequestQueue
'''


@pytest.fixture
def some_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VARIABLE", KEY)


@pytest.mark.parametrize("others", [(), ("",), ("&requests_per_minute=60",)])
def test_a_session_keeps_to_its_number(
    llm_pytester: pytest.Pytester, workers: list[str], some_key: None, others: Sequence[str]
) -> None:
    """All models with that key together, also those that have no number, or a larger one."""
    llm_pytester.makeconftest(_FAKE_TIME)
    rows = "\n".join(f"  - {{question: What is {number}?, target: x}}" for number in range(12))
    llm_pytester.makefile(".yaml", s=f"suite: s\nsamples:\n{rows}\nscore: exact\n")
    with StubServer("openai", instant=True) as stub:
        served = f"--llm-model={stub.url}?dialect=openai&api_key_env=SOME_VARIABLE"
        models = [f"{served}&requests_per_minute=6#demo", *(f"{served}&max_length=900{one}#demo" for one in others)]
        result = llm_pytester.runpytest_subprocess(*workers, *models, "s.yaml")
        assert result.ret == 0, result.stdout.str()
        num_sent = stub.num_questions
    assert num_sent >= 12 * len(models)
    passed_s = float((llm_pytester.path / "now.txt").read_text())
    assert num_sent - 1 <= passed_s / 10 + 1e-6, "no two requests are sent within ten seconds"


def test_a_session_obeys_a_server(llm_pytester: pytest.Pytester, workers: list[str], some_key: None) -> None:
    """A bucket of one request that fills in ten seconds: it is full only when these have passed."""
    llm_pytester.makeconftest(_FAKE_TIME)
    rows = "\n".join(f"  - {{question: What is {number}?, target: x}}" for number in range(8))
    llm_pytester.makefile(".yaml", s=f"suite: s\nsamples:\n{rows}\nscore: exact\n")
    with StubServer("openai", instant=True, says_left=openai(0, "10s", 1)) as stub:
        model = f"--llm-model={stub.url}?dialect=openai&api_key_env=SOME_VARIABLE&max_connections=1#demo"
        result = llm_pytester.runpytest_subprocess(*workers, model, "s.yaml")
        assert result.ret == 0, result.stdout.str()
        num_sent = stub.num_questions
    passed_s = float((llm_pytester.path / "now.txt").read_text())
    num_unknowing = 2 if "-n2" in workers else 1  # the controller, and the first of its workers
    assert num_sent - num_unknowing <= passed_s / 10 + 1e-6
