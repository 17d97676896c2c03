"""The parts of the suite format that say how a sample becomes a prompt, and how a reply is generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse, refuse_here
from pytest_llmeval.suites.format.dataset_spec import FieldRule, RowsSpec
from pytest_llmeval.text.reasoning import DEFAULT_TAGS, NAMED_TAGS, Tags
from pytest_llmeval.text.wording import expected_one_of, quoted

__all__ = ["FewshotSpec", "GenerateSpec", "PromptSpec"]


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
    """How a sample becomes a prompt."""

    template: str | None = Field(None, description="Jinja2 template of the question; by default the scorer's.")
    system: str = Field("", description="Text before everything else, or the system message of a chat; a template too.")
    system_delimiter: str | None = Field(
        None, description="Stands after the system text if there is no chat; by default prompt.fewshot.delimiter."
    )
    delimiter: str = Field(
        " ",
        description="Stands between a prompt and an option, and before an example's answer. The default is left out "
        "before an option or answer that begins with white space.",
    )
    prefix: str = Field(
        "",
        description="Template of the text with which the model's reply begins, such as 'Answer:'; in a chat the "
        "beginning of the assistant's turn.",
    )
    chat: bool = Field(False, description="Send the prompt through the model's chat template.")
    fewshot: FewshotSpec | None = Field(None, description="Examples before the question.")


def _stop_list(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise expected_here("text or a list of texts")
    return (value,) if isinstance(value, str) else value


def _stop_text(value: str) -> str:
    if not value:
        raise refuse("generate.stop: found an empty text, at which every reply would stop at once; remove it")
    return value


def _tags(value: object) -> Tags | None:
    """None for the default, which ``true`` is too; no tags for ``false``."""
    if value is None or isinstance(value, bool):
        return () if value is False else None
    entries = (value,) if isinstance(value, str) else value
    if not isinstance(entries, list | tuple):
        raise expected_here("true, false, or a list of names and of pairs of tags")
    tags = tuple(_pair(entry, place) for place, entry in enumerate(entries))
    return None if tags == DEFAULT_TAGS else tags


def _pair(entry: object, place: int) -> tuple[str, str]:
    if isinstance(entry, str):
        if entry not in NAMED_TAGS:
            found = f"there are no tags {quoted(entry)}{expected_one_of(entry, NAMED_TAGS)}"
            raise refuse_here(f"write your own tags as a pair, [<open>, </open>]; {found}", place)
        return NAMED_TAGS[entry]
    match entry:
        case [str(begin), str(end)] if begin.strip() and end.strip() and begin != end:
            return begin, end
    raise refuse_here("expected a name, or an opening and another closing tag: [<open>, </open>]", place)


_TAG: dict[str, Any] = {"type": "string", "pattern": r"\S"}
_TAGS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "boolean"},
        {"enum": list(NAMED_TAGS)},
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {"enum": list(NAMED_TAGS)},
                    {"type": "array", "items": _TAG, "minItems": 2, "maxItems": 2, "uniqueItems": True},
                ]
            },
        },
        {"type": "null"},
    ]
}


class GenerateSpec(Spec):
    """How replies are generated."""

    max_tokens: int = Field(256, ge=1, description="A reply ends after this many tokens.")
    stop: Annotated[
        tuple[Annotated[str, AfterValidator(_stop_text)], ...],
        FROM_LIST,
        BeforeValidator(_stop_list),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": {"type": "string", "minLength": 1}},
                ]
            }
        ),
    ] = Field((), description="A reply ends before the first of these texts.")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token; above 0 tokens are sampled.")
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Above temperature 0, sample from the likeliest tokens whose probabilities sum to this.",
    )
    top_k: int | None = Field(
        None,
        ge=1,
        description="Above temperature 0, sample from so many of the likeliest tokens; at 0 it does nothing.",
    )
    repetition_penalty: float = Field(
        1.0,
        gt=0,
        description="Above 1, tokens that stand in the prompt or the reply already are less likely, at temperature 0 "
        "too; as in transformers. For local models, and for servers that have such a setting.",
    )
    seed: int = Field(0, description="Decides what is sampled when the temperature is above 0.")
    reasoning: Annotated[Tags | None, BeforeValidator(_tags), WithJsonSchema(_TAGS_SCHEMA)] = Field(
        None,
        description="Tags around the reasoning that a model writes before its answer, which is split off the reply; "
        "stop applies behind it. By default those of think, thinking, reasoning, harmony (gpt-oss), mistral and kimi, "
        "and what the chat template opened; false leaves replies whole.",
    )

    @property
    def tags(self) -> Tags:
        """The tags of reasoning; empty if replies are left whole."""
        return DEFAULT_TAGS if self.reasoning is None else self.reasoning

    @property
    def used_top_k(self) -> int:
        """Return ``top_k`` if tokens are sampled, else 0: greedy decoding does not use it."""
        return self.top_k or 0 if self.temperature > 0 else 0

    @model_serializer(mode="wrap")
    def _without_unsaid(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the values without keys that decide nothing here: older fingerprints know no such keys."""
        values: dict[str, Any] = handler(self)
        if not self.used_top_k:
            values.pop("top_k", None)
        if self.repetition_penalty == 1:
            values.pop("repetition_penalty", None)
        if not self.reasoning:
            values.pop("reasoning", None)
        return values
