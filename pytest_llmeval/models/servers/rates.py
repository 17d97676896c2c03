"""Says when the next request may be sent to a server: by the user's ``requests_per_minute``, and by the headers in
which servers say how many requests they still allow.

``ServerPace`` is what is known of one server and key; the processes of a session share it. ``RequestQueue`` has the
queues of one process.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
import math
import os
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.shared import SharedValue

__all__ = [
    "BETWEEN_LINES_S",
    "LONGEST_WAIT_S",
    "LONG_WAIT_S",
    "Allowance",
    "Remaining",
    "RequestQueue",
    "ServerPace",
    "allowance_in",
    "request_queue_for",
]

LONGEST_WAIT_S: Final = 120.0
"""The longest wait, in seconds, that a server can ask for: then one request finds out how things are."""
_UNKNOWN_WINDOW_S = 60.0
"""The length in seconds of a window about which the server has said nothing yet."""
_CLOCKS_APART_S = 1.5
"""Seconds by which two replies may tell the end of one window apart: they say whole ones."""
_ROUNDING = 1e-9
LONG_WAIT_S, BETWEEN_LINES_S = 10.0, 60.0
"""The shortest wait that is said in the log when a server asks for it, and the time until another is said."""

_log = logging.getLogger(__name__)


# What a server says


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The number of requests that a server allows, as a reply says: ``left`` now, ``limit`` after ``reset_s``.

    With ``refills`` they come back one by one until then, as in a bucket; else all at once.
    """

    left: int
    limit: int | None
    reset_s: float
    refills: bool


