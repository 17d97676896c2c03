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
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_llmeval.data.code_version import SOURCE, hash_of_sources, version_of_class, version_of_function
from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError
from pytest_llmeval.models.base import Model, answers_in_background, answers_samples, identify
from pytest_llmeval.models.hardware import importing_torch
from pytest_llmeval.models.registry import calling, check_model, check_model_args, load_model
from pytest_llmeval.models.servers.launched import Launched
from pytest_llmeval.models.settings import ModelSettings, ReplicaSettings, merge_model_args
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.plugin.budget import budget_of, check_budget
from pytest_llmeval.plugin.launched_servers import end_previous, launched_servers, watch_launched
from pytest_llmeval.plugin.process_roles import runs_tests, warn_once_of_suite
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
    from pytest_llmeval.models.budget import Budget
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
    "loaded_model",
    "make_importable",
    "model_settings",
    "parametrize",
    "provide",
]


_PATIENCE_S = 2.0
_early_key = pytest.StashKey[dict[str, Model]]()
"""The models under evaluation that were loaded when suites were collected, by name."""


_replicated_key: pytest.StashKey[ReplicatedModel] = pytest.StashKey()
"""The model whose replicas run on Ray now."""

_OUR_FIXTURES = "pytest_llmeval.plugin"


def is_overridden(node: pytest.Collector | pytest.Item, fixture: str = "llm_model") -> bool:
    """Tell whether another fixture replaces ours for the tests at ``node``.

    It may stand in a conftest.py, in a plugin that is loaded after ours, in the module or in the class. An
    ``llm_model`` that takes ``llm_model`` wraps the other one, and replaces nothing.
    """
    # pytest has no public way to ask for the fixtures of a node.
    definitions = node.session._fixturemanager.getfixturedefs(fixture, node) or ()
    found = next((one for one in reversed(definitions) if fixture not in one.argnames), None)
    return found is not None and getattr(found.func, "__module__", None) != _OUR_FIXTURES


def model_settings(settings: Settings, device: str | None) -> ModelSettings:
    """Return the session's settings as the models take them."""
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
        replicas=settings.replicas,
    )


def check_model_options(settings: Settings, *, loads: bool, budget: Budget | None = None) -> None:
    """Raise ``OptionError`` or ``ModelError`` for models that cannot be loaded, before anything runs.

    What their servers are asked here counts against the ``budget``. Two names of one model are an error, too. If
    nothing will be loaded, only the wording of options is checked.
    """
    own = replace(model_settings(settings, settings.device), budget=budget)
    known: dict[object, ModelSpec] = {}
    for spec in settings.model_specs:
        with calling(spec.kind, "key"):
            other = known.setdefault(spec.kind.key(spec), spec)
        if other is not spec:
            raise OptionError(f"--llm-model {other.name} and --llm-model {spec.name} are the same model: give it once")
    check_model_args(settings.all_specs, own)
    _check_ray(settings, own)
    if budget is not None:
        check_budget(settings, own)
    if loads:
        if settings.ray is not None and ":" in settings.ray:
            from pytest_llmeval.models.ray.cluster import check_reachable

            check_reachable(settings.ray)
        for spec in settings.all_specs:
            with _naming_role(spec):
                check_model(spec, own)
        for spec in settings.all_specs:
            with _naming_role(spec), calling(spec.kind, "connect"), _asking(spec):
                spec.kind.connect(spec, own)


def _check_ray(settings: Settings, own: ModelSettings) -> None:
    """Raise ``OptionError`` for ``--llm-ray`` if there can be no replicas, and for options that belong to it."""
    launched = next((spec for spec in settings.model_specs if isinstance(spec.kind, Launched)), None)
    if settings.ray is None:
        for name in ("replicas", "replica_cpus", "replica_gpus"):
            if getattr(settings, name) is not None and not (name == "replicas" and launched is not None):
                flag = f"--llm-{name.replace('_', '-')}"
                raise OptionError(f"{flag} is about replicas on Ray: give --llm-ray as well (local, or an address)")
        return
    if launched is not None:
        raise OptionError(
            f"--llm-ray: the servers of {launched.name} are started on this machine: leave --llm-ray out, and give "
            "--llm-replicas N for several"
        )
    from pytest_llmeval.models.ray.model import check_replicas

    check_replicas(settings.model_specs, own, _replica_settings(settings, settings.ray))


@contextlib.contextmanager
def _naming_role(spec: ModelSpec) -> Iterator[None]:
    """Have the error of a judge or embedder say the role of the model."""
    try:
        yield
    except ModelError as error:
        if spec.role is None:
            raise
        raise ModelError(f"the {spec.role}: {error}") from None


