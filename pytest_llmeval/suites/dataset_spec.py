"""The part of the suite format that says where rows come from and what their columns mean."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from pytest_llmeval.suites.spec import Spec

__all__ = ["DatasetSpec", "FieldRule"]

DataFormat: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "yaml"]


def _field_rule(value: object) -> object:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str | bool | int | float) for item in value):
        return tuple(value)
    raise PydanticCustomError(
        "llmeval_expected", "{expected}", {"expected": "a column, a template, a number, a bool or a list of those"}
    )


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
"""Where a field's value comes from: a column, a Jinja2 template, a literal number or bool, or a list."""


class DatasetSpec(Spec):
    """A file of rows, and how its columns become a sample."""

    path: str = Field(min_length=1, description="The data file, relative to the suite file.")
    format: DataFormat | None = Field(None, description="The file's format, where its suffix does not say it.")
    key: str | None = Field(
        None, description="Where in a JSON or YAML file the list of rows is; dots reach inner keys."
    )
    fields: dict[str, FieldRule] = Field(
        {},
        description="What a sample's id, question, choices, target, choice_types and category are made of: a column "
        "(dots reach nested ones) or a Jinja2 template. Any other name is a variable for the prompt's template.",
    )
    where: str | None = Field(None, description="A Jinja2 expression; rows for which it is false are left out.")
    limit: int | None = Field(None, ge=1, description="Use the first this many rows, after where and the shuffle.")
    shuffle_seed: int | None = Field(None, description="Shuffle the rows with this seed.")
