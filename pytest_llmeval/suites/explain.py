"""pydantic's errors as sentences about a suite's keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytest_llmeval.suites.schema import SCORERS, SuiteSpec
from pytest_llmeval.suites.wording import Keys, describe, dotted, expected_one_of, nearest, quoted

__all__ = ["explain"]

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
_QUOTED = re.compile(r"'([^']*)'")


def explain(error: ValidationError) -> Iterator[tuple[str, Keys]]:
    """Each error as a sentence, and the keys at which it stands."""
    for detail in error.errors():
        keys: Keys = tuple(detail["loc"])
        yield _sentence(detail, keys), keys


def _sentence(detail: ErrorDetails, keys: Keys) -> str:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    found = detail["input"]
    if kind == "llmeval":
        return str(context["message"])
    if kind == "extra_forbidden":
        above = keys[:-1]
        model = _model_at(above)
        known = [name for name in model.model_fields if name != "kind"] if model is not None else []
        inside = f" in {dotted(above)}" if above else ""
        return f"unknown key {quoted(str(keys[-1]))}{inside}{expected_one_of(str(keys[-1]), known)}"
    if kind == "missing":
        return f"the key {quoted(str(keys[-1]))} is missing{f' in {dotted(keys[:-1])}' if keys[:-1] else ''}"
    return f"{dotted(keys)}: found {describe(found)}, expected {_expected(kind, context, found)}"


def _expected(kind: str, context: dict[str, Any], found: object) -> str:
    if kind == "llmeval_expected":
        return str(context["expected"])
    if kind == "literal_error":
        words = _QUOTED.findall(str(context["expected"]))
        near = nearest(found, words) if isinstance(found, str) else None
        return f"one of {', '.join(words)}" + (f"; did you mean {quoted(near)}?" if near else "")
    if kind == "greater_than_equal":
        return f"a number of at least {context['ge']:g}"
    if kind == "greater_than":
        return f"a number above {context['gt']:g}"
    expected = _EXPECTED.get(kind, kind)
    if expected == "text" and isinstance(found, bool | int | float):
        return expected + "; put it in quotes"
    return expected


def _model_at(keys: Keys) -> type[BaseModel] | None:
    """The model whose keys stand at ``keys``; a scorer's settings stand under its name, as in YAML."""
    if len(keys) == 2 and keys[0] == "score":
        return SCORERS.get(str(keys[1]))
    model: type[BaseModel] | None = SuiteSpec
    for key in keys:
        if model is None or key not in model.model_fields:
            return None
        annotation = model.model_fields[str(key)].annotation
        candidates = [annotation, *get_args(annotation)]
        model = next((part for part in candidates if isinstance(part, type) and issubclass(part, BaseModel)), None)
    return model
