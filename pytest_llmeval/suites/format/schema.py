"""The suite format, as pydantic models, and the JSON schema that editors read.

The description of a key says what it means to a user.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
)
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, models_json_schema

from pytest_llmeval.data.spec import FROM_LIST, Spec, one_key_schema, refuse, refuse_here, whole
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ONE_SCORER, SCORERS, ScoreSettings
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.scoring.epochs import MAX_EPOCHS, EpochsSpec
from pytest_llmeval.scoring.filters import Filters, filters_json_schema
from pytest_llmeval.suites.format.gates_spec import Gates, PrimaryMetricSpec
from pytest_llmeval.suites.format.prompt_spec import PromptSpec
from pytest_llmeval.suites.format.rows_spec import DatasetSpec, FieldRule
from pytest_llmeval.suites.format.variants import VARIANT_PATTERN, VariantError, variants_of
from pytest_llmeval.suites.presets import all_presets
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

__all__ = ["SuiteSpec", "json_schema"]


def _suite_name(value: str) -> str:
    if not value.strip():
        raise refuse("suite: found an empty name, expected text")
    if not value.isprintable():
        raise refuse(f"suite: found {quoted(value)}, expected a name on one line without control characters")
    if value == "*":
        raise refuse("suite: found the name '*', which stands for all suites in --llm-set; expected another")
    return value


def _tag(value: str) -> str:
    if re.fullmatch(r"[^\W\d_][\w-]*", value) is None or value in _NO_TAGS:
        raise refuse(
            f"tags: found {quoted(value)}, expected a word of letters, digits, '_' and '-' that begins with a letter"
        )
    return value


_NO_TAGS = ["and", "or", "not"]
# \w means ASCII alone to editors: what is not ASCII is left to the loader.
_LETTER, _WORD = r"[A-Za-z]|[^\u0000-\u007f\s]", r"[\w-]|[^\u0000-\u007f\s]"
_TAG_SCHEMA = {"type": "string", "pattern": whole(f"(?:{_LETTER})(?:{_WORD})*"), "not": {"enum": _NO_TAGS}}
_NAME_SCHEMA = {
    "type": "string",
    "pattern": whole(r"(?=.*\S)[^\u0000-\u001f\u007f-\u00a0\u2028\u2029]+"),
    "not": {"const": "*"},
}


def _variants(value: object) -> object:
    if isinstance(value, Mapping):
        try:
            variants_of("", value)
        except VariantError as error:
            raise refuse_here(str(error), *(key for key in (error.name, error.key) if key is not None)) from None
    return value


_Variants: TypeAlias = Annotated[
    dict[str, dict[str, Any]],
    BeforeValidator(_variants),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": whole(VARIANT_PATTERN)},
            "additionalProperties": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": whole(r"(?!(?:suite|variants)(?:\.|$))[^.]+(?:\.[^.]+)*")},
            },
        }
    ),
]


class SuiteSpec(Spec):
    """A suite: its samples, how they become prompts, and how replies are scored."""

    suite: Annotated[str, AfterValidator(_suite_name), WithJsonSchema(_NAME_SCHEMA)] = Field(
        description="The suite's name, unique in a session."
    )
    description: str = Field("", description="What the suite measures.")
    preset: str | None = Field(
        None, description="A published benchmark that gives the defaults: see `llmeval presets`. Keys here override it."
    )
    samples: Annotated[tuple[dict[str, Any], ...], FROM_LIST] | None = Field(
        None, description="The samples themselves, instead of dataset."
    )
    dataset: DatasetSpec | None = Field(None, description="Where the samples come from, instead of samples.")
    prompt: PromptSpec = Field(PromptSpec(), description="How a sample becomes a prompt.")
    choices: FieldRule | None = Field(None, description="The options of every sample: a list, a template or a column.")
    target: FieldRule | None = Field(None, description="What is expected: a value, a template or a column.")
    category: str | None = Field(
        None, description="A sample's category: a column or a template. Reports have a row for each category."
    )
    cluster: str | None = Field(
        None,
        min_length=1,
        description="A column or template that has one value for all samples that depend on each other, such as "
        "questions on one passage. Standard errors and gates then count clusters; at least 10 are needed.",
    )
    human: str | None = Field(
        None,
        min_length=1,
        description="What people said about a sample's reply: a column or a template that gives right or wrong; "
        "reply, other or tie for pairwise; or a number. It may be empty for some samples. The report says how far "
        "the scorer agrees with people. Not part of the fingerprint.",
    )
    interval: Literal["bootstrap"] | None = Field(
        None,
        description="bootstrap: compute 95% intervals by a seeded bootstrap over the samples (or over their "
        "clusters) instead of by formulas. Not part of the fingerprint.",
    )
    filters: Filters = Field((), description="Steps applied to a reply, in this order, before it is scored.")
    score: ScoreSettings = Field(description="How a reply is scored.")
    generate: GenerateSpec = Field(GenerateSpec(), description="How replies are generated.")
    epochs: EpochsSpec | None = Field(
        None, description="How often the model answers every sample, and how the scores become one."
    )
    tags: Annotated[tuple[Annotated[str, AfterValidator(_tag), WithJsonSchema(_TAG_SCHEMA)], ...], FROM_LIST] = Field(
        (), description="Marks that pytest gives to every sample."
    )
    gates: Gates = Field(
        (),
        description="Rules that fail the run if they do not hold, such as accuracy >= 0.6, ci_low(accuracy) > 0.55, "
        "category.geography.accuracy >= 0.5 or macro.accuracy >= 0.5.",
    )
    min_measurable: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Under --llm-require-gates, a gate passes only if its metric is measurable on at least this "
        "share of the scored samples. A comparison with a baseline passes only if at least this share of the pairs "
        "has a value on both sides.",
    )
    not_measurable: dict[str, float] = Field(
        {},
        description="For each metric, the value of a sample on which the metric is not measurable: {faithfulness: "
        "0}. By default such a sample is left out.",
    )
    primary_metric: PrimaryMetricSpec | None = Field(
        None,
        description="The metric by which the suite is compared with a baseline: its name, or {name: …, better: "
        "higher}. By default accuracy; without accuracy, the first metric with a known better direction.",
    )
    variants: _Variants = Field(
        {},
        description="Variants that run side by side, by name, each with the keys that it changes, as --llm-set names "
        "them: {short: {prompt.template: …}, hot: {generate.temperature: 0.9}}. Each is compared with the first.",
    )


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
    turn = definitions["TurnSpec"]["properties"]["score"]
    turn["anyOf"] = [{"const": True}, *_score_schema(ONE_SCORER)["anyOf"], {"type": "null"}]
    turns = definitions["PromptSpec"]["properties"]["turns"]["anyOf"]
    turns[0]["minItems"] = 1
    turns[0]["items"] = {"anyOf": [{"type": "string"}, turns[0]["items"]]}
    turns.insert(0, {"type": "string", "pattern": r"^(?![\s\S]*\{[{%])[\s\S]*\S"})
    properties["epochs"]["anyOf"].insert(0, {"type": "integer", "minimum": 1, "maximum": MAX_EPOCHS})
    properties["primary_metric"]["anyOf"].insert(0, {"type": "string", "minLength": 1})
    properties["preset"]["anyOf"] = [{"enum": [preset.name for preset in all_presets()]}, {"type": "null"}]
    properties["samples"]["anyOf"][0]["minItems"] = 1
    messages = definitions["PromptSpec"]["properties"]["messages"]["anyOf"]
    messages[0]["minItems"] = 1
    messages.insert(0, {"type": "string", "pattern": r"\S"})
    definitions["MessageSpec"]["anyOf"] = [
        _has("column"),
        {**_has("role"), "anyOf": [_has("content"), _has("tool_calls")]},
    ]
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


def _has(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: _PRESENT}}


_HAS_SOURCE = {"type": "object", "anyOf": [_has(name) for name in _SOURCES]}


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
