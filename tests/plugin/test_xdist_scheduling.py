"""The chunk scheduler against pytest-xdist's own session, with workers that are played: they die when they are told to.

What a played worker does is what ``xdist.remote`` does: it begins no test before it knows the next one, reports in
order, and asks the real ``Batcher``, with the plan that it makes itself.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.inference.batcher import Batcher, PlannedSample
from pytest_llmeval.inference.chunks import WorkQueue, WorkUnit, plan_chunks, plan_others, plan_tests, worker_key_of
from pytest_llmeval.plugin.xdist_distribution import WorkDistribution, num_gpu_workers
from pytest_llmeval.plugin.xdist_scheduling import ChunkScheduling, Restarts, SessionScheduling
from pytest_llmeval.types import GenerateRequest, GenerateResponse

xdist_session = pytest.importorskip("xdist.dsession")

SHUTDOWN: Literal["shutdown"] = "shutdown"


MODES = ["load", "loadfile", "loadscope", "loadgroup", "worksteal"]


def plan_of(
    nodeids: Sequence[str], *, limit: int, num_workers: int, mode: str
) -> tuple[list[WorkUnit], list[WorkUnit]]:
    """Chunks of the samples, and units of the other tests."""
    samples = samples_of(nodeids)
    others = [(place, nodeid) for place, nodeid in enumerate(nodeids) if (place, nodeid) not in samples]
    return (
        plan_chunks(samples, limit=limit, num_workers=num_workers, mode=mode),
        plan_tests(others, num_workers=num_workers, mode=mode),
    )


def samples_of(nodeids: Sequence[str]) -> list[tuple[int, str]]:
    return [(place, nodeid) for place, nodeid in enumerate(nodeids) if ".yaml" in nodeid]


class Killed(KeyboardInterrupt):
    """The worker is gone. No Exception, so that nothing between the model and the worker catches it."""


@dataclass(eq=False)
class Worker:
    """A worker as its controller sees it, and what runs in it."""

    world: World
    gateway: Any
    queue: deque[int | Literal["shutdown"]] = field(default_factory=deque)
    state: Literal["starting", "collecting", "running", "dead", "finished"] = "starting"
    current: int | Literal["shutdown"] | None = None
    shutting_down: bool = False
    workeroutput: dict[str, Any] = field(default_factory=lambda: {"exitstatus": 0, "shouldfail": "", "shouldstop": ""})

    def __post_init__(self) -> None:
        self.batcher = Batcher(shares_chunks=True)
        world = self.world
        for chunk in plan_of(world.nodeids, limit=world.limit, num_workers=world.num_workers, mode=world.mode)[0]:
            self.batcher.add([self.member(place) for place in chunk.places])

    def member(self, place: int) -> PlannedSample:
        return PlannedSample(key=place, group=0, requests=lambda: [GenerateRequest(str(place))])

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        if self.state == "dead":
            raise OSError("cannot send")
        assert SHUTDOWN not in self.queue, "sent after the end: would never run"
        assert not self.shutting_down
        self.queue.extend(indices)

    def shutdown(self) -> None:
        self.queue.append(SHUTDOWN)
        self.shutting_down = True

    @property
    def can_go_on(self) -> bool:
        if self.state == "running":
            return bool(self.queue)
        return self.state in ("starting", "collecting")

    def go_on(self) -> None:
        """The next thing that the worker's process does."""
        if self.state == "starting":
            self.state = "collecting"
            self.world.event("workerready", node=self, workerinfo={})
        elif self.state == "collecting":
            self.state = "running"
            self.world.event("collectionfinish", node=self, ids=list(self.world.nodeids))
        elif self.current is None:
            self.current = self.queue.popleft()
            self._end_if_told()
        else:
            self._run_one()

    def _run_one(self) -> None:
        place = self.current
        assert isinstance(place, int)
        self.current = self.queue.popleft()
        self.batcher.next_key = self.current if self.current != SHUTDOWN else None
        try:
            if ".yaml" in self.world.nodeids[place]:
                self.batcher.responses(self.member(place), self)
            elif place in self.world.killers:
                raise Killed
        except Killed:
            self.die()
            return
        self.world.completed[place] += 1
        self.world.ran_on.setdefault(worker_key_of(self.world.nodeids[place], self.world.mode), []).append(self)
        self.world.event("runtest_protocol_complete", node=self, item_index=place, duration=0.0)
        self._end_if_told()

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        """The model."""
        places = [int(str(request.prompt)) for request in requests]
        again = [place for place in places if self.world.completed[place]]
        assert not again, "asked for what is done"
        self.world.calls.append(places)
        if self.world.killers.intersection(places):
            raise Killed
        return [GenerateResponse(text="") for _ in requests]

    def _end_if_told(self) -> None:
        if self.current == SHUTDOWN:
            self.state = "finished"
            self.shutting_down = True
            self.world.event("workerfinished", node=self)

    def die(self) -> None:
        self.state = "dead"
        self.world.event("errordown", node=self, error="Not properly terminated")
        self.shutting_down = True


