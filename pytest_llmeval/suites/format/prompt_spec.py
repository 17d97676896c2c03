"""The part of the suite format that says how a sample becomes a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse_here
from pytest_llmeval.scorers import OneScoreSettings
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.suites.format.rows_spec import FieldRule, RowsSpec
from pytest_llmeval.templates.templates import is_template
from pytest_llmeval.text.messages import ChatRole
from pytest_llmeval.text.tool_schemas import tool_schemas
from pytest_llmeval.text.wording import Keys, describe

__all__ = ["FewshotSpec", "MessageSpec", "PromptSpec", "TurnSpec"]


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
        description="seeded: draw the examples once, with the seed. first_n: take the first ones. lm_eval: draw anew "
        "for every sample, as lm-eval's random sampler does.",
    )
    spare: bool | None = Field(
        None,
        description="For sampler: lm_eval, draw one more than count and leave the sample itself out. lm-eval does so "
        "if the examples come from its test_split, or if a task has neither test_split nor fewshot_split. By default "
        "true if the examples are the data set's own.",
    )
    match: str | None = Field(
        None,
        min_length=1,
        description="A field or column, such as category: a sample is shown only examples with its own value there.",
    )
    fields: dict[str, FieldRule] = Field(
        {}, description="Fields of the examples, if they differ from those of the data set; see dataset.fields."
    )
    template: str | None = Field(None, description="Template of an example's question; by default prompt.template.")
    answer: str | None = Field(
        None, description="Template of the answer that an example shows; by default the scorer's."
    )
    answer_delimiter: str | None = Field(
        None, description="The text before an example's answer; by default prompt.delimiter."
    )
    prefix: str | None = Field(
        None,
        description="Template of the beginning of an example's answer; by default prompt.prefix. An empty text means "
        "none.",
    )
    delimiter: str = Field("\n\n", description="The text between the parts of a prompt: system, examples, question.")
    multi_turn: bool = Field(
        False, description="In a chat, show each example as a turn of the user and one of the assistant."
    )


def _turn_score(value: object, info: ValidationInfo) -> object:
    if value is None or value is True:
        return value
    if isinstance(value, bool):
        raise refuse_here("found false, expected true or a scorer; a turn without score and target is not scored")
    return _ONE_SCORER.validate_python(value, context=info.context)


_ONE_SCORER: TypeAdapter[ScorerSettings] = TypeAdapter(OneScoreSettings)


class TurnSpec(Spec):
    """One turn of the user in a conversation that is asked turn by turn."""

    user: str = Field("", description="Template of the user's text.")
    column: str | None = Field(
        None,
        min_length=1,
        description="In place of user: a column that holds all turns, a list of texts or of {user: …, target: …}.",
    )
    target: FieldRule | None = Field(
        None,
        description="What is expected of the reply to this turn, which is then scored: a value, a template, or a list "
        "of those. By default, a scored turn has the sample's target.",
    )
    score: Annotated[Any, BeforeValidator(_turn_score)] = Field(
        None,
        description="true: the reply to this turn is scored too, as the suite's score says. Or a scorer of its own, "
        "except for the last turn, which the suite's score judges.",
    )

    @model_validator(mode="after")
    def _one(self) -> TurnSpec:
        if self.column is None and not self.user:
            raise refuse_here("the key 'user' is missing, the user's text")
        if self.column is not None and self.model_fields_set != {"column"}:
            raise refuse_here("a column holds the turns with their targets; remove the other keys", "column")
        return self

    @property
    def is_scored(self) -> bool:
        """Tell whether the reply is scored although the turn is not the last one."""
        return self.score is not None or self.target is not None

    @property
    def own_score(self) -> ScorerSettings | None:
        """Return the settings of the scorer that judges this turn alone; None if there is none."""
        return self.score if isinstance(self.score, ScorerSettings) else None


def _turns(value: object) -> object:
    if value is None:
        return value
    if isinstance(value, str) and value.strip() and not is_template(value):
        return ({"column": value},)
    if isinstance(value, list | tuple) and value:
        for place, turn in enumerate(value):
            if not isinstance(turn, str | Mapping | TurnSpec):
                raise refuse_here(f"found {describe(turn)}, expected a template, or {{user: …, target: …}}", place)
        return tuple({"user": turn} if isinstance(turn, str) else turn for turn in value)
    raise expected_here("a list of templates, or a column that holds a list of the user's texts")


def _tools(value: object) -> object:
    """Return functions in the form of OpenAI's API, or the name of a file; None for an empty list."""
    if value is None or (isinstance(value, str) and value.strip() and not value.lstrip().startswith(("[", "{"))):
        return value
    try:
        return tuple(tool_schemas(value)) or None
    except ValueError as error:
        raise refuse_here(str(error)) from None


