"""The suite format, as pydantic models. What a key means to a user is said in its description."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from pytest_llmeval.suites.dataset_spec import DatasetSpec, FieldRule
from pytest_llmeval.suites.prompt_spec import FewshotSpec, GenerateSpec, PromptSpec
from pytest_llmeval.suites.score_settings import SCORERS, ScoreSettings
from pytest_llmeval.suites.score_settings.choices import (
    ChoiceSettings,
    LetterSettings,
    Normalize,
    PerplexitySettings,
    YesNoSettings,
)
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
    samples: Annotated[tuple[dict[str, Any], ...], FROM_LIST] | None = Field(
        None, description="The samples themselves; else see dataset."
    )
    dataset: DatasetSpec | None = Field(None, description="The file that holds the samples; else see samples.")
    prompt: PromptSpec = Field(PromptSpec(), description="How a sample becomes a prompt.")
    choices: FieldRule | None = Field(None, description="The options of every sample: a list, a template or a column.")
    target: FieldRule | None = Field(None, description="What is expected: a value, a template or a column.")
    category: str | None = Field(None, description="What reports are broken down by: a column or a template.")
    score: ScoreSettings = Field(description="How a reply is scored.")
    generate: GenerateSpec = Field(GenerateSpec(), description="How replies are generated.")
    tags: Annotated[tuple[Annotated[str, AfterValidator(_tag)], ...], FROM_LIST] = Field(
        (), description="Become pytest marks."
    )


def json_schema() -> dict[str, JSON]:
    """JSON Schema of a suite file, in which ``score`` has the two forms that YAML gives it."""
    schema: dict[str, Any] = SuiteSpec.model_json_schema()
    definitions = schema["$defs"]
    settings: dict[str, JSON] = {}
    for name, model in SCORERS.items():
        definitions[model.__name__].get("properties", {}).pop("kind", None)
        settings[name] = {"$ref": f"#/$defs/{model.__name__}"}
    schema["properties"]["score"] = {
        "description": schema["properties"]["score"].get("description", ""),
        "anyOf": [
            {"type": "string", "enum": list(SCORERS)},
            {
                "type": "object",
                "properties": settings,
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ],
    }
    return schema
