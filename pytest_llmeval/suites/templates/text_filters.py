"""Filters of templates that make values of texts, and texts of texts, as lm-eval reads and writes them."""

from __future__ import annotations

import ast
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import pass_environment

from pytest_llmeval.errors import RefusedError
from pytest_llmeval.suites.templates.budget import MAX_NESTING, MAX_OUTPUT, MAX_REGEX_SECONDS, Budget, too_much_text
from pytest_llmeval.text.wording import describe, quoted

__all__ = ["TEXT_FILTERS", "VALUE_FILTERS"]

MAX_LITERAL = 100_000
MAX_PATTERN = 1_000
MAX_REPLACEMENT = 10_000
MAX_REGEX_TEXT = 1_000_000
MAX_REPEATS = 100_000
_REPEATS = re.compile(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")


@pass_environment
def _literal(environment: Any, value: Any) -> Any:
    """A text that is a Python literal as its value: ``"['a', 'b']" | literal`` is a list. Other values as they are.

    A value holds lists, tuples, mappings, texts, numbers, bools and None: sets have no order of their own, so that
    what is made of one would differ from run to run.
    """
    return _read(value, environment.budget) if isinstance(value, str) else value


class _NoLiteralError(RefusedError):
    pass


def _read(value: str, budget: Budget) -> Any:
    if len(value) > MAX_LITERAL:
        raise _NoLiteralError(f"the filter 'literal' takes at most {MAX_LITERAL:,} characters, found {len(value):,}")
    budget.charge(len(value))
    depth = 0
    for character in value:
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_NESTING:
            raise _NoLiteralError(f"the filter 'literal' takes at most {MAX_NESTING} levels of brackets")
    try:
        with warnings.catch_warnings():  # of a text such as "[\d]", which is data, not a program
            warnings.simplefilter("ignore")
            made = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise _NoLiteralError(
            f"the filter 'literal' found {quoted(value)}, expected a list such as ['a', 'b']"
        ) from None
    _check_kinds(made, value)
    return made


def _check_kinds(made: Any, text: str) -> None:
    if isinstance(made, dict):
        for key, item in made.items():
            _check_kinds(key, text)
            _check_kinds(item, text)
    elif isinstance(made, list | tuple):
        for item in made:
            _check_kinds(item, text)
    elif made is not None and not isinstance(made, str | int | float):
        raise RefusedError(
            f"the filter 'literal' reads lists, mappings, texts and numbers, found a Python {type(made).__name__} in "
            f"{quoted(text)}"
        )


@pass_environment
def _list_or_text(environment: Any, value: Any) -> Any:
    """A text in square brackets that is a Python list as that list; any other value as text."""
    text = value if isinstance(value, str) else str(value)
    if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
        try:
            return _read(text, environment.budget)
        except _NoLiteralError:
            return text
    return text


@pass_environment
def _index_or_text(environment: Any, value: Any) -> Any:
    """Digits as a whole number, and everything else as ``list_or_text`` has it: how lm-eval reads a target."""
    text = value if isinstance(value, str) else str(value)
    is_number = text.isdecimal() and text.isascii() and len(text) <= 20 and (text[0] != "0" or not text.strip("0"))
    return int(text) if is_number else _list_or_text(environment, text)


@pass_environment
def _regex_replace(environment: Any, text: str, pattern: str, replacement: str, count: int = 0) -> str:
    """``re.sub``, in bounded memory and in what one rendering has left of ``MAX_REGEX_SECONDS``."""
    _check_regex(text, pattern, replacement)
    import regex  # not needed by most suites

    budget: Budget = environment.budget
    begin = time.monotonic()  # Compiling counts, too: it takes longer than most searches.
    deadline = begin + budget.regex_seconds_left
    parts: list[str] = []
    size = end = 0
    num_groups = replacement.count("\\")
    try:
        compiled = regex.compile(pattern)
        if (seconds_left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        found = compiled.finditer(text, timeout=seconds_left)
        for number, match in enumerate(found, 1):
            longest = max(stop - start for start, stop in match.regs)
            if size + len(replacement) + num_groups * longest > MAX_OUTPUT:
                raise too_much_text()
            parts += (text[end : match.start()], match.expand(replacement))
            size += len(parts[-1]) + len(parts[-2])
            end = match.end()
            if size > MAX_OUTPUT:
                raise too_much_text()
            if time.monotonic() > deadline:
                raise TimeoutError
            if number == count:
                break
    except (regex.error, IndexError) as error:
        raise RefusedError(f"the filter 'regex_replace': {error}") from None
    except TimeoutError:
        raise RefusedError(
            f"the filter 'regex_replace' takes longer than {MAX_REGEX_SECONDS:g} s in one rendering"
        ) from None
    budget.regex_seconds_left -= time.monotonic() - begin
    return "".join((*parts, text[end:]))


def _check_regex(text: str, pattern: str, replacement: str) -> None:
    for what, given, limit in (
        ("text", text, MAX_REGEX_TEXT),
        ("pattern", pattern, MAX_PATTERN),
        ("replacement", replacement, MAX_REPLACEMENT),
    ):
        if not isinstance(given, str):
            raise RefusedError(f"the filter 'regex_replace' takes a text as its {what}, found {describe(given)}")
        if len(given) > limit:
            raise RefusedError(
                f"the filter 'regex_replace' takes a {what} of at most {limit:,} characters, found {len(given):,}"
            )
    counts = (max(int(least or 1), int(most or 1), 1) for least, most in _REPEATS.findall(pattern))
    if math.prod(counts) > MAX_REPEATS:
        raise RefusedError(
            f"the filter 'regex_replace' takes a pattern whose counts in braces multiply to at most {MAX_REPEATS:,}"
        )


VALUE_FILTERS = frozenset(("literal", "list_or_text", "index_or_text"))
"""Filters that make a value of a text."""

TEXT_FILTERS: Mapping[str, Callable[..., Any]] = {
    "literal": _literal,
    "list_or_text": _list_or_text,
    "index_or_text": _index_or_text,
    "regex_replace": _regex_replace,
}
"""The filters by the names that templates call them by."""
