"""The fixtures ``llm_model`` and ``llm_device``, and one for each role: ``llm_judge``, ``llm_embedder``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.roles import ROLES, RoleDefinition

if TYPE_CHECKING:
    from pytest_llmeval.models.base import Model

__all__ = ["llm_device", "llm_model", "role_fixtures"]

_NO_MODEL = "no model: give --llm-model, or override the fixture llm_model in a conftest.py"

_NO_ROLE = "no {role}: give --llm-{role}, or override the fixture llm_{role} in a conftest.py"


@pytest.fixture(scope="session")
def llm_device(request: pytest.FixtureRequest) -> str:
    """Return the device that models are put on: ``--llm-device``, else MPS on Apple silicon, then CUDA, then CPU."""
    from pytest_llmeval.plugin.model_loading import find_device

    return find_device(request, request.config.stash[settings_key])


def _model_scope(fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    return "function" if len(config.stash[settings_key].models) > 1 else "session"


@pytest.fixture(scope=_model_scope)
def llm_model(request: pytest.FixtureRequest) -> Model:
    """Return the model of ``--llm-model``, with ``loglikelihood`` and ``generate``; session-scoped.

    A conftest.py can override this fixture and return any object of the Protocol. Where several models are given, a
    test that takes it runs once on each, and it is function-scoped.
    """
    settings = request.config.stash[settings_key]
    if not settings.models:
        pytest.skip(_NO_MODEL)
    if len(settings.models) > 1:
        from pytest_llmeval.plugin.several_models import provide

        return provide(request, settings)
    from pytest_llmeval.plugin.model_loading import load

    return load(request, settings.model_specs[0])


def role_fixtures() -> dict[str, object]:
    """Return the fixtures that give the models of each role, by name: ``llm_judge``, ``llm_embedder``."""
    return {role.fixture: pytest.fixture(scope="session")(_fixture_of(role)) for role in ROLES.values()}


def _fixture_of(role: RoleDefinition) -> Callable[[pytest.FixtureRequest], Model | tuple[Model, ...]]:
    def give(request: pytest.FixtureRequest) -> Model | tuple[Model, ...]:
        specs = request.config.stash[settings_key].specs_of(role.name)
        if not specs:
            pytest.skip(_NO_ROLE.format(role=role.name))
        from pytest_llmeval.plugin.model_loading import load

        found = tuple(load(request, spec, role.name) for spec in specs)
        return found[0] if len(found) == 1 else found

    several, or_list = ("; of several, a panel, a tuple", ", or a list of several") if role.most > 1 else ("", "")
    give.__name__ = give.__qualname__ = role.fixture
    give.__doc__ = f"""The model of ``--llm-{role.name}``, which {role.task}{several}; session-scoped.

    A conftest.py can override this fixture and return any object that has the method ``{role.method}``{or_list}.
    """
    return give
