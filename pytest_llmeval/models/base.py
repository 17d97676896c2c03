"""The Protocol of a model, as suites need it, and the base class of the backends that ship here."""

from __future__ import annotations

import dataclasses
import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, cast, overload, runtime_checkable

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.types import (
    Ask,
    AskedSample,
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Message,
    ModelIdentity,
    Prompt,
    Request,
    Response,
    Score,
)

__all__ = [
    "Backend",
    "BackgroundModel",
    "Failed",
    "JudgeSteps",
    "Listener",
    "Model",
    "NamedModel",
    "SampleBackend",
    "SampleModel",
    "UniformBackend",
    "answers_in_background",
    "answers_one_by_one",
    "answers_samples",
    "check_settings",
    "ended_at_limit",
    "identify",
]

_R = TypeVar("_R", LoglikelihoodResponse, GenerateResponse, EmbeddingResponse)

Failed: TypeAlias = RequestError
"""The error in a response's place when that one request failed: the other requests of the batch are not lost."""

JudgeSteps: TypeAlias = Generator[Ask, Sequence[Response | Failed], Score]
"""A scorer in the midst of its judgement of one sample: it yields what it asks, is sent one response for each request,
or the ``RequestError`` in its place, as often as it needs, and returns the score."""

Listener: TypeAlias = Callable[[Mapping[int, Response | Failed | None]], None]
"""A function that is given responses while a call goes on, by the place of their requests in the call. None takes one
back."""


@runtime_checkable
class Model(Protocol):
    """Anything that answers requests: a backend of ours, or an object that a conftest.py returns from ``llm_model``.

    Each method returns one response for each request, in order. A request that cannot be answered has a
    ``RequestError`` in its place; an exception that is raised fails every request of the call. An object that only
    ever meets generated suites may leave ``loglikelihood`` out, and the other way round. Only ``score: perplexity``
    asks a method ``loglikelihood_rolling``, which takes ``LoglikelihoodRollingRequest``s and returns
    ``LoglikelihoodResponse``s; a model that meets no such suite has no need of it. An embedder (``--llm-embedder``) is
    asked a method ``embed`` alone, which takes ``EmbeddingRequest``s and returns ``EmbeddingResponse``s.

    An optional attribute ``identity`` (a ``ModelIdentity``) names the model in reports. Its replies are reused
    (``--llm-store``) as long as the identity is the same, if that has a fingerprint, and there is no text in an
    optional attribute ``why_weights_may_change``. An optional method ``audit`` is given some requests of a suite before
    its first answer, and returns the model that the suite is to ask, with an ``EngineUse``. A model that has the
    methods of ``SampleModel`` is asked by sample.

    Samples are asked for together, ahead of their tests. An optional attribute ``answers_one_by_one`` (True) says that
    this saves the model no time: then each is asked for when its test runs, and recorded when its reply is there. A
    method may be a generator: what it has yielded is in the store at once, and of a call that is stopped (Ctrl-C) it is
    scored.
    """

    def loglikelihood(
        self, requests: Sequence[LoglikelihoodRequest], /
    ) -> Sequence[LoglikelihoodResponse | Failed]: ...

    def generate(self, requests: Sequence[GenerateRequest], /) -> Sequence[GenerateResponse | Failed]: ...


@runtime_checkable
class SampleModel(Protocol):
    """A model that is asked by sample. Optional beside ``Model``: where it is there, suites ask it and nothing else."""

    def prepare(self, suite: str, samples: Sequence[AskedSample], /) -> None:
        """See the whole suite, selected or not and without requests, once before its first answer.

        An exception becomes the error of every sample of the suite.
        """

    def answer_samples(self, asked: Sequence[AskedSample], /) -> Sequence[Response | Failed]:
        """Return one response for each request of each sample, in order. ``LeftOutError`` in a response's place skips
        it.
        """


