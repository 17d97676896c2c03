"""Asks a Python function, or wraps an object of the model Protocol, that ``--llm-model python:MODULE:NAME`` names."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import Backend, Failed, Model, NamedModel
from pytest_llmeval.models.python.importing import (
    METHODS,
    concurrency_of,
    find_object,
    make_answerer,
    offered_settings,
    own_traceback,
    signature_of,
)
from pytest_llmeval.models.python.replies import read_reply
from pytest_llmeval.models.specs import is_secret_name
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import (
    JSON,
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    ModelIdentity,
    Prompt,
    finite_number,
)

__all__ = ["CallError", "CallableModel", "EmbeddingFunction", "load_python"]

_T = TypeVar("_T")
_SHORTEST_SECRET = 4


class CallError(RequestError):
    """What the user's own function raised. The first line says what, the rest is his traceback."""


def load_python(
    name: str, module: str, attribute: str, arguments: Mapping[str, JSON], *, embeds: bool = False
) -> Model:
    """What the module names, ready to be asked. ``name`` is what records are keyed by. ``embeds``: a function is one of
    texts and gives their embeddings; else it is one of a prompt and gives a text.

    Raises ``ModelError``.
    """
    own = {key: value for key, value in arguments.items() if key != "concurrency"}
    concurrency = concurrency_of(arguments, name)
    secrets = tuple(
        str(value) for key, value in own.items() if is_secret_name(key) and len(str(value)) >= _SHORTEST_SECRET
    )
    try:
        found = find_object(module, attribute, name)
        answerer, per_call = make_answerer(found, own, name, attribute)
    except ModelError as error:
        raise ModelError(_without(str(error), secrets)) from None
    if any(callable(getattr(answerer, method, None)) for method in METHODS):
        return NamedModel(answerer, name)
    identity = ModelIdentity(
        name=name,
        backend="python",
        details={"module": module, "callable": attribute, "is_async": _is_async(answerer)},
    )
    kind = EmbeddingFunction if embeds else CallableModel
    return kind(answerer, identity, per_call, concurrency=concurrency, secrets=secrets)


class CallableModel(Backend):
    """A function that takes a prompt and returns a text, sync or async; or a text with the contexts that it retrieved.

    It gets a chat as a list of ``{"role": …, "content": …}``, ``arguments`` with each call, and of a request's settings
    (max_tokens, stop, temperature, top_p, seed, epoch) those that it has a parameter for. Where it takes no ``stop``
    its text is cut at the first stop string. Of an async one at most ``concurrency`` calls run at a time; where that is
    one, or the function is not async, the model answers one by one. ``secrets`` are kept out of messages.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        identity: ModelIdentity,
        arguments: Mapping[str, JSON],
        *,
        concurrency: int = 1,
        secrets: Sequence[str] = (),
    ) -> None:
        self._function = function
        self.identity = identity
        self._arguments = dict(arguments)
        self._concurrency = concurrency
        self._secrets = tuple(secrets)
        signature = signature_of(function)
        self._offered = () if signature is None else offered_settings(signature, arguments)
        self._runner: asyncio.Runner | None = None
        self.answers_one_by_one = concurrency == 1 or not _is_async(function)

    @property
    def function(self) -> Callable[..., Any]:
        """What answers."""
        return self._function

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        """Call the function for each request. What it raises is a ``CallError`` in that request's place."""
        listener = self.take_listener()
        responses: dict[int, GenerateResponse | Failed] = {}

        def take(place: int, response: GenerateResponse | Failed) -> None:
            responses[place] = response
            listener({place: response})
            if self.on_progress is not None:
                self.on_progress(len(responses), len(requests))

        if _is_async(self._function):
            self._run(self._gather(requests, take))
        else:
            for place, request in enumerate(requests):
                take(place, self._call(request))
        return [responses[place] for place in range(len(requests))]

    def _lacks(self, method: str) -> ModelError:
        """A text says nothing of likelihoods."""
        return ModelError(
            f"model {self.identity.name}: a function returns a text, and this suite's scorer needs log-likelihoods: "
            f"name a class or an object with a method {method}(requests), or score a reply (letter, exact, …)"
        )

    async def _gather(
        self, requests: Sequence[GenerateRequest], take: Callable[[int, GenerateResponse | Failed], None]
    ) -> None:
        limit = asyncio.Semaphore(self._concurrency)

        async def one(place: int, request: GenerateRequest) -> None:
            async with limit:
                response = await self._call_async(request)
            take(place, response)

        if len(requests) == 1:  # what is raised comes through as it is
            await one(0, requests[0])
            return
        async with asyncio.TaskGroup() as group:
            for place, request in enumerate(requests):
                group.create_task(one(place, request))

    def _run(self, calls: Coroutine[Any, Any, _T]) -> _T:
        """In one event loop for all calls: clients of HTTP belong to the loop in which they were first used."""
        if self._runner is None:
            loop = asyncio.new_event_loop()
            self._runner = asyncio.Runner(loop_factory=lambda: loop)
            weakref.finalize(self, loop.close)
        try:
            return self._runner.run(calls)
        except BaseException:
            _end_tasks(self._runner.get_loop())
            raise

    def _call(self, request: GenerateRequest) -> GenerateResponse | Failed:
        started = time.perf_counter()
        try:
            returned = self._function(_as_given(request.prompt), **self._settings(request))
            if inspect.isawaitable(returned):
                returned = self._run(_waited(returned))
        except Exception as error:
            return self._failed(error)
        return self._response(returned, request, time.perf_counter() - started)

    async def _call_async(self, request: GenerateRequest) -> GenerateResponse | Failed:
        started = time.perf_counter()
        try:
            returned = await self._function(_as_given(request.prompt), **self._settings(request))
        except Exception as error:
            return self._failed(error)
        return self._response(returned, request, time.perf_counter() - started)

    def _settings(self, request: GenerateRequest) -> dict[str, Any]:
        settings: dict[str, Any] = {name: getattr(request, name) for name in self._offered}
        if "stop" in settings:
            settings["stop"] = list(settings["stop"])
        return {**settings, **self._arguments}

    def _response(self, returned: object, request: GenerateRequest, seconds: float) -> GenerateResponse | Failed:
        if isinstance(returned, GenerateResponse):
            return returned
        try:
            text, beside = read_reply(returned, self._cleaned)
        except ValueError as error:
            return RequestError(self._cleaned(f"{self.identity.name} returned {error}"))
        if "stop" not in self._offered:
            starts = [start for stop in request.stop if stop and (start := text.find(stop)) >= 0]
            text = text[: min(starts)] if starts else text
        return GenerateResponse(text=text, seconds=seconds, is_timed=True, **beside)

    def _failed(self, error: Exception) -> CallError:
        lines = [f"{self.identity.name} raised {describe(error)}", *own_traceback(error, (__file__,))]
        return CallError(self._cleaned("\n".join(lines)))

    def _cleaned(self, text: str) -> str:
        return _without(text, self._secrets)


