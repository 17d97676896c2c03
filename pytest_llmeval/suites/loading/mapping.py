"""Makes samples of rows: columns, templates and literals for each field, and which values a sample may have."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_llmeval.data.rows import NoColumnError, Row, column_value
from pytest_llmeval.data.yaml_reader import MAX_DEPTH
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.loading.suite import Origin
from pytest_llmeval.templates.templates import TemplateError, Templates, is_template
from pytest_llmeval.text.documents import written_value
from pytest_llmeval.text.escaping import unusable_character
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted
from pytest_llmeval.types import JSON, Sample

__all__ = ["CLUSTER", "FIELDS", "HUMAN", "FieldMap", "Ids", "Mapped", "make_sample"]

FIELDS = ("id", "question", "choices", "target", "choice_types", "category", "response")
"""The names that a sample gives a meaning to; any other field is a variable for templates."""

CLUSTER = "cluster"
"""A field that has to be asked for: a column that happens to have this name changes no standard error."""

HUMAN = "human"
"""The name of the field with people's labels; like ``CLUSTER``, a column of this name alone is none."""

_OF_SAMPLES = ("id", "category", CLUSTER, HUMAN, "response")
"""Fields for which an example in a few-shot prompt has no use."""

_FILE = "file_name"
_MAX_CLUSTER_CHARACTERS = 80
_Value: TypeAlias = Callable[[Row, Mapping[str, object]], JSON]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A row with its fields. ``variables`` are what templates and ``where`` see.

    In those a field wins over a column, or with ``columns_first`` a column over a field. ``choice_columns`` are the
    columns in which the choices stand, where each has one.
    """

    row: Row
    fields: Mapping[str, JSON]
    variables: Mapping[str, object]
    columns_first: bool = False
    choice_columns: Sequence[str] = ()


@dataclass(slots=True)
class FieldMap:
    """The rules of one suite: for each field, the keys at which the rule stands, and the rule.

    In a rule, a column wins over a field of the same name, so that ``question`` can be made of ``question.stem`` and
    ``choices`` of ``question.choices``; in its template ``file_name`` is the name of the row's file without suffixes
    (MMLU's subjects stand nowhere else). Everywhere else the field wins. With ``columns_first`` the column wins
    everywhere, and no field is made of a column because it has its name. With a ``first_id`` a sample's id is its row's
    number, counted from there, whatever columns there are. ``optional`` are fields that are null in a row without
    their column; ``absent`` has the error of each whose column no row has had so far.
    """

    rules: Mapping[str, tuple[Keys, object]]
    origin: Origin
    templates: Templates
    columns_first: bool = False
    first_id: int | None = None
    optional: frozenset[str] = frozenset()
    absent: dict[str, SuiteError | None] = field(init=False, default_factory=dict)
    _values: list[tuple[str, _Value]] = field(init=False)
    _names_files: bool = field(init=False)
    _choice_columns: Sequence[str] = field(init=False, default=())

    def __post_init__(self) -> None:
        self._names_files = any(_FILE in rule for _, rule in self.rules.values() if isinstance(rule, str))
        self._values = [(name, self._compile(keys, rule)) for name, (keys, rule) in self.rules.items()]

    def apply(self, row: Row, *, shot: bool = False) -> Mapped:
        """Return the row's fields. Raises ``SuiteError`` for a missing column or a template that fails.

        A ``shot``, an example for few-shot prompts, needs no id, category, cluster or label; one that stands in the
        suite file may give any field under its own name where the rule does not fit.
        """
        columns = row.columns
        fields: dict[str, JSON] = {}
        variables: dict[str, object] = {**columns, "row": columns}
        if self._names_files and not row.inline:
            variables.setdefault(_FILE, row.source.path.name.partition(".")[0])
        for name, value in self._values:
            try:
                fields[name] = made = value(row, variables)
            except SuiteError:
                if name == HUMAN and not is_template(str(self.rules[name][1])):
                    continue  # people may have rated some of the rows
                if shot and (name in _OF_SAMPLES or (row.inline and name in columns)):
                    continue
                raise
            if name not in columns:
                variables[name] = made
        for name in () if self.columns_first else FIELDS:
            if name not in fields and name in columns:
                fields[name] = columns[name]
        if self.first_id is not None:
            fields["id"] = row.number - 1 + self.first_id
        if self.columns_first:
            variables.update({name: made for name, made in fields.items() if name not in columns})
        else:
            variables.update(fields)
        if self._names_files and _FILE not in columns:
            variables.pop(_FILE, None)
        variables["row"] = columns
        return Mapped(row, fields, variables, self.columns_first, self._choice_columns)

    def _compile(self, keys: Keys, rule: object) -> _Value:
        if isinstance(rule, str):
            return self._template(keys, rule) if is_template(rule) else self._column(keys, rule)
        return self._list(keys, rule) if isinstance(rule, tuple) else _literal(rule)

    def _list(self, keys: Keys, rule: tuple[Any, ...]) -> _Value:
        """Return what makes a list: of templates, of columns where the rows have these, and else of literals.

        Entries of a list at the top of the suite, which all samples share, are literals, as with ``columns_first``.
        """
        names = [entry for entry in rule if isinstance(entry, str) and not is_template(entry)]
        made = [
            self._template(keys, entry) if isinstance(entry, str) and is_template(entry) else _literal(entry)
            for entry in rule
        ]
        if len(names) == len(rule) and (self.columns_first or len(keys) == 1):
            return _literal([*rule])  # one list for all samples
        of_columns = [
            self._column(keys, entry) if entry in names else one for entry, one in zip(rule, made, strict=True)
        ]
        are_columns: bool | None = None  # as in the first row

        def value(row: Row, variables: Mapping[str, object]) -> JSON:
            nonlocal are_columns
            if names and not self.columns_first and len(keys) > 1:
                has = [_has(row.columns, name) for name in names]
                are_columns = any(has) if are_columns is None else are_columns
                if any(has) != are_columns or (are_columns and not all(has)):
                    raise self._columns_and_literals(keys, row, names, has)
                if are_columns and keys[-1] == "choices" and len(names) == len(rule):
                    self._choice_columns = names
            return [one(row, variables) for one in (of_columns if are_columns else made)]

        return value

    def _columns_and_literals(self, keys: Keys, row: Row, names: Sequence[str], has: Sequence[bool]) -> SuiteError:
        column = names[has.index(True)] if any(has) else names[0]
        other = next((name for name, is_column in zip(names, has, strict=True) if not is_column), None)
        there = f"{row.place} has a column {quoted(column)}" if any(has) else f"{row.place} has none of these columns"
        before = f" and no column {quoted(other)}" if any(has) and other is not None else ", unlike the rows before it"
        return self.origin.error(
            f"{dotted(keys)}: {there}{before}; a list is one of columns or one of literals for all rows: write "
            f"'{{{{ {column} }}}}' for a column, and '{{{{ {(other or column)!r} }}}}' for a text",
            keys,
        )

    def _template(self, keys: Keys, source: str) -> _Value:
        templates = self.templates
        try:
            templates.check(source)
        except TemplateError as error:
            raise self.origin.error(f"{dotted(keys)}: {error}", keys) from None

        def value(row: Row, variables: Mapping[str, object]) -> JSON:
            try:
                return templates.value(source, variables)
            except TemplateError as error:
                raise self.origin.error(f"{dotted(keys)}: {row.place}: {error}", keys) from None

        return value

    def _column(self, keys: Keys, column: str) -> _Value:
        name = str(keys[-1])
        is_optional = name in self.optional

        def value(row: Row, variables: Mapping[str, object]) -> JSON:
            try:
                found = column_value(row.columns, column)
            except NoColumnError as error:
                problem = self._no_column(keys, column, error.part, error.inside, row)
                if not is_optional:
                    raise problem from None
                self.absent.setdefault(name, problem)
                return None
            if is_optional:
                self.absent[name] = None
            return found  # type: ignore[no-any-return]

        return value

    def _no_column(self, keys: Keys, column: str, part: str, inside: object, row: Row) -> SuiteError:
        name = quoted(column) if part == column else f"{quoted(part)} (of {quoted(column)})"
        message = f"{dotted(keys)}: {row.place} has no column {name}"
        if isinstance(inside, dict):
            message += expected_one_of(part, inside)
        else:
            message += f": what stands there is {describe(inside)}"
        if keys == ("target",):
            message += f"; for the text itself write {{{{ {column!r} }}}}"
        return self.origin.error(message, keys)


def _has(columns: Mapping[str, Any], column: str) -> bool:
    try:
        column_value(columns, column)
    except NoColumnError:
        return False
    return True


def _literal(value: Any) -> _Value:
    return lambda row, variables: value


def make_sample(mapped: Mapped, id_: str, *, has_calls: bool = False) -> Sample:
    """Return the sample of one row. ``has_calls``: a target may hold mappings. Raises ``SuiteError`` for a value of a
    type that its field does not take.
    """
    checked = _Checked(mapped.row, id_, has_calls)
    fields = mapped.fields
    question = checked.text("question", fields.get("question"), or_unused=not mapped.row.inline)
    choices = checked.texts("choices", fields.get("choices"))
    for position, choice in enumerate(choices):
        if not choice.strip():
            raise checked.error(f"choices.{position}: found an empty option, expected text")
    choice_types = checked.texts("choice_types", fields.get("choice_types"))
    if choice_types and len(choice_types) != len(choices):
        raise checked.error(f"choice_types: found {len(choice_types)}, expected one for each of {len(choices)} choices")
    target = checked.target(fields.get("target"))
    if mapped.choice_columns:
        target = checked.target_of_columns(target, mapped.choice_columns, choices)
    category = checked.category(fields.get("category"))
    cluster = checked.cluster(fields[CLUSTER]) if CLUSTER in fields else None
    shown: dict[str, object] = {"question": question} if question is not None else {}
    if choices:
        shown["choices"] = [*choices]
    kept = mapped.row.columns if mapped.columns_first else {}
    variables = mapped.variables
    changed = {
        name: value for name, value in shown.items() if name not in kept and not _is_same(variables.get(name), value)
    }
    if changed:
        variables = {**variables, **changed}
    return Sample(
        id=id_,
        path=str(mapped.row.source.path),
        line=mapped.row.line,
        question=question or "",
        choices=choices,
        choice_types=choice_types,
        target=target,
        category=category,
        cluster=cluster,
        response=fields.get("response"),
        human=fields.get(HUMAN),
        variables=variables,
    )


def _is_same(found: object, value: object) -> bool:
    return type(found) is type(value) and found == value


@dataclass(frozen=True, slots=True)
class _Checked:
    row: Row
    id: str
    has_calls: bool

    def error(self, message: str) -> SuiteError:
        return self.row.error(f"sample {quoted(self.id)}: {message}")

    def text(self, name: str, value: JSON, *, or_unused: bool = False) -> str | None:
        if value is None or (or_unused and isinstance(value, dict | list)):
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(f"{name}: found {describe(value)}, expected text")
        return self.usable(name, value) if isinstance(value, str) else str(value)

    def texts(self, name: str, value: JSON) -> tuple[str, ...]:
        if value is None:
            return ()
        if isinstance(value, str):
            value = self.written(name, value)
        if not isinstance(value, list | tuple):
            advice = "" if self.row.inline else f"; map the column with dataset.fields.{name}"
            raise self.error(f"{name}: found {describe(value)}, expected a list of texts{advice}")
        texts: list[str] = []
        for position, item in enumerate(value):
            text = self.text(f"{name}.{position}", item)
            if text is None:
                raise self.error(f"{name}.{position}: found nothing (null), expected text")
            texts.append(text)
        return tuple(texts)

    def written(self, name: str, text: str) -> JSON:
        """Return the list that a text of a data file is written as, as a CSV has it; any other text as it is."""
        if self.row.inline or not text.lstrip().startswith("["):
            return text
        try:
            found = written_value(text)
        except ValueError as error:
            raise self.error(f"{name}: {error}") from None
        return found if isinstance(found, list) else text  # type: ignore[return-value]

    def target(self, value: JSON, name: str = "target", level: int = 0) -> JSON:
        if isinstance(value, str):
            return self.usable(name, value)
        if isinstance(value, float) and not -float("inf") < value < float("inf"):
            raise self.error(f"{name}: found {describe(value)}, expected a finite number")
        if level > MAX_DEPTH:
            raise self.error(f"target: is nested more than {MAX_DEPTH} levels deep; flatten it")
        if isinstance(value, list | tuple):
            return [self.target(item, f"{name}.{position}", level + 1) for position, item in enumerate(value)]
        if self.has_calls and isinstance(value, dict):
            return {str(key): self.target(own, f"{name}.{key}", level + 1) for key, own in value.items()}
        if value is not None and not isinstance(value, bool | int | float):
            raise self.error(f"{name}: found {describe(value)}, expected text, a number, a bool or a list of those")
        return value

    def target_of_columns(self, target: JSON, columns: Sequence[str], choices: Sequence[str]) -> JSON:
        """Return the index of a choice for a target that is the name of the choice's column; another one as it is."""
        if isinstance(target, list):
            return [self.target_of_columns(one, columns, choices) for one in target]
        if not isinstance(target, str) or target not in columns:
            return target
        place = columns.index(target)
        if target in choices and choices.index(target) != place:
            raise self.error(
                f"target: found {quoted(target)}, which is the text of one choice and the column of another, expected "
                "the index of the right one"
            )
        return place

    def category(self, value: JSON) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str | int | float):
            raise self.error(f"category: found {describe(value)}, expected text")
        return self.usable("category", str(value))

    def cluster(self, value: JSON) -> str:
        """Return the value as text; a long one, such as a passage itself, as its hash: equality is all that it is
        for.
        """
        if value is None or not str(value).strip():
            raise self.error(
                f"cluster: found {describe(value)}, expected a value that identifies the sample's passage; a template "
                "such as '{{ passage_id or id }}' gives a sample without a passage its own cluster"
            )
        if not isinstance(value, str | int | float):
            raise self.error(f"cluster: found {describe(value)}, expected text or a number")
        text = self.usable(CLUSTER, str(value))
        if len(text) <= _MAX_CLUSTER_CHARACTERS:
            return text
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def usable(self, name: str, text: str) -> str:
        if (problem := unusable_character(text)) is not None:
            raise self.error(f"{name}: {problem}")
        return text