@runtime_checkable
class BackgroundModel(Protocol):
    """A model that works while others wait, as a server does. Optional beside ``Model``: where it is there, samples are
    given to it ahead of their tests, and each test waits for its own replies alone.
    """

    @property
    def num_concurrent(self) -> int:
        """Return how many requests it works on at once: twice as many samples are with it at the most."""

    def submit(self, requests: Sequence[Request], /) -> Sequence[Future[Response | Failed]]:
        """Take in requests and return at once: a future for each, in order.

        A future has what the model's method would have in its request's place, or raises what fails all requests.
        Cancelling one, before it is answered, takes its request back.
        """


def ended_at_limit(finish_reason: str) -> bool:
    """Tell whether a reply ended at its limit of tokens, by the word that an API gives as the reason."""
    return _LIMIT.search(finish_reason.lower()) is not None


_LIMIT = re.compile(r"length|max_?(?:output_?)?tokens|context_window")


def check_settings(request: GenerateRequest) -> None:
    """Raise ``RequestError`` for settings by which no text can be written."""
    if request.max_tokens < 1:
        raise RequestError(f"max_tokens is {request.max_tokens}: expected 1 or more")
    if not (math.isfinite(request.temperature) and request.temperature >= 0):
        raise RequestError(f"temperature is {request.temperature}: expected a number, 0 or more")
    if not 0 < request.top_p <= 1:
        raise RequestError(f"top_p is {request.top_p}: expected a number above 0, at most 1")
    if request.top_k < 0:
        raise RequestError(f"top_k is {request.top_k}: expected 1 or more, or 0 for all tokens")
    if not (math.isfinite(request.repetition_penalty) and request.repetition_penalty > 0):
        raise RequestError(f"repetition_penalty is {request.repetition_penalty}: expected a number above 0")


def answers_in_background(model: object) -> TypeGuard[BackgroundModel]:
    """Tell whether the model is given requests ahead, one sample at a time."""
    return callable(getattr(model, "submit", None)) and isinstance(getattr(model, "num_concurrent", None), int)


def answers_samples(model: object) -> TypeGuard[SampleModel]:
    """Tell whether the model is asked by sample."""
    return callable(getattr(model, "answer_samples", None)) and callable(getattr(model, "prepare", None))


def answers_one_by_one(model: object) -> bool:
    """Tell whether the model says that requests which reach it together are answered one after another."""
    return getattr(model, "answers_one_by_one", False) is True


def identify(model: object) -> ModelIdentity:
    """Return the model's own ``identity`` if it has one, else one made from its class name."""
    identity = getattr(model, "identity", None)
    if isinstance(identity, ModelIdentity):
        return identity
    cls = type(model)
    return _identity(cls.__name__, f"{cls.__module__}.{cls.__qualname__}")


@cache  # asked for twice by every sample
def _identity(name: str, backend: str) -> ModelIdentity:
    return ModelIdentity(name=name, backend=backend)


