"""The fixtures ``llm_model``, ``llm_judge``, ``llm_embedder`` and ``llm_device``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from pytest_llmeval.plugin.options.settings import settings_key

if TYPE_CHECKING:
    from pytest_llmeval.models.base import Model
    from pytest_llmeval.types import Role

__all__ = ["llm_device", "llm_embedder", "llm_judge", "llm_model"]

_NO_MODEL = "no model: give --llm-model, or override the fixture llm_model in a conftest.py"

_NO_ROLE = "no {role}: give --llm-{role}, or override the fixture llm_{role} in a conftest.py"


@pytest.fixture(scope="session")
def llm_device(request: pytest.FixtureRequest) -> str:
    """The device that models are put on: ``--llm-device``, else MPS on Apple silicon, then CUDA, then CPU."""
    from pytest_llmeval.plugin.models.loading import find_device

    return find_device(request, request.config.stash[settings_key])


def _model_scope(fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    return "function" if len(config.stash[settings_key].models) > 1 else "session"


@pytest.fixture(scope=_model_scope)
def llm_model(request: pytest.FixtureRequest) -> Model:
    """The model of ``--llm-model``, with ``loglikelihood`` and ``generate``; session-scoped.

    A conftest.py can override this fixture and return any object of the Protocol. Where several models are given, a
    test that takes it runs once on each, and it is function-scoped.
    """
    settings = request.config.stash[settings_key]
    if not settings.models:
        pytest.skip(_NO_MODEL)
    if len(settings.models) > 1:
        from pytest_llmeval.plugin.models.several import provide

        return provide(request, settings)
    from pytest_llmeval.plugin.models.loading import load

    return load(request, settings.model_specs[0])


@pytest.fixture(scope="session")
def llm_judge(request: pytest.FixtureRequest) -> Model | tuple[Model, ...]:
    """The model of ``--llm-judge``, which gives verdicts on replies; of several, a panel, a tuple. Session-scoped.

    A conftest.py can override this fixture and return any object of the Protocol, or a list of several.
    """
    found = _models_of(request, "judge")
    return found[0] if len(found) == 1 else found


@pytest.fixture(scope="session")
def llm_embedder(request: pytest.FixtureRequest) -> Model:
    """The model of ``--llm-embedder``, which gives the embeddings of texts by ``embed``; session-scoped.

    A conftest.py can override this fixture and return any object that has the method.
    """
    return _models_of(request, "embedder")[0]


def _models_of(request: pytest.FixtureRequest, role: Role) -> tuple[Model, ...]:
    specs = request.config.stash[settings_key].specs_of(role)
    if not specs:
        pytest.skip(_NO_ROLE.format(role=role))
    from pytest_llmeval.plugin.models.loading import load

    return tuple(load(request, spec, role) for spec in specs)