class World:
    """pytest-xdist's own ``DSession``, its queue and its hooks played. ``draw`` says who goes on, from how many."""

    def __init__(
        self,
        nodeids: Sequence[str],
        *,
        killers: set[int],
        limit: int,
        num_workers: int,
        max_restarts: int,
        draw: Any,
        mode: str = "load",
    ) -> None:
        self.nodeids, self.killers, self.limit, self.num_workers = nodeids, killers, limit, num_workers
        self.mode = mode
        self.ran_on: dict[str, list[Worker]] = {}
        self.completed: Counter[int] = Counter()
        self.calls: list[list[int]] = []
        self.blamed: list[str] = []
        self.strike: Callable[[], None] = nothing_at_all
        self._events: deque[tuple[str, dict[str, Any]]] = deque()
        self._draw = draw
        self.workers: list[Worker] = []
        self._restarts = Restarts(max_restarts)
        self.scheduling = ChunkScheduling(
            num_nodes=num_workers,
            plan=lambda ids: WorkQueue(*plan_of(ids, limit=limit, num_workers=num_workers, mode=mode)),
            restarts=self._restarts,
            is_stopping=lambda: False,
            refuse=lambda *_: pytest.fail("collections differ"),
        )

        def nothing(**_: object) -> None:
            pass

        session: Any = xdist_session.DSession.__new__(xdist_session.DSession)
        session.config = SimpleNamespace(
            option=SimpleNamespace(verbose=0),
            hook=SimpleNamespace(
                pytest_testnodedown=self._node_down,
                pytest_testnodeready=nothing,
                pytest_xdist_node_collection_finished=nothing,
                pytest_handlecrashitem=nothing,
                pytest_runtest_logreport=lambda report: self.blamed.append(report.nodeid),
            ),
        )
        session.log = nothing_at_all
        session.queue = SimpleNamespace(get=self._next_event)
        session.sched = self.scheduling
        session.shuttingdown = session.shouldstop = False
        session.terminal = None
        session._session = SimpleNamespace()
        session._failed_nodes_count = 0
        session._max_worker_restart = max_restarts
        session._clone_node = lambda _: session._active_nodes.add(self._new_worker())
        session._active_nodes = {self._new_worker() for _ in range(num_workers)}
        self.session = session

    def _new_worker(self) -> Worker:
        self.workers.append(Worker(self, SimpleNamespace(id=f"gw{len(self.workers)}", spec="popen")))
        return self.workers[-1]

    def _node_down(self, node: Worker, error: object) -> None:
        if error is not None:
            self._restarts.num_deaths += 1

    def event(self, name: str, **arguments: Any) -> None:
        self._events.append((name, arguments))

    def _next_event(self, timeout: float) -> tuple[str, dict[str, Any]]:
        """Let workers go on, in any order, and the controller fall behind."""
        while True:
            self.strike()
            able = [worker for worker in self.workers if worker.can_go_on]
            assert able or self._events, "the session hangs"
            choice = self._draw(len(able) + bool(self._events))
            if choice < len(able):
                able[choice].go_on()
            else:
                return self._events.popleft()

    def run(self) -> None:
        while not self.session.session_finished:
            self.session.loop_once()

    @property
    def lost(self) -> list[str]:
        return self.scheduling.unfinished or []


def nothing_at_all(*_: object) -> None:
    pass


