"""Lookahead: pytest runs one item at a time, models want batches.

The plan is made once, over the samples that were selected: chunks of one suite each (see ``chunks``). The first member
of a chunk that misses its responses asks for those of all members that follow; its neighbours find theirs waiting.
A model that answers one by one gains nothing by that, and would lose its replies with a session that is killed: of it
each member asks for its own. One that answers in the background has a window of samples in the place of chunks (see
``window``).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import cast

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.dispatch import ask, ask_samples
from pytest_llmeval.inference.window import Window
from pytest_llmeval.models.base import (
    BackgroundModel,
    Failed,
    JudgeSteps,
    Listener,
    SampleModel,
    answers_in_background,
    answers_one_by_one,
    answers_samples,
)
from pytest_llmeval.types import AskedSample, EngineUse, GenerateRequest, Request, Response

__all__ = ["Lookahead", "Member", "TimeShares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One sample in the plan. ``key`` is unique in the session; members of different groups never share a chunk.

    ``is_skipped``: known not to run, so that nothing is computed ahead for it. ``asking`` judges its responses, where
    the scorer asks other models. ``sample`` and ``suite`` are for models
    that are asked by sample: this one with its requests, and the whole suite that it belongs to.
    """

    key: Hashable
    group: Hashable
    requests: Callable[[], Sequence[Request]]
    is_skipped: bool = False
    asking: Callable[[Sequence[Response]], JudgeSteps] | None = None
    sample: Callable[[Sequence[Request]], AskedSample] | None = None
    suite: Callable[[], Sequence[AskedSample]] | None = None


class TimeShares:
    """Which sample the time of a call belongs to: a sample's call answers its neighbours too.

    Keeps, in seconds, what was spent on calls since the last sample was settled, and each sample's share of it.
    """

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._shares_s: dict[Hashable, float] = {}

    def share_out(self, spent_s: float, reported_s: Mapping[Hashable, float]) -> None:
        """Share a call that took ``spent_s`` among its samples, in proportion to the seconds that the model reported.

        Where it reported none, the shares are equal. In either case they sum to ``spent_s``.
        """
        total_s = math.fsum(reported_s.values())
        for key, seconds in reported_s.items():
            fraction = seconds / total_s if total_s > 0 else 1 / len(reported_s)
            self._shares_s[key] = self._shares_s.get(key, 0.0) + spent_s * fraction
        self._spent_s += spent_s

    def settle(self, key: Hashable) -> float:
        """Return what to add to the time that a sample's test took so that only its own share of the model's time is in
        it.

        Negative for a sample that asked for others; over all samples of a call these sum to 0. To be called once after
        each test of a sample, whether it asked or found its response waiting.
        """
        difference = self._shares_s.pop(key, 0.0) - self._spent_s
        self._spent_s = 0.0
        return difference


