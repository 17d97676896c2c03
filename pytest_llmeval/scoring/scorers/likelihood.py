"""How likely a text is: the target after the prompt, or the prompt itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import Presented, SettingsScorer
from pytest_llmeval.scoring.scorers.responses import loglikelihoods, text_problem
from pytest_llmeval.scoring.targets import quote, target_texts
from pytest_llmeval.suites.format.score_settings.choices import ContinuationSettings, PerplexitySettings
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import (
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
)

__all__ = ["ContinuationScorer", "PerplexityScorer", "count_words"]


class ContinuationScorer(SettingsScorer[ContinuationSettings]):
    """A scorer that is right where greedy decoding would write the target; its log-likelihood is pooled over samples.

    It is lm-eval 0.4.13's output type ``loglikelihood`` (LAMBADA), with its ``acc`` and ``perplexity``. There no
    ``target_delimiter`` stands before the target, so a suite for the same numbers says ``prompt.delimiter: ""`` where
    the target begins with its own white space.
    """

    metrics = ("accuracy", "perplexity", "token_perplexity", "bits_per_byte")

    def present(self, sample: Sample) -> Presented:
        """Raise ``ValueError`` for a target that is not one text, or that is empty."""
        texts = target_texts(sample)
        if len(texts) > 1:
            raise ValueError(f"the target is a list of {len(texts)} texts; expected one text")
        if not texts[0].strip():
            raise ValueError(f"the target {quote(texts[0])} is empty: there is nothing to score")
        return Presented(sample=sample, references=texts, target=texts[0])

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        return (LoglikelihoodRequest(prompt, delimiter + presented.references[0]),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
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

    def suite_problem(self, suite: Suite) -> tuple[str, Keys] | None:
        """Refuse whatever of a prompt is not the text itself."""
        prompt = suite.spec.prompt
        if prompt.chat:
            return "found true; score: perplexity scores a text as it is, without a chat template", ("prompt", "chat")
        for key in ("system", "prefix"):
            if getattr(prompt, key):
                return "found text, which score: perplexity would score too; remove it", ("prompt", key)
        if prompt.fewshot is not None and prompt.fewshot.count > 0:
            found = "found examples, which score: perplexity would score too; remove them"
            return found, ("prompt", "fewshot")
        return None

    def present(self, sample: Sample) -> Presented:
        """Return the sample as it is: nothing is expected of it."""
        return Presented(sample=sample)

    def answer_text(self, presented: Presented) -> str:
        """Return an empty text, since there are no examples."""
        return ""

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for the log-likelihood of the whole text. Raise ``ValueError`` for an empty one."""
        text = _text(prompt)
        if not text:
            raise ValueError("the text is empty: there is nothing to score; dataset.where can leave such rows out")
        return (LoglikelihoodRollingRequest(text, self.settings.stride),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """Return the sums that the metrics are made of: log-likelihood in nats, words, UTF-8 bytes and tokens."""
        (response,) = loglikelihoods(responses, 1)
        if (problem := text_problem(response, "text")) is not None:
            return Score(status="unscored", reason=problem)
        text = _text(presented.prompt)
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
