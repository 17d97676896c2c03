"""Judging: scorers that ask other models, many at once.

The scorer of one sample asks, waits and asks again. What those of many samples ask goes to the model together: in one
call, or each by itself where the model answers in the background.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pytest_llmeval.errors import RequestError
from pytest_llmeval.inference.dispatch import ask, received, submitted
from pytest_llmeval.inference.lookahead import TimeShares
from pytest_llmeval.inference.store.model import StoredModel
from pytest_llmeval.models.base import (
    BackgroundModel,
    Failed,
    JudgeSteps,
    answers_in_background,
    answers_one_by_one,
    identify,
)
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import Ask, GenerateRequest, LoglikelihoodResponse, Response, Role, Score, who_served

__all__ = ["JudgeUse", "Judging", "Models", "are_same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUse:
    """Requests that were answered, the tokens that were read and written for them, and the models' time (s).

    ``asked_at`` says of each when it was asked (Unix, s), None of one that is in no store. ``served`` are who has
    answered, each once: the role, the model's name, and what its server says of the model and of what it runs on.
    """

    num_requests: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    asked_at: tuple[float | None, ...] = ()
    served: tuple[tuple[Role, str, str | None, str | None], ...] = ()

    def __add__(self, other: JudgeUse) -> JudgeUse:
        return JudgeUse(
            num_requests=self.num_requests + other.num_requests,
            num_tokens=self.num_tokens + other.num_tokens,
            seconds=self.seconds + other.seconds,
            asked_at=self.asked_at + other.asked_at,
            served=tuple(dict.fromkeys(self.served + other.served)),
        )


def _use_of(answers: Sequence[Response | Failed], role: Role, model: object) -> JudgeUse:
    responses = [answer for answer in answers if not isinstance(answer, RequestError)]
    read = sum(
        one.num_context_tokens if isinstance(one, LoglikelihoodResponse) else one.num_prompt_tokens for one in responses
    )
    return JudgeUse(
        num_requests=len(responses),
        num_tokens=read + sum(one.num_tokens for one in responses),
        seconds=math.fsum(one.seconds for one in responses),
        asked_at=tuple(one.asked_at for one in responses),
        served=tuple(
            dict.fromkeys(
                (role, identify(model).name, *who) for one in responses if (who := who_served(one)) != (None, None)
            )
        ),
    )


Models: TypeAlias = Mapping[Role, Sequence[object]]
"""The models of each role; several judges are a panel."""


@dataclass(slots=True)
class _Open:
    """One sample's judgement: what it has asked, and where that is on its way to a model, what will come of it."""

    asking: JudgeSteps
    models: Models
    asked: Ask
    futures: list[Future[Response | Failed]] = field(default_factory=list)
    model: object = None
    is_sent: bool = False