class EmbeddingFunction(CallableModel):
    """A function that takes a list of texts and returns a vector for each, in order; sync or async.

    It gets ``arguments`` with each call. Where a call fails for several texts it is made for each alone, to know which
    of them is to blame.
    """

    _length: int | None = None

    def run_embed(self, requests: Sequence[EmbeddingRequest]) -> list[EmbeddingResponse | Failed]:
        found = self._embedded([request.text for request in requests])
        if not isinstance(found, RequestError):
            return found
        if len(requests) == 1:
            return [found]
        return [answer for request in requests for answer in self.run_embed([request])]

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        raise self._lacks("generate")

    def _lacks(self, method: str) -> ModelError:
        return ModelError(f"model {self.identity.name}: a function that is the embedder gives vectors, and no {method}")

    def _embedded(self, texts: Sequence[str]) -> list[EmbeddingResponse | Failed] | Failed:
        started = time.perf_counter()
        try:
            returned = self._function(list(texts), **self._arguments)
            if inspect.isawaitable(returned):
                returned = self._run(_waited(returned))
            vectors = None if _is_single(returned) else [_entries(vector) for vector in returned]
        except Exception as error:
            return self._failed(error)
        if vectors is None:
            return self._refused(f"{_short(returned)} ({type(returned).__name__}), expected a vector for each text")
        if len(vectors) != len(texts):
            return self._refused(f"{len(vectors)} vectors for {len(texts)} text{'' if len(texts) == 1 else 's'}")
        seconds = (time.perf_counter() - started) / max(1, len(texts))
        return [self._one(vector, seconds, is_timed=len(texts) == 1) for vector in vectors]

    def _one(self, vector: Any, seconds: float, *, is_timed: bool) -> EmbeddingResponse | Failed:
        if isinstance(vector, EmbeddingResponse):
            return vector
        if _is_single(vector):
            return self._refused(f"{_short(vector)} ({type(vector).__name__}) in a vector's place")
        numbers: list[float] = []
        for entry in vector:
            if (number := None if isinstance(entry, bool) else finite_number(entry)) is None:
                return self._refused(f"a vector with {_short(entry)} in it, expected finite numbers")
            numbers.append(number)
        if not numbers or len(numbers) != (self._length or len(numbers)):
            return self._refused(f"a vector of {len(numbers)} numbers, expected {self._length or 'some'}")
        self._length = len(numbers)
        return EmbeddingResponse(vector=tuple(numbers), seconds=seconds, is_timed=is_timed)

    def _refused(self, what: str) -> RequestError:
        return RequestError(_without(f"{self.identity.name} returned {what}", self._secrets))


def _entries(vector: Any) -> Any:
    """The list that a vector is; what is none, as it is."""
    if hasattr(vector, "tolist"):  # numpy's and torch's, all at once
        return vector.tolist()
    return vector if _is_single(vector) else list(vector)


def _is_single(value: object) -> bool:
    return isinstance(value, str) or not isinstance(value, Iterable)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what Ctrl-C has left in the loop, and wait for its end: asyncio would complain of it when pytest ends."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    ends = asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(2):  # Ctrl-C comes through once more, from the task that waited for the one that it hit
        with contextlib.suppress(KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            loop.run_until_complete(ends)


async def _waited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _as_given(prompt: Prompt) -> str | list[dict[str, str]]:
    """A text as it is, a chat as libraries of chat models take it."""
    if isinstance(prompt, str):
        return prompt
    return [{"role": turn.role, "content": turn.content} for turn in prompt]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
