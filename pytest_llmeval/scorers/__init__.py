"""The scorers: one module for each, of the scorer's name, with its settings, its documentation, and how it judges.

A scorer is found by its module's name and imported on first use, so that a suite pays for its own scorer alone. A new
one is a new module in this folder: a subclass of ``ScorerSettings`` whose ``kind`` is the module's name, and the
``Scorer`` that its ``make`` returns. What several scorers share stands in the folders below and in ``scoring/``.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny, ValidationInfo, create_model

from pytest_llmeval.data.spec import name_and_settings, with_kind
from pytest_llmeval.scoring.base import ScorerSettings

__all__ = ["ONE_SCORER", "SCORERS", "OneScoreSettings", "ScoreSettings"]


class ScorerRegistry(Mapping[str, type[ScorerSettings]]):
    """The models of the scorers' settings by the scorers' names, which are those of the modules in this folder."""

    def __init__(self, *left_out: str) -> None:
        self._names = tuple(
            module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg and module.name not in left_out
        )

    def __getitem__(self, name: str) -> type[ScorerSettings]:
        if name not in self._names:
            raise KeyError(name)
        return _settings_model(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


SCORERS = ScorerRegistry()
"""All scorers that a suite can name."""
ONE_SCORER = ScorerRegistry("several")
"""The scorers that can stand among several others."""


@cache
def _settings_model(name: str) -> type[ScorerSettings]:
    """Return the settings class that the module ``name`` defines; its ``kind`` is that name."""
    module = import_module(f"{__name__}.{name}")
    for found in vars(module).values():
        if inspect.isclass(found) and issubclass(found, ScorerSettings) and found.__module__ == module.__name__:
            kind = found.model_fields["kind"]
            if kind.default == name:
                return found
    raise TypeError(f"{module.__name__} defines no settings whose kind is {name!r}")


@cache
def _under_its_name(model: type[ScorerSettings]) -> type[BaseModel]:
    """Return a model of ``{NAME: settings}``, with which errors in the settings name the scorer too, as YAML does."""
    name = model.model_fields["kind"].default
    found: type[BaseModel] = create_model(f"_{model.__name__}", settings=(model, Field(alias=name)))
    return found


def _named_settings(value: object, scorers: Mapping[str, type[ScorerSettings]], info: ValidationInfo) -> object:
    """Return the settings of ``letter`` or of ``{letter: {labels: lower}}``, as an instance of their own model.

    Names that are registered from Python stand in the validation's context under ``scorers``.
    """
    if isinstance(value, ScorerSettings):
        return value
    custom = (info.context or {}).get("scorers", {})
    name, settings = name_and_settings(value, "scorer", [*scorers, *custom])
    if name in custom and isinstance(settings, dict):
        from pytest_llmeval.scoring.custom import CustomSettings

        return CustomSettings(name=name, settings=settings)
    settings = with_kind(name, settings)
    made: Any = _under_its_name(scorers[name]).model_validate({name: settings}, context=info.context)
    return made.settings


ScoreSettings: TypeAlias = Annotated[
    SerializeAsAny[ScorerSettings], BeforeValidator(lambda value, info: _named_settings(value, SCORERS, info))
]
"""Settings of a suite's scorer: its name, or its name with its settings."""
OneScoreSettings: TypeAlias = Annotated[
    SerializeAsAny[ScorerSettings], BeforeValidator(lambda value, info: _named_settings(value, ONE_SCORER, info))
]
"""The same of one of several scorers."""
