"""What ``score`` can be: the scorers' names, and the models of their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, model_validator

from pytest_llmeval.data.spec import Spec, name_and_settings, refuse_here, whole, with_kind
from pytest_llmeval.suites.format.epochs_spec import Reductions
from pytest_llmeval.suites.format.filters_spec import Filters
from pytest_llmeval.suites.format.score_settings import choices, judged, mathematics, replies, retrieval, texts
from pytest_llmeval.suites.format.score_settings.scorer_settings import FileReader, ScorerSettings
from pytest_llmeval.text.wording import Keys, expected_one_of, quoted

__all__ = [
    *("ONE_SCORER", "SCORERS", "CustomSettings", "OneScoreSettings", "PartSettings", "ScoreSettings"),
    "SeveralSettings",
]

_NAME = re.compile(r"[^\W\d][\w@^-]*")
# \w means ASCII alone to editors: what is not ASCII is left to the loader.
_NAME_IN_SCHEMA = whole(r"(?:[A-Za-z_]|[^\u0000-\u007f\s])(?:[\w@^-]|[^\u0000-\u007f\s])*")


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
    | judged.AspectsSettings
    | judged.RubricSettings
    | judged.EquivalenceSettings
    | judged.PairwiseSettings
    | judged.RagSettings
    | retrieval.RetrievalSettings
    | CustomSettings
)
"""Settings of any one scorer: what stands here can stand in a suite, in this order in its schema."""


ONE_SCORER: dict[str, type[ScorerSettings]] = {
    str(model.model_fields["kind"].default): model for model in get_args(OneOf) if model is not CustomSettings
}
"""Names of the scorers that stand alone, and the models of their settings."""


def _named_settings(value: object, scorers: Mapping[str, type[ScorerSettings]], info: ValidationInfo) -> object:
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
    OneOf, Field(discriminator="kind"), BeforeValidator(lambda value, info: _named_settings(value, ONE_SCORER, info))
]
"""Settings of one scorer: its name, or its name with its settings."""


class PartSettings(Spec):
    """One of several scorers, and what is done to the reply before it."""

    filters: Filters = Field((), description="Steps applied to the reply in this order, after the suite's own filters.")
    score: OneScoreSettings = Field(description="How the reply is scored.")
    reduce: Reductions | None = Field(
        None, description="How this scorer's scores of several epochs become one; by default as epochs.reduce says."
    )


class SeveralSettings(ScorerSettings):
    """Several scorers judge one reply, and one of them decides whether it is right."""

    kind: Literal["several"] = "several"
    scorers: dict[str, PartSettings] = Field(
        min_length=1,
        json_schema_extra={"propertyNames": {"pattern": _NAME_IN_SCHEMA}},
        description="The scorers, by name; the name is put before their metrics: flexible.accuracy.",
    )
    decides: str | None = Field(
        None,
        description="The scorer that decides what is right, whose metrics keep their names. Default: the first.",
    )

    @property
    def deciding(self) -> str:
        """The name of the scorer that decides."""
        return next(iter(self.scorers)) if self.decides is None else self.decides

    def each(self, keys: Keys = ("score",)) -> Iterator[tuple[ScorerSettings, Keys]]:
        """Those of each of the scorers."""
        for name, part in self.scorers.items():
            yield part.score, (*keys, "several", "scorers", name, "score")

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """With the files of each of the scorers."""
        read_parts = {
            name: part.model_copy(update={"score": score.with_files_read(files, own_keys)})
            for (name, part), (score, own_keys) in zip(self.scorers.items(), self.each(keys), strict=True)
        }
        return self.model_copy(update={"scorers": read_parts})

    @model_validator(mode="after")
    def _names(self) -> SeveralSettings:
        for name in self.scorers:
            if _NAME.fullmatch(name) is None:
                message = (
                    f"found the name {quoted(name)}, expected a letter and then letters, digits, '_', '-', '@' and '^'"
                )
                raise refuse_here(message, "scorers", name)
        if self.decides is not None and self.decides not in self.scorers:
            message = (
                f"there is no scorer {quoted(self.decides)} in scorers{expected_one_of(self.decides, self.scorers)}"
            )
            raise refuse_here(message, "decides")
        return self


SCORERS: dict[str, type[ScorerSettings]] = {**ONE_SCORER, "several": SeveralSettings}
"""Names of the scorers, and the models of their settings."""

ScoreSettings: TypeAlias = Annotated[
    OneOf | SeveralSettings,
    Field(discriminator="kind"),
    BeforeValidator(lambda value, info: _named_settings(value, SCORERS, info)),
]
