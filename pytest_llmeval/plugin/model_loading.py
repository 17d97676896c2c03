"""What stands behind the fixtures ``llm_model`` and ``llm_device``: from options to a loaded model."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError
from pytest_llmeval.models.base import Model, answers_in_background, answers_samples
from pytest_llmeval.models.findings import Findings
from pytest_llmeval.models.hardware import importing_torch
from pytest_llmeval.models.registry import calling, check_model, check_model_args, load_model
from pytest_llmeval.models.settings import ModelSettings, ReplicaSettings, merge_model_args
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.plugin.findings import findings_of
from pytest_llmeval.plugin.process import runs_tests, warn_once_of_suite
from pytest_llmeval.plugin.settings import Settings, settings_key
from pytest_llmeval.plugin.stash import stored_model_key
from pytest_llmeval.plugin.store import store_of
from pytest_llmeval.plugin.xdist_messages import shared_folder, worker_slot
from pytest_llmeval.types import AskedSample

if TYPE_CHECKING:
    from pytest_llmeval.evaluation.evaluation import Evaluation
    from pytest_llmeval.models.ray.model import ReplicatedModel

__all__ = [
    "check_abilities",
    "check_model_options",
    "check_replies",
    "describe_models",
    "device_for",
    "find_device",
    "is_overridden",
    "load",
    "load_configured",
    "load_or_take",
    "make_importable",
]


_PATIENCE_S = 2.0
_early_key = pytest.StashKey[dict[str, Model]]()
"""Models to be evaluated that were loaded when suites were collected, by name."""


_replicated_key: pytest.StashKey[ReplicatedModel] = pytest.StashKey()
"""The model whose replicas run now, where they run on Ray."""

_OUR_FIXTURES = "pytest_llmeval.plugin.fixtures"


def is_overridden(node: pytest.Collector | pytest.Item, fixture: str = "llm_model") -> bool:
    """Tell whether what pytest gives to the tests at ``node`` as ``llm_model``, or another fixture, is not ours.

    It may be that of a conftest.py, of a plugin that is loaded after ours, of the module or of the class. An
    ``llm_model`` that takes ``llm_model`` wraps what there is, and replaces nothing.
    """
    # pytest has no public way to ask for the fixtures of a node.
    definitions = node.session._fixturemanager.getfixturedefs(fixture, node) or ()
    found = next((one for one in reversed(definitions) if fixture not in one.argnames), None)
    return found is not None and getattr(found.func, "__module__", None) != _OUR_FIXTURES


def model_options(settings: Settings, device: str | None) -> ModelSettings:
    return ModelSettings(
        device=device,
        dtype=settings.dtype,
        batch_size=settings.batch_size,
        engine=settings.engine,
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
        allow_pickle=settings.allow_pickle,
        model_args=merge_model_args(settings.model_arg),
        num_workers=int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)),
    )


def check_model_options(settings: Settings, *, loads: bool) -> None:
    """Refuse what cannot be loaded, before anything runs; where nothing will be loaded, only the wording is checked.

    Raises ``OptionError`` and ``ModelError``, also for two names of one model.
    """
    model_settings = model_options(settings, settings.device)
    known: dict[object, ModelSpec] = {}
    for spec in settings.model_specs:
        with calling(spec.kind, "key"):
            other = known.setdefault(spec.kind.key(spec), spec)
        if other is not spec:
            raise OptionError(f"--llm-model {other.name} and --llm-model {spec.name} are the same model: give it once")
    check_model_args(settings.all_specs, model_settings)
    _check_ray(settings, model_settings)
    if loads:
        if settings.ray is not None and ":" in settings.ray:
            from pytest_llmeval.models.ray.cluster import check_reachable

            check_reachable(settings.ray)
        for spec in settings.all_specs:
            with _of_role(spec):
                check_model(spec, model_settings)
        for spec in settings.all_specs:
            with _of_role(spec), calling(spec.kind, "connect"), _asking(spec):
                spec.kind.connect(spec, model_settings)


def _check_ray(settings: Settings, model_settings: ModelSettings) -> None:
    """Refuse ``--llm-ray`` where there can be no replicas, and options that mean nothing without it."""
    if settings.ray is None:
        for name in ("replicas", "replica_cpus", "replica_gpus"):
            if getattr(settings, name) is not None:
                flag = f"--llm-{name.replace('_', '-')}"
                raise OptionError(f"{flag} is about replicas on Ray: give --llm-ray as well (local, or an address)")
        return
    from pytest_llmeval.models.ray.loading import check_replicas

    check_replicas(settings.model_specs, model_settings, _replica_settings(settings, settings.ray))


@contextlib.contextmanager
def _of_role(spec: ModelSpec) -> Iterator[None]:
    """An error of a judge or an embedder says that it is the model of that role."""
    try:
        yield
    except ModelError as error:
        if spec.role is None:
            raise
        raise ModelError(f"the {spec.role}: {error}") from None


@contextlib.contextmanager
def _asking(spec: ModelSpec) -> Iterator[None]:
    """Say what is waited for where that takes long, and what Ctrl-C has ended: pytest's header is not there yet."""
    said = threading.Timer(_PATIENCE_S, sys.stderr.write, [f"asking {spec.name} what it is and can do …\n"])
    said.daemon = True
    if spec.kind.is_remote:
        said.start()
    try:
        yield
    except KeyboardInterrupt:
        pytest.exit(f"interrupted while {spec.name} was asked what it is and can do", pytest.ExitCode.INTERRUPTED)
    finally:
        said.cancel()


