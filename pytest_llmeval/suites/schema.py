"""The suite format, as pydantic models. What a key means to a user is said in its description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from pytest_llmeval.suites.dataset_spec import DatasetSpec, FieldRule
from pytest_llmeval.suites.epochs_spec import EpochsSpec
from pytest_llmeval.suites.filters_spec import Filters, filters_json_schema
from pytest_llmeval.suites.prompt_spec import FewshotSpec, GenerateSpec, PromptSpec
from pytest_llmeval.suites.score_settings import SCORERS, ScoreSettings
from pytest_llmeval.suites.score_settings.choices import (
    ChoiceSettings,
    LetterSettings,
    Normalize,
    PerplexitySettings,
    YesNoSettings,
)
from pytest_llmeval.suites.score_settings.one import ONE_SCORER
from pytest_llmeval.suites.score_settings.replies import (
    ExactSettings,
    Normalization,
    NumberSettings,
    PatternSettings,
)
from pytest_llmeval.suites.spec import FROM_LIST, Spec, refuse
from pytest_llmeval.suites.wording import quoted
from pytest_llmeval.types import JSON

__all__ = [
    "SCORERS",
    "ChoiceSettings",
    "DatasetSpec",
    "ExactSettings",
    "FewshotSpec",
    "FieldRule",
    "GenerateSpec",
    "LetterSettings",
    "Normalization",
    "Normalize",
    "NumberSettings",
    "PatternSettings",
    "PerplexitySettings",
    "PromptSpec",
    "ScoreSettings",
    "SuiteSpec",
    "YesNoSettings",
    "json_schema",
]


def _suite_name(value: str) -> str:
    if not value.strip():
        raise refuse("suite: found an empty name, expected text")
    if not value.isprintable():
        raise refuse(f"suite: found {quoted(value)}, expected a name on one line without control characters")
    if value == "*":
        raise refuse("suite: found the name '*', which stands for all suites in --llm-set; expected another")
    return value


def _tag(value: str) -> str:
    if re.fullmatch(r"[^\W\d_][\w-]*", value) is None or value in ("and", "or", "not"):
        raise refuse(
            f"tags: found {quoted(value)}, expected a word of letters, digits, '_' and '-' that begins with a letter"
        )
    return value


class SuiteSpec(Spec):
    """A suite: its samples, how they become prompts, and how replies are scored."""

    suite: Annotated[str, AfterValidator(_suite_name)] = Field(description="The suite's name, unique in a session.")
    description: str = Field("", description="What the suite measures.")
    preset: str | None = Field(
        None, description="A published benchmark that gives the defaults: see `llmeval presets`. Keys here win."
    )
    samples: Annotated[tuple[dict[str, Any], ...], FROM_LIST] | None = Field(
        None, description="The samples themselves; else see dataset."
    )
    dataset: DatasetSpec | None = Field(None, description="The file that holds the samples; else see samples.")
    prompt: PromptSpec = Field(PromptSpec(), description="How a sample becomes a prompt.")
    choices: FieldRule | None = Field(None, description="The options of every sample: a list, a template or a column.")
    target: FieldRule | None = Field(None, description="What is expected: a value, a template or a column.")
    category: str | None = Field(None, description="What reports are broken down by: a column or a template.")
    filters: Filters = Field((), description="Done to a reply, in this order, before it is scored.")
    score: ScoreSettings = Field(description="How a reply is scored.")
    generate: GenerateSpec = Field(GenerateSpec(), description="How replies are generated.")
    epochs: EpochsSpec | None = Field(None, description="How often every sample is asked, and how that is reduced.")
    tags: Annotated[tuple[Annotated[str, AfterValidator(_tag)], ...], FROM_LIST] = Field(
        (), description="Become pytest marks."
    )


def json_schema() -> dict[str, JSON]:
    """JSON Schema of a suite file, in which scorers and filters have the forms that YAML gives them."""
    schema: dict[str, Any] = SuiteSpec.model_json_schema()
    definitions = schema["$defs"]
    for model in definitions.values():
        model.get("properties", {}).pop("kind", None)
    definitions.pop("CustomSettings", None)  # its names are the user's own
    part = definitions["PartSettings"]["properties"]
    for properties, names in ((schema["properties"], SCORERS), (part, ONE_SCORER)):
        description = properties["score"].get("description", "")
        properties["score"] = {"description": description, **_score_schema(names)}
        properties["filters"]["items"] = filters_json_schema()
    epochs = schema["properties"]["epochs"]
    epochs["anyOf"] = [{"type": "integer", "minimum": 1}, *epochs["anyOf"]]
    schema["required"] = ["suite"]
    schema["anyOf"] = [{"required": ["score"]}, {"required": ["preset"]}]  # a preset brings its own scorer
    return schema


def _score_schema(names: Mapping[str, type[Spec]]) -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "string", "enum": list(names)},
            {
                "type": "object",
                "properties": {name: {"$ref": f"#/$defs/{model.__name__}"} for name, model in names.items()},
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]
    }
