"""Words pydantic's errors as sentences about a suite's keys."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, nearest, quoted

__all__ = ["keys_of", "sentence"]

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "text that is not empty",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than_equal": ("of at least", "ge"),
    "less_than_equal": ("of at most", "le"),
    "greater_than": ("above", "gt"),
}
_OTHER_WORDS = {"delimiter": "separator", "sep": "separator"}
"""Keys of other programs, with the keys of ours that mean the same; by spelling, other ones would be suggested."""
_LISTS_OF_TEXTS = (("gates",), ("tags",))
_PLAIN = re.compile(r"[A-Za-z_][\w.() <>=+-]*")
"""A text that needs no quotes in a list of YAML."""
_QUOTED = re.compile(r"'([^']*)'")


def keys_of(detail: ErrorDetails) -> Keys:
    """Return the keys at which the error stands in the document."""
    return (*detail["loc"], *detail.get("ctx", {}).get("keys", ()))


def sentence(detail: ErrorDetails, root: type[BaseModel] = SuiteSpec) -> str:
    """Return the sentence for one of pydantic's errors; ``root`` is the model that was read."""
    keys = keys_of(detail)
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    found = detail["input"]
    if kind == "llmeval":
        return str(context["message"])
    if kind == "llmeval_here":
        return f"{dotted(keys)}: {context['message']}"
    if kind in ("extra_forbidden", "llmeval_unknown_key"):
        above = keys[:-1]
        known = _keys_at(above, root) if kind == "extra_forbidden" else []
        meant = _OTHER_WORDS.get(str(keys[-1]))
        expected = expected_one_of(str(keys[-1]), known) if kind == "extra_forbidden" else ""
        if meant in known:
            expected = f"; did you mean {quoted(meant)}?"
        return f"unknown key {quoted(str(keys[-1]))}{f' in {dotted(above)}' if above else ''}{expected}"
    if kind == "missing":
        return f"the key {quoted(str(keys[-1]))} is missing{f' in {dotted(keys[:-1])}' if keys[:-1] else ''}"
    expected = _expected(detail)
    if expected == "a list" and keys in _LISTS_OF_TEXTS and isinstance(found, str):
        expected += f": {keys[0]}: [{found if _PLAIN.fullmatch(found) else quoted(found)}]"
    return f"{dotted(keys)}: found {describe(found)}, expected {expected}"


def _expected(detail: ErrorDetails) -> str:
    kind, found = detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind == "llmeval_expected":
        return str(context["expected"])
    if kind == "literal_error":
        words = _QUOTED.findall(str(context["expected"]))
        near = nearest(found, words) if isinstance(found, str) else None
        return f"one of {', '.join(words)}" + (f"; did you mean {quoted(near)}?" if near else "")
    if kind in _BOUNDS:
        relation, bound = _BOUNDS[kind]
        return f"a number {relation} {context[bound]:g}"
    if kind == "too_short":
        count = context["min_length"]
        return f"at least {count} {'entry' if count == 1 else 'entries'}"
    if kind == "string_too_long":
        return "one character" if context["max_length"] == 1 else f"text of at most {context['max_length']} characters"
    expected = _EXPECTED.get(kind) or detail["msg"].removeprefix("Input should be ")
    if expected == "text" and isinstance(found, bool | int | float):
        return expected + "; put it in quotes"
    return expected


def _keys_at(keys: Keys, root: type[BaseModel]) -> list[str]:
    """Return the keys that can stand in the mapping at ``keys``."""
    parts: list[Any] = [root]
    for key in keys:
        parts = [below for part in parts for below in _below(part, key)]
    models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return [field.alias or name for model in models for name, field in model.model_fields.items() if name != "kind"]


def _below(annotation: Any, key: str | int) -> Iterator[Any]:
    """Yield what can stand at ``key`` inside something of this type; a union's kind stands under its name, as in
    YAML.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is ScorerSettings:
        if key in SCORERS:
            yield SCORERS[str(key)]
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if key == (field.alias or name):
                yield from _alternatives(field.annotation)
            elif name == "kind" and key == field.default:
                yield annotation
    elif isinstance(origin, type) and issubclass(origin, Mapping) and arguments:
        yield from _alternatives(arguments[1])
    elif isinstance(origin, type) and issubclass(origin, Sequence) and arguments:
        yield from _alternatives(arguments[0])


def _alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, without their annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _alternatives(part)
    else:
        yield annotation
