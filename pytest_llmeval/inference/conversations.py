"""Asks conversations turn by turn: each turn of the user follows the model's own reply to the one before.

The store of replies, limits and budgets are below: to them, and to the model, each turn is a request like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeAlias

from pytest_llmeval.errors import LeftOutError, RequestError
from pytest_llmeval.models.base import Failed, Listener
from pytest_llmeval.types import ConversationRequest, GenerateRequest, GenerateResponse, Request, Response

__all__ = ["ask_turns", "submit_turns"]

_Reply: TypeAlias = "Future[Response | Failed]"


class _Conversation:
    """A conversation as far as it has come."""

    def __init__(self, request: ConversationRequest) -> None:
        self._request = request
        self._replies: list[GenerateResponse] = []

    @property
    def turn(self) -> GenerateRequest:
        """Return the request for the turn that comes next."""
        return self._request.next_turn(self._replies)

    def ended(self, answer: Response | Failed | None) -> Response | Failed | None:
        """Return what the conversation is answered with if this answers its turn; None if it goes on."""
        number, count = len(self._replies) + 1, len(self._request.turns) + 1
        if isinstance(answer, RequestError):
            is_named = count > 1 and not isinstance(answer, LeftOutError)
            return RequestError(f"turn {number} of {count}: {answer}") if is_named else answer
        if isinstance(answer, GenerateResponse) and number == count:
            return replace(answer, turns=tuple(self._replies))
        return None

    def go_on(self, answer: Response | Failed) -> None:
        """Take the reply to a turn that is not the last."""
        assert isinstance(answer, GenerateResponse)
        self._replies.append(answer)


def ask_turns(
    requests: Sequence[Request],
    listener: Listener | None,
    ask: Callable[[Sequence[Request], Listener | None], Sequence[Response | Failed]],
) -> list[Response | Failed]:
    """Return one response, or the error in its place, for each request: of a conversation the last reply.

    ``ask`` gets the next turn of all conversations together, and the other requests with the first turns. ``listener``
    hears of a conversation once its last reply is there.
    """
    __tracebackhide__ = True
    talks = {place: _Conversation(one) for place, one in enumerate(requests) if isinstance(one, ConversationRequest)}
    if not talks:
        return list(ask(requests, listener))
    found: dict[int, Response | Failed] = {}
    places = list(range(len(requests)))
    while places:

        def tell(answers: Mapping[int, Response | Failed | None], places: Sequence[int] = tuple(places)) -> None:
            ends: dict[int, Response | Failed | None] = {}
            for number, answer in answers.items():
                place = places[number]
                end = talks[place].ended(answer) if place in talks else answer
                if end is not None or answer is None:
                    ends[place] = end
            if listener is not None and ends:
                listener(ends)

        answers = ask([talks[place].turn if place in talks else requests[place] for place in places], tell)
        going_on = []
        for place, answer in zip(places, answers, strict=True):
            end = talks[place].ended(answer) if place in talks else answer
            if end is None:
                talks[place].go_on(answer)
                going_on.append(place)
            else:
                found[place] = end
        places = going_on
    return [found[place] for place in range(len(requests))]


def submit_turns(
    request: ConversationRequest,
    submit: Callable[[GenerateRequest], _Reply],
    arrived: Callable[[GenerateRequest, object], Response | Failed],
) -> _Reply:
    """Return the future of a conversation's last reply, and submit its first turn, without waiting.

    ``arrived`` makes of a turn and what the model gave the reply that the conversation goes on with; it may raise.
    """
    found: _Reply = Future()
    talk = _Conversation(request)
    asked: list[_Reply] = []

    def ask() -> None:
        turn = talk.turn
        asked.append(submit(turn))
        asked[-1].add_done_callback(lambda future: on_answer(turn, future))

    def on_answer(turn: GenerateRequest, future: _Reply) -> None:
        end: Response | Failed | None = None
        if future.cancelled():
            found.cancel()
        try:
            if not found.cancelled():
                answer = arrived(turn, _answer_of(future))
                end = talk.ended(answer)
                if end is None:
                    talk.go_on(answer)
                    ask()
                    return
        except BaseException as error:  # in a callback it would be lost, and the wait for the reply have no end
            if found.set_running_or_notify_cancel():
                found.set_exception(error)
        else:
            if found.set_running_or_notify_cancel() and end is not None:
                found.set_result(end)

    def on_cancelled(_: object) -> None:
        if found.cancelled():
            asked[-1].cancel()

    ask()
    found.add_done_callback(on_cancelled)
    return found


def _answer_of(future: _Reply) -> Response | Failed:
    try:
        return future.result()
    except RequestError as error:
        return error