_HEADERS: Mapping[str, bool] = {
    "x-ratelimit-*-requests": True,
    "anthropic-ratelimit-requests-*": True,
    "ratelimit-*": False,
}
"""The names of headers, with ``*`` for what each says, and whether their limits are buckets."""
_UNITS_S: Mapping[str, float] = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_PART = re.compile(rf"({_SECONDS.pattern})(ms|[dhms])", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_COUNT = re.compile(r"\s*(\d{1,12})\b")
_LEFT = re.compile(r"\b(?:r|remaining)\s*=\s*(\d{1,12})")
_RESET = re.compile(r"\b(?:t|reset)\s*=\s*(\d{1,9})")


def allowance_in(headers: Mapping[str, str], now: float) -> Allowance | None:
    """Return what the headers of a reply say of requests; None where they say nothing, or what cannot be read.

    ``now`` is the time of the wall clock. Read are OpenAI's ``x-ratelimit-remaining-requests`` and Anthropic's
    ``anthropic-ratelimit-requests-remaining`` with their limits and times, whose buckets fill again one by one, and the
    IETF's ``ratelimit-remaining`` with ``ratelimit-reset``, or ``ratelimit`` in its two forms, whose windows end.
    """
    for name, refills in _HEADERS.items():
        found = {what: headers.get(name.replace("*", what)) for what in ("remaining", "limit", "reset")}
        left, reset_s = _count(found["remaining"]), _seconds(found["reset"], now)
        if left is not None and reset_s is not None:
            return Allowance(left=left, limit=_count(found["limit"]), reset_s=reset_s, refills=refills)
    return _of_policies(headers.get("ratelimit", ""))


def _count(text: str | None) -> int | None:
    found = None if text is None else _COUNT.match(text)
    return None if found is None else int(found[1])


def _seconds(text: str | None, now: float) -> float | None:
    """Return the seconds of ``6m0.5s``, of a plain number, or until a time as RFC 3339 writes it."""
    text = (text or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    if _DURATION.fullmatch(text):
        return math.fsum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    try:
        moment = datetime.datetime.fromisoformat(text)
        return None if moment.tzinfo is None else max(0.0, moment.timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _of_policies(text: str) -> Allowance | None:
    """Return the narrowest of ``"minute";r=50;t=30, "day";r=900;t=7000``, or ``limit=100, remaining=50, reset=30``."""
    parts = [text] if "remaining" in text else text.split(",")
    found = [(left, reset) for part in parts if (left := _LEFT.search(part)) and (reset := _RESET.search(part))]
    read = [Allowance(left=int(left[1]), limit=None, reset_s=float(reset[1]), refills=False) for left, reset in found]
    return min(read, key=lambda one: one.left, default=None)


# What is known of a server


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The requests for one model that a server still allows, at times of one clock.

    ``num_left`` were allowed at ``known_at``, one more every ``refill_s`` seconds (None: no more), and ``limit`` from
    ``anew_at`` on (None: any number).
    """

    num_left: float
    known_at: float
    refill_s: float | None
    anew_at: float
    limit: int | None

    def left_at(self, now: float) -> float:
        """Return how many requests the server allows."""
        most = math.inf if self.limit is None else float(self.limit)
        if now >= self.anew_at:
            return most
        if self.refill_s is None:
            return self.num_left
        return min(most, self.num_left + max(0.0, now - self.known_at) / self.refill_s)

    def wait_s(self, now: float) -> float:
        """Return the seconds until the server allows a request."""
        left = self.left_at(now)
        if left >= 1 - _ROUNDING:
            return 0.0
        until_anew_s = self.anew_at - now
        return until_anew_s if self.refill_s is None else min(until_anew_s, (1 - left) * self.refill_s)

    def after_request(self, now: float) -> Remaining | None:
        """Return what remains after a request that is sent now; None if any number is allowed."""
        left = self.left_at(now)
        if math.isinf(left):
            return None
        anew_at = now + _UNKNOWN_WINDOW_S if now >= self.anew_at else self.anew_at
        return replace(self, num_left=max(0.0, left - 1), known_at=now, anew_at=anew_at)


def _remaining(found: Allowance, before: Remaining | None, now: float, num_in_flight: int) -> Remaining:
    """Return what remains after a reply that says this, while others are in flight that it may not count.

    What was known counts too, where it is less: replies come in another order than their requests went. It does not
    where a new window has begun.
    """
    anew_at = now + found.reset_s
    if before is None or (not found.refills and anew_at > before.anew_at + _CLOCKS_APART_S):
        left_before = math.inf
    else:
        left_before = before.left_at(now)
    left = max(0.0, found.left - num_in_flight) if math.isinf(left_before) else min(found.left, left_before)
    used = 0 if found.limit is None else found.limit - found.left
    refill_s = min(found.reset_s / used, LONGEST_WAIT_S) if found.refills and used > 0 and found.reset_s else None
    limit = found.limit or None
    if refill_s is None and found.reset_s > LONGEST_WAIT_S:
        anew_at, limit = now + LONGEST_WAIT_S, 1
    return Remaining(num_left=left, known_at=now, refill_s=refill_s, anew_at=anew_at, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPace:
    """The knowledge of one server and key, at times of one clock.

    No request is sent before ``next_at``, nor within ``between_s`` of the one before it. ``remaining`` is what the
    server still allows, by the model's name: hosted APIs have limits for each model.
    """

    next_at: float = 0.0
    between_s: float = 0.0
    remaining: Mapping[str, Remaining] = field(default_factory=dict)

    def slowed_down(self, between_s: float, next_at: float) -> ServerPace:
        """Return the pace with at least so many seconds between requests; ``next_at`` is for the first of all."""
        return replace(self, between_s=max(self.between_s, between_s), next_at=self.next_at or next_at)

    def wait_s(self, model: str, now: float) -> float:
        """Return the seconds until a request may be sent; 0 where it may be now."""
        return max(0.0, self.next_at - now, self.model_wait_s(model, now))

    def model_wait_s(self, model: str, now: float) -> float:
        """Return the seconds until the server allows a request for the model."""
        return 0.0 if model not in self.remaining else self.remaining[model].wait_s(now)

    def after_request(self, model: str, now: float) -> ServerPace:
        """Return the pace after a request that is sent now."""
        remaining = {**self.remaining}
        if model in remaining and (after := remaining.pop(model).after_request(now)) is not None:
            remaining[model] = after
        return replace(self, next_at=now + self.between_s if self.between_s else self.next_at, remaining=remaining)

    def update_allowance(self, model: str, found: Allowance, now: float, num_in_flight: int) -> ServerPace:
        """Return the pace after a reply that says this, while so many others are in flight."""
        after = _remaining(found, self.remaining.get(model), now, num_in_flight)
        return replace(self, remaining={**self.remaining, model: after})


def _decoded(found: Any) -> ServerPace:
    remaining = {model: Remaining(**one) for model, one in found.pop("remaining").items()}
    return ServerPace(**found, remaining=remaining)


# The queue of a process

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Waiting:
    turn: asyncio.Future[Any]
    make: Callable[[], Any]
    model: str


class RequestQueue:
    """The queues, one for each model, for the next moment at which a request may be sent. All methods but
    ``slow_down_to`` run on one event loop.

    ``name`` is the server's in the log. ``folder`` is where processes share what is known; without one it is this
    process's own. As long as nothing is known there is no queue, and no file. All processes have the same ``clock``.
    """

    def __init__(
        self,
        name: str,
        folder: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._clock, self._sleep = clock, sleep
        self._told_at = -math.inf
        self._known = ServerPace()
        self._shared = None if folder is None else SharedValue(folder / "pace.json", _decoded, asdict)
        self._has_limits = False
        self._waiting: defaultdict[str, deque[_Waiting]] = defaultdict(deque)
        self._servers: dict[str, asyncio.Task[None]] = {}
        self._first = asyncio.Lock()
        """The request that is sent next holds this lock. Locks are given in turn, so no model keeps another waiting."""

    def slow_down_to(self, requests_per_minute: int) -> None:
        """Send no more than so many a minute, evenly spread; of several numbers the smallest counts."""
        between_s = 60 / requests_per_minute
        # The controller, which has no folder, may have tested the server just before.
        next_at = 0.0 if self._shared is None else self._clock() + between_s
        self._change(lambda pace: pace.slowed_down(between_s, next_at))

    def update_allowance(self, found: Allowance | None, num_in_flight: int, model: str = "") -> None:
        """Learn what a reply says the server still allows."""
        if found is not None:
            with suppress(OSError):  # the folder is gone: this request has its reply, the next one fails
                self._change(lambda pace: pace.update_allowance(model, found, self._clock(), num_in_flight))

    async def wait_for_turn(self, make: Callable[[], _T], model: str = "", *, is_again: bool = False) -> _T:
        """Return what ``make`` makes, when it may be sent. If it makes None, nothing is sent, which takes no turn.

        ``make`` is called when the request is the first in the queue. One that was sent before (``is_again``) stands
        before the others.
        """
        if not self._has_limits and self._shared is not None:
            self._has_limits = self._shared.exists  # another process has found a limit
        if not self._has_limits:
            return make()
        waiting = _Waiting(asyncio.get_running_loop().create_future(), make, model)
        if is_again:
            self._waiting[model].appendleft(waiting)
        else:
            self._waiting[model].append(waiting)
        if model not in self._servers or self._servers[model].done():
            self._servers[model] = asyncio.create_task(self._serve(self._waiting[model]))
        found: _T = await waiting.turn
        return found

    async def _serve(self, queue: deque[_Waiting]) -> None:
        while queue:
            waiting = queue.popleft()
            if waiting.turn.done():  # cancelled meanwhile
                continue
            try:
                made = waiting.make()
                if made is not None:
                    await self._wait(waiting)
            except asyncio.CancelledError:
                waiting.turn.cancel()
                raise
            except Exception as error:
                if not waiting.turn.done():
                    waiting.turn.set_exception(error)
            else:
                if not waiting.turn.done():
                    waiting.turn.set_result(made)

    async def _wait(self, waiting: _Waiting) -> None:
        """Wait until the request may be sent. While the server allows none for its model, others go first."""
        while not waiting.turn.done():
            async with self._first:
                while (wait_s := self._take(waiting.model)) > 0:
                    if waiting.turn.done() or self._known.model_wait_s(waiting.model, self._clock()) > 0:
                        break
                    await self._sleep(wait_s)
            if wait_s <= 0:
                return
            await self._sleep(wait_s)

    def _take(self, model: str) -> float:
        """Take the turn, or return the seconds until there may be one."""
        now, wait_s = self._clock(), 0.0

        def after(pace: ServerPace) -> ServerPace:
            nonlocal wait_s
            wait_s = pace.wait_s(model, now)
            return pace if wait_s > 0 else pace.after_request(model, now)

        self._change(after)
        remaining = self._known.remaining.get(model)
        is_asked_for = wait_s >= LONG_WAIT_S and remaining is not None and remaining.wait_s(now) >= LONG_WAIT_S
        if is_asked_for and now - self._told_at >= BETWEEN_LINES_S:
            self._told_at = now
            _log.warning("%s allows no more requests now; the next one is sent in %.0f s", self._name, wait_s)
        return wait_s

    def _change(self, changed: Callable[[ServerPace], ServerPace]) -> None:
        self._has_limits = True
        self._known = changed(self._known) if self._shared is None else self._shared.change(self._known, changed)


_queues: WeakValueDictionary[tuple[str, Path | None], RequestQueue] = WeakValueDictionary()
_queues_lock = threading.Lock()


def request_queue_for(endpoint: Endpoint, shared: Path | None) -> RequestQueue:
    """Return the queue of the endpoint's host and key, which all models on it share.

    ``shared`` is the folder of the session's processes.
    """
    counted = f"{endpoint.host} {endpoint.api_key_env}"
    with _queues_lock:
        queue = _queues.get((counted, shared))
        if queue is None:
            name = hashlib.sha256(f"pace {counted}".encode()).hexdigest()[:16]
            queue = _queues[counted, shared] = RequestQueue(endpoint.url, None if shared is None else shared / name)
        if endpoint.requests_per_minute is not None:
            queue.slow_down_to(endpoint.requests_per_minute)
        return queue


def _after_fork() -> None:
    """Forget the queues of the parent: its requests are not this process's."""
    global _queues_lock
    _queues_lock = threading.Lock()
    _queues.clear()


os.register_at_fork(after_in_child=_after_fork) if hasattr(os, "register_at_fork") else None