@st.composite
def sessions(
    draw: st.DrawFn, num_killers: tuple[int, int] = (0, 4), min_workers: int = 1
) -> tuple[list[str], set[int], int, int]:
    """Node ids in any order, places that kill, chunk limit, workers."""
    files = ["a.yaml", "b.yaml", "test_c.py"]
    groups = [file for file in files for _ in range(draw(st.integers(0, 40)))] or files
    if draw(st.booleans()):
        groups = draw(st.permutations(groups))
    marks = draw(st.lists(st.sampled_from(["", "", "@x", "@y"]), min_size=len(groups), max_size=len(groups)))
    nodeids = [f"{group}::q{place}{mark}" for place, (group, mark) in enumerate(zip(groups, marks, strict=True))]
    least, most = num_killers
    killers = draw(st.sets(st.integers(0, len(groups) - 1), min_size=min(least, len(groups)), max_size=most))
    return nodeids, killers, draw(st.integers(2, 8)), draw(st.integers(min_workers, 4))


@given(session=sessions(), mode=st.sampled_from(MODES), data=st.data())
def test_who_kills_alone_is_blamed_and_all_others_run_once(
    session: tuple[list[str], set[int], int, int], mode: str, data: st.DataObject
) -> None:
    nodeids, killers, limit, workers = session
    draw = data.draw(st.randoms(use_true_random=False)).randrange
    world = World(nodeids, killers=killers, limit=limit, num_workers=workers, max_restarts=100, draw=draw, mode=mode)
    world.run()
    assert sorted(world.blamed) == sorted(nodeids[place] for place in killers)
    assert world.completed == Counter(place for place in range(len(nodeids)) if place not in killers)
    assert not world.lost
    assert not killers or len(world.workers) <= workers + 2 * len(killers)
    for worker_key, ran_on in world.ran_on.items():
        changes = [first for first, second in pairwise(ran_on) if first is not second]
        assert not worker_key or all(worker.state == "dead" for worker in changes), (
            f"{worker_key} is not kept on one worker"
        )


@given(
    session=sessions(num_killers=(1, 3), min_workers=2),
    restarts=st.integers(0, 3),
    mode=st.sampled_from(MODES),
    data=st.data(),
)
def test_whatever_restarts_allow_nothing_goes_uncounted(
    session: tuple[list[str], set[int], int, int], restarts: int, mode: str, data: st.DataObject
) -> None:
    nodeids, killers, limit, workers = session
    draw = data.draw(st.randoms(use_true_random=False)).randrange
    world = World(
        nodeids, killers=killers, limit=limit, num_workers=workers, max_restarts=restarts, draw=draw, mode=mode
    )
    world.run()
    completed = [nodeids[place] for place, times in world.completed.items() for _ in range(times)]
    assert sorted([*world.blamed, *completed, *world.lost]) == sorted(nodeids)
    assert set(world.blamed) <= {nodeids[place] for place in killers}


@given(session=sessions(num_killers=(1, 1), min_workers=3), mode=st.sampled_from(MODES), data=st.data())
def test_without_restarts_those_that_live_take_over(
    session: tuple[list[str], set[int], int, int], mode: str, data: st.DataObject
) -> None:
    nodeids, killers, limit, workers = session
    draw = data.draw(st.randoms(use_true_random=False)).randrange
    world = World(nodeids, killers=killers, limit=limit, num_workers=workers, max_restarts=0, draw=draw, mode=mode)
    world.run()
    assert world.blamed == [nodeids[place] for place in killers]
    assert not world.lost


def test_a_replacement_that_collects_other_tests_leaves_nobody_waiting() -> None:
    refused = []
    first, second = (FakeNode(name) for name in ("gw0", "gw1"))
    scheduling = ChunkScheduling(
        num_nodes=1,
        plan=lambda ids: WorkQueue([], plan_others(range(len(ids)), num_workers=1)),
        restarts=Restarts(None),
        is_stopping=lambda: False,
        refuse=lambda *found: refused.append(found),
    )
    scheduling.add_node(first)
    scheduling.add_node_collection(first, ["a", "b", "c"])
    scheduling.schedule()
    assert (first.given, scheduling.tests_finished) == ([0, 1], False)
    assert scheduling.remove_node(first) == "a"
    scheduling.add_node(second)
    scheduling.add_node_collection(second, ["b", "a", "c"])
    scheduling.schedule()
    assert refused == [(["a", "b", "c"], ["b", "a", "c"], first, second)]
    assert second.shutting_down
    assert scheduling.tests_finished
    assert scheduling.unfinished == ["b", "c"]


