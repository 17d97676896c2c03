"""The batcher: pytest runs one item at a time, models want many requests at once.

The plan is made once, over the samples that were selected: chunks of one suite each (see ``chunks``). How far a model
is asked ahead depends on how it answers:

- in batches: if a sample runs and its responses are not there yet, the model is asked in one call for these and for
  those of all samples that follow in the chunk, which find theirs waiting when they run;
- in the background, as a server does: as many samples as the model can take, and as many again, are in flight across
  the borders of chunks, and each sample waits for its own replies alone;
- one by one: asking ahead would gain nothing, and replies that wait for their samples are lost if the session is
  killed. So each sample asks for its own.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import cast

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.accounting import TimeShares
from pytest_llmeval.inference.dispatch import InFlight, ask, ask_samples, ask_together
from pytest_llmeval.inference.judging import Judging, Models
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
from pytest_llmeval.types import (
    AskedSample,
    EngineUse,
    GenerateRequest,
    Request,
    Response,
    Score,
    each_reply,
)

__all__ = ["Batcher", "PlannedSample"]

_PORTIONS = 64
"""More samples are put in flight once more than a 64th of the places is free, since looking for them takes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSample:
    """One sample in the plan. ``key`` is unique in the session; samples of different groups never share a chunk.

    ``is_skipped``: it is known not to run, so that nothing is computed ahead for it. ``steps`` judges its responses, if
    the scorer asks other models. ``sample`` and ``suite`` are for models that take samples instead of requests: the
    sample with its requests, and all samples of its suite. ``recorded`` gives the replies that stand in the suite's
    data, so that no model is asked.
    """

    key: Hashable
    group: Hashable
    requests: Callable[[], Sequence[Request]]
    is_skipped: bool = False
    steps: Callable[[Sequence[Response]], JudgeSteps] | None = None
    sample: Callable[[Sequence[Request]], AskedSample] | None = None
    suite: Callable[[], Sequence[AskedSample]] | None = None
    recorded: SampleModel | None = None


class _Preparation:
    """Steps before the first answer to a group: its model sees the whole suite, or the model's fast path is audited."""

    def __init__(self) -> None:
        self.audits: dict[Hashable, tuple[Sequence[PlannedSample], Sequence[PlannedSample]]] = {}
        """The samples to audit, by group, and spares, which are tried one by one if none of those can be audited."""
        self.engine_uses: dict[Hashable, EngineUse] = {}
        self._answerers: dict[Hashable, object] = {}
        self._failed_audits: dict[Hashable, Exception] = {}
        self._prepared: dict[Hashable, Exception | None] = {}

    def forget_model(self) -> None:
        """Forget what was found of a model; what is to be audited stays."""
        self._answerers.clear()
        self._failed_audits.clear()
        self._prepared.clear()

    def show_suite(self, sample: PlannedSample, model: SampleModel) -> None:
        """Show the model the sample's whole suite, once; if it cannot take that suite, it never can."""
        __tracebackhide__ = True
        if sample.suite is None:
            return
        if sample.group not in self._prepared:
            self._prepared[sample.group] = None
            samples = sample.suite()
            try:
                model.prepare(samples[0].suite, samples)
            except Exception as error:
                self._prepared[sample.group] = error
        if (known := self._prepared[sample.group]) is not None:
            raise known

    def answerer(self, group: Hashable, model: object) -> object:
        """Return the model that answers this group: what its audit returned, if the model has one.

        What the audit found holds as long as the model is the same. An audit that fails fails the call: nothing is
        answered unaudited.
        """
        audit = getattr(model, "audit", None)
        if group not in self._answerers and group in self.audits and callable(audit):
            if (known := self._failed_audits.get(group)) is not None:
                raise known  # for every sample of the suite, after it was tried once
            samples, spares = self.audits[group]
            for some in (samples, *([spare] for spare in spares)):
                requests = [request for sample in some for request in sample.requests()]
                if all(isinstance(request, GenerateRequest) for request in requests):  # an audit is of log-likelihoods
                    del self.audits[group]
                    break
                try:
                    self._answerers[group], use = audit(requests)
                except Exception as error:
                    self._failed_audits[group] = error
                    raise
                self.engine_uses[group] = use
                if use.num_audited or use.engine == "plain":  # else none could be audited: a spare is tried
                    break
        return self._answerers.get(group, model)


