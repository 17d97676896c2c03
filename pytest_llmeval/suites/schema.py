"""The suite format, as pydantic models. What a key means to a user is said in its description."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from pytest_llmeval.suites.wording import describe, expected_one_of, quoted
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
    "NumberSettings",
    "PatternSettings",
    "PerplexitySettings",
    "PromptSpec",
    "ScoreSettings",
    "SuiteSpec",
    "YesNoSettings",
    "json_schema",
]

Normalize: TypeAlias = Literal["token", "sum", "char", "byte"]
Normalization: TypeAlias = Literal["strip", "lower", "collapse_whitespace", "no_punctuation", "no_articles", "unicode"]
DataFormat: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "yaml"]

# Strict mode takes no list for a tuple, and YAML has lists only. The entries stay strict.
_FROM_LIST = Field(strict=False)


def _refuse(message: str) -> PydanticCustomError:
    return PydanticCustomError("llmeval", "{message}", {"message": message})


class Spec(BaseModel):
    """Base of all parts of the format: unknown keys are errors, types are not coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ChoiceSettings(Spec):
    """Multiple choice by log-likelihood."""

    kind: Literal["choice"] = "choice"
    normalize: Normalize = Field("token", description="What an option's loglikelihood is divided by.")


class LetterSettings(Spec):
    """Multiple choice by generation: the model writes the label of an option."""

    kind: Literal["letter"] = "letter"
    labels: Literal["upper", "lower", "digit"] = Field("upper", description="Labels of the options: A, a or 1.")
    exclude_types: Annotated[tuple[str, ...], _FROM_LIST] = Field(
        (), description="Options of these choice_types are left out."
    )
    shuffle: bool = Field(True, description="Show the options in an order of their own for each sample.")
    shuffle_seed: int = Field(0, description="Decides, with the sample's id, the order of its options.")
    max_tokens: int = Field(10, ge=1, description="Tokens generated for a reply.")


class YesNoSettings(Spec):
    """Yes or no, by generation or by log-likelihood."""

    kind: Literal["yes_no"] = "yes_no"
    by: Literal["generation", "loglikelihood"] = Field(
        "generation", description="Read the reply, or compare how likely 'yes' and 'no' are."
    )


class NumberSettings(Spec):
    """The final number of the reply."""

    kind: Literal["number"] = "number"


class ExactSettings(Spec):
    """The reply is one of the targets, after the same normalisations of both."""

    kind: Literal["exact"] = "exact"
    normalize: Annotated[tuple[Normalization, ...], _FROM_LIST] = Field(
        ("strip",), description="Done to the reply and to the targets, in this order, before they are compared."
    )


class PatternSettings(Spec):
    """The one group of a regular expression, searched in the reply, is one of the targets."""

    kind: Literal["pattern"] = "pattern"
    pattern: str = Field(description="A regular expression with one group.")
    ignore_case: bool = Field(False, description="Compare and search without regard to case.")
    match: Literal["first", "last"] = Field("first", description="Which match counts.")
    timeout_s: float = Field(1.0, gt=0, description="Seconds that the search in one reply may take.")


class PerplexitySettings(Spec):
    """How well the model predicts the text: perplexity per word, byte and token, pooled over the samples."""

    kind: Literal["perplexity"] = "perplexity"
    windows: Literal["disjoint", "sliding"] = Field(
        "disjoint",
        description="How a text longer than the model's context is read: cut into disjoint windows, or by one that "
        "moves on by stride tokens at a time.",
    )
    stride: int | None = Field(
        None, ge=1, description="Tokens by which a sliding window moves on: fewer give each token more context."
    )

    @model_validator(mode="before")
    @classmethod
    def _a_stride_slides(cls, settings: object) -> object:
        if not isinstance(settings, dict):
            return settings
        windows, has_stride = settings.get("windows"), settings.get("stride") is not None
        if windows == "disjoint" and has_stride:
            raise _refuse(
                "score.perplexity: found a stride, with which windows are sliding, not disjoint; remove one of the two"
            )
        if windows == "sliding" and not has_stride:
            raise _refuse("score.perplexity: found windows 'sliding' without a stride; add one, such as stride: 512")
        return {**settings, "windows": "sliding"} if has_stride and "windows" not in settings else settings


_ScoreUnion: TypeAlias = Annotated[
    ChoiceSettings
    | LetterSettings
    | YesNoSettings
    | NumberSettings
    | ExactSettings
    | PatternSettings
    | PerplexitySettings,
    Field(discriminator="kind"),
]

SCORERS: dict[str, type[Spec]] = {
    str(model.model_fields["kind"].default): model for model in get_args(get_args(_ScoreUnion)[0])
}
"""Names of the scorers, and the models of their settings."""


