"""The Jinja2 environment of suites: data in, text or data out, and no way to Python or to the machine's memory.

A template sees builtins only (text, numbers, lists, mappings). Methods and filters are a list of what is harmless;
whatever can grow is measured before it is made, and every loop and filter draws on one budget of steps for each
rendering.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes, pass_context, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS

from pytest_llmeval.errors import RefusedError
from pytest_llmeval.suites.templates.budget import MAX_BITS, MAX_ITEMS, MAX_OUTPUT, Budget, Lazy, too_much_text
from pytest_llmeval.suites.templates.checks import check_filter, check_format, check_method
from pytest_llmeval.suites.templates.measured_code import Measure, MeasuredCode
from pytest_llmeval.suites.templates.text_filters import TEXT_FILTERS
from pytest_llmeval.text.wording import describe, expected_one_of, quoted

__all__ = ["MAX_OUTPUT", "RefusedError", "Sandbox"]

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
_DATA = (str, bytes, dict, list, tuple, float, int, type, type(None), range, set, frozenset, Lazy)
_FILTERS = """
abs batch capitalize center count d default dictsort first float format indent int items last length list lower map
max min reject rejectattr replace reverse round select selectattr slice sort string sum title trim truncate unique
upper wordcount
"""
_QUICK_TESTS = """
boolean callable defined escaped false filter float integer iterable mapping none number sameas sequence string test
true undefined
"""
_OF_JINJA = frozenset(("_loop_vars", "_block_vars"))
"""What Jinja2 itself adds to the arguments of a call, and takes away again."""
MAX_KNOWN = 200
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


class _Missing(StrictUndefined):
    """An entry that is not there. Its message is made where it is shown: the nearest key takes time to find."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        obj: Any = self._undefined_obj
        key: Any = self._undefined_name
        if isinstance(obj, dict):
            if not isinstance(key, str):
                return f"a mapping has no key {describe(key)}"
            known = [name for name in obj if isinstance(name, str)][:MAX_KNOWN]
            return f"a mapping has no key {quoted(key)}{expected_one_of(key[:MAX_KNOWN], known)}"
        shown = quoted(key) if isinstance(key, str) else str(key) if isinstance(key, float) else describe(key)
        if isinstance(key, int) and abs(key) < 10**20:
            shown = str(key)
        return f"{describe(obj)} has no entry {shown}"


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment. ``budget.restart()`` comes before each rendering.

    With ``python_values`` an expression that gives null, a list or a mapping is written as Python writes it, as
    lm-eval's templates do; without, it is refused as what is surely a mistake.
    """

    intercepted_binops = frozenset(("*", "**", "+", "-", "%", "//"))
    code_generator_class = MeasuredCode

    def __init__(self, *, python_values: bool = False) -> None:
        # What Jinja2 works out once, while it compiles, would cost the rendering nothing: hence no optimiser, and a
        # finalize that takes a context.
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            finalize=self._finalize,
            cache_size=0,
            optimized=False,
        )
        self._python_values = python_values
        self.budget = Budget()
        # One of each for all sandboxes, as every suite has one: they find the budget in what they are called with.
        self.filters, self.tests = _available()
        del self.globals["lipsum"]
        self.globals["range"] = self._range

    def parse_restricted(self, source: str) -> nodes.Template:
        """The template's tree, with measured loops and texts. Raises what ``parse`` raises, and ``SecurityError``."""
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
        measured: nodes.Template = Measure().visit(tree)
        return measured

    # What a template reaches

    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute. The keys of a mapping come first, so that a column may be called ``items`` or ``count``."""
        self.budget.charge(1)
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, str) and attribute in ("format", "format_map"):
            return self.unsafe_undefined(obj, attribute)
        if isinstance(obj, _DATA) and not hasattr(obj, attribute):
            return self._missing(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An entry. A mapping's methods are not its entries."""
        self.budget.charge(1)
        if isinstance(argument, tuple):
            self.budget.weigh(argument)
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
        return _Missing(obj=obj, name=key)

    # What a template may use up

    @pass_context
    def _finalize(self, _: Context, value: Any) -> Any:
        """A value on its way into text. What Python would write for it, and no reader expects, is refused."""
        if isinstance(value, str):
            self.budget.weigh(value)
        elif self._python_values and (value is None or isinstance(value, list | tuple | dict)):
            self.budget.weigh(value)
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
            if isinstance(value, Lazy):
                raise RefusedError(f"an expression gives {value.described}, expected text; try {{{{ x | list }}}}")
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
        return numbers

    def loop(self, values: Iterable[Any], cost: int) -> Iterator[Any]:
        """What a ``for`` goes through, each turn at its cost."""
        for value in values:
            self.budget.charge(cost)
            yield value

    def made(self, value: Any) -> Any:
        """A value that a template made, weighed."""
        self.budget.weigh(value)
        return value

    def concat(self, values: Iterable[Any]) -> str:
        """What stands between ``~`` as one text."""
        return self.joined(values)

    def joined(self, values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
        """The filter ``join``."""
        parts: list[str] = []
        size = 0
        for value in values:
            item = value if attribute is None else self.getitem(value, attribute)
            self.budget.charge(1)
            self.budget.weigh(item)
            parts.append(str(item))
            size += len(parts[-1]) + len(separator)
            if size > MAX_OUTPUT:
                raise too_much_text()
        return str(separator).join(parts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            self._check_numbers(operator, left, right)
        elif operator == "%" and isinstance(left, str):
            self.budget.weigh(left)
            self.budget.weigh(right)
            check_format(left, right, self.budget)
        elif operator == "-" and not isinstance(left, int | float | Undefined):
            raise RefusedError(f"'-' takes numbers, found {describe(left)}")
        elif operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(count, int):
                    self._check_size(sequence, len(sequence) * count)
        elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            self._check_size(left, len(left) + len(right))
        value = super().call_binop(context, operator, left, right)
        if isinstance(value, str | list | tuple):
            self.budget.weigh(value)
        return value

    def _check_numbers(self, operator: str, left: int, right: int) -> None:
        bits = left.bit_length(), right.bit_length()
        most = sum(bits) if operator == "*" else bits[0] * max(right, 1) if operator == "**" else max(bits)
        if most > MAX_BITS:
            raise RefusedError(f"'{operator}' gives a number of more than {MAX_BITS:,} bits")

    def _check_size(self, sequence: str | list[Any] | tuple[Any, ...], size: int) -> None:
        if isinstance(sequence, str):
            if size > MAX_OUTPUT:
                raise too_much_text()
        elif size > MAX_ITEMS:
            raise RefusedError(f"a list of more than {MAX_ITEMS:,} entries")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        budget = __self.budget
        budget.charge(3)
        for value in args:
            budget.weigh(value)
        for name, value in kwargs.items():
            if name not in _OF_JINJA:
                budget.weigh(value)
        if isinstance(owner, str | list | tuple | dict):
            budget.weigh(owner)
            name = getattr(__obj, "__name__", "")
            if isinstance(owner, str):
                if name == "join" and len(args) == 1:
                    return __self.joined(args[0], owner)
                check_method(owner, name, args, budget)
                if name in ("split", "rsplit"):
                    args, kwargs = __self._bounded_split(*args, **kwargs)
        made = super().call(__context, __obj, *args, **kwargs)
        if __obj is dict or not isinstance(__obj, type):  # the others are namespace, cycler and joiner
            budget.weigh(made)
        return made

    def _bounded_split(self, sep: str | None = None, maxsplit: int = -1) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a split that makes at most one part more than there are steps left to pay for."""
        left = self.budget.steps_left
        return (sep, left if maxsplit < 0 else min(maxsplit, left)), {}


def _refused(node: nodes.Node, problem: str) -> SecurityError:
    return SecurityError(f"line {node.lineno} of the template: {problem}")


@functools.cache
def _available() -> tuple[dict[str, Any], dict[str, Any]]:
    """The filters and the tests of a suite's templates."""
    filters: dict[str, Any] = {name: FILTERS[name] for name in _FILTERS.split()}
    filters.update(attr=_attr, indices=_indices, sum=_sum, tojson=_tojson, join=_join)
    filters.update(TEXT_FILTERS)
    quick, tests = _QUICK_TESTS.split(), dict[str, Any](TESTS)
    tests = {name: test if name in quick else _weighed(test) for name, test in tests.items()}
    return {name: _guarded(name, function) for name, function in filters.items()}, tests


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    takes_where = hasattr(function, "jinja_pass_arg")

    @functools.wraps(function)
    def filtered(where: Any, value: Any, /, *arguments: Any, **settings: Any) -> Any:
        budget: Budget = getattr(where, "environment", where).budget  # of a context or of the environment
        budget.charge(1)
        depth = 1
        for given in (value, *arguments, *settings.values()):
            budget.weigh(given)
            if type(given) is Lazy:
                depth = max(depth, given.depth + 1)
        check_filter(name, value, arguments, settings, budget)
        made = function(*((where,) if takes_where else ()), value, *arguments, **settings)
        if isinstance(made, Iterator):
            return made if type(made) is Lazy else Lazy(made, depth, budget)
        budget.weigh(made)
        return made

    return filtered if takes_where else pass_environment(filtered)


def _weighed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A test that takes longer for larger values."""
    takes_where = hasattr(function, "jinja_pass_arg")

    @functools.wraps(function)
    def tested(where: Any, /, *args: Any, **settings: Any) -> Any:
        budget: Budget = getattr(where, "environment", where).budget
        budget.charge(1)
        for given in (*args, *settings.values()):
            budget.weigh(given)
        return function(*((where,) if takes_where else ()), *args, **settings)

    return tested if takes_where else pass_environment(tested)


@pass_environment
def _join(environment: Sandbox, values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
    return environment.joined(values, separator, attribute)


@pass_environment
def _attr(environment: Sandbox, obj: Any, name: str) -> Any:
    return environment.getattr(obj, name)


def _indices(values: Iterable[Any], wanted: Any, beside: Any = None) -> list[int]:
    """The positions at which ``values`` holds ``wanted``: ``[1.0, 0.0, 1.0] | indices(1.0)`` is ``[0, 2]``.

    ``beside`` is the list to whose parts the values belong, and has to be as long.
    """
    listed = list(values)
    if beside is not None and len(listed) != len(beside):
        raise RefusedError(f"the filter 'indices' found {len(listed)} values, expected one for each of {len(beside)}")
    return [position for position, value in enumerate(listed) if value == wanted]


@pass_environment
def _sum(environment: Sandbox, values: Iterable[Any], attribute: str | int | None = None, start: float = 0) -> float:
    """The sum of numbers. Python's own adds lists, too, and takes the square of their number of steps for it."""
    numbers = list(values if attribute is None else map(make_attrgetter(environment, attribute), values))
    for number in (start, *numbers):
        if isinstance(number, Undefined):
            str(number)  # raises its error
        if not isinstance(number, int | float):
            raise RefusedError(f"the filter 'sum' adds numbers, found {describe(number)}")
    return sum(numbers, start)


def _tojson(value: Any, indent: int | None = None) -> str:
    """JSON as text. Jinja2's own filter escapes ``<``, ``>`` and ``&`` for HTML, which a prompt does not want."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
