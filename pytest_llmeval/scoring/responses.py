"""Responses as scorers need them: of the kind that was asked for, and in numbers that can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.errors import ModelError
from pytest_llmeval.scoring.targets import quote
from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse, Response

__all__ = ["finite_or_none", "loglikelihood_problem", "loglikelihoods", "reply", "softmax"]


def reply(responses: Sequence[Response]) -> str:
    """The text of the one generated response. ``ModelError`` if it is not one."""
    if len(responses) != 1 or not isinstance(responses[0], GenerateResponse):
        raise ModelError(f"expected one GenerateResponse from the model, found {_kinds(responses)}")
    return responses[0].text


def loglikelihoods(responses: Sequence[Response], count: int) -> list[LoglikelihoodResponse]:
    """The responses, if they are ``count`` log-likelihoods. ``ModelError`` if not."""
    found = [response for response in responses if isinstance(response, LoglikelihoodResponse)]
    if len(found) != len(responses) or len(found) != count:
        raise ModelError(f"expected {count} LoglikelihoodResponse from the model, found {_kinds(responses)}")
    return found


def loglikelihood_problem(values: Sequence[float], options: Sequence[str]) -> str | None:
    """Why these log-likelihoods (nats, one per option) cannot be compared; None if they can.

    -inf is an option that the model excludes, which is an answer as long as one option is left; NaN and +inf are none.
    """
    for value, option in zip(values, options, strict=True):
        if math.isnan(value) or value == math.inf:
            return f"the loglikelihood of option {quote(option)} is {value}"
    if all(value == -math.inf for value in values):
        return "the loglikelihood of every option is -inf"
    return None


def softmax(values: Sequence[float]) -> list[float]:
    """``exp(v) / sum(exp(v))``, stable; -inf gets 0. At least one value must be finite, and none NaN or +inf."""
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def finite_or_none(value: float) -> float | None:
    """The value, or None where JSON could not hold it."""
    return value if math.isfinite(value) else None


def _kinds(responses: Sequence[object]) -> str:
    return ", ".join(type(response).__name__ for response in responses[:5]) or "none"
