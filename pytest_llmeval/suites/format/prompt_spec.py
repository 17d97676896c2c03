"""The part of the suite format that says how a sample becomes a prompt."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_llmeval.data.spec import FROM_LIST, Spec
from pytest_llmeval.suites.format.dataset_spec import FieldRule, RowsSpec

__all__ = ["FewshotSpec", "PromptSpec"]


class FewshotSpec(RowsSpec):
    """Examples that the prompt shows before the question."""

    count: int = Field(ge=0, description="How many examples are shown.")
    samples: Annotated[tuple[dict[str, Any], ...], FROM_LIST] | None = Field(
        None, description="The examples themselves."
    )
    seed: int | None = Field(
        None, description="Decides which examples are drawn; by default 0, and lm-eval's own 1234 for sampler: lm_eval."
    )
    sampler: Literal["seeded", "first_n", "lm_eval"] = Field(
        "seeded",
        description="Draw once with the seed, take the first, or draw for every sample anew as lm-eval's random "
        "sampler does.",
    )
    spare: bool | None = Field(
        None,
        description="For sampler: lm_eval, draw one more than count and leave the sample itself out, as lm-eval does "
        "where the examples come from its test_split, or where a task has neither test_split nor fewshot_split; by "
        "default true where the examples are the data set's own.",
    )
    match: str | None = Field(
        None,
        min_length=1,
        description="A field or column: a sample is shown only examples that have the same value there, such as "
        "category.",
    )
    fields: dict[str, FieldRule] = Field(
        {}, description="Fields of the examples that differ from those of the data set; see dataset."
    )
    template: str | None = Field(None, description="Template of an example's question; by default prompt.template.")
    answer: str | None = Field(
        None, description="Template of the answer that an example shows; by default the scorer's."
    )
    answer_delimiter: str | None = Field(
        None, description="Stands before an example's answer; by default prompt.delimiter."
    )
    prefix: str | None = Field(
        None, description="Template of the beginning of an example's answer; by default prompt.prefix; empty for none."
    )
    delimiter: str = Field("\n\n", description="Stands between the parts of a prompt: system, examples, question.")
    multi_turn: bool = Field(
        False, description="In a chat, show each example as a turn of the user and one of the assistant."
    )


class PromptSpec(Spec):
    """Settings of how a sample becomes a prompt."""

    template: str | None = Field(None, description="Jinja2 template of the question; by default the scorer's.")
    system: str = Field("", description="Text before everything else, or the system message of a chat; a template too.")
    system_delimiter: str | None = Field(
        None, description="Stands after the system text if there is no chat; by default prompt.fewshot.delimiter."
    )
    delimiter: str = Field(
        " ",
        description="Stands between a prompt and an option, and before an example's answer. The default is left out "
        "before an option or answer that begins with white space, but for suites with a preset.",
    )
    prefix: str = Field(
        "",
        description="Template of the text with which the model's reply begins, such as 'Answer:'; in a chat the "
        "beginning of the assistant's turn.",
    )
    chat: bool = Field(False, description="Send the prompt through the model's chat template.")
    fewshot: FewshotSpec | None = Field(None, description="Examples before the question.")
