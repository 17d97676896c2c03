"""Replicas start, answer, end and are started again; in threads, with Ray's part played by a fake."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, ModelStoppedError, RequestError
from pytest_llmeval.models.ray import fleet as fleet_module
from pytest_llmeval.models.ray.fleet import Fleet
from pytest_llmeval.models.ray.model import ReplicatedModel, header_of
from pytest_llmeval.models.ray.replica import Handshake, Limits, ReplicaLost
from pytest_llmeval.models.ray.schedule import Entry
from pytest_llmeval.types import EngineUse, GenerateRequest, GenerateResponse, Message, ModelIdentity, Request
from tests.properties import examples

IDENTITY = ModelIdentity(name="m", backend="fake", dtype="float32", device="cpu", fingerprint="f" * 64)
SHAKEN = Handshake(place="here", identity=IDENTITY, versions={"torch": "2.13.0"}, has_audit=True)
LIMITS = Limits(linger_s=0.0)


@dataclass
class Machines:
    """Where fake replicas run, and what happened there. ``kills`` are prompts that end a replica."""

    kills: tuple[str, ...] = ()
    handshakes: tuple[Handshake | Exception, ...] = (SHAKEN,)
    nodes: tuple[str, ...] = ("node",)
    made: list[FakeReplica] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> FakeReplica:
        self.made.append(FakeReplica(self, len(self.made)))
        return self.made[-1]

    def note(self, what: str, which: str) -> None:
        with self.lock:
            self.log.append((what, which))

    def noted(self, what: str) -> list[str]:
        return [which for one, which in self.log if one == what]


class FakeReplica:
    """Answers ``2 +`` by the prompt; its calls run one after another, as an actor's do."""

    def __init__(self, machines: Machines, number: int) -> None:
        self.machines = machines
        self.number = number
        self.calls = ThreadPoolExecutor(1)
        self.open: list[Future[Any]] = []
        self.watched: Future[None] = Future()
        self.begun: set[int] = set()
        self.taken: set[int] = set()
        self.is_dead = False

    def _called(self, call: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.open.append(future)
        if self.is_dead:
            future.set_exception(ReplicaLost("it has ended"))
            return future

        def work() -> None:
            try:
                found = call()
            except ReplicaLost:
                self.die()
            except Exception as error:
                future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(found)

        self.calls.submit(work)
        return future

    def die(self) -> None:
        self.is_dead = True
        for future in [self.watched, *self.open][:: 1 if self.number % 2 else -1]:  # heard of in any order
            if not future.done():
                future.set_exception(ReplicaLost("killed"))

    def where(self) -> Future[str]:
        return self._called(lambda: self.machines.nodes[self.number % len(self.machines.nodes)])

    def load(self) -> Future[Handshake]:
        def call() -> Handshake:
            self.machines.note("load", str(self.number))
            found = self.machines.handshakes[min(self.number, len(self.machines.handshakes) - 1)]
            if isinstance(found, Exception):
                raise found
            return found

        return self._called(call)

    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> Future[Any]:
        def call() -> Any:
            with self.machines.lock:
                if number in self.taken:
                    return None
                self.begun.add(number)
            self.machines.note("chunk", str(len(samples)))
            answers = []
            for sample in samples:
                for request in sample:
                    assert isinstance(request, GenerateRequest)
                    if request.prompt in self.machines.kills:
                        self.machines.note("died of", str(request.prompt))
                        raise ReplicaLost("killed")
                answers.append([self._reply(request) for request in sample])
            return answers

        return self._called(call)

    def _reply(self, request: Any) -> GenerateResponse:
        self.machines.note("answered", request.prompt)
        return GenerateResponse(text=f"reply to {request.prompt}")

    def withdraw(self, number: int) -> Future[bool]:
        future: Future[bool] = Future()
        with self.machines.lock:
            is_free = number not in self.begun and not self.is_dead
            if is_free:
                self.taken.add(number)
        future.set_result(is_free)
        return future

    def audit(self, requests: Sequence[Request]) -> Future[EngineUse]:
        return self._called(lambda: EngineUse(engine="tree", reason=f"audited by {self.number}"))

    def watch(self) -> Future[None]:
        return self.watched

    def end(self) -> None:
        self.machines.note("end", str(self.number))
        self.is_dead = True
        self.calls.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def fleets() -> Iterator[list[Fleet]]:
    made: list[Fleet] = []
    yield made
    for fleet in made:
        fleet.close()


def begun(machines: Machines, *, num_replicas: int, chunk_size: int = 4, limits: Limits = LIMITS) -> Fleet:
    fleet = Fleet("m", machines.start, num_replicas=num_replicas, chunk_size=chunk_size, limits=limits)
    fleet.begin()
    return fleet


def replies(fleet: Fleet, prompts: Sequence[str]) -> list[Any]:
    """The text, or the error, of each prompt."""
    entries = fleet.submit([([GenerateRequest(prompt)], None) for prompt in prompts])
    found: list[Any] = []
    for entry in entries:
        try:
            found.append(entry.futures[0].result(timeout=30))
        except ModelError as error:
            found.append(error)
    return [one.text if isinstance(one, GenerateResponse) else one for one in found]


@given(
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(1, 16),
    st.frozensets(st.integers(0, 59), max_size=2),
    st.integers(1, 3),
)
@settings(max_examples=examples(60), deadline=None)
def test_every_sample_is_answered_once_whatever_ends(
    num_samples: int, num_replicas: int, chunk_size: int, killers: frozenset[int], num_nodes: int
) -> None:
    kills = tuple(f"p{number}" for number in killers)
    machines = Machines(kills=kills, nodes=tuple(f"n{number}" for number in range(num_nodes)))
    fleet = begun(machines, num_replicas=num_replicas, chunk_size=chunk_size)
    try:
        prompts = [f"p{number}" for number in range(num_samples)]
        for prompt, found in zip(prompts, replies(fleet, prompts), strict=True):
            if prompt in kills:
                assert isinstance(found, RequestError)
                assert "two replicas of m ended while they worked on it alone" in str(found)
            else:
                assert found == f"reply to {prompt}"
        assert sum(fleet.counts.values()) == len(set(prompts) - set(kills))
        assert all(machines.noted("died of").count(prompt) <= 3 for prompt in kills)
        assert fleet.num_open == 0
        assert len(fleet.lost) == len(machines.noted("died of")), "each is heard of in several ways"
    finally:
        fleet.close()


def test_the_first_chunks_of_a_function_are_small(fleets: list[Fleet]) -> None:
    machines = Machines(handshakes=(replace(SHAKEN, num_at_once=3),))
    fleets.append(begun(machines, num_replicas=1, chunk_size=32))
    prompts = [f"p{number}" for number in range(100)]
    assert replies(fleets[0], prompts) == [f"reply to {prompt}" for prompt in prompts]
    sizes = [int(size) for size in machines.noted("chunk")]
    assert sizes[0] == 3
    assert max(sizes) <= 32
    assert sum(sizes) == 100


def test_deaths_of_one_replica_are_counted(fleets: list[Fleet]) -> None:
    machines = Machines(kills=("p0", "p1"))
    fleets.append(begun(machines, num_replicas=1, chunk_size=1))
    replies(fleets[0], ["p0", "p1", "p2"])
    model = ReplicatedModel(fleets[0], SHAKEN, num_replicas=1, chunk_size=1)
    assert model.server_use.ended == ("replica 1 on here: killed (4 times)",)


def test_what_was_answered_is_not_asked_again_when_a_replica_ends(fleets: list[Fleet]) -> None:
    machines = Machines()
    fleets.append(begun(machines, num_replicas=2))
    first = [f"a{number}" for number in range(20)]
    assert replies(fleets[0], first) == [f"reply to {prompt}" for prompt in first]
    machines.made[0].die()
    second = [f"b{number}" for number in range(20)]
    assert replies(fleets[0], second) == [f"reply to {prompt}" for prompt in second]
    answered = machines.noted("answered")
    assert len(answered) == len(set(answered)) == 40
    assert len(fleets[0].lost) == 1
    assert fleets[0].lost[0] == "replica 1 on here: killed"


def test_one_replica_of_each_machine_loads_first(fleets: list[Fleet]) -> None:
    machines = Machines(nodes=("a", "b"))
    machines.start = lambda: _slow_to_load(machines)  # type: ignore[method-assign]
    fleets.append(begun(machines, num_replicas=4))
    _wait_for(lambda: len(machines.noted("load")) == 2)
    assert machines.noted("load") == ["0", "1"]
    machines.made[1].gate.set()  # type: ignore[attr-defined]
    _wait_for(lambda: len(machines.noted("load")) == 3)
    assert machines.noted("load") == ["0", "1", "3"]
    for made in machines.made:
        made.gate.set()  # type: ignore[attr-defined]
    _wait_for(lambda: len(machines.noted("load")) == 4)


def _slow_to_load(machines: Machines) -> FakeReplica:
    class Slow(FakeReplica):
        def load(self) -> Future[Handshake]:
            self.machines.note("load", str(self.number))

            def wait() -> Handshake:
                assert self.gate.wait(30)  # type: ignore[attr-defined]
                return SHAKEN

            return self._called(wait)

    made = Slow(machines, len(machines.made))
    made.gate = threading.Event()  # type: ignore[attr-defined]
    machines.made.append(made)
    return made


def _wait_for(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


def test_replicas_that_differ_stop_the_model(fleets: list[Fleet]) -> None:
    other = replace(SHAKEN, place="there", versions={"torch": "2.12.1"})
    machines = Machines(handshakes=(SHAKEN, other))
    fleets.append(begun(machines, num_replicas=2))
    _wait_for(lambda: len(machines.noted("load")) == 2)
    _wait_for(lambda: isinstance(replies(fleets[0], ["p"])[0], ModelStoppedError))
    (error,) = replies(fleets[0], ["q"])
    assert str(error) == (
        "model m: its replicas are not the same: torch (2.13.0 on here, 2.12.1 on there); install one version, and put "
        "the same files, on all machines"
    )


def test_a_model_that_cannot_be_loaded_is_not_waited_for(fleets: list[Fleet]) -> None:
    fleets.append(begun(Machines(handshakes=(ModelError("model m: no such folder (on here)"),)), num_replicas=2))
    with pytest.raises(ModelError, match=r"no such folder \(on here\)"):
        fleets[0].first.result(timeout=30)
    (error,) = replies(fleets[0], ["p"])
    assert isinstance(error, ModelStoppedError)


def test_replicas_that_end_before_they_are_ready_are_given_up(fleets: list[Fleet]) -> None:
    machines = Machines(handshakes=(ReplicaLost("out of memory"),))
    fleets.append(begun(machines, num_replicas=2))
    with pytest.raises(ModelError, match=r"all replicas have ended; the last was replica \d: killed"):
        fleets[0].first.result(timeout=30)
    assert len(machines.made) == 6


def test_failed_starts_are_counted_in_a_row(fleets: list[Fleet]) -> None:
    lost = ReplicaLost("out of memory")
    machines = Machines(handshakes=(lost, lost, SHAKEN, lost, lost, SHAKEN))
    fleets.append(begun(machines, num_replicas=1))
    assert replies(fleets[0], ["a"]) == ["reply to a"]
    machines.made[2].die()
    assert replies(fleets[0], ["b"]) == ["reply to b"]
    assert len(machines.made) == 6


def test_restarts_are_bounded(fleets: list[Fleet]) -> None:
    machines = Machines()
    limits = Limits(linger_s=0.0, restarts_per_replica=2)
    fleets.append(begun(machines, num_replicas=1, limits=limits))
    for place in range(3):
        assert replies(fleets[0], [f"p{place}"]) == [f"reply to p{place}"]
        machines.made[place].die()
    _wait_for(lambda: len(fleets[0].lost) == 3)
    (error,) = replies(fleets[0], ["q"])
    assert isinstance(error, ModelStoppedError)
    assert str(error) == "model m: all replicas have ended; the last was replica 1 on here: killed"
    assert len(machines.made) == 3
    assert sorted(machines.noted("end")) == ["0", "1", "2"]


def test_a_replica_that_loads_no_more_does_not_stop_the_others(fleets: list[Fleet]) -> None:
    gone = ModelError("model m: No space left on device (on here)")
    machines = Machines(handshakes=(SHAKEN, SHAKEN, gone))
    fleets.append(begun(machines, num_replicas=2))
    _wait_for(lambda: len(machines.noted("load")) == 2)
    assert replies(fleets[0], ["a"]) == ["reply to a"]
    _wait_for(lambda: all(slot.state == "ready" for slot in fleets[0]._slots))
    machines.made[0].die()
    _wait_for(lambda: len(fleets[0].lost) == 4)
    assert replies(fleets[0], ["b", "c"]) == ["reply to b", "reply to c"]
    assert [reason.partition(": ")[2] for reason in fleets[0].lost] == ["killed", str(gone), str(gone), str(gone)]
    machines.made[1].die()
    _wait_for(lambda: isinstance(replies(fleets[0], ["d"])[0], ModelStoppedError))


def test_once_one_has_loaded_the_others_of_its_machine_load_together(fleets: list[Fleet]) -> None:
    machines = Machines()
    machines.start = lambda: _slow_to_load(machines)  # type: ignore[method-assign]
    fleets.append(begun(machines, num_replicas=3))
    _wait_for(lambda: machines.noted("load"))
    machines.made[0].gate.set()  # type: ignore[attr-defined]
    _wait_for(lambda: len(machines.noted("load")) == 3)
    for made in machines.made:
        made.gate.set()  # type: ignore[attr-defined]


def test_without_room_for_a_replica_the_model_stops(fleets: list[Fleet]) -> None:
    class Nowhere(FakeReplica):
        def where(self) -> Future[str]:
            return Future()

    machines = Machines()
    machines.start = lambda: Nowhere(machines, 0)  # type: ignore[method-assign]
    limits = Limits(patience_s=0.0)
    fleets.append(Fleet("m", machines.start, num_replicas=1, chunk_size=4, limits=limits, room=lambda: "each takes 9"))
    fleets[0].begin()
    with pytest.raises(ModelError) as caught:
        fleets[0].first.result(timeout=30)
    assert str(caught.value) == "model m: for 0 s the cluster has had no room for a replica: each takes 9"


def test_an_audit_is_repeated_where_its_replica_ends(fleets: list[Fleet]) -> None:
    machines = Machines()
    fleets.append(begun(machines, num_replicas=1))
    fleets[0].first.result(timeout=30)
    assert fleets[0].audit([]).result(timeout=30).reason == "audited by 0"
    machines.made[0].die()
    _wait_for(lambda: len(machines.made) == 2)
    assert fleets[0].audit([]).result(timeout=30).reason == "audited by 1"


@pytest.mark.parametrize("num_deaths", [1, 2])
def test_an_audit_that_ends_its_replica_is_asked_once_more(fleets: list[Fleet], num_deaths: int) -> None:
    class Mortal(FakeReplica):
        def audit(self, requests: Sequence[Request]) -> Future[EngineUse]:
            def call() -> EngineUse:
                if self.number < num_deaths:
                    raise ReplicaLost("killed")
                return EngineUse(engine="tree", reason=f"audited by {self.number}")

            return self._called(call)

    machines = Machines()
    machines.start = lambda: _kept(machines, Mortal(machines, len(machines.made)))  # type: ignore[method-assign]
    fleets.append(begun(machines, num_replicas=1))
    found = fleets[0].audit([])
    if num_deaths == 1:
        assert found.result(timeout=30).reason == "audited by 1"
    else:
        with pytest.raises(ModelError, match="model m: two replicas ended in the audit: killed"):
            found.result(timeout=30)
    assert replies(fleets[0], ["p"]) == ["reply to p"]


def test_the_others_go_on_where_one_is_given_up(fleets: list[Fleet]) -> None:
    machines = Machines()
    fleets.append(begun(machines, num_replicas=2, limits=Limits(linger_s=0.0, restarts_per_replica=0)))
    _wait_for(lambda: len(machines.made) == 2)
    machines.made[0].die()
    _wait_for(lambda: fleets[0].lost)
    assert replies(fleets[0], ["p"]) == ["reply to p"]
    assert len(machines.made) == 2


def test_closing_ends_all_replicas_and_cancels_what_is_open(fleets: list[Fleet]) -> None:
    machines = Machines()
    machines.start = lambda: _slow_to_load(machines)  # type: ignore[method-assign]
    fleet = begun(machines, num_replicas=2)
    (entry,) = fleet.submit([([GenerateRequest("p")], None)])
    _wait_for(lambda: machines.noted("load"))
    fleet.close()
    fleet.close()
    assert entry.futures[0].cancelled()
    assert sorted(machines.noted("end")) == ["0", "1"]
    with pytest.raises(ModelStoppedError, match="ended"):
        fleet.submit([([GenerateRequest("p")], None)])
    for made in machines.made:
        made.gate.set()  # type: ignore[attr-defined]


def test_a_chunk_that_was_withdrawn_is_asked_elsewhere_whichever_is_heard_first(fleets: list[Fleet]) -> None:
    """A replica passes a chunk over, and says so, before its word that it gave the chunk back has arrived."""
    machines = Machines()
    begun_at, told = threading.Event(), []

    class Slow(FakeReplica):
        def _reply(self, request: Any) -> GenerateResponse:
            if self.number == 0 and not begun_at.is_set():
                begun_at.set()
                assert go_on.wait(30)
            return super()._reply(request)

        def withdraw(self, number: int) -> Future[bool]:
            given = super().withdraw(number)
            held: Future[bool] = Future()
            told.append((held, given.result()))
            return held

        def load(self) -> Future[Handshake]:
            return super().load() if self.number == 0 else _translated_from(super().load(), may_join)

    go_on, may_join = threading.Event(), threading.Event()
    machines.start = lambda: _kept(machines, Slow(machines, len(machines.made)))  # type: ignore[method-assign]
    fleets.append(begun(machines, num_replicas=2, chunk_size=4))
    fleets[0].first.result(timeout=30)
    entries = fleets[0].submit([([GenerateRequest(f"p{number}")], None) for number in range(4)])
    assert begun_at.wait(30)
    may_join.set()
    _wait_for(lambda: told)
    go_on.set()
    assert [entry.futures[0].result(timeout=30) for entry in entries] == [
        GenerateResponse(text=f"reply to p{number}") for number in range(4)
    ]
    for held, was_given in told:
        assert was_given
        held.set_result(was_given)
    assert replies(fleets[0], ["last"]) == ["reply to last"]
    assert sorted(machines.noted("answered")) == ["last", "p0", "p1", "p2", "p3"]


def _kept(machines: Machines, made: FakeReplica) -> FakeReplica:
    machines.made.append(made)
    return made


def _translated_from(future: Future[Any], gate: threading.Event) -> Future[Any]:
    """The same, once the gate is open."""
    later: Future[Any] = Future()

    def take() -> None:
        assert gate.wait(30)
        later.set_result(future.result(timeout=30))

    threading.Thread(target=take, daemon=True).start()
    return later


@pytest.mark.parametrize("method", ["start", "answer", "audit"])
def test_an_error_of_the_session_s_own_part_is_said_to_all_who_wait(fleets: list[Fleet], method: str) -> None:
    machines = Machines()

    def fail(*arguments: object) -> Any:
        raise TypeError("cannot pickle it")

    if method == "start":
        machines.start = fail  # type: ignore[method-assign]
    else:
        machines.start = lambda: _kept(machines, _with(FakeReplica(machines, 0), method, fail))  # type: ignore[method-assign]
    fleets.append(begun(machines, num_replicas=1))
    if method == "start":
        with pytest.raises(ModelError, match="model m: TypeError: cannot pickle it"):
            fleets[0].first.result(timeout=30)
    elif method == "audit":
        with pytest.raises(ModelStoppedError, match="cannot pickle it"):
            fleets[0].audit([]).result(timeout=30)
    for prompt in ("before", "after"):
        (error,) = replies(fleets[0], [prompt])
        assert isinstance(error, ModelStoppedError)
        assert str(error) == "model m: TypeError: cannot pickle it"


def _with(made: FakeReplica, method: str, function: Any) -> FakeReplica:
    setattr(made, method, function)
    return made


def test_closing_ends_the_wait_for_audits_and_what_was_not_seen(fleets: list[Fleet]) -> None:
    machines = Machines()
    machines.start = lambda: _slow_to_load(machines)  # type: ignore[method-assign]
    fleet = begun(machines, num_replicas=1)
    _wait_for(lambda: machines.noted("load"))
    audit = fleet.audit([])
    gate = threading.Event()
    fleet._events.put(lambda: gate.wait(30) and None)  # type: ignore[arg-type]  # the thread is busy, and what follows waits
    (entry,) = fleet.submit([([GenerateRequest("p")], None)])
    closing = threading.Thread(target=fleet.close)
    closing.start()
    _wait_for(fleet._closed.is_set)
    gate.set()
    closing.join(30)
    assert not closing.is_alive()
    assert audit.cancelled()
    assert entry.futures[0].cancelled()
    with pytest.raises(ModelStoppedError, match="its replicas were ended"):
        fleet.audit([])
    machines.made[0].gate.set()  # type: ignore[attr-defined]


def test_a_replica_that_loads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(fleet_module, "time", SimpleNamespace(monotonic=lambda: now))
    fleet = Fleet("m", Machines().start, num_replicas=1, chunk_size=4, limits=Limits(patience_s=300.0))
    (slot,) = fleet._slots
    slot.state = "loading"
    now += 1000.0
    fleet._check_patience()
    slot.state = "starting"
    now += 299.0
    fleet._check_patience()
    assert not fleet.first.done()
    now += 2.0
    fleet._check_patience()
    with pytest.raises(ModelError, match="for 300 s the cluster has had no room"):
        fleet.first.result(timeout=0)


def test_the_end_of_the_wait_for_more_samples_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came between the look at what to give, and the look at how long to wait."""
    now = 100.0
    monkeypatch.setattr(fleet_module, "time", SimpleNamespace(monotonic=lambda: now))
    machines = Machines()
    fleet = Fleet("m", machines.start, num_replicas=1, chunk_size=4, limits=Limits(linger_s=0.01))
    handle = machines.start()
    fleet._schedule.join(handle)
    fleet._add([Entry(number=0, requests=[GenerateRequest("p")])])
    now += 0.009
    fleet._give()
    assert fleet._schedule.num_waiting == 1, "more may come"
    now += 0.002
    assert fleet._wait_s() == 0.0
    fleet._give()
    assert fleet._schedule.num_waiting == 0
    assert fleet._wait_s() == 1.0


# The model that is made of them


def test_the_model_is_one_that_answers_in_the_background(fleets: list[Fleet]) -> None:
    machines = Machines()
    fleets.append(begun(machines, num_replicas=2))
    model = ReplicatedModel(fleets[0], fleets[0].first.result(timeout=30), num_replicas=2, chunk_size=4)
    assert model.identity == replace(IDENTITY, details={"replicas": 2})
    futures = model.submit([GenerateRequest("a"), GenerateRequest("b")])
    assert [future.result(timeout=30) for future in futures] == [
        GenerateResponse(text="reply to a"),
        GenerateResponse(text="reply to b"),
    ]
    assert model.generate("c").text == "reply to c"
    heard: dict[int, Any] = {}
    model.set_listener(heard.update)
    assert [one.text for one in model.run([GenerateRequest(p) for p in "defgh"])] == [f"reply to {p}" for p in "defgh"]  # type: ignore[union-attr]
    assert sorted(heard) == list(range(5))
    use = model.server_use
    assert use.num_requests == 8
    assert sum(use.replicas.values()) == 8
    assert model.server_use is use
    assert model.submit([]) == []


def test_headers_are_known_by_how_prompts_begin() -> None:
    shots = "An example of the task, and its answer.\n" * 10
    assert header_of(GenerateRequest(shots + "one")) == header_of(GenerateRequest(shots + "two")) is not None
    assert header_of(GenerateRequest("short")) is None
    chat = (Message(role="system", content=shots), Message(role="user", content="one"))
    assert header_of(GenerateRequest(chat)) is not None
