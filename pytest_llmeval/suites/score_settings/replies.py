"""Settings of the scorers that judge a reply right or wrong."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from pytest_llmeval.suites.spec import FROM_LIST, Spec

__all__ = ["ContainsSettings", "ExactSettings", "JsonSettings", "Normalization", "NumberSettings", "PatternSettings"]

Normalization: TypeAlias = Literal["strip", "lower", "collapse_whitespace", "no_punctuation", "no_articles", "unicode"]


class NumberSettings(Spec):
    """The final number of the reply."""

    kind: Literal["number"] = "number"


class ExactSettings(Spec):
    """The reply is one of the targets, after the same normalisations of both."""

    kind: Literal["exact"] = "exact"
    normalize: Annotated[tuple[Normalization, ...], FROM_LIST] = Field(
        ("strip",), description="Done to the reply and to the targets, in this order, before they are compared."
    )


class ContainsSettings(Spec):
    """The reply holds one of the targets, or all of them."""

    kind: Literal["contains"] = "contains"
    match: Literal["any", "all"] = Field("any", description="How many of the targets the reply has to hold.")
    normalize: Annotated[tuple[Normalization, ...], FROM_LIST] = Field(
        (), description="Done to the reply and to the targets, in this order, before they are compared."
    )


class JsonSettings(Spec):
    """The reply is valid JSON, of a schema where one is given."""

    kind: Literal["json"] = "json"


class PatternSettings(Spec):
    """The one group of a regular expression, searched in the reply, is one of the targets."""

    kind: Literal["pattern"] = "pattern"
    pattern: str = Field(description="A regular expression with one group.")
    ignore_case: bool = Field(False, description="Compare and search without regard to case.")
    match: Literal["first", "last"] = Field("first", description="Which match counts.")
    timeout_s: float = Field(1.0, gt=0, description="Seconds that the search in one reply may take.")
