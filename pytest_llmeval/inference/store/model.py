"""A model whose replies are kept: what was asked before is not asked again.

Every request to a model goes through here, whoever sends it: suites, hand-written tests, judges.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference import request_kinds
from pytest_llmeval.inference.dispatch import ask_for_raw, checked, submitted
from pytest_llmeval.inference.store.folder import Store
from pytest_llmeval.inference.store.lines import AuditRequest, Question, fingerprint_of, identity_of, is_keepable
from pytest_llmeval.models.base import (
    Backend,
    BackgroundModel,
    Failed,
    Model,
    UniformBackend,
    answers_in_background,
    answers_one_by_one,
    answers_samples,
    identify,
)
from pytest_llmeval.models.reasoning import as_asked
from pytest_llmeval.types import (
    IS_KNOWN,
    JSON,
    EngineUse,
    GenerateResponse,
    ModelIdentity,
    Request,
    Response,
    ServerUse,
)

__all__ = ["StoredBackgroundModel", "StoredModel", "with_store"]

_NUM_RECENT = 4096
"""Replies that a model remembers to have given, for the test that has asked for them."""


def with_store(model: Model, store: Store, *more: str) -> Model:
    """Return the model, asked through the store. ``more`` decides its replies besides its identity.

    One that is asked by sample (a file of replies, guessing) is returned as it is: what it is asked is no prompt, and
    it has its answers at hand.
    """
    if answers_in_background(model) and not answers_samples(model):
        return StoredBackgroundModel(model, store, *more)
    return cast("Model", model) if answers_samples(model) else StoredModel(model, store, *more)


class StoredModel(UniformBackend):
    """Finds replies in the store, and asks the model for the others, which it keeps.

    Errors are not kept, nor replies that were cut short. Where it is not known whether the model has changed, replies
    are kept, and found again only where the store has a limit of age. A reply's ``asked_at`` says when it was asked.
    Texts are kept with their reasoning, as the model wrote them. Everything else is the model's own.
    """

    has_stops_behind_reasoning = True  # the model itself has been asked once more where it is not so

    def __init__(self, model: object, store: Store, *more: str, audited: Callable[[], object] | None = None) -> None:
        """Make a stored model. ``more`` decides replies besides the model's identity.

        ``audited`` gives the model that answers where an audit has chosen it; called before the first request that is
        not in the store.
        """
        self._model = model
        self._store = store
        self._more = more
        self._audited = audited
        self._reused = ServerUse()
        self.has_reused = False
        """Whether it has given a reply that another session asked for."""
        self._recent: deque[tuple[float, str | None]] = deque(maxlen=_NUM_RECENT)

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # of an object that is being made
            raise AttributeError(name)
        found = getattr(self._model, name)
        if any(name == kind.method for kind in request_kinds.REQUEST_KINDS):  # one that backends have no short form of
            return self.run
        return self._audit if name == "audit" else found

    @cached_property
    def identity(self) -> ModelIdentity:  # type: ignore[override]
        """Return the model's own, which says in ``details`` whether replies are found again."""
        identity = identify(self._model)
        stored = "replies are kept and reused" if self._reuses else f"replies are kept, not reused: {self._why_unknown}"
        known: dict[str, JSON] = {IS_KNOWN: True} if self._why_unknown is None else {}
        return replace(identity, details={**identity.details, "store": stored, **known})

    @property
    def server_use(self) -> ServerUse:
        """Return the model's own, with who gave the replies that were found. ``AttributeError`` where it is behind
        none.
        """
        use: ServerUse = self._model.server_use  # type: ignore[attr-defined]
        return use + self._reused

    @property
    def answers_one_by_one(self) -> bool:  # type: ignore[override]
        return answers_one_by_one(self._model)

    @property
    def on_progress(self) -> Callable[[int, int], None] | None:
        """Called by the model, for what it is asked."""
        return self._model.on_progress if isinstance(self._model, Backend) else None

    @on_progress.setter
    def on_progress(self, value: Callable[[int, int], None] | None) -> None:
        if isinstance(self._model, Backend):
            self._model.on_progress = value

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint_of(identify(self._model), *self._more)

    @cached_property
    def _why_unknown(self) -> str | None:
        """Return why it is not known whether the model is the one that it was; None where it is."""
        if identify(self._model).fingerprint is None:
            return "the model has no fingerprint"
        why = getattr(self._model, "why_weights_may_change", None)
        return why if isinstance(why, str) else None

    @property
    def _reuses(self) -> bool:
        return self._why_unknown is None or self._store.max_age_s is not None

    # Asking

    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        """Replies in order; the model is asked in one call for all that are not in the store.

        Equal requests share a reply where replies are reused. A reply is in the store as soon as it is finished, where
        the model tells of that, else when the call returns.
        """
        __tracebackhide__ = True
        listener = self.take_listener()
        questions = [Question(self._fingerprint, request) for request in requests]
        places: dict[str | int, list[int]] = {}
        for place, name in enumerate(self._shared(questions)):
            places.setdefault(name, []).append(place)
        answers: dict[str | int, Response | Failed] = {}

        def take(found: Mapping[str | int, Response | Failed]) -> None:
            answers.update(found)
            listener({place: answer for name, answer in found.items() for place in places[name]})

        take(dict(self._found(requests, questions).items()))
        missing = [name for name in places if name not in answers]
        asked = [places[name][0] for name in missing]

        def keep(found: Mapping[int, Response | Failed | None]) -> None:
            """Keep of each reply what the model said first: it is in the store."""
            new: dict[str | int, tuple[Request, Question, Response | Failed]] = {}
            for number, answer in found.items():
                name, request, question = missing[number], requests[asked[number]], questions[asked[number]]
                if answer is not None and name not in answers:
                    new[name] = (request, question, answer)
                elif answer is None and (known := answers.pop(name, None)) is not None:
                    listener(dict.fromkeys(places[name]))
                    self._take_back(question, known)
            take(dict(zip(new, self._kept(list(new.values())), strict=True)))

        if asked:
            keep(dict(enumerate(ask_for_raw(self._answerer, [requests[place] for place in asked], keep))))
        return [answers[name] for name in self._shared(questions)]

    def _take_back(self, question: Question, answer: Response | Failed) -> None:
        """Replace a reply that may be another request's by one that is not ``checked``: no time is negative."""
        if not isinstance(answer, RequestError):
            self._store.keep(self.identity.name, [(question, replace(answer, seconds=-1.0))])

    def forget(self, requests: Sequence[Request]) -> None:
        """Let the store give these replies no more: whoever asked could not use them."""
        for request in requests:
            question = Question(self._fingerprint, request)
            if (kept := self._store.find(question)) is not None and isinstance(kept.reply, Response):
                self._take_back(question, kept.reply)

    def _shared(self, questions: Sequence[Question]) -> list[str | int]:
        """Return what is the same for the questions of one call that share a reply."""
        return [question.key if self._reuses else place for place, question in enumerate(questions)]

    @cached_property
    def _answerer(self) -> object:
        return self._model if self._audited is None else self._audited()

    def _found(self, requests: Sequence[Request], questions: Sequence[Question]) -> dict[str, Response]:
        """Return the replies that the store has, by key, those that other processes have added by now included."""
        if not self._reuses:
            return {}
        pairs = list(zip(requests, questions, strict=True))
        found = self._look_up(pairs)
        missing = [pair for pair in pairs if pair[1].key not in found]
        if missing:
            self._store.look_again()
            found |= self._look_up(missing)
        return found

    def _look_up(self, pairs: Sequence[tuple[Request, Question]]) -> dict[str, Response]:
        stored = ((question.key, self._stored(request, question)) for request, question in pairs)
        return {key: response for key, response in stored if response is not None}

    def _stored(self, request: Request, question: Question) -> Response | None:
        kept = self._store.find(question)
        if kept is None:
            return None
        try:
            response = checked(self._model, request, kept.reply)
        except ModelError:  # the line was made by somebody else
            return None
        if isinstance(response, RequestError) or not is_keepable(request, response):
            return None
        self._reused = self._reused.counting(response)
        self.has_reused |= kept.session != self._store.session
        asked_at, kept_as = self._store.asked_at(kept), identity_of(kept.session, kept.time)
        self._remember(kept_as)
        return self._priced(replace(as_asked(request, response), asked_at=asked_at, kept_as=kept_as))

    @cached_property
    def _prices(self) -> Callable[[GenerateResponse], float | None] | None:
        """Return what says what a reply costs, where that is the session's affair and not the reply's own."""
        return getattr(self._model, "cost_of", None)

    def _priced(self, response: Response) -> Response:
        """Return the reply with what it costs by the prices of today."""
        if self._prices is None or not isinstance(response, GenerateResponse):
            return response
        return replace(response, cost=self._prices(response))

    def _without_price(self, response: Response) -> Response:
        if self._prices is None or not isinstance(response, GenerateResponse):
            return response
        return replace(response, cost=None)

    def _kept(self, answered: Sequence[tuple[Request, Question, Response | Failed]]) -> list[Response | Failed]:
        """Return the answers, those that could be kept with the time at which they were asked."""
        keepable = [
            (place, question, answer)
            for place, (request, question, answer) in enumerate(answered)
            if not isinstance(answer, RequestError) and is_keepable(request, answer)
        ]
        kept = [(question, self._without_price(answer)) for _, question, answer in keepable]
        times = self._store.keep(self.identity.name, kept)
        answers = [answer for _, _, answer in answered]
        for (place, _, answer), asked_at in zip(keepable, times, strict=True):
            answers[place] = replace(answer, asked_at=asked_at, kept_as=identity_of(self._store.session, asked_at))
        for given in answers:
            self._remember(None if isinstance(given, RequestError) else given.kept_as)
        return answers

    def _remember(self, kept_as: str | None) -> None:
        self._recent.append((time.monotonic(), kept_as))

    def kept_since(self, start: float) -> list[str | None]:
        """Return ``kept_as`` of each reply since then (of ``time.monotonic``), None for those that are not kept.

        The list is empty if there are more than are remembered.
        """
        found = [kept_as for when, kept_as in self._recent if when >= start]
        return [] if len(found) == _NUM_RECENT else found

    def _audit(self, requests: Sequence[Request]) -> tuple[object, EngineUse]:
        """Return what the model's own audit found, as the store has it: the model runs only once something is
        missing.
        """
        keys = tuple(Question(self._fingerprint, request).key for request in requests)
        question = Question(self._fingerprint, AuditRequest(keys))
        audit = cast("Callable[[Sequence[Request]], tuple[object, EngineUse]]", self._model.audit)  # type: ignore[attr-defined]
        kept = self._store.find(question) if self._reuses else None
        if kept is not None and isinstance(kept.reply, EngineUse) and kept.reply.engine in ("tree", "plain"):
            return self._engine(kept.reply, lambda: audit(requests)[0]), kept.reply
        answerer, use = audit(requests)
        self._store.keep(self.identity.name, [(question, use)])
        return self._engine(use, lambda: answerer), use

    def _engine(self, use: EngineUse, answerer: Callable[[], object]) -> StoredModel:
        """Return the model as this engine computes it, whose numbers are not those of another one."""
        return type(self)(self._model, self._store, *self._more, use.engine, audited=answerer)


