"""The suite format, as pydantic models. What a key means to a user is said in its description."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from pytest_llmeval.data.spec import FROM_LIST, Spec, refuse, whole
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scoring.epochs import EpochsSpec
from pytest_llmeval.scoring.filters import Filters
from pytest_llmeval.suites.format.dataset_spec import DatasetSpec, FieldRule
from pytest_llmeval.suites.format.gates_spec import Gates, PrimaryMetricSpec
from pytest_llmeval.suites.format.prompt_spec import PromptSpec
from pytest_llmeval.text.wording import quoted

__all__ = ["SuiteSpec"]


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
        description="What samples that belong together share, such as a passage: a column or a template. Standard "
        "errors and gates then count clusters, and at least 10 are needed.",
    )
    human: str | None = Field(
        None,
        min_length=1,
        description="What people said of a sample's reply, on some or all samples: a column or a template, which gives "
        "right or wrong, reply, other or tie for pairwise, else a number; nothing where they said nothing. The report "
        "says how far the scorer agrees with them. Not part of the fingerprint.",
    )
    interval: Literal["bootstrap"] | None = Field(
        None,
        description="bootstrap: 95% intervals by a seeded bootstrap over the samples (or over their clusters), not by "
        "formulas. Not part of the fingerprint.",
    )
    filters: Filters = Field((), description="Steps applied to a reply, in this order, before it is scored.")
    score: ScoreSettings = Field(description="How a reply is scored.")
    generate: GenerateSpec = Field(GenerateSpec(), description="How replies are generated.")
    epochs: EpochsSpec | None = Field(
        None, description="How often every sample is asked, and how its scores become one."
    )
    tags: Annotated[tuple[Annotated[str, AfterValidator(_tag), WithJsonSchema(_TAG_SCHEMA)], ...], FROM_LIST] = Field(
        (), description="Become pytest marks."
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
        description="The share of the scored samples on which a metric has to be measurable for a gate on it to pass "
        "under --llm-require-gates, and of the pairs that have to have a value on both sides in a comparison with a "
        "baseline.",
    )
    not_measurable: dict[str, float] = Field(
        {},
        description="What a sample on which a metric is not measurable counts as, by metric: {faithfulness: 0}. By "
        "default it is left out.",
    )
    primary_metric: PrimaryMetricSpec | None = Field(
        None,
        description="The metric by which the suite is compared with a baseline: its name, or {name: …, better: "
        "higher}. By default accuracy, if there is one, else the first whose better direction is known.",
    )
