"""Questions that wait for a turn at one server, and are asked together in one request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

__all__ = ["Batches", "Take"]

_Q = TypeVar("_Q")
_A = TypeVar("_A")

Take: TypeAlias = Callable[[], list[_Q]]
"""A function that returns the questions of a request when its turn has come; none if others took them along."""


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[_Q, _A]):
    question: _Q
    answer: asyncio.Future[_A]


class Batches(Generic[_Q, _A]):
    """Questions that wait for one server, on its event loop. A request has up to ``max_questions``, and more than one
    only as long as their sizes, which ``size`` tells, add up to no more than ``max_size``.

    ``send`` takes the questions when its turn has come and returns an answer, or an exception, for each.
    """

    def __init__(
        self,
        send: Callable[[Take[_Q]], Awaitable[Sequence[_A | BaseException]]],
        size: Callable[[_Q], int],
        *,
        max_questions: int,
        max_size: int,
    ) -> None:
        self._send = send
        self._size = size
        self._max_questions = max_questions
        self._max_size = max_size
        self._queue: deque[_Waiting[_Q, _A]] = deque()
        self._senders: set[asyncio.Task[None]] = set()

    async def ask(self, question: _Q) -> _A:
        """Return the answer to one question. When all callers of a request are cancelled, so is the request."""
        waiting: _Waiting[_Q, _A] = _Waiting(question, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        sender = asyncio.create_task(self._run())  # one for each question, so that none is left in the queue
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)
        return await waiting.answer

    def _take(self) -> list[_Waiting[_Q, _A]]:
        taken: list[_Waiting[_Q, _A]] = []
        total = 0
        while self._queue and len(taken) < self._max_questions:
            if self._queue[0].answer.done():  # cancelled meanwhile
                self._queue.popleft()
                continue
            total += self._size(self._queue[0].question)
            if taken and total > self._max_size:
                break
            taken.append(self._queue.popleft())
        return taken

    def _first(self) -> list[_Waiting[_Q, _A]]:
        """Return one question that waits, for a sender that failed before its turn: it has to fail one of them."""
        while self._queue:
            one = self._queue.popleft()
            if not one.answer.done():
                return [one]
        return []

    async def _run(self) -> None:
        taken: list[_Waiting[_Q, _A]] = []
        sender = asyncio.current_task()

        def end_if_unwanted(_: object) -> None:
            if sender is not None and all(one.answer.cancelled() for one in taken):
                sender.cancel()

        def take() -> list[_Q]:
            taken.extend(self._take())
            for one in taken:
                one.answer.add_done_callback(end_if_unwanted)
            return [one.question for one in taken]

        try:
            answers = await self._send(take)
        except BaseException as error:
            for one in taken or self._first():
                _fail(one.answer, error)
            if not isinstance(error, Exception):
                raise
            return
        for one, answer in zip(taken, answers, strict=True):
            if isinstance(answer, BaseException):
                _fail(one.answer, answer)
            elif not one.answer.done():
                one.answer.set_result(answer)


def _fail(answer: asyncio.Future[_A], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    elif not answer.done():
        answer.set_exception(error)
