"""One replica, in the process that a replica has to itself: it loads the model and answers chunks. Knows no Ray."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from pytest_llmeval.errors import LeftOutError, LLMEvalError, ModelError, ModelStoppedError, RequestError
from pytest_llmeval.models.base import Failed, answers_in_background, answers_samples, identify
from pytest_llmeval.models.ray.handshake import Handshake
from pytest_llmeval.models.registry import load_model
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import (
    EmbeddingRequest,
    EngineUse,
    GenerateRequest,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    Request,
    Response,
)

__all__ = ["Answer", "Loading", "Replica"]

_LOG = logging.getLogger("pytest_llmeval")

Answer: TypeAlias = list[Response | Failed] | ModelError
"""Of one sample: a response, or the ``RequestError`` in its place, for each of its requests; or what failed all."""

_METHODS = {
    LoglikelihoodRequest: "loglikelihood",
    LoglikelihoodRollingRequest: "loglikelihood_rolling",
    GenerateRequest: "generate",
    EmbeddingRequest: "embed",
}
_DISTRIBUTIONS = ("pytest-llmeval-suites", "torch", "transformers", "tokenizers")
_BROKEN_DEVICE_EXIT = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What a replica loads, and where its code and relative paths are looked for: in the folder of the session, where
    the replica's machine has it, and in ``import_paths``.
    """

    spec: ModelSpec
    settings: ModelSettings
    folder: str
    import_paths: tuple[str, ...] = ()


class Replica:
    """Answers chunks, one after another, from one thread; ``withdraw`` is called from another one."""

    def __init__(self, loading: Loading, place: str = "") -> None:
        self._loading = loading
        self._place = f"{platform.node()}{place}"
        self._model: Any = None
        self._lock = threading.Lock()
        self._withdrawn: set[int] = set()
        self._last_begun = -1

    def load(self) -> Handshake:
        """Load the model. Raises ``ModelError`` or ``OptionError``, which name the machine."""
        if Path(self._loading.folder).is_dir():
            os.chdir(self._loading.folder)
        sys.path[:0] = [path for path in self._loading.import_paths if path not in sys.path]
        try:
            self._model = load_model(self._loading.spec, self._loading.settings)
        except LLMEvalError as error:
            raise ModelError(f"{error} (on {self._place})") from None
        except Exception as error:
            _LOG.debug("loading a replica failed", exc_info=error)
            raise ModelError(f"model {self._loading.spec.name}: {describe(error)} (on {self._place})") from None
        name = self._loading.spec.name
        if answers_samples(self._model) or answers_in_background(self._model):
            raise ModelError(f"model {name}: --llm-ray is for models that answer prompts in their own process")
        return Handshake(
            place=self._place,
            identity=identify(self._model),
            versions={name: _version(name) for name in _DISTRIBUTIONS},
            has_audit=callable(getattr(self._model, "audit", None)),
            num_at_once=getattr(self._model, "num_calls_at_once", None),
        )

    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> list[Answer] | None:
        """The answer to each sample of a chunk; None for one that was withdrawn.

        Where the call for all fails, each sample is asked for alone, to know which is to blame. A device that cannot go
        on ends the process: in it every later call would fail.
        """
        with self._lock:
            if number in self._withdrawn:
                self._withdrawn.discard(number)
                return None
            self._last_begun = max(self._last_begun, number)
        return self._answers(samples, self._model.as_plain() if engine == "plain" else self._model)

    def withdraw(self, number: int) -> bool:
        """Take a chunk back that was given and not begun. False where it was begun: chunks come in their order."""
        with self._lock:
            if number <= self._last_begun:
                return False
            self._withdrawn.add(number)
            return True

    def audit(self, requests: Sequence[Request]) -> EngineUse:
        """What the model's own audit of these requests finds."""
        try:
            return cast("EngineUse", self._model.audit(requests)[1])
        except Exception as error:
            raise self._failure(error) from None

    def _answers(self, samples: Sequence[Sequence[Request]], model: Any) -> list[Answer]:
        try:
            responses = iter(_ask(model, [request for sample in samples for request in sample]))
        except Exception as error:
            failure = self._failure(error)
            if len(samples) == 1:
                return [[_sendable(error) for _ in samples[0]] if isinstance(error, RequestError) else failure]
            return [answer for sample in samples for answer in self._answers([sample], model)]
        return [[next(responses) for _ in sample] for sample in samples]

    def _failure(self, error: Exception) -> ModelError:
        """What is raised in the session for what the model raised here."""
        if _is_device_broken(error):
            _LOG.error("the device is broken: %s", describe(error))
            os._exit(_BROKEN_DEVICE_EXIT)
        if isinstance(error, ModelError):
            return ModelStoppedError(str(error)) if isinstance(error, ModelStoppedError) else ModelError(str(error))
        _LOG.debug("a replica's model failed", exc_info=error)
        return ModelError(f"model {self._loading.spec.name}: {describe(error)} (on {self._place})")


def _ask(model: Any, requests: Sequence[Request]) -> list[Response | Failed]:
    """Responses in order; requests of one kind reach the model in one call."""
    kinds: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        kinds.setdefault(_method_of(request), []).append(place)
    answers: dict[int, Response | Failed] = {}
    for method, places in kinds.items():
        call = getattr(model, method, None)
        if not callable(call):
            raise ModelError(f"model {identify(model).name}: has no method {method}(requests)")
        responses = list(call([requests[place] for place in places]))
        if len(responses) != len(places):
            raise ModelError(
                f"model {identify(model).name}: {method} returned {len(responses)} responses to {len(places)} requests"
            )
        answers.update(zip(places, (_sendable(one) for one in responses), strict=True))
    return [answers[place] for place in range(len(requests))]


def _method_of(request: Request) -> str:
    return next(method for kind, method in _METHODS.items() if isinstance(request, kind))


def _sendable(response: object) -> Any:
    """An error in a form that survives the way to the session, whatever arguments its class takes."""
    if not isinstance(response, RequestError):
        return response
    return LeftOutError(str(response)) if isinstance(response, LeftOutError) else RequestError(str(response))


def _is_device_broken(error: Exception) -> bool:
    if "torch" not in sys.modules:
        return False
    from pytest_llmeval.models.huggingface.errors import is_device_broken

    return is_device_broken(error)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
