"""JSON Schemas: whether one can be used, and whether a value is of it. By jsonschema, and without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pytest_llmeval.scoring.python_regex import PythonRegex
from pytest_llmeval.scoring.targets import quote
from pytest_llmeval.suites.score_settings import ScoreSettings, SeveralSettings
from pytest_llmeval.suites.score_settings.replies import JsonSettings
from pytest_llmeval.suites.wording import Keys, dotted
from pytest_llmeval.types import JSON

__all__ = ["schema_problem", "schema_violation", "with_schemas_read"]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_SHOWN = 300


def schema_problem(schema: Any) -> tuple[str, Keys] | None:
    """Why this schema cannot be used, and where in it; None where it can."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        for keys, reference in _references(schema, ()):
            if not (isinstance(reference, str) and reference.startswith("#")):
                expected = "a reference into the schema itself, such as '#/$defs/name'; nothing is fetched"
                return f"found {quote(reference)}, expected {expected}", keys
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return _line(error.message), tuple(error.absolute_path)
    except RecursionError:
        return "is nested too deeply", ()
    for keys, pattern in _patterns(schema, ()):
        try:
            PythonRegex.of(pattern)
        except ValueError as error:
            return str(error), keys
    return None


def schema_violation(schema: Any, value: JSON) -> str | None:
    """The first thing in which a value is not of a schema that can be used; None where it is of it."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError, best_match
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    def pattern(validator: Any, source: str, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and PythonRegex.of(source).find(instance) is None:
            yield ValidationError(f"{quote(instance)} does not match {source!r}")

    def unique(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
        if wanted is True and validator.is_type(instance, "array") and not _are_unique(instance):
            yield ValidationError("the list has an entry twice")

    registry: Registry[Any] = Registry()  # the default one fetches what it does not know
    bounded = {"pattern": pattern, "uniqueItems": unique}  # theirs know no limit, or take the square of the time
    kind: Any = extend(validator_for(schema, default=Draft202012Validator), bounded)  # type: ignore[no-untyped-call]
    try:
        error = best_match(kind(schema, registry=registry).iter_errors(value))
    except TimeoutError:
        return "a pattern of the schema took longer than 1 s"
    except (Unresolvable, ArithmeticError, RecursionError) as problem:
        return f"cannot be compared with the schema: {type(problem).__name__}: {_line(str(problem))}"
    if error is None:
        return None
    where = dotted(tuple(error.absolute_path))
    return f"{where}: {_line(error.message)}" if where else _line(error.message)


def with_schemas_read(settings: ScoreSettings, read: Callable[[str, Keys], Any]) -> ScoreSettings:
    """The settings with each schema that is the name of a file replaced by what ``read`` makes of it.

    ``read`` gets the path as it is written and the keys at which it stands.
    """
    if isinstance(settings, JsonSettings):
        return _read_one(settings, ("score",), read)
    if isinstance(settings, SeveralSettings):
        parts = {}
        for name, part in settings.scorers.items():
            score = part.score
            if isinstance(score, JsonSettings):
                score = _read_one(score, ("score", "several", "scorers", name, "score"), read)
            parts[name] = part.model_copy(update={"score": score})
        return settings.model_copy(update={"scorers": parts})
    return settings


def _read_one(settings: JsonSettings, keys: Keys, read: Callable[[str, Keys], Any]) -> JsonSettings:
    if not isinstance(settings.schema_, str):
        return settings
    return settings.model_copy(update={"schema_": read(settings.schema_, (*keys, "json", "schema"))})


def _are_unique(items: list[Any]) -> bool:
    """Whether no two entries are the same JSON: 1 is 1.0 and not true."""
    seen = {json.dumps(_canonical(item), sort_keys=True) for item in items}
    return len(seen) == len(items)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _references(schema: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """Every reference of a schema, with where it stands. What stands in an example is taken for one too."""
    for key, value in _items(schema):
        if key in _REFERENCES and not isinstance(value, dict):
            yield (*keys, key), value
        yield from _references(value, (*keys, key))


def _patterns(schema: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    for key, value in _items(schema):
        if key == "pattern" and isinstance(value, str):
            yield (*keys, key), value
        yield from _patterns(value, (*keys, key))


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"
