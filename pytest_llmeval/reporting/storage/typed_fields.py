"""Whether what JSON gave for a dataclass's fields is of their types: a report may have been edited by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pytest_llmeval.text.wording import describe

__all__ = ["DamagedPart", "check_fields", "is_number"]

_Kind: TypeAlias = tuple[Callable[[Any], bool], str]
"""Whether a value is one, and what it is called."""


class DamagedPart(ValueError):
    """Something in a report that is not what its place asks for; the message says where, and what was found."""


def check_fields(data: Mapping[str, Any], made: type[Any], where: str, *, but: frozenset[str] = frozenset()) -> None:
    """Check those of the fields of the dataclass ``made`` that are there, and that those without a default are.

    Numbers are finite, whole ones 0 or more; fields of any JSON, and those in ``but``, may hold anything; a list or
    mapping may be null. Raises ``DamagedPart`` with the place, which begins with ``where``.
    """
    for name, (is_one, expected), is_needed in _kinds(made):  # type: ignore[arg-type]
        if name not in data:
            if is_needed:
                raise DamagedPart(f"{where}: there is no {name!r}" if where else f"there is no {name!r}")
        elif name not in but and not is_one(data[name]):
            place = f"{where}.{name}" if where else name
            raise DamagedPart(f"{place}: found {describe(data[name])}, expected {expected}")


def is_number(value: object) -> bool:
    """A number that a float can hold; neither a bool nor infinite."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


_LARGEST = 1 << 1023


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


_ANYTHING: _Kind = (lambda _: True, "anything")
_PLAIN: Mapping[Any, _Kind] = MappingProxyType(
    {
        str: (lambda value: isinstance(value, str), "text"),
        bool: (lambda value: isinstance(value, bool), "true or false"),
        int: (_is_count, "a whole number, 0 or more"),
        float: (is_number, "a number"),
    }
)


@cache
def _kinds(made: Any) -> tuple[tuple[str, _Kind, bool], ...]:
    hints = get_type_hints(made)
    return tuple(
        (field.name, _kind(hints[field.name]), field.default is MISSING and field.default_factory is MISSING)
        for field in fields(made)
    )


def _kind(hint: Any) -> _Kind:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return (lambda value: isinstance(value, str) and value in args), f"{', '.join(args[:-1])} or {args[-1]}"
    if origin is tuple:
        return _list_of(_kind(args[0]))
    if origin is Mapping:
        return _mapping_of(_kind(args[1]))
    if origin in (UnionType, Union) and len(args) == 2 and NoneType in args:
        is_one, expected = _kind(next(arg for arg in args if arg is not NoneType))
        return (lambda value: value is None or is_one(value)), f"{expected} or null"
    if is_dataclass(hint):
        return (lambda value: isinstance(value, dict)), "a mapping"
    return _ANYTHING


def _list_of(kind: _Kind) -> _Kind:
    is_one, expected = kind
    return (
        lambda value: value is None or (isinstance(value, list) and all(map(is_one, value)))
    ), f"a list, each of it {expected}"


def _mapping_of(kind: _Kind) -> _Kind:
    is_one, expected = kind
    values = "" if kind is _ANYTHING else f", each value of it {expected}"
    return (
        lambda value: value is None or (isinstance(value, dict) and all(map(is_one, value.values())))
    ), f"a mapping{values}"
