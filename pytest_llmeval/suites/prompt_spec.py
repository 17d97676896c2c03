"""The parts of the suite format that say how a sample becomes a prompt, and how a reply is generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from pytest_llmeval.suites.spec import FROM_LIST, Spec, refuse

__all__ = ["FewshotSpec", "GenerateSpec", "PromptSpec"]


class FewshotSpec(Spec):
    """Examples that the prompt shows before the question."""

    count: int = Field(ge=0, description="How many examples are shown.")
    path: str | None = Field(None, min_length=1, description="A data file of examples, relative to the suite file.")
    samples: Annotated[tuple[dict[str, Any], ...], FROM_LIST] | None = Field(
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


def _stop_list(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise PydanticCustomError("llmeval_expected", "{expected}", {"expected": "text or a list of texts"})
    return (value,) if isinstance(value, str) else value


def _stop_text(value: str) -> str:
    if not value:
        raise refuse("generate.stop: found an empty text, at which every reply would stop at once; remove it")
    return value


class GenerateSpec(Spec):
    """How replies are generated."""

    max_tokens: int = Field(256, ge=1, description="A reply ends after this many tokens.")
    stop: Annotated[
        tuple[Annotated[str, AfterValidator(_stop_text)], ...],
        FROM_LIST,
        BeforeValidator(_stop_list),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field((), description="A reply ends before the first of these texts.")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token; above 0 tokens are sampled.")
    top_p: float = Field(
        1.0, gt=0, le=1, description="Above temperature 0, sample among the likeliest tokens that sum to this."
    )
    seed: int = Field(0, description="Decides what is sampled when the temperature is above 0.")
