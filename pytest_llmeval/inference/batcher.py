"""The batcher: pytest runs one item at a time, models want many requests at once.

The plan is made once, over the samples that were selected: chunks of one suite each (see ``chunks``). How far a model
is asked ahead depends on how it answers:

- in batches: if a sample runs and its responses are not there yet, the model is asked in one call for these and for
  those of all samples that follow in the chunk, which find theirs waiting when they run;
- in the background, as a server does: as many samples as the model can take, and as many again, are in flight across
  the borders of chunks, and each sample waits for its own replies alone;
- one by one: asking ahead would gain nothing, and replies that wait for their samples are lost if the session is
  killed. So each sample asks for its own.

A scorer that asks other models (a judge, an embedder) asks, waits and asks again. What the scorers of many samples ask
goes to a model together in the same ways.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, cast

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.accounting import JudgeUse, TimeShares, use_of
from pytest_llmeval.inference.dispatch import ask, ask_samples, received, submitted
from pytest_llmeval.models.base import (
    Backend,
    BackgroundModel,
    Failed,
    JudgeSteps,
    Listener,
    SampleModel,
    answers_in_background,
    answers_one_by_one,
    answers_samples,
)
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    Ask,
    AskedSample,
    EngineUse,
    GenerateRequest,
    Request,
    Response,
    Role,
    Score,
    each_reply,
)

__all__ = ["Batcher", "Models", "PlannedSample", "are_same"]

_PORTIONS = 64
"""More samples are put in flight once more than a 64th of the places is free, since looking for them takes time."""
Models: TypeAlias = Mapping[Role, Sequence[object]]
"""The models of each role; several judges are a panel."""


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


class InFlight:
    """The requests of one sample that a model in the background has been given, until their replies are taken.

    ``answerer`` gets the requests: the model, or what its audit returned instead. Raises what ``submit`` raises.
    """

    def __init__(self, model: object, requests: Sequence[Request], answerer: BackgroundModel) -> None:
        self._model = model
        self._requests = requests
        self.futures = submitted(answerer, requests)

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing to wait for any more."""
        return all(future.done() for future in self.futures)

    @property
    def is_answered(self) -> bool:
        """Return whether all replies are there."""
        return all(future.done() and not future.cancelled() for future in self.futures)

    def wait(self) -> list[Response | Failed]:
        """Wait for the replies. What ends the wait cancels the requests."""
        __tracebackhide__ = True
        try:
            return received(self._model, self._requests, self.futures)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Take back the requests that were not answered."""
        for future in self.futures:
            future.cancel()


@dataclass(slots=True)
class _Judgement:
    """One sample's judgement by ``models``: what it has asked, and how it ended (None until then)."""

    steps: JudgeSteps
    models: Models
    asked: Ask
    in_flight: InFlight | None = None
    outcome: Score | BaseException | None = None

    @property
    def model(self) -> object:
        """Return the model that is asked now."""
        return self.models[self.asked.role][self.asked.judge]

    def give_up(self) -> None:
        """Ask nothing more."""
        if self.outcome is None:
            if self.in_flight is not None:
                self.in_flight.cancel()
            self.steps.close()


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
        self._judgements: dict[Hashable, _Judgement] = {}
        self._judged_alone: set[Hashable] = set()
        self._judge_uses: dict[Hashable, JudgeUse] = {}
        self._judge_seconds: dict[Hashable, float] = {}
        """The seconds that models took for each judgement in the present call of ``finish``."""
        self.engine_uses = self._preparation.engine_uses
        """The finding of each group's audit, by group."""
        self.next_key: Hashable | None = None
        """The key of the sample that runs after this one, if that is known and is a sample."""
        self.upcoming: Callable[[Hashable], Iterable[Hashable]] | None = None
        """Returns the keys of the samples of the same model that run after this one, in order, as far as they are
        known."""
        self.shares = TimeShares()
        """Each sample's part of the time of the calls that it was asked in."""
        self.answering: Callable[[object, int], AbstractContextManager[None]] | None = None
        """If set, it takes the model and the number of samples, and returns the context in which the model is asked."""
        self.judges_ahead = True
        """False once a sample came with other judges than its judgement was begun with. A fixture then makes new ones
        for each test, so that a judgement made ahead would be lost, and each sample is judged when its test runs."""

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

    def _ask_together(
        self,
        key: Hashable,
        keys: Sequence[Hashable],
        ask_for: Callable[[Sequence[Hashable]], None],
        alone: set[Hashable],
    ) -> None:
        """Ask for what these samples want in one call; if that fails, only for what ``key`` wants, if it is among them.

        Any of them may have made the call fail, or used up the time limit of the test of ``key``. So ``key`` is asked
        for alone before it is blamed. All are added to ``alone``: from then on each is asked for when its own test
        runs. What was answered before the call failed is kept.
        """
        __tracebackhide__ = True
        if list(keys) != [key]:
            try:
                return ask_for(keys)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException:  # pytest's own outcomes (skip, fail) and SystemExit are no Exceptions
                alone.update(keys)
        if key in keys and key not in self._ready:
            ask_for([key])

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
                self._ask([wanted[key] for key in keys])

            self._ask_together(sample.key, [*wanted], ask, self._alone)
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
        for key in [key for key, one in self._judgements.items() if one.outcome is None]:
            self._judgements.pop(key).give_up()

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
        if sample.steps is not None and not self.has_begun(sample.key, models):
            self.begin(sample.key, sample.steps(responses), models)
        if self.judges_ahead and not self.is_judged(sample.key):
            for other, own in self.answered(sample):
                if other.steps is not None and not self.has_begun(other.key, models):
                    self.begin(other.key, other.steps(own), models)
        return self.finish(sample.key)

    def has_begun(self, key: Hashable, models: Models) -> bool:
        """Return whether these models have begun to judge the sample, and its score was not taken.

        A judgement that was begun with other models is dropped.
        """
        if (one := self._judgements.get(key)) is None:
            return False
        if are_same(one.models, models):
            return True
        self.judges_ahead = False
        self._judgements.pop(key).give_up()
        self._judge_uses.pop(key, None)
        self._judged_alone.discard(key)
        return False

    def begin(self, key: Hashable, steps: JudgeSteps, models: Models) -> None:
        """Begin the judgement of one more sample by these models, as far as it goes without an answer."""
        self._judgements[key] = _Judgement(steps, models, Ask("judge", ()))  # replaced by what the first step asks
        self._advance(key, None)

    def is_judged(self, key: Hashable) -> bool:
        """Return whether the sample has been judged, and its score was not taken."""
        return key in self._judgements and self._judgements[key].outcome is not None

    def finish(self, key: Hashable) -> Score:
        """Go on with a judgement that has begun until it has a score. Others by the same models go on with it.

        Raises what its judgement raises, or what a model does that is asked for it.
        """
        __tracebackhide__ = True
        started, self._judge_seconds = time.perf_counter(), {key: 0.0}
        one = self._judgements[key]
        try:
            while one.outcome is None:
                self._go_on(key)
        finally:
            self._judgements.pop(key, one).give_up()
            self._judged_alone.discard(key)
            self.shares.share_out(time.perf_counter() - started, self._judge_seconds)
        if isinstance(one.outcome, BaseException):
            raise one.outcome
        return one.outcome

    def pop_use(self, key: Hashable) -> JudgeUse:
        """Return what a sample's judgement has taken of the models, once it is done."""
        return self._judge_uses.pop(key, JudgeUse())

    def _go_on(self, key: Hashable) -> None:
        """Let the open judgements by the same models ask what they want, until at least one of them has an answer."""
        __tracebackhide__ = True
        own = self._judgements[key]
        calls: dict[tuple[Role, int], list[Hashable]] = {}
        for other, one in list(self._judgements.items()):
            if not are_same(one.models, own.models):
                continue
            while one.outcome is None and not one.asked.requests:
                self._advance(other, [])
            if one.outcome is not None:
                continue
            if not answers_in_background(model := one.model):
                calls.setdefault((one.asked.role, one.asked.judge), []).append(other)
            elif one.in_flight is None:
                self._submit(one, model)
        if own.outcome is not None:  # it needed no further answer
            return
        is_waiting = True
        for keys in calls.values():
            model = self._judgements[keys[0]].model
            if answers_one_by_one(model):  # asks for this sample alone, so that Ctrl-C loses one verdict at most
                wanted = [key] if key in keys else []
            elif key in keys and key in self._judged_alone:
                wanted = [key]
            else:
                wanted = [other for other in keys if other not in self._judged_alone]
            if wanted:
                self._ask_together(key, wanted, partial(self._call, model=model), self._judged_alone)
                is_waiting = False
        if is_waiting and own.outcome is None:
            self._wait()

    def _submit(self, one: _Judgement, model: BackgroundModel) -> None:
        """Send the judgement's requests to the model. An error becomes its outcome, and fails its own sample's test."""
        try:
            one.in_flight = InFlight(model, one.asked.requests, model)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # pytest's own outcomes (skip, fail) are no Exceptions
            one.outcome = error

    def _call(self, keys: Sequence[Hashable], model: object) -> None:
        """Ask a model for what the judgements of all of these want."""
        __tracebackhide__ = True
        asked = {key: self._judgements[key].asked.requests for key in keys}
        answers = iter(ask(model, [request for requests in asked.values() for request in requests]))
        for key, requests in asked.items():
            self._advance(key, [next(answers) for _ in requests])

    def _wait(self) -> None:
        """Wait until models in the background have answered all that one judgement asked, and go on with that one."""
        __tracebackhide__ = True
        sent = {key: one.in_flight for key, one in self._judgements.items() if one.in_flight is not None}
        while sent and not any(flight.is_over for flight in sent.values()):
            pending = [future for flight in sent.values() for future in flight.futures if not future.done()]
            wait(pending, return_when=FIRST_COMPLETED)
        for key, flight in sent.items():
            if not flight.is_over:
                continue
            try:
                answers = flight.wait()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # pytest's own outcomes (skip, fail) are no Exceptions
                self._judgements[key].in_flight, self._judgements[key].outcome = None, error
            else:
                self._advance(key, answers)

    def _advance(self, key: Hashable, answers: Sequence[Response | Failed] | None) -> None:
        """Send a judgement its answers, and take what it asks next, or its score."""
        one = self._judgements[key]
        one.in_flight = None
        use = use_of(answers, one.asked.role, one.model) if answers else JudgeUse()
        self._judge_uses[key] = self._judge_uses.get(key, JudgeUse()) + use
        self._judge_seconds[key] = self._judge_seconds.get(key, 0.0) + use.seconds
        try:
            one.asked = _reasoning_apart(next(one.steps) if answers is None else one.steps.send(answers))
            if one.asked.unusable and isinstance(model := one.model, Backend):
                model.forget(one.asked.unusable)
        except StopIteration as stop:
            one.outcome = stop.value
        except (KeyboardInterrupt, GeneratorExit):
            del self._judgements[key]
            raise
        except BaseException as error:  # a scorer of a user's can skip or fail, which are no Exceptions
            one.outcome = error


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


def _reasoning_apart(asked: Ask) -> Ask:
    """Return the requests with the usual tags of reasoning where they have none: a judge reasons before its verdict."""
    requests, unusable = (
        tuple(
            replace(one, reasoning=DEFAULT_TAGS) if isinstance(one, GenerateRequest) and not one.reasoning else one
            for one in given
        )
        for given in (asked.requests, asked.unusable)
    )
    return replace(asked, requests=requests, unusable=unusable)


def are_same(models: Models, others: Models) -> bool:
    """Return whether each role has the same models, as objects."""
    return models.keys() == others.keys() and all(
        len(models[role]) == len(others[role])
        and all(one is other for one, other in zip(models[role], others[role], strict=True))
        for role in models
    )
