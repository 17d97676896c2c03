"""Every kind of request that a model is asked, and what a response to it has to be: one entry of a table for each.

Asking a model, checking what it returns, and the store of replies go by this table.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.reasoning import was_cut_in_reasoning
from pytest_llmeval.text.documents import found_documents
from pytest_llmeval.text.traces import trace_steps
from pytest_llmeval.types import (
    JSON,
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Request,
    Response,
    who_served,
)

__all__ = ["REQUEST_KINDS", "RequestKind", "by_kind", "kind_named", "kind_of"]

_ROUNDING = 1e-3


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
    for kind in REQUEST_KINDS:
        if kind.method == method:
            return kind
    raise KeyError(method)


def by_kind(requests: Sequence[Request]) -> Iterator[tuple[RequestKind, list[int]]]:
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
        **_served(response),
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
        cost=None if response.cost is None else _cost(response.cost),
        trace=None if response.trace is None else _trace(response.trace),
        reasoning=None if response.reasoning is None else _text(response.reasoning, "reasoning"),
        is_unfinished=bool(response.is_unfinished),
        tagged=None if response.tagged is None else _text(response.tagged, "tagged"),
        **_served(response),
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
        **_served(response),
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
    """Return whether it is made of builtins and in its limits, as is usual: to make another one takes longer than to
    look.
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
    )


def _text(value: object, name: str = "text") -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, expected a str")
    return str(value)


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


class _Served(TypedDict):
    served_model: str | None
    system_fingerprint: str | None


def _served(response: Response) -> _Served:
    model, fingerprint = (None if name is None else _text(name) for name in who_served(response))
    return _Served(served_model=model, system_fingerprint=fingerprint)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}, expected a number") from None


_OF_LOGLIKELIHOOD = (LoglikelihoodResponse, _loglikelihood_response, _is_finite)

REQUEST_KINDS = (
    RequestKind("loglikelihood", LoglikelihoodRequest, *_OF_LOGLIKELIHOOD),
    RequestKind("loglikelihood_rolling", LoglikelihoodRollingRequest, *_OF_LOGLIKELIHOOD),
    RequestKind("generate", GenerateRequest, GenerateResponse, _generate_response, _is_uncut),
    RequestKind("embed", EmbeddingRequest, EmbeddingResponse, _embedding_response, _is_there),
)