@pytest.mark.parametrize("scheduler", ["LoadScheduling", "LoadScopeScheduling", "WorkStealingScheduling"])
@pytest.mark.parametrize("has_samples", [True, False])
def test_what_a_worker_has_collected_counts_when_it_is_gone(
    pytester: pytest.Pytester, has_samples: bool, scheduler: str
) -> None:
    """As it is when a test is not found: each worker ends once it has sent that it found none."""
    chunks = ChunkScheduling(
        num_nodes=2,
        plan=lambda ids: WorkQueue([], plan_others(range(len(ids)), num_workers=2)),
        restarts=Restarts(0),
        is_stopping=lambda: False,
        refuse=lambda *_: None,
    )
    config = pytester.parseconfig("--tx=2*popen")
    scheduling = SessionScheduling(
        chunks,
        has_samples=lambda _: has_samples,
        make_other=lambda: getattr(xdist_session, scheduler)(config),
    )
    ended, lives = FakeNode("gw0"), FakeNode("gw1")
    for node in (ended, lives):
        scheduling.add_node(node)
    scheduling.add_node_collection(ended, [])
    assert scheduling.remove_node(ended) is None
    assert not scheduling.collection_is_completed
    scheduling.add_node_collection(lives, [])
    assert scheduling.collection_is_completed
    scheduling.schedule()
    assert scheduling.tests_finished
    assert scheduling.nodes == [lives]


def test_which_workers_are_shut_down_when_restarts_are_used_up() -> None:
    """One that has not collected is not let in any more, and would wait for ever; those that have take over."""
    restarts = Restarts(0)
    scheduling = ChunkScheduling(
        num_nodes=1,
        plan=lambda ids: WorkQueue([], plan_others(range(len(ids)), num_workers=1)),
        restarts=restarts,
        is_stopping=lambda: False,
        refuse=lambda *_: None,
    )
    runs, starts = FakeNode("gw0"), FakeNode("gw1")
    scheduling.add_node(runs)
    scheduling.add_node_collection(runs, ["a", "b", "c"])
    scheduling.schedule()
    scheduling.add_node(starts)
    assert scheduling.nodes == [runs, starts]
    restarts.num_deaths = 1
    assert scheduling.nodes == [starts]
    for place in range(3):
        scheduling.mark_test_complete(runs, place)
    assert scheduling.nodes == [runs, starts]


def test_who_waits_when_the_session_stops_is_reported() -> None:
    """Also after pytest-xdist has told everybody once, which those that were to take over did not hear."""
    stopped: list[str] = []
    restarts = Restarts(0)
    scheduling = ChunkScheduling(
        num_nodes=3,
        plan=lambda ids: WorkQueue([], plan_others(range(len(ids)), num_workers=3)),
        restarts=restarts,
        is_stopping=lambda: bool(stopped),
        refuse=lambda *_: None,
    )
    nodes = [FakeNode(f"gw{number}") for number in range(3)]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, [str(number) for number in range(30)])
    scheduling.schedule()
    restarts.num_deaths = 1
    scheduling.remove_node(nodes[2])
    assert scheduling.nodes == []
    while len(scheduling._pending[nodes[0]]) > 1 or scheduling._work_queue:
        scheduling.mark_test_complete(nodes[0], scheduling._pending[nodes[0]][0])
    assert not nodes[0].shutting_down, "it may have to take over"
    stopped.append("-x")
    scheduling.mark_test_complete(nodes[1], scheduling._pending[nodes[1]][0])
    assert [node.shutting_down for node in nodes[:2]] == [True, True]


