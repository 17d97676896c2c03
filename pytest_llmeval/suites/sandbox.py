"""The Jinja2 environment of suites: data in, text or data out, and no way to Python or to the machine's memory.

A template sees builtins only (text, numbers, lists, mappings). Methods and filters are a list of what is harmless;
whatever can grow is measured before it is made, and every loop and filter draws on one budget of steps for each
rendering.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from pytest_llmeval.suites.text_filters import MAX_NESTING, MAX_OUTPUT, TEXT_FILTERS, RefusedError, too_much_text
from pytest_llmeval.suites.wording import describe, expected_one_of, quoted

__all__ = ["MAX_OUTPUT", "MAX_STEPS", "RefusedError", "Sandbox"]

MAX_STEPS = 1_000_000
MAX_ITEMS = 100_000
MAX_BITS = 10_000
MAX_DIGITS = 5_000
MAX_WIDTH = 1_000

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
_DATA = (str, bytes, dict, list, tuple, float, int, type, type(None), range, set, frozenset)
_FILTERS = """
abs batch capitalize center count d default dictsort first float format indent int items last length list lower map
max min reject rejectattr replace reverse round select selectattr slice sort string sum title trim truncate unique
upper wordcount
"""
_SIZED_FILTERS = frozenset(("batch", "center", "indent", "round", "slice", "tojson", "truncate"))
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
_WIDE_FORMAT = re.compile(r"%(?:\([^)]*\))?[^%a-zA-Z]*(?:\*|\d{4,})")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment. ``restart()`` refills the budget of steps before each rendering.

    With ``python_values`` an expression that gives null, a list or a mapping is written as Python writes it, as
    lm-eval's templates do; without, it is refused as what is surely a mistake.
    """

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, *, python_values: bool = False) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True, finalize=self._finalize, cache_size=0)
        self._python_values = python_values
        self._steps_left = MAX_STEPS
        available = {name: self.filters[name] for name in _FILTERS.split()}
        available.update(attr=_attr, indices=_indices, tojson=_tojson, join=self._join)
        available.update(TEXT_FILTERS)
        self.filters = {name: self._guarded(name, function) for name, function in available.items()}
        self.filters.update({_CONCAT: self._concat, _LOOP: self._loop, _MADE: self._made})
        del self.globals["lipsum"]
        self.globals["range"] = self._range

    def restart(self) -> None:
        self._steps_left = MAX_STEPS

    def parse_restricted(self, source: str) -> nodes.Template:
        """The template's tree, with measured loops and texts. Raises what ``parse`` raises, and ``SecurityError``."""
        tree = self.parse(source)
        for kind, name in _STATEMENTS.items():
            if (found := tree.find(kind)) is not None:
                raise SecurityError(
                    f"line {found.lineno} of the template: '{{% {name} %}}' is not available to a suite's templates"
                )
        for found in tree.find_all(nodes.For):
            if found.recursive:
                raise SecurityError(
                    f"line {found.lineno} of the template: a recursive loop is not available to a suite's templates"
                )
        for node in tree.find_all((nodes.Filter, nodes.Test)):
            known, what = (self.filters, "filter") if isinstance(node, nodes.Filter) else (self.tests, "test")
            if node.name not in known or node.name in (_CONCAT, _LOOP, _MADE):
                names = sorted(name for name in known if name.isidentifier())
                raise SecurityError(
                    f"line {node.lineno} of the template: there is no {what} {quoted(node.name)}"
                    f"{expected_one_of(node.name, names)}"
                )
        measured: nodes.Template = _Measure().visit(tree)
        return measured

    # What a template reaches

    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute. The keys of a mapping come first, so that a column may be called ``items`` or ``count``."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, str) and attribute in ("format", "format_map"):
            return self.unsafe_undefined(obj, attribute)
        if isinstance(obj, _DATA) and not hasattr(obj, attribute):
            return self._missing(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An entry. A mapping's methods are not its entries."""
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
        if isinstance(obj, dict):
            known = [name for name in obj if isinstance(name, str)]
            hint = f"a mapping has no key {describe(key) if not isinstance(key, str) else quoted(key)}"
            return self.undefined(
                hint + (expected_one_of(key, known) if isinstance(key, str) else ""), obj=obj, name=key
            )
        shown = quoted(key) if isinstance(key, str) else str(key)
        return self.undefined(f"{describe(obj)} has no entry {shown}", obj=obj, name=key)

    # What a template may use up

    def _charge(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise RefusedError(f"it takes more than {MAX_STEPS:,} steps; a template prepares one sample")

    def _weigh(self, value: object, depth: int = 0) -> None:
        """Charge for the size of a value, the same part of it each time that it is met."""
        kind = type(value)
        if kind is str:
            self._charge(len(value) // 64)  # type: ignore[arg-type]
        elif kind is int or kind is float:
            return
        elif isinstance(value, list | tuple | dict):
            if depth > MAX_NESTING:
                raise RefusedError(f"a value is nested more than {MAX_NESTING} levels deep")
            self._charge(len(value))
            for item in value.values() if isinstance(value, dict) else value:
                self._weigh(item, depth + 1)
        elif depth and isinstance(value, Undefined):
            str(value)  # raises the error of the undefined value

    def _finalize(self, value: Any) -> Any:
        """A value on its way into text. What Python would write for it, and no reader expects, is refused."""
        if isinstance(value, str):
            self._charge(len(value) // 64)
        elif self._python_values and (value is None or isinstance(value, list | tuple | dict)):
            self._weigh(value)
            return str(value)
        elif value is None:
            raise RefusedError("an expression gives null; write {{ x | default('', true) }} where nothing is meant")
        elif isinstance(value, list | tuple | dict):
            what, advice = (
                ("a mapping", "a key of it") if isinstance(value, dict) else ("a list", "{{ x | join(', ') }}")
            )
            raise RefusedError(f"an expression gives {what}, expected text; write {advice}, or {{{{ x | tojson }}}}")
        elif isinstance(value, MethodType | BuiltinMethodType):
            raise RefusedError(
                f"an expression gives the method {value.__name__.lstrip('_')}, expected text; call it with ()"
            )
        elif not isinstance(value, int | float | Undefined):
            if (described := getattr(value, "described", None)) is not None:
                raise RefusedError(f"an expression gives {described}, expected text")
            raise RefusedError(
                f"an expression gives a Python {type(value).__name__}, expected text; try {{{{ x | list }}}}"
            )
        return value

    def _range(self, *args: int) -> range:
        numbers = range(*args)
        if len(numbers) > MAX_ITEMS:
            raise RefusedError(f"range() gives at most {MAX_ITEMS:,} numbers")
        self._charge(len(numbers))
        return numbers

    def _loop(self, values: Iterable[Any], cost: int) -> Iterator[Any]:
        for value in values:
            self._charge(cost)
            yield value

    def _made(self, value: Any) -> Any:
        self._weigh(value)
        return value

    def _concat(self, values: Iterable[Any]) -> str:
        return self._join(self, values)

    def _join(self, _: object, values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
        parts: list[str] = []
        size = 0
        for value in values:
            item = value if attribute is None else self.getitem(value, attribute)
            self._weigh(item)
            parts.append(str(item))
            size += len(parts[-1]) + len(separator)
            if size > MAX_OUTPUT:
                raise too_much_text()
        return str(separator).join(parts)

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        skipped = 1 if hasattr(function, "jinja_pass_arg") or name == "join" else 0

        @functools.wraps(function)
        def filtered(*args: Any, **settings: Any) -> Any:
            given = (*args[skipped:], *settings.values())
            self._charge(1)
            for value in given:
                self._weigh(value)
            _check_filter(name, given)
            return self._made(function(*args, **settings))

        if name == "join":
            return pass_environment(filtered)
        return filtered

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * max(right, 1)
            if bits > MAX_BITS:
                raise RefusedError(f"'{operator}' gives a number of more than {MAX_BITS:,} bits")
        elif operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(count, int):
                    self._check_size(sequence, len(sequence) * count)
        elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            self._check_size(left, len(left) + len(right))
        value = super().call_binop(context, operator, left, right)
        if isinstance(value, list | tuple):
            self._weigh(value)
        return value

    def _check_size(self, sequence: str | list[Any] | tuple[Any, ...], size: int) -> None:
        if isinstance(sequence, str):
            if size > MAX_OUTPUT:
                raise too_much_text()
            self._charge(max(size, 0) // 64)
        elif size > MAX_ITEMS:
            raise RefusedError(f"a list of more than {MAX_ITEMS:,} entries")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        for value in (*args, *kwargs.values()):
            __self._weigh(value)
        if isinstance(owner, str | list | tuple | dict):
            __self._weigh(owner)
            name = getattr(__obj, "__name__", "")
            if name == "replace" and len(args) >= 2:
                _check_replace(str(owner), str(args[0]), str(args[1]))
            elif name == "join" and isinstance(owner, str) and len(args) == 1:
                return __self._join(None, args[0], owner)
        return __self._made(super().call(__context, __obj, *args, **kwargs))


_CONCAT, _LOOP, _MADE = "concatenated text", "measured loop", "measured value"


class _Measure(NodeTransformer):
    """Sends loops, ``~``, literals, slices and what is compared through the sandbox's own measuring filters.

    The names of those filters hold a space, so that no template can call or replace them.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        node.iter = _filtered(node.iter, _LOOP, [nodes.Const(1 + size // 64)])
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCAT, [])

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, _MADE, [])
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _MADE, [])
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        self.generic_visit(node)
        if node.name not in ("defined", "undefined"):  # which look at a name, not at a value
            node.node = _filtered(node.node, _MADE, [])
            node.args = [_filtered(argument, _MADE, []) for argument in node.args]
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filtered(node.node, _MADE, [])
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _MADE, [])

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _MADE, [])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _MADE, []) if node.ctx == "load" else node


def _filtered(node: nodes.Node, name: str, args: list[nodes.Expr]) -> nodes.Filter:
    return nodes.Filter(node, name, args, [], None, None, lineno=node.lineno)


def _check_filter(name: str, given: Sequence[Any]) -> None:
    """Refuse what a filter would make too large. ``given`` are the filtered value and the filter's arguments."""
    value, *arguments = given
    if name == "replace":
        _check_replace(str(value), *(str(part) for part in arguments[:2]))
    elif name == "format":
        _check_format(str(value))
    elif name == "int" and isinstance(value, str) and len(value) > MAX_DIGITS:
        raise RefusedError(f"the filter 'int' takes at most {MAX_DIGITS:,} digits, found {len(value):,}")
    elif name in _SIZED_FILTERS:
        for width in arguments:
            if isinstance(width, int) and abs(width) > MAX_WIDTH:
                raise RefusedError(f"the filter {name!r} takes at most {MAX_WIDTH:,}, found {describe(width)}")
            per_line = len(width) if isinstance(width, str) else width if isinstance(width, int) else 0
            if name == "indent" and str(value).count("\n") * per_line > MAX_OUTPUT:
                raise too_much_text()


def _check_replace(text: str, old: str = "", new: str = "") -> None:
    if len(text) + text.count(old) * max(len(new) - len(old), 0) > MAX_OUTPUT:
        raise too_much_text()


def _check_format(text: str) -> None:
    if _WIDE_FORMAT.search(text):
        raise RefusedError(f"a format takes widths of at most 999, found {quoted(text)}")


@pass_environment
def _attr(environment: Sandbox, obj: Any, name: str) -> Any:
    return environment.getattr(obj, name)


def _indices(values: Iterable[Any], wanted: Any) -> list[int]:
    """The positions at which ``values`` holds ``wanted``: ``[1.0, 0.0, 1.0] | indices(1.0)`` is ``[0, 2]``."""
    return [position for position, value in enumerate(values) if value == wanted]


def _tojson(value: Any, indent: int | None = None) -> str:
    """JSON as text. Jinja2's own filter escapes ``<``, ``>`` and ``&`` for HTML, which a prompt does not want."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
