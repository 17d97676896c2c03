"""The formulas of metrics of retrieval-augmented generation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.scorers.judging.rag_contexts import Found, Gathering
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.types import JSON, Ask, EmbeddingRequest, EmbeddingResponse, Response

__all__ = ["average_precision", "closeness_of", "cosine", "share"]


def share(verdicts: Sequence[bool]) -> float:
    """Share of the claims that are supported. ``ZeroDivisionError`` for none."""
    return sum(verdicts) / len(verdicts)


def average_precision(relevant: Sequence[bool]) -> float:
    """Return the mean, over the relevant ranks, of the precision at each; 0 if no chunk (in rank order) is relevant.

    The sum is divided by the relevant chunks that were retrieved: how many there are beyond them is not known. ragas
    (``LLMContextPrecisionWithReference``) has the same number, but for the 1e-10 that it adds to the divisor.
    """
    precisions: list[float] = []
    for rank, is_relevant in enumerate(relevant, 1):
        if is_relevant:
            precisions.append((len(precisions) + 1) / rank)
    return math.fsum(precisions) / len(precisions) if precisions else 0.0


def cosine(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the cosine of the angle between two vectors of finite numbers; None where one of them is zero and has no
    angle.

    ``ValueError`` where their lengths differ.
    """
    left, right = _of_unit_length(one), _of_unit_length(other)
    if left is None or right is None:
        return None
    product = math.fsum(x * y for x, y in zip(left, right, strict=True))
    return min(1.0, max(-1.0, product))  # rounding alone goes beyond


def _of_unit_length(vector: Sequence[float]) -> list[float] | None:
    largest = max(map(abs, vector), default=0.0)
    if not largest:
        return None
    scaled = [x / largest for x in vector]  # the squares of what is left neither overflow nor vanish
    length = math.sqrt(math.fsum(x * x for x in scaled))
    return [x / length for x in scaled]


def closeness_of(question: str, texts: Sequence[str]) -> Gathering[Found]:
    """Return the mean cosine of the texts' vectors with the question's, as it is: it may be below 0.

    Not measurable where a vector is zero, which has no direction. All vectors are asked for together.
    """
    answers = yield Ask("embedder", tuple(EmbeddingRequest(text) for text in (question, *texts)))
    embeddings = [answer for answer in answers if isinstance(answer, EmbeddingResponse)]
    took: dict[str, JSON] = {
        "num_prompt_tokens": sum(one.num_prompt_tokens for one in embeddings),
        "num_tokens": sum(one.num_tokens for one in embeddings),
        "seconds": math.fsum(one.seconds for one in embeddings),
    }
    if (problem := _problem(answers)) is not None:
        return Found(problem=problem, verdicts=({"asked": "embeddings", "problem": problem, **took},))
    first, *others = [one.vector for one in embeddings]
    cosines = [cosine(first, other) for other in others]
    value: list[JSON] = [{"question": text, "cosine": one} for text, one in zip(texts, cosines, strict=True)]
    shown = {"asked": "embeddings", "value": value, **took}
    known = [one for one in cosines if one is not None]
    if len(known) < len(cosines):
        return Found(reason="an embedding is the zero vector", verdicts=(shown,))
    return Found(value=math.fsum(known) / len(known), verdicts=(shown,))


def _problem(answers: Sequence[Response | Failed]) -> str | None:
    """Return why these are no vectors that can be compared; None where they are."""
    lengths: list[int] = []
    for answer in answers:
        if isinstance(answer, RequestError):
            return f"the embedder: {first_line(str(answer))}"
        if not isinstance(answer, EmbeddingResponse):
            return f"the embedder: found a {type(answer).__name__}, expected an embedding"
        lengths.append(len(answer.vector))
    if len(set(lengths)) > 1:
        return (
            f"the embedder: found vectors of {min(lengths)} and of {max(lengths)} numbers, expected vectors of one "
            "length"
        )
    return None
