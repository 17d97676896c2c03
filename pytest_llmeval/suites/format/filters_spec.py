"""The part of the suite format that says what is done to a reply before a scorer judges it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from pytest_llmeval.data.spec import (
    FROM_LIST,
    Spec,
    expected_here,
    name_and_settings,
    one_key_schema,
    refuse_here,
    with_kind,
)
from pytest_llmeval.text.wording import describe, quoted

__all__ = [
    "FILTERS",
    "AfterFilter",
    "BeforeFilter",
    "ChoiceRegexFilter",
    "DropReasoningFilter",
    "FilterSettings",
    "Filters",
    "MapFilter",
    "PlainFilter",
    "RegexFilter",
    "filters_json_schema",
]

Missing: TypeAlias = Literal["no_answer", "keep"]


def _place(value: object) -> object:
    if value in ("first", "last") or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise expected_here("first, last or a whole number")


def _name_or_number(value: object) -> object:
    if value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise expected_here("text or a whole number")


Place: TypeAlias = Annotated[Literal["first", "last"] | int, BeforeValidator(_place)]
NameOrNumber: TypeAlias = Annotated[str | int, BeforeValidator(_name_or_number)]


class StripFilter(Spec):
    """Without white space at both ends, as lm-eval's remove_whitespace."""

    kind: Literal["strip"] = "strip"


class LstripFilter(Spec):
    """Without white space at the beginning."""

    kind: Literal["lstrip"] = "lstrip"


class LowerFilter(Spec):
    """In lower case, as lm-eval's lowercase."""

    kind: Literal["lower"] = "lower"


class UpperFilter(Spec):
    """In upper case, as lm-eval's uppercase."""

    kind: Literal["upper"] = "upper"


class FirstLineFilter(Spec):
    """The first line that holds more than white space; no answer where there is none."""

    kind: Literal["first_line"] = "first_line"


class LastLineFilter(Spec):
    """The last line that holds more than white space; no answer where there is none."""

    kind: Literal["last_line"] = "last_line"


class AfterFilter(Spec):
    """What stands after a marker."""

    kind: Literal["after"] = "after"
    marker: str = Field(min_length=1, description="The text to look for, as it is written.")
    match: Literal["first", "last"] = Field("last", description="Which of several markers counts.")
    missing: Missing = Field("no_answer", description="A reply without the marker has no answer, or is kept whole.")


class BeforeFilter(Spec):
    """What stands before a marker."""

    kind: Literal["before"] = "before"
    marker: str = Field(min_length=1, description="The text to look for, as it is written.")
    match: Literal["first", "last"] = Field("first", description="Which of several markers counts.")
    missing: Missing = Field("keep", description="A reply without the marker has no answer, or is kept whole.")


class RegexFilter(Spec):
    """What a regular expression finds, as lm-eval's regex: the match, or its one group, or the first group with text.

    White space at both ends is taken off.
    """

    kind: Literal["regex"] = "regex"
    pattern: str = Field(description="A regular expression in Python's syntax.")
    match: Place = Field("first", description="Which match counts: first, last, or its number from 0; -1 is the last.")
    group: NameOrNumber | None = Field(
        None, description="The number or the name of the group that counts; by default the first that holds text."
    )
    fallback: str | None = Field(None, description="The text for a reply without a match; by default it has no answer.")
    ignore_case: bool = Field(False, description="Search without regard to case.")
    timeout_s: float = Field(1.0, gt=0, description="Seconds that the search in one reply may take.")


class ChoiceRegexFilter(Spec):
    """A letter in brackets, as lm-eval's multi_choice_regex finds it.

    What the pattern finds; else the text of one of the sample's choices, as its letter; else a bare letter after a
    colon.
    """

    kind: Literal["choice_regex"] = "choice_regex"
    pattern: str = Field(description="A regular expression in Python's syntax, such as (\\([A-Z]\\)).")
    match: Place = Field("first", description="Which match counts: first, last, or its number from 0; -1 is the last.")
    fallback: str | None = Field(
        None, description="The text for a reply in which nothing is found; by default it has no answer."
    )
    ignore_case: bool = Field(False, description="Look for the choices' texts without regard to case.")
    ignore_punctuation: bool = Field(False, description="Look for the choices' texts without their punctuation.")
    ignore: Annotated[tuple[str, ...], FROM_LIST] = Field(
        (), description="Regular expressions; what they match is removed from reply and choices."
    )
    timeout_s: float = Field(1.0, gt=0, description="Seconds that the search in one reply may take.")