class NamedModel:
    """An object of the Protocol under the name that the user gave it; everything else is the object's own."""

    def __init__(self, model: object, name: str) -> None:
        self._model = model
        self._name = name

    @property
    def identity(self) -> ModelIdentity:
        """Return the object's own identity with the user's name."""
        return dataclasses.replace(identify(self._model), name=self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class Backend:
    """Base class of the models that ship here. It adds the short form that hand-written tests use.

    Subclasses set ``identity``, which is what the report says of the model, and implement some of the methods
    ``run_loglikelihood``, ``run_loglikelihood_rolling``, ``run_generate`` and ``run_embed``: each returns one response
    (or ``RequestError``) for each request, in order. A model without one raises ``ModelError`` when it is asked that.

    ``on_progress``, where it is set, is called in the course of a call with ``(done, total)``: how many of the
    call's requests are answered. With ``answers_one_by_one`` requests that reach the model together take as long as
    one by one.

    A method ``run_…`` that calls ``take_listener`` at its beginning, and gives the listener each response once it is
    final, loses none of these when its process is killed, or the call ends by an exception (Ctrl-C, a time limit).
    """

    identity: ModelIdentity
    answers_one_by_one: bool = False
    on_progress: Callable[[int, int], None] | None = None
    _listener: tuple[int, Listener] | None = None

    def set_listener(self, listener: Listener | None) -> None:
        """Set the listener of the next call that this thread makes."""
        self._listener = None if listener is None else (threading.get_ident(), listener)

    def take_listener(self) -> Listener:
        """Return the listener of this call; one that does nothing if none was set.

        It is taken once, by the thread that set it: a call that another thread makes meanwhile, or that is made within
        this one, counts its places anew.
        """
        thread, listener = self._listener or (None, None)
        if listener is None or thread != threading.get_ident():
            return _ignore
        self._listener = None
        return listener

    def forget(self, requests: Sequence[Request]) -> None:
        """Do nothing; a store gives the replies to these requests no more, since whoever asked could not use them."""

    def await_all(self, futures: Sequence[Future[Response | Failed]], listener: Listener) -> list[Response | Failed]:
        """Return the futures' results, in order; each goes to ``listener`` and counts in ``on_progress`` once it is
        there.

        Raises what a future raises. Then, and when the call is interrupted, the listener is given what has come
        meanwhile, and the rest is cancelled.
        """
        places = {future: place for place, future in enumerate(futures)}
        try:
            for done, future in enumerate(as_completed(places), start=1):
                listener({places[future]: future.result()})
                if self.on_progress is not None:
                    self.on_progress(done, len(futures))
        except BaseException:
            done_too = (future for future in futures if future.done() and not future.cancelled())
            listener({places[future]: future.result() for future in done_too if future.exception() is None})
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]

    def ask(self, method: str, requests: Sequence[Any]) -> list[Any]:
        """Return one response (or ``RequestError``) for each request of this method, in order, by ``run_METHOD``."""
        run = getattr(self, f"run_{method}", None)
        if run is None:
            raise self._lacks(method)
        answers: list[Any] = run(requests)
        return answers

    def _lacks(self, method: str) -> ModelError:
        """Return the error for a method that the backend does not implement."""
        name, backend = self.identity.name, self.identity.backend
        if method == "loglikelihood_rolling":
            return ModelError(
                f"model {name}: the backend {backend} cannot score whole texts, which `score: perplexity` needs; "
                "use a model of transformers"
            )
        return ModelError(
            f"model {name}: the backend {backend} has no method {method}, which this suite's scorer needs"
        )

    @overload
    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest], /) -> list[LoglikelihoodResponse | Failed]: ...
    @overload
    def loglikelihood(self, context: Prompt, continuation: str, /) -> LoglikelihoodResponse: ...
    def loglikelihood(
        self, requests: Prompt | Sequence[LoglikelihoodRequest], continuation: str | None = None, /
    ) -> LoglikelihoodResponse | list[LoglikelihoodResponse | Failed]:
        """Score a sequence of requests, or one: ``model.loglikelihood("The capital of France is", " Paris")``.

        The short form raises the ``RequestError`` that the long form returns.
        """
        if continuation is not None:
            response: LoglikelihoodResponse = _only(
                self.ask("loglikelihood", [LoglikelihoodRequest(cast("Prompt", requests), continuation)])
            )
            return response
        if isinstance(requests, str):
            raise TypeError("loglikelihood(context, continuation) needs the continuation")
        return self.ask("loglikelihood", cast("Sequence[LoglikelihoodRequest]", requests))

    @overload
    def loglikelihood_rolling(
        self, requests: Sequence[LoglikelihoodRollingRequest], /
    ) -> list[LoglikelihoodResponse | Failed]: ...
    @overload
    def loglikelihood_rolling(self, text: str, /, *, stride: int | None = None) -> LoglikelihoodResponse: ...
    def loglikelihood_rolling(
        self, requests: str | Sequence[LoglikelihoodRollingRequest], /, *, stride: int | None = None
    ) -> LoglikelihoodResponse | list[LoglikelihoodResponse | Failed]:
        """Score a sequence of texts, or one: ``model.loglikelihood_rolling("A long text …", stride=512)``.

        The short form raises the ``RequestError`` that the long form returns.
        """
        if isinstance(requests, str):
            response: LoglikelihoodResponse = _only(
                self.ask("loglikelihood_rolling", [LoglikelihoodRollingRequest(requests, stride)])
            )
            return response
        if stride is not None:
            raise TypeError("stride goes with a text; each request of a sequence carries its own")
        return self.ask("loglikelihood_rolling", requests)

    @overload
    def generate(self, requests: Sequence[GenerateRequest], /) -> list[GenerateResponse | Failed]: ...
    @overload
    def generate(
        self,
        prompt: Prompt,
        /,
        *,
        max_tokens: int = ...,
        stop: Sequence[str] = ...,
        temperature: float = ...,
        seed: int = ...,
        top_p: float = ...,
        epoch: int = ...,
        top_k: int = ...,
        repetition_penalty: float = ...,
    ) -> GenerateResponse: ...
    def generate(
        self, requests: Prompt | Sequence[GenerateRequest], /, **settings: Any
    ) -> GenerateResponse | list[GenerateResponse | Failed]:
        """Answer a sequence of requests, or one: ``model.generate("Dear customer,", max_tokens=20).text``.

        The short form raises the ``RequestError`` that the long form returns.
        """
        if _is_prompt(requests):
            prompt = cast("Prompt", requests)
            if isinstance(settings.get("stop"), str):
                settings["stop"] = (settings["stop"],)
            elif "stop" in settings:
                settings["stop"] = tuple(settings["stop"])
            response: GenerateResponse = _only(
                self.ask("generate", [dataclasses.replace(GenerateRequest(prompt), **settings)])
            )
            return response
        if settings:
            raise TypeError("generation settings go with a prompt; each request of a sequence carries its own")
        return self.ask("generate", cast("Sequence[GenerateRequest]", requests))

    @overload
    def embed(self, requests: Sequence[EmbeddingRequest], /) -> list[EmbeddingResponse | Failed]: ...
    @overload
    def embed(self, text: str, /) -> EmbeddingResponse: ...
    def embed(
        self, requests: str | Sequence[EmbeddingRequest], /
    ) -> EmbeddingResponse | list[EmbeddingResponse | Failed]:
        """Embed a sequence of texts, or one: ``model.embed("A text").vector``.

        The short form raises the ``RequestError`` that the long form returns.
        """
        if isinstance(requests, str):
            response: EmbeddingResponse = _only(self.ask("embed", [EmbeddingRequest(requests)]))
            return response
        return self.ask("embed", requests)


