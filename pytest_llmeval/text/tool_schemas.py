"""The functions that a model may call, as suites and data sets describe them, in the form of OpenAI's API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_llmeval.text.wording import describe, quoted

__all__ = ["renamed", "short_names", "tool_schemas", "tools_as_text"]

_TYPES: Mapping[str, str] = {
    "dict": "object",
    "float": "number",
    "double": "number",
    "int": "integer",
    "bool": "boolean",
    "str": "string",
    "list": "array",
    "tuple": "array",
}
"""Names of types that data sets such as BFCL write, with those of JSON Schema. ``any`` is no type."""
_SCHEMAS_BY_NAME = ("properties", "$defs", "definitions", "patternProperties")
_VALUES = ("enum", "const", "default", "examples")
_MOST_LEVELS = 50
_PARAMETERS = ("parameters", "input_schema")


def tools_as_text(value: object) -> str:
    """Return functions as a request has them, the text of a JSON list; empty for none. Raise ``ValueError``, as
    ``tool_schemas`` does.
    """
    schemas = tool_schemas(value)
    return json.dumps(schemas, ensure_ascii=False) if schemas else ""


def tool_schemas(value: object) -> list[dict[str, Any]]:
    """Return functions in the form of OpenAI's API: ``{"type": "function", "function": {"name": …}}``.

    An entry may also be the function alone, with its ``parameters`` (or ``input_schema``, as Anthropic's API calls
    them). A list may be written as JSON text. Types of Python (``dict``, ``float``) become those of JSON Schema. Raise
    ``ValueError``, which says in one line which entry is none, or which name stands twice.
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        text = value
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"found {quoted(text)}, which is no JSON ({error}); {_EXPECTED}") from None
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"found {describe(value)}, {_EXPECTED}")
    found = [_schema(entry, place) for place, entry in enumerate(value, 1)]
    names = [entry["function"]["name"] for entry in found]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise ValueError(f"found the function {quoted(twice)} twice")
    try:
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # of NaN, or half a character
        raise ValueError(f"the functions cannot be written as JSON: {error}") from None
    return found


_EXPECTED = "expected a list of functions: [{name: …, description: …, parameters: {…}}]"


def _schema(entry: object, place: int) -> dict[str, Any]:
    own = entry
    if isinstance(entry, Mapping) and "function" in entry:
        if entry.get("type", "function") != "function":
            raise ValueError(f"entry {place} has the type {describe(entry['type'])}, expected function")
        own = entry["function"]
    if not isinstance(own, Mapping):
        raise ValueError(f"entry {place} is {describe(own)}, {_EXPECTED}")
    name = own.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"entry {place} has no name, {_EXPECTED}")
    function: dict[str, Any] = {"name": name}
    description = own.get("description")
    if description is not None:
        if not isinstance(description, str):
            raise ValueError(f"{quoted(name)}: description: found {describe(description)}, expected text")
        function["description"] = description
    parameters = next((own[key] for key in _PARAMETERS if own.get(key) is not None), None)
    if parameters is not None:
        if not isinstance(parameters, Mapping):
            raise ValueError(f"{quoted(name)}: parameters: found {describe(parameters)}, expected a JSON Schema")
        _check_properties(parameters, name)
        function["parameters"] = _as_json_schema(parameters, name, 0)
    if "strict" in own:
        function["strict"] = own["strict"]
    return {"type": "function", "function": function}


def _check_properties(parameters: Mapping[Any, object], name: str) -> None:
    """Raise ``ValueError`` if the parameters are not named as in a JSON Schema, each with a schema of its own."""
    properties, required = parameters.get("properties"), parameters.get("required")
    if properties is not None and not isinstance(properties, Mapping):
        raise ValueError(f"{quoted(name)}: properties: found {describe(properties)}, expected a mapping of parameters")
    for key, schema in (properties or {}).items():
        if not isinstance(schema, Mapping):
            found = f"{quoted(name)}: properties.{key}: found {describe(schema)}"
            raise ValueError(f"{found}, expected a JSON Schema such as {{type: string}}")
    if required is not None and not (
        isinstance(required, list | tuple) and all(isinstance(one, str) for one in required)
    ):
        raise ValueError(f"{quoted(name)}: required: found {describe(required)}, expected a list of parameters' names")


def _as_json_schema(schema: object, name: str, level: int) -> Any:
    """Return a schema with the types of JSON Schema, of which some data sets write Python's."""
    if level > _MOST_LEVELS:
        raise ValueError(f"{quoted(name)}: its parameters are nested more than {_MOST_LEVELS} deep")
    if isinstance(schema, list | tuple):
        return [_as_json_schema(part, name, level + 1) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        key = str(key)
        if key in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            found[key] = {str(one): _as_json_schema(own, name, level + 1) for one, own in value.items()}
        elif key == "type" and isinstance(value, str):
            if value != "any":
                found[key] = _TYPES.get(value, value)
        elif key in _VALUES:
            found[key] = value
        else:
            found[key] = _as_json_schema(value, name, level + 1)
    return found


_USABLE = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def short_names(tools: Iterable[Mapping[str, Any]], called: Iterable[str] = ()) -> dict[str, str]:
    """Map each name that APIs refuse (``math.sqrt``) to one that they take (``math_sqrt``), which no other tool has.
    ``called`` are names of functions that the turns of a chat call.

    APIs take letters, digits, ``_`` and ``-``, and at most 64 of them.
    """
    names = list(dict.fromkeys([*(str(tool["function"]["name"]) for tool in tools), *called]))
    taken = {name for name in names if _USABLE.fullmatch(name)}
    found: dict[str, str] = {}
    for name in names:
        if name in taken:
            continue
        base = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:60]
        short, number = base, 2
        while short in taken:
            short, number = f"{base}_{number}", number + 1
        taken.add(short)
        found[name] = short
    return found


def renamed(tools: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> list[Any]:
    """Return tools with other names for some of their functions."""
    return [
        {**tool, "function": {**tool["function"], "name": names.get(name := tool["function"]["name"], name)}}
        for tool in tools
    ]
