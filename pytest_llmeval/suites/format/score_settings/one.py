"""Settings of one scorer, by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo

from pytest_llmeval.suites.format.score_settings import choices, mathematics, replies, texts
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings
from pytest_llmeval.suites.format.spec import Spec, name_and_settings, with_kind

__all__ = ["ONE_SCORER", "CustomSettings", "OneOf", "OneScoreSettings", "kinds_of", "named_settings"]


class CustomSettings(ScorerSettings):
    """A scorer that is registered from Python under ``name``; ``settings`` are its keyword arguments."""

    kind: Literal["custom"] = "custom"
    name: str
    settings: dict[str, Any] = Field({}, description="Keyword arguments of what is registered.")


OneOf: TypeAlias = (
    choices.ChoiceSettings
    | choices.MassSettings
    | choices.ContinuationSettings
    | choices.LetterSettings
    | choices.YesNoSettings
    | replies.NumberSettings
    | replies.ExactSettings
    | replies.ContainsSettings
    | replies.PatternSettings
    | mathematics.MathSettings
    | replies.JsonSettings
    | texts.F1Settings
    | texts.BleuSettings
    | texts.RougeSettings
    | texts.ChrfSettings
    | texts.TerSettings
    | texts.MeteorSettings
    | choices.PerplexitySettings
    | CustomSettings
)
"""Settings of any one scorer: what stands here can stand in a suite, in this order in its schema."""


def kinds_of(union: object) -> dict[str, type[Spec]]:
    """Names of the scorers of a union, and the models of their settings."""
    return {str(model.model_fields["kind"].default): model for model in get_args(union) if model is not CustomSettings}


ONE_SCORER: dict[str, type[Spec]] = kinds_of(OneOf)
"""Names of the scorers that stand alone, and the models of their settings."""


def named_settings(value: object, scorers: dict[str, type[Spec]], info: ValidationInfo) -> object:
    """``letter`` and ``{letter: {labels: lower}}`` as ``{kind: letter, labels: lower}``.

    Names that are registered from Python stand in the validation's context under ``scorers``.
    """
    if isinstance(value, BaseModel):
        return value
    custom = (info.context or {}).get("scorers", {})
    name, settings = name_and_settings(value, "scorer", [*scorers, *custom])
    if name in custom and isinstance(settings, dict):
        return {"kind": "custom", "name": name, "settings": settings}
    return with_kind(name, settings)


OneScoreSettings: TypeAlias = Annotated[
    OneOf, Field(discriminator="kind"), BeforeValidator(lambda value, info: named_settings(value, ONE_SCORER, info))
]
"""Settings of one scorer: its name, or its name with its settings."""