class Ids:
    """The ids of a suite's samples: the field ``id``, else the row's number."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._without: Row | None = None

    def of(self, mapped: Mapped) -> str:
        """Return the id of the next row. Raises ``SuiteError`` for one that cannot be, or that another row has."""
        row = mapped.row
        value = mapped.fields.get("id")
        if value is None:
            self._without = self._without or row
        else:
            id_ = _checked_id(value, row)
            if id_ in self._rows:
                advice = "" if row.inline else "; dataset.first_id: 1 takes the rows' numbers in their place"
                raise row.error(
                    f"found the id {quoted(id_)} twice, first in {self._rows[id_].place}; ids are unique in a "
                    f"suite{advice}"
                )
            self._rows[id_] = row
        if self._without is not None and self._rows:
            other = next(iter(self._rows.values()))
            advice = "" if row.inline else "; dataset.first_id: 1 numbers them all"
            raise self._without.error(
                f"the row has no id, {other.place} has one; give ids to all rows, or to none (the row numbers are used "
                f"then){advice}"
            )
        return str(row.number) if value is None else id_


def _checked_id(value: JSON, row: Row) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise row.error(f"id: found {describe(value)}, expected text or a whole number")
    id_ = unicodedata.normalize("NFC", str(value))
    if not id_.strip():
        raise row.error("id: found an empty text, expected an id")
    for character in id_:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise row.error(
                f"id: found {quoted(id_)} with the character U+{ord(character):04X}, expected an id without control "
                "characters"
            )
    if id_.startswith("gate["):
        raise row.error(f"id: found {quoted(id_)}, expected an id that does not begin with 'gate[', which names gates")
    return id_
