"""Puts requests of every kind to a model, and holds the model to its Protocol.

Here replies arrive, whatever model or judge gives them, and here their reasoning is split off. The store of replies is
between: what it asks for (``ask_for_raw``, ``submitted``) and keeps is as the model wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference.request_kinds import RequestKind, by_kind, kind_of
from pytest_llmeval.models.base import Backend, BackgroundModel, Failed, Listener, SampleModel, identify
from pytest_llmeval.models.reasoning import cut_whole, is_asked_again, stops_behind_reasoning, without_reasoning
from pytest_llmeval.types import AskedSample, GenerateRequest, Request, Response

__all__ = ["ask", "ask_for_raw", "ask_samples", "checked", "received", "submitted"]


def ask(model: object, requests: Sequence[Request], listener: Listener | None = None) -> list[Response | Failed]:
    """Return one response, or the ``RequestError`` in its place, for each request, in order.

    Requests of one kind reach the model in one call. Numbers in responses come back as Python's own, and reasoning is
    split off. Raises ``ModelError`` for what is not a request, and when the model lacks the method, returns another
    number of responses, or returns something else; what the model itself raises comes through. By then ``listener`` has
    been given the responses that were there, as far as the model tells of them while it works.
    """
    __tracebackhide__ = True

    def tell(found: Mapping[int, Response | Failed | None]) -> None:
        if listener is not None:
            listener({place: without_reasoning(requests[place], response) for place, response in found.items()})

    return _arrived(requests, ask_for_raw(model, requests, None if listener is None else tell))


def ask_for_raw(
    model: object, requests: Sequence[Request], listener: Listener | None = None
) -> list[Response | Failed]:
    """Return what ``ask`` does, with the reasoning still in the texts."""
    __tracebackhide__ = True
    answers: dict[int, Response | Failed] = {}
    for kind, places in by_kind(requests):

        def tell(found: Mapping[int, object], kind: RequestKind = kind, places: Sequence[int] = places) -> None:
            answered: dict[int, Response | Failed | None] = {}
            for place, response in found.items():
                with suppress(ModelError, IndexError):  # the call will end with that
                    one = None if response is None else _checked(model, kind, response)
                    if not is_asked_again(model, requests[places[place]], one):
                        answered[places[place]] = one
            if listener is not None and answered:
                listener(answered)

        responses = _call(model, kind, [requests[place] for place in places], tell)
        answers.update(zip(places, responses, strict=True))
    return [answers[place] for place in range(len(requests))]


def ask_samples(model: SampleModel, asked: Sequence[AskedSample]) -> list[Response | Failed]:
    """Return what ``ask`` does for the requests of all samples, in order."""
    __tracebackhide__ = True
    requests = [request for sample in asked for request in sample.requests]
    responses = _listed(model, "answer_samples", model.answer_samples(asked), len(requests), lambda found: None)
    return _arrived(requests, [checked(model, *pair) for pair in zip(requests, responses, strict=True)], recorded=True)


def submitted(model: BackgroundModel, requests: Sequence[Request]) -> list[Future[Response | Failed]]:
    """Give requests to a model that works in the background, and return their futures.

    A reply that a stop string has cut inside of its reasoning is asked for once more, as by ``ask``.
    """
    futures = list(model.submit(requests))
    if len(futures) != len(requests) or getattr(model, "has_stops_behind_reasoning", False):
        return futures
    return [
        _once_more(model, request, future)
        if isinstance(request, GenerateRequest) and request.stop and request.reasoning
        else future
        for request, future in zip(requests, futures, strict=True)
    ]


def _once_more(
    model: BackgroundModel, request: GenerateRequest, first: Future[Response | Failed]
) -> Future[Response | Failed]:
    """Return the future of the reply that is judged: the first, or the second where that one is asked for."""
    found: Future[Response | Failed] = Future()
    asked = [first]

    def on_answer(future: Future[Response | Failed]) -> None:
        if future.cancelled():
            found.cancel()
        try:
            response = None if future.cancelled() else checked(model, request, future.result())
            if future is not first and response is not None:
                response = cut_whole(request, first.result(), response)
            elif is_asked_again(model, request, response) and not found.cancelled():
                asked.extend(model.submit([replace(request, stop=())]))
                asked[-1].add_done_callback(on_answer)
                return
        except BaseException as error:  # in a callback it would be lost, and the wait for the reply have no end
            if found.set_running_or_notify_cancel():
                found.set_exception(error)
        else:
            if found.set_running_or_notify_cancel() and response is not None:
                found.set_result(response)

    def on_cancelled(_: Future[Response | Failed]) -> None:
        if found.cancelled():
            asked[-1].cancel()

    found.add_done_callback(on_cancelled)
    first.add_done_callback(on_answer)
    return found


def received(
    model: object, requests: Sequence[Request], futures: Sequence[Future[Response | Failed]]
) -> list[Response | Failed]:
    """Wait for the futures of these requests (``submitted``), and return what ``ask`` does."""
    __tracebackhide__ = True
    if len(futures) != len(requests):
        raise _error(model, f"submit returned {len(futures)} futures to {len(requests)} requests")
    responses: list[Response | Failed] = []
    for request, future in zip(requests, futures, strict=True):
        try:
            response: object = future.result()
        except RequestError as error:
            response = error
        except CancelledError:
            raise _error(model, "a request was cancelled before it was answered") from None
        responses.append(checked(model, request, response))
    return _arrived(requests, responses)


def _arrived(
    requests: Sequence[Request], responses: Sequence[Response | Failed], *, recorded: bool = False
) -> list[Response | Failed]:
    """Return the responses as they are judged. ``recorded``: nothing says whether they go on where the prompt ends."""
    return [
        without_reasoning(request, response, continues=not recorded)
        for request, response in zip(requests, responses, strict=True)
    ]


def checked(model: object, request: Request, response: object) -> Response | Failed:
    """Return the response to one request, in Python's own numbers. Raises ``ModelError`` for what is no response."""
    return _checked(model, kind_of(request), response)


