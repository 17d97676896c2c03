"""How well the model predicts a text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.base import Presented
from pytest_llmeval.scoring.scorers.responses import loglikelihoods
from pytest_llmeval.suites.format.schema import GenerateSpec, PerplexitySettings, PromptSpec
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import LoglikelihoodRollingRequest, Prompt, Request, Response, Sample, Score

__all__ = ["PerplexityScorer", "count_words", "prompt_problem"]


def count_words(text: str) -> int:
    """Words as lm-eval 0.4.13 counts them for word perplexity: the parts of the text that white space separates.

    White space at either end makes an empty part there, which counts too.
    """
    return len(re.split(r"\s+", text))


def prompt_problem(prompt: PromptSpec) -> tuple[str, Keys] | None:
    """What of a suite's ``prompt`` has no place where the text itself is scored, and its keys; None if all has."""
    if prompt.chat:
        return "found true; score: perplexity scores a text as it is, without a chat template", ("chat",)
    if prompt.system:
        return "found text, which score: perplexity would score too; remove it", ("system",)
    if prompt.prefix:
        return "found text, which score: perplexity would score too; remove it", ("prefix",)
    if prompt.fewshot is not None and prompt.fewshot.count > 0:
        return "found examples, which score: perplexity would score too; remove them", ("fewshot",)
    return None


@dataclass(frozen=True, slots=True)
class PerplexityScorer:
    """The rendered prompt is the text; its log-likelihood and its length are pooled over samples by the metrics."""

    settings: PerplexitySettings

    @property
    def name(self) -> str:
        return "perplexity"

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity")

    @property
    def default_template(self) -> str:
        return "{{ text if text is defined else question }}"

    def present(self, sample: Sample) -> Presented:
        """The sample as it is: nothing is expected of it."""
        return Presented(sample=sample)

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """Nothing: there are no examples."""
        return ""

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """The log-likelihood of the whole text. ``ValueError`` for an empty one."""
        text = _text(prompt)
        if not text:
            raise ValueError("the text is empty: there is nothing to score; dataset.where can leave such rows out")
        return (LoglikelihoodRollingRequest(text, self.settings.stride),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """The sums that the metrics are made of: log-likelihood in nats, words, UTF-8 bytes and tokens."""
        (response,) = loglikelihoods(responses, 1)
        is_counted = response.measure == "loglikelihood"
        if response.num_tokens < 1 and is_counted:
            return Score(status="unscored", reason=f"the model counts {response.num_tokens} tokens in the text")
        if not math.isfinite(response.loglikelihood):
            return Score(status="unscored", reason=f"the loglikelihood of the text is {response.loglikelihood}")
        text = _text(presented.prompt)
        return Score(
            status="scored",
            values={
                "loglikelihood": response.loglikelihood,
                "words": float(count_words(text)),
                "bytes": float(len(text.encode("utf-8"))),
                **({"tokens": float(response.num_tokens)} if is_counted else {}),
            },
        )


def _text(prompt: Prompt) -> str:
    if not isinstance(prompt, str):
        raise ValueError("score: perplexity scores a text, found the turns of a chat")
    return prompt
