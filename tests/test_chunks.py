"""Chunks: a plan that controller and workers make alike, and the order in which workers take from it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.chunks import Backlog, Unit, chunk_size, group_of, plan_chunks, plan_others

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


def take_all(backlog: Backlog, *workers: str) -> list[str]:
    """What workers take in turn: ``worker:group`` for chunks, ``worker:kind`` for the rest."""
    taken = []
    while backlog:
        for worker in workers:
            if backlog:
                unit = backlog.take(worker)
                taken.append(f"{worker}:{unit.group or unit.kind}")
    return taken


def chunks(**counts: int) -> list[Unit]:
    return [
        Unit(places=(100 * number + place,), kind="chunk", group=f"{name}.yaml")
        for number, (name, count) in enumerate(counts.items())
        for place in range(count)
    ]


def test_a_worker_stays_with_its_suite_and_then_helps() -> None:
    assert take_all(Backlog(chunks(small=1, big=4, middle=2)), "w", "v") == [
        *("w:big.yaml", "v:middle.yaml", "w:big.yaml", "v:middle.yaml", "w:big.yaml"),
        *("v:small.yaml", "w:big.yaml"),
    ]
    assert take_all(Backlog(chunks(one=4)), "w", "v") == ["w:one.yaml", "v:one.yaml"] * 2


def test_one_model_after_the_other_then_other_tests_then_what_may_kill() -> None:
    two = [
        Unit(places=(place,), kind="chunk", group=group)
        for place, group in enumerate(["a.yaml::m1", "a.yaml::m2", "b.yaml::m1", "b.yaml::m2"])
    ]
    backlog = Backlog(two, plan_others([7], num_workers=1))
    backlog.quarantine([8, 9])
    assert take_all(backlog, "w", "v") == [
        *("w:a.yaml::m1", "v:b.yaml::m1", "w:a.yaml::m2", "v:b.yaml::m2", "w:tests", "v:quarantine"),
    ]


def test_quarantine_runs_backwards() -> None:
    backlog = Backlog(())
    backlog.quarantine([3, 5, 4])
    assert backlog.take("w") == Unit(places=(5, 4, 3), kind="quarantine")
    assert not backlog
    with pytest.raises(IndexError):
        backlog.take("w")


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_nothing_is_lost_or_doubled(counts: list[int], data: st.DataObject) -> None:
    planned = chunks(**{f"s{number}": count for number, count in enumerate(counts)})
    backlog, given_out = Backlog(planned), Counter[Unit]()
    held: list[Unit] = []
    while backlog or held:
        if held and (not backlog or data.draw(st.booleans())):
            unit = held.pop()
            if data.draw(st.integers(0, 3)) == 3:
                backlog.put_back(unit)
            else:
                given_out[unit] += 1
        else:
            held.append(backlog.take(data.draw(st.sampled_from("wv"))))
    assert given_out == Counter(planned)
