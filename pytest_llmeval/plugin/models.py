"""The models of a session: from options to loaded models, one after another if several are compared.

The models that scorers ask (judges, an embedder) are checked and described here, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_llmeval.data.code_version import SOURCE, hash_of_sources, version_of_class, version_of_function
from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError
from pytest_llmeval.models.base import Model, answers_in_background, answers_samples, identify
from pytest_llmeval.models.findings import Findings
from pytest_llmeval.models.hardware import importing_torch
from pytest_llmeval.models.registry import calling, check_model, check_model_args, load_model
from pytest_llmeval.models.specs import ModelSettings, ModelSpec, ReplicaSettings, merge_model_args
from pytest_llmeval.plugin.process import runs_tests, warn_once_of_suite
from pytest_llmeval.plugin.settings import Settings, settings_key
from pytest_llmeval.plugin.stash import model_key, stored_model_key
from pytest_llmeval.plugin.store import store_of
from pytest_llmeval.plugin.xdist_messages import findings_of, shared_folder, worker_slot
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.names import model_nodes
from pytest_llmeval.text.redaction import describe, redact
from pytest_llmeval.types import AskedSample

if TYPE_CHECKING:
    from pytest_llmeval.evaluation.evaluation import Evaluation
    from pytest_llmeval.models.ray.model import ReplicatedModel

__all__ = [
    "ModelOrder",
    "ModelPool",
    "check_abilities",
    "check_model_options",
    "check_replies",
    "compared_models",
    "describe_models",
    "described_judge",
    "device_for",
    "find_device",
    "is_overridden",
    "judges_of",
    "load",
    "load_configured",
    "load_or_take",
    "make_importable",
    "parametrize",
    "provide",
]


_PATIENCE_S = 2.0
_early_key = pytest.StashKey[dict[str, Model]]()
"""Models to be evaluated that were loaded when suites were collected, by name."""


_replicated_key: pytest.StashKey[ReplicatedModel] = pytest.StashKey()
"""The model whose replicas run now, where they run on Ray."""

_OUR_FIXTURES = "pytest_llmeval.plugin"


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
    from pytest_llmeval.models.ray.model import check_replicas

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
    from pytest_llmeval.models.ray.model import load_replicas

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
    from pytest_llmeval.inference.stored_model import StoredModel, with_store

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
    from pytest_llmeval.evaluation.evaluation import first_request, inability, method_of

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


class ModelPool:
    """Holds the model that was asked for last, and no other.

    ``release`` is called when the held model has to make room, before the next is loaded: who else holds it lets go.
    """

    def __init__(self, *, release: Callable[[], None]) -> None:
        self._release = release
        self._held: tuple[Hashable, Model] | None = None
        self._failed: dict[Hashable, str] = {}

    def get(self, key: Hashable, load: Callable[[], Model]) -> Model:
        """Return the model that ``key`` stands for: the one that is held, or what ``load`` returns.

        Raises what ``load`` raises; asked again, ``ModelError`` with the same message: a second attempt would take as
        long and fail again.
        """
        if self._held is not None and self._held[0] == key:
            return self._held[1]
        if key in self._failed:
            raise ModelError(self._failed[key])
        if self._held is not None:
            self._held = None
            self._release()
        try:
            model = load()
        except Exception as error:
            known = isinstance(error, LLMEvalError)
            self._failed[key] = str(error) if known else f"the model could not be loaded: {describe(error)}"
            raise
        self._held = key, model
        return model


_pool_key = pytest.StashKey[ModelPool]()


def compared_models(node: pytest.Collector | pytest.Item) -> Mapping[str, str]:
    """Return the models that a suite's samples run on, or a hand-written test, with their names in node ids.

    Empty where there is one model, or none.

    A conftest.py that replaces ``llm_model`` has the last word for its folder, as with one model: its suites run once.
    One that wraps it (its ``llm_model`` takes ``llm_model``) wraps each.
    """
    settings = node.config.stash[settings_key]
    if len(settings.models) < 2 or is_overridden(node):
        return {}
    return model_nodes(settings.models)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a hand-written test that takes ``llm_model`` on every model."""
    marks = metafunc.definition.iter_markers("parametrize")
    if any("llm_model" in _argument_names(mark) for mark in marks):
        return
    models = compared_models(metafunc.definition)
    if models:
        metafunc.parametrize("llm_model", list(models), ids=list(models.values()), indirect=True)


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


