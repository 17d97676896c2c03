"""The suite format, as pydantic models, and the JSON schema that editors read.

The description of a key says what it means to a user.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, models_json_schema

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, one_key_schema, refuse, refuse_here, whole
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ONE_SCORER, SCORERS, OneScoreSettings, ScoreSettings
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.scoring.epochs import MAX_EPOCHS, EpochsSpec
from pytest_llmeval.scoring.filters import Filters, filters_json_schema
from pytest_llmeval.suites.format.gates_spec import Gates, PrimaryMetricSpec
from pytest_llmeval.suites.format.variants import VARIANT_PATTERN, VariantError, variants_of
from pytest_llmeval.suites.presets import all_presets
from pytest_llmeval.templates.templates import is_template
from pytest_llmeval.text.messages import ChatRole
from pytest_llmeval.text.tool_schemas import tool_schemas
from pytest_llmeval.text.wording import Keys, describe, quoted
from pytest_llmeval.types import JSON

__all__ = [
    "DatasetSpec",
    "FewshotSpec",
    "FieldRule",
    "JoinSpec",
    "MessageSpec",
    "PromptSpec",
    "RowsSpec",
    "SuiteSpec",
    "TurnSpec",
    "json_schema",
]


DataFormat: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "yaml", "parquet", "text"]


def _field_rule(value: object) -> object:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str | bool | int | float) for item in value):
        return tuple(value)
    raise expected_here("a column, a template, a number, a bool or a list of those")


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
"""The source of a field's value: a column, a Jinja2 template, a literal number or bool, or a list."""


class JoinSpec(Spec):
    """A second file, whose columns are added to the rows of the data set."""

    path: str = Field(min_length=1, description="The file, relative to the suite file, in any format of dataset.path.")
    on: str = Field(
        min_length=1, description="The column that both files have; its values are unique in the second file."
    )
    format: DataFormat | None = Field(None, description="The file's format, if its suffix does not give it.")
    key: str | None = Field(
        None, description="Where in a JSON or YAML file the list of rows is. A mapping there goes from ids to rows."
    )
    separator: str | None = Field(None, min_length=1, max_length=1, description="See dataset.separator.")


class RowsSpec(Spec):
    """The source of rows: files beside the suite, or a data set of the Hugging Face hub."""

    path: str | None = Field(
        None,
        min_length=1,
        description="The data file, relative to the suite file; also compressed (.gz, .zst), a pattern such as "
        "part-*.jsonl, or a folder with one JSON object in each file.",
    )
    format: DataFormat | None = Field(None, description="The file's format, if its suffix does not give it.")
    key: str | None = Field(
        None,
        description="Where in a JSON or YAML file the list of rows is. Dots reach inner keys; * goes through a list "
        "and adds each entry's other columns to its rows: data.*.paragraphs.*.qas. For a mapping from ids to rows, * "
        "takes the rows and makes their keys the column id.",
    )
    columns: Annotated[tuple[str, ...], FROM_LIST] | None = Field(
        None, description="Names of the columns of a CSV or TSV file that has no header."
    )
    separator: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="The character between the values of a CSV or TSV file. By default a tab in TSV; in CSV a comma, "
        "or the semicolon, tab or | of a first line without commas.",
    )
    join: JoinSpec | None = Field(
        None, description="A second file, whose columns are added to the rows: {path: answers.json, on: id}."
    )
    hub: str | None = Field(
        None, min_length=1, description="A data set of the Hugging Face hub, as org/name; instead of path."
    )
    config: str | None = Field(None, min_length=1, description="The hub data set's config (subset), if it has several.")
    split: str | None = Field(None, min_length=1, description="The hub data set's split, if it has several.")
    revision: str | None = Field(None, min_length=1, description="Branch, tag or commit of the hub data set.")
    streaming: bool = Field(False, description="Read no more rows of the hub data set than are needed.")


class DatasetSpec(RowsSpec):
    """The source of the rows, and how their columns become samples."""

    fields: dict[str, FieldRule] = Field(
        {},
        description="The sample's id, question, choices, target, choice_types, category, cluster and response (which "
        "is scored if no model is given), each from a column (dots reach nested ones) or a Jinja2 template. A list "
        "means columns if the rows have columns of these names, else texts. Any other name is a variable for the "
        "prompt's template.",
    )
    where: str | None = Field(None, description="A Jinja2 expression; rows for which it is false are left out.")
    limit: int | None = Field(None, ge=1, description="Use only this many rows, the first after where and the shuffle.")
    shuffle_seed: int | None = Field(None, description="Shuffle the rows with this seed.")
    columns_first: bool = Field(
        False,
        description="As in lm-eval: in templates, a column takes precedence over a field of the same name, and a "
        "column does not become a field only because of its name.",
    )
    python_values: bool = Field(
        False,
        description="Templates write null, lists and mappings as Python and lm-eval do; by default these are errors.",
    )
    first_id: int | None = Field(
        None,
        ge=0,
        description="Use the rows' numbers, counted from this, as ids; by default ids come from the column id, or are "
        "numbers from 1.",
    )


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
        "scored. Needs chat: true.",
    )
    score_turns: Literal["last", "all"] = Field(
        "last",
        description="all: the reply to each turn is scored, and a sample is right if all are; by default only the "
        "last reply is, and those to turns with a target or score of their own.",
    )

    @property
    def is_chat(self) -> bool:
        """Tell whether the prompt is a chat."""
        return self.chat or self.messages is not None

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
        if not self.chat:
            raise refuse_here("only a chat has turns; add prompt.chat: true", "turns")
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

_HAS_SOURCE = {
    "type": "object",
    "anyOf": [{"required": [name], "properties": {name: _PRESENT}} for name in _SOURCES],
}


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