class Lookahead:
    """Holds the plan, and the responses that were computed ahead of their samples.

    ``shares_chunks``: other workers run the same plan, and a chunk is this one's to compute only if it was given the
    whole of it. Then what runs next (``next_key``) is the chunk's next member; a sample that another worker died of
    comes alone, or among others in the opposite order.
    """

    def __init__(self, *, shares_chunks: bool = False) -> None:
        self._shares_chunks = shares_chunks
        self._process = os.getpid()
        self._places: dict[Hashable, tuple[Sequence[Member], int]] = {}
        self._ready: dict[Hashable, list[Response] | Exception] = {}
        self._asked: set[Hashable] = set()
        self._alone: set[Hashable] = set()
        self._model: object = None
        self._window: Window | None = None
        self._audits: dict[Hashable, tuple[Sequence[Member], Sequence[Member]]] = {}
        self._answerers: dict[Hashable, object] = {}
        self._failed_audits: dict[Hashable, Exception] = {}
        self._prepared: dict[Hashable, Exception | None] = {}
        self.engine_uses: dict[Hashable, EngineUse] = {}
        """The finding of each group's audit, by group."""
        self.next_key: Hashable | None = None
        """The key of the sample that runs after this one, where that is known and is a sample."""
        self.upcoming: Callable[[Hashable], Iterable[Hashable]] | None = None
        """Where somebody sets it: the keys of the samples of the same model that run after this one, in order, as far
        as they are known."""
        self.shares = TimeShares()
        """Each sample's part of the time of the calls that it was asked in."""
        self.answering: Callable[[object, int], AbstractContextManager[None]] | None = None
        """Where it is set, it makes a context for each call from the model and the number of samples."""

    def add(self, chunk: Sequence[Member]) -> None:
        """Take one more chunk into the plan, its members in the order in which they will run."""
        for place, member in enumerate(chunk):
            self._places[member.key] = (chunk, place)

    def audit(self, members: Sequence[Member], spares: Sequence[Member] = ()) -> None:
        """Have these members of one group audited before any of the group is answered.

        Where none of them can be, the first of ``spares`` that can is.
        """
        self._audits[members[0].group] = (members, spares)

    def responses(self, member: Member, model: object) -> list[Response]:
        """Return the member's responses, in the order of its requests. Raises what answering this member alone
        raises.
        """
        __tracebackhide__ = True
        self._meet(model)
        if self._window is not None and os.getpid() == self._process:
            return self._from_window(member, self._window)
        if member.key not in self._ready:
            self._ask_ahead(member, model)
        if member.key not in self._ready:
            self._ask([member], model)
        outcome = self._ready.pop(member.key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _meet(self, model: object) -> None:
        """Take a model for the one that is asked from now on: what was computed ahead counts only for the same object.

        A fixture that returns another one will do so again: from then on every member is asked for alone.
        """
        if model is self._model:
            return
        if self._model is not None:
            self.forget_model()
            self._places.clear()
        self._model = model
        if answers_in_background(model) and not answers_samples(model):
            self._window = Window(model)

    @property
    def model(self) -> object:
        """Return what was asked last; None before anything was."""
        return self._model

    def has_answered(self, key: Hashable) -> bool:
        """Return whether the model has answered this sample, and its responses have not been taken yet."""
        return key in self._ready or (self._window is not None and self._window.is_answered(key))

    def answered(self, member: Member) -> Iterator[tuple[Member, list[Response]]]:
        """Return the others of the member's group that the model has answered, and that have not taken their
        responses.
        """
        for key in list(self._ready) if self._window is None else self._window.answered:
            chunk, place = self._places.get(key, ((), 0))
            if not chunk or key == member.key or chunk[place].group != member.group:
                continue
            found = self._ready.get(key) if self._window is None else self._window.responses(key)
            if isinstance(found, list):
                yield chunk[place], found

    def stop(self) -> None:
        """Take back what the model has not answered: no further sample will run."""
        if self._window is not None:
            self._window.close()

    def forget_model(self) -> None:
        """Let go of the model, which makes room for another one, and of what it computed ahead; the plan stays."""
        self.stop()
        self._model = self._window = None
        self._ready.clear()
        self._answerers.clear()
        self._failed_audits.clear()
        self._prepared.clear()

    def _from_window(self, member: Member, window: Window) -> list[Response]:
        """Return the member's responses, while those that run next are with the model too."""
        __tracebackhide__ = True
        if member.key in window:
            window.drop_before(member.key)
        else:
            window.open(member.key, *self._opening(member))
        others = self._next_members(member, window)
        window.fill((other.key, partial(self._opening, other)) for other in others)
        with nullcontext() if self.answering is None else self.answering(self._model, 1):
            answers = window.take(member.key)
        self._take(member, answers)
        outcome = self._ready.pop(member.key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _opening(self, member: Member) -> tuple[Sequence[Request], BackgroundModel]:
        """Return what a window opens a sample with: its requests, and what answers them, which an audit may have
        chosen.
        """
        requests = member.requests()
        return requests, cast("BackgroundModel", self._audited(member.group, self._model))

    def _next_members(self, member: Member, window: Window) -> Iterator[Member]:
        """Members that run after this one, were not asked for, and are this process's to ask for.

        A chunk's members follow one another, or a whole chunk is begun: what is left of one that another worker died in
        comes in the opposite order, and each of it is asked for when it runs.
        """
        last = self._places.get(member.key)
        for key in () if last is None or self.upcoming is None else self.upcoming(member.key):
            place = self._places.get(key)
            if place is None or last is None:
                return
            chunk, number = place
            if self._shares_chunks and number != (last[1] + 1 if chunk is last[0] else 0):
                return
            last, other = place, chunk[number]
            if key not in self._asked and key not in window and not other.is_skipped:
                yield other

    def _ask_ahead(self, member: Member, model: object) -> None:
        """Ask for the member together with those that follow in its chunk; leave it unanswered where that fails.

        Whoever in the chunk made the call fail, this member is not to blame before it has been asked for alone. The
        same holds for a time limit that this member met while its neighbours were computed. What the model had
        answered by then is not asked for again.
        """
        members = [member] if answers_one_by_one(model) else [member, *self.following(member)]
        if len(members) == 1 or member.key in self._alone:
            return
        try:
            self._ask(members, model)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:  # pytest's own outcomes (skip, fail) and SystemExit are no Exceptions
            self._alone.update(other.key for other in members)

    def following(self, member: Member) -> list[Member]:
        """Members of the chunk that run after this one, were not asked for, and are this process's to compute."""
        chunk, place = self._places.get(member.key, ((), 0))
        following = chunk[place + 1 :]
        if member.key in self._asked or not following:
            return []
        if os.getpid() != self._process:  # a copy in a process made for one test (pytest-forked): the rest is lost
            return []
        if self._shares_chunks and following[0].key != self.next_key:
            return []
        return [other for other in following if other.key not in self._asked and not other.is_skipped]

    def _ask(self, members: Sequence[Member], model: object) -> None:
        __tracebackhide__ = True
        started, started_at = time.perf_counter(), time.time()
        requests = [member.requests() for member in members]
        with nullcontext() if self.answering is None else self.answering(model, len(members)):
            answerer = self._audited(members[0].group, model)
            finished: dict[int, Response | Failed | None] = {}
            try:
                answers = iter(self._answers(members, requests, answerer, finished.update))
            except BaseException:
                self._keep(members, requests, finished)
                raise
        reported_s: dict[Hashable, float] = {}
        for member, own in zip(members, requests, strict=True):
            responses = [next(answers) for _ in own]
            answered = self._take(member, responses)
            asked_now = (answer for answer in answered if answer.asked_at is None or answer.asked_at >= started_at)
            reported_s[member.key] = math.fsum(answer.seconds for answer in asked_now)
        self.shares.share_out(time.perf_counter() - started, reported_s)

    def _take(self, member: Member, responses: Sequence[Response | Failed]) -> list[Response]:
        answered = [answer for answer in responses if not isinstance(answer, RequestError)]
        failed = next((answer for answer in responses if isinstance(answer, RequestError)), None)
        self._ready[member.key] = failed or answered
        self._asked.add(member.key)
        return answered

    def _keep(
        self,
        members: Sequence[Member],
        requests: Sequence[Sequence[Request]],
        finished: Mapping[int, Response | Failed | None],
    ) -> None:
        """After a call was stopped, keep the members that were answered: all their requests are in ``finished``."""
        first = 0
        for member, own in zip(members, requests, strict=True):
            answers = [answer for place in range(len(own)) if (answer := finished.get(first + place)) is not None]
            if len(answers) == len(own):
                self._take(member, answers)
            first += len(own)

    def _answers(
        self,
        members: Sequence[Member],
        requests: Sequence[Sequence[Request]],
        model: object,
        listener: Listener,
    ) -> list[Response | Failed]:
        """Return what the model says to all of these requests, which are those of ``members``, in order. See
        ``ask``.
        """
        __tracebackhide__ = True
        if answers_samples(model):
            self._prepare(members[0], model)
            asked = [
                member.sample(own) for member, own in zip(members, requests, strict=True) if member.sample is not None
            ]
            if len(asked) == len(members):
                return ask_samples(model, asked)
        return ask(model, [request for own in requests for request in own], listener)

    def _prepare(self, member: Member, model: SampleModel) -> None:
        """Show the model the member's whole suite, once; where it cannot take that suite, it never can."""
        __tracebackhide__ = True
        if member.suite is None:
            return
        if member.group not in self._prepared:
            self._prepared[member.group] = None
            samples = member.suite()
            try:
                model.prepare(samples[0].suite, samples)
            except Exception as error:
                self._prepared[member.group] = error
        if (known := self._prepared[member.group]) is not None:
            raise known

    def _audited(self, group: Hashable, model: object) -> object:
        """Return the model that answers this group: what its audit returned, where the model has one.

        What the audit found holds as long as the model is the same. An audit that fails fails the call: nothing is
        answered unaudited.
        """
        audit = getattr(model, "audit", None)
        if group not in self._answerers and group in self._audits and callable(audit):
            if (known := self._failed_audits.get(group)) is not None:
                raise known  # for every sample of the suite, after it was tried once
            members, spares = self._audits[group]
            for some in (members, *([spare] for spare in spares)):
                requests = [request for member in some for request in member.requests()]
                if all(isinstance(request, GenerateRequest) for request in requests):
                    del self._audits[group]
                    break
                try:
                    self._answerers[group], use = audit(requests)
                except Exception as error:
                    self._failed_audits[group] = error
                    raise
                self.engine_uses[group] = use
                if use.num_audited or use.engine == "plain":
                    break
        return self._answerers.get(group, model)
