"""The part of the suite format that says where rows come from, and how their columns become samples."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here

__all__ = ["DatasetSpec", "FieldRule", "JoinSpec", "RowsSpec"]


DataFormat: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "yaml", "parquet", "text"]


def _field_rule(value: object) -> object:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str | bool | int | float) for item in value):
        return tuple(value)
    raise expected_here("a column, a template, a number, a bool or a list of those")


FieldRule: TypeAlias = Annotated[
    Any,
    BeforeValidator(_field_rule),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number", "boolean"]},
                {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
            ]
        }
    ),
]
"""The source of a field's value: a column, a Jinja2 template, a literal number or bool, or a list."""


class JoinSpec(Spec):
    """A second file, whose columns are added to the rows of the data set."""

    path: str = Field(min_length=1, description="The file, relative to the suite file, in any format of dataset.path.")
    on: str = Field(
        min_length=1, description="The column that both files have; its values are unique in the second file."
    )
    format: DataFormat | None = Field(None, description="The file's format, if its suffix does not give it.")
    key: str | None = Field(
        None, description="Where in a JSON or YAML file the list of rows is. A mapping there goes from ids to rows."
    )
    separator: str | None = Field(None, min_length=1, max_length=1, description="See dataset.separator.")


class RowsSpec(Spec):
    """The source of rows: files beside the suite, or a data set of the Hugging Face hub."""

    path: str | None = Field(
        None,
        min_length=1,
        description="The data file, relative to the suite file; also compressed (.gz, .zst), a pattern such as "
        "part-*.jsonl, or a folder with one JSON object in each file.",
    )
    format: DataFormat | None = Field(None, description="The file's format, if its suffix does not give it.")
    key: str | None = Field(
        None,
        description="Where in a JSON or YAML file the list of rows is. Dots reach inner keys; * goes through a list "
        "and adds each entry's other columns to its rows: data.*.paragraphs.*.qas. For a mapping from ids to rows, * "
        "takes the rows and makes their keys the column id.",
    )
    columns: Annotated[tuple[str, ...], FROM_LIST] | None = Field(
        None, description="Names of the columns of a CSV or TSV file that has no header."
    )
    separator: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="The character between the values of a CSV or TSV file. By default a tab in TSV; in CSV a comma, "
        "or the semicolon, tab or | of a first line without commas.",
    )
    join: JoinSpec | None = Field(
        None, description="A second file, whose columns are added to the rows: {path: answers.json, on: id}."
    )
    hub: str | None = Field(
        None, min_length=1, description="A data set of the Hugging Face hub, as org/name; instead of path."
    )
    config: str | None = Field(None, min_length=1, description="The hub data set's config (subset), if it has several.")
    split: str | None = Field(None, min_length=1, description="The hub data set's split, if it has several.")
    revision: str | None = Field(None, min_length=1, description="Branch, tag or commit of the hub data set.")
    streaming: bool = Field(False, description="Read no more rows of the hub data set than are needed.")


class DatasetSpec(RowsSpec):
    """The source of the rows, and how their columns become samples."""

    fields: dict[str, FieldRule] = Field(
        {},
        description="The sample's id, question, choices, target, choice_types, category, cluster and response (which "
        "is scored if no model is given), each from a column (dots reach nested ones) or a Jinja2 template. A list "
        "means columns if the rows have columns of these names, else texts. Any other name is a variable for the "
        "prompt's template.",
    )
    where: str | None = Field(None, description="A Jinja2 expression; rows for which it is false are left out.")
    limit: int | None = Field(None, ge=1, description="Use only this many rows, the first after where and the shuffle.")
    shuffle_seed: int | None = Field(None, description="Shuffle the rows with this seed.")
    columns_first: bool = Field(
        False,
        description="As in lm-eval: in templates, a column takes precedence over a field of the same name, and a "
        "column does not become a field only because of its name.",
    )
    python_values: bool = Field(
        False,
        description="Templates write null, lists and mappings as Python and lm-eval do; by default these are errors.",
    )
    first_id: int | None = Field(
        None,
        ge=0,
        description="Use the rows' numbers, counted from this, as ids; by default ids come from the column id, or are "
        "numbers from 1.",
    )
