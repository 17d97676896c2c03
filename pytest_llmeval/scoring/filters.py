"""Filters of a reply: their settings in a suite, and what they leave of a text."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, TypeAlias, get_args

import regex
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
from pytest_llmeval.scoring.base import SettingsError
from pytest_llmeval.scoring.regular_expressions import PythonRegex, found_text
from pytest_llmeval.text.wording import Keys, describe, dotted, quoted

__all__ = [
    "FILTERS",
    "TEXT_FILTERS",
    "Filter",
    "FilterChain",
    "FilterError",
    "FilterSettings",
    "Filters",
    "MapFilter",
    "RegexFilter",
    "filters_json_schema",
    "make_filters",
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
    """Remove white space at both ends, as lm-eval's remove_whitespace."""

    kind: Literal["strip"] = "strip"


class LstripFilter(Spec):
    """Remove white space at the beginning."""

    kind: Literal["lstrip"] = "lstrip"


class LowerFilter(Spec):
    """Write the text in lower case, as lm-eval's lowercase."""

    kind: Literal["lower"] = "lower"


class UpperFilter(Spec):
    """Write the text in upper case, as lm-eval's uppercase."""

    kind: Literal["upper"] = "upper"


class FirstLineFilter(Spec):
    """Keep the first line that holds more than white space; without one there is no answer."""

    kind: Literal["first_line"] = "first_line"


class LastLineFilter(Spec):
    """Keep the last line that holds more than white space; without one there is no answer."""

    kind: Literal["last_line"] = "last_line"


class AfterFilter(Spec):
    """Keep the text after a marker."""

    kind: Literal["after"] = "after"
    marker: str = Field(min_length=1, description="The text to look for, as it is written.")
    match: Literal["first", "last"] = Field("last", description="Which of several markers counts.")
    missing: Missing = Field(
        "no_answer",
        description="no_answer: a reply without the marker has no answer. keep: it stays whole.",
    )


class BeforeFilter(Spec):
    """Keep the text before a marker."""

    kind: Literal["before"] = "before"
    marker: str = Field(min_length=1, description="The text to look for, as it is written.")
    match: Literal["first", "last"] = Field("first", description="Which of several markers counts.")
    missing: Missing = Field(
        "keep",
        description="no_answer: a reply without the marker has no answer. keep: it stays whole.",
    )


class RegexFilter(Spec):
    """Keep the text that a regular expression finds, as lm-eval's regex: the match, or its one group, or the first
    group with text.

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
    """Keep a letter in brackets, as lm-eval's multi_choice_regex finds it.

    The letter is found by the pattern, else by the text of one of the sample's choices, else as a bare letter after a
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
    """Replace a whole text by another, as lm-eval's map: map: {"1": yes}, or with a default for all others."""

    kind: Literal["map"] = "map"
    values: dict[str, NameOrNumber] = Field(min_length=1, description="For each text, the text that replaces it.")
    default: NameOrNumber | None = Field(
        None, description="The text that replaces any other; by default it has no answer."
    )


class DropReasoningFilter(Spec):
    """Remove the model's reasoning: all from an opening to its closing tag, and white space after it.

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
TEXT_FILTERS = FILTERS.keys() - {"lower", "upper", "map"}
"""Filters that only take the answer's text out of the reply, and do not change what a text means."""
_SHORT: dict[str, str] = {"after": "marker", "before": "marker", "regex": "pattern", "choice_regex": "pattern"}
"""The setting that stands alone in the short form: ``{after: "####"}`` is ``{after: {marker: "####"}}``."""


def _named(value: object) -> object:
    """Return ``strip``, ``{after: "####"}`` and ``{after: {marker: "####"}}`` as ``{kind: …, …}``."""
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
    """Return JSON Schema of one filter, in the forms that YAML gives it."""
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


