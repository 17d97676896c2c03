"""Limits that are checked before a filter, a method or a format of a template makes a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_llmeval.errors import RefusedError
from pytest_llmeval.suites.templates.budget import MAX_OUTPUT, Budget, Lazy, too_much_text
from pytest_llmeval.text.wording import describe, quoted

__all__ = ["check_filter", "check_format", "check_method"]

MAX_DIGITS = 5_000
MAX_WIDTH = 1_000
MAX_ATTRIBUTE = 1_000
MAX_NUMBER = 400
"""Characters of a number in a format without width or precision."""
MAX_ESCAPE = 10
"""Characters that Python writes for one unprintable character of a text."""

_SIZED = frozenset(("batch", "center", "indent", "round", "slice", "tojson", "truncate"))
_BY_CHARACTER = frozenset(
    ("batch", "list", "map", "max", "min", "reject", "select", "slice", "sort", "title", "unique", "wordcount")
)
"""Filters that make an object of each character or word of a text."""
_BY_ATTRIBUTE = frozenset(("max", "min", "sort", "sum", "unique"))
_SELECTING = frozenset(("rejectattr", "selectattr"))
_REPEATING = frozenset(("lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"))
"""Methods for which Python goes through the argument again at each place of the text."""
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PLACE = re.compile(
    r"%(?:\([^()]*\))?[-#0 +]*(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?[hlL]?(?P<kind>.)", re.DOTALL
)


def check_filter(name: str, value: Any, arguments: Sequence[Any], settings: Mapping[str, Any], budget: Budget) -> None:
    """Refuse what the filter would make too large of ``value``, and charge for time beyond the size of what is given.

    Raises ``RefusedError``.
    """
    if isinstance(value, str) and name in _BY_CHARACTER:
        budget.charge(len(value))
    given = (*arguments, *settings.values())
    if name == "replace":
        _check_replace(str(value), *(str(part) for part in given[:2]))
    elif name == "format":
        check_format(str(value), dict(settings) if settings else tuple(arguments), budget)
    elif name == "int" and isinstance(value, str) and len(value) > MAX_DIGITS:
        raise RefusedError(f"the filter 'int' takes at most {MAX_DIGITS:,} digits, found {len(value):,}")
    elif name in ("length", "count") and isinstance(value, Lazy):
        raise RefusedError(f"the filter {name!r} found {value.described}; write {{{{ x | list | {name} }}}}")
    elif name == "trim" and given:
        budget.charge(_size(value) * _size(given[0]) // 1_000)
    elif name in _SIZED:
        for width in given:
            if isinstance(width, int) and abs(width) > MAX_WIDTH:
                raise RefusedError(f"the filter {name!r} takes at most {MAX_WIDTH:,}, found {describe(width)}")
        if name == "indent":
            _check_indent(str(value), given)
        elif name == "tojson" and given and given[0] is not None:
            if not isinstance(given[0], int):
                raise RefusedError(
                    f"the filter 'tojson' takes an indent in spaces, such as 2, found {describe(given[0])}"
                )
            if _size_of_part(value, max(given[0], 0)) > MAX_OUTPUT:
                raise too_much_text()
    paths = given if name in _BY_ATTRIBUTE else arguments[:1] if name in _SELECTING else ()
    for path in (*paths, settings.get("attribute")):
        if isinstance(path, str) and len(path) > MAX_ATTRIBUTE:
            raise RefusedError(f"the filter {name!r} takes an attribute of at most {MAX_ATTRIBUTE:,} characters")


def check_method(text: str, name: str, arguments: Sequence[Any], budget: Budget) -> None:
    """The same for a method of ``text``."""
    if name == "replace" and len(arguments) >= 2:
        _check_replace(text, str(arguments[0]), str(arguments[1]))
    elif name == "splitlines":
        budget.charge(_num_lines(text))
    elif name in _REPEATING and arguments and isinstance(arguments[0], str):
        budget.charge(len(text) * len(arguments[0]) // 1_000)


def check_format(text: str, given: Any, budget: Budget) -> None:
    """Refuse a ``%`` format whose text would be too long. Raises ``RefusedError``."""
    budget.charge(text.count("%"))
    values = given if isinstance(given, tuple) else (given,)
    longest = max((_size(value) for value in values), default=0)
    size = len(text)
    for place in _PLACE.finditer(text):
        width, precision, kind = place.group("width"), place.group("precision") or "", place.group("kind")
        if "*" in (width, precision) or len(width) > 3 or len(precision) > 3:
            raise RefusedError(f"a format takes widths of at most 999, found {quoted(text)}")
        if kind not in "diouxXeEfFgGcrsa%":
            raise RefusedError(f"a format takes places such as %s, %d, %.2f and %(name)s, found {quoted(text)}")
        size += int(width or 0) + int(precision or 0) + longest * (MAX_ESCAPE if kind in "ra" else 1)
        if size > MAX_OUTPUT:
            raise too_much_text()


def _size(value: Any) -> int:
    """At least the number of characters that ``%s`` writes for a value that was weighed."""
    if isinstance(value, str):
        return len(value)
    return _size_of_part(value) if isinstance(value, list | tuple | dict) else MAX_NUMBER + _num_digits(value)


def _size_of_part(value: Any, indent: int = 0, depth: int = 1) -> int:
    """At least the number of characters of a value inside another as Python and as JSON write it."""
    if isinstance(value, str):
        return 2 + len(value) * (2 if value.isprintable() else MAX_ESCAPE)
    if not isinstance(value, list | tuple | dict):
        return 30 + _num_digits(value)
    size = 4 + indent * depth
    for item in value:
        size += 4 + indent * depth + _size_of_part(item, indent, depth + 1)
    for item in value.values() if isinstance(value, dict) else ():
        size += _size_of_part(item, indent, depth + 1)
    return size


def _num_digits(value: Any) -> int:
    return value.bit_length() // 3 if isinstance(value, int) else 0


def _check_indent(text: str, given: Sequence[Any]) -> None:
    per_line = max((len(width) if isinstance(width, str) else width for width in given), default=4)
    if len(text) + (_num_lines(text) + 1) * per_line > MAX_OUTPUT:
        raise too_much_text()


def _num_lines(text: str) -> int:
    return sum(text.count(mark) for mark in _LINE_BREAKS)


def _check_replace(text: str, old: str = "", new: str = "") -> None:
    if len(text) + text.count(old) * max(len(new) - len(old), 0) > MAX_OUTPUT:
        raise too_much_text()