@contextlib.contextmanager
def _asking(spec: ModelSpec) -> Iterator[None]:
    """Say that a model is asked what it can do, if that takes long or Ctrl-C ends it: there is no header yet."""
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
    """Return a line on each model: how its log-likelihoods will be computed, or its kind."""
    own = model_settings(settings, settings.device)
    lines = []
    for spec in specs:
        with calling(spec.kind, "describe"):
            lines.append(f"{spec.name} ({spec.kind.describe(spec, own)})")
    return lines


def make_importable(config: pytest.Config) -> None:
    """Let ``python:MODULE:NAME`` find modules in the current folder, as ``python -m pytest`` does, and the rootdir."""
    for folder in project_folders(config):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def project_folders(config: pytest.Config) -> tuple[str, ...]:
    """Return the folders in which the user's modules are found."""
    return str(config.rootpath), str(config.invocation_params.dir)


def device_for(request: pytest.FixtureRequest, spec: ModelSpec) -> str:
    """Return the device that this model is put on. It is not looked for if the model needs none."""
    return str(request.getfixturevalue("llm_device")) if spec.kind.needs_device else "cpu"


def find_device(request: pytest.FixtureRequest, settings: Settings) -> str:
    """Return the device for models; workers take GPUs in turn. A device that does not exist ends the session."""
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
    """Return the only model of ``--llm-model``, or that of a role. If it cannot be loaded, the session ends."""
    device = device_for(request, spec)
    try:
        return loaded_model(request.config, spec, device)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"{role} {spec.name} could not be loaded", message)


def _replica_settings(settings: Settings, address: str) -> ReplicaSettings:
    return ReplicaSettings(
        address=address, count=settings.replicas, cpus=settings.replica_cpus, gpus=settings.replica_gpus
    )


def _load_replicas(config: pytest.Config, settings: Settings, spec: ModelSpec, device: str) -> Model:
    """Load replicas of the model on Ray, once those of the model before it are closed. Raises ``LLMEvalError``."""
    from pytest_llmeval.inference.chunks import DEFAULT_CHUNK_SIZE
    from pytest_llmeval.models.ray.model import load_replicas

    assert settings.ray is not None
    if (before := config.stash.get(_replicated_key, None)) is not None:
        before.close()
    model = config.stash[_replicated_key] = load_replicas(
        spec,
        model_settings(settings, device),
        _replica_settings(settings, settings.ray),
        chunk_size=settings.batch_size or DEFAULT_CHUNK_SIZE,
        import_paths=project_folders(config) if spec.kind.imports_from_project else (),
    )
    return model


def loaded_model(config: pytest.Config, spec: ModelSpec, device: str) -> Model:
    """Return the model that was loaded when suites were collected, or load it now. Raises ``LLMEvalError``."""
    if spec.role is None and (known := config.stash.get(_early_key, {}).get(spec.name)) is not None:
        return known
    settings = config.stash[settings_key]
    if spec.role is None:
        end_previous(config)
    if settings.ray is not None and spec.role is None and spec.kind.takes_replicas:
        loaded = _load_replicas(config, settings, spec, device)
    else:
        own = model_settings(settings, device)
        shared = replace(own, shared_folder=shared_folder(config), findings=findings_of(config))
        if isinstance(spec.kind, Launched):
            folder, show = launched_servers(config, spec)
            shared = replace(shared, device=settings.device, launched=folder, show_start=show)
        loaded = load_model(spec, replace(shared, budget=budget_of(config)))
        if isinstance(spec.kind, Launched):
            watch_launched(config, settings, spec, loaded, shared)
    if answers_in_background(loaded) and callable(close := getattr(loaded, "close", None)):
        config.add_cleanup(close)
    if (store := store_of(config)) is None:
        if isinstance(spec.kind, Launched):
            spec.kind.start(loaded)  # with a store, when something is missing there
        return loaded
    from pytest_llmeval.inference.stored_model import StoredModel, with_store

    more = [spec.kind.name, spec.location, json.dumps(spec.deciding, sort_keys=True)]
    model = with_store(loaded, store, *([] if spec.kind.is_identified else more))
    if spec.role is None and isinstance(model, StoredModel):
        config.stash[stored_model_key] = model
    return model


def _stop(request: pytest.FixtureRequest, reason: str, message: str) -> NoReturn:
    """Fail this test in one line, and run no other: each would fail in the same way.

    Do not call it where an exception is handled: pytest would print that one, too.
    """
    request.session.shouldfail = reason
    pytest.fail(message, pytrace=False)


def check_replies(node: pytest.Collector, suite: str, samples: Callable[[], Sequence[AskedSample]]) -> None:
    """Raise ``LLMEvalError``, when a suite is collected, if a file of replies does not fit it.

    Otherwise each of its samples would fail in the same way.
    """
    config = node.config
    for spec in config.stash[settings_key].model_specs:
        if spec.kind.is_remote and not runs_tests(config):
            continue
        if spec.kind.checks_suites and not is_overridden(node):
            loaded = loaded_model(config, spec, "cpu")
            config.stash.setdefault(_early_key, {})[spec.name] = loaded
            if answers_samples(loaded):
                loaded.prepare(suite, samples())
                warning_of = getattr(loaded, "warning_of", None)
                if warning_of is not None and (message := warning_of(suite)) is not None:
                    warn_once_of_suite(node, message)


