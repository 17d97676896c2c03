"""Embeddings of texts, as scorers ask for them, and the angles between them."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.types import JSON, Ask, EmbeddingRequest, EmbeddingResponse, Response

__all__ = ["Embeddings", "cosine", "embeddings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """The vectors of some texts, in their order; or the ``problem``, why they cannot be compared.

    ``took`` is the number of tokens and seconds, as a report shows them.
    """

    vectors: tuple[tuple[float, ...], ...] = ()
    problem: str | None = None
    took: Mapping[str, JSON]


def embeddings(texts: Sequence[str]) -> Generator[Ask, Sequence[Response | Failed], Embeddings]:
    """Ask the embedder for the vectors of all texts together."""
    answers = yield Ask("embedder", tuple(EmbeddingRequest(text) for text in texts))
    found = [answer for answer in answers if isinstance(answer, EmbeddingResponse)]
    took: dict[str, JSON] = {
        "num_prompt_tokens": sum(one.num_prompt_tokens for one in found),
        "num_tokens": sum(one.num_tokens for one in found),
        "seconds": math.fsum(one.seconds for one in found),
    }
    if (problem := _problem(answers)) is not None:
        return Embeddings(problem=problem, took=took)
    return Embeddings(vectors=tuple(tuple(one.vector) for one in found), took=took)


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