_TOOL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "function": {"type": "object"}},
    "anyOf": [{"required": ["name"]}, {"required": ["function"]}],
}


def _calls(value: object) -> object:
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(entry, dict) for entry in value):
        return tuple(value)
    raise refuse_here(f"found {describe(value)}, expected calls: [{{name: …, arguments: {{…}}}}]")


_CALLS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "object"}, "minItems": 1},
        {"type": "null"},
    ]
}


class MessageSpec(Spec):
    """A message of a conversation, whose texts are templates, or a column with several."""

    role: ChatRole | None = Field(None, description="Who speaks.")
    content: str | None = Field(
        None, description="Template of the text. Only a message with tool_calls may have none (null)."
    )
    tool_calls: Annotated[Any, BeforeValidator(_calls), WithJsonSchema(_CALLS_SCHEMA)] = Field(
        None,
        description="The functions that an assistant's message calls: [{name: …, arguments: {…}}], or the form of "
        "OpenAI's API; texts in it are templates. Or a template that gives such a list.",
    )
    tool_call_id: str | None = Field(
        None, description="Template of the id of the call that a tool's message answers; by default the next call's."
    )
    name: str | None = Field(None, description="Template of the name of who speaks, or of the tool's function.")
    column: str | None = Field(
        None,
        min_length=1,
        description="In place of role and content: a column with messages in the form of OpenAI's API, or their JSON "
        "text. Dots reach nested columns.",
    )

    @model_validator(mode="after")
    def _is_whole(self) -> MessageSpec:
        if self.column is not None:
            if other := next((name for name in self.model_fields_set if name != "column"), None):
                raise refuse_here("a column has whole messages; remove this", other)
            return self
        if self.role is None:
            raise refuse_here("found no role, expected one, or a column")
        if self.tool_calls is not None and self.role != "assistant":
            raise refuse_here("only the assistant calls tools", "tool_calls")
        if self.content is None and self.tool_calls is None:
            raise refuse_here("found no content, expected a template: only a message with tool_calls may have none")
        if self.tool_call_id is not None and self.role != "tool":
            raise refuse_here("only a tool's message has one", "tool_call_id")
        return self

    @model_serializer(mode="wrap")
    def _said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


def _messages(value: object) -> object:
    if isinstance(value, str) and value.strip():
        return ({"column": value},)
    if value is None or (isinstance(value, list | tuple) and value):
        return value if value is None else tuple(value)
    raise refuse_here(f"found {describe(value)}, expected a column, or a list of messages")