class UniformBackend(Backend, ABC):
    """A backend that answers requests of every kind in the same way."""

    @abstractmethod
    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        """Return one response (or ``RequestError``) for each request, in order."""

    def ask(self, method: str, requests: Sequence[Request]) -> list[Any]:
        return self.run(requests)


class SampleBackend(Backend, ABC):
    """A model that is a ``SampleModel`` alone. Asked for a prompt without its sample, it raises ``ModelError``."""

    def __init__(self, identity: ModelIdentity) -> None:
        self.identity = identity

    def prepare(self, suite: str, samples: Sequence[AskedSample], /) -> None:
        """Do nothing; a subclass may want to see the suite."""

    def answer_samples(self, asked: Sequence[AskedSample], /) -> list[Response | Failed]:
        return [response for sample in asked for response in self.answer(sample)]

    @abstractmethod
    def answer(self, sample: AskedSample) -> Iterable[Response | Failed]:
        """Return one response for each request of the sample."""

    def _lacks(self, method: str) -> ModelError:
        return ModelError(
            f"model {self.identity.name}: it answers samples of suites only, not a prompt without its sample"
        )


def _ignore(answered: Mapping[int, Response | Failed | None]) -> None:
    pass


def _is_prompt(requests: Prompt | Sequence[GenerateRequest]) -> bool:
    """Tell whether this is a text or the turns of a chat; an empty sequence holds no requests."""
    return isinstance(requests, str) or (
        isinstance(requests, tuple) and bool(requests) and all(isinstance(turn, Message) for turn in requests)
    )


def _only(responses: list[_R | Failed]) -> _R:
    (response,) = responses
    if isinstance(response, RequestError):
        raise response
    return response
