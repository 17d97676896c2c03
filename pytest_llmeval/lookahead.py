"""Lookahead: pytest runs one item at a time, models want batches.

The plan is made once, over the samples that were selected: chunks of one suite each, in order of appearance. The first
member of a chunk that misses its responses asks for those of all members that remain; its neighbours find theirs
waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.dispatch import ask
from pytest_llmeval.types import Request, Response

__all__ = ["Lookahead", "Member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One sample in the plan. ``key`` is unique in the session; members of different groups never share a chunk."""

    key: str
    group: str
    requests: Callable[[], Sequence[Request]]


class Lookahead:
    """Holds the plan, and the responses that were computed ahead of their samples."""

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = chunk_size
        self._chunks: dict[str, list[Member]] = {}
        self._ready: dict[str, list[Response] | Exception] = {}
        self._asked: set[str] = set()
        self._alone: set[str] = set()
        self._model: object = None

    def plan(self, members: Iterable[Member]) -> None:
        """Cut ``members``, in the order in which they will run, into chunks."""
        open_chunks: dict[str, list[Member]] = {}
        for member in members:
            chunk = open_chunks.get(member.group)
            if chunk is None or len(chunk) == self._chunk_size:
                chunk = open_chunks[member.group] = []
            chunk.append(member)
            self._chunks[member.key] = chunk

    def responses(self, member: Member, model: object) -> list[Response]:
        """The member's responses, in the order of its requests. Raises what answering this member alone raises.

        What was computed ahead counts only while ``model`` is the same object: a fixture may return another one.
        """
        if model is not self._model:
            self._model = model
            self._ready.clear()
            self._asked.clear()
        if member.key not in self._ready:
            self._ask_chunk(member, model)
        outcome = self._ready.pop(member.key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _ask_chunk(self, member: Member, model: object) -> None:
        others = self._chunks.get(member.key, [])
        if member.key in self._alone:
            others = []
        ahead = [other for other in others if other.key != member.key and other.key not in self._asked]
        members = [member, *ahead]
        try:
            self._ask(members, model)
        except Exception as error:
            if ahead:
                # Somebody in the chunk made the whole call fail: find out who, the others lose nothing.
                self._alone.update(other.key for other in members)
                self._ask_chunk(member, model)
            else:
                self._ready[member.key] = error
                self._asked.add(member.key)
        except BaseException:
            # Ctrl-C or a time limit hit this member while its neighbours were computed: next time each is on its own.
            self._alone.update(other.key for other in members)
            raise

    def _ask(self, members: Sequence[Member], model: object) -> None:
        requests = [member.requests() for member in members]
        answers = iter(ask(model, [request for own in requests for request in own]))
        for member, own in zip(members, requests, strict=True):
            responses = [next(answers) for _ in own]
            failed = next((answer for answer in responses if isinstance(answer, RequestError)), None)
            self._ready[member.key] = failed or [answer for answer in responses if not isinstance(answer, RequestError)]
            self._asked.add(member.key)
