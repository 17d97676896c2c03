"""The JSON of reports: validators for what is read, made from the dataclasses, and texts of what is written.

A report may have been edited by hand: nothing is converted, numbers are finite, whole numbers are 0 or more. A list or
mapping may be null or missing, and unknown keys are left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from json.encoder import encode_basestring_ascii as _quoted
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Report, SuiteReport, Summary, VariantComparison
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.text.wording import describe
from pytest_llmeval.types import JSON

__all__ = [
    "DamagedPart",
    "finite",
    "head_of",
    "head_to_json",
    "part_from_json",
    "plain_schema",
    "record_from_json",
    "record_from_text",
    "record_to_json",
    "report_from_json",
    "without_defaults",
]


T = TypeVar("T")


class DamagedPart(ValueError):
    """Something in a report that is not allowed in its place; the message says where it is, and what was found."""


def report_from_json(data: Mapping[str, Any], records: Sequence[Record]) -> Report:
    """Return the report from its head as ``json`` gives it, of schema 1 to 3. Raises ``DamagedPart``.

    Schema 1 has no averages, gates, definitions and percentiles, and its means over categories are plain numbers.
    """
    if "suites" not in data:
        raise DamagedPart("suites: there are none, expected a list")
    report = part_from_json(Report, {**data, "records": records, "altered": None})
    for number, model in enumerate(report.models):
        if not isinstance(model.get("name"), str):
            raise DamagedPart(f"models[{number}].name: found {describe(model.get('name'))}, expected text")
    for number, judge in enumerate(report.judges):
        for key in ("role", "name"):
            if not isinstance(judge.get(key), str):
                raise DamagedPart(f"judges[{number}].{key}: found {describe(judge.get(key))}, expected text")
    return report


def record_from_json(data: Any) -> Record:
    """Return a record from what ``json`` gave for it. Raises ``DamagedPart``.

    The mapping may also be the value of a single key ``record``, as in a journal. A value that is null was a number
    that JSON cannot hold, and becomes NaN: no mean is taken as if the sample had none.
    """
    if isinstance(data, dict) and data.keys() == {"record"}:
        data = data["record"]
    if not isinstance(data, dict):
        raise DamagedPart(f"found {describe(data)}, expected a record")
    return part_from_json(Record, data)


def record_from_text(text: bytes) -> Record | None:
    """Return the record that ``record_from_json`` would return for this JSON, in half the time, or None.

    None is returned for anything unusual: an error, which ``record_from_json`` words, NaN and infinity, other forms.
    """
    if b"NaN" in text or b"Infinity" in text:
        return None
    try:
        found = _validator(Record).validate_json(text)
    except ValidationError:
        return None
    return found if isinstance(found, Record) else None


def part_from_json(made: type[T], data: object, where: str = "") -> T:
    """Return a dataclass from what ``json`` gave for it. Raises ``DamagedPart``; its place begins with ``where``."""
    try:
        found: T = _validator(made).validate_python(data)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DamagedPart(_message(first["type"], first["loc"], first["input"], first["msg"], where)) from None
    return found


_EXPECTED = MappingProxyType({"tuple_type": "a list", "dict_type": "a mapping", "dataclass_type": "a mapping"})
_PARTS_OF_SUITE = frozenset(("info", "summary"))
"""Fields of ``SuiteReport`` whose keys stand beside its other keys in a report."""


def _message(kind: str, keys: tuple[str | int, ...], value: object, text: str, where: str) -> str:
    place = where
    for number, key in enumerate(keys[:-1] if kind == "missing" else keys):
        if not (number == 2 and keys[0] == "suites" and key in _PARTS_OF_SUITE):
            place += f"[{key}]" if isinstance(key, int) else f".{key}" if place else key
    if kind == "missing":
        return f"{place}: there is no {keys[-1]!r}" if place else f"there is no {keys[-1]!r}"
    if text.startswith(_WHOLE) and isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return f"{place}: found {value}, expected 0 or more"
    expected = "a metric" if keys[-2:-1] == ("macro",) else _EXPECTED.get(kind, text)
    return f"{place}: found {describe(value)}, expected {expected}"


def _suite(data: object) -> object:
    """Give a suite's keys, which stand side by side in a report, the structure of ``SuiteReport``."""
    if not isinstance(data, Mapping):
        return data
    categories, macro = data.get("categories"), data.get("macro")
    if isinstance(macro, Mapping) and isinstance(categories, Mapping):
        macro = {name: _metric(value, len(categories)) for name, value in macro.items()}
    named = (field.name for field in fields(Summary) if field.name.startswith("num_") and field.default is MISSING)
    counts = dict.fromkeys(named)
    return {**data, "macro": macro, "info": data, "summary": {**counts, **data}}