class MapFilter(Spec):
    """Another text for a whole text, as lm-eval's map: map: {"1": yes}, or with a default for all others."""

    kind: Literal["map"] = "map"
    values: dict[str, NameOrNumber] = Field(min_length=1, description="For each text, the text that replaces it.")
    default: NameOrNumber | None = Field(
        None, description="The text that replaces any other; by default it has no answer."
    )


class DropReasoningFilter(Spec):
    """Without the model's reasoning: all from an opening to its closing tag, and white space after it.

    A closing tag without an opening one closes what the prompt opened. A block that is never closed leaves no answer.
    """

    kind: Literal["drop_reasoning"] = "drop_reasoning"
    begin: str = Field("<think>", min_length=1, description="The tag that opens a block.")
    end: str = Field("</think>", min_length=1, description="The tag that closes it.")

    @model_validator(mode="after")
    def _two_tags(self) -> DropReasoningFilter:
        if self.begin == self.end:
            raise refuse_here(f"found {quoted(self.end)} as both begin and end, expected two tags")
        return self


PlainFilter: TypeAlias = StripFilter | LstripFilter | LowerFilter | UpperFilter | FirstLineFilter | LastLineFilter
"""The filters that have no settings."""

_AnyFilter: TypeAlias = (
    PlainFilter | AfterFilter | BeforeFilter | RegexFilter | ChoiceRegexFilter | MapFilter | DropReasoningFilter
)

FILTERS: dict[str, type[Spec]] = {str(model.model_fields["kind"].default): model for model in get_args(_AnyFilter)}
"""Names of the filters, and the models of their settings."""

_SHORT: dict[str, str] = {"after": "marker", "before": "marker", "regex": "pattern", "choice_regex": "pattern"}
"""The setting that stands alone in the short form: ``{after: "####"}`` is ``{after: {marker: "####"}}``."""


def _named(value: object) -> object:
    """``strip``, ``{after: "####"}`` and ``{after: {marker: "####"}}`` as ``{kind: …, …}``."""
    if isinstance(value, BaseModel):
        return value
    name, settings = name_and_settings(value, "filter", FILTERS)
    if name in _SHORT and isinstance(settings, str):
        settings = {_SHORT[name]: settings}
    elif name == "map" and isinstance(settings, dict) and not isinstance(settings.get("values"), dict):
        for text, other in settings.items():
            if isinstance(other, bool) or not isinstance(other, str | int):
                raise refuse_here(f"found {describe(other)}, expected text or a whole number", name, text)
        settings = {"values": settings}
    return with_kind(name, settings)


FilterSettings: TypeAlias = Annotated[_AnyFilter, Field(discriminator="kind"), BeforeValidator(_named)]
"""Settings of one filter: its name, or its name with its settings."""

Filters: TypeAlias = Annotated[tuple[FilterSettings, ...], FROM_LIST]
"""Filters, in the order in which they are applied."""


def filters_json_schema() -> dict[str, Any]:
    """JSON Schema of one filter, in the forms that YAML gives it."""
    settings: dict[str, Any] = {}
    alone = []
    for name, model in FILTERS.items():
        reference = {"$ref": f"#/$defs/{model.__name__}"}
        required = [key for key, field in model.model_fields.items() if field.is_required()]
        forms: list[dict[str, Any]] = [reference]
        if name in _SHORT:
            forms.append({"type": "string"})
        if name == "map":
            forms.append(
                {"type": "object", "minProperties": 1, "additionalProperties": {"type": ["string", "integer"]}}
            )
        if not required:
            alone.append(name)
            forms.append({"type": "null"})
        settings[name] = reference if len(forms) == 1 else {"anyOf": forms}
    return {"anyOf": [{"type": "string", "enum": alone}, one_key_schema(settings)]}
