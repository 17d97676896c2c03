"""Settings of one scorer, by its name."""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, Field

from pytest_llmeval.suites.score_settings.choices import (
    ChoiceSettings,
    ContinuationSettings,
    LetterSettings,
    MassSettings,
    PerplexitySettings,
    YesNoSettings,
)
from pytest_llmeval.suites.score_settings.mathematics import MathSettings
from pytest_llmeval.suites.score_settings.replies import (
    ContainsSettings,
    ExactSettings,
    JsonSettings,
    NumberSettings,
    PatternSettings,
)
from pytest_llmeval.suites.score_settings.texts import (
    BleuSettings,
    ChrfSettings,
    F1Settings,
    MeteorSettings,
    RougeSettings,
    TerSettings,
)
from pytest_llmeval.suites.spec import Spec, refuse
from pytest_llmeval.suites.wording import describe, expected_one_of, quoted

__all__ = ["ONE_SCORER", "OneOf", "OneScoreSettings", "kinds_of", "named_settings"]

OneOf: TypeAlias = (
    ChoiceSettings
    | MassSettings
    | ContinuationSettings
    | LetterSettings
    | YesNoSettings
    | NumberSettings
    | ExactSettings
    | ContainsSettings
    | PatternSettings
    | MathSettings
    | JsonSettings
    | F1Settings
    | BleuSettings
    | RougeSettings
    | ChrfSettings
    | TerSettings
    | MeteorSettings
    | PerplexitySettings
)
"""Settings of any one scorer."""


def kinds_of(union: object) -> dict[str, type[Spec]]:
    """Names of the scorers of a union, and the models of their settings."""
    return {str(model.model_fields["kind"].default): model for model in get_args(union)}


ONE_SCORER: dict[str, type[Spec]] = kinds_of(OneOf)
"""Names of the scorers that stand alone, and the models of their settings."""


def named_settings(value: object, scorers: dict[str, type[Spec]], where: str = "score") -> object:
    """``letter`` and ``{letter: {labels: lower}}`` as ``{kind: letter, labels: lower}``."""
    if isinstance(value, BaseModel):
        return value
    name: str
    settings: object
    if isinstance(value, str):
        name, settings = value, None
    elif isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value)), str):
        ((name, settings),) = value.items()
    elif isinstance(value, dict) and value:
        raise refuse(
            f"{where}: found {len(value)} names ({', '.join(map(str, value))}), expected the name of one scorer"
        )
    else:
        raise refuse(f"{where}: found {describe(value)}, expected the name of a scorer, or one name with its settings")
    if name not in scorers:
        raise refuse(f"{where}: there is no scorer {quoted(name)}{expected_one_of(name, scorers)}")
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        raise refuse(f"{where}.{name}: found {describe(settings)}, expected a mapping of its settings")
    if "kind" in settings:  # ours, to tell the models apart
        raise refuse(f"unknown key 'kind' in {where}.{name}")
    return {"kind": name, **settings}


OneScoreSettings: TypeAlias = Annotated[
    OneOf, Field(discriminator="kind"), BeforeValidator(lambda value: named_settings(value, ONE_SCORER))
]
"""Settings of one scorer: its name, or its name with its settings."""
