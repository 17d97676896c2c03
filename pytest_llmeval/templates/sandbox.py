"""The Jinja2 environment of a suite's templates: data in, text or data out, and no way to Python.

It is Jinja2's own immutable sandbox with strict undefined names and a list of harmless methods and filters. A template
can waste time and memory, as any test can; only what a slip of the pen makes huge is refused before it is made: a
``range``, a text or a list that is repeated, a power, the width of a format.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinMethodType, GeneratorType, MethodType
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes, pass_context, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pytest_llmeval.errors import RefusedError
from pytest_llmeval.text.wording import describe, expected_one_of, quoted

__all__ = ["MAX_OUTPUT", "VALUE_FILTERS", "Sandbox", "too_much_text"]

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
MAX_OUTPUT = 10_000_000
"""Characters of a rendered text."""
_MAX_ITEMS = 100_000
_MAX_BITS = 10_000
_MAX_WIDTH = 1_000
_MAX_KNOWN = 200
_TEXT_METHODS = """
capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace
istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip
split splitlines startswith strip swapcase title upper
"""
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS.split()),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    float: frozenset(("is_integer",)),
}
_DATA = (str, bytes, dict, list, tuple, float, int, type, type(None), range, set, frozenset, GeneratorType)
# Jinja2's random draws anew in each rendering, and pprint and urlize are for HTML pages.
_FILTERS = """
abs batch capitalize center count d default dictsort first float format indent int items last length list lower map
max min reject rejectattr replace reverse round select selectattr slice sort string title trim truncate unique upper
wordcount
"""
_STATEMENTS = {
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.Extends: "extends",
    nodes.Block: "block",
    nodes.ScopedEvalContextModifier: "autoescape",
}
_WIDE_PLACE = re.compile(r"%(?:\(.*?\))?[^a-zA-Z%]*?(?:\*|\d{4})", re.DOTALL)


def too_much_text() -> RefusedError:
    """Return the error for a text that would be too long."""
    return RefusedError(f"it makes a text of more than {MAX_OUTPUT:,} characters")


class _MissingEntry(StrictUndefined):
    """An entry that is not there. The message is made where it is shown, since finding the nearest key takes time."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        obj: Any = self._undefined_obj
        key: Any = self._undefined_name
        if isinstance(obj, dict):
            if not isinstance(key, str):
                return f"a mapping has no key {describe(key)}"
            known = [name for name in obj if isinstance(name, str)][:_MAX_KNOWN]
            return f"a mapping has no key {quoted(key)}{expected_one_of(key[:_MAX_KNOWN], known)}"
        shown = quoted(key) if isinstance(key, str) else str(key) if isinstance(key, float) else describe(key)
        if isinstance(key, int) and abs(key) < 10**20:
            shown = str(key)
        return f"{describe(obj)} has no entry {shown}"


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment in which templates are compiled and rendered.

    With ``python_values`` an expression that gives null, a list or a mapping is written as Python writes it, as
    lm-eval's templates do; without, it is refused, since it is almost always a mistake.
    """

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, *, python_values: bool = False) -> None:
        # Compiled code is shared by all sandboxes. So nothing may be computed while it is compiled: no optimiser, and
        # a finalize that takes a context.
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            finalize=self._finalize,
            cache_size=0,
            optimized=False,
        )
        self._python_values = python_values
        self.filters = _available_filters()
        del self.globals["lipsum"]
        self.globals["range"] = _bounded_range

    def parse_restricted(self, source: str) -> nodes.Template:
        """Return the template's tree. Raise what ``parse`` raises, and ``SecurityError`` for what is not available."""
        tree = self.parse(source)
        for kind, name in _STATEMENTS.items():
            if (found := tree.find(kind)) is not None:
                raise _refused(found, f"'{{% {name} %}}' is not available to a suite's templates")
        for found in tree.find_all(nodes.For):
            if found.recursive:
                raise _refused(found, "a recursive loop is not available to a suite's templates")
        for node in tree.find_all((nodes.Filter, nodes.Test)):
            known, what = (self.filters, "filter") if isinstance(node, nodes.Filter) else (self.tests, "test")
            if node.name not in known:
                names = sorted(name for name in known if name.isidentifier())
                raise _refused(node, f"there is no {what} {quoted(node.name)}{expected_one_of(node.name, names)}")
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute. The keys of a mapping come first, so that a column may be called ``items``."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, str) and attribute in ("format", "format_map"):
            return self.unsafe_undefined(obj, attribute)
        if isinstance(obj, _DATA) and not hasattr(obj, attribute):
            return self._missing(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an entry. The methods of a mapping are not its entries."""
        if isinstance(obj, _DATA):
            try:
                return obj[argument]  # type: ignore[index]
            except (TypeError, LookupError):
                if isinstance(argument, str) and not isinstance(obj, dict) and hasattr(obj, argument):
                    return self.unsafe_undefined(obj, argument)
                return self._missing(obj, argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, _DATA):
            return any(attr in names for kind, names in _METHODS.items() if isinstance(obj, kind))
        return type(obj).__module__ in ("jinja2.runtime", "jinja2.utils")

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        kind = type(obj).__name__
        if attribute.startswith("_") or not isinstance(obj, _DATA) or isinstance(obj, type):
            hint = (
                f"it reaches for Python internals ({quoted(attribute)} of a {kind}); "
                "a template works on the sample's data only"
            )
        else:
            hint = f"the method {quoted(attribute)} of a {kind} is not available to a suite's templates"
        return self.undefined(hint, obj=obj, name=attribute, exc=SecurityError)

    def _missing(self, obj: Any, key: Any) -> Undefined:
        return _MissingEntry(obj=obj, name=key)

    @pass_context
    def _finalize(self, _: Context, value: Any) -> Any:
        """Return a value that is written into a text. Refuse one that Python would write as no reader expects."""
        if isinstance(value, str | int | float | Undefined):
            return value
        if self._python_values and (value is None or isinstance(value, list | tuple | dict)):
            return str(value)
        if value is None:
            raise RefusedError("an expression gives null; write {{ x | default('', true) }} where nothing is meant")
        if isinstance(value, list | tuple | dict):
            what, advice = (
                ("a mapping", "a key of it") if isinstance(value, dict) else ("a list", "{{ x | join(', ') }}")
            )
            raise RefusedError(f"an expression gives {what}, expected text; write {advice}, or {{{{ x | tojson }}}}")
        if isinstance(value, MethodType | BuiltinMethodType):
            raise RefusedError(
                f"an expression gives the method {value.__name__.lstrip('_')}, expected text; call it with ()"
            )
        if (described := getattr(value, "described", None)) is not None:  # a cell that is no text (``Binary``)
            raise RefusedError(f"an expression gives {described}, expected text")
        raise RefusedError(
            f"an expression gives a Python {type(value).__name__}, expected text; try {{{{ x | list }}}}"
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return ``left * right``, ``left ** right`` or ``left % right``. Raise ``RefusedError`` for a huge value."""
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            if operator != "%" and bits > _MAX_BITS:
                raise RefusedError(f"'{operator}' gives a number of more than {_MAX_BITS:,} bits")
        elif operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(count, int):
                    _check_repeated(sequence, count)
        return super().call_binop(context, operator, left, right)


def _refused(node: nodes.Node, problem: str) -> SecurityError:
    return SecurityError(f"line {node.lineno} of the template: {problem}")


def _bounded_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > _MAX_ITEMS:
        raise RefusedError(f"range() gives at most {_MAX_ITEMS:,} numbers")
    return numbers


def _check_repeated(sequence: str | list[Any] | tuple[Any, ...], count: int) -> None:
    size = len(sequence) * count
    if isinstance(sequence, str) and size > MAX_OUTPUT:
        raise too_much_text()
    if not isinstance(sequence, str) and size > _MAX_ITEMS:
        raise RefusedError(f"a list of more than {_MAX_ITEMS:,} entries")


def _check_format(text: str) -> None:
    if _WIDE_PLACE.search(text):
        raise RefusedError(f"a format takes widths of at most 999, found {quoted(text)}")


@functools.cache
def _available_filters() -> dict[str, Callable[..., Any]]:
    filters: dict[str, Any] = {name: FILTERS[name] for name in _FILTERS.split()}
    filters.update(attr=_attr, indices=_indices, sum=_sum, tojson=_tojson, join=_join)
    filters.update(TEXT_FILTERS)
    return {name: _checked_filter(name, function) for name, function in filters.items()}


def _checked_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter so that it refuses, in words, a method that was not called and a huge width."""

    def check(value: Any, arguments: Iterable[Any]) -> None:
        if isinstance(value, MethodType | BuiltinMethodType):
            raise RefusedError(f"it works on the method {value.__name__.lstrip('_')}; call it with ()")
        if name in ("length", "count") and isinstance(value, GeneratorType):
            found = f"found a Python {type(value).__name__}"
            raise RefusedError(f"the filter {name!r} {found}; write {{{{ x | list | {name} }}}}")
        for width in arguments if name in _FILTERS_WITH_WIDTHS else ():
            if isinstance(width, int) and abs(width) > _MAX_WIDTH:
                raise RefusedError(f"the filter {name!r} takes at most {_MAX_WIDTH:,}, found {describe(width)}")
        if name == "format":
            _check_format(str(value))

    # Jinja2 hands a filter with this mark a context or an environment before its value.
    num_before = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def checked(*args: Any, **settings: Any) -> Any:
        check(args[num_before], (*args[num_before + 1 :], *settings.values()))
        return function(*args, **settings)

    return checked


_FILTERS_WITH_WIDTHS = frozenset(("batch", "center", "indent", "round", "slice", "tojson", "truncate"))


@pass_environment
def _join(environment: Sandbox, values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
    """Join the values as text. Jinja2's own filter escapes for HTML where it thinks that it must."""
    found = values if attribute is None else map(make_attrgetter(environment, attribute), values)
    return str(separator).join(map(str, found))


@pass_environment
def _attr(environment: Sandbox, obj: Any, name: str) -> Any:
    return environment.getattr(obj, name)


def _indices(values: Iterable[Any], wanted: Any, beside: Any = None) -> list[int]:
    """Return the positions at which ``values`` holds ``wanted``: ``[1.0, 0.0, 1.0] | indices(1.0)`` is ``[0, 2]``.

    ``beside`` is the list to whose parts the values belong, and has to be as long.
    """
    listed = list(values)
    if beside is not None and len(listed) != len(beside):
        raise RefusedError(f"the filter 'indices' found {len(listed)} values, expected one for each of {len(beside)}")
    return [position for position, value in enumerate(listed) if value == wanted]


@pass_environment
def _sum(environment: Sandbox, values: Iterable[Any], attribute: str | int | None = None, start: float = 0) -> float:
    """Return the sum of numbers. Python's own adds lists too, which no template means."""
    numbers = list(values if attribute is None else map(make_attrgetter(environment, attribute), values))
    for number in (start, *numbers):
        if isinstance(number, Undefined):
            str(number)  # raises its error
        if not isinstance(number, int | float):
            raise RefusedError(f"the filter 'sum' adds numbers, found {describe(number)}")
    return sum(numbers, start)


def _tojson(value: Any, indent: int | None = None) -> str:
    """Return JSON as text. Jinja2's own filter escapes ``<``, ``>`` and ``&`` for HTML, which no prompt wants."""
    if indent is not None and not isinstance(indent, int):
        raise RefusedError(f"the filter 'tojson' takes an indent in spaces, such as 2, found {describe(indent)}")
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_not_json)


def _not_json(value: Any) -> Any:
    if isinstance(value, Undefined):
        str(value)  # raises its error
    found = getattr(value, "described", f"a Python {type(value).__name__}; try {{{{ x | list }}}}")
    raise RefusedError(f"the filter 'tojson' writes data, found {found}")
