"""A model whose replies are kept: what was asked before is not asked again.

Every request to a model goes through here, whoever sends it: suites, hand-written tests, judges.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, TypeGuard, cast

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference import dispatch
from pytest_llmeval.inference.dispatch import ask_for_raw, checked, submitted
from pytest_llmeval.inference.futures import Reply, chain
from pytest_llmeval.inference.store import Store
from pytest_llmeval.inference.stored_lines import AUDIT, StoredRequest, fingerprint_of
from pytest_llmeval.models.base import (
    Backend,
    Failed,
    Model,
    UniformBackend,
    answers_one_by_one,
    answers_samples,
    identify,
)
from pytest_llmeval.models.reasoning import as_asked
from pytest_llmeval.types import (
    IS_KNOWN,
    JSON,
    EngineUse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Request,
    Response,
    ServerUse,
)

__all__ = ["StoredModel", "with_store"]

_NUM_RECENT = 4096
"""The number of its replies that a model remembers, for the test that has asked for them."""


def with_store(model: Model, store: Store, *more: str) -> Model:
    """Return the model, asked through the store. ``more`` decides its replies besides its identity.

    A model that is asked by sample (a file of replies, guessing) is returned as it is: what it is asked is no prompt,
    and it has its answers at hand.
    """
    return cast("Model", model) if answers_samples(model) else StoredModel(model, store, *more)


@dataclass(slots=True, eq=False)
class _Asked:
    """A request and its places in the call: several if equal requests share a reply. ``answer`` is None until then."""

    request: Request
    stored: StoredRequest
    places: list[int]
    answer: Response | Failed | None = None


class StoredModel(UniformBackend):
    """Finds replies in the store, and asks the model for the others, which it keeps.

    Errors are not kept, nor replies that were cut short. Replies of a model that may have changed are kept, and found
    again only if the store has a limit of age. A reply's ``asked_at`` says when it was asked. Texts are kept with their
    reasoning, as the model wrote them. Everything else is the model's own.

    :param more: what decides replies besides the model's identity.
    :param audited: returns the model that an audit has chosen to answer; called before the first request that is not in
        the store.
    """

    has_stops_behind_reasoning = True  # else the model itself is asked once more

    def __init__(self, model: object, store: Store, *more: str, audited: Callable[[], object] | None = None) -> None:
        self._model = model
        self._store = store
        self._more = more
        self._audited = audited
        self.answers_one_by_one = answers_one_by_one(model)
        self._reused = ServerUse()
        self.has_reused = False
        """True once it has given a reply that another session asked for."""
        self._recent: deque[tuple[float, str | None]] = deque(maxlen=_NUM_RECENT)

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # asked of an object that is not made yet, as by copy
            raise AttributeError(name)
        found = getattr(self._model, name)
        if any(name == kind.method for kind in dispatch.REQUEST_KINDS):  # a kind for which UniformBackend has no method
            return self.run
        return {"audit": self._audit, "submit": self._submit}.get(name, found)

    @cached_property
    def identity(self) -> ModelIdentity:  # type: ignore[override]
        """Return the model's own, which says in ``details`` whether replies are found again."""
        identity, why = identify(self._model), self._why_unknown
        stored = "replies are kept and reused" if self._reuses else f"replies are kept, not reused: {why}"
        known: dict[str, JSON] = {IS_KNOWN: True} if why is None else {}
        return replace(identity, details={**identity.details, "store": stored, **known})

    @property
    def server_use(self) -> ServerUse:
        """Return the model's own, with who gave the replies that were found. ``AttributeError`` if it has none."""
        use: ServerUse = self._model.server_use  # type: ignore[attr-defined]
        return use + self._reused

    @property
    def on_progress(self) -> Callable[[int, int], None] | None:
        """Return what the model calls while it is asked, with the requests that are done and all."""
        return self._model.on_progress if isinstance(self._model, Backend) else None

    @on_progress.setter
    def on_progress(self, value: Callable[[int, int], None] | None) -> None:
        if isinstance(self._model, Backend):
            self._model.on_progress = value

    def kept_since(self, start: float) -> list[str | None]:
        """Return ``kept_as`` of each reply since then (of ``time.monotonic``), None for those that are not kept.

        The list is empty if there are more than are remembered.
        """
        found = [kept for when, kept in self._recent if when >= start]
        return [] if len(found) == _NUM_RECENT else found

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint_of(identify(self._model), *self._more)

    @cached_property
    def _why_unknown(self) -> str | None:
        """Return why it is not known whether the model is the one that it was; None if it is known."""
        if identify(self._model).fingerprint is None:
            return "the model has no fingerprint"
        why = getattr(self._model, "why_weights_may_change", None)
        return why if isinstance(why, str) else None

    @property
    def _reuses(self) -> bool:
        return self._why_unknown is None or self._store.max_age_s is not None

    @cached_property
    def _answerer(self) -> Any:
        return self._model if self._audited is None else self._audited()

    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        """Return replies in order; the model is asked in one call for all that are not in the store.

        Equal requests share a reply if replies are reused. A reply is in the store as soon as it is finished, if the
        model tells of that, else when the call returns.
        """
        __tracebackhide__ = True
        listener = self.take_listener()
        asked = self._look_up(requests, shares=self._reuses)
        missing = [one for one in asked if one.answer is None]

        def tell(some: Iterable[_Asked]) -> None:
            listener({place: one.answer for one in some for place in one.places})

        def keep(given: Mapping[int, Response | Failed | None]) -> None:
            """Keep what the model says first of each reply, unless it takes that back (None)."""
            new, gone = [], []
            for number, answer in given.items():
                one = missing[number]
                if answer is not None and one.answer is None:
                    one.answer = answer
                    new.append(one)
                elif answer is None and one.answer is not None:
                    self._take_back(one.stored, one.answer)
                    one.answer = None
                    gone.append(one)
            self._keep(new)
            tell(new + gone)

        tell(one for one in asked if one.answer is not None)
        if missing:
            keep(dict(enumerate(ask_for_raw(self._answerer, [one.request for one in missing], keep))))
        answers: dict[int, Any] = {place: one.answer for one in asked for place in one.places}
        return [answers[place] for place in range(len(requests))]

    def _submit(self, requests: Sequence[Request], /) -> list[Reply]:
        """Do as a ``BackgroundModel``'s ``submit``. A reply is in the store before its future has it.

        Equal requests that are open at once share a reply if replies are reused, also with those of an earlier call.
        """
        asked = self._look_up(requests, shares=False)
        futures: list[Reply] = [Future() for _ in requests]
        first: dict[tuple[int, str], Reply] = {}
        missing: list[tuple[_Asked, Reply]] = []
        waiting: list[tuple[_Asked, Reply, Reply]] = []
        for one, future in zip(asked, futures, strict=True):
            key = os.getpid(), one.stored.key  # nothing answers in a forked process what the other one has asked
            if one.answer is not None:
                future.set_result(one.answer)
            elif self._reuses and (equal := first.get(key) or self._store.asked_now.get(key)) is not None:
                waiting.append((one, future, equal))
            else:
                first[key] = future
                missing.append((one, future))
        sent = submitted(self._answerer, [one.request for one, _ in missing]) if missing else []
        if len(sent) != len(missing):
            return sent  # the caller says what is wrong
        if self._reuses:
            self._store.asked_now.update(first)
        for (one, future), inner in zip(missing, sent, strict=True):
            future.add_done_callback(partial(self._forget_open, (os.getpid(), one.stored.key)))
            self._pass_on(one, inner, future)
        for one, future, equal in waiting:
            equal.add_done_callback(partial(self._share, one, future))
        return futures

    def _forget_open(self, key: tuple[int, str], _: object) -> None:
        self._store.asked_now.pop(key, None)

    def _share(self, one: _Asked, outer: Reply, _: object) -> None:
        """Give the reply that an equal request has got; ask the model if it has got none that is kept."""
        if outer.cancelled():
            return
        try:
            one.answer = self._find(one)
            if one.answer is None:
                (inner,) = submitted(self._answerer, [one.request])
                self._pass_on(one, inner, outer)
                return
        except BaseException as error:  # in a callback it would be lost, and the wait for the reply have no end
            if outer.set_running_or_notify_cancel():
                outer.set_exception(error)
        else:
            if outer.set_running_or_notify_cancel():
                outer.set_result(one.answer)

    def _pass_on(self, one: _Asked, inner: Reply, outer: Reply) -> None:
        """Keep the model's reply, and give it to the future of whoever asked; take it back when that is cancelled."""

        def kept(_: Reply) -> Response | Failed:
            one.answer = checked(self._model, one.request, inner.result())
            self._keep([one])
            return one.answer

        chain(inner, kept, outer)

    def _look_up(self, requests: Sequence[Request], *, shares: bool) -> list[_Asked]:
        """Return the requests, equal ones as one if they share a reply, with the replies that the store has.

        What other processes have added by now is found, too.
        """
        asked: dict[str | int, _Asked] = {}
        for place, request in enumerate(requests):
            stored = StoredRequest(self._fingerprint, request)
            asked.setdefault(stored.key if shares else place, _Asked(request, stored, [])).places.append(place)
        if self._reuses:
            for one in asked.values():
                one.answer = self._find(one)
            if missing := [one for one in asked.values() if one.answer is None]:
                self._store.look_again()
                for one in missing:
                    one.answer = self._find(one)
        return list(asked.values())

    def _find(self, one: _Asked) -> Response | None:
        if (line := self._store.find(one.stored)) is None:
            return None
        try:
            reply = checked(self._model, one.request, line.reply)
        except ModelError:  # it was taken back, or the line was made by somebody else
            return None
        if not _is_whole(reply, one.request):
            return None
        self._reused = self._reused.counting(reply)
        self.has_reused |= line.session != self._store.session
        self._recent.append((time.monotonic(), line.session))
        reply = replace(as_asked(one.request, reply), asked_at=self._store.asked_at(line), kept_as=line.session)
        cost_of = getattr(self._model, "cost_of", None)  # a server's price is the session's affair, and not the reply's
        has_cost = not isinstance(one.request, LoglikelihoodRollingRequest)  # see ServerModel.cost_of
        return replace(reply, cost=cost_of(reply)) if cost_of and has_cost else reply

    def _keep(self, answered: Sequence[_Asked]) -> None:
        """Keep the answers that are whole, and date each as the store has it."""
        whole = [(one, one.answer) for one in answered if _is_whole(one.answer, one.request)]
        times = self._store.keep(self.identity.name, [(one.stored, reply) for one, reply in whole])
        for (one, reply), asked_at in zip(whole, times, strict=True):
            one.answer = replace(reply, asked_at=asked_at, kept_as=self._store.session)
        for one in answered:
            self._recent.append((time.monotonic(), getattr(one.answer, "kept_as", None)))

    def _take_back(self, request: StoredRequest, answer: Response | Failed) -> None:
        """Replace a reply that may be another request's by one that is not ``checked``: no time is negative."""
        if not isinstance(answer, RequestError):
            self._store.keep(self.identity.name, [(request, replace(answer, seconds=-1.0))])

    def forget(self, requests: Sequence[Request]) -> None:
        """Let the store give these replies no more: whoever asked could not use them."""
        for request in requests:
            stored = StoredRequest(self._fingerprint, request)
            if (line := self._store.find(stored)) is not None:
                self._take_back(stored, cast("Response", line.reply))

    def _audit(self, requests: Sequence[Request]) -> tuple[StoredModel, EngineUse]:
        """Return what the model's own audit does, from the store: the model runs only once something is missing.

        The numbers of one engine are not those of another, so each has the engine in its key.
        """
        keys = [StoredRequest(self._fingerprint, request).key for request in requests]
        question = StoredRequest(self._fingerprint, {"kind": AUDIT, "keys": keys})
        line = self._store.find(question) if self._reuses else None
        audited: Callable[[], tuple[object, EngineUse]] = cache(lambda: cast("Any", self._model).audit(requests))
        if line is not None and isinstance(line.reply, EngineUse) and line.reply.engine in ("tree", "plain"):
            use = line.reply
        else:
            use = audited()[1]
            self._store.keep(self.identity.name, [(question, use)])
        return StoredModel(self._model, self._store, *self._more, use.engine, audited=lambda: audited()[0]), use


def _is_whole(answer: Response | Failed | None, request: Request) -> TypeGuard[Response]:
    """Tell whether an answer is all that the request asks for: only such a one is kept."""
    is_reply = answer is not None and not isinstance(answer, RequestError)
    return is_reply and dispatch.kind_of(request).is_whole(request, answer)
