"""Filters of templates that make values of texts, and texts of texts, as lm-eval reads and writes them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pytest_llmeval.errors import RefusedError
from pytest_llmeval.text.wording import describe, quoted

__all__ = ["TEXT_FILTERS", "VALUE_FILTERS"]

_MAX_REGEX_SECONDS = 1.0


class _NoLiteralError(RefusedError):
    """A text is not a Python literal."""


def _literal(value: Any) -> Any:
    """Return the value of a text that is a Python literal: ``"['a', 'b']" | literal`` is a list. Keep other values.

    A literal holds lists, tuples, mappings, texts, numbers, bools and None. Sets are refused: their order differs from
    run to run, and so would a prompt that is made of one.
    """
    if not isinstance(value, str):
        return value
    try:
        with warnings.catch_warnings():  # a text such as "[\d]" is data, not a program
            warnings.simplefilter("ignore")
            found = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise _NoLiteralError(
            f"the filter 'literal' found {quoted(value)}, expected a list such as ['a', 'b']"
        ) from None
    _check_kinds(found, value)
    return found


def _check_kinds(found: Any, text: str) -> None:
    if isinstance(found, dict):
        for key, item in found.items():
            _check_kinds(key, text)
            _check_kinds(item, text)
    elif isinstance(found, list | tuple):
        for item in found:
            _check_kinds(item, text)
    elif found is not None and not isinstance(found, str | int | float):
        raise RefusedError(
            f"the filter 'literal' reads lists, mappings, texts and numbers, found a Python {type(found).__name__} in "
            f"{quoted(text)}"
        )


def _list_or_text(value: Any) -> Any:
    """Return the list that a text in square brackets is in Python; any other value as text."""
    text = value if isinstance(value, str) else str(value)
    if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
        try:
            return _literal(text)
        except _NoLiteralError:
            return text
    return text


def _index_or_text(value: Any) -> Any:
    """Return digits as a whole number, and all else as ``list_or_text`` does: so lm-eval reads a target."""
    text = value if isinstance(value, str) else str(value)
    is_number = text.isdecimal() and text.isascii() and len(text) <= 20 and (text[0] != "0" or not text.strip("0"))
    return int(text) if is_number else _list_or_text(text)


def _regex_replace(text: str, pattern: str, replacement: str, count: int = 0) -> str:
    """Return ``re.sub(pattern, replacement, text, count)``, in bounded time."""
    for what, given in (("text", text), ("pattern", pattern), ("replacement", replacement)):
        if not isinstance(given, str):
            raise RefusedError(f"the filter 'regex_replace' takes a text as its {what}, found {describe(given)}")
    import regex  # most suites do not need it

    try:
        found: str = regex.sub(pattern, replacement, text, count=count, timeout=_MAX_REGEX_SECONDS)
    except (regex.error, IndexError) as error:
        raise RefusedError(f"the filter 'regex_replace': {error}") from None
    except TimeoutError:
        raise RefusedError(f"the filter 'regex_replace' takes longer than {_MAX_REGEX_SECONDS:g} s") from None
    return found


VALUE_FILTERS = frozenset(("literal", "list_or_text", "index_or_text"))
"""Filters that make a value of a text."""

TEXT_FILTERS: Mapping[str, Callable[..., Any]] = {
    "literal": _literal,
    "list_or_text": _list_or_text,
    "index_or_text": _index_or_text,
    "regex_replace": _regex_replace,
}
"""The filters by the names that templates call them by."""
