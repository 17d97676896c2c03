"""Reads a task file as lm-eval does: YAML 1.1, ``!function`` tags, and the files that it includes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml
from pydantic import ValidationError

from pytest_llmeval.data.files import Source, read_text
from pytest_llmeval.data.yaml_reader import MAX_YAML_BYTES, YamlBuilder, parse_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.explain import keys_of, sentence
from pytest_llmeval.suites.lm_eval.task_spec import TaskSpec
from pytest_llmeval.text.wording import Keys, describe, dotted, quoted
from pytest_llmeval.types import JSON

__all__ = ["FunctionReference", "TaskFile", "functions", "read_task_file"]

_FUNCTION_TAG = "!function"


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """``!function module.name``, as it stands in the file ``source``; nothing is imported."""

    name: str
    source: Source

    def __str__(self) -> str:
        return f"{_FUNCTION_TAG} {self.name}"

    @property
    def described(self) -> str:
        """Return what an error says that it found."""
        return quoted(str(self))


@dataclass(frozen=True)
class TaskFile:
    """A task or group file with what it includes. ``places`` say for each key in which file and line it stands."""

    source: Source
    value: dict[str, Any]
    places: Mapping[Keys, tuple[Source, int]]

    @cached_property
    def spec(self) -> TaskSpec:
        """Return what the file says, its keys and their types checked. Raises ``SuiteError``."""
        try:
            return TaskSpec.model_validate(self.value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self.error(sentence(first, TaskSpec), keys_of(first)) from None

    def required(self, key: str) -> Any:
        """Return the value of a key of ``spec``. Raises ``SuiteError`` where there is none."""
        value = getattr(self.spec, key)
        if value is None:
            raise self.error(f"the key {key!r} is missing", ("task",))
        return value

    def place(self, keys: Keys) -> tuple[Source, int | None]:
        """Return the file and line of ``keys``, or of the innermost part of it that has a line."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.places:
                return self.places[keys[:length]]
        return self.source, None

    def error(self, message: str, keys: Keys = ()) -> SuiteError:
        """Return a ``SuiteError`` at ``keys``."""
        source, line = self.place(keys)
        return source.error(message, line)

    def error_at(self, keys: Keys, problem: str) -> SuiteError:
        """Return a ``SuiteError`` at ``keys`` that names them."""
        return self.error(f"{dotted(keys)}: {problem}", keys)

    def wrong(self, keys: Keys, found: object, expected: str) -> SuiteError:
        """Return a ``SuiteError`` for a value of another kind than ``expected``."""
        return self.error_at(keys, f"found {describe(found)}, expected {expected}")


def functions(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, FunctionReference]]:
    """Yield every ``!function`` in a task file, with its keys."""
    if isinstance(value, FunctionReference):
        yield keys, value
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from functions(part, (*keys, key))


def read_task_file(source: Source, _chain: tuple[str, ...] = ()) -> TaskFile:
    """Return the file, over the files that it includes: of a key that stands in several, the last wins, its own first
    of all.

    Raises ``SuiteError`` for what cannot be read, and for files that include each other.
    """
    text = read_text(source, max_bytes=MAX_YAML_BYTES, too_large="check that it is a task file")
    document = parse_yaml(text, source, _TaskYaml)
    own = document.value
    if not isinstance(own, dict):
        raise source.error(f"found {describe(own)}, expected a mapping with the keys of a task")
    value: dict[str, Any] = {}
    places: dict[Keys, tuple[Source, int]] = {(): (source, document.lines.get((), 1))}
    includes = own.pop("include", None)
    real = os.path.realpath(source.path)
    for included in includes if isinstance(includes, list) else [] if includes is None else [includes]:
        if not isinstance(included, str) or not included:
            line = document.line(("include",))
            raise source.error(f"include: found {describe(included)}, expected the name of a file", line)
        inner = source.beside(included)
        if os.path.realpath(inner.path) in (*_chain, real):
            raise source.error(f"include: {quoted(included)} includes this file again", document.line(("include",)))
        try:
            base = read_task_file(inner, (*_chain, real))
        except SuiteError as error:
            if error.line is None and error.path == inner.shown:  # it could not be opened
                raise source.error(f"include: {error}", document.line(("include",))) from None
            raise
        _merge(value, places, {key: part for key, part in base.value.items() if key != "task_list"}, base.places)
    _merge(value, places, own, {keys: (source, line) for keys, line in document.lines.items()})
    return TaskFile(source, value, places)


def _merge(
    value: dict[str, Any],
    places: dict[Keys, tuple[Source, int]],
    over: Mapping[str, Any],
    over_places: Mapping[Keys, tuple[Source, int]],
) -> None:
    for keys in [keys for keys in places if keys and keys[0] in over]:
        del places[keys]
    value.update(over)
    places.update({keys: place for keys, place in over_places.items() if keys and keys[0] in over})


@dataclass(slots=True)
class _TaskYaml(YamlBuilder):
    """YAML 1.1, in which ``yes`` is a bool and of two equal keys the last wins, since lm-eval's loader reads that."""

    last_wins = True
    resolver: Any = field(default_factory=yaml.resolver.Resolver)

    def scalar(self, event: Any, line: int) -> JSON:
        if event.tag == _FUNCTION_TAG:
            return FunctionReference(event.value, self.source)  # type: ignore[return-value]
        return YamlBuilder.scalar(self, event, line)

    def resolved(self, text: str, line: int) -> JSON:
        tag = self.resolver.resolve(yaml.ScalarNode, text, (True, False))
        try:
            made = yaml.constructor.SafeConstructor().construct_object(yaml.ScalarNode(tag, text))
        except (ValueError, yaml.YAMLError):
            raise self.source.error(f"found {quoted(text)}, which YAML cannot read; put it in quotes", line) from None
        return made if isinstance(made, bool | int | float | str | None) else text