def _named_settings(value: object) -> object:
    """``letter`` and ``{letter: {labels: lower}}`` as ``{kind: letter, labels: lower}``."""
    if isinstance(value, BaseModel):
        return value
    name: str
    settings: object
    if isinstance(value, str):
        name, settings = value, None
    elif isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value)), str):
        ((name, settings),) = value.items()
    elif isinstance(value, dict) and value:
        raise _refuse(
            f"score: found {len(value)} names ({', '.join(map(str, value))}), expected the name of one scorer"
        )
    else:
        raise _refuse(f"score: found {describe(value)}, expected the name of a scorer, or one name with its settings")
    if name not in SCORERS:
        raise _refuse(f"score: there is no scorer {quoted(name)}{expected_one_of(name, SCORERS)}")
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        raise _refuse(f"score.{name}: found {describe(settings)}, expected a mapping of its settings")
    if "kind" in settings:  # ours, to tell the models apart
        raise _refuse(f"unknown key 'kind' in score.{name}")
    return {"kind": name, **settings}


ScoreSettings: TypeAlias = Annotated[_ScoreUnion, BeforeValidator(_named_settings)]


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


def _suite_name(value: str) -> str:
    if not value.strip():
        raise _refuse("suite: found an empty name, expected text")
    if not value.isprintable():
        raise _refuse(f"suite: found {quoted(value)}, expected a name on one line without control characters")
    if value == "*":
        raise _refuse("suite: found the name '*', which stands for all suites in --llm-set; expected another")
    return value


def _tag(value: str) -> str:
    if re.fullmatch(r"[^\W\d_][\w-]*", value) is None or value in ("and", "or", "not"):
        raise _refuse(
            f"tags: found {quoted(value)}, expected a word of letters, digits, '_' and '-' that begins with a letter"
        )
    return value


def _stop_list(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise PydanticCustomError("llmeval_expected", "{expected}", {"expected": "text or a list of texts"})
    return (value,) if isinstance(value, str) else value


def _stop_text(value: str) -> str:
    if not value:
        raise _refuse("generate.stop: found an empty text, at which every reply would stop at once; remove it")
    return value


class GenerateSpec(Spec):
    """How replies are generated."""

    max_tokens: int = Field(256, ge=1, description="A reply ends after this many tokens.")
    stop: Annotated[
        tuple[Annotated[str, AfterValidator(_stop_text)], ...],
        _FROM_LIST,
        BeforeValidator(_stop_list),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field((), description="A reply ends before the first of these texts.")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token; above 0 tokens are sampled.")
    seed: int = Field(0, description="Decides what is sampled when the temperature is above 0.")


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


class FewshotSpec(Spec):
    """Examples that the prompt shows before the question."""

    count: int = Field(ge=0, description="How many examples are shown.")
    path: str | None = Field(None, min_length=1, description="A data file of examples, relative to the suite file.")
    samples: Annotated[tuple[dict[str, Any], ...], _FROM_LIST] | None = Field(
        None, description="The examples themselves."
    )
    key: str | None = Field(None, description="Where in a JSON or YAML file the list of examples is.")
    seed: int = Field(0, description="Decides which examples are drawn.")
    sampler: Literal["seeded", "first_n"] = Field("seeded", description="Draw with the seed, or take the first.")
    delimiter: str = Field("\n\n", description="Stands between the parts of a prompt: system, examples, question.")
    answer: str | None = Field(
        None, description="Template of the answer that an example shows; by default the scorer's."
    )


class PromptSpec(Spec):
    """How a sample becomes a prompt."""

    template: str | None = Field(None, description="Jinja2 template of the question; by default the scorer's.")
    system: str = Field("", description="Text before everything else, or the system message of a chat; a template too.")
    delimiter: str = Field(" ", description="Stands between a prompt and an option, and before an example's answer.")
    chat: bool = Field(False, description="Send the prompt through the model's chat template.")
    fewshot: FewshotSpec | None = Field(None, description="Examples before the question.")


class SuiteSpec(Spec):
    """A suite: its samples, how they become prompts, and how replies are scored."""

    suite: Annotated[str, AfterValidator(_suite_name)] = Field(description="The suite's name, unique in a session.")
    description: str = Field("", description="What the suite measures.")
    samples: Annotated[tuple[dict[str, Any], ...], _FROM_LIST] | None = Field(
        None, description="The samples themselves; else see dataset."
    )
    dataset: DatasetSpec | None = Field(None, description="The file that holds the samples; else see samples.")
    prompt: PromptSpec = Field(PromptSpec(), description="How a sample becomes a prompt.")
    choices: FieldRule | None = Field(None, description="The options of every sample: a list, a template or a column.")
    target: FieldRule | None = Field(None, description="What is expected: a value, a template or a column.")
    category: str | None = Field(None, description="What reports are broken down by: a column or a template.")
    score: ScoreSettings = Field(description="How a reply is scored.")
    generate: GenerateSpec = Field(GenerateSpec(), description="How replies are generated.")
    tags: Annotated[tuple[Annotated[str, AfterValidator(_tag)], ...], _FROM_LIST] = Field(
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
