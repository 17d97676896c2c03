"""The budget of a session: what is paid never passes it, in one process and in several."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.models.budget import Amount, Budget, BudgetError, most_new_tokens
from tests.properties import examples

_ASKED = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), max_size=60)
"""The most tokens of each request, and the part of them that it takes."""


def held(budget: Budget, most: Amount | None) -> Amount:
    """What the budget holds for a request that has room."""
    found = budget.try_hold(most)
    assert found is not None
    return found


async def _ask_all(budget: Budget, asked: Sequence[tuple[int, float]]) -> list[int]:
    """Ask for all at once; return what was paid for those that were asked."""

    async def one(most: int, part: float) -> int | None:
        try:
            amount = await budget.hold(Amount(most / 10, most))
        except BudgetError:
            return None
        await asyncio.sleep(0)
        paid = int(most * part)
        budget.settle(amount, Amount(paid / 10, paid))
        return paid

    found = await asyncio.gather(*(one(*each) for each in asked))
    return [paid for paid in found if paid is not None]


@settings(max_examples=examples(100), deadline=None)
@given(_ASKED, st.integers(1, 300), st.booleans())
def test_the_limit_is_never_passed(asked: list[tuple[int, float]], most: int, counts_money: bool) -> None:
    budget = Budget(most / 10, None) if counts_money else Budget(None, most)
    paid = asyncio.run(_ask_all(budget, asked))
    assert sum(paid) <= most
    assert budget.paid.tokens == sum(paid)
    assert budget.paid.cost == pytest.approx(sum(paid) / 10)
    if len(paid) < len(asked):
        assert sum(paid) + max(one for one, _ in asked) > most, "it ended although each of them would have fitted"
    if sum(one for one, _ in asked) <= most:
        assert len(paid) == len(asked)


def test_what_is_left_is_said_and_nothing_is_asked_any_more() -> None:
    budget = Budget(5.0, None)
    budget.settle(held(budget, Amount(4.0, 10)), Amount(3.0, 10))
    assert budget.ended is None
    with pytest.raises(BudgetError, match=r"^not asked: the next reply could pass the budget of 5 \(--llm-budget\)$"):
        budget.try_hold(Amount(2.5, 1))
    with pytest.raises(BudgetError, match="could pass the budget of 5"):
        budget.try_hold(Amount())
    assert budget.ended == "the next reply could pass the budget of 5 (--llm-budget)"


def test_a_request_waits_while_those_under_way_could_take_what_is_left() -> None:
    budget = Budget(None, 10)
    first = held(budget, Amount(tokens=6))
    assert budget.try_hold(Amount(tokens=5)) is None
    budget.settle(first, Amount(tokens=2))
    assert budget.try_hold(Amount(tokens=5)) == Amount(tokens=5)


def test_replies_without_bounds_begin_alone() -> None:
    budget = Budget(5.0, None)
    first = held(budget, None)
    assert first.cost == 5.0
    assert budget.try_hold(None) is None
    assert budget.try_hold(Amount(0.1)) is None
    budget.settle_unbounded(first, None)  # it has failed: nothing is known yet
    first = held(budget, None)
    assert budget.try_hold(None) is None
    budget.settle_unbounded(first, Amount(1.0, 1))
    assert [held(budget, None).cost for _ in range(4)] == [1.0, 1.0, 1.0, 1.0]
    assert budget.try_hold(None) is None
    for _ in range(3):
        budget.settle_unbounded(Amount(1.0, 1), Amount(1.5, 1))
    budget.settle_unbounded(Amount(1.0, 1), None)
    assert budget.paid.cost == 1.0 + 3 * 1.5 + 1.5, "a call that has failed counts as the largest"
    with pytest.raises(BudgetError):
        budget.try_hold(None)


@pytest.mark.parametrize("limits", [(1.0, None), (None, 10)])
def test_a_budget_that_is_used_up_has_no_room_for_a_reply_without_bounds(
    limits: tuple[float | None, int | None],
) -> None:
    budget = Budget(*limits)
    budget.settle(held(budget, Amount(1.0, 10)), Amount(1.0, 10))
    with pytest.raises(BudgetError):
        budget.try_hold(None)


def _spend(folder: str, number: int, results: multiprocessing.queues.Queue[int]) -> None:
    budget, paid = Budget(None, 200, Path(folder)), 0
    for _ in range(number):
        try:
            while (amount := budget.try_hold(Amount(0.0, 7))) is None:
                time.sleep(0.001)
        except BudgetError:
            break
        budget.settle(amount, Amount(0.0, 5))
        paid += 5
    results.put(paid)


def test_processes_share_it(tmp_path: Path) -> None:
    Budget(None, 200).share(tmp_path)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_spend, args=(str(tmp_path), 100, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    paid = sum(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert paid == Budget(None, 200, tmp_path).paid.tokens
    assert 193 < paid <= 200


def test_what_a_dead_process_held_counts_as_paid(tmp_path: Path) -> None:
    def hold_and_die() -> None:
        Budget(None, 100, tmp_path).try_hold(Amount(0.0, 60))
        os._exit(0)

    worker = multiprocessing.get_context("fork").Process(target=hold_and_die)
    worker.start()
    worker.join()
    budget = Budget(None, 100, tmp_path)
    assert budget.paid.tokens == 60
    with pytest.raises(BudgetError):
        budget.try_hold(Amount(0.0, 50))


def test_what_a_living_process_holds_is_its_own(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    has_held, may_end = context.Event(), context.Event()

    def hold_and_wait() -> None:
        budget = Budget(None, 100, tmp_path)  # which shows that it is alive for as long as it is there
        budget.try_hold(Amount(0.0, 60))
        has_held.set()
        may_end.wait(60)

    worker = context.Process(target=hold_and_wait)
    worker.start()
    assert has_held.wait(60)
    budget = Budget(None, 100, tmp_path)
    assert [budget.try_hold(Amount(0.0, 50)) for _ in range(2)] == [None, None]
    assert budget.paid.tokens == 0
    may_end.set()
    worker.join()


def test_what_cannot_be_read_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session may have too many open files."""
    budget = Budget(None, 100, tmp_path)
    budget.settle(held(budget, Amount(tokens=60)), Amount(tokens=60))

    def read_bytes(path: Path) -> bytes:
        raise OSError(24, "Too many open files", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(OSError, match="Too many open files"):
            budget.try_hold(Amount(tokens=60))
    assert budget.paid.tokens == 60
    with pytest.raises(BudgetError):
        budget.try_hold(Amount(tokens=60))


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"max_tokens": 16}, 16),
        ({"max_completion_tokens": 16, "messages": []}, 16),
        ({"options": {"num_predict": 9}}, 9),
        ({"n_predict": 5, "temperature": 1}, 5),
        ({"sampling_params": {"max_new_tokens": 3}}, 3),
        ({"max_tokens": 2, "prompt": ["a", "b", "c"]}, 6),
        ({"max_tokens": 2, "prompt": [5, 6, 7]}, 2),
        ({"max_tokens": 2, "n": 3}, 6),
        ({"max_tokens": 2, "words": 30}, 30),
        ({"prompt": "a"}, 0),
    ],
)
def test_the_most_tokens_of_a_reply(body: dict[str, object], most: int) -> None:
    assert most_new_tokens(body, "words") == most  # type: ignore[arg-type]