def _info(data: object) -> object:
    if not isinstance(data, Mapping):
        return data
    known = {name: value for name, value in data.items() if value is not None}
    if isinstance(known.get("metrics"), dict):  # their names, and in a report what they are
        known["metrics"] = list(known["metrics"])
    return known


def _metric(value: object, num_categories: int) -> object:
    """Make a metric from a number of schema 1, to which every category contributed."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"value": value, "n": num_categories, "kind": "mean"} if is_number else value


@cache
def _validator(made: type[Any]) -> SchemaValidator:
    return SchemaValidator(_schema(made))


_LARGEST = 1 << 1023
"""Whole numbers from here on are too large for a float."""

_WHOLE = "a whole number"
_PLAIN: Mapping[Any, tuple[CoreSchema, str]] = MappingProxyType(
    {
        str: (core_schema.str_schema(strict=True), "text"),
        bool: (core_schema.bool_schema(strict=True), "true or false"),
        int: (core_schema.int_schema(strict=True, ge=0, lt=_LARGEST), _WHOLE),
        float: (core_schema.float_schema(strict=True, allow_inf_nan=False), "a number"),
    }
)


def _schema(hint: Any) -> CoreSchema:
    """Return the schema for values of a type. For types that are not known here (``JSON``) it lets pass anything."""
    schema, expected = _plain(hint)
    return schema if expected is None else _telling(schema, expected)


def _telling(schema: CoreSchema, expected: str) -> CoreSchema:
    return core_schema.custom_error_schema(schema, "unexpected", custom_error_message=expected)


def _plain(hint: Any) -> tuple[CoreSchema, str | None]:
    """Return the schema for a type, and a text for its errors if its own errors do not say what is expected."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return core_schema.literal_schema(list(args)), " or ".join(filter(None, (", ".join(args[:-1]), args[-1])))
    if origin is tuple:
        return _or_empty(core_schema.tuple_variable_schema(_schema(args[0])), ()), None
    if origin is Mapping:
        return _or_empty(core_schema.dict_schema(core_schema.str_schema(), _schema(args[1])), {}), None
    if origin in (UnionType, Union) and len(args) == 2 and NoneType in args:
        schema, expected = _plain(next(arg for arg in args if arg is not NoneType))
        return core_schema.nullable_schema(schema), None if expected is None else f"{expected} or null"
    return (_dataclass(hint) if is_dataclass(hint) else core_schema.any_schema()), None


def plain_schema(hint: Any) -> CoreSchema:
    """Return the schema for a type that is no list and no mapping; its errors are not worded."""
    return _plain(hint)[0]


def _or_empty(schema: CoreSchema, empty: object) -> CoreSchema:
    given = core_schema.no_info_before_validator_function(lambda value: empty if value is None else value, schema)
    return core_schema.with_default_schema(given, default=empty)


def _dataclass(made: Any) -> CoreSchema:
    hints = get_type_hints(made)
    members = [
        core_schema.dataclass_field(field.name, _field_schema(made, field, hints[field.name]), kw_only=True)
        for field in fields(made)
    ]
    own = core_schema.dataclass_args_schema(made.__name__, members)
    schema = core_schema.dataclass_schema(made, own, [field.name for field in fields(made)], slots=True)
    arranged = {SuiteReport: _suite, SuiteInfo: _info}.get(made)
    return schema if arranged is None else core_schema.no_info_before_validator_function(arranged, schema)


def _field_schema(made: Any, field: Field[Any], hint: Any) -> CoreSchema:
    if (made, field.name) in _OWN:
        return _OWN[made, field.name]
    schema = _schema(hint)
    if field.default is not MISSING:
        return core_schema.with_default_schema(schema, default=field.default)
    return schema  # a default that is made is an empty list or mapping


