"""The JSON schema of suite files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic.json_schema import DEFAULT_REF_TEMPLATE, models_json_schema

from pytest_llmeval.data.spec import Spec, one_key_schema, whole
from pytest_llmeval.scorers import ONE_SCORER, SCORERS
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.scoring.epochs import MAX_EPOCHS
from pytest_llmeval.scoring.filters import filters_json_schema
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.presets import all_presets
from pytest_llmeval.types import JSON

__all__ = ["json_schema"]

_FIELDS_SCHEMA = {
    "propertyNames": {
        "pattern": whole(r"(?:[A-Za-z_]|[^\u0000-\u007f\s])(?:\w|[^\u0000-\u007f\s])*"),
        "not": {"const": "row"},
    }
}


def json_schema() -> dict[str, JSON]:
    """Return JSON Schema of a suite file, in which scorers and filters have the forms that YAML gives them.

    What the loader takes is valid; what it refuses is not, where JSON Schema can say so of one file: not that two
    settings contradict each other, nor what a pattern, a template or a preset holds.
    """
    schema: dict[str, Any] = SuiteSpec.model_json_schema()
    definitions = schema["$defs"]
    scorers: list[tuple[type[ScorerSettings], Literal["validation"]]] = [
        (model, "validation") for model in SCORERS.values()
    ]
    definitions |= models_json_schema(scorers, ref_template=DEFAULT_REF_TEMPLATE)[1]["$defs"]
    for model in definitions.values():
        model.get("properties", {}).pop("kind", None)
    definitions.pop("ScorerSettings", None)  # the base of all; a scorer's own settings stand under its name
    properties = schema["properties"]
    part = definitions["PartSettings"]["properties"]
    for parent, names in ((properties, SCORERS), (part, ONE_SCORER)):
        description = parent["score"].get("description", "")
        parent["score"] = {"description": description, **_score_schema(names)}
        parent["filters"]["items"] = filters_json_schema()
    properties["epochs"]["anyOf"].insert(0, {"type": "integer", "minimum": 1, "maximum": MAX_EPOCHS})
    properties["primary_metric"]["anyOf"].insert(0, {"type": "string", "minLength": 1})
    properties["preset"]["anyOf"] = [{"enum": [preset.name for preset in all_presets()]}, {"type": "null"}]
    properties["samples"]["anyOf"][0]["minItems"] = 1
    for model in ("DatasetSpec", "FewshotSpec"):
        definitions[model]["properties"]["fields"].update(_FIELDS_SCHEMA)
        definitions[model]["properties"]["columns"]["anyOf"][0].update(minItems=1, uniqueItems=True)
        definitions[model]["allOf"] = [_not_both(path=_PRESENT, hub=_PRESENT)]
    definitions["FewshotSpec"]["allOf"] += [_not_both(samples=_PRESENT, **{name: _PRESENT}) for name in _SOURCES]
    count = definitions["FewshotSpec"].pop("required")  # which a preset may give
    schema["required"] = ["suite"]
    schema["anyOf"] = [
        {
            "required": ["score"],
            "anyOf": [
                {"required": ["samples"], "properties": {"samples": _PRESENT, "dataset": {"type": "null"}}},
                {"required": ["dataset"], "properties": {"samples": {"type": "null"}, "dataset": _HAS_SOURCE}},
            ],
            "properties": {"prompt": {"properties": {"fewshot": {"required": count}}}},
        },
        {"required": ["preset"], "properties": {"preset": _PRESENT}},  # a preset brings its own scorer
    ]
    schema["allOf"] = [_not_both(samples=_PRESENT, dataset=_HAS_SOURCE)]
    return schema


_PRESENT: dict[str, Any] = {"not": {"type": "null"}}

_SOURCES = ("path", "hub")

_HAS_SOURCE = {
    "type": "object",
    "anyOf": [{"required": [name], "properties": {name: _PRESENT}} for name in _SOURCES],
}


def _not_both(**keys: dict[str, Any]) -> dict[str, Any]:
    return {"not": {"required": list(keys), "properties": keys}}


def _score_schema(names: Mapping[str, type[Spec]]) -> dict[str, Any]:
    python = {"description": "A scorer that is registered from Python.", "not": {"enum": list(SCORERS)}}
    return {
        "anyOf": [
            {"type": "string", "enum": [name for name, model in names.items() if not _required(model)]},
            one_key_schema({name: _settings_schema(model) for name, model in names.items()}),
            {"type": "string", **python},
            {
                "type": "object",
                "description": python["description"],
                "propertyNames": {"not": {"enum": list(SCORERS)}},
                "additionalProperties": {"type": ["object", "null"]},
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]
    }


def _settings_schema(model: type[Spec]) -> dict[str, Any]:
    reference = {"$ref": f"#/$defs/{model.__name__}"}
    return reference if _required(model) else {"anyOf": [reference, {"type": "null"}]}


def _required(model: type[Spec]) -> Collection[str]:
    return [name for name, field in model.model_fields.items() if field.is_required()]
