"""The reply is valid JSON: it matches the schema, if one is given, and equals the target, if there is one.

A reply is untrusted text. What could end the session (brackets nested a million deep, a number of a million
digits) is taken for what it is, unreadable JSON, and costs only its own sample.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from pytest_llmeval.data.spec import refuse_here
from pytest_llmeval.scoring.base import FileReader, PreparedSample, ScorerSettings, SettingsError, SettingsScorer
from pytest_llmeval.scoring.references import quote, several_or_one
from pytest_llmeval.scoring.regular_expressions import PythonRegex
from pytest_llmeval.scoring.responses import reply, right_or_wrong
from pytest_llmeval.text.wording import Keys, describe, dotted
from pytest_llmeval.types import JSON, Response, Sample, Score

__all__ = ["JsonScorer", "JsonSettings", "NotJSONError", "parse_json", "same_json"]


def _schema(value: object) -> object:
    """Accept any form of a schema. pydantic's own words on a union name each of its parts."""
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
        """Return the settings with the schema that the file of its name holds."""
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
        problem = None if schema is None else _schema_problem(schema)
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
        return right_or_wrong(problem is None, answer, vote=_canonical_json(value), details=details)

    def _problem(self, value: JSON, references: Sequence[str]) -> str | None:
        schema: Any = self.settings.schema_
        violation = None if schema is None else _schema_violation(schema, value)
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


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_SHOWN = 300


class SchemaError(Exception):
    """A schema with which a value cannot be compared: that is no violation of the value's."""


