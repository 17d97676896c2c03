"""Reads a task file as lm-eval 0.4.13 does: YAML 1.1, ``!function`` tags, the files that it includes, and its keys.

Every key is acted on here, has no effect on any number, or is an error. A check that depends on other keys (which
metric goes with which kind of output) is made where they are translated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from pytest_llmeval.data.files import Source, read_text
from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse_here
from pytest_llmeval.data.yaml_reader import MAX_YAML_BYTES, YamlBuilder, parse_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.pydantic_errors import keys_of, sentence
from pytest_llmeval.text.wording import Keys, describe, dotted, quoted
from pytest_llmeval.types import JSON

__all__ = [
    "TASK_KEYS",
    "FunctionReference",
    "GenerationKwargs",
    "MetricSpec",
    "PipelineSpec",
    "StepSpec",
    "TaskFile",
    "TaskSpec",
    "functions",
    "read_task_file",
]


_Text: TypeAlias = str | None
_Rule: TypeAlias = Any
"""A column, a template or a value, see ``translate_texts.py``; or a ``!function``."""
_WithoutEffect: TypeAlias = Any
"""A value that changes no number, in lm-eval either."""


def _refused(why: str, *, unless: object = None) -> AfterValidator:
    def check(value: object) -> object:
        if value is not unless:
            raise refuse_here(why)
        return value

    return AfterValidator(check)


def _stops(value: object) -> object:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) for stop in stops):
        raise expected_here("a text or a list of texts")
    return tuple(stops)


def _temperature(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise expected_here("a number") from None


def _top_k(value: Any) -> int | None:
    """Return ``top_k``, or None for null, 0 and -1: lm-eval's models then keep all tokens."""
    if value is None or (value in (0, -1) and not isinstance(value, bool)):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise expected_here("a whole number of at least 1, or 0 or -1 for all tokens")
    return value


def _penalty(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise expected_here("a number above 0")
    return float(value)


def _one_beam(value: object) -> object:
    if value != 1:
        raise expected_here("1; replies are written token by token")
    return value


class DatasetKwargs(Spec):
    """Arguments of ``datasets.load_dataset``."""

    data_files: Any = None
    data_dir: Any = None
    field: Any = None
    revision: Any = None
    streaming: Any = None
    name: Any = None
    trust_remote_code: _WithoutEffect = None  # lm-eval removes it: datasets 4 runs no code of a data set

    @property
    def given(self) -> dict[str, Any]:
        """Return the arguments that have a value and an effect."""
        return {key: value for key, value in self if value is not None and key != "trust_remote_code"}


class FewshotConfig(Spec):
    """Examples, and what differs for them."""

    sampler: Literal["default", "first_n"] = "default"
    split: _Text = None
    process_docs: Any = None
    fewshot_indices: Annotated[Any, _refused("lm-eval 0.4.13 reads it and does not act on it; remove it")] = None
    samples: Any = None
    doc_to_text: _Rule = None
    doc_to_choice: _Rule = None
    doc_to_target: _Rule = None
    gen_prefix: _Text = None
    fewshot_delimiter: _Text = None
    target_delimiter: _Text = None


class MetricSpec(Spec):
    """A metric. Any other key is an argument of its function."""

    model_config = ConfigDict(extra="allow")

    metric: Any
    aggregation: Any = None
    higher_is_better: _WithoutEffect = None
    weight_by_size: bool = True  # of a group's mean: no task's number depends on it


class StepSpec(Spec):
    """A filter. Any other key is an argument of it."""

    model_config = ConfigDict(extra="allow")

    function: str


class PipelineSpec(Spec):
    """Filters, applied to a reply one after the other."""

    name: str
    filter: Annotated[tuple[StepSpec, ...], FROM_LIST]


class GenerationKwargs(Spec):
    """Settings of how replies are written."""

    until: Annotated[tuple[str, ...] | None, BeforeValidator(_stops)] = None
    do_sample: bool | None = None
    temperature: Annotated[float, BeforeValidator(_temperature)] = 0.0
    top_p: Any = None
    top_k: Annotated[int | None, BeforeValidator(_top_k)] = None
    repetition_penalty: Annotated[float | None, BeforeValidator(_penalty)] = None
    num_beams: Annotated[Any, AfterValidator(_one_beam)] = 1
    max_gen_toks: Any = None
    max_new_tokens: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None


class TaskSpec(Spec):
    """A task. A value of null is that of a missing key."""

    task: str = Field(min_length=1)
    dataset_path: str | None = Field(None, min_length=1)
    dataset_name: _Text = None
    dataset_kwargs: DatasetKwargs | None = None
    training_split: _Text = None
    validation_split: _Text = None
    test_split: _Text = None
    fewshot_split: _Text = None
    process_docs: Any = None
    doc_to_text: _Rule = None
    doc_to_target: _Rule = None
    doc_to_choice: _Rule = None
    description: _Text = None
    target_delimiter: _Text = None
    fewshot_delimiter: _Text = None
    fewshot_config: FewshotConfig | None = None
    num_fewshot: int | None = Field(None, ge=0)
    output_type: Literal["multiple_choice", "generate_until", "loglikelihood", "loglikelihood_rolling"] = (
        "generate_until"
    )
    gen_prefix: _Text = None
    generation_kwargs: GenerationKwargs | None = None
    repeats: int = Field(1, ge=1)
    filter_list: Annotated[tuple[PipelineSpec, ...], FROM_LIST] | None = Field(None, min_length=1)
    metric_list: Annotated[tuple[MetricSpec, ...], FROM_LIST] | None = Field(None, min_length=1)
    process_results: Any = None
    include: Any = None
    # For tables, for selecting tasks, and of a check that lm-eval no longer has
    task_alias: _WithoutEffect = None
    group_alias: _WithoutEffect = None
    metadata: _WithoutEffect = None
    tag: _WithoutEffect = None
    should_decontaminate: _WithoutEffect = None
    doc_to_decontamination_query: _WithoutEffect = None
    # What cannot be done here
    class_: Annotated[Any, _refused("a task that is a Python class cannot be read as data")] = Field(
        None, alias="class"
    )
    use_prompt: Annotated[
        Any, _refused("prompts of promptsource are not available; write the template as doc_to_text")
    ] = None
    doc_to_image: Annotated[Any, _refused("images cannot be shown to a model here")] = None
    doc_to_audio: Annotated[Any, _refused("sound cannot be played to a model here")] = None
    custom_dataset: Annotated[
        Any, _refused("a data set that Python makes cannot be read as data; name one with dataset_path")
    ] = None
    unsafe_code: Annotated[
        Any, _refused("its code is not run; the presets humaneval and mbpp run code (--llm-allow-code)", unless=False)
    ] = False

    @property
    def fewshot(self) -> FewshotConfig:
        """Return ``fewshot_config``, or its defaults."""
        return self.fewshot_config or FewshotConfig()

    @property
    def load_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``dataset_kwargs`` that have an effect."""
        return {} if self.dataset_kwargs is None else self.dataset_kwargs.given


TASK_KEYS = frozenset(field.alias or name for name, field in TaskSpec.model_fields.items())
"""All keys that a task file can have in lm-eval 0.4.13."""


_FUNCTION_TAG = "!function"


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """A tag ``!function module.name`` in the file ``source``; nothing is imported."""

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
