"""Models that are asked by sample and not by prompt: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Backend, Failed
from pytest_llmeval.types import (
    AskedSample,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Response,
)

__all__ = ["SampleBackend"]


class SampleBackend(Backend):
    """A model that is a ``SampleModel`` alone. Asked for a prompt without its sample, it raises ``ModelError``."""

    def __init__(self, identity: ModelIdentity) -> None:
        self._identity = identity

    @property
    def identity(self) -> ModelIdentity:
        """See ``Backend``."""
        return self._identity

    @abstractmethod
    def prepare(self, suite: str, samples: Sequence[AskedSample], /) -> None:
        """See ``SampleModel``."""

    @abstractmethod
    def answer_samples(self, asked: Sequence[AskedSample], /) -> list[Response | Failed]:
        """See ``SampleModel``."""

    def run_loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse | Failed]:
        """Raises ``ModelError``."""
        self._refuse()

    def run_loglikelihood_rolling(
        self, requests: Sequence[LoglikelihoodRollingRequest]
    ) -> list[LoglikelihoodResponse | Failed]:
        """Raises ``ModelError``."""
        self._refuse()

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        """Raises ``ModelError``."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ModelError(
            f"model {self._identity.name}: it answers the samples of suites, and knows no prompt without its sample"
        )