def _schema_problem(schema: Any) -> tuple[str, Keys] | None:
    """Return why this schema cannot be used, and where in it; None where it can."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError as NoSchemaError
    from jsonschema.validators import validator_for

    try:
        for keys, reference, root in _references(schema, (), schema):
            if not (isinstance(reference, str) and reference.startswith("#")):
                expected = "a reference into the schema itself, such as '#/$defs/name'; nothing is fetched"
                return f"found {quote(reference)}, expected {expected}", keys
            if not _leads_to_a_schema(reference, root):
                return f"found {quote(reference)}, and there is no schema at that place", keys
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except NoSchemaError as error:
        return _line(error.message), tuple(error.absolute_path)
    except RecursionError:
        return "is nested too deeply", ()
    for keys, pattern in _patterns(schema, ()):
        try:
            PythonRegex.of(pattern)
        except ValueError as error:
            return str(error), keys
    for value in _TRIED:
        try:
            _schema_violation(schema, value)
        except SchemaError as error:
            return str(error), ()
    return None


_TRIED: tuple[JSON, ...] = (None, 0, "", [], {})
"""Values on which a schema that refers to itself without end shows it."""


def _leads_to_a_schema(reference: str, root: Any) -> bool:
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource: Resource[Any] = Resource.from_contents(root, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry()
    try:
        found = registry.with_resource("", resource).resolver().lookup(reference)
    except (Unresolvable, LookupError, ValueError, TypeError, AttributeError):
        return False
    return isinstance(found.contents, dict | bool)


def _schema_violation(schema: Any, value: JSON) -> str | None:
    """Return the first thing in which a value is not of a schema; None where it is of it.

    Raise ``SchemaError`` where the schema says nothing of it: a pattern that takes longer than a second, or all of it
    longer than five, a reference that leads nowhere or to itself without end.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError, best_match
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    @cache
    def made(source: str) -> PythonRegex:
        return PythonRegex.of(source)

    def pattern(validator: Any, source: str, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and made(source).find(instance) is None:
            yield ValidationError(f"{quote(instance)} does not match {source!r}")

    def unique(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if wanted is True and validator.is_type(instance, "array") and not _are_unique(instance):
            yield ValidationError("the list has an entry twice")

    def in_time(keyword: Callable[..., Any]) -> Callable[..., Any]:
        def compared(*arguments: Any) -> Any:
            clock.check()
            return keyword(*arguments)

        return compared

    clock = _Clock()
    registry: Registry[Any] = Registry()  # the default one fetches what it does not know
    bounded = {"pattern": pattern, "uniqueItems": unique}  # theirs know no limit, or take the square of the time
    plain: Any = validator_for(schema, default=Draft202012Validator)
    keywords = {name: in_time(keyword) for name, keyword in {**plain.VALIDATORS, **bounded}.items()}
    kind: Any = extend(plain, keywords)  # type: ignore[no-untyped-call]
    written: dict[str, str] = {}
    try:
        usable = _with_known_names(schema, _names_in(value), written, clock)
        # A list of a hundred thousand wrong entries is as wrong as one of a thousand.
        error = best_match(islice(kind(usable, registry=registry).iter_errors(value), _MAX_ERRORS))
    except TimeoutError:
        raise SchemaError("a pattern of the schema took longer than 1 s") from None
    except RecursionError:
        raise SchemaError("refers to itself without end, or is nested too deeply") from None
    except Unresolvable as problem:
        raise SchemaError(f"a reference of the schema points to nothing: {_line(str(problem))}") from None
    except ArithmeticError as problem:
        return f"cannot be compared with the schema: {type(problem).__name__}: {_line(str(problem))}"
    if error is None:
        return None
    message = error.message
    for known, source in written.items():
        message = message.replace(repr(known), repr(source))
    where = dotted(tuple(error.absolute_path))
    return f"{where}: {_line(message)}" if where else _line(message)


_MAX_S = 5.0
"""Seconds of processor time that one comparison may take: a reply may have a hundred thousand entries to look at."""
_MAX_ERRORS = 1_000
_MAX_NAMES = 2_000
"""Each name is looked for among all."""


class _Clock:
    """A clock of the time that a comparison takes, patterns of names included."""

    def __init__(self) -> None:
        self._end = time.thread_time() + _MAX_S

    def check(self) -> None:
        """Raise ``SchemaError`` once the time is over."""
        if time.thread_time() > self._end:
            raise SchemaError(f"comparing the reply with it took longer than {_MAX_S:g} s")


_SCHEMAS_BY_NAME = ("properties", "$defs", "definitions", "dependentSchemas", "dependencies")
_VALUES = ("const", "enum", "default", "examples")


def _with_known_names(schema: Any, names: Sequence[str], written: dict[str, str], clock: _Clock) -> Any:
    """Return the schema with patterns of names that are as quick as a look-up: each matches those of ``names`` that it
    did.

    jsonschema searches names with ``re``, which knows no time limit, in several of its keywords. ``written`` gets the
    pattern that each new one stands for. Raise ``TimeoutError`` for a pattern that takes too long, ``SchemaError``
    where all of them do.
    """
    if isinstance(schema, list):
        return [_with_known_names(part, names, written, clock) for part in schema]
    if not isinstance(schema, dict):
        return schema
    usable: dict[Any, Any] = {}
    for key, part in schema.items():
        if key == "patternProperties" and isinstance(part, dict):
            usable[key] = {
                _known_names(source, names, written, clock): _with_known_names(sub, names, written, clock)
                for source, sub in part.items()
            }
        elif key in _SCHEMAS_BY_NAME and isinstance(part, dict):
            usable[key] = {name: _with_known_names(sub, names, written, clock) for name, sub in part.items()}
        else:
            usable[key] = part if key in _VALUES else _with_known_names(part, names, written, clock)
    return usable


def _known_names(source: str, names: Sequence[str], written: dict[str, str], clock: _Clock) -> str:
    if len(names) > _MAX_NAMES:
        raise SchemaError(f"patternProperties is compared with up to {_MAX_NAMES:,} names, and the reply has more")
    found = PythonRegex.of(source)
    matching = []
    for name in names:
        clock.check()
        if found.find(name) is not None:
            matching.append(re.escape(name))
    # The comment keeps two patterns apart that match the same names.
    known = f"(?#{len(written)})" + (rf"\A(?:{'|'.join(matching)})\Z" if matching else "(?!)")
    written[known] = source
    return known


def _names_in(value: JSON) -> list[str]:
    found: dict[str, None] = {}
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            found.update(dict.fromkeys(part))
            left += part.values()
        elif isinstance(part, list):
            left += part
    return list(found)


def _are_unique(items: list[Any]) -> bool:
    """Return whether no two entries are the same JSON: 1 is 1.0 and not true."""
    return len({_canonical_json(item) for item in items}) == len(items)


def _canonical_json(value: JSON) -> str:
    """Return one text for what is the same JSON: 1 is 1.0 and not true; the order of a mapping's keys means nothing."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _references(schema: Any, keys: Keys, root: Any) -> Iterator[tuple[Keys, Any, Any]]:
    """Yield every reference of a schema, with where it stands and the schema into which it leads.

    What stands in an example is taken for one too.
    """
    if isinstance(schema, dict) and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
        root = schema
    for key, value in _items(schema):
        if key in _REFERENCES and not isinstance(value, dict):
            yield (*keys, key), value, root
        yield from _references(value, (*keys, key), root)


def _patterns(schema: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    for key, value in _items(schema):
        if key == "pattern" and isinstance(value, str):
            yield (*keys, key), value
        if key == "patternProperties" and isinstance(value, dict):
            yield from (((*keys, key, source), source) for source in value if isinstance(source, str))
        yield from _patterns(value, (*keys, key))


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"
