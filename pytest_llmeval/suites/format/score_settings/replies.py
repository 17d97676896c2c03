"""Settings of the scorers that judge a reply right or wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import BeforeValidator, Field

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse_here
from pytest_llmeval.suites.format.score_settings.scorer_settings import FileReader, ScorerSettings
from pytest_llmeval.text.wording import Keys, describe, nearest, quoted

__all__ = [
    "ContainsSettings",
    "ExactSettings",
    "JsonSettings",
    "Normalization",
    "NormalizationStep",
    "NumberSettings",
    "PatternSettings",
    "Remove",
]

Normalization: TypeAlias = Literal[
    "strip",
    "lower",
    "collapse_whitespace",
    "no_punctuation",
    "no_ascii_punctuation",
    "no_articles",
    "no_digits",
    "unicode",
]


class Remove(Spec):
    """Without what a regular expression matches."""

    remove: str = Field(description="A regular expression in Python's syntax.")


def _step(value: object) -> object:
    """A name, or ``{remove: …}``. pydantic's own words on a union name each of its parts."""
    names = get_args(Normalization)
    if isinstance(value, Remove) or value in names:
        return value
    if isinstance(value, dict) and list(value) == ["remove"]:
        pattern = value["remove"]
        if not isinstance(pattern, str):
            raise refuse_here(f"found {describe(pattern)}, expected a regular expression in quotes", "remove")
        return Remove(remove=pattern)
    near = nearest(value, names) if isinstance(value, str) else None
    advice = f"; did you mean {quoted(near)}?" if near else ""
    raise expected_here(f"one of {', '.join(names)}, or {{remove: a regular expression}}{advice}")


NormalizationStep: TypeAlias = Annotated[Normalization | Remove, BeforeValidator(_step)]
Normalizations: TypeAlias = Annotated[tuple[NormalizationStep, ...], FROM_LIST]


class NumberSettings(ScorerSettings):
    """The final number of the reply."""

    kind: Literal["number"] = "number"
    scorer = "scorers.replies.number:NumberScorer"


class ExactSettings(ScorerSettings):
    """The reply is one of the targets, after the same normalisations of both."""

    kind: Literal["exact"] = "exact"
    scorer = "scorers.replies.exact:ExactScorer"
    normalize: Normalizations = Field(
        ("strip",),
        description="Steps applied to the reply and to the targets, in this order, before they are compared.",
    )
    allow_empty: bool = Field(
        False,
        description="Accept a target that is empty after normalisation, as lm-eval's exact_match does; a reply that is "
        "empty after normalisation is then right.",
    )

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The key, in suites that do without it."""
        return () if self.allow_empty else ("allow_empty",)


class ContainsSettings(ScorerSettings):
    """The reply contains one of the targets, or all of them."""

    kind: Literal["contains"] = "contains"
    scorer = "scorers.replies.exact:ContainsScorer"
    match: Literal["any", "all"] = Field("any", description="How many of the targets the reply has to contain.")
    normalize: Normalizations = Field(
        (), description="Steps applied to the reply and to the targets, in this order, before they are compared."
    )


def _schema(value: object) -> object:
    """Any form of a schema. pydantic's own words on a union name each of its parts."""
    if value is None or isinstance(value, dict | bool | str):
        return value
    raise refuse_here(f"found {describe(value)}, expected a JSON Schema, or the name of a file that holds one")


class JsonSettings(ScorerSettings):
    """The reply is valid JSON; it matches the schema, if one is given, and equals the target, if there is one."""

    kind: Literal["json"] = "json"
    scorer = "scorers.replies.json_reply:JsonScorer"
    schema_: Annotated[dict[str, Any] | bool | str | None, BeforeValidator(_schema)] = Field(
        None,
        alias="schema",
        description="A JSON Schema, here or in a file of JSON or YAML, whose path is relative to the suite file.",
    )
    fenced: bool = Field(
        False, description="Read only the first block fenced by ```, if the reply has one; else read all of it."
    )

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """With the schema that the file of its name holds."""
        if not isinstance(self.schema_, str):
            return self
        return self.model_copy(update={"schema_": files.value(self.schema_, (*keys, "json", "schema"))})


class PatternSettings(ScorerSettings):
    """The one group of a regular expression, searched in the reply, is one of the targets."""

    kind: Literal["pattern"] = "pattern"
    scorer = "scorers.replies.pattern:PatternScorer"
    pattern: str = Field(description="A regular expression with one group.")
    ignore_case: bool = Field(False, description="Compare and search without regard to case.")
    match: Literal["first", "last"] = Field("first", description="Which match counts.")
    timeout_s: float = Field(1.0, gt=0, description="Seconds that the search in one reply may take.")
