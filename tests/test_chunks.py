"""Chunks: a plan that controller and workers make alike, and the order in which workers take from it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.inference.chunks import (
    WorkQueue,
    WorkUnit,
    chunk_size,
    group_of,
    plan_chunks,
    plan_others,
    plan_tests,
    worker_key_of,
)
from pytest_llmeval.text.names import escape_id, model_nodes

GROUPS = ["a.yaml", "b.yaml", "b.yaml::gpt2", "c d.yaml::org/m:1"]
SAMPLES = st.lists(st.sampled_from([*GROUPS, None]), max_size=200).map(
    lambda groups: [(place, f"{group}::q{place}") for place, group in enumerate(groups) if group is not None]
)


@given(samples=SAMPLES, limit=st.integers(1, 70), workers=st.integers(0, 5))
def test_every_sample_is_in_one_chunk_of_its_group_in_order(
    samples: list[tuple[int, str]], limit: int, workers: int
) -> None:
    chunks = plan_chunks(samples, limit=limit, num_workers=workers)
    nodeids = dict(samples)
    assert sorted(place for chunk in chunks for place in chunk.places) == [place for place, _ in samples]
    sizes: dict[str, list[int]] = {}
    for chunk in chunks:
        assert list(chunk.places) == sorted(chunk.places)
        assert {group_of(nodeids[place]) for place in chunk.places} == {chunk.group}
        sizes.setdefault(chunk.group, []).append(len(chunk.places))
    most = chunk_size(len(samples), limit=limit, num_workers=workers)
    for group, found in sizes.items():
        assert max(found) - min(found) <= 1
        assert max(found) <= most
        assert len(found) == -(-sum(found) // most), f"{group} is cut into more chunks than it needs"
    assert list(sizes) == list(dict.fromkeys(group_of(nodeid) for _, nodeid in samples))
    assert chunks == plan_chunks(list(samples), limit=limit, num_workers=workers)


@pytest.mark.parametrize(
    ("samples", "workers", "expected"),
    [(1000, 0, 64), (10, 0, 64), (14042, 2, 64), (200, 2, 25), (200, 4, 12), (20, 4, 1), (3, 8, 1), (0, 2, 1)],
)
def test_each_worker_has_four_chunks_where_that_can_be(samples: int, workers: int, expected: int) -> None:
    assert chunk_size(samples, limit=64, num_workers=workers) == expected


@given(places=st.lists(st.integers(0, 10_000), unique=True).map(sorted), workers=st.integers(1, 8))
def test_other_tests_come_in_small_runs(places: list[int], workers: int) -> None:
    units = plan_others(places, num_workers=workers)
    assert [place for unit in units for place in unit.places] == places
    assert all(1 <= len(unit.places) <= 16 and unit.kind == "tests" for unit in units)
    assert len(units) >= min(len(places), 8 * workers)


def take_all(work_queue: WorkQueue, *workers: str) -> list[str]:
    """What workers take in turn: ``worker:group`` for chunks, ``worker:kind`` for the rest."""
    taken = []
    while work_queue:
        units = [(worker, unit) for worker in workers if (unit := work_queue.take(worker)) is not None]
        taken += [f"{worker}:{unit.group or unit.kind}" for worker, unit in units]
    return taken


def chunks(**counts: int) -> list[WorkUnit]:
    return [
        WorkUnit(places=(100 * number + place,), kind="chunk", group=f"{name}.yaml")
        for number, (name, count) in enumerate(counts.items())
        for place in range(count)
    ]


def test_a_worker_stays_with_its_suite_and_then_helps() -> None:
    assert take_all(WorkQueue(chunks(small=1, big=4, middle=2)), "w", "v") == [
        *("w:big.yaml", "v:middle.yaml", "w:big.yaml", "v:middle.yaml", "w:big.yaml"),
        *("v:small.yaml", "w:big.yaml"),
    ]
    assert take_all(WorkQueue(chunks(one=4)), "w", "v") == ["w:one.yaml", "v:one.yaml"] * 2


def test_one_model_after_the_other_then_other_tests_then_what_may_kill() -> None:
    two = [
        WorkUnit(places=(place,), kind="chunk", group=group)
        for place, group in enumerate(["a.yaml::m1", "a.yaml::m2", "b.yaml::m1", "b.yaml::m2"])
    ]
    work_queue = WorkQueue(two, plan_others([7], num_workers=1))
    work_queue.quarantine([8, 9])
    assert take_all(work_queue, "w", "v") == [
        *("w:a.yaml::m1", "v:b.yaml::m1", "w:a.yaml::m2", "v:b.yaml::m2", "w:tests", "v:quarantine"),
    ]


def test_one_variant_after_the_other() -> None:
    """A later one finds in the store what an earlier one has asked."""
    levels = ["m1::x", "m1::y", "m2::x", "m2::y"]
    units = [
        WorkUnit(places=(place,), kind="chunk", group=f"{file}::{level}")
        for level in levels
        for place, file in enumerate(["a.yaml", "b.py::B"])
    ]
    taken = take_all(WorkQueue(units), "w", "v")
    assert [one.split("::", 1)[1].removeprefix("B::") for one in taken] == [level for level in levels for _ in "wv"]


def test_quarantine_runs_backwards() -> None:
    work_queue = WorkQueue(())
    work_queue.quarantine([3, 5, 4])
    assert work_queue.take("w") == WorkUnit(places=(5, 4, 3), kind="quarantine")
    assert not work_queue
    assert work_queue.take("w") is None


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_nothing_is_lost_or_doubled(counts: list[int], data: st.DataObject) -> None:
    planned = chunks(**{f"s{number}": count for number, count in enumerate(counts)})
    work_queue, given_out = WorkQueue(planned), Counter[WorkUnit]()
    held: list[WorkUnit] = []
    while work_queue or held:
        if held and (not work_queue or data.draw(st.booleans())):
            unit = held.pop()
            if data.draw(st.integers(0, 3)) == 3:
                work_queue.put_back(unit)
            else:
                given_out[unit] += 1
        else:
            taken = work_queue.take(data.draw(st.sampled_from("wv")))
            assert taken is not None
            held.append(taken)
    assert given_out == Counter(planned)


@pytest.mark.parametrize(
    ("nodeid", "file", "scope", "group"),
    [
        ("a/test_b.py::test_c[x@y]", "a/test_b.py", "a/test_b.py", ""),
        ("a/test_b.py::TestC::test_d@gpu", "a/test_b.py", "a/test_b.py::TestC", "gpu"),
        ("a/test_b.py::test_c[x@y]@gpu", "a/test_b.py", "a/test_b.py", "gpu"),
        ("boolq.yaml::gpt2::q1", "boolq.yaml", "boolq.yaml::gpt2", ""),
        ("README.md", "README.md", "README.md", ""),
        (f"s.yaml::{escape_id('user@example.org')}", "s.yaml", "s.yaml", ""),
        (f"s.yaml::{escape_id('user@example.org')}@gpu", "s.yaml", "s.yaml", "gpu"),
        (f"s.yaml::{model_nodes(['m@main', 'n'])['m@main']}::q1", "s.yaml", "s.yaml::m%40main", ""),
    ],
)
def test_what_is_kept_together_is_what_pytest_xdist_keeps_together(
    nodeid: str, file: str, scope: str, group: str
) -> None:
    found = [worker_key_of(nodeid, mode) for mode in ("loadfile", "loadscope", "loadgroup", "load", "worksteal")]
    assert found == [file, scope, group, "", ""]
    scheduling = pytest.importorskip("xdist.scheduler")
    split = [scheduling.LoadFileScheduling, scheduling.LoadScopeScheduling, scheduling.LoadGroupScheduling]
    theirs = [kind._split_scope(None, nodeid) for kind in split]
    assert theirs == [file, scope, group or nodeid]


@pytest.mark.parametrize(("name", "group"), [("q1", ""), ("q1@gpu", "gpu"), ("q1@a::b", "a::b")])
def test_an_at_sign_in_a_folder_s_name_is_no_group(name: str, group: str) -> None:
    for file in ("runs@2/a.yaml", "runs@2/test_a.py"):
        assert worker_key_of(f"{file}::{name}", "loadgroup") == group


def test_a_suite_that_stays_on_one_worker_is_cut_for_batches_only() -> None:
    samples = [(place, f"a.yaml::q{place}") for place in range(40)]
    for mode, size in (("load", 5), ("loadfile", 20), ("loadscope", 20), ("loadgroup", 5)):
        assert len(plan_chunks(samples, limit=25, num_workers=2, mode=mode)[0].places) == size


def test_a_worker_key_is_its_first_taker_s_until_it_dies() -> None:
    files = [("a.yaml", "a"), ("a.yaml", "a"), ("b.yaml", "b")]
    planned = [
        WorkUnit(places=(place,), kind="chunk", group=group, worker_key=worker_key)
        for place, (group, worker_key) in enumerate(files)
    ]
    tests = plan_tests([(7, "t.py::t1@a"), (8, "t.py::t2"), (9, "t.py::t3@a")], num_workers=1, mode="loadgroup")
    assert [(unit.places, unit.worker_key) for unit in tests] == [((7, 9), "a"), ((8,), "")]
    work_queue = WorkQueue(planned, tests)
    assert [places_taken(work_queue, worker) for worker in "wvv"] == [(0,), (2,), (8,)]
    assert not work_queue.has_for("v")
    assert work_queue.take("v") is None
    assert places_taken(work_queue, "w") == (1,)
    work_queue.quarantine([1], worker_key="a")
    work_queue.release("w")
    assert [places_taken(work_queue, "v") for _ in range(2)] == [(7, 9), (1,)]
    assert not work_queue


def places_taken(work_queue: WorkQueue, worker: str) -> tuple[int, ...] | None:
    unit = work_queue.take(worker)
    return None if unit is None else unit.places


class CountingWorker:
    """Counts how often it is compared with what a worker_key belongs to."""

    num_compared = 0

    def __eq__(self, other: object) -> bool:
        CountingWorker.num_compared += 1
        return self is other

    __hash__ = object.__hash__


def test_many_groups_cost_no_more_than_few() -> None:
    """Not every group that is left is looked at for each unit."""
    num_groups = 1_000
    samples = [(place, f"a.yaml::q{place}@g{place % num_groups}") for place in range(2 * num_groups)]
    tests = [(len(samples) + number, f"t.py::t{number}@g{number}") for number in range(num_groups)]
    work_queue = WorkQueue(
        plan_chunks(samples, limit=1, num_workers=2, mode="loadgroup"),
        plan_tests(tests, num_workers=2, mode="loadgroup"),
    )
    workers, taken = [CountingWorker(), CountingWorker()], 0
    CountingWorker.num_compared = 0
    while work_queue:
        for worker in workers:
            if work_queue.has_for(worker):
                taken += work_queue.take(worker) is not None
    assert taken == 3 * num_groups
    assert CountingWorker.num_compared < 20 * taken


@given(
    units=st.lists(st.tuples(st.sampled_from(GROUPS), st.sampled_from(["", "x", "y", "z"])), min_size=1, max_size=20),
    data=st.data(),
)
def test_no_worker_takes_what_is_bound_to_another(units: list[tuple[str, str]], data: st.DataObject) -> None:
    """Whatever is put back, quarantined and released on the way; and what nobody holds, anybody gets."""
    kinds = data.draw(st.lists(st.sampled_from(["chunk", "tests"]), min_size=len(units), max_size=len(units)))
    planned = [
        WorkUnit(places=(place,), kind="chunk", group=group, worker_key=worker_key)
        if kind == "chunk"
        else WorkUnit(places=(place,), kind="tests", worker_key=worker_key)
        for place, ((group, worker_key), kind) in enumerate(zip(units, kinds, strict=True))
    ]
    work_queue = WorkQueue(
        [unit for unit in planned if unit.kind == "chunk"], [unit for unit in planned if unit.kind == "tests"]
    )
    left, owners = {unit.places[0]: unit.worker_key for unit in planned}, dict[str, str]()
    while left:
        assert work_queue
        worker = data.draw(st.sampled_from("uvw"))
        free = [place for place, worker_key in left.items() if owners.get(worker_key, worker) == worker]
        assert work_queue.has_for(worker) == bool(free)
        unit = work_queue.take(worker)
        assert (unit is not None) == bool(free)
        if unit is not None:
            assert unit.places[0] in free
            if unit.worker_key:
                owners[unit.worker_key] = worker
            match data.draw(st.sampled_from(["done", "done", "put back", "quarantine"])):
                case "done":
                    del left[unit.places[0]]
                case "put back":
                    work_queue.put_back(unit)
                case "quarantine":
                    work_queue.quarantine(unit.places, worker_key=unit.worker_key)
        if data.draw(st.integers(0, 4)) == 4:
            work_queue.release(worker)
            owners = {worker_key: owner for worker_key, owner in owners.items() if owner != worker}
    assert not work_queue
    assert work_queue.take("u") is None
