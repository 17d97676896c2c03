"""Which replica is asked what: nothing is lost, nothing is with two replicas, and all of them have work to the end."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.models.ray.schedule import Chunk, Entry, Schedule
from pytest_llmeval.types import LoglikelihoodRequest
from tests.properties import examples


def entry(number: int, header: str | None = None, engine: str | None = None) -> Entry:
    request = LoglikelihoodRequest(f"question {number}", " yes")
    return Entry(number=number, requests=[request], futures=[Future()], header=header, engine=engine)


def schedule_of(replicas: str, *, chunk_size: int) -> Schedule:
    schedule = Schedule(chunk_size=chunk_size)
    for replica in replicas:
        schedule.join(replica)
    return schedule


def numbers(chunk: Chunk) -> list[int]:
    return [one.number for one in chunk.entries]


class Simulation:
    """Replicas that begin the first of their chunks and end at will; counts what becomes of each sample."""

    def __init__(self, chunk_size: int, killers: frozenset[int]) -> None:
        self.schedule = Schedule(chunk_size=chunk_size)
        self.killers = killers
        self.replicas: list[str] = []
        self.has: dict[str, list[Chunk]] = {}
        self.entries: list[Entry] = []
        self.answered: list[int] = []
        self.given_up: list[int] = []
        self.num_joined = 0

    def join(self) -> None:
        self.num_joined += 1
        self.replicas.append(f"r{self.num_joined}")
        self.has[self.replicas[-1]] = []
        self.schedule.join(self.replicas[-1])

    def add(self, count: int) -> None:
        new = [entry(len(self.entries) + place, header=f"h{place % 3}") for place in range(count)]
        self.entries += new
        self.schedule.add(new)

    def give(self, *, is_quiet: bool) -> None:
        for chunk in self.schedule.give(is_quiet=is_quiet):
            self.has[str(chunk.replica)].append(chunk)
        self.check()
        for chunk in list(self.schedule.ask_back()):
            own = self.has[str(chunk.replica)]
            is_begun = own[0] is chunk
            if not is_begun:
                own.remove(chunk)
            self.schedule.settle_asked_back(chunk, was_given=not is_begun)
        for chunk in self.schedule.give(is_quiet=is_quiet):
            self.has[str(chunk.replica)].append(chunk)

    def work(self, replica: str) -> None:
        """Answer the first chunk, or die of a sample in it."""
        if not self.has[replica]:
            return
        chunk = self.has[replica][0]
        if self.killers.intersection(numbers(chunk)):
            self.end(replica)
            self.join()
            return
        del self.has[replica][0]
        assert self.schedule.answered(chunk)
        for one in chunk.entries:
            if one.is_wanted:
                self.answered.append(one.number)
                one.futures[0].set_result(Any)  # type: ignore[arg-type]

    def end(self, replica: str) -> None:
        self.replicas.remove(replica)
        del self.has[replica]
        for one in self.schedule.leave(replica):
            self.given_up.append(one.number)
            one.futures[0].set_result(Any)  # type: ignore[arg-type]

    def check(self) -> None:
        """No sample is in two places, and none is in none."""
        held = [number for chunks in self.has.values() for chunk in chunks for number in numbers(chunk)]
        assert len(held) == len(set(held))
        assert all(len(chunk.entries) == 1 for chunks in self.has.values() for chunk in chunks if chunk.is_alone)
        everywhere = [*self.answered, *self.given_up, *(one.number for one in self.schedule.remaining())]
        assert sorted(everywhere) == list(range(len(self.entries)))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 20)),
        st.tuples(st.just("work"), st.integers(0, 5)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("quiet"), st.just(0)),
    ),
    max_size=60,
)


@given(st.integers(1, 8), st.frozensets(st.integers(0, 30), max_size=3), STEPS)
@settings(max_examples=examples(150), deadline=None)
def test_each_sample_is_answered_once_or_given_up(
    chunk_size: int, killers: frozenset[int], steps: list[tuple[str, int]]
) -> None:
    run = Simulation(chunk_size, killers)
    run.join()
    ends: dict[int, int] = {}
    for step, value in steps:
        match step:
            case "add":
                run.add(value)
            case "join":
                run.join()
            case "work" | "end" if run.replicas:
                replica = run.replicas[value % len(run.replicas)]
                if step == "end":
                    for number in numbers(run.has[replica][0]) if run.has[replica] else ():
                        ends[number] = ends.get(number, 0) + 1
                    run.end(replica)
                else:
                    run.work(replica)
        run.give(is_quiet=step == "quiet")
    if not run.replicas:
        run.join()
    for _ in range(20 * (len(run.entries) + 1)):
        run.give(is_quiet=True)
        if not run.schedule.remaining():
            break
        run.work(next(replica for replica in run.replicas if run.has[replica]))
    run.check()
    assert not run.schedule.remaining()
    assert len(run.answered) == len(set(run.answered))
    assert not killers.intersection(run.answered)
    assert all(number in killers or ends.get(number, 0) >= 2 for number in run.given_up)


def test_a_sample_that_ends_two_replicas_alone_is_given_up_and_its_neighbours_are_answered() -> None:
    run = Simulation(8, frozenset({3}))
    run.join()
    run.join()
    run.add(20)
    while run.schedule.remaining():
        run.give(is_quiet=True)
        run.work(next(replica for replica in run.replicas if run.has[replica]))
    assert run.given_up == [3]
    assert sorted(run.answered) == [number for number in range(20) if number != 3]
    assert run.num_joined == 2 + 3  # the chunk's, and two of the sample alone


def test_while_samples_come_only_full_chunks_are_given() -> None:
    schedule = schedule_of("ab", chunk_size=4)
    schedule.add(entry(number) for number in range(7))
    assert [numbers(chunk) for chunk in schedule.give(is_quiet=False)] == [[0, 1, 2, 3]]
    assert [numbers(chunk) for chunk in schedule.give(is_quiet=True)] == [[4], [5], [6]]


def test_chunks_shrink_towards_the_end() -> None:
    schedule = schedule_of("ab", chunk_size=64)
    schedule.add(entry(number) for number in range(100))
    sizes = []
    while chunks := schedule.give(is_quiet=True):
        for chunk in chunks:
            sizes.append(len(chunk.entries))
            schedule.answered(chunk)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 25
    assert sizes[-1] <= 4
    assert sum(sizes) == 100


def test_a_replica_stays_with_its_header() -> None:
    schedule = schedule_of("ab", chunk_size=2)
    schedule.add(entry(number, "left" if number < 8 else "right") for number in range(16))
    met: dict[object, set[object]] = {"a": set(), "b": set()}
    while chunks := schedule.give(is_quiet=False):
        for chunk in chunks:
            met[chunk.replica] |= {one.header for one in chunk.entries}
            schedule.answered(chunk)
    assert met == {"a": {"left"}, "b": {"right"}}


def test_the_oldest_sample_is_not_passed_over_for_long() -> None:
    schedule = schedule_of("a", chunk_size=2)
    schedule.add([entry(0, "left"), entry(1, "left")])
    (first,) = schedule.give(is_quiet=True)[:1]
    schedule.answered(first)
    schedule.add([entry(2, "right"), *(entry(number, "left") for number in range(3, 40))])
    places = []
    while chunks := schedule.give(is_quiet=True):
        for chunk in chunks:
            places += numbers(chunk)
            schedule.answered(chunk)
    assert places.index(2) < 8


def test_an_idle_replica_takes_over_what_another_has_not_begun() -> None:
    schedule = schedule_of("a", chunk_size=64)
    schedule.add(entry(number) for number in range(8))
    first, second = schedule.give(is_quiet=True)
    assert (numbers(first), numbers(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert not list(schedule.ask_back()), "there is no other"
    schedule.join("b")
    (asked,) = schedule.ask_back()
    assert asked is second
    assert not list(schedule.ask_back()), "one for each that is idle"
    schedule.settle_asked_back(asked, was_given=True)
    (taken,) = schedule.give(is_quiet=True)
    assert (taken.replica, numbers(taken)) == ("b", [4, 5, 6, 7])


def test_the_largest_chunk_that_was_not_begun_is_taken_over_and_then_the_next() -> None:
    schedule = schedule_of("ab", chunk_size=16)
    schedule.add(entry(number) for number in range(20))
    chunks = schedule.give(is_quiet=True)
    later = chunks[2:]
    assert [len(chunk.entries) for chunk in chunks] == [5, 4, 3, 2]
    assert not list(schedule.ask_back()), "samples wait, and nobody is idle"
    schedule.join("c")
    assert not list(schedule.ask_back()), "samples wait: the idle one gets those"
    while schedule.num_waiting:
        for chunk in schedule.give(is_quiet=True):
            schedule.answered(chunk)
    for place in (0, 1):
        (asked,) = schedule.ask_back()
        assert asked is later[place]
        schedule.settle_asked_back(asked, was_given=False)


def test_beside_a_sample_that_is_alone_there_is_no_other_chunk() -> None:
    """Were both lost, nobody would know which of them ended the replica."""
    schedule = schedule_of("a", chunk_size=2)
    schedule.add(entry(number) for number in range(8))
    schedule.give(is_quiet=False)
    schedule.leave("a")
    schedule.join("b")
    (alone,) = schedule.give(is_quiet=False)
    assert (numbers(alone), alone.is_alone) == ([0], True)


def test_a_replica_remembers_more_than_its_last_header() -> None:
    schedule = schedule_of("a", chunk_size=1)
    for number, header in enumerate(["h0", "h1"]):
        schedule.add([entry(number, header)])
        (chunk,) = schedule.give(is_quiet=True)
        schedule.answered(chunk)
    schedule.add([entry(2, "new"), entry(3, "h0")])
    assert [numbers(chunk) for chunk in schedule.give(is_quiet=True)] == [[3], [2]]


def test_a_chunk_that_was_begun_is_not_asked_for_again() -> None:
    schedule = schedule_of("a", chunk_size=64)
    schedule.add(entry(number) for number in range(8))
    first, second = schedule.give(is_quiet=True)
    schedule.join("b")
    (asked,) = schedule.ask_back()
    schedule.settle_asked_back(asked, was_given=False)
    assert not list(schedule.ask_back())
    assert schedule.answered(first)
    assert schedule.answered(second)
    assert not schedule.remaining()


def test_what_nobody_waits_for_is_not_given() -> None:
    schedule = schedule_of("a", chunk_size=4)
    entries = [entry(number) for number in range(4)]
    entries[1].futures[0].cancel()
    schedule.add(entries)
    assert [number for chunk in schedule.give(is_quiet=True) for number in numbers(chunk)] == [0, 2, 3]


def test_a_chunk_is_of_one_engine() -> None:
    schedule = schedule_of("a", chunk_size=8)
    schedule.add(entry(number, engine="plain" if number % 2 else None) for number in range(8))
    while chunks := schedule.give(is_quiet=True):
        for chunk in chunks:
            assert len({one.engine for one in chunk.entries}) == 1
            schedule.answered(chunk)


def test_an_answer_after_the_death_is_known_to_be_late() -> None:
    schedule = schedule_of("a", chunk_size=4)
    schedule.add(entry(number) for number in range(2))
    chunk, *_ = schedule.give(is_quiet=True)
    schedule.leave("a")
    assert not schedule.answered(chunk)
    assert [one.number for one in schedule.remaining()] == [0, 1]
