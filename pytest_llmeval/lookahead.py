"""Lookahead: pytest runs one item at a time, models want batches.

The plan is made once, over the samples that were selected: chunks of one suite each, in order of appearance. The first
member of a chunk that misses its responses asks for those of all members that remain; its neighbours find theirs
waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.dispatch import ask
from pytest_llmeval.types import Request, Response

__all__ = ["Lookahead", "Member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One sample in the plan. ``key`` is unique in the session; members of different groups never share a chunk."""

    key: Hashable
    group: Hashable
    requests: Callable[[], Sequence[Request]]


class Lookahead:
    """Holds the plan, and the responses that were computed ahead of their samples."""

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = chunk_size
        self._chunks: dict[Hashable, list[Member]] = {}
        self._ready: dict[Hashable, list[Response] | Exception] = {}
        self._asked: set[Hashable] = set()
        self._alone: set[Hashable] = set()
        self._model: object = None

    def plan(self, members: Iterable[Member]) -> None:
        """Cut ``members``, in the order in which they will run, into chunks."""
        open_chunks: dict[Hashable, list[Member]] = {}
        for member in members:
            chunk = open_chunks.get(member.group)
            if chunk is None or len(chunk) == self._chunk_size:
                chunk = open_chunks[member.group] = []
            chunk.append(member)
            self._chunks[member.key] = chunk

    def responses(self, member: Member, model: object) -> list[Response]:
        """The member's responses, in the order of its requests. Raises what answering this member alone raises."""
        __tracebackhide__ = True
        self._meet(model)
        if member.key not in self._ready:
            self._ask_ahead(member, model)
        if member.key not in self._ready:
            self._ask([member], model)
        outcome = self._ready.pop(member.key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _meet(self, model: object) -> None:
        """What was computed ahead counts only for the same object.

        A fixture that returns another one will do so again: from then on every member is asked for alone.
        """
        if model is self._model:
            return
        if self._model is not None:
            self._ready.clear()
            self._chunks.clear()
        self._model = model

    def _ask_ahead(self, member: Member, model: object) -> None:
        """Ask for the member together with what remains of its chunk; leave it unanswered where that fails.

        Whoever in the chunk made the call fail, this member is not to blame before it has been asked for alone. The
        same holds for a time limit that this member met while its neighbours were computed.
        """
        ahead = [other for other in self._chunks.get(member.key, ()) if other.key not in self._asked]
        members = [member, *(other for other in ahead if other.key != member.key)]
        if len(members) == 1 or member.key in self._alone:
            return
        try:
            self._ask(members, model)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:  # pytest's own outcomes (skip, fail) and SystemExit are no Exceptions
            self._alone.update(other.key for other in members)

    def _ask(self, members: Sequence[Member], model: object) -> None:
        __tracebackhide__ = True
        requests = [member.requests() for member in members]
        answers = iter(ask(model, [request for own in requests for request in own]))
        for member, own in zip(members, requests, strict=True):
            responses = [next(answers) for _ in own]
            failed = next((answer for answer in responses if isinstance(answer, RequestError)), None)
            self._ready[member.key] = failed or [answer for answer in responses if not isinstance(answer, RequestError)]
            self._asked.add(member.key)
