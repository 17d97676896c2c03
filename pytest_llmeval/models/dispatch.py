"""Puts requests of every kind to a model, and holds the model to its Protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import Failed, identify
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Request,
    Response,
)

__all__ = ["ask"]

_METHODS: tuple[tuple[type[Request], str, type[Response]], ...] = (
    (LoglikelihoodRequest, "loglikelihood", LoglikelihoodResponse),
    (GenerateRequest, "generate", GenerateResponse),
)


def ask(model: object, requests: Sequence[Request]) -> list[Response | Failed]:
    """One response, or the ``RequestError`` in its place, for each request, in order.

    Requests of one kind reach the model in one call. Raises ``ModelError`` when the model lacks the method, returns
    another number of responses, or returns something else; what the model itself raises comes through.
    """
    answers: dict[int, Response | Failed] = {}
    for kind, method, expected in _METHODS:
        places = [place for place, request in enumerate(requests) if isinstance(request, kind)]
        if not places:
            continue
        call = getattr(model, method, None)
        name = identify(model).name
        if not callable(call):
            raise ModelError(f"model {name} has no method {method}(requests), which this suite's scorer needs")
        returned = call([requests[place] for place in places])
        if isinstance(returned, str) or not isinstance(returned, Iterable):
            found = "None" if returned is None else f"a {type(returned).__name__}"
            raise ModelError(f"model {name}: {method} returned {found}, expected one response for each request")
        responses = list(returned)
        if len(responses) != len(places):
            raise ModelError(f"model {name}: {method} returned {len(responses)} responses to {len(places)} requests")
        for response in responses:
            if not isinstance(response, expected | RequestError):
                found = type(response).__name__
                raise ModelError(f"model {name}: {method} returned {found}, expected {expected.__name__}")
        answers.update(zip(places, responses, strict=True))
    return [answers[place] for place in range(len(requests))]
