"""Responses as scorers need them: of the kind that was asked for, and in numbers that can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_llmeval.errors import ModelError
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.types import JSON, GenerateResponse, LoglikelihoodResponse, Response, Score, Status

__all__ = [
    "finite_or_none",
    "loglikelihood_problem",
    "loglikelihoods",
    "reply",
    "right_or_wrong",
    "said_to_be_cut",
    "status_of_credit",
    "text_problem",
    "two_ends",
]

MAX_END = 100_000
"""Characters at either end of a reply in which ``letter`` and ``yes_no`` look for its answer."""
_NO_VALUES: Mapping[str, float] = MappingProxyType({})


def reply(responses: Sequence[Response]) -> str:
    """Return the text of the one generated response. Raise ``ModelError`` if it is not one, or documents that were
    found alone.
    """
    if len(responses) != 1 or not isinstance(responses[0], GenerateResponse):
        raise ModelError(f"expected one GenerateResponse from the model, found {_kinds(responses)}")
    if not responses[0].has_text:
        raise ModelError("the model returned documents and no text; score: retrieval judges documents")
    return responses[0].text


def two_ends(text: str) -> tuple[str, dict[str, JSON]]:
    """Return a reply's first and last ``MAX_END`` characters where it is longer, which details then say; else the
    reply.
    """
    if len(text) <= 2 * MAX_END:
        return text, {}
    return f"{text[:MAX_END]}\n{text[-MAX_END:]}", said_to_be_cut(text, 2 * MAX_END)


def said_to_be_cut(text: str, judged_chars: int) -> dict[str, JSON]:
    """Return entries for ``details`` where no more than ``judged_chars`` characters of a reply are judged; else no
    entries.
    """
    return {"reply_chars": len(text), "judged_chars": judged_chars} if len(text) > judged_chars else {}


def loglikelihoods(responses: Sequence[Response], count: int) -> list[LoglikelihoodResponse]:
    """Return the responses, if they are ``count`` log-likelihoods. Raise ``ModelError`` if not."""
    found = [response for response in responses if isinstance(response, LoglikelihoodResponse)]
    if len(found) != len(responses) or len(found) != count:
        raise ModelError(f"expected {count} LoglikelihoodResponse from the model, found {_kinds(responses)}")
    return found


def loglikelihood_problem(values: Sequence[float], options: Sequence[str]) -> str | None:
    """Return why these log-likelihoods (nats, one per option) cannot be compared; None if they can.

    -inf is an option that the model excludes, which is an answer as long as one option is left; NaN and +inf are none.
    """
    for value, option in zip(values, options, strict=True):
        if math.isnan(value) or value == math.inf:
            return f"the loglikelihood of option {quote(option)} is {value}"
    if all(value == -math.inf for value in values):
        return "the loglikelihood of every option is -inf"
    return None


def text_problem(response: LoglikelihoodResponse, text: str) -> str | None:
    """Return why the likelihood of a whole text ("target") cannot be used; None if it can."""
    if response.num_tokens < 1 and response.measure == "loglikelihood":
        return f"the model reports {response.num_tokens} tokens in the {text}"
    if not math.isfinite(response.loglikelihood):
        return f"the loglikelihood of the {text} is {response.loglikelihood}"
    return None


def right_or_wrong(
    correct: bool,
    answer: str | None,
    *,
    values: Mapping[str, float] = _NO_VALUES,
    details: Mapping[str, JSON] | None = None,
    chance: float | None = None,
    vote: str | None = None,
) -> Score:
    """Return the score of an answer: accuracy, then the other ``values``. Wrong and without one, the reply held no
    answer.
    """
    return Score(
        status="correct" if correct else "wrong",
        answer=answer,
        no_answer=answer is None and not correct,
        values={"accuracy": float(correct), **values},
        chance=chance,
        details=details or {},
        vote=vote,
    )


def status_of_credit(credit: float) -> Status:
    """Return right for 1, wrong for 0, and for what lies between a status that is neither: the rule of ``reduce: mean``
    too.
    """
    return "correct" if credit == 1.0 else "wrong" if credit == 0.0 else "scored"


def finite_or_none(value: float) -> float | None:
    """Return the value, or None where JSON could not hold it."""
    return value if math.isfinite(value) else None


def _kinds(responses: Sequence[object]) -> str:
    return ", ".join(type(response).__name__ for response in responses[:5]) or "none"
