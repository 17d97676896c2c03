"""Puts requests of every kind to a model, and holds the model to its Protocol.

A table (``REQUEST_KINDS``) has an entry for every kind of request: the method that is asked, what a response has to be,
and when it is whole. Here replies arrive, whatever model or judge gives them, and here their reasoning is split off and
tool calls are read.
The store of replies is between: what it asks for (``ask_for_raw``, ``submitted``) and keeps is as the model wrote it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference.conversations import ask_turns, submit_turns
from pytest_llmeval.inference.futures import Reply, chain
from pytest_llmeval.models.base import Backend, BackgroundModel, Failed, Listener, SampleModel, identify
from pytest_llmeval.models.reasoning import (
    cut_whole,
    is_asked_again,
    stops_behind_reasoning,
    was_cut_in_reasoning,
    without_reasoning,
)
from pytest_llmeval.text.documents import found_documents
from pytest_llmeval.text.tool_calls import read_tool_calls, with_tool_calls
from pytest_llmeval.text.traces import trace_steps
from pytest_llmeval.types import (
    JSON,
    AskedSample,
    ConversationRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Request,
    Response,
    ToolCall,
    who_served,
)

__all__ = [
    "REQUEST_KINDS",
    "InFlight",
    "RequestKind",
    "ask",
    "ask_for_raw",
    "ask_samples",
    "ask_together",
    "checked",
    "kind_named",
    "kind_of",
    "received",
    "submitted",
]

_R = TypeVar("_R")
_ROUNDING = 1e-3
"""The largest log-likelihood above 0 that is taken for a rounding error."""


class RequestKind(NamedTuple):
    """One kind of request.

    ``method`` is the model's method that answers it, and the kind's name in a store. ``as_builtins`` gives the response
    in Python's own numbers, and raises ``ValueError`` for a wrong value. ``is_whole`` says of a request and its
    response whether the response is all that was asked for: only such a one is kept in a store.
    """

    method: str
    request: type[Any]
    response: type[Any]
    as_builtins: Callable[[Any], Any]
    is_whole: Callable[[Any, Any], bool]


def kind_of(request: object) -> RequestKind:
    """Return the kind of a request, which may be of a subclass. Raises ``ModelError`` for what is not a request."""
    for kind in REQUEST_KINDS:
        if isinstance(request, kind.request):
            return kind
    names = ", ".join(kind.request.__name__ for kind in REQUEST_KINDS)
    raise ModelError(f"found a {type(request).__name__} among the requests to a model, expected one of: {names}")


def kind_named(method: str) -> RequestKind:
    """Return the kind of this name. Raises ``KeyError``."""
    return {kind.method: kind for kind in REQUEST_KINDS}[method]


def _by_kind(requests: Sequence[Request]) -> Iterator[tuple[RequestKind, list[int]]]:
    """Return the kinds of the requests in the order of the table, each with the places of its requests. Raises what
    ``kind_of`` does.
    """
    kinds = [kind_of(request) for request in requests]
    for kind in REQUEST_KINDS:
        if places := [place for place, found in enumerate(kinds) if found is kind]:
            yield kind, places


def _loglikelihood_response(response: LoglikelihoodResponse) -> LoglikelihoodResponse:
    if type(response) is LoglikelihoodResponse and _is_plain(response):
        return response
    return LoglikelihoodResponse(
        loglikelihood=_loglikelihood(response.loglikelihood),
        num_tokens=_count("num_tokens", response.num_tokens),
        is_greedy=None if response.is_greedy is None else bool(response.is_greedy),
        num_context_tokens=_count("num_context_tokens", response.num_context_tokens),
        seconds=_seconds(response.seconds),
        measure=response.measure,
        is_timed=bool(response.is_timed),
        asked_at=_time(response.asked_at),
        kept_as=None if response.kept_as is None else _text(response.kept_as),
        **_server_fields(response),
    )


def _generate_response(response: GenerateResponse) -> GenerateResponse:
    return GenerateResponse(
        text=_text(response.text),
        finish_reason="length" if response.finish_reason == "length" else "stop",
        num_prompt_tokens=_count("num_prompt_tokens", response.num_prompt_tokens),
        num_tokens=_count("num_tokens", response.num_tokens),
        seconds=_seconds(response.seconds),
        is_timed=bool(response.is_timed),
        prefill_seconds=None if response.prefill_seconds is None else _seconds(response.prefill_seconds),
        asked_at=_time(response.asked_at),
        kept_as=None if response.kept_as is None else _text(response.kept_as),
        contexts=None if response.contexts is None else _texts("contexts", response.contexts),
        documents=None if response.documents is None else found_documents(response.documents),
        has_text=bool(response.has_text),
        trace=None if response.trace is None else _trace(response.trace),
        reasoning=None if response.reasoning is None else _text(response.reasoning, "reasoning"),
        is_unfinished=bool(response.is_unfinished),
        tagged=None if response.tagged is None else _text(response.tagged, "tagged"),
        tool_calls=None if response.tool_calls is None else _tool_calls(response.tool_calls),
        turns=tuple(map(_generate_response, response.turns)),
        **_server_fields(response),
    )


def _embedding_response(response: EmbeddingResponse) -> EmbeddingResponse:
    return EmbeddingResponse(
        vector=_vector(response.vector),
        num_prompt_tokens=_count("num_prompt_tokens", response.num_prompt_tokens),
        num_tokens=_count("num_tokens", response.num_tokens),
        seconds=_seconds(response.seconds),
        is_timed=bool(response.is_timed),
        asked_at=_time(response.asked_at),
        kept_as=None if response.kept_as is None else _text(response.kept_as),
        **_server_fields(response),
    )


def _is_finite(request: object, response: LoglikelihoodResponse) -> bool:
    return math.isfinite(response.loglikelihood)


def _is_uncut(request: GenerateRequest, response: GenerateResponse) -> bool:
    """Return whether a reply was not cut short: by the server's context before ``max_tokens``, or by a stop string
    inside of its reasoning.

    A text of ``max_tokens`` tokens is what was asked for; where the server does not count them, it may have been cut.
    """
    is_short = response.finish_reason == "length" and response.num_tokens < request.max_tokens
    return not is_short and not was_cut_in_reasoning(request, response)


def _is_there(request: object, response: object) -> bool:
    return True


def _is_plain(response: LoglikelihoodResponse) -> bool:
    """Return whether the response is made of builtins within their limits, as is usual: looking is faster than making
    another one.
    """
    return (
        type(response.loglikelihood) is float
        and not response.loglikelihood > _ROUNDING
        and type(response.num_tokens) is int is type(response.num_context_tokens)
        and response.num_tokens >= 0 <= response.num_context_tokens
        and (response.is_greedy is None or type(response.is_greedy) is bool)
        and type(response.seconds) is float
        and 0 <= response.seconds < math.inf
        and type(response.is_timed) is bool
        and (response.asked_at is None or type(response.asked_at) is float)
        and (response.kept_as is None or type(response.kept_as) is str)
        and (response.served_model is None or type(response.served_model) is str)
        and (response.system_fingerprint is None or type(response.system_fingerprint) is str)
        and response.cost is None
    )


def _text(value: object, name: str = "text") -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, expected a str")
    return str(value)


def _tool_calls(value: object) -> tuple[ToolCall, ...]:
    try:
        return read_tool_calls(value)
    except ValueError as error:
        raise ValueError(f"tool_calls: {error}") from None


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f"{name} is {value!r}, expected a list or tuple of str")
    return tuple(map(str, value))


def _vector(value: object) -> tuple[float, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"vector is {value!r}, expected numbers")
    numbers = tuple(_number("vector", entry) for entry in value)
    if not numbers:
        raise ValueError("vector is empty, expected numbers")
    for number in numbers:
        if not math.isfinite(number):
            raise ValueError(f"vector holds {number!r}, expected finite numbers")
    return numbers


def _loglikelihood(value: object) -> float:
    """Return a number, at most 0 up to rounding; NaN is for the scorer to refuse."""
    number = _number("loglikelihood", value)
    if number > _ROUNDING:
        raise ValueError(f"loglikelihood is {value!r}, expected at most 0")
    return number


def _count(name: str, value: object) -> int:
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"{name} is {value!r}, expected a whole number, 0 or more")
    return count


def _seconds(value: object) -> float:
    seconds = _number("seconds", value)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds is {value!r}, expected a finite number, 0 or more")
    return seconds


def _cost(value: object) -> float:
    cost = _number("cost", value)
    if not 0 <= cost < math.inf:
        raise ValueError(f"cost is {value!r}, expected a finite number, 0 or more")
    return cost


def _trace(value: object) -> tuple[JSON, ...]:
    try:
        return trace_steps(value)
    except ValueError as error:
        raise ValueError(f"trace is one of which {error}") from None


def _time(value: object) -> float | None:
    return None if value is None else _number("asked_at", value)


def _server_fields(response: Response) -> dict[str, Any]:
    model, fingerprint = (None if name is None else _text(name) for name in who_served(response))
    cost = None if response.cost is None else _cost(response.cost)
    return {"served_model": model, "system_fingerprint": fingerprint, "cost": cost}


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}, expected a number") from None


_LOGLIKELIHOOD = (LoglikelihoodResponse, _loglikelihood_response, _is_finite)

REQUEST_KINDS = (
    RequestKind("loglikelihood", LoglikelihoodRequest, *_LOGLIKELIHOOD),
    RequestKind("loglikelihood_rolling", LoglikelihoodRollingRequest, *_LOGLIKELIHOOD),
    RequestKind("generate", GenerateRequest, GenerateResponse, _generate_response, _is_uncut),
    RequestKind("embed", EmbeddingRequest, EmbeddingResponse, _embedding_response, _is_there),
)


def ask(model: object, requests: Sequence[Request], listener: Listener | None = None) -> list[Response | Failed]:
    """Return one response, or the ``RequestError`` in its place, for each request, in order.

    Requests of one kind reach the model in one call, conversations in one for each turn. Numbers in responses come back
    as Python's own, and reasoning is split off. Raises ``ModelError`` for what is not a request, and when the model
    lacks the method, returns another number of responses, or returns something else; what the model itself raises comes
    through. By then ``listener`` has been given the responses that were there, as far as the model tells of them while
    it works.
    """
    __tracebackhide__ = True

    def ask_once(asked: Sequence[Request], told: Listener | None) -> list[Response | Failed]:
        __tracebackhide__ = True

        def tell(found: Mapping[int, Response | Failed | None]) -> None:
            if told is not None:
                told({place: _as_judged(asked[place], response) for place, response in found.items()})

        return _arrived(asked, ask_for_raw(model, asked, None if told is None else tell))

    return ask_turns(requests, listener, ask_once)


def ask_for_raw(
    model: object, requests: Sequence[Request], listener: Listener | None = None
) -> list[Response | Failed]:
    """Return what ``ask`` does, with the reasoning still in the texts."""
    __tracebackhide__ = True
    answers: dict[int, Response | Failed] = {}
    for kind, places in _by_kind(requests):

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
    answers = [checked(model, *pair) for pair in zip(requests, responses, strict=True)]
    arrived = _arrived(requests, answers, recorded=True)
    return [_with_turns_judged(*pair) for pair in zip(requests, arrived, strict=True)]


def _with_turns_judged(request: Request, response: Response | Failed) -> Response | Failed:
    """Return a recorded reply with the earlier ones of its conversation as they are judged, too."""
    if not isinstance(response, GenerateResponse) or not response.turns:
        return response
    return replace(response, turns=tuple(_as_judged(request, one, continues=False) for one in response.turns))


def submitted(model: BackgroundModel, requests: Sequence[Request]) -> list[Reply]:
    """Give requests to a model that works in the background, and return their futures.

    A reply that a stop string has cut inside of its reasoning is asked for once more, as by ``ask``. A turn of a
    conversation is asked for as soon as the reply to the one before is there.
    """
    if any(isinstance(request, ConversationRequest) for request in requests):
        return [_submitted_alone(model, request) for request in requests]
    futures = list(model.submit(requests))
    if len(futures) != len(requests) or getattr(model, "has_stops_behind_reasoning", False):
        return futures
    return [
        _once_more(model, request, future)
        if isinstance(request, GenerateRequest) and request.stop and request.reasoning
        else future
        for request, future in zip(requests, futures, strict=True)
    ]


def _submitted_alone(model: BackgroundModel, request: Request) -> Reply:
    if isinstance(request, ConversationRequest):
        return submit_turns(
            request,
            lambda turn: _submitted_alone(model, turn),
            lambda turn, answer: _as_judged(turn, checked(model, turn, answer)),
        )
    futures = submitted(model, [request])
    if len(futures) != 1:
        raise _error(model, f"submit returned {len(futures)} futures to 1 request")
    return futures[0]


def _once_more(model: BackgroundModel, request: GenerateRequest, first: Reply) -> Reply:
    """Return the future of the reply that is judged: the first, or the second where that one is asked for."""

    def then(done: Reply) -> Reply | Response | Failed:
        response = checked(model, request, done.result())
        if done is not first:
            return cut_whole(request, first.result(), response)
        if is_asked_again(model, request, response):
            return _submitted_alone(model, replace(request, stop=()))
        return response

    return chain(first, then)


def received(model: object, requests: Sequence[Request], futures: Sequence[Reply]) -> list[Response | Failed]:
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


def ask_together(
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
    if key in keys:
        ask_for([key])


def _arrived(
    requests: Sequence[Request], responses: Sequence[Response | Failed], *, recorded: bool = False
) -> list[Response | Failed]:
    """Return the responses as they are judged. ``recorded``: nothing says whether they go on where the prompt ends."""
    return [
        _as_judged(request, response, continues=not recorded)
        for request, response in zip(requests, responses, strict=True)
    ]


def _as_judged(request: Request, response: _R, *, continues: bool = True) -> _R:
    """Return a response without its reasoning, and with the tool calls that its text holds, if it was given tools."""
    return with_tool_calls(request, without_reasoning(request, response, continues=continues))


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