class Filter(Protocol):
    """One step of a chain. None stands for a reply that holds no answer. May raise ``TimeoutError`` and
    ``MemoryError``.
    """

    def __call__(self, text: str, choices: Sequence[str]) -> str | None: ...


_PLAIN: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {
        "strip": str.strip,
        "lstrip": str.lstrip,
        "lower": str.lower,
        "upper": str.upper,
        "first_line": lambda text: next((line for line in text.splitlines() if line.strip()), None),
        "last_line": lambda text: next((line for line in reversed(text.splitlines()) if line.strip()), None),
    }
)


@dataclass(frozen=True, slots=True)
class _Plain:
    """A function of the text alone, by its name."""

    name: str

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        return _PLAIN[self.name](text)


@dataclass(frozen=True, slots=True)
class _Marker:
    """A filter that keeps what stands before or after a marker."""

    settings: AfterFilter | BeforeFilter

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        marker = self.settings.marker
        place = text.find(marker) if self.settings.match == "first" else text.rfind(marker)
        if place < 0:
            return text if self.settings.missing == "keep" else None
        return text[:place] if isinstance(self.settings, BeforeFilter) else text[place + len(marker) :]


@dataclass(frozen=True, slots=True)
class _Regex:
    """lm-eval's regex (``lm_eval.filters.extraction.RegexFilter``); without its fallback a reply has no answer."""

    regex: PythonRegex
    settings: RegexFilter

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        match, group, fallback = self.regex.find(text, self.settings.match), self.settings.group, self.settings.fallback
        if match is None:
            return fallback
        found: str | None = found_text(match) if group is None else match[group]
        if found is None:
            return None if fallback is None else fallback.strip()
        return found.strip()


@dataclass(frozen=True, slots=True)
class _ChoiceRegex:
    """lm-eval's multi_choice_regex (``MultiChoiceRegexFilter``); without its fallback a reply has no answer."""

    regex: PythonRegex
    ignore: tuple[PythonRegex, ...]
    settings: ChoiceRegexFilter

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        found = self._by_pattern(text) or self._by_choice(text, choices) or self._by_letter(text, len(choices))
        return found or self.settings.fallback

    def _by_pattern(self, text: str) -> str | None:
        match = self.regex.find(text, self.settings.match)
        found = None if match is None else found_text(match)
        return found.strip() if found else None

    def _by_choice(self, text: str, choices: Sequence[str]) -> str | None:
        """Return the choice that is named in the text; the longest of those that begin at one place."""
        letters = {self._plain(choice.strip()): f"({_letter(place)})" for place, choice in enumerate(choices)}
        names = sorted(letters, key=len, reverse=True)
        found = self._search("|".join(map(regex.escape, names)), self._plain(text))
        return letters.get(found, found) if found else None

    def _by_letter(self, text: str, count: int) -> str | None:
        letters = "|".join(regex.escape(_letter(place)) for place in range(count))
        found = self._search(rf":[\s\x1c-\x1f]*({letters})", text)
        return f"({found})" if found else None

    def _search(self, pattern: str, text: str) -> str:
        """Return what the pattern finds, without white space at its ends; empty where there is no match."""
        compiled = dataclasses.replace(self.regex, compiled=regex.compile(pattern, regex.V0))
        match = compiled.find(text, self.settings.match)
        found = None if match is None else found_text(match)
        return found.strip() if found else ""

    def _plain(self, text: str) -> str:
        for ignored in self.ignore:
            text = ignored.removed(text)
        if self.settings.ignore_case:
            text = text.lower()
        if self.settings.ignore_punctuation:
            text = "".join(character for character in text if not unicodedata.category(character).startswith("P"))
        return text


def _letter(place: int) -> str:
    return chr(ord("A") + place)


@dataclass(frozen=True, slots=True)
class _Map:
    """lm-eval's map; without its default a reply has no answer."""

    settings: MapFilter

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        found = self.settings.values.get(text, self.settings.default)
        return None if found is None else str(found)


