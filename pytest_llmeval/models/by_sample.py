"""The base class of models that answer samples and not prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Backend, Failed
from pytest_llmeval.types import AskedSample, ModelIdentity, Response

__all__ = ["SampleBackend"]


class SampleBackend(Backend, ABC):
    """A model that is a ``SampleModel`` alone. Asked for a prompt without its sample, it raises ``ModelError``."""

    def __init__(self, identity: ModelIdentity) -> None:
        self.identity = identity

    def prepare(self, suite: str, samples: Sequence[AskedSample], /) -> None:
        """Nothing, unless a subclass wants to see the suite."""

    def answer_samples(self, asked: Sequence[AskedSample], /) -> list[Response | Failed]:
        return [response for sample in asked for response in self.answer(sample)]

    @abstractmethod
    def answer(self, sample: AskedSample) -> Iterable[Response | Failed]:
        """One response for each request of the sample."""

    def _lacks(self, method: str) -> ModelError:
        return ModelError(
            f"model {self.identity.name}: it answers samples of suites only, not a prompt without its sample"
        )
