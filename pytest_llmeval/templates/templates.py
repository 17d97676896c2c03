"""Templates of one suite: compiled once, rendered for every sample, with errors that say what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, wraps
from types import CodeType
from typing import Any, NoReturn, TypeAlias, TypeVar

from jinja2 import Template, TemplateSyntaxError, Undefined, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.runtime import Context

from pytest_llmeval.errors import RefusedError
from pytest_llmeval.templates.sandbox import MAX_OUTPUT, VALUE_FILTERS, Sandbox, too_much_text
from pytest_llmeval.text.wording import expected_one_of
from pytest_llmeval.types import JSON, Message

__all__ = ["RenderedExample", "TemplateError", "Templates", "is_template"]

_T = TypeVar("_T")
_RESULT = "value_of_the_expression"
"""The variable that holds what the code of ``_value_code`` computes."""
_MAX_KEPT_SOURCES = 1_000
_MAX_KEPT_CHARACTERS = 20_000
"""Longer sources are compiled anew each time."""
_UNDEFINED = re.compile(r"'(.+)' is undefined")
_NOT_IN_LIST = re.compile(r"(.+) is not in list", re.DOTALL)


class TemplateError(ValueError):
    """A template that cannot be compiled or rendered. The message does not say where the template stands."""


def is_template(text: str) -> bool:
    """Tell whether ``text`` holds ``{{`` or ``{%``."""
    return "{{" in text or "{%" in text


RenderedExample: TypeAlias = str | tuple[Message, Message]
"""An example as text, or as a turn of the user and one of the assistant."""


@dataclass(slots=True)
class ExampleMemo:
    """Rendered examples, by template and by the objects that filled it. Comparing their values would take longer.

    Past ``max_characters`` everything is forgotten, so that a large data set whose every row becomes an example does
    not fill the memory.
    """

    max_characters: int = 32_000_000
    _num_characters: int = 0
    _known: dict[tuple[str, int, int], tuple[object, object, RenderedExample]] = field(default_factory=dict)

    def get(self, template: str, variables: object, answer: object) -> RenderedExample | None:
        """Return what was rendered of exactly these objects, or None."""
        found = self._known.get((template, id(variables), id(answer)))
        return found[2] if found is not None else None

    def keep(self, rendered: RenderedExample, template: str, variables: object, answer: object) -> None:
        """Remember a rendered example. The objects are kept too, so that no other object gets the ``id`` of one."""
        size = len(rendered) if isinstance(rendered, str) else sum(len(turn.content) for turn in rendered)
        if self._num_characters + size > self.max_characters:
            self._known.clear()
            self._num_characters = 0
        self._known[template, id(variables), id(answer)] = (variables, answer, rendered)
        self._num_characters += size


@dataclass(slots=True)
class Templates:
    """Templates of one suite. Each source is compiled once for all suites. ``Sandbox`` explains ``python_values``."""

    python_values: bool = False
    examples: ExampleMemo = field(default_factory=ExampleMemo)
    """The suite's few-shot examples that were rendered before."""
    _own_sandbox: Sandbox | None = None
    _texts: dict[str, Template] = field(default_factory=dict)
    _values: dict[str, Template | None] = field(default_factory=dict)

    @property
    def _sandbox(self) -> Sandbox:
        """Return the sandbox of this suite, made when the first template is rendered."""
        if self._own_sandbox is None:
            self._own_sandbox = Sandbox(python_values=self.python_values)
        return self._own_sandbox

    def text(self, source: str, variables: Mapping[str, object]) -> str:
        """Render ``source`` with ``variables``. Raise ``TemplateError``."""
        template = self._texts.get(source)
        if template is None:
            template = self._texts[source] = self._template(_compiled(_text_code, source))
        try:
            return _bounded(template.root_render_func(self._context(template, variables)))
        except Exception as error:
            self._fail(error, variables)

    def value(self, source: str, variables: Mapping[str, object]) -> JSON:
        """Return the value of a source that is one ``{{ expression }}``; render any other source as text.

        ``{% set %}`` may stand before an expression that ends in a filter which makes values of text, as ``literal``.
        Tuples, ranges and what ``map`` or ``select`` give become lists. Raise ``TemplateError``.
        """
        if source not in self._values:
            code = _compiled(_value_code, source)
            self._values[source] = None if code is None else self._template(code)
        template = self._values[source]
        if template is None:
            return self.text(source, variables)
        try:
            context = self._context(template, variables)
            for _ in template.root_render_func(context):
                pass
            return _plain(context.vars[_RESULT])
        except Exception as error:
            self._fail(error, variables)

    def check(self, source: str) -> None:
        """Raise ``TemplateError`` where ``source`` is not a valid template."""
        _compiled(_check, source)

    def names(self, source: str) -> set[str]:
        """Return the variables that ``source`` uses. Raise ``TemplateError`` where it is not a valid template."""
        return set(_compiled(_names, source))

    def _template(self, code: CodeType) -> Template:
        sandbox = self._sandbox
        return Template.from_code(sandbox, code, sandbox.make_globals(None), None)

    def _context(self, template: Template, variables: Mapping[str, object]) -> Context:
        # Jinja2 would merge with the globals, or list their names: either takes longer than most templates.
        everything = {**self._sandbox.globals, **variables}
        return self._sandbox.context_class(self._sandbox, everything, template.name, template.blocks)

    def _fail(self, error: Exception, variables: Mapping[str, object]) -> NoReturn:
        if isinstance(error, UndefinedError):
            message = str(error)
            if found := _UNDEFINED.fullmatch(message):
                known = sorted(variables)
                message += expected_one_of(found.group(1), known)
        elif isinstance(error, TemplateRuntimeError | RefusedError):
            message = str(error)
        elif isinstance(error, RecursionError):
            message = "it is nested too deeply"
        elif isinstance(error, ValueError) and (absent := _NOT_IN_LIST.fullmatch(str(error))):
            message = f"found {absent.group(1)}, which is not in the list"
        else:
            message = f"{error} ({type(error).__name__})" if str(error) else type(error).__name__
        raise TemplateError(message.rstrip(".")) from None


def _compiled(compile_source: Callable[[str], _T], source: str) -> _T:
    """Return ``compile_source(source)``. Raise ``TemplateError`` where the source is not a valid template."""
    try:
        return compile_source(source)
    except TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno} of the template: {(error.message or '').rstrip('.')}") from None
    except (SecurityError, RefusedError) as error:
        raise TemplateError(str(error)) from None
    except (RecursionError, MemoryError, SyntaxError):
        raise TemplateError("the template is nested too deeply") from None


# Suites of one folder are often alike, so what is compiled is kept for all of them. The code knows no suite: it takes
# the environment from the template that is made of it.


def _kept(compile_source: Callable[[str], _T]) -> Callable[[str], _T]:
    """Remember the results for short sources. An exception is raised anew each time."""
    remembered = lru_cache(maxsize=_MAX_KEPT_SOURCES)(compile_source)

    @wraps(compile_source)
    def compiled(source: str) -> _T:
        return remembered(source) if len(source) <= _MAX_KEPT_CHARACTERS else compile_source(source)

    return compiled


@cache
def _parser() -> Sandbox:
    """Return the sandbox that only compiles: sandboxes differ in nothing before something is rendered."""
    return Sandbox()


@_kept
def _check(source: str) -> None:
    _parser().parse_restricted(source)


@_kept
def _names(source: str) -> frozenset[str]:
    return frozenset(meta.find_undeclared_variables(_parser().parse_restricted(source)))


@_kept
def _text_code(source: str) -> CodeType:
    """Return the code that renders ``source`` as text."""
    return _parser().compile(_parser().parse_restricted(source))


@_kept
def _value_code(source: str) -> CodeType | None:
    """Return the code that sets ``_RESULT`` to the value of a source that is one expression; None for other sources."""
    tree = _parser().parse_restricted(source.strip())
    if not tree.body:
        return None
    *before, output = tree.body
    if not all(isinstance(node, nodes.Assign | nodes.AssignBlock) for node in before):
        return None
    if not isinstance(output, nodes.Output) or len(output.nodes) != 1:
        return None
    expression = output.nodes[0]
    if isinstance(expression, nodes.TemplateData):
        return None
    if before and not (isinstance(expression, nodes.Filter) and expression.name in VALUE_FILTERS):
        return None
    assign = nodes.Assign(nodes.Name(_RESULT, "store", lineno=1), expression, lineno=1)
    program = nodes.Template([*before, assign], lineno=1)
    program.set_environment(_parser())
    return _parser().compile(program)


def _bounded(parts: Iterable[str]) -> str:
    texts: list[str] = []
    size = 0
    for part in parts:
        texts.append(part)
        size += len(part)
        if size > MAX_OUTPUT:
            raise too_much_text()
    return "".join(texts)


def _plain(value: Any) -> JSON:
    """Return ``value`` in JSON's types. An undefined value raises its own error."""
    if isinstance(value, Undefined):
        return str(value)  # raises its error, but for an "if" without "else", which is empty
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not callable(value) and not isinstance(value, set | frozenset | bytes):
        return [_plain(item) for item in value]
    found = getattr(value, "described", f"a Python {type(value).__name__}")
    raise RefusedError(f"it gives {found}, expected text, a number, a bool, a list or a mapping")
