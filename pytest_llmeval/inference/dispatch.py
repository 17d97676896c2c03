"""Puts requests of every kind to a model, and holds the model to its Protocol."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import Backend, Failed, SampleModel, identify
from pytest_llmeval.types import (
    AskedSample,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Request,
    Response,
)

__all__ = ["ask", "ask_samples", "checked", "received"]

_ROUNDING = 1e-3
_METHODS = (
    (LoglikelihoodRequest, "loglikelihood"),
    (LoglikelihoodRollingRequest, "loglikelihood_rolling"),
    (GenerateRequest, "generate"),
)


def ask(
    model: object, requests: Sequence[Request], finished: dict[int, Response | Failed] | None = None
) -> list[Response | Failed]:
    """One response, or the ``RequestError`` in its place, for each request, in order.

    Requests of one kind reach the model in one call. Numbers in responses come back as Python's own. Raises
    ``ModelError`` when the model lacks the method, returns another number of responses, or returns something else; what
    the model itself raises comes through. Then ``finished`` has the responses that were there by then, by place.
    """
    __tracebackhide__ = True
    answers: dict[int, Response | Failed] = {} if finished is None else finished
    for kind, method in _METHODS:
        places = [place for place, request in enumerate(requests) if isinstance(request, kind)]
        if places:

            def keep(found: Mapping[int, object], method: str = method, places: Sequence[int] = places) -> None:
                for place, response in found.items():
                    with suppress(ModelError, IndexError):  # what ended the call is what there is to say
                        answers[places[place]] = _checked(model, method, response)

            responses = _call(model, method, [requests[place] for place in places], keep)
            answers.update(zip(places, responses, strict=True))
    return [answers[place] for place in range(len(requests))]


def ask_samples(model: SampleModel, asked: Sequence[AskedSample]) -> list[Response | Failed]:
    """One response, or the ``RequestError`` in its place, for each request of each sample, in order. As ``ask``."""
    __tracebackhide__ = True
    requests = [request for sample in asked for request in sample.requests]
    responses = _listed(model, "answer_samples", model.answer_samples(asked), len(requests), lambda found: None)
    return [checked(model, request, response) for request, response in zip(requests, responses, strict=True)]


def received(
    model: object, requests: Sequence[Request], futures: Sequence[Future[Response | Failed]]
) -> list[Response | Failed]:
    """Wait for what ``submit`` has promised for these requests. As ``ask``."""
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
    return responses


def checked(model: object, request: Request, response: object) -> Response | Failed:
    """The response to one request, in Python's own numbers. Raises ``ModelError`` for what is no response to it."""
    return _checked(model, _method_of(request), response)


def _method_of(request: Request) -> str:
    return next(method for kind, method in _METHODS if isinstance(request, kind))


def _call(
    model: object, method: str, requests: Sequence[Request], keep: Callable[[Mapping[int, object]], None]
) -> list[Response | Failed]:
    __tracebackhide__ = True
    call = getattr(model, method, None)
    if not callable(call):
        raise _error(model, f"has no method {method}(requests), which this suite's scorer needs")
    backend = model if isinstance(model, Backend) else None
    try:
        if backend is not None:
            backend.on_stopped = keep
        responses = _listed(model, method, call(requests), len(requests), keep)
    finally:
        if backend is not None:
            backend.on_stopped = None
    return [_checked(model, method, response) for response in responses]


def _listed(
    model: object, method: str, returned: object, count: int, keep: Callable[[Mapping[int, object]], None]
) -> list[object]:
    if isinstance(returned, str) or not isinstance(returned, Iterable):
        found = "None" if returned is None else f"a {type(returned).__name__}"
        raise _error(model, f"{method} returned {found}, expected one response for each request")
    responses: list[object] = []
    try:
        for response in returned:
            responses.append(response)  # noqa: PERF402 - what came before an exception is kept
    except BaseException:  # a generator, in the midst of its work
        keep(dict(enumerate(responses)))
        raise
    if len(responses) != count:
        raise _error(model, f"{method} returned {len(responses)} responses to {count} requests")
    return responses


def _checked(model: object, method: str, response: object) -> Response | Failed:
    """The response made of builtins: what a model computes with (numpy, torch) cannot be written to a report."""
    if method != "generate" and type(response) is LoglikelihoodResponse and _is_plain(response):
        return response
    try:
        if isinstance(response, LoglikelihoodResponse) and method != "generate":
            return LoglikelihoodResponse(
                loglikelihood=_loglikelihood(response.loglikelihood),
                num_tokens=_count("num_tokens", response.num_tokens),
                is_greedy=None if response.is_greedy is None else bool(response.is_greedy),
                num_context_tokens=_count("num_context_tokens", response.num_context_tokens),
                seconds=_seconds(response.seconds),
                measure=response.measure,
                is_timed=bool(response.is_timed),
                asked_at=_time(response.asked_at),
            )
        if isinstance(response, GenerateResponse) and method == "generate":
            return GenerateResponse(
                text=_text(response.text),
                finish_reason="length" if response.finish_reason == "length" else "stop",
                num_prompt_tokens=_count("num_prompt_tokens", response.num_prompt_tokens),
                num_tokens=_count("num_tokens", response.num_tokens),
                seconds=_seconds(response.seconds),
                is_timed=bool(response.is_timed),
                prefill_seconds=None if response.prefill_seconds is None else _seconds(response.prefill_seconds),
                asked_at=_time(response.asked_at),
            )
    except ValueError as error:
        raise _error(model, f"{method} returned a response whose {error}") from None
    if isinstance(response, RequestError):
        return response
    expected = "GenerateResponse" if method == "generate" else "LoglikelihoodResponse"
    raise _error(model, f"{method} returned {type(response).__name__}, expected {expected}")


def _is_plain(response: LoglikelihoodResponse) -> bool:
    """Whether it is made of builtins and in its limits, as is usual: to make another one takes longer than to look."""
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
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"text is {value!r}, expected a str")
    return str(value)


def _loglikelihood(value: object) -> float:
    """A number, at most 0 up to rounding; NaN is for the scorer to refuse."""
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


def _time(value: object) -> float | None:
    return None if value is None else _number("asked_at", value)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}, expected a number") from None


def _error(model: object, problem: str) -> ModelError:
    return ModelError(f"model {identify(model).name}: {problem}")