def _with_nan(values: Mapping[str, float | None]) -> Mapping[str, float | None]:
    if None not in values.values():
        return values
    return {name: math.nan if value is None else value for name, value in values.items()}


_P_VALUE = core_schema.with_default_schema(
    _telling(
        core_schema.nullable_schema(core_schema.float_schema(strict=True, ge=0, le=1)),
        "a number from 0 to 1 or null",
    ),
    default=None,
)
_OWN: Mapping[tuple[Any, str], CoreSchema] = MappingProxyType(
    {
        (Record, "values"): core_schema.with_default_schema(
            core_schema.no_info_after_validator_function(_with_nan, _schema(Mapping[str, float | None])), default={}
        ),
        (Difference, "p_value"): _P_VALUE,
        (VariantComparison, "p_value"): _P_VALUE,
        (VariantComparison, "p_adjusted"): _P_VALUE,
        (Report, "exit_code"): _telling(core_schema.int_schema(strict=True), _WHOLE),
        (Report, "records"): core_schema.any_schema(),
    }
)
"""Fields that do not follow from their types: null for a number that is lost, limits of a p-value, a code that can be
negative."""


def head_to_json(report: Report) -> dict[str, JSON]:
    """Return all of the report but its records. A number that JSON cannot hold (an infinite loglikelihood) is null."""
    return {name: finite(value) for name, value in head_of(report).items()}


def head_of(report: Report) -> dict[str, object]:
    """Return all of the report but its records, by key: of a kept baseline only what has something to say."""
    if report.is_brief:
        return {"schema": report.schema, **without_defaults(replace(report, records=()))}
    return {name: getattr(report, name) for name in _HEAD}


_HEAD = tuple(field.name for field in fields(Report) if field.name not in ("is_brief", "records", "altered"))


def record_to_json(record: Record) -> str:
    """Return the record as one line of ASCII JSON. A number that JSON cannot hold is null."""
    values = record.to_dict()
    try:
        return _STRICT.encode(values)
    except (TypeError, ValueError):
        return json.dumps(finite(values))


_STRICT = json.JSONEncoder(allow_nan=False)


def finite(value: object) -> JSON:
    """Return ``value`` as JSON: a mapping for a dataclass, a list for a tuple, null for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return {name: finite(item) for name, item in _members(value).items()} if is_dataclass(value) else str(value)


def indented(value: object, margin: str) -> str:
    """Return ``finite(value)`` as ``json.dumps`` writes it with an indent of 1, in a fifth of its time.

    ``margin`` is a line feed and the spaces before the text in which ``value`` stands.
    """
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else "null"
    inner = f"{margin} "
    if isinstance(value, list | tuple):
        items = f",{inner}".join([indented(item, inner) for item in value])
        return f"[{inner}{items}{margin}]" if items else "[]"
    members: Mapping[Any, object]
    if isinstance(value, dict):  # as nearly all are: to ask for a Mapping takes longer
        members = value
    elif is_dataclass(value):
        members = _members(value)
    elif isinstance(value, Mapping):
        members = value
    else:
        return _quoted(str(value))
    items = f",{inner}".join([f"{_quoted(str(name))}: {indented(item, inner)}" for name, item in members.items()])
    return f"{{{inner}{items}{margin}}}" if items else "{}"


def without_defaults(value: Any) -> Any:
    """Return a value with its dataclasses as mappings, without what a reader adds by itself.

    A field is left out if it has its default, or is an empty list or mapping. So a default of these classes must not
    change: in files that were written before, it stands for what was left out.
    """
    if isinstance(value, Mapping):
        return {name: without_defaults(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_defaults(item) for item in value]
    if not is_dataclass(value):
        return value
    found = {
        one.name: without_defaults(item)
        for one in fields(value)
        if (item := getattr(value, one.name)) != one.default and item not in ((), [], {})
    }
    if isinstance(value, SuiteReport):
        return found.pop("info") | found.pop("summary") | found
    return found


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _members(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass. Those of a suite's info and counts stand side by side, as readers know them."""
    kind: Any = type(value)
    found = {name: getattr(value, name) for name in _names(kind)}
    if isinstance(value, SuiteReport):
        del found["info"], found["summary"]
        return {**_members(value.info), **_members(value.summary), **found}
    return found
