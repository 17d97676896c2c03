"""Asks conversations turn by turn: each turn of the user follows the model's own reply to the one before.

The store of replies, limits and budgets are below: to them, and to the model, each turn is a request like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pytest_llmeval.errors import LeftOutError, RequestError
from pytest_llmeval.inference.futures import Reply, chain
from pytest_llmeval.models.base import Failed, Listener
from pytest_llmeval.types import ConversationRequest, GenerateRequest, GenerateResponse, Request, Response

__all__ = ["ask_turns", "submit_turns"]


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
    submit: Callable[[GenerateRequest], Reply],
    arrived: Callable[[GenerateRequest, object], Response | Failed],
) -> Reply:
    """Return the future of a conversation's last reply, and submit its first turn, without waiting.

    ``arrived`` makes of a turn and what the model gave the reply that the conversation goes on with; it may raise.
    """
    talk = _Conversation(request)

    def then(done: Reply) -> Reply | Response | Failed:
        try:
            response: object = done.result()
        except RequestError as error:
            response = error
        answer = arrived(talk.turn, response)
        if (end := talk.ended(answer)) is not None:
            return end
        talk.go_on(answer)
        return submit(talk.turn)

    return chain(submit(talk.turn), then)
