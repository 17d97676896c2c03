"""What stands behind the fixtures ``llm_model`` and ``llm_device``: from options to a loaded model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.models.base import Model, answers_samples
from pytest_llmeval.models.registry import check_model, load_model
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.models.threads import waiting_briefly
from pytest_llmeval.plugin.models.overridden import is_overridden
from pytest_llmeval.plugin.options.settings import Settings, settings_key
from pytest_llmeval.plugin.xdist.worker import worker_slot
from pytest_llmeval.types import AskedSample

if TYPE_CHECKING:
    from pytest_llmeval.scoring.evaluation import Evaluation

__all__ = [
    "check_abilities",
    "check_model_options",
    "check_replies",
    "describe_models",
    "device_for",
    "find_device",
    "held_replay",
    "load",
    "load_configured",
    "make_importable",
]


_replays_key = pytest.StashKey[dict[str, Model]]()

_WHAT = {"replay": "replies from a file", "python": "Python code", "guessing": "guessing"}


def model_options(settings: Settings, device: str | None) -> ModelSettings:
    """How models are to be loaded."""
    return ModelSettings(
        device=device,
        dtype=settings.dtype,
        batch_size=settings.batch_size,
        engine=settings.engine,
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
        allow_pickle=settings.allow_pickle,
        model_args={arg.key: arg.value for arg in settings.model_arg},
    )


def check_model_options(settings: Settings, *, loads: bool) -> None:
    """Refuse what cannot be loaded, before anything runs; where nothing will be loaded, only the wording is checked.

    Raises ``OptionError`` and ``ModelError``, also for two names of one model.
    """
    model_settings = model_options(settings, settings.device)
    known: dict[object, ModelSpec] = {}
    for spec in settings.model_specs:
        location = os.path.realpath(spec.location) if spec.kind in ("folder", "replay") else spec.location
        other = known.setdefault((spec.runs_here or spec.kind, location, repr(sorted(spec.arguments.items()))), spec)
        if other is not spec:
            raise OptionError(f"--llm-model {other.name} and --llm-model {spec.name} are the same model: give it once")
    if loads:
        for spec in settings.model_specs:
            check_model(spec, model_settings)


def describe_models(settings: Settings) -> list[str]:
    """The models of ``--llm-model``, each with the way in which its log-likelihoods will be computed, or what it is."""
    from pytest_llmeval.models.huggingface.description import describe_engine

    model_settings = model_options(settings, settings.device)
    return [
        f"{spec.name} ({_WHAT.get(spec.kind) or f'log-likelihoods: {describe_engine(spec, model_settings)}'})"
        for spec in settings.model_specs
    ]


def make_importable(config: pytest.Config) -> None:
    """Let ``python:MODULE:NAME`` find modules in the current folder, as ``python -m pytest`` does, and the rootdir."""
    for folder in (str(config.rootpath), str(config.invocation_params.dir)):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def device_for(request: pytest.FixtureRequest, settings: Settings, model: str) -> str:
    """The device that this model is put on; whoever runs on none does not have to wait until one is found."""
    needed = settings.spec(model).runs_here
    return str(request.getfixturevalue("llm_device")) if needed else "cpu"


def find_device(request: pytest.FixtureRequest, settings: Settings) -> str:
    """The device that models are put on; workers take GPUs in turn. One that does not exist ends the session."""
    with waiting_briefly():
        from pytest_llmeval.models.huggingface.device import device_of_worker, resolve_device

    slot = worker_slot(request.config)
    try:
        device = resolve_device(settings.device)
        return device if slot is None else device_of_worker(device, slot)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"device {settings.device} is not available", message)


def load(request: pytest.FixtureRequest, settings: Settings) -> Model:
    """Load the only model of ``--llm-model``. One that cannot be loaded ends the session."""
    (model,) = settings.models
    device = device_for(request, settings, model)
    try:
        return held_replay(request.config, model) or load_configured(settings, model, device)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"model {model} could not be loaded", message)


def load_configured(settings: Settings, model: str, device: str) -> Model:
    """Load one of the models of ``--llm-model``. Raises ``LLMEvalError``."""
    spec = settings.spec(model)
    if not spec.runs_here:
        return load_model(spec, model_options(settings, device))
    with waiting_briefly():
        from pytest_llmeval.models.huggingface.threads import Threads
    threads = Threads(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)))
    loaded = load_model(spec, model_options(settings, device))
    if device == "cpu":
        from pytest_llmeval.models.huggingface.model import HuggingFaceModel

        if isinstance(loaded, HuggingFaceModel):
            loaded.use_threads(threads)
    return loaded


def _stop(request: pytest.FixtureRequest, reason: str, message: str) -> NoReturn:
    """Fail this test in one line, and run no other: each would fail alike.

    Not called where an exception is handled: pytest would print that one too.
    """
    request.session.shouldfail = reason
    pytest.fail(message, pytrace=False)


def check_replies(config: pytest.Config, file: Path, suite: str, samples: Callable[[], Sequence[AskedSample]]) -> None:
    """Find out, when a suite is collected, whether the files of replies fit it. Raises ``LLMEvalError``.

    Else each of its samples would fail alike.
    """
    settings = config.stash[settings_key]
    for spec in settings.model_specs:
        if spec.kind == "replay" and not is_overridden(config, file):
            held = config.stash.setdefault(_replays_key, {})
            if spec.name not in held:
                held[spec.name] = load_configured(settings, spec.name, "cpu")
            loaded = held[spec.name]
            if answers_samples(loaded):
                loaded.prepare(suite, samples())


def check_abilities(config: pytest.Config, file: Path, evaluation: Evaluation) -> None:
    """Refuse, when a suite is collected, a model that is known to lack what the suite asks for. Raises ``SuiteError``.

    Else each of its samples would fail alike. What a conftest.py gives in the model's place is known when it runs.
    """
    from pytest_llmeval.models.abilities import lacks_method
    from pytest_llmeval.scoring.abilities import inability, method_of

    settings = config.stash[settings_key]
    checked = [spec for spec in settings.model_specs if spec.kind in ("python", "replay")]
    if not checked or is_overridden(config, file):
        return
    method = method_of(evaluation)
    for spec in checked:
        replay = held_replay(config, spec.name)
        lacks = getattr(replay, "lacks_method", None)
        if lacks(evaluation.suite.name, method) if lacks is not None else lacks_method(spec, method):
            raise inability(evaluation, spec.name, method)


def held_replay(config: pytest.Config, model: str) -> Model | None:
    """The file of replies of this name that was read when suites were collected."""
    return config.stash.get(_replays_key, {}).get(model)
