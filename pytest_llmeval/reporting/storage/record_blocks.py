"""Records without their texts from many lines of JSON at a time: what a recount needs, in half the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from pytest_llmeval.reporting.report.records import OF_ANY_JSON, Record, remove_texts
from pytest_llmeval.reporting.storage.report_model import plain_schema

__all__ = ["records_of_block"]


def records_of_block(block: bytes) -> Sequence[Record] | None:
    """What ``without_texts`` leaves of the records in these lines of a report, each with its comma but the last.

    None where a line has anything unusual, which is to be read alone: an error, null for a number or a mapping, NaN and
    infinity, the form of a journal.
    """
    if b"NaN" in block or b"Infinity" in block:
        return None
    try:
        found: list[Record] = _validator().validate_json(b"[%b]" % block.strip().removesuffix(b","))
    except ValidationError:
        return None
    for record in found:
        remove_texts(record)
    return found


_ANY_MAPPING = core_schema.typed_dict_schema({}, extra_behavior="ignore")
"""Any mapping, as an empty one: its members are not made."""


@cache
def _validator() -> SchemaValidator:
    """What ``report_model`` asks of a record, but for what it also lets pass in other places; with other errors.

    What may be anything and is not kept is not looked at.
    """
    hints = get_type_hints(Record)
    members = [
        core_schema.dataclass_field(field.name, _with_default(field.default, _schema(field.name, hints)), kw_only=True)
        for field in fields(Record)
        if field.name not in OF_ANY_JSON
    ]
    own = core_schema.dataclass_args_schema(Record.__name__, members)
    names = [field.name for field in fields(Record) if field.name not in OF_ANY_JSON]
    return SchemaValidator(core_schema.list_schema(core_schema.dataclass_schema(Record, own, names, slots=True)))


def _with_default(default: object, schema: CoreSchema) -> CoreSchema:
    return schema if default is MISSING else core_schema.with_default_schema(schema, default=default)


_OWN: Mapping[str, CoreSchema] = MappingProxyType({"details": _ANY_MAPPING})


def _schema(name: str, hints: Mapping[str, Any]) -> CoreSchema:
    return _OWN[name] if name in _OWN else _of_type(hints[name])


def _of_type(hint: Any) -> CoreSchema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return core_schema.tuple_variable_schema(_of_type(args[0]))
    if origin is Mapping:
        return core_schema.dict_schema(core_schema.str_schema(), _of_type(args[1]))
    return plain_schema(hint)
