"""The base of every part of the suite format, and the errors that its validators raise."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from pytest_llmeval.text.wording import describe, expected_one_of, quoted

__all__ = [
    *(
        "EACH_ONCE_SCHEMA",
        "FROM_LIST",
        "Spec",
        "each_once",
        "expected_here",
        "name_and_settings",
        "one_key_schema",
        "refuse",
    ),
    *("refuse_here", "whole", "with_kind"),
]

_T = TypeVar("_T")

# Strict mode takes no list for a tuple, and YAML has lists only. The entries stay strict.
FROM_LIST = Field(strict=False)
EACH_ONCE_SCHEMA: JsonDict = {"minItems": 1, "uniqueItems": True}
"""The keywords of JSON Schema that say the same as ``each_once``."""


def whole(pattern: str) -> str:
    """Return a regular expression for JSON Schema that matches whole texts: ``$`` lets a line feed follow."""
    return f"^(?:{pattern})(?![\\s\\S])"


def refuse(message: str) -> PydanticCustomError:
    """Return what a validator raises: ``message`` is the whole sentence, with the keys."""
    return PydanticCustomError("llmeval", "{message}", {"message": message})


def refuse_here(message: str, *keys: str | int) -> PydanticCustomError:
    """Return what a validator raises that does not know where in a suite it stands: the keys are put before
    ``message``.

    ``keys`` lead on from the validated value to what is wrong in it.
    """
    return PydanticCustomError("llmeval_here", "{message}", {"message": message, "keys": keys})


def expected_here(expected: str) -> PydanticCustomError:
    """Return what a validator raises for a value of another kind than ``expected``."""
    return PydanticCustomError("llmeval_expected", "{expected}", {"expected": expected})


def name_and_settings(value: object, what: str, known: Collection[str]) -> tuple[str, Any]:
    """Return ``letter`` and ``{letter: {labels: lower}}`` as a name, which is ``known``, and its settings."""
    if isinstance(value, str):
        name, settings = value, None
    elif isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value)), str):
        ((name, settings),) = value.items()
    elif isinstance(value, dict) and value:
        raise refuse_here(f"found {len(value)} names ({', '.join(map(str, value))}), expected the name of one {what}")
    else:
        raise refuse_here(f"found {describe(value)}, expected the name of a {what}, or one name with its settings")
    if name not in known:
        raise refuse_here(f"there is no {what} {quoted(name)}{expected_one_of(name, known)}")
    return name, {} if settings is None else settings


def with_kind(name: str, settings: Any) -> dict[str, Any]:
    """Return ``{kind: letter, labels: lower}``, by which pydantic finds the model of the settings."""
    if not isinstance(settings, dict):
        raise refuse_here(f"found {describe(settings)}, expected a mapping of its settings", name)
    if "kind" in settings:
        raise PydanticCustomError("llmeval_unknown_key", "unknown key", {"keys": (name, "kind")})
    return {"kind": name, **settings}


def each_once(what: str) -> Callable[[tuple[_T, ...]], tuple[_T, ...]]:
    """Return a validator of a list that is not empty and names no ``what`` twice."""

    def check(values: tuple[_T, ...]) -> tuple[_T, ...]:
        if not values:
            raise refuse_here(f"found an empty list, expected one {what} or more")
        for place, value in enumerate(values):
            if value in values[:place]:
                raise refuse_here(f"found {value!r} twice, expected each {what} once", place)
        return values

    return check


def one_key_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return JSON Schema of a mapping with one of these keys."""
    own = {"properties": properties, "additionalProperties": False}
    return {"type": "object", **own, "minProperties": 1, "maxProperties": 1}


class Spec(BaseModel):
    """Base of all parts of the format: unknown keys are errors, types are not coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