def test_a_worker_that_ends_the_session_ends_the_others() -> None:
    stopped: list[str] = []
    restarts = Restarts(0)
    scheduling = ChunkScheduling(
        num_nodes=2,
        plan=lambda ids: WorkQueue([], plan_others(range(len(ids)), num_workers=2)),
        restarts=restarts,
        is_stopping=lambda: bool(stopped),
        refuse=lambda *_: None,
    )
    nodes = [FakeNode("gw0"), FakeNode("gw1")]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, [str(number) for number in range(10)])
    scheduling.schedule()
    stopped.append("shouldfail")
    assert scheduling.remove_node(nodes[0]) is None
    assert nodes[1].shutting_down


def test_a_test_that_is_to_run_again_and_a_node_that_is_not_known() -> None:
    node = FakeNode("gw0")
    scheduling = ChunkScheduling(
        num_nodes=1,
        plan=lambda ids: WorkQueue([], plan_others(range(len(ids)), num_workers=1)),
        restarts=Restarts(0),
        is_stopping=lambda: False,
        refuse=lambda *_: None,
    )
    with pytest.raises(KeyError):
        scheduling.remove_node(node)
    scheduling.add_node(node)
    scheduling.add_node_collection(node, ["a", "b", "c"])
    scheduling.schedule()
    scheduling.mark_test_complete(node, 0)
    scheduling.mark_test_pending("a")
    scheduling.mark_test_complete(node, 1)
    assert (node.given, node.shutting_down) == ([0, 1, 2, 0], False)
    scheduling.mark_test_complete(node, 2)
    assert node.shutting_down
    scheduling.mark_test_complete(node, 0)
    assert not scheduling.unfinished


@dataclass(eq=False)
class FakeNode:
    """A node that only takes note."""

    name: str
    workerinput: dict[str, Any] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Any:
        channel = SimpleNamespace(setcallback=lambda callback: None)
        return SimpleNamespace(id=self.name, newchannel=lambda: channel)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.given.extend(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_replacement_takes_the_place_of_the_one_that_died(pytester: pytest.Pytester) -> None:
    """Its slot decides on its GPU."""
    config = pytester.parseconfigure("--dist=load", "--tx=2*popen")
    distribution = config.pluginmanager.get_plugin("llmeval-distribution")
    assert isinstance(distribution, WorkDistribution)
    nodes = [FakeNode(f"gw{number}") for number in range(4)]
    for node in nodes[:3]:
        distribution.pytest_configure_node(node)
    distribution.pytest_testnodedown(nodes[1], error="Not properly terminated")
    distribution.pytest_configure_node(nodes[3])
    assert [node.workerinput["llmeval_slot"] for node in nodes] == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--llm-model=demo"], 3),
        (["--llm-model=demo", "--llm-device=cuda"], 3),
        (["--llm-model=demo", "--llm-device=cuda:1"], 1),
        (["--llm-model=demo", "--llm-device=cpu"], None),
        ([], None),
    ],
)
def test_n_auto_is_a_worker_for_each_gpu(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: int | None
) -> None:
    monkeypatch.setattr("pytest_llmeval.plugin.xdist_distribution.num_visible_gpus", lambda _: 3)
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    assert num_gpu_workers(pytester.parseconfig(*options)) == expected
    monkeypatch.setattr("pytest_llmeval.plugin.xdist_distribution.num_visible_gpus", lambda _: 0)
    assert num_gpu_workers(pytester.parseconfig(*options)) is None


@given(session=sessions(), data=st.data())
def test_workers_that_die_for_no_reason_of_their_own(
    session: tuple[list[str], set[int], int, int], data: st.DataObject
) -> None:
    nodeids, _, limit, workers = session
    random = data.draw(st.randoms(use_true_random=False))
    deaths = data.draw(st.integers(0, 4))

    def strike() -> None:
        nonlocal deaths
        running = [worker for worker in world.workers if worker.state == "running"]
        if deaths and running and random.randrange(10) == 0:
            deaths -= 1
            random.choice(running).die()

    world = World(nodeids, killers=set(), limit=limit, num_workers=workers, max_restarts=100, draw=random.randrange)
    world.strike = strike
    world.run()
    completed = [nodeids[place] for place, times in world.completed.items() for _ in range(times)]
    # A test can be done and its worker dead before it can say so: that one is blamed, as pytest-xdist does.
    assert set(completed) | set(world.blamed) == set(nodeids)
    assert not world.lost
    assert len(world.blamed) <= 4