@dataclass(frozen=True, slots=True)
class _DropReasoning:
    """A filter that drops reasoning: see ``DropReasoningFilter``."""

    begin: str
    end: str

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        kept: list[str] = []
        position, is_cut = 0, False
        while True:
            closed = text.find(self.end, position)
            opened = text.find(self.begin, position, closed if closed >= 0 else len(text))
            if closed < 0 and opened >= 0:
                return None  # cut off in the middle of its reasoning
            if closed < 0:
                kept.append(text[position:])
                return "".join(kept).lstrip() if is_cut else text
            if opened < 0:
                kept.clear()  # what the prompt opened ends here
            else:
                kept.append(text[position:opened])
            position, is_cut = closed + len(self.end), True


@dataclass(frozen=True, slots=True)
class FilterChain:
    """Filters in their order, which a text goes through. ``names`` say of each where it stands in the suite.

    ``needs_choices`` is the name of one that looks at the sample's choices.
    """

    steps: tuple[Filter, ...] = ()
    names: tuple[str, ...] = ()
    needs_choices: str | None = None

    def __call__(self, text: str, choices: Sequence[str]) -> str | None:
        """Return the text that is left, None where the reply holds no answer. Raise ``FilterError`` for one that ran
        too long.
        """
        left: str | None = text
        for step, name in zip(self.steps, self.names, strict=True):
            if left is None:
                return None
            try:
                left = step(left, choices)
            except TimeoutError:
                raise FilterError(f"{name}: the search took longer than its timeout_s") from None
            except MemoryError:
                raise FilterError(f"{name}: the search took more memory than there is") from None
        return left

    def __add__(self, other: FilterChain) -> FilterChain:
        return FilterChain(
            (*self.steps, *other.steps), (*self.names, *other.names), self.needs_choices or other.needs_choices
        )

    def __bool__(self) -> bool:
        return bool(self.steps)


class FilterError(Exception):
    """An error of a filter that did not come to an end."""


def make_filters(filters: Sequence[FilterSettings], keys: Keys = ("filters",)) -> FilterChain:
    """Return the filters of a suite or of one of its scorers, which stand at ``keys``.

    Raise ``SettingsError``, which says which cannot be used, and why.
    """
    steps = []
    names = []
    needs_choices = None
    for place, settings in enumerate(filters):
        where = (*keys, place, settings.kind)
        try:
            steps.append(_filter(settings))
        except ValueError as error:
            raise SettingsError(str(error), where) from None
        names.append(dotted(where))
        if isinstance(settings, ChoiceRegexFilter):
            needs_choices = dotted(where)
    return FilterChain(tuple(steps), tuple(names), needs_choices)


def _filter(settings: FilterSettings) -> Filter:
    match settings:
        case AfterFilter() | BeforeFilter():
            return _Marker(settings)
        case RegexFilter():
            compiled = PythonRegex.of(settings.pattern, ignore_case=settings.ignore_case, timeout_s=settings.timeout_s)
            _check_group(compiled, settings.group)
            return _Regex(compiled, settings)
        case ChoiceRegexFilter():
            return _ChoiceRegex(
                PythonRegex.of(settings.pattern, timeout_s=settings.timeout_s),
                tuple(PythonRegex.of(pattern, timeout_s=settings.timeout_s) for pattern in settings.ignore),
                settings,
            )
        case MapFilter():
            return _Map(settings)
        case DropReasoningFilter():
            return _DropReasoning(settings.begin, settings.end)
        case _:
            return _Plain(settings.kind)


def _check_group(compiled: PythonRegex, group: int | str | None) -> None:
    if isinstance(group, str) and group not in compiled.compiled.groupindex:
        raise ValueError(f"the pattern has no group named {group!r}")
    if isinstance(group, int) and not 0 <= group <= compiled.compiled.groups:
        raise ValueError(f"the pattern has {compiled.compiled.groups} groups, and no group {group}")
