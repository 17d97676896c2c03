"""Judging: the scorers of many samples ask other models (a judge, an embedder), wait, and ask again.

What they ask goes to a model together, in the ways in which the batcher asks the model that is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pytest_llmeval.inference.accounting import JudgeUse, TimeShares, use_of
from pytest_llmeval.inference.dispatch import InFlight, ask, ask_together
from pytest_llmeval.models.base import (
    Backend,
    BackgroundModel,
    Failed,
    JudgeSteps,
    answers_in_background,
    answers_one_by_one,
)
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import Ask, GenerateRequest, Response, Role, Score

__all__ = ["Judging", "Models", "are_same"]

Models: TypeAlias = Mapping[Role, Sequence[object]]
"""The models of each role; several judges are a panel."""


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


class Judging:
    """Holds the judgements that have begun. ``shares`` gets the time of the calls that are made for each."""

    def __init__(self, shares: TimeShares) -> None:
        self.shares = shares
        self._judgements: dict[Hashable, _Judgement] = {}
        self._alone: set[Hashable] = set()
        self._uses: dict[Hashable, JudgeUse] = {}
        self._seconds: dict[Hashable, float] = {}
        """The seconds that models took for each judgement in the present call of ``finish``."""
        self.judges_ahead = True
        """False once a sample came with other judges than its judgement was begun with. A fixture then makes new ones
        for each test, so that a judgement made ahead would be lost, and each sample is judged when its test runs."""

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
        self._uses.pop(key, None)
        self._alone.discard(key)
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
        started, self._seconds = time.perf_counter(), {key: 0.0}
        one = self._judgements[key]
        try:
            while one.outcome is None:
                self._go_on(key)
        finally:
            self._judgements.pop(key, one).give_up()
            self._alone.discard(key)
            self.shares.share_out(time.perf_counter() - started, self._seconds)
        if isinstance(one.outcome, BaseException):
            raise one.outcome
        return one.outcome

    def pop_use(self, key: Hashable) -> JudgeUse:
        """Return what a sample's judgement has taken of the models, once it is done."""
        return self._uses.pop(key, JudgeUse())

    def stop(self) -> None:
        """Give up the judgements that are not done; no further one will be finished."""
        for key in [key for key, one in self._judgements.items() if one.outcome is None]:
            self._judgements.pop(key).give_up()

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
            elif key in keys and key in self._alone:
                wanted = [key]
            else:
                wanted = [other for other in keys if other not in self._alone]
            if wanted:
                ask_together(key, wanted, partial(self._call, model=model), self._alone)
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
        self._uses[key] = self._uses.get(key, JudgeUse()) + use
        self._seconds[key] = self._seconds.get(key, 0.0) + use.seconds
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