class StoredBackgroundModel(StoredModel):
    """The same of a model that answers in the background."""

    _model: BackgroundModel

    @property
    def num_concurrent(self) -> int:
        return self._model.num_concurrent

    @property
    def _submitting(self) -> BackgroundModel:
        return cast("BackgroundModel", self._answerer)

    def submit(self, requests: Sequence[Request], /) -> list[Future[Response | Failed]]:
        """See ``BackgroundModel``. A reply is in the store before its future has it."""
        questions = [Question(self._fingerprint, request) for request in requests]
        found = self._found(requests, questions)
        sharing: dict[str | int, list[int]] = {}
        for place, name in enumerate(self._shared(questions)):
            if name not in found:
                sharing.setdefault(name, []).append(place)
        missing = [places[0] for places in sharing.values()]
        sent = submitted(self._submitting, [requests[place] for place in missing]) if missing else []
        if len(sent) != len(missing):
            return sent  # whoever asked says what is wrong
        futures: list[Future[Response | Failed]] = [Future() for _ in requests]
        for future, question in zip(futures, questions, strict=True):
            if question.key in found:
                future.set_result(found[question.key])
        for places, inner in zip(sharing.values(), sent, strict=True):
            first = places[0]
            self._pass_on(requests[first], questions[first], inner, [futures[place] for place in places])
        return futures

    def _pass_on(
        self,
        request: Request,
        question: Question,
        inner: Future[Response | Failed],
        outers: Sequence[Future[Response | Failed]],
    ) -> None:
        """Give the one answer to all who wait for it. It is taken back when the last of them has been."""

        def on_answered(_: Future[Response | Failed]) -> None:
            if inner.cancelled():
                for outer in outers:
                    outer.cancel()
                return
            waiting = [outer for outer in outers if outer.set_running_or_notify_cancel()]
            if not waiting:
                return
            error = inner.exception()
            if error is None:
                try:
                    answer = self._checked_and_kept(request, question, inner.result())
                except Exception as defect:  # in a callback it would be lost, and the wait for the reply have no end
                    error = defect
            for outer in waiting:
                if error is None:
                    outer.set_result(answer)
                else:
                    outer.set_exception(error)

        def on_cancelled(_: Future[Response | Failed]) -> None:
            if all(outer.cancelled() for outer in outers):
                inner.cancel()

        for outer in outers:
            outer.add_done_callback(on_cancelled)
        inner.add_done_callback(on_answered)

    def _checked_and_kept(self, request: Request, question: Question, answer: Response | Failed) -> Response | Failed:
        try:
            return self._kept([(request, question, checked(self._model, request, answer))])[0]
        except ModelError:
            return answer  # whoever asked says what is wrong