def check_abilities(node: pytest.Collector, evaluation: Evaluation) -> None:
    """Raise ``SuiteError``, when a suite is collected, for a model that is known to lack a method that the suite needs.

    Otherwise each of its samples would fail in the same way. The model of a conftest.py is known only when tests run.
    """
    from pytest_llmeval.evaluation.evaluation import first_request, inability, method_of

    config = node.config
    settings = config.stash[settings_key]
    specs = settings.model_specs
    has_tools = evaluation.suite.spec.prompt.has_tools
    checked = [spec for spec in specs if spec.kind.shows_methods or spec.kind.checks_suites or has_tools]
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
        if has_tools:
            refuses = getattr(model, "refuses_tools", None)
            with calling(spec.kind, "refuses_tools"):
                own = model_settings(settings, settings.device)
                why = spec.kind.refuses_tools(spec, own) if refuses is None else refuses()
            if why is not None:
                key = "tools" if evaluation.suite.spec.prompt.tools is not None else "tools_column"
                raise evaluation.suite.error(f"{spec.name}: {why}", keys=("prompt", key))
        if (unknown := getattr(model, "unknown_setting", None)) is not None and (found := unknown(request)) is not None:
            setting, problem = found
            raise evaluation.suite.error(f"{spec.name}: {problem}", keys=("generate", setting))


class ModelPool:
    """Holds the model that was asked for last, and no other.

    :param release: drops all other references to the model that is held; called before the next model is loaded.
    """

    def __init__(self, *, release: Callable[[], None]) -> None:
        self._release = release
        self._held: tuple[Hashable, Model] | None = None
        self._failed: dict[Hashable, str] = {}

    def get(self, key: Hashable, load: Callable[[], Model]) -> Model:
        """Return the model of ``key``: the one that is held, or the result of ``load``.

        An error of ``load`` is passed on. Asked again, ``ModelError`` is raised with the same message: a second attempt
        would take as long and fail again.
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
    """Return the models on which a suite or a hand-written test runs, with their names in node ids.

    The result is empty unless several models are given. A conftest.py that replaces ``llm_model`` has the last word for
    its folder, as with one model: its suites run once. If it wraps ``llm_model``, it wraps each model.
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
    """Puts tests in the order of their models, so that each model is loaded once.

    This wrapper is the outermost, as it is registered late: within one model, the order is that which all others have
    made (``--ff``, ``--nf``, plugins that shuffle).
    """

    def __init__(self, settings: Settings) -> None:
        self._places = {model: place for place, model in enumerate(settings.models)}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Sort the tests; tests without a model keep their places among those of the first model.

        They are sorted before the other hooks run, too: ``--sw`` leaves out tests before the last failure, in the order
        in which they ran.
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
    """Return the model that the requesting test is for. If it cannot be loaded, only its own tests fail."""
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
        return config.stash[_pool_key].get((model, device), lambda: loaded_model(config, spec, device))
    except LLMEvalError as error:
        message = str(error)
    # Not where the exception is handled: pytest would print that one, too.
    pytest.fail(message, pytrace=False)


def _let_go(config: pytest.Config) -> None:
    """Drop the references that keep a model in memory: the batcher's, and the traceback of the last failure."""
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
"""The details that may decide verdicts, if a model's weights are not known; they are the same in every process."""


def judges_of(role: Role, given: object) -> tuple[object, ...]:
    """Return the models that a fixture gives for a role: one, or a list of several judges, a panel.

    Raises ``ModelError`` for none, for too many, and for an object that cannot be asked.
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
    """Return the judge in a few words, and a SHA-256 (hex) of all that is known of it.

    It is made of the judge's fingerprint (a server's includes the way in which it is held to JSON), revision and dtype.
    A model without a fingerprint is known by its name, what its server says of itself, and the version of its Python
    code; a hosted model may still change unseen. The project's own code, if the judge is made of it, is always part.
    Arguments that the name hides are in neither, since a hash would give a short secret away.
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
    """Return the model itself, without the store and the wrapper that carries the user's name."""
    while (inner := vars(model).get("_model") if hasattr(model, "__dict__") else None) is not None:
        model = inner
    return model


def _code_version(judge: object) -> int:
    """Return a checksum of the sources of a function or class that a user wrote."""
    judge = _innermost(judge)
    from pytest_llmeval.models.python.model import CallableModel  # with asyncio, which a suite without a judge spares

    return version_of_function(judge.function) if isinstance(judge, CallableModel) else version_of_class(type(judge))
