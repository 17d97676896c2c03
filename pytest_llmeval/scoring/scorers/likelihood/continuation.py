"""How likely the target is after the prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.scorers.responses import loglikelihoods
from pytest_llmeval.scoring.scorers.targets import quote, target_texts
from pytest_llmeval.suites.format.prompt_spec import GenerateSpec
from pytest_llmeval.suites.format.score_settings.choices import ContinuationSettings
from pytest_llmeval.types import LoglikelihoodRequest, Prompt, Request, Response, Sample, Score

__all__ = ["ContinuationScorer"]


@dataclass(frozen=True, slots=True)
class ContinuationScorer:
    """The target is right where greedy decoding would write it; its log-likelihood is pooled over samples.

    It is lm-eval 0.4.13's output type ``loglikelihood`` (LAMBADA), with its ``acc`` and ``perplexity``. There no
    ``target_delimiter`` stands before the target, so a suite for the same numbers says ``prompt.delimiter: ""`` where
    the target begins with its own white space.
    """

    settings: ContinuationSettings

    @property
    def name(self) -> str:
        return "continuation"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "perplexity", "token_perplexity", "bits_per_byte")

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def present(self, sample: Sample) -> Presented:
        """``ValueError`` for a target that is not one text, or that is empty."""
        texts = target_texts(sample)
        if len(texts) > 1:
            raise ValueError(f"the target is a list of {len(texts)} texts; expected one, whose likelihood is taken")
        if not texts[0].strip():
            raise ValueError(f"the target {quote(texts[0])} is empty: there is nothing whose likelihood could be taken")
        return Presented(sample=sample, references=texts, target=texts[0])

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The target."""
        return presented.references[0]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """The log-likelihood of the delimiter and the target."""
        return (LoglikelihoodRequest(prompt, delimiter + presented.references[0]),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Accuracy, and what the metrics are made of: log-likelihood in nats, tokens, and the target's UTF-8 bytes.

        Bytes leave the delimiter out. A target that greedy decoding would not write has no ``answer``: what the model
        would have written instead is not known.
        """
        (response,) = loglikelihoods(responses, 1)
        target = presented.references[0]
        if response.is_greedy is None:
            reason = "its log-likelihood comes without is_greedy: whether greedy decoding writes the target is unknown"
            return Score(status="unscored", reason=reason)
        is_counted = response.measure == "loglikelihood"
        if response.num_tokens < 1 and is_counted:
            return Score(status="unscored", reason=f"the model counts {response.num_tokens} tokens in the target")
        if not math.isfinite(response.loglikelihood):
            return Score(status="unscored", reason=f"the loglikelihood of the target is {response.loglikelihood}")
        return Score(
            status="correct" if response.is_greedy else "wrong",
            answer=target if response.is_greedy else None,
            values={
                "accuracy": float(response.is_greedy),
                "loglikelihood": response.loglikelihood,
                "samples": 1.0,
                **({"tokens": float(response.num_tokens)} if is_counted else {}),
                "bytes": float(len(target.encode("utf-8", "surrogatepass"))),
            },
        )
