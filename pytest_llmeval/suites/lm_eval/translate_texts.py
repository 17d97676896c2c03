"""``doc_to_text``, ``doc_to_target``, ``doc_to_choice`` and their like, as columns and templates of the suite format.

lm-eval renders each to text and reads the text again: digits as an index, a text that looks like a list as a list. The
filters ``index_or_text``, ``list_or_text`` and ``literal`` of a suite's templates do the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from pytest_llmeval.suites.lm_eval.task_file import TaskFile
from pytest_llmeval.templates.templates import TemplateError, Templates
from pytest_llmeval.text.wording import Keys

__all__ = [
    "choices_rule",
    "has_markup",
    "is_a_number",
    "is_column",
    "may_be_a_number",
    "prompt_template",
    "target_rule",
    "text_template",
]

_MARKUP = re.compile(r"\{[{%#]")
_EXPRESSION = re.compile(r"\{\{(?![-+])(.*)(?<![-+])\}\}", re.DOTALL)
_NOT_NAMES = """
row true false none True False None and or not if else in is loop self range dict
"""
_ENVIRONMENT = Environment()


def has_markup(text: str) -> bool:
    """Tell whether Jinja2 would change the text."""
    return _MARKUP.search(text) is not None


def is_column(text: str) -> bool:
    """Tell whether a text without markup is taken for the name of a column: one word."""
    return text.isidentifier()


def text_template(text: str) -> str:
    """Return a text such as ``description`` or ``gen_prefix``: itself, but for one word, which may be a column."""
    return _column_or_itself(text) if is_column(text) else text


def prompt_template(task: TaskFile, rule: object, keys: Keys) -> str:
    """Return ``doc_to_text`` as a template. Raises ``SuiteError``."""
    if isinstance(rule, bool) or not isinstance(rule, str):
        raise task.wrong(keys, rule, "a template or a column")
    if not rule or has_markup(rule):
        return rule
    return f"{{{{ {_column(rule)} }}}}" if is_column(rule) else _column_or_itself(rule)


def may_be_a_number(rule: object) -> bool:
    """Return whether ``doc_to_text`` can be the index of an option: it has no text of its own but digits."""
    if not isinstance(rule, str) or is_column(rule):
        return isinstance(rule, int | str)
    try:
        body = _ENVIRONMENT.parse(rule).body
    except TemplateSyntaxError:  # explained where it is translated
        return False
    texts = [node.data for part in body for node in part.find_all(nodes.TemplateData)]
    return has_markup(rule) and all(text.isdigit() for text in texts)


def is_a_number(rule: object, row: Mapping[str, Any]) -> bool:
    """Return whether ``doc_to_text`` is a number for this row, as lm-eval finds it of the first document."""
    if not isinstance(rule, str):
        return isinstance(rule, int)
    if rule in row:
        return isinstance(row[rule], int)
    try:
        return Templates(python_values=True).text(rule, {**row, "row": dict(row)}).isdigit()
    except TemplateError:  # explained where it is used
        return False


def target_rule(task: TaskFile, rule: object, keys: Keys, *, has_choices: bool, or_text: bool = False) -> Any:
    """Return ``doc_to_target`` as the rule of a field. Raises ``SuiteError``.

    With choices, digits are an index; what is written as a list is a list either way. One word is a column; with
    ``or_text`` it is itself where there is no such column.
    """
    if isinstance(rule, bool) or not isinstance(rule, int | str | list):
        raise task.wrong(keys, rule, "a column, a template, a whole number or a list")
    if isinstance(rule, list):
        return [_verbatim(item) for item in rule]
    if isinstance(rule, int):
        return rule if has_choices else str(rule)
    filter_ = "index_or_text" if has_choices else "list_or_text"
    if has_markup(rule):
        return _filtered(rule, filter_)
    if is_column(rule):
        return _column_or_itself(rule) if or_text else rule
    if rule.isdecimal() and rule.isascii():
        return int(rule) if has_choices else _verbatim(rule)
    return _filtered(_column_or_itself(rule) if rule else "{{ '' }}", filter_)


def choices_rule(task: TaskFile, rule: object, keys: Keys) -> Any:
    """Return ``doc_to_choice`` as the rule of a field. Raises ``SuiteError``."""
    if isinstance(rule, dict):
        rule = list(rule.values())
    if isinstance(rule, list):
        if not all(isinstance(item, str) for item in rule):
            odd = next(item for item in rule if not isinstance(item, str))
            raise task.wrong(keys, odd, "texts; put it in quotes")
        return [_verbatim(item) for item in rule]
    if not isinstance(rule, str) or not rule:
        raise task.wrong(keys, rule, "a list, a template or a column")
    if has_markup(rule):
        return rule if _is_list(rule) else _filtered(rule, "literal")
    if is_column(rule):
        return rule
    try:
        made = ast.literal_eval(rule)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _filtered(_column_or_itself(rule), "literal")
    return choices_rule(task, list(made) if isinstance(made, tuple) else made, keys)


def _column(name: str) -> str:
    return name if name.isidentifier() and name not in _NOT_NAMES.split() else f"row[{name!r}]"


def _column_or_itself(text: str) -> str:
    """Return a template of a text. lm-eval takes a text for a column where there is one of that name, and else for
    itself.
    """
    return f"{{{{ row[{text!r}] if {text!r} in row else {text!r} }}}}"


def _verbatim(item: Any) -> Any:
    """Return an entry of a list that no template is made of."""
    return f"{{% raw %}}{item}{{% endraw %}}" if isinstance(item, str) and has_markup(item) else item


def _filtered(template: str, filter_: str) -> str:
    expression = _expression(template)
    if expression is not None:
        return f"{{{{ {expression} | {filter_} }}}}"
    return f"{{% set made %}}{template}{{% endset %}}{{{{ made | {filter_} }}}}"


def _expression(template: str) -> str | None:
    """Return the expression of a template that is one ``{{ expression }}``, in brackets where a filter would bind
    closer.
    """
    found = _EXPRESSION.fullmatch(template)
    node = _only_expression(template)
    if found is None or node is None:
        return None
    text = found.group(1).strip()
    closed = (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Call, nodes.Filter, nodes.List, nodes.Const)
    return text if isinstance(node, closed) else f"({text})"


def _only_expression(template: str) -> nodes.Expr | None:
    try:
        body = _ENVIRONMENT.parse(template).body
    except TemplateSyntaxError:  # of a filter that is lm-eval's alone, or a mistake that is explained later
        return None
    if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
        node = body[0].nodes[0]
        return None if isinstance(node, nodes.TemplateData) else node
    return None


def _is_list(template: str) -> bool:
    return isinstance(_only_expression(template), nodes.List) and _EXPRESSION.fullmatch(template) is not None
