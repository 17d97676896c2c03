"""The part of the suite format that says how replies are generated."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse, refuse_here
from pytest_llmeval.text.reasoning import DEFAULT_TAGS, NAMED_TAGS, Tags
from pytest_llmeval.text.wording import expected_one_of, quoted

__all__ = ["GenerateSpec"]


def _stop_list(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise expected_here("text or a list of texts")
    return (value,) if isinstance(value, str) else value


def _stop_text(value: str) -> str:
    if not value:
        raise refuse("generate.stop: found an empty text, at which every reply would stop at once; remove it")
    return value


def _tags(value: object) -> Tags | None:
    """Return tags; None for the default, which ``true`` is too, and no tags for ``false``."""
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
    """Settings of how replies are generated."""

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
        description="Above temperature 0: sample from the likeliest tokens whose probabilities sum to this.",
    )
    top_k: int | None = Field(
        None,
        ge=0,
        description="Above temperature 0: sample from this many of the likeliest tokens; 0 means all.",
    )
    repetition_penalty: float = Field(
        1.0,
        gt=0,
        description="Above 1, tokens that the prompt or the reply already contains become less likely, at "
        "temperature 0 too, as in transformers. For local models, and for servers that have such a setting.",
    )
    seed: int = Field(0, description="Decides what is sampled when the temperature is above 0.")
    reasoning: Annotated[Tags | None, BeforeValidator(_tags), WithJsonSchema(_TAGS_SCHEMA)] = Field(
        None,
        description="Tags around the reasoning that a model writes before its answer. It is split off the reply, and "
        "stop applies only after it. By default the tags of think, thinking, reasoning, harmony (gpt-oss), mistral "
        "and kimi, and those that the chat template opened; false leaves replies whole.",
    )

    @property
    def tags(self) -> Tags:
        """Return the tags of reasoning; empty if replies are left whole."""
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
