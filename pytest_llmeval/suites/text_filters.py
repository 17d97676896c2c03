"""Filters of templates that make values of texts, and texts of texts, as lm-eval reads and writes them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pytest_llmeval.suites.wording import quoted

__all__ = ["MAX_NESTING", "MAX_OUTPUT", "TEXT_FILTERS", "VALUE_FILTERS", "RefusedError", "too_much_text"]

MAX_OUTPUT = 10_000_000
MAX_NESTING = 50
MAX_LITERAL = 100_000
MAX_REGEX_SECONDS = 1.0


class RefusedError(Exception):
    """What a template asks for is refused: more memory or time than it can need, or what is surely a mistake."""


def too_much_text() -> RefusedError:
    """What is raised for a text that would be too long."""
    return RefusedError(f"it makes a text of more than {MAX_OUTPUT:,} characters")


def _literal(value: Any) -> Any:
    """A text that is a Python literal as its value: ``"['a', 'b']" | literal`` is a list. Other values as they are."""
    if not isinstance(value, str):
        return value
    if len(value) > MAX_LITERAL:
        raise RefusedError(f"the filter 'literal' takes at most {MAX_LITERAL:,} characters, found {len(value):,}")
    depth = 0
    for character in value:
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_NESTING:
            raise RefusedError(f"the filter 'literal' takes at most {MAX_NESTING} levels of brackets")
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise RefusedError(f"the filter 'literal' found {quoted(value)}, expected a list such as ['a', 'b']") from None


def _list_or_text(value: Any) -> Any:
    """A text in square brackets that is a Python list as that list; any other value as text."""
    text = value if isinstance(value, str) else str(value)
    if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
        try:
            return _literal(text)
        except RefusedError:
            return text
    return text


def _index_or_text(value: Any) -> Any:
    """Digits as a whole number, and everything else as ``list_or_text`` has it: how lm-eval reads a target."""
    text = value if isinstance(value, str) else str(value)
    is_number = text.isdecimal() and text.isascii() and len(text) <= 20 and (text[0] != "0" or not text.strip("0"))
    return int(text) if is_number else _list_or_text(text)


def _regex_replace(text: str, pattern: str, replacement: str, count: int = 0) -> str:
    """``re.sub``, in bounded time and memory."""
    import regex  # not needed by most suites

    parts: list[str] = []
    size = end = 0
    try:
        compiled = regex.compile(pattern)
        for number, match in enumerate(compiled.finditer(text, timeout=MAX_REGEX_SECONDS), 1):
            parts += (text[end : match.start()], match.expand(replacement))
            size += len(parts[-1]) + len(parts[-2])
            end = match.end()
            if size > MAX_OUTPUT:
                raise too_much_text()
            if number == count:
                break
    except regex.error as error:
        raise RefusedError(f"the filter 'regex_replace': {error}") from None
    except TimeoutError:
        raise RefusedError(f"the filter 'regex_replace' takes longer than {MAX_REGEX_SECONDS:g} s") from None
    return "".join((*parts, text[end:]))


VALUE_FILTERS = frozenset(("literal", "list_or_text", "index_or_text"))
"""Filters that make a value of a text."""

TEXT_FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "literal": _literal,
        "list_or_text": _list_or_text,
        "index_or_text": _index_or_text,
        "regex_replace": _regex_replace,
    }
)
"""The filters by the names that templates call them by."""
