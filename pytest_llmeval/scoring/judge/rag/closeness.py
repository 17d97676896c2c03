"""How close texts are in meaning, by the vectors that an embedder gives them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Failed
from pytest_llmeval.scoring.judge.rag.formulas import cosine
from pytest_llmeval.scoring.judge.rag.found import Found, Gathering
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.types import JSON, Ask, EmbeddingRequest, EmbeddingResponse, Response

__all__ = ["closeness_of"]


def closeness_of(question: str, texts: Sequence[str]) -> Gathering[Found]:
    """The mean cosine of the texts' vectors with the question's, as it is: it may be below 0.

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
    """Why these are no vectors that can be compared; None where they are."""
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
