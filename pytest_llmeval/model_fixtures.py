"""What stands behind the fixtures ``llm_model`` and ``llm_device``: from options to a loaded model."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.registry import ModelSpec, check_model, load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings, parse_model_arg
from pytest_llmeval.options import Settings

__all__ = ["check_model_options", "find_device", "is_overridden", "load"]


def model_options(settings: Settings, device: str | None) -> tuple[ModelSpec, ModelSettings]:
    """The model that the options name, and how it is to be loaded. Raises ``OptionError``."""
    if settings.model is None:
        raise ValueError("no model is configured")
    return parse_model_spec(settings.model), ModelSettings(
        device=device,
        dtype=settings.dtype,
        batch_size=settings.batch_size,
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
        allow_pickle=settings.allow_pickle,
        model_args=dict(parse_model_arg(text) for text in settings.model_arg),
    )


def check_model_options(settings: Settings, *, loads: bool) -> None:
    """Refuse what cannot be loaded, before anything runs; where nothing will be loaded, only the wording is checked."""
    spec, model_settings = model_options(settings, settings.device)
    if loads:
        check_model(spec, model_settings)


def find_device(request: pytest.FixtureRequest, settings: Settings) -> str:
    """The device that models are put on. One that does not exist ends the session."""
    from pytest_llmeval.models.huggingface import resolve_device

    try:
        return resolve_device(settings.device)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"device {settings.device} is not here", message)


def load(request: pytest.FixtureRequest, settings: Settings) -> Model:
    """Load the configured model. One that cannot be loaded ends the session."""
    device = request.getfixturevalue("llm_device")
    try:
        spec, model_settings = model_options(settings, device)
        if (workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT")) is not None:
            from pytest_llmeval.models.huggingface import configure_threads

            configure_threads(int(workers))
        return load_model(spec, model_settings)
    except LLMEvalError as error:
        message = str(error)
    _stop(request, f"model {settings.model} could not be loaded", message)


def _stop(request: pytest.FixtureRequest, reason: str, message: str) -> NoReturn:
    """Fail this test in one line, and run no other: each would fail alike.

    Not called where an exception is handled: pytest would print that one too.
    """
    request.session.shouldfail = reason
    pytest.fail(message, pytrace=False)


def is_overridden(config: pytest.Config, suite: Path) -> bool:
    """Whether a conftest.py above the suite, or another plugin, defines ``llm_model``.

    Read from the files' syntax, because with pytest-xdist the process that asks has not loaded them.
    """
    for plugin in config.pluginmanager.get_plugins():
        if getattr(plugin, "__name__", "") != "pytest_llmeval.plugin" and hasattr(plugin, "llm_model"):
            return True
    for folder in suite.parents:
        conftest = folder / "conftest.py"
        if conftest.is_file() and _defines_llm_model(conftest):
            return True
        if folder == config.rootpath:
            break
    return False


def _defines_llm_model(conftest: Path) -> bool:
    try:
        tree = ast.parse(conftest.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any("llm_model" in _names_defined(node) for node in ast.walk(tree))


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