def describe_models(settings: Settings, specs: Sequence[ModelSpec]) -> list[str]:
    """Describe each model: the way in which its log-likelihoods will be computed, or its kind."""
    model_settings = model_options(settings, settings.device)
    lines = []
    for spec in specs:
        with calling(spec.kind, "describe"):
            lines.append(f"{spec.name} ({spec.kind.describe(spec, model_settings)})")
    return lines


def make_importable(config: pytest.Config) -> None:
    """Let ``python:MODULE:NAME`` find modules in the current folder, as ``python -m pytest`` does, and the rootdir."""
    for folder in project_folders(config):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def project_folders(config: pytest.Config) -> tuple[str, ...]:
    """Return the folders in which modules of the user's are found."""
    return str(config.rootpath), str(config.invocation_params.dir)


def device_for(request: pytest.FixtureRequest, spec: ModelSpec) -> str:
    """Return the device that this model is put on; for a model that needs none, none is looked for."""
    return str(request.getfixturevalue("llm_device")) if spec.kind.needs_device else "cpu"


def find_device(request: pytest.FixtureRequest, settings: Settings) -> str:
    """Return the device that models are put on; workers take GPUs in turn. One that does not exist ends the session."""
    if settings.ray is not None:
        return settings.device or "auto"  # each replica finds its own
    with importing_torch():
        from pytest_llmeval.models.huggingface.device import device_of_worker, resolve_device

    slot = worker_slot(request.config)
    try:
        device = resolve_device(settings.device)
        return device if slot is None else device_of_worker(device, slot)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"device {settings.device} is not available", message)


def load(request: pytest.FixtureRequest, spec: ModelSpec, role: str = "model") -> Model:
    """Load the only model of ``--llm-model``, or that of a role. One that cannot be loaded ends the session."""
    device = device_for(request, spec)
    try:
        return load_or_take(request.config, spec, device)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"{role} {spec.name} could not be loaded", message)


def load_configured(
    settings: Settings,
    spec: ModelSpec,
    device: str,
    shared: Path | None = None,
    findings: Findings | None = None,
) -> Model:
    """Load one of the session's models. Raises ``LLMEvalError``."""
    return load_model(spec, replace(model_options(settings, device), shared_folder=shared, findings=findings))


def _replica_settings(settings: Settings, address: str) -> ReplicaSettings:
    return ReplicaSettings(
        address=address, count=settings.replicas, cpus=settings.replica_cpus, gpus=settings.replica_gpus
    )