class PromptSpec(Spec):
    """Settings of how a sample becomes a prompt."""

    template: str | None = Field(None, description="Jinja2 template of the question; by default the scorer's.")
    system: str = Field("", description="A template of the text before everything else, or of a chat's system message.")
    system_delimiter: str | None = Field(
        None, description="The text after the system text if there is no chat; by default prompt.fewshot.delimiter."
    )
    delimiter: str = Field(
        " ",
        description="The text between a prompt and an option, and before an example's answer. The default is left "
        "out before an option or answer that begins with white space, except in suites with a preset.",
    )
    prefix: str = Field(
        "",
        description="Template of the text with which the model's reply begins, such as 'Answer:'; in a chat the "
        "beginning of the assistant's turn.",
    )
    chat: bool = Field(False, description="Send the prompt through the model's chat template.")
    fewshot: FewshotSpec | None = Field(None, description="Examples before the question.")
    tools: Annotated[
        str | tuple[dict[str, Any], ...] | None,
        BeforeValidator(_tools),
        WithJsonSchema(
            {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": _TOOL_SCHEMA}, {"type": "null"}]}
        ),
    ] = Field(
        None,
        description="The functions that the model may call, in the form of OpenAI's API (name, description, "
        "parameters), or a JSON or YAML file that lists them, relative to the suite file. Needs chat: true.",
    )
    tools_column: str | None = Field(
        None,
        min_length=1,
        description="A column with functions of the row's own, in place of prompt.tools; a row in which it is empty "
        "has prompt.tools. Dots reach nested columns.",
    )
    messages: Annotated[tuple[MessageSpec, ...] | None, BeforeValidator(_messages)] = Field(
        None,
        description="A conversation, in place of template and fewshot: a column with messages in the form of OpenAI's "
        "API, or their JSON text; or a list of messages whose texts are templates. The model replies to the last "
        "message, or goes on with it if it is the assistant's.",
    )

    turns: Annotated[tuple[TurnSpec, ...] | None, BeforeValidator(_turns)] = Field(
        None,
        description="Turns of the user, in place of template: a list of templates, or a column that holds a list of "
        "texts. Each turn after the first follows the model's own reply to the one before, and the last reply is "
        "scored.",
    )
    score_turns: Literal["last", "all"] = Field(
        "last",
        description="all: the reply to each turn is scored, and a sample is right if all are; by default only the "
        "last reply is, and those to turns with a target or score of their own.",
    )

    @property
    def is_chat(self) -> bool:
        """Tell whether the prompt is a chat."""
        return self.chat or self.messages is not None or self.turns is not None

    def message_templates(self) -> Iterator[tuple[Keys, str]]:
        """Yield the templates of a conversation, each with the keys at which it stands."""
        for place, message in enumerate(self.messages or ()):
            said = message.model_dump(exclude={"role", "column"})
            yield from _templates(said, ("prompt", "messages", place))
        for place, turn in enumerate(self.turn_specs):
            yield ("prompt", "turns", place, "user"), turn.user

    @property
    def turn_specs(self) -> tuple[TurnSpec, ...]:
        """Return the turns that the suite writes itself."""
        return () if self.column_of_turns is not None else self.turns or ()

    @property
    def column_of_turns(self) -> str | None:
        """Return the column that holds the turns; None if the suite writes them itself, or has none."""
        return None if self.turns is None else self.turns[0].column

    @property
    def has_tools(self) -> bool:
        """Tell whether models are given tools."""
        return self.tools is not None or self.tools_column is not None

    @model_validator(mode="after")
    def _tools_are_of_chats(self) -> PromptSpec:
        if self.has_tools and not self.is_chat:
            key = "tools" if self.tools is not None else "tools_column"
            raise refuse_here("only a chat has tools; add prompt.chat: true", key)
        return self

    @model_validator(mode="after")
    def _messages_are_the_prompt(self) -> PromptSpec:
        if self.messages is None:
            return self
        if self.template is not None:
            raise refuse_here("messages have the question; remove this template", "template")
        if self.fewshot is not None and self.fewshot.count:
            raise refuse_here("messages show their own examples; remove them here", "fewshot")
        if "chat" in self.model_fields_set and not self.chat:
            raise refuse_here("messages are a chat; remove this", "chat")
        return self

    @model_validator(mode="after")
    def _turns_are_the_prompt(self) -> PromptSpec:
        if self.turns is None:
            if self.score_turns != "last":
                raise refuse_here("there are no prompt.turns; remove it", "score_turns")
            return self
        for place, turn in enumerate(self.turns):
            if turn.column is not None and len(self.turns) > 1:
                raise refuse_here("a column holds all turns; remove the others, or write them all here", "turns", place)
        if self.turn_specs and self.turn_specs[-1].own_score is not None:
            message = "the suite's own score judges the last turn; move this scorer there, and write true here"
            raise refuse_here(message, "turns", len(self.turn_specs) - 1, "score")
        if "chat" in self.model_fields_set and not self.chat:
            raise refuse_here("turns are a chat; remove this", "chat")
        for key, is_given in (
            ("messages", self.messages is not None),
            ("template", self.template is not None),
            ("prefix", bool(self.prefix)),
            ("fewshot", self.fewshot is not None),
            ("tools", self.tools is not None),
            ("tools_column", self.tools_column is not None),
        ):
            if is_given:
                raise refuse_here(f"prompt.turns are the whole prompt but for the system text; remove {key}", key)
        return self

    @model_serializer(mode="wrap")
    def _without_unsaid(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the values without later keys that say nothing: older fingerprints know no such keys."""
        values: dict[str, Any] = handler(self)
        for key in ("tools", "tools_column", "messages", "turns"):
            if values.get(key) is None:
                values.pop(key, None)
        if values.get("score_turns") == "last":
            del values["score_turns"]
        return values


def _templates(value: object, keys: Keys) -> Iterator[tuple[Keys, str]]:
    """Yield the texts in a value, each with its keys."""
    if isinstance(value, str):
        yield keys, value
    inner: Mapping[Any, object] = {}
    if isinstance(value, list | tuple):
        inner = dict(enumerate(value))
    elif isinstance(value, dict):
        inner = value
    for key, own in inner.items():
        yield from _templates(own, (*keys, key))
