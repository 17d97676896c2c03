"""Templates of one suite: compiled once, rendered for every sample, with errors that say what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NoReturn, TypeAlias, TypeVar

from jinja2 import Template, TemplateSyntaxError, Undefined, UndefinedError
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.runtime import Context

from pytest_llmeval.suites.templates.compiled import RESULT, checked, names_of, text_code, value_code
from pytest_llmeval.suites.templates.sandbox import MAX_OUTPUT, RefusedError, Sandbox
from pytest_llmeval.text.wording import expected_one_of
from pytest_llmeval.types import JSON, Message

__all__ = ["ExampleMemo", "RenderedExample", "TemplateError", "Templates", "is_template"]

_T = TypeVar("_T")
_UNDEFINED = re.compile(r"'(.+)' is undefined")
_NOT_IN_LIST = re.compile(r"(.+) is not in list", re.DOTALL)


class TemplateError(ValueError):
    """A template that cannot be compiled or rendered. The message does not say where the template stands."""


def is_template(text: str) -> bool:
    """True where ``text`` holds ``{{`` or ``{%``."""
    return "{{" in text or "{%" in text


RenderedExample: TypeAlias = str | tuple[Message, Message]
"""An example as text, or as a turn of the user and one of the assistant."""


@dataclass(slots=True)
class ExampleMemo:
    """Rendered examples by their template and by the objects, not the values, that it was filled with: comparing those
    takes longer.

    Past ``max_characters`` everything is forgotten, so that a large data set whose every row becomes an example does
    not fill the memory.
    """

    max_characters: int = 32_000_000
    _num_characters: int = 0
    _known: dict[tuple[str, int, int], tuple[object, object, RenderedExample]] = field(default_factory=dict)

    def get(self, template: str, variables: object, answer: object) -> RenderedExample | None:
        """What was made of exactly these objects; None if it is not known."""
        found = self._known.get((template, id(variables), id(answer)))
        return found[2] if found is not None else None

    def keep(self, rendered: RenderedExample, template: str, variables: object, answer: object) -> None:
        """Remember it. The objects are kept too, so that no other object gets the ``id`` of one."""
        size = len(rendered) if isinstance(rendered, str) else sum(len(turn.content) for turn in rendered)
        if self._num_characters + size > self.max_characters:
            self._known.clear()
            self._num_characters = 0
        self._known[template, id(variables), id(answer)] = (variables, answer, rendered)
        self._num_characters += size


@dataclass(slots=True)
class Templates:
    """Compiles and renders. Each source is compiled once, for all suites. ``python_values`` as ``Sandbox`` has it."""

    python_values: bool = False
    examples: ExampleMemo = field(default_factory=ExampleMemo)
    """The few-shot examples of the suite that were rendered before."""
    _own_sandbox: Sandbox | None = None
    _texts: dict[str, Template] = field(default_factory=dict)
    _values: dict[str, Template | None] = field(default_factory=dict)

    @property
    def _sandbox(self) -> Sandbox:
        """Made when something is rendered: one has a budget, and filters that draw on it, of its own."""
        if self._own_sandbox is None:
            self._own_sandbox = Sandbox(python_values=self.python_values)
        return self._own_sandbox

    def text(self, source: str, variables: Mapping[str, object]) -> str:
        """``source`` rendered with ``variables``. Raises ``TemplateError``."""
        template = self._texts.get(source)
        if template is None:
            template = self._texts[source] = self._template(_compiled(text_code, source))
        self._sandbox.budget.restart()
        try:
            return _bounded(template.root_render_func(self._context(template, variables)))
        except Exception as error:
            self._fail(error, variables)

    def value(self, source: str, variables: Mapping[str, object]) -> JSON:
        """The value of a source that is one ``{{ expression }}`` with its type; any other source rendered as text.

        ``{% set %}`` may stand before an expression that ends in a filter which makes values of text, as ``literal``.
        Tuples, ranges and what ``map`` or ``select`` give become lists. Raises ``TemplateError``.
        """
        if source not in self._values:
            code = _compiled(value_code, source)
            self._values[source] = None if code is None else self._template(code)
        template = self._values[source]
        if template is None:
            return self.text(source, variables)
        self._sandbox.budget.restart()
        try:
            context = self._context(template, variables)
            for _ in template.root_render_func(context):
                pass
            return _plain(context.vars[RESULT])
        except Exception as error:
            self._fail(error, variables)

    def check(self, source: str) -> None:
        """Raise ``TemplateError`` where ``source`` is not a valid template."""
        _compiled(checked, source)

    def names(self, source: str) -> set[str]:
        """The variables that ``source`` uses. Raises ``TemplateError`` where it is not a valid template."""
        return set(_compiled(names_of, source))

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


def _compiled(made_of: Callable[[str], _T], source: str) -> _T:
    """What ``made_of`` makes of a source. Raises ``TemplateError``."""
    try:
        return made_of(source)
    except TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno} of the template: {(error.message or '').rstrip('.')}") from None
    except (SecurityError, RefusedError) as error:
        raise TemplateError(str(error)) from None
    except (RecursionError, MemoryError, SyntaxError):
        raise TemplateError("the template is nested too deeply") from None


def _bounded(parts: Iterable[str]) -> str:
    texts: list[str] = []
    size = 0
    for part in parts:
        texts.append(part)
        size += len(part)
        if size > MAX_OUTPUT:
            raise RefusedError(f"it makes a text of more than {MAX_OUTPUT:,} characters")
    return "".join(texts)


def _plain(value: Any) -> JSON:
    """``value`` as JSON types. An undefined value raises its own error."""
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
