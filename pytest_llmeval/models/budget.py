"""Keep a session within a budget of money or tokens, over all of its processes.

Before a request is sent, the most that it can take is held: its prompt counts a token for each byte, its reply as many
as it may have. What was paid takes the place of that when the reply is there. So the budget is never passed, and a
request waits while the requests that are under way could take what is left. If it does not fit even without them, the
budget has ended, and nothing is asked any more.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.shared import SharedValue
from pytest_llmeval.types import JSON

__all__ = ["Amount", "Budget", "BudgetError", "most_new_tokens"]

_POLL_S = 0.02
"""Seconds between looks whether what other requests hold has become free."""
_ROUNDING = 1e-9
_LIMIT = re.compile(r"max\w*_tokens|n_predict|num_predict")


class BudgetError(RequestError):
    """A request that was not sent, since more than the budget could be paid with it."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Money in the currency of the prices, and tokens that were read and written."""

    cost: float = 0.0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cost + other.cost, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class _State:
    """The amount that was paid, and what each process holds for its requests under way.

    ``largest`` is the most that a reply has taken so far of those that nothing bounds.
    ``ended`` says why nothing more is asked, if so.
    """

    paid: Amount = Amount()
    held: Mapping[int, tuple[Amount, ...]] = field(default_factory=dict)
    largest: Amount = Amount()
    ended: str | None = None

    def all_held(self) -> Amount:
        return sum((one for own in self.held.values() for one in own), Amount())

    @classmethod
    def from_json(cls, found: Any) -> _State:
        return cls(
            Amount(**found["paid"]),
            {int(process): tuple(Amount(**one) for one in own) for process, own in found["held"].items()},
            Amount(**found["largest"]),
            found["ended"],
        )