class ModelOrder:
    """Puts tests in the order of their models, so that each is loaded once.

    Its wrapper is the outermost, since it is registered late: within one model the order is what all others made of it
    (``--ff``, ``--nf``, plugins that shuffle).
    """

    def __init__(self, settings: Settings) -> None:
        self._places = {model: place for place, model in enumerate(settings.models)}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Sort; tests without a model stay where they were among those of the first.

        Also before the others look: ``--sw`` leaves out what comes before the last failure, in the order that ran.
        """
        for item in items:
            callspec = getattr(item, "callspec", None)
            model = None if callspec is None else callspec.params.get("llm_model")
            if isinstance(model, str) and model in self._places:
                item.stash[model_key] = model
        self._sort(items)
        result = yield
        self._sort(items)
        return result

    def _sort(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._places.get(item.stash.get(model_key, ""), 0))


def provide(request: pytest.FixtureRequest, settings: Settings) -> Model:
    """Return the model that the requesting test is for. One that cannot be loaded fails its own tests alone."""
    model = request.node.stash.get(model_key, None)
    if model is None:
        pytest.fail(
            f"{request.node.name} requests llm_model at run time, which does not say for which of the models of "
            "--llm-model: let the test take llm_model as an argument",
            pytrace=False,
        )
    spec = settings.spec(model)
    device = device_for(request, spec)
    config = request.config
    if _pool_key not in config.stash:
        config.stash[_pool_key] = ModelPool(release=lambda: _let_go(config))
    try:
        return config.stash[_pool_key].get((model, device), lambda: load_or_take(config, spec, device))
    except LLMEvalError as error:
        message = str(error)
    # Not where the exception is handled: pytest would print that one too.
    pytest.fail(message, pytrace=False)


def _let_go(config: pytest.Config) -> None:
    """Drop what keeps a model alive that is to make room: the batcher, and the traceback of the last failure."""
    from pytest_llmeval.plugin.stash import batcher_key

    if stored_model_key in config.stash:
        del config.stash[stored_model_key]
    batcher = config.stash.get(batcher_key, None)
    if batcher is not None:
        batcher.forget_model()
    for name in ("last_exc", "last_value", "last_traceback", "last_type"):  # pytest sets them, for a debugger
        sys.__dict__.pop(name, None)
    if "torch" in sys.modules:
        from pytest_llmeval.models.huggingface.device import release_memory

        release_memory()


_DECIDING = ("server", "version", "model", "build", "extra_body", "json")
"""What is told of a model whose weights are not known and may decide its verdicts; the same in every process."""


def judges_of(role: Role, given: object) -> tuple[object, ...]:
    """Return the models that a fixture gives for a role: one, or of judges a list of several, a panel.

    Raises ``ModelError`` for none, for too many, and for what cannot be asked.
    """
    models = tuple(given) if isinstance(given, list | tuple) else (given,)
    method, most = ROLES[role].method, ROLES[role].most
    if not 1 <= len(models) <= most:
        expected = f"1 to {most}" if most > 1 else "one"
        raise ModelError(f"the fixture llm_{role} gave a list of {len(models)} models, expected {expected}")
    for model in models:
        if not callable(getattr(model, method, None)):
            found = "None" if model is None else f"a {type(model).__name__}"
            raise ModelError(f"the fixture llm_{role} gave {found}, expected an object with the method {method}")
    return models


def described_judge(judge: object) -> tuple[str, str]:
    """Return the judge in a few words, and a SHA-256 (hex) of what is known of it.

    That is its fingerprint (a server's has the way it is held to JSON), revision and dtype. Of a model without a
    fingerprint it is its name, what its server says of itself, and the version of its Python code: what a hosted name
    stands for may change unseen. The project's own code, of which a judge in Python is made, is known of all. Arguments
    that the name hides are in neither, since a hash would give a short secret away.
    """
    found = identify(judge)
    known: list[object] = [found.fingerprint or found.name, found.backend, found.revision, found.dtype]
    if not found.fingerprint:
        known += [{name: found.details[name] for name in _DECIDING if name in found.details}, _code_version(judge)]
    if (source := found.details.get(SOURCE) or hash_of_sources(type(_innermost(judge)))) is not None:
        known.append(source)
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()
    model = found.details.get("model") if "server" in found.details else None  # which its address does not say
    own = None if str(model) in found.name else model
    parts = (found.backend, own, found.revision, found.dtype, found.details.get("json"), digest[:8])
    shown = [str(part) for part in parts if part is not None]
    return f"{redact(found.name)} ({', '.join(shown)})", digest


def _innermost(model: object) -> object:
    """Return what answers, without what stands around it: a store, the user's name."""
    while (inner := vars(model).get("_model") if hasattr(model, "__dict__") else None) is not None:
        model = inner
    return model


def _code_version(judge: object) -> int:
    """Return a checksum of the sources of a function or class that a user wrote."""
    judge = _innermost(judge)
    from pytest_llmeval.models.python.model import CallableModel  # with asyncio, which a suite without a judge spares

    return version_of_function(judge.function) if isinstance(judge, CallableModel) else version_of_class(type(judge))
