"""Several models in one session: which tests run on each, in which order, and the one model that is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Hashable, Mapping

import pytest

from pytest_llmeval.errors import LLMEvalError, ModelError
from pytest_llmeval.models.base import Model
from pytest_llmeval.plugin.model_loading import device_for, is_overridden, load_or_take
from pytest_llmeval.plugin.settings import Settings, settings_key
from pytest_llmeval.plugin.stash import model_key, stored_model_key
from pytest_llmeval.text.node_ids import model_nodes
from pytest_llmeval.text.redaction import describe

__all__ = ["ModelOrder", "ModelPool", "compared_models", "parametrize", "provide"]


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
