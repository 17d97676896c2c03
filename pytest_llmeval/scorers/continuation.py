"""The likelihood of the target as the continuation of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.references import quote, target_texts
from pytest_llmeval.scoring.responses import loglikelihoods, text_problem
from pytest_llmeval.types import (
    LoglikelihoodRequest,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = ["ContinuationScorer", "ContinuationSettings"]


class ContinuationSettings(ScorerSettings):
    """The likelihood of the target after the prompt, and whether greedy decoding would write it."""

    kind: Literal["continuation"] = "continuation"

    def make(self) -> ContinuationScorer:
        return ContinuationScorer.of(self)


class ContinuationScorer(SettingsScorer[ContinuationSettings]):
    """A scorer that is right where greedy decoding would write the target; its log-likelihood is pooled over samples.

    It is lm-eval 0.4.13's output type ``loglikelihood`` (LAMBADA), with its ``acc`` and ``perplexity``. There no
    ``target_delimiter`` stands before the target, so a suite for the same numbers says ``prompt.delimiter: ""`` where
    the target begins with its own white space.
    """

    metrics = ("accuracy", "perplexity", "token_perplexity", "bits_per_byte")

    def present(self, sample: Sample) -> PreparedSample:
        """Raise ``ValueError`` for a target that is not one text, or that is empty."""
        texts = target_texts(sample)
        if len(texts) > 1:
            raise ValueError(f"the target is a list of {len(texts)} texts; expected one text")
        if not texts[0].strip():
            raise ValueError(f"the target {quote(texts[0])} is empty: there is nothing to score")
        return PreparedSample(sample=sample, references=texts, target=texts[0])

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        return (LoglikelihoodRequest(prompt, delimiter + presented.references[0]),)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge accuracy, and return what the metrics are made of: log-likelihood in nats, tokens, and the target's
        UTF-8 bytes.

        Bytes leave the delimiter out. A target that greedy decoding would not write has no ``answer``: what the model
        would have written instead is not known.
        """
        (response,) = loglikelihoods(responses, 1)
        target = presented.references[0]
        if response.is_greedy is None:
            reason = "its log-likelihood comes without is_greedy: whether greedy decoding writes the target is unknown"
            return Score(status="unscored", reason=reason)
        if (problem := text_problem(response, "target")) is not None:
            return Score(status="unscored", reason=problem)
        return Score(
            status="correct" if response.is_greedy else "wrong",
            answer=target if response.is_greedy else None,
            values={
                "accuracy": float(response.is_greedy),
                "loglikelihood": response.loglikelihood,
                "samples": 1.0,
                **({"tokens": float(response.num_tokens)} if response.measure == "loglikelihood" else {}),
                "bytes": float(len(target.encode("utf-8", "surrogatepass"))),
            },
        )
