"""Templates as Python code, compiled once for all suites that have them: those of one folder are often alike.

What is kept knows no suite: the code takes the environment, with its budget, from the template that is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, wraps
from types import CodeType
from typing import TypeVar

from jinja2 import meta, nodes

from pytest_llmeval.suites.templates.sandbox import Sandbox
from pytest_llmeval.suites.templates.text_filters import VALUE_FILTERS

__all__ = ["RESULT", "checked", "names_of", "text_code", "value_code"]

RESULT = "value_of_the_expression"
"""The variable that has what ``value_code`` computes."""

_MAX_KEPT = 1_000
_MAX_CHARACTERS = 20_000
"""Of a source that is kept."""

_T = TypeVar("_T")


def _kept(made_of: Callable[[str], _T]) -> Callable[[str], _T]:
    """Remember what is made of sources, as far as these are short; what it raises is raised again."""
    remembered = lru_cache(maxsize=_MAX_KEPT)(made_of)

    @wraps(made_of)
    def made(source: str) -> _T:
        return remembered(source) if len(source) <= _MAX_CHARACTERS else made_of(source)

    return made


@cache
def _sandbox() -> Sandbox:
    """For parsing alone: what sandboxes differ in shows when something is rendered."""
    return Sandbox()


@_kept
def checked(source: str) -> None:
    """Raise what ``Sandbox.parse_restricted`` raises for a source that is not a valid template."""
    _sandbox().parse_restricted(source)


@_kept
def names_of(source: str) -> frozenset[str]:
    """The variables that ``source`` uses."""
    return frozenset(meta.find_undeclared_variables(_sandbox().parse_restricted(source)))


@_kept
def text_code(source: str) -> CodeType:
    """The code that renders ``source`` as text."""
    return _code(_sandbox().parse_restricted(source))


@_kept
def value_code(source: str) -> CodeType | None:
    """The code that sets ``RESULT`` to the value of a source that is one expression; None for any other source."""
    tree = _sandbox().parse_restricted(source.strip())
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
    assign = nodes.Assign(nodes.Name(RESULT, "store", lineno=1), expression, lineno=1)
    program = nodes.Template([*before, assign], lineno=1)
    program.set_environment(_sandbox())
    return _code(program)


def _code(tree: nodes.Template) -> CodeType:
    return _sandbox().compile(tree)