def _load_replicas(config: pytest.Config, settings: Settings, spec: ModelSpec, device: str) -> Model:
    """Load replicas of the model on Ray; those of the model before it make room. Raises ``LLMEvalError``."""
    from pytest_llmeval.inference.chunks import DEFAULT_CHUNK_SIZE
    from pytest_llmeval.models.ray.loading import load_replicas

    assert settings.ray is not None
    if (before := config.stash.get(_replicated_key, None)) is not None:
        before.close()
    model = config.stash[_replicated_key] = load_replicas(
        spec,
        model_options(settings, device),
        _replica_settings(settings, settings.ray),
        chunk_size=settings.batch_size or DEFAULT_CHUNK_SIZE,
        import_paths=project_folders(config) if spec.kind.imports_from_project else (),
    )
    return model


def load_or_take(config: pytest.Config, spec: ModelSpec, device: str) -> Model:
    """Return the model, which was loaded when suites were collected, or is now. Raises ``LLMEvalError``."""
    if spec.role is None and (known := config.stash.get(_early_key, {}).get(spec.name)) is not None:
        return known
    settings = config.stash[settings_key]
    loaded = (
        load_configured(settings, spec, device, shared_folder(config), findings_of(config))
        if settings.ray is None or spec.role is not None or not spec.kind.takes_replicas
        else _load_replicas(config, settings, spec, device)
    )
    if answers_in_background(loaded) and callable(close := getattr(loaded, "close", None)):
        config.add_cleanup(close)
    if (store := store_of(config)) is None:
        return loaded
    from pytest_llmeval.inference.store.model import StoredModel, with_store

    more = [spec.kind.name, spec.location, json.dumps(spec.deciding, sort_keys=True)]
    model = with_store(loaded, store, *([] if spec.kind.is_identified else more))
    if spec.role is None and isinstance(model, StoredModel):
        config.stash[stored_model_key] = model
    return model


def _stop(request: pytest.FixtureRequest, reason: str, message: str) -> NoReturn:
    """Fail this test in one line, and run no other: each would fail in the same way.

    Not called where an exception is handled: pytest would print that one too.
    """
    request.session.shouldfail = reason
    pytest.fail(message, pytrace=False)


def check_replies(node: pytest.Collector, suite: str, samples: Callable[[], Sequence[AskedSample]]) -> None:
    """Find out, when a suite is collected, whether the files of replies fit it. Raises ``LLMEvalError``.

    Else each of its samples would fail in the same way.
    """
    config = node.config
    for spec in config.stash[settings_key].model_specs:
        if spec.kind.is_remote and not runs_tests(config):
            continue
        if spec.kind.checks_suites and not is_overridden(node):
            loaded = load_or_take(config, spec, "cpu")
            config.stash.setdefault(_early_key, {})[spec.name] = loaded
            if answers_samples(loaded):
                loaded.prepare(suite, samples())
                warning_of = getattr(loaded, "warning_of", None)
                if warning_of is not None and (message := warning_of(suite)) is not None:
                    warn_once_of_suite(node, message)


def check_abilities(node: pytest.Collector, evaluation: Evaluation) -> None:
    """Refuse, when a suite is collected, a model that is known to lack what the suite asks for. Raises ``SuiteError``.

    Else each of its samples would fail in the same way. What a conftest.py gives in the model's place is known when it
    runs.
    """
    from pytest_llmeval.evaluation.samples_for_models import first_request, inability, method_of

    config = node.config
    specs = config.stash[settings_key].model_specs
    checked = [spec for spec in specs if spec.kind.shows_methods or spec.kind.checks_suites]
    if not checked or is_overridden(node):
        return
    request = first_request(evaluation)
    method = method_of(request)
    for spec in checked:
        model = config.stash.get(_early_key, {}).get(spec.name)
        lacks = getattr(model, "lacks_method", None)
        with calling(spec.kind, "lacks_method"):
            is_lacking = spec.kind.lacks_method(spec, method) if lacks is None else lacks(evaluation.suite.name, method)
        if is_lacking:
            raise inability(evaluation, spec.name, method, is_lacking if isinstance(is_lacking, str) else "")
        if (unknown := getattr(model, "unknown_setting", None)) is not None and (found := unknown(request)) is not None:
            setting, problem = found
            raise evaluation.suite.error(f"{spec.name}: {problem}", keys=("generate", setting))
