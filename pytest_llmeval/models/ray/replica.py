"""One replica of a model: what it does in its own process, and the ``Handle`` by which others see it. Knows no Ray."""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from pytest_llmeval.data.code_version import installed_version
from pytest_llmeval.errors import LeftOutError, LLMEvalError, ModelError, ModelStoppedError, RequestError
from pytest_llmeval.models.base import Failed, answers_in_background, answers_samples, identify
from pytest_llmeval.models.hardware import is_device_lost
from pytest_llmeval.models.reasoning import stops_behind_reasoning
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
    ModelIdentity,
    Request,
    Response,
)

__all__ = ["Answer", "Handle", "Handshake", "Limits", "Loading", "Replica", "ReplicaLost", "disagreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """A replica's description of itself. All replicas of a model have to agree in ``properties``.

    ``versions`` are those of the packages that decide numbers, by name; None if one is not installed. ``place`` names
    the machine. ``has_audit`` says whether the model audits its fast path. ``num_at_once`` is the number of concurrent
    calls of a model that is called for one request at a time; None for a model that answers many in one pass.
    """

    place: str
    identity: ModelIdentity
    versions: Mapping[str, str | None]
    has_audit: bool = False
    num_at_once: int | None = None
    properties: Mapping[str, str | None] = field(init=False)
    """Everything that has to be equal in all replicas."""

    def __post_init__(self) -> None:
        identity = self.identity
        found: dict[str, str | None] = {
            **self.versions,
            "name": identity.name,
            "backend": identity.backend,
            "revision": identity.revision,
            "dtype": identity.dtype,
            "device": None if identity.device is None else identity.device.partition(":")[0],
            "weights and settings": identity.fingerprint,
        }
        object.__setattr__(self, "properties", found)


def disagreement(one: Handshake, other: Handshake) -> str | None:
    """Describe what differs between two replicas, with both values; return None if they agree."""
    names = [*one.properties, *(name for name in other.properties if name not in one.properties)]
    found = [
        f"{name} ({_shown(one.properties.get(name))} on {one.place}, {_shown(other.properties.get(name))} on "
        f"{other.place})"
        for name in names
        if one.properties.get(name) != other.properties.get(name)
    ]
    return ", ".join(found) or None


def _shown(value: str | None) -> str:
    """Shorten a hash to its first digits."""
    if value is None:
        return "none"
    return value[:12] if len(value) == 64 else value


class ReplicaLost(Exception):
    """The replica's process, or its machine, has ended. ``str()`` says how, in one line."""


class Handle(Protocol):
    """A replica as seen from the session. Every future raises ``ReplicaLost`` when the replica ends."""

    def where(self) -> Future[str]:
        """Return a future of the machine's name, which is done when the replica has room there."""

    def load(self) -> Future[Handshake]: ...

    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> Future[Any]: ...

    def withdraw(self, number: int) -> Future[bool]: ...

    def audit(self, requests: Sequence[Request]) -> Future[EngineUse]: ...

    def watch(self) -> Future[None]:
        """Return a future that is done only when the replica ends."""

    def end(self) -> None:
        """End the replica's process. Calls that are under way raise ``ReplicaLost``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on waiting for replicas and on starting them again.

    A chunk waits ``linger_s`` after its last sample for more. A replica is given up after ``max_failed_starts`` failed
    starts in a row, or after more than ``restarts_per_replica`` restarts on average. The model stops when it has no
    replica for ``patience_s``.
    """

    linger_s: float = 0.01
    max_failed_starts: int = 3
    restarts_per_replica: int = 8
    patience_s: float = 300.0


_LOG = logging.getLogger("pytest_llmeval")

Answer: TypeAlias = list[Response | Failed] | ModelError
"""The answer to one sample: a response or a ``RequestError`` for each of its requests, or the error of all."""

_METHODS = {
    LoglikelihoodRequest: "loglikelihood",
    LoglikelihoodRollingRequest: "loglikelihood_rolling",
    GenerateRequest: "generate",
    EmbeddingRequest: "embed",
}
_DISTRIBUTIONS = ("pytest-llmeval-suites", "torch", "transformers", "tokenizers")
_LOST_DEVICE_EXIT = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The model that a replica loads, and where its code and relative paths are found: in the session's folder, if the
    replica's machine has it, and in ``import_paths``.
    """

    spec: ModelSpec
    settings: ModelSettings
    folder: str
    import_paths: tuple[str, ...] = ()


class Replica:
    """The replica in its own process. One thread answers chunks one after another; another one calls ``withdraw``."""

    def __init__(self, loading: Loading, place: str = "") -> None:
        self._loading = loading
        self._place = f"{platform.node()}{place}"
        self._model: Any = None
        self._lock = threading.Lock()
        self._withdrawn: set[int] = set()
        self._last_begun = -1

    def load(self) -> Handshake:
        """Load the model. Raise ``ModelError`` or ``OptionError`` with the machine's name."""
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
            versions={name: installed_version(name) for name in _DISTRIBUTIONS},
            has_audit=callable(getattr(self._model, "audit", None)),
            num_at_once=getattr(self._model, "num_calls_at_once", None),
        )

    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> list[Answer] | None:
        """Return the answer to each sample of a chunk, or None if the chunk was withdrawn.

        If the call for all samples fails, each is asked alone, to know which one is to blame. A lost device ends the
        process, since every later call would fail in it.
        """
        with self._lock:
            if number in self._withdrawn:
                self._withdrawn.discard(number)
                return None
            self._last_begun = max(self._last_begun, number)
        return self._answers(samples, self._model.as_plain() if engine == "plain" else self._model)

    def withdraw(self, number: int) -> bool:
        """Withdraw a chunk that was not begun. Return False if it was: chunks are begun in their order."""
        with self._lock:
            if number <= self._last_begun:
                return False
            self._withdrawn.add(number)
            return True

    def audit(self, requests: Sequence[Request]) -> EngineUse:
        """Return the result of the model's own audit of these requests."""
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
        """Return the error that the session raises for an error of the model here."""
        if is_device_lost(error):
            _LOG.error("the device is lost: %s", describe(error))
            os._exit(_LOST_DEVICE_EXIT)
        if isinstance(error, ModelError):
            return ModelStoppedError(str(error)) if isinstance(error, ModelStoppedError) else ModelError(str(error))
        _LOG.debug("a replica's model failed", exc_info=error)
        return ModelError(f"model {self._loading.spec.name}: {describe(error)} (on {self._place})")


def _ask(model: Any, requests: Sequence[Request]) -> list[Response | Failed]:
    """Return the responses in order. Requests of one kind reach the model in one call."""
    kinds: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        kinds.setdefault(_method_of(request), []).append(place)
    answers: dict[int, Response | Failed] = {}
    for method, places in kinds.items():
        call = getattr(model, method, None)
        if not callable(call):
            raise ModelError(f"model {identify(model).name}: has no method {method}(requests)")
        asked = [requests[place] for place in places]
        responses = list(call(asked))
        if len(responses) != len(places):
            raise ModelError(
                f"model {identify(model).name}: {method} returned {len(responses)} responses to {len(places)} requests"
            )
        responses = stops_behind_reasoning(model, asked, responses, call)
        answers.update(zip(places, (_sendable(one) for one in responses), strict=True))
    return [answers[place] for place in range(len(requests))]


def _method_of(request: Request) -> str:
    return next(method for kind, method in _METHODS.items() if isinstance(request, kind))


def _sendable(response: object) -> Any:
    """Return an error that can be pickled, whatever arguments the class of the original takes."""
    if not isinstance(response, RequestError):
        return response
    return LeftOutError(str(response)) if isinstance(response, LeftOutError) else RequestError(str(response))