class Batcher:
    """Holds the plan, the responses that were computed ahead of their samples, and the judgements that have begun.

    ``shares_chunks``: other workers have the same plan, and this one computes a chunk ahead only if the whole chunk was
    given to it. It tells by ``next_key``: then the chunk's next sample runs next. The rest of a chunk whose worker died
    comes in the opposite order (``WorkQueue.quarantine``), so that each of its samples is asked for alone.
    """

    def __init__(self, *, shares_chunks: bool = False) -> None:
        self._shares_chunks = shares_chunks
        self._process = os.getpid()
        self._places: dict[Hashable, tuple[Sequence[PlannedSample], int]] = {}
        self._model: object = None
        self._is_background = self._is_stopped = False
        self._in_flight: dict[Hashable, InFlight] = {}
        self._ready: dict[Hashable, list[Response] | Exception] = {}
        """Responses, or the error, of samples whose tests have not taken them yet."""
        self._asked: set[Hashable] = set()
        """Samples that were asked for, which are not asked for ahead again."""
        self._alone: set[Hashable] = set()
        """Samples whose shared call failed: each is asked for when its own test runs."""
        self._preparation = _Preparation()
        self.engine_uses = self._preparation.engine_uses
        """The finding of each group's audit, by group."""
        self.next_key: Hashable | None = None
        """The key of the sample that runs after this one, if that is known and is a sample."""
        self.upcoming: Callable[[Hashable], Iterable[Hashable]] | None = None
        """Returns the keys of the samples of the same model that run after this one, in order, as far as they are
        known."""
        self.shares = TimeShares()
        """Each sample's part of the time of the calls that it was asked in."""
        self.judging = Judging(self.shares)
        self.answering: Callable[[object, int], AbstractContextManager[None]] | None = None
        """If set, it takes the model and the number of samples, and returns the context in which the model is asked."""

    # The plan

    def add(self, chunk: Sequence[PlannedSample]) -> None:
        """Take one more chunk into the plan, its samples in the order in which they will run."""
        for place, sample in enumerate(chunk):
            self._places[sample.key] = (chunk, place)

    def audit(self, samples: Sequence[PlannedSample], spares: Sequence[PlannedSample] = ()) -> None:
        """Have these samples of one group audited before any of the group is answered.

        If none of them can be, the first of ``spares`` that can is.
        """
        self._preparation.audits[samples[0].group] = (samples, spares)

    def following(self, sample: PlannedSample) -> list[PlannedSample]:
        """Return the samples of the chunk that run after this one, were not asked for, and are this process's to
        compute.
        """
        chunk, place = self._places.get(sample.key, ((), 0))
        following = chunk[place + 1 :]
        if sample.key in self._asked or not following:
            return []
        if os.getpid() != self._process:  # forked for this one test (pytest-forked): what is ahead is lost
            return []
        if self._shares_chunks and following[0].key != self.next_key:
            return []
        return [other for other in following if other.key not in self._asked and not other.is_skipped]

    def _next_in_queue(self, sample: PlannedSample) -> Iterator[PlannedSample]:
        """Yield the samples that run after this one, were not asked for, and are this process's to ask for.

        A worker that shares chunks stops at a sample that neither comes next in its chunk nor begins one. Such a sample
        is left of a chunk whose worker died, and is asked for when it runs.
        """
        last = self._places.get(sample.key)
        for key in () if last is None or self.upcoming is None else self.upcoming(sample.key):
            place = self._places.get(key)
            if place is None or last is None:
                return
            chunk, number = place
            if self._shares_chunks and number != (last[1] + 1 if chunk is last[0] else 0):
                return
            last, other = place, chunk[number]
            if key not in self._asked and key not in self._in_flight and not other.is_skipped:
                yield other

    # The model that is evaluated

    @property
    def model(self) -> object:
        """Return what was asked last; None before anything was."""
        return self._model

    def responses(self, sample: PlannedSample, model: object) -> list[Response]:
        """Return the sample's responses, in the order of its requests. Raises what the model raises for this sample."""
        __tracebackhide__ = True
        if sample.recorded is not None:
            return _all_or_raise(_ask_by_sample(sample.recorded, [sample], [sample.requests()]))
        self._meet(model)
        if self._is_background and os.getpid() == self._process:
            self._fill(sample)
            with nullcontext() if self.answering is None else self.answering(model, 1):
                answers = self._in_flight.pop(sample.key).wait()
            self._take(sample, answers)
        elif sample.key not in self._ready:
            is_alone = answers_one_by_one(model) or sample.key in self._alone
            wanted = {one.key: one for one in (sample, *([] if is_alone else self.following(sample)))}

            def ask(keys: Sequence[Hashable]) -> None:
                __tracebackhide__ = True
                if open_now := [wanted[key] for key in keys if key not in self._ready]:
                    self._ask(open_now)

            ask_together(sample.key, [*wanted], ask, self._alone)
        outcome = self._ready.pop(sample.key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def has_answered(self, key: Hashable) -> bool:
        """Return whether the model has answered this sample, and its responses have not been taken yet."""
        return key in self._ready or (key in self._in_flight and self._in_flight[key].is_answered)

    def answered(self, sample: PlannedSample) -> Iterator[tuple[PlannedSample, list[Response]]]:
        """Yield the others of the sample's group whose responses are known, and have not been taken yet."""
        if sample.recorded is not None:
            for other in self.following(sample):
                with suppress(Exception):  # its own test will say so
                    yield other, self.responses(other, None)
            return
        for key in [*self._ready, *self._in_flight]:
            chunk, place = self._places.get(key, ((), 0))
            if not chunk or key == sample.key or chunk[place].group != sample.group or not self.has_answered(key):
                continue
            found = self._ready.get(key)
            if found is None:
                with suppress(Exception):  # the sample will hear of it
                    found = _all_or_raise(self._in_flight[key].wait())
            if isinstance(found, list):
                yield chunk[place], found

    def stop(self) -> None:
        """Take back what was not answered, and give up judgements that are not done: no further sample will run.

        What was answered, and what was judged, stays to be taken.
        """
        self._is_stopped = True
        self._take_back()
        self.judging.stop()

    def _take_back(self) -> None:
        for key in [key for key, one in self._in_flight.items() if not one.is_answered]:
            self._in_flight.pop(key).cancel()

    def forget_model(self) -> None:
        """Let go of the model, which makes room for another one, and of what it computed ahead; the plan stays."""
        self._take_back()
        self._model = None
        self._in_flight.clear()
        self._ready.clear()
        self._preparation.forget_model()

    def _meet(self, model: object) -> None:
        """Ask this model from now on. If it is another object than before, what was computed ahead is dropped.

        The plan is dropped too: a fixture that returned a new model once will do so again, so that from then on every
        sample is asked for alone.
        """
        if model is self._model:
            return
        if self._model is not None:
            self.forget_model()
            self._places.clear()
        self._model = model
        self._is_background = answers_in_background(model) and not answers_samples(model)

    def _fill(self, sample: PlannedSample) -> None:
        """Put the sample in flight, and those that run next while there is room.

        One for which that fails is passed over: it fails when it runs.
        """
        if sample.key in self._in_flight:
            while (other_key := next(iter(self._in_flight))) != sample.key:
                self._in_flight.pop(other_key).cancel()  # its test took no replies: skipped, or a fixture failed
        else:
            self._put_in_flight(sample)
        room = 2 * cast("BackgroundModel", self._model).num_concurrent
        if self._is_stopped or room - len(self._in_flight) <= room // _PORTIONS:
            return
        for other in self._next_in_queue(sample):
            try:
                self._put_in_flight(other)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException:  # pytest's own outcomes (skip, fail) are no Exceptions
                continue
            if len(self._in_flight) >= room:
                return

    def _put_in_flight(self, sample: PlannedSample) -> None:
        requests = sample.requests()
        answerer = cast("BackgroundModel", self._preparation.answerer(sample.group, self._model))
        self._in_flight[sample.key] = InFlight(self._model, requests, answerer)

    def _ask(self, samples: Sequence[PlannedSample]) -> None:
        __tracebackhide__ = True
        started, started_at = time.perf_counter(), time.time()
        requests = [sample.requests() for sample in samples]
        with nullcontext() if self.answering is None else self.answering(self._model, len(samples)):
            answerer = self._preparation.answerer(samples[0].group, self._model)
            known: dict[int, Response | Failed | None] = {}
            try:
                answers = iter(self._answers(samples, requests, answerer, known.update))
            except BaseException:
                self._keep(samples, requests, known)
                raise
        reported_s: dict[Hashable, float] = {}
        for sample, own in zip(samples, requests, strict=True):
            answered = self._take(sample, [next(answers) for _ in own])
            # Replies from a store that were asked for earlier took none of this call's time.
            replies = each_reply(answered)
            asked_now = (answer for answer in replies if answer.asked_at is None or answer.asked_at >= started_at)
            reported_s[sample.key] = math.fsum(answer.seconds for answer in asked_now)
        self.shares.share_out(time.perf_counter() - started, reported_s)

    def _take(self, sample: PlannedSample, responses: Sequence[Response | Failed]) -> list[Response]:
        """Keep a sample's responses, or the first error among them, for its test. Return those that are no errors."""
        answered = [answer for answer in responses if not isinstance(answer, RequestError)]
        failed = next((answer for answer in responses if isinstance(answer, RequestError)), None)
        self._ready[sample.key] = failed or answered
        self._asked.add(sample.key)
        return answered

    def _keep(
        self,
        samples: Sequence[PlannedSample],
        requests: Sequence[Sequence[Request]],
        known: Mapping[int, Response | Failed | None],
    ) -> None:
        """After a call was stopped, keep the samples that were answered: all their requests are in ``known``."""
        first = 0
        for sample, own in zip(samples, requests, strict=True):
            answers = [answer for place in range(len(own)) if (answer := known.get(first + place)) is not None]
            if len(answers) == len(own):
                self._take(sample, answers)
            first += len(own)

    def _answers(
        self,
        samples: Sequence[PlannedSample],
        requests: Sequence[Sequence[Request]],
        model: object,
        listener: Listener,
    ) -> list[Response | Failed]:
        """Return what the model says to all of these requests, which are those of ``samples``, in order. See
        ``ask``.
        """
        __tracebackhide__ = True
        if answers_samples(model):
            self._preparation.show_suite(samples[0], model)
            if all(sample.sample is not None for sample in samples):
                return _ask_by_sample(model, samples, requests)
        return ask(model, [request for own in requests for request in own], listener)

    # The models that scorers ask

    def score(self, sample: PlannedSample, responses: Sequence[Response], models: Models) -> Score:
        """Return the sample's score from a scorer that asks ``models``. Others that are answered are judged with it.

        Raises what the judgement raises, or what a model does that is asked for it.
        """
        __tracebackhide__ = True
        judging = self.judging
        if sample.steps is not None and not judging.has_begun(sample.key, models):
            judging.begin(sample.key, sample.steps(responses), models)
        if judging.judges_ahead and not judging.is_judged(sample.key):
            for other, own in self.answered(sample):
                if other.steps is not None and not judging.has_begun(other.key, models):
                    judging.begin(other.key, other.steps(own), models)
        return judging.finish(sample.key)


def _ask_by_sample(
    model: SampleModel, samples: Sequence[PlannedSample], requests: Sequence[Sequence[Request]]
) -> list[Response | Failed]:
    """Return the responses to all requests of these samples, in order, of a model that is asked by sample."""
    __tracebackhide__ = True
    return ask_samples(
        model, [one.sample(own) for one, own in zip(samples, requests, strict=True) if one.sample is not None]
    )


def _all_or_raise(answers: Sequence[Response | Failed]) -> list[Response]:
    """Return the answers; raises the first that is an error."""
    __tracebackhide__ = True
    for answer in answers:
        if isinstance(answer, RequestError):
            raise answer
    return cast("list[Response]", list(answers))
