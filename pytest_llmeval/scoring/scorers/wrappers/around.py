"""A scorer around another one, which does all but what the outer one does otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.base import Presented, Scorer
from pytest_llmeval.suites.format.prompt_spec import GenerateSpec
from pytest_llmeval.types import Prompt, Request, Response, Sample, Score

__all__ = ["Around"]


@dataclass(frozen=True, slots=True)
class Around:
    """Base of the scorers that add something to any other one."""

    inner: Scorer

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def version(self) -> int:
        return self.inner.version

    @property
    def layer_version(self) -> int:
        """Raised whenever this layer could make another score of the same responses; part of a suite's fingerprint."""
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.inner.metrics

    @property
    def default_template(self) -> str:
        return self.inner.default_template

    def present(self, sample: Sample) -> Presented:
        """As the inner scorer does."""
        return self.inner.present(sample)

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """The inner scorer's."""
        return self.inner.variables(presented)

    def answer_text(self, presented: Presented) -> str:
        """The inner scorer's."""
        return self.inner.answer_text(presented)

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """The inner scorer's."""
        return self.inner.requests(presented, prompt, delimiter=delimiter, generate=generate)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """As the inner scorer does."""
        return self.inner.score(presented, responses)
