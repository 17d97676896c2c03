"""The reply is valid JSON: of a schema, where one is given, and with the value of the target, where there is one.

A reply is untrusted text. What could end the session (brackets nested a million deep, a number of a million
digits) is taken for what it is, unreadable JSON, and costs only its own sample.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from pytest_llmeval.data.spec import refuse_here
from pytest_llmeval.scorers.reading.json_schemas import SchemaError, canonical_json, schema_problem, schema_violation
from pytest_llmeval.scoring.base import FileReader, PreparedSample, ScorerSettings, SettingsError, SettingsScorer
from pytest_llmeval.scoring.references import quote, several_or_one
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.text.wording import Keys, describe
from pytest_llmeval.types import JSON, Response, Sample, Score

__all__ = ["JsonScorer", "JsonSettings", "NotJSONError", "parse_json", "same_json"]


def _schema(value: object) -> object:
    """Any form of a schema. pydantic's own words on a union name each of its parts."""
    if value is None or isinstance(value, dict | bool | str):
        return value
    raise refuse_here(f"found {describe(value)}, expected a JSON Schema, or the name of a file that holds one")


class JsonSettings(ScorerSettings):
    """The reply is valid JSON; it matches the schema, if one is given, and equals the target, if there is one."""

    kind: Literal["json"] = "json"
    schema_: Annotated[dict[str, Any] | bool | str | None, BeforeValidator(_schema)] = Field(
        None,
        alias="schema",
        description="A JSON Schema, here or in a file of JSON or YAML, whose path is relative to the suite file.",
    )
    fenced: bool = Field(
        False, description="Read only the first block fenced by ```, if the reply has one; else read all of it."
    )

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """With the schema that the file of its name holds."""
        if not isinstance(self.schema_, str):
            return self
        return self.model_copy(update={"schema_": files.value(self.schema_, (*keys, "json", "schema"))})

    def make(self) -> JsonScorer:
        return JsonScorer.of(self)


_MAX_CHARACTERS = 1_000_000


_MAX_DEPTH = 100


_MAX_DIGITS = 1_000


_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


_FENCE = "```"


class NotJSONError(ValueError):
    """A text that is not JSON, or none that anybody reads."""


def parse_json(text: str) -> JSON:
    """Return the value of a JSON text. Raise ``NotJSONError``, which says what is wrong.

    NaN and Infinity are no JSON. Nested deeper than 100 levels, longer than a million characters, or with a number of
    more than 1,000 digits or beyond what a float holds, a text counts as none.
    """
    if len(text) > _MAX_CHARACTERS:
        raise NotJSONError(f"longer than {_MAX_CHARACTERS:,} characters")
    depth = 0
    for found in _STRUCTURE.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _MAX_DEPTH:
            raise NotJSONError(f"nested deeper than {_MAX_DEPTH} levels")
    try:
        value: JSON = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise NotJSONError(f"{error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise NotJSONError("nested too deeply") from None
    return value


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise NotJSONError(f"a number of more than {_MAX_DIGITS:,} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if len(text) > _MAX_DIGITS or not math.isfinite(value):
        raise NotJSONError("a number that is too large")
    return value


def _constant(text: str) -> float:
    raise NotJSONError(f"{text} is not JSON")


def same_json(first: JSON, second: JSON) -> bool:
    """Return whether two values are the same JSON: 1 is 1.0 and not true; the order of keys means nothing."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_json(value, second[key]) for key, value in first.items())
    return first == second


class JsonScorer(SettingsScorer[JsonSettings]):
    """A scorer that is right if the reply is JSON as the suite wants it. ``of`` makes it, and checks the schema."""

    @classmethod
    def of(cls, settings: JsonSettings) -> JsonScorer:
        """Raise ``SettingsError`` for a schema that is none, or that refers to something outside of it."""
        schema = settings.schema_
        if isinstance(schema, str):
            raise SettingsError(f"found the file {quote(schema)}, expected its content", ("json", "schema"))
        problem = None if schema is None else schema_problem(schema)
        if problem is not None:
            raise SettingsError(problem[0], ("json", "schema", *problem[1]))
        return cls(settings)

    def present(self, sample: Sample) -> PreparedSample:
        """Read a target: a text of JSON, a number or a bool, or a list of these, any of which is right. Without one,
        none is asked.

        Raise ``ValueError`` for a text that is not JSON.
        """
        texts = _targets(sample)
        return PreparedSample(sample=sample, references=tuple(texts), target=several_or_one(texts) if texts else "")

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the first target, as given. Raise ``ValueError`` where there is none."""
        if not presented.references:
            raise ValueError("the sample has no target to show; give it one, or set prompt.fewshot.answer")
        return presented.references[0]

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge accuracy; a reply that is not JSON is no answer. ``problem`` in the details says what is wrong.

        The sample is unscored where the schema cannot be compared with it: that is the suite's fault.
        """
        text = reply(responses)
        try:
            value = parse_json(_unfenced(text) if self.settings.fenced else text)
        except NotJSONError as error:
            return right_or_wrong(False, None, details={"problem": f"not JSON: {error}"})
        try:
            problem = self._problem(value, presented.references)
        except SchemaError as error:
            return Score(status="unscored", reason=f"score.json.schema: {error}")
        details = None if problem is None else {"problem": problem}
        answer = json.dumps(value, ensure_ascii=False)
        return right_or_wrong(problem is None, answer, vote=canonical_json(value), details=details)

    def _problem(self, value: JSON, references: Sequence[str]) -> str | None:
        schema: Any = self.settings.schema_
        violation = None if schema is None else schema_violation(schema, value)
        if violation is not None:
            return violation
        if references and not any(same_json(value, parse_json(reference)) for reference in references):
            return "not the value of the target"
        return None


def _targets(sample: Sample) -> list[str]:
    if sample.target is None:
        return []
    targets = sample.target if isinstance(sample.target, list) else [sample.target]
    if not targets:
        raise ValueError("the target is an empty list; expected JSON, or no target at all")
    return [_target(target) for target in targets]


def _target(target: JSON) -> str:
    text = target if isinstance(target, str) else json.dumps(target)
    try:
        parse_json(text)
    except NotJSONError as error:
        raise ValueError(f"target {quote(text)} is not JSON: {error}") from None
    return text


def _unfenced(text: str) -> str:
    """Return what stands in the first fenced block; all of the text where there is none."""
    start = text.find(_FENCE)
    if start < 0:
        return text
    begin = text.find("\n", start)
    end = text.find(_FENCE, begin) if begin >= 0 else -1
    return text[begin:end] if end >= 0 else text[begin:] if begin >= 0 else text
