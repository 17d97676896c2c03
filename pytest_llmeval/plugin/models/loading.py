"""What stands behind the fixtures ``llm_model`` and ``llm_device``: from options to a loaded model."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.models.base import AskedSample, Model, answers_samples
from pytest_llmeval.models.registry import ModelSpec, check_model, load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings, parse_model_arg
from pytest_llmeval.models.threads import waiting_briefly
from pytest_llmeval.plugin.node_ids import split_file
from pytest_llmeval.plugin.options.settings import Settings, settings_key
from pytest_llmeval.plugin.xdist.distribution import worker_slot

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
    "is_overridden",
    "is_replaced_in",
    "lacks_model",
    "load",
    "load_configured",
    "make_importable",
    "require_model",
    "responses_key",
    "stop_without_model",
]

responses_key = pytest.StashKey[dict[Path, bool | None]]()
"""Whether the suites of this session that have been read carry their replies, by file."""

_replays_key = pytest.StashKey[dict[str, Model]]()

_WHAT = {"replay": "replies from a file", "python": "Python code", "guessing": "guessing"}

_replaced_key = pytest.StashKey[dict[tuple[Path, str], bool]]()


def model_options(settings: Settings, device: str | None) -> ModelSettings:
    """How models are to be loaded. Raises ``OptionError``."""
    return ModelSettings(
        device=device,
        dtype=settings.dtype,
        batch_size=settings.batch_size,
        engine=settings.engine,
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
        allow_pickle=settings.allow_pickle,
        model_args=dict(parse_model_arg(text) for text in settings.model_arg),
    )


def check_model_options(settings: Settings, *, loads: bool) -> None:
    """Refuse what cannot be loaded, before anything runs; where nothing will be loaded, only the wording is checked.

    Raises ``OptionError`` and ``ModelError``, also for two names of one model.
    """
    model_settings = model_options(settings, settings.device)
    specs = [parse_model_spec(settings.written(model)) for model in settings.models]
    known: dict[object, ModelSpec] = {}
    for spec in specs:
        location = os.path.realpath(spec.location) if spec.kind in ("folder", "replay") else spec.location
        other = known.setdefault((spec.runs_here or spec.kind, location, repr(sorted(spec.arguments.items()))), spec)
        if other is not spec:
            raise OptionError(f"--llm-model {other.name} and --llm-model {spec.name} are one model: name it once")
    if loads:
        for spec in specs:
            check_model(spec, model_settings)


def describe_models(settings: Settings) -> list[str]:
    """The models of ``--llm-model``, each with the way in which its log-likelihoods will be computed, or what it is."""
    from pytest_llmeval.models.huggingface.description import describe_engine

    model_settings = model_options(settings, settings.device)
    return [
        f"{spec.name} ({_WHAT.get(spec.kind) or f'log-likelihoods: {describe_engine(spec, model_settings)}'})"
        for spec in (parse_model_spec(settings.written(model)) for model in settings.models)
    ]


def make_importable(config: pytest.Config) -> None:
    """Let ``python:MODULE:NAME`` find modules in the current folder, as ``python -m pytest`` does, and the rootdir."""
    for folder in (str(config.rootpath), str(config.invocation_params.dir)):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def device_for(request: pytest.FixtureRequest, settings: Settings, model: str) -> str:
    """The device that this model is put on; whoever runs on none does not have to wait until one is found."""
    needed = parse_model_spec(settings.written(model)).runs_here
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
    _stop(request, f"device {settings.device} is not here", message)


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
    spec = parse_model_spec(settings.written(model))
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


def require_model(config: pytest.Config, nodeids: Iterable[str]) -> None:
    """Suites named on the command line, and nothing to answer them: that is a mistake, not something to skip.

    What a controller of pytest-xdist cannot judge is left to its workers.
    """
    if _may_lack_models(config):
        return
    for path in dict.fromkeys(split_file(nodeid)[0] for nodeid in nodeids):
        file = Path(os.path.normpath(config.rootpath / path))
        if not is_overridden(config, file) and _brings_responses(config, file) is False:
            raise pytest.UsageError(_needs_model(path))


def lacks_model(config: pytest.Config, file: Path) -> bool:
    """Whether nobody is there to answer the suites of a file whose data carry no replies, and a path was named."""
    return not _may_lack_models(config) and not is_overridden(config, file)


def stop_without_model(session: pytest.Session, path: str) -> NoReturn:
    """Fail a test as ``require_model`` refuses its suite, and run no other."""
    session.shouldfail = f"{path} needs a model"
    pytest.fail(_needs_model(path), pytrace=False)


def _may_lack_models(config: pytest.Config) -> bool:
    """Whether there is a model, or neither a path was named nor a gate asked for."""
    settings = config.stash[settings_key]
    was_asked_for = config.args_source is config.ArgsSource.ARGS or bool(settings.gate) or settings.baseline is not None
    return bool(settings.models) or not was_asked_for


def _needs_model(path: str) -> str:
    return (
        f"{path} needs a model: give --llm-model (--llm-model demo ships with the plugin), "
        "or override the fixture llm_model in a conftest.py"
    )


def _brings_responses(config: pytest.Config, file: Path) -> bool | None:
    """Whether the suite's data carry the replies. A controller collects nothing: it reads the suite for this.

    None where it cannot: a benchmark in Python, a task of lm-eval, a suite whose scorer a conftest.py registers.
    """
    known: dict[Path, bool | None] = config.stash.setdefault(responses_key, {})
    if file not in known:
        is_controller = config.pluginmanager.has_plugin("llmeval-distribution")
        known[file] = _own_responses(config, file) if is_controller else False
    return known[file]


def _own_responses(config: pytest.Config, file: Path) -> bool | None:
    from pytest_llmeval.suites.format.overrides import parse_override
    from pytest_llmeval.suites.format.sniff import is_suite_file
    from pytest_llmeval.suites.loading.loader import load_suite
    from pytest_llmeval.suites.loading.own_responses import has_own_responses

    if file.suffix not in (".yaml", ".yml") or not is_suite_file(file):
        return None
    try:
        return has_own_responses(
            load_suite(file, overrides=[parse_override(one) for one in config.stash[settings_key].set])
        )
    except LLMEvalError:
        return None


def check_replies(config: pytest.Config, file: Path, suite: str, samples: Callable[[], Sequence[AskedSample]]) -> None:
    """Find out, when a suite is collected, whether the files of replies fit it. Raises ``LLMEvalError``.

    Else each of its samples would fail alike.
    """
    settings = config.stash[settings_key]
    for model in settings.models:
        if model.startswith("replay:") and not is_overridden(config, file):
            held = config.stash.setdefault(_replays_key, {})
            if model not in held:
                held[model] = load_configured(settings, model, "cpu")
            loaded = held[model]
            if answers_samples(loaded):
                loaded.prepare(suite, samples())


def check_abilities(config: pytest.Config, file: Path, evaluation: Evaluation) -> None:
    """Refuse, when a suite is collected, a model that is known to lack what the suite asks for. Raises ``SuiteError``.

    Else each of its samples would fail alike. What a conftest.py gives in the model's place is known when it runs.
    """
    from pytest_llmeval.models.abilities import lacks_method
    from pytest_llmeval.scoring.abilities import inability, method_of

    settings = config.stash[settings_key]
    kinds = {model: parse_model_spec(settings.written(model)) for model in settings.models}
    checked = {model: spec for model, spec in kinds.items() if spec.kind in ("python", "replay")}
    if not checked or is_overridden(config, file):
        return
    method = method_of(evaluation)
    for model, spec in checked.items():
        replay = held_replay(config, model)
        lacks = getattr(replay, "lacks_method", None)
        if lacks(evaluation.suite.name, method) if lacks is not None else lacks_method(spec, method):
            raise inability(evaluation, model, method)


def held_replay(config: pytest.Config, model: str) -> Model | None:
    """The file of replies of this name that was read when suites were collected."""
    return config.stash.get(_replays_key, {}).get(model)


def is_overridden(config: pytest.Config, suite: Path) -> bool:
    """Whether a conftest.py above the suite, or a plugin that is loaded after ours, replaces ``llm_model``.

    Read from the files' syntax, because with pytest-xdist the process that asks has not loaded them. An ``llm_model``
    that takes ``llm_model`` wraps what there is, and replaces nothing.
    """
    plugins = [plugin for _, plugin in config.pluginmanager.list_name_plugin()]
    ours = next(place for place, plugin in enumerate(plugins) if _name(plugin) == "pytest_llmeval.plugin")
    for plugin in plugins[ours + 1 :]:
        file = getattr(plugin, "__file__", None) or ""
        if Path(file).name != "conftest.py" and _has_a_model(plugin):
            return True
    if suite.suffix == ".py" and is_replaced_in(config, suite):
        return True
    for folder in suite.parents:
        if is_replaced_in(config, folder / "conftest.py"):
            return True
        if folder == config.rootpath:
            break
    return False


def _name(plugin: object) -> str:
    return str(getattr(plugin, "__name__", ""))


def _has_a_model(plugin: object) -> bool:
    fixture = getattr(plugin, "llm_model", None)
    try:
        return fixture is not None and "llm_model" not in inspect.signature(fixture).parameters
    except (TypeError, ValueError):
        return True


def is_replaced_in(config: pytest.Config, module: Path, class_name: str = "") -> bool:
    """Whether the file, in or outside of the class named, has a fixture ``llm_model`` that wraps none."""
    known = config.stash.setdefault(_replaced_key, {})
    if (module, class_name) not in known:
        known[module, class_name] = _replaces(module, class_name)
    return known[module, class_name]


def _replaces(module: Path, class_name: str) -> bool:
    try:
        tree = ast.parse(module.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any("llm_model" in _names_defined(node) for node in _definitions(tree, class_name))


def _definitions(tree: ast.AST, class_name: str) -> Iterator[ast.AST]:
    """What can give a name to a fixture: not what functions and other classes hold, nor a function that wraps."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*node.args.args, *node.args.kwonlyargs)
            if not any(argument.arg == "llm_model" for argument in arguments):
                yield node
                for decorator in node.decorator_list:
                    yield from ast.walk(decorator)
        elif not isinstance(node, ast.ClassDef) or node.name == class_name:
            yield node
            yield from _definitions(node, class_name)


def _names_defined(node: ast.AST) -> list[object]:
    """Names that this piece of a conftest.py gives to something: a function, an import, a variable, a fixture."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            # What a star brings is not known: the fixture may be among it.
            return ["llm_model" if alias.name == "*" else alias.asname or alias.name for alias in node.names]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.keyword(arg="name", value=ast.Constant(value=value)):
            return [value]
    return []
