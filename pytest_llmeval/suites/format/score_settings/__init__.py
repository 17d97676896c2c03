"""What ``score`` can be: the scorers' names, and the models of their settings."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from pytest_llmeval.suites.format.score_settings.one import (
    ONE_SCORER,
    CustomSettings,
    OneOf,
    OneScoreSettings,
    named_settings,
)
from pytest_llmeval.suites.format.score_settings.several import SeveralSettings
from pytest_llmeval.suites.format.spec import Spec

__all__ = ["SCORERS", "CustomSettings", "OneScoreSettings", "ScoreSettings", "SeveralSettings"]

SCORERS: dict[str, type[Spec]] = {**ONE_SCORER, "several": SeveralSettings}
"""Names of the scorers, and the models of their settings."""

ScoreSettings: TypeAlias = Annotated[
    OneOf | SeveralSettings,
    Field(discriminator="kind"),
    BeforeValidator(lambda value, info: named_settings(value, SCORERS, info)),
]
