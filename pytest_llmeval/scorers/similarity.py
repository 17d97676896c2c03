"""Score a reply by how close it is in meaning to the targets, by the embeddings of an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging.embeddings import cosine, embeddings
from pytest_llmeval.scoring.base import AskingScorer, PreparedSample, ScorerSettings
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import reply
from pytest_llmeval.types import JSON, Response, Role, Sample, Score

__all__ = ["SimilarityScorer", "SimilaritySettings"]


class SimilaritySettings(ScorerSettings):
    """The cosine of the embeddings of the reply and of the nearest target (`--llm-embedder`)."""

    kind: Literal["similarity"] = "similarity"
    pass_: float | None = Field(
        None,
        alias="pass",
        gt=-1,
        le=1,
        description="A reply is right if its cosine is at least this. Default: nothing is right or wrong.",
    )

    def make(self) -> SimilarityScorer:
        return SimilarityScorer.of(self)


_ROUNDING = 1e-9
"""The cosine of a text with itself may be that much below 1."""


class SimilarityScorer(AskingScorer[SimilaritySettings]):
    """``similarity`` is the cosine with the nearest target; a reply is right where it reaches ``pass``."""

    @property
    def metrics(self) -> tuple[str, ...]:
        own = ("similarity", "no_answer")
        return own if self.settings.pass_ is None else ("accuracy", *own)

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset(("embedder",))

    def present(self, sample: Sample) -> PreparedSample:
        """Raise ``ValueError`` for a target without text: there is nothing that a reply could be close to."""
        presented = super().present(sample)
        for target in presented.references:
            if not target.strip():
                raise ValueError(f"the target {quote(target)} has no text; expected one that a reply can be close to")
        return presented

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Ask for the embeddings of the reply and of all targets; unscored unless there are all of them.

        An empty reply is close to nothing: 0, and no answer, without a request. Not measurable where the reply's
        embedding, or that of every target, is the zero vector, which has no direction.
        """
        text = reply(responses)
        if not text.strip():
            return self._score(0.0, None, {})
        found = yield from embeddings((text, *presented.references))
        if found.problem is not None:
            shown: JSON = {"asked": "embeddings", "problem": found.problem, **found.took}
            return Score(status="unscored", reason=f"no embedding: {found.problem}", details={"verdicts": [shown]})
        first, *others = found.vectors
        cosines = [cosine(first, other) for other in others]
        value: list[JSON] = [
            {"target": target, "cosine": one} for target, one in zip(presented.references, cosines, strict=True)
        ]
        details: dict[str, JSON] = {"verdicts": [{"asked": "embeddings", "value": value, **found.took}]}
        known = [one for one in cosines if one is not None]
        if not known:
            reasons = {name: "an embedding is the zero vector" for name in self.metrics if name != "no_answer"}
            return Score(status="scored", answer=text, details=details, not_measurable=reasons)
        return self._score(max(known), text, details)

    def _score(self, similarity: float, answer: str | None, details: dict[str, JSON]) -> Score:
        values, least = {"similarity": similarity}, self.settings.pass_
        if least is None:
            return Score(status="scored", answer=answer, no_answer=answer is None, values=values, details=details)
        is_right = answer is not None and similarity >= least - _ROUNDING
        return Score(
            status="correct" if is_right else "wrong",
            answer=answer,
            no_answer=answer is None,
            values={"accuracy": float(is_right), **values},
            details=details,
        )