class Judging:
    """The judgements of samples that have begun, by the samples' keys, each with the models of its own roles.

    ``shares`` learns what time each of them took. ``looks_ahead`` is False once a sample was to be judged by another
    model than it was begun with: a fixture makes a new one for each test, and each is judged when its test runs.
    """

    def __init__(self, shares: TimeShares) -> None:
        self._shares = shares
        self._open: dict[Hashable, _Open] = {}
        self._done: dict[Hashable, Score | BaseException] = {}
        self._alone: set[Hashable] = set()
        self._took_s: dict[Hashable, float] = {}
        self._uses: dict[Hashable, JudgeUse] = {}
        self._judges: dict[Hashable, Models] = {}
        self.looks_ahead = True

    def has(self, key: Hashable, models: Models) -> bool:
        """Return whether the sample's judgement has begun, and its score was not taken. One by other models is
        forgotten.
        """
        if key not in self._judges:
            return False
        if are_same(self._judges[key], models):
            return True
        self.looks_ahead = False
        self._drop(key)
        self._done.pop(key, None)
        self._uses.pop(key, None)
        del self._judges[key]
        return False

    def begin(self, key: Hashable, asking: JudgeSteps, models: Models) -> None:
        """Begin the judgement of one more sample by these models, as far as it goes without an answer."""
        self._judges[key] = models
        self._open[key] = _Open(asking, models, Ask("judge", ()))
        self._advance(key, None)

    def is_done(self, key: Hashable) -> bool:
        """Return whether the sample has been judged, and its score was not taken."""
        return key in self._done

    def finish(self, key: Hashable) -> Score:
        """Return the score of a sample that has begun. The others that have the same models go on meanwhile.

        Raises what its judgement raises, or what a model does that is asked for it.
        """
        __tracebackhide__ = True
        started, self._took_s = time.perf_counter(), {key: 0.0}
        try:
            while key not in self._done:
                self._go_on(key)
        finally:
            self._drop(key)
            self._judges.pop(key, None)
            self._shares.share_out(time.perf_counter() - started, self._took_s)
        score = self._done.pop(key)
        if isinstance(score, BaseException):
            raise score
        return score

    def take_use(self, key: Hashable) -> JudgeUse:
        """Return what a sample's judgement has taken of the models, once it is done."""
        return self._uses.pop(key, JudgeUse())

    def close(self) -> None:
        """Give up what is not done."""
        for key in list(self._open):
            self._drop(key)
            self._judges.pop(key, None)

    def _drop(self, key: Hashable) -> None:
        """Give up a judgement that is not done."""
        self._alone.discard(key)
        one = self._open.pop(key, None)
        if one is not None:
            for future in one.futures:
                future.cancel()
            one.asking.close()

    def _go_on(self, key: Hashable) -> None:
        """Take one step with all judgements that are open and have the same models: it brings some of them an
        answer.
        """
        __tracebackhide__ = True
        by_call: dict[tuple[Role, int], list[Hashable]] = {}
        models = self._open[key].models
        for other, one in list(self._open.items()):
            if not are_same(one.models, models):
                continue
            while other in self._open and not one.asked.requests:
                self._advance(other, [])
            if other not in self._open:
                continue
            role, place = one.asked.role, one.asked.judge
            model = models[role][place]
            if not answers_in_background(model):
                by_call.setdefault((role, place), []).append(other)
            elif not one.is_sent:
                self._submit(other, model)
        if key not in self._open:  # it asked for nothing
            return
        is_waiting = True
        for (role, place), keys in by_call.items():
            model = models[role][place]
            wanted = [other for other in keys if other not in self._alone]
            if answers_one_by_one(model):  # a sample is done before the next one's is asked: Ctrl-C loses one verdict
                wanted = [key] if key in keys else []
            elif key in self._alone and key in keys:
                wanted = [key]
            if wanted:
                self._call(key, wanted, model)
                is_waiting = False
        if is_waiting and key in self._open:
            self._wait()

    def _submit(self, key: Hashable, model: BackgroundModel) -> None:
        """Give the model what this one wants. Where that fails, it fails when its own sample runs."""
        one = self._open[key]
        try:
            one.futures, one.model = submitted(model, one.asked.requests), model
            one.is_sent = True
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # pytest's own outcomes (skip, fail) are no Exceptions
            self._end(key, error)

    def _call(self, key: Hashable, keys: Sequence[Hashable], model: object) -> None:
        """Ask a model for what all of these want. Where that fails, only what this one wants is asked, to know whether
        it is to blame; the others are from then on asked one by one, too, each when its own sample runs.
        """
        __tracebackhide__ = True
        requests = [request for other in keys for request in self._open[other].asked.requests]
        try:
            answers = ask(model, requests)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:  # pytest's own outcomes (skip, fail) are no Exceptions
            if keys == [key]:
                raise
            self._alone.update(keys)
            if key not in keys:  # it asks a model in another role
                return
            keys, answers = [key], ask(model, self._open[key].asked.requests)
        start = 0
        for other in keys:
            count = len(self._open[other].asked.requests)
            self._advance(other, answers[start : start + count])
            start += count

    def _wait(self) -> None:
        """Wait until one of those that a model in the background works on has all of its answers."""
        __tracebackhide__ = True
        while True:
            sent = {key: one for key, one in self._open.items() if one.is_sent}
            ready = [key for key, one in sent.items() if all(future.done() for future in one.futures)]
            if ready or not sent:
                break
            pending = [future for one in sent.values() for future in one.futures if not future.done()]
            wait(pending, return_when=FIRST_COMPLETED)
        for key in ready:
            one = self._open[key]
            try:
                answers = received(one.model, one.asked.requests, one.futures)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # pytest's own outcomes (skip, fail) are no Exceptions
                self._end(key, error)
            else:
                self._advance(key, answers)

    def _advance(self, key: Hashable, answers: Sequence[Response | Failed] | None) -> None:
        """Send a judgement its answers, and take what it asks next, or its score."""
        one = self._open[key]
        one.futures, one.is_sent = [], False
        use = _use_of(answers, one.asked.role, one.models[one.asked.role][one.asked.judge]) if answers else JudgeUse()
        self._uses[key] = self._uses.get(key, JudgeUse()) + use
        self._took_s[key] = self._took_s.get(key, 0.0) + use.seconds
        try:
            one.asked = _reasoning_apart(next(one.asking) if answers is None else one.asking.send(answers))
            if one.asked.unusable and isinstance(model := one.models[one.asked.role][one.asked.judge], StoredModel):
                model.forget(one.asked.unusable)
        except StopIteration as stop:
            self._end(key, stop.value)
        except (KeyboardInterrupt, GeneratorExit):
            del self._open[key]
            raise
        except BaseException as error:  # a scorer of a user's can skip or fail, which are no Exceptions
            self._end(key, error)

    def _end(self, key: Hashable, outcome: Score | BaseException) -> None:
        del self._open[key]
        self._alone.discard(key)
        self._done[key] = outcome


def _reasoning_apart(asked: Ask) -> Ask:
    """Return the same requests, whose replies are told apart from reasoning by the usual tags where they have none of
    their own: a verdict stands behind it.
    """
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
