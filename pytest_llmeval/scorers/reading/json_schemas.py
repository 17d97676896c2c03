"""JSON Schemas: whether one can be used, and whether a value is of it. By jsonschema, and without a network."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.regular_expressions import PythonRegex
from pytest_llmeval.text.wording import Keys, dotted
from pytest_llmeval.types import JSON

__all__ = ["SchemaError", "canonical_json", "schema_problem", "schema_violation"]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


_MAX_SHOWN = 300


class SchemaError(Exception):
    """A schema with which a value cannot be compared: that is no violation of the value's."""


def schema_problem(schema: Any) -> tuple[str, Keys] | None:
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
            schema_violation(schema, value)
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


def schema_violation(schema: Any, value: JSON) -> str | None:
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
    return len({canonical_json(item) for item in items}) == len(items)


def canonical_json(value: JSON) -> str:
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