class Budget:
    """The budget of a session: ``most_cost``, ``most_tokens``, or both.

    Processes that share ``folder`` keep it in a file there; without one it is this process's alone.
    """

    def __init__(self, most_cost: float | None, most_tokens: int | None, folder: Path | None = None) -> None:
        self.most_cost, self.most_tokens = most_cost, most_tokens
        self._folder = folder
        self._state = _State()
        self._shared = None if folder is None else _shared_in(folder)
        self._lock = threading.Lock()
        self._alive: tuple[int, object] | None = None

    @property
    def paid(self) -> Amount:
        """Return what was paid so far, with what processes held that have died."""
        return self._change(self._without_dead).paid

    @property
    def ended(self) -> str | None:
        """Return why nothing more is asked; None if more may be."""
        return self._change(lambda state: state).ended

    def share(self, folder: Path) -> None:
        """Keep the budget in a folder from now on, for processes that share it."""
        if self._folder is None:
            self._folder, self._shared = folder, _shared_in(folder)
            self._change(lambda state: state)

    async def hold(self, most: Amount) -> Amount:
        """Wait until this fits beside all that is held, then hold it, and return it. Raises what ``try_hold`` does."""
        while (held := self.try_hold(most)) is None:
            await asyncio.sleep(_POLL_S)
        return held

    def try_hold(self, most: Amount | None) -> Amount | None:
        """Hold this if it fits beside all that is held, and return it; return None if it may fit later.

        ``most`` is None if nothing bounds what the reply can take. Then it is the most that such a reply has taken so
        far, and until one has taken something each is under way alone, with all that is left. Raises ``BudgetError`` if
        the budget has ended, or ends here as there will never be room.
        """
        made: Amount | None = None

        def tried(state: _State) -> _State:
            nonlocal made
            if state.ended is not None:
                return state
            others, is_alone = state.all_held(), most is None and not self._bounds(state.largest)
            wanted = most or (self._least if is_alone else state.largest)
            if self._passed_by(state.paid + wanted):
                return replace(state, ended=self._why_ended(state.paid, wanted))
            if (is_alone and others != Amount()) or self._passed_by(state.paid + others + wanted):
                return self._without_dead(state)
            made = self._left(state.paid) if is_alone else wanted
            return replace(state, held={**state.held, os.getpid(): (*state.held.get(os.getpid(), ()), made)})

        after = self._change(tried)
        if made is None and after.ended is not None:
            raise BudgetError(f"not asked: {after.ended}")
        return made

    def settle(self, held: Amount, paid: Amount) -> None:
        """Put what was paid in the place of what was held, for a reply that was bounded by that."""
        self._change(lambda state: replace(_released(state, held), paid=state.paid + paid))

    def settle_unbounded(self, held: Amount, paid: Amount | None) -> None:
        """Do as ``settle`` for a reply without bounds; one that has failed (None) counts as the largest so far."""

        def settled(state: _State) -> _State:
            known = state.largest
            found = known if paid is None else paid
            largest = Amount(max(found.cost, known.cost), max(found.tokens, known.tokens))
            return replace(_released(state, held), paid=state.paid + found, largest=largest)

        self._change(settled)

    def end(self, reason: str) -> None:
        """Have nothing more asked, for another reason than the limit."""
        self._change(lambda state: replace(state, ended=state.ended or reason))

    def _bounds(self, largest: Amount) -> bool:
        """Tell whether the largest reply so far says something of what the next can take."""
        return (self.most_cost is None or largest.cost > 0) and (self.most_tokens is None or largest.tokens > 0)

    @property
    def _least(self) -> Amount:
        """Return the least that a reply can take: the budget has ended when this does not fit."""
        return Amount(2 * _ROUNDING * (self.most_cost or 0.0), 1)

    def _left(self, paid: Amount) -> Amount:
        """Return what is left, 0 of what has no limit."""
        return Amount(max(0.0, (self.most_cost or 0.0) - paid.cost), max(0, (self.most_tokens or 0) - paid.tokens))

    def _passed_by(self, amount: Amount) -> tuple[str, ...]:
        """Return the limits that the amount is above, for messages."""
        found = []
        if self.most_cost is not None and amount.cost > self.most_cost * (1 + _ROUNDING):
            found.append(f"{self.most_cost:g} (--llm-budget)")
        if self.most_tokens is not None and amount.tokens > self.most_tokens:
            found.append(f"{self.most_tokens:,} tokens (--llm-budget-tokens)")
        return tuple(found)

    def _why_ended(self, paid: Amount, wanted: Amount) -> str:
        """Return why nothing more is asked: the next reply could pass the budget, or an earlier one has."""
        if passed := self._passed_by(paid):
            return f"the budget of {' and '.join(passed)} was passed: a reply took more than could be foreseen"
        return f"the next reply could pass the budget of {self._passed_by(paid + wanted)[0]}"

    def _change(self, changed: Callable[[_State], _State]) -> _State:
        """Put ``changed`` of the state in its place, for all processes, and return it."""
        with self._lock:
            if self._shared is None or self._folder is None:
                self._state = changed(self._state)
                return self._state
            self._show_alive(self._folder)
            return self._shared.change(self._state, changed)

    def _show_alive(self, folder: Path) -> None:
        """Hold a lock for as long as this process lives, which tells others whether it does."""
        if self._alive is None or self._alive[0] != os.getpid():
            from filelock import FileLock

            lock = FileLock(_alive_path(folder, os.getpid()), thread_local=False)
            lock.acquire()
            self._alive = os.getpid(), lock

    def _without_dead(self, state: _State) -> _State:
        """Count what dead processes held as paid: nobody knows what became of their requests."""
        if self._folder is None:
            return state
        dead = [one for one in state.held if one != os.getpid() and self._is_dead(one)]
        paid = sum((amount for one in dead for amount in state.held[one]), state.paid)
        return replace(state, paid=paid, held={one: own for one, own in state.held.items() if one not in dead})

    def _is_dead(self, process: int) -> bool:
        from filelock import FileLock, Timeout

        assert self._folder is not None  # without it there is one process
        try:
            with FileLock(_alive_path(self._folder, process), thread_local=False).acquire(blocking=False):
                return True
        except Timeout:
            return False


def _released(state: _State, held: Amount) -> _State:
    own = [*state.held[os.getpid()]]
    own.remove(held)
    return replace(state, held={**state.held, os.getpid(): tuple(own)})


def _shared_in(folder: Path) -> SharedValue[_State]:
    return SharedValue(folder / "budget.json", _State.from_json, asdict)


def _alive_path(folder: Path, process: int) -> Path:
    return folder / f"budget.{process}.alive"


def most_new_tokens(body: Mapping[str, JSON], limit: str | None = None) -> int:
    """Return the most tokens that a request to a server may have written. ``limit`` is the user's key for that."""
    number = 1
    for name in ("n", "best_of"):
        number *= value if _is_count(value := body.get(name)) else 1
    prompts = body.get("prompt")
    if isinstance(prompts, list | tuple) and prompts and not isinstance(prompts[0], int):
        number *= len(prompts)
    return number * _largest_limit(body, limit)


def _largest_limit(body: Mapping[str, JSON], limit: str | None) -> int:
    found = [0]
    for key, value in body.items():
        if isinstance(value, Mapping):
            found.append(_largest_limit(value, limit))
        elif (key == limit or _LIMIT.fullmatch(key)) and _is_count(value):
            found.append(value)
    return max(found)


def _is_count(value: JSON) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
