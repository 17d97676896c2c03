"""The base class of scorers around another scorer, to which they pass on everything that they do not override."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.scoring.base import Better, Presented, Scorer
from pytest_llmeval.suites.format.prompt_spec import GenerateSpec
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import JSON, Prompt, Request, Response, Sample, Score

__all__ = ["ScorerWrapper"]


@dataclass(frozen=True, slots=True)
class ScorerWrapper(Scorer):
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
    def better(self) -> Mapping[str, Better]:
        return self.inner.better

    @property
    def default_template(self) -> str:
        return self.inner.default_template

    def present(self, sample: Sample) -> Presented:
        return self.inner.present(sample)

    def variables(self, presented: Presented) -> Mapping[str, object]:
        return self.inner.variables(presented)

    def answer_text(self, presented: Presented) -> str:
        return self.inner.answer_text(presented)

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        return self.inner.requests(presented, prompt, delimiter=delimiter, generate=generate)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        return self.inner.score(presented, responses)

    def suite_problem(self, suite: Suite) -> tuple[str, Keys] | None:
        return self.inner.suite_problem(suite)

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        return self.inner.warnings(samples)

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        return self.inner.extra_template

    @property
    def tells_right_from_wrong(self) -> bool | None:
        return self.inner.tells_right_from_wrong

    def options(self, presented: Presented) -> tuple[tuple[str, ...], tuple[int, ...]]:
        return self.inner.options(presented)

    def judges(self) -> list[str]:
        return self.inner.judges()

    def versions(self) -> list[JSON]:
        """This layer's name and version, and what the inner scorer has."""
        return [type(self).__name__, self.layer_version, *self.inner.versions()]