def _call(
    model: object, kind: RequestKind, requests: Sequence[Request], tell: Callable[[Mapping[int, object]], None]
) -> list[Response | Failed]:
    __tracebackhide__ = True
    method = kind.method
    call = getattr(model, method, None)
    if not callable(call):
        raise _error(model, f"has no method {method}(requests), which this suite's scorer needs")
    backend = model if isinstance(model, Backend) else None
    try:
        if backend is not None:
            backend.set_listener(tell)
        responses = _listed(model, method, call(requests), len(requests), tell)
    finally:
        if backend is not None:
            backend.set_listener(None)
    found = [_checked(model, kind, response) for response in responses]
    if kind.request is not GenerateRequest:
        return found
    return stops_behind_reasoning(model, requests, found, lambda again: _call(model, kind, again, lambda told: None))


def _listed(
    model: object, method: str, returned: object, count: int, tell: Callable[[Mapping[int, object]], None]
) -> list[object]:
    """Return the responses that a method returned; one of a generator is told of as soon as it is yielded."""
    if isinstance(returned, str) or not isinstance(returned, Iterable):
        found = "None" if returned is None else f"a {type(returned).__name__}"
        raise _error(model, f"{method} returned {found}, expected one response for each request")
    if isinstance(returned, list | tuple):
        responses: list[object] = list(returned)
    else:
        responses = []
        for response in returned:
            if response is not None:
                tell({len(responses): response})
            responses.append(response)
    if len(responses) != count:
        tell(dict.fromkeys(range(count)))  # nothing says which response belongs to which request
        raise _error(model, f"{method} returned {len(responses)} responses to {count} requests")
    return responses


def _checked(model: object, kind: RequestKind, response: object) -> Response | Failed:
    """Return the response made of builtins: what a model computes with (numpy, torch) cannot be written to a report."""
    if isinstance(response, RequestError):
        return response
    if not isinstance(response, kind.response):
        raise _error(model, f"{kind.method} returned {type(response).__name__}, expected {kind.response.__name__}")
    try:
        made: Response = kind.as_builtins(response)
    except ValueError as error:
        raise _error(model, f"{kind.method} returned a response whose {error}") from None
    return made


def _error(model: object, problem: str) -> ModelError:
    return ModelError(f"model {identify(model).name}: {problem}")
