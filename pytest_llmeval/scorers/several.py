"""Several scorers that judge one reply: their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from pytest_llmeval.data.spec import Spec, refuse_here, whole
from pytest_llmeval.scorers import (
    OneScoreSettings,
)
from pytest_llmeval.scoring.base import FileReader, ScorerSettings
from pytest_llmeval.scoring.epochs import Reductions
from pytest_llmeval.scoring.filters import Filters
from pytest_llmeval.text.wording import Keys, expected_one_of, quoted

__all__ = ["PartSettings", "SeveralSettings"]

_NAME = re.compile(r"[^\W\d][\w@^-]*")


# \w means ASCII alone to editors: what is not ASCII is left to the loader.
_NAME_IN_SCHEMA = whole(r"(?:[A-Za-z_]|[^\u0000-\u007f\s])(?:[\w@^-]|[^\u0000-\u007f\s])*")


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
        """Return the name of the scorer that decides."""
        return next(iter(self.scorers)) if self.decides is None else self.decides

    def each(self, keys: Keys = ("score",)) -> Iterator[tuple[ScorerSettings, Keys]]:
        """Yield the settings of each of the scorers."""
        for name, part in self.scorers.items():
            yield part.score, (*keys, "several", "scorers", name, "score")

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """Return the settings with the files read of each of the scorers."""
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
