"""The perplexity of whole texts for the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from pytest_llmeval.data.spec import refuse
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer, SuiteView
from pytest_llmeval.scoring.responses import loglikelihoods, text_problem
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import (
    LoglikelihoodRollingRequest,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = ["PerplexityScorer", "PerplexitySettings", "count_words"]


class PerplexitySettings(ScorerSettings):
    """The perplexity of the text for the model: perplexity per word, byte and token, pooled over the samples."""

    kind: Literal["perplexity"] = "perplexity"
    windows: Literal["disjoint", "sliding"] = Field(
        "disjoint",
        description="How a text longer than the model's context is read: in disjoint windows, or in a "
        "sliding window that moves on by stride tokens at a time.",
    )
    stride: int | None = Field(
        None, ge=1, description="Tokens by which a sliding window moves on: fewer give each token more context."
    )
    counted: str | None = Field(
        None,
        min_length=1,
        description="Template of the text whose words and bytes are counted, if it is not the text that is scored: "
        "lm-eval's wikitext scores detokenised pages, and counts those of the pages as they were.",
    )

    @property
    def unused(self) -> tuple[str, ...]:
        """Name ``counted`` where it is not given: then the text that is scored is counted."""
        return ("counted",) if self.counted is None else ()

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """Say why it stands alone: other scorers read a reply, or options."""
        return "perplexity scores whole texts and cannot share requests; give it its own suite", ()

    @model_validator(mode="before")
    @classmethod
    def _a_stride_slides(cls, settings: object) -> object:
        if not isinstance(settings, dict):
            return settings
        windows, has_stride = settings.get("windows"), settings.get("stride") is not None
        if windows == "disjoint" and has_stride:
            raise refuse(
                "score.perplexity: found a stride, with which windows are sliding, not disjoint; remove one of the two"
            )
        if windows == "sliding" and not has_stride:
            raise refuse("score.perplexity: found windows 'sliding' without a stride; add one, such as stride: 512")
        return {**settings, "windows": "sliding"} if has_stride and "windows" not in settings else settings

    def make(self) -> PerplexityScorer:
        return PerplexityScorer.of(self)


def count_words(text: str) -> int:
    """Count words as lm-eval 0.4.13 does for word perplexity: the parts of the text that white space separates.

    White space at either end makes an empty part there, which counts too.
    """
    return len(re.split(r"\s+", text))


class PerplexityScorer(SettingsScorer[PerplexitySettings]):
    """A scorer of the rendered prompt as a text; its log-likelihood and its length are pooled over samples by the
    metrics.
    """

    metrics = ("word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity")
    default_template = "{{ text if text is defined else question }}"

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        """Refuse whatever of a prompt is not the text itself."""
        prompt = suite.spec.prompt
        if prompt.is_chat:
            key = "messages" if prompt.messages is not None else "turns" if prompt.turns is not None else "chat"
            found = "true" if key == "chat" else "a conversation"
            return f"found {found}; score: perplexity scores a text as it is, without a chat template", ("prompt", key)
        for key in ("system", "prefix"):
            if getattr(prompt, key):
                return "found text, which score: perplexity would score too; remove it", ("prompt", key)
        if prompt.fewshot is not None and prompt.fewshot.count > 0:
            found = "found examples, which score: perplexity would score too; remove them"
            return found, ("prompt", "fewshot")
        return None

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        source = self.settings.counted
        return None if source is None else (source, ("score", "perplexity", "counted"))

    def present(self, sample: Sample) -> PreparedSample:
        """Return the sample as it is: nothing is expected of it."""
        return PreparedSample(sample=sample)

    def answer_text(self, presented: PreparedSample) -> str:
        """Return an empty text, since there are no examples."""
        return ""

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for the log-likelihood of the whole text. Raise ``ValueError`` for an empty one."""
        text = _text(prompt)
        if not text:
            raise ValueError("the text is empty: there is nothing to score; dataset.where can leave such rows out")
        return (LoglikelihoodRollingRequest(text, self.settings.stride),)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Return the sums that the metrics are made of: log-likelihood in nats, words, UTF-8 bytes and tokens.

        Tokens are always those of the text that is scored.
        """
        (response,) = loglikelihoods(responses, 1)
        if (problem := text_problem(response, "text")) is not None:
            return Score(status="unscored", reason=problem)
        text = _text(presented.prompt) if self.settings.counted is None else presented.continuation
        if not text:
            return Score(status="unscored", reason="score.perplexity.counted is empty: there is nothing to count")
        return Score(
            status="scored",
            values={
                "loglikelihood": response.loglikelihood,
                "words": float(count_words(text)),
                "bytes": float(len(text.encode("utf-8"))),
                **({"tokens": float(response.num_tokens)} if response.measure == "loglikelihood" else {}),
            },
        )


def _text(prompt: Prompt) -> str:
    if not isinstance(prompt, str):
        raise ValueError("score: perplexity scores a text, found the turns of a chat")
    return prompt
