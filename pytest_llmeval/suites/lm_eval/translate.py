"""A task of lm-eval as a suite: the same rows, prompts, requests and numbers in the suite format.

Each key of the suite remembers the key of the task that it was made from, so that errors name the task's own lines.

One thing is not lm-eval's: where examples come from the split that is evaluated, and that is not ``test_split``,
lm-eval can show a question with its answer as an example of itself. Here another example takes that place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_llmeval.data.yaml_reader import Document
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.overrides import Override, OverrideError, apply_overrides
from pytest_llmeval.suites.format.rows_spec import RowsSpec
from pytest_llmeval.suites.lm_eval.task_file import GenerationKwargs, TaskFile, TaskSpec, functions
from pytest_llmeval.suites.lm_eval.translate_scoring import MetricPair, Scoring, looks_at_choices, scoring_of
from pytest_llmeval.suites.lm_eval.translate_texts import choices_rule, prompt_template, target_rule, text_template
from pytest_llmeval.suites.loading.suite import Origin
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted

__all__ = [
    "NativeSuite",
    "TaskOrigin",
    "TaskRows",
    "beside",
    "evaluated_rows",
    "example_rows",
    "own_rows",
    "translate",
    "with_own_rows",
]


_DATASET: Keys = ("dataset",)
_FEWSHOT: Keys = ("prompt", "fewshot")
_OF_HUB = ("hub", "config", "split", "revision", "streaming")


@dataclass(slots=True)
class NativeSuite:
    """A mapping in the suite format (``value``), with the task file's key for each of its keys (``sources``)."""

    task: TaskFile
    value: dict[str, Any] = field(default_factory=dict)
    sources: dict[Keys, Keys] = field(default_factory=dict)

    def put(self, keys: Keys, value: Any, source: Keys) -> None:
        """Set ``value`` at ``keys``, made of what stands at ``source`` in the task file."""
        inside: Any = self.value
        for key in keys[:-1]:
            inside = inside.setdefault(key, {})
        inside[keys[-1]] = value
        self.sources[keys] = source

    def document(self) -> Document:
        """Return the suite as if it had been read from the task file: errors name the lines there."""
        lines: dict[Keys, int] = {}
        for keys, source in self.sources.items():
            file, line = self.task.place(source)
            if file == self.task.source and line is not None:
                lines[keys] = line
        return Document(self.task.source, self.value, {(): 1, **lines})


@dataclass(frozen=True, slots=True)
class TaskOrigin(Origin):
    """Errors at the task file's own keys, in the file that has them."""

    native: NativeSuite | None = None

    def error(self, message: str, keys: Keys = ()) -> SuiteError:
        source = _source_of(keys, self.native.sources) if self.native is not None else None
        is_changed = any(override.keys == keys[: len(override.keys)] for override in self.overrides)
        if self.native is None or source is None or is_changed:
            # Not zero-argument super(): slots make a second class of this one.
            return Origin.error(self, message, keys)
        prefix = f"{dotted(keys)}: "
        text = (
            message.removeprefix(prefix) if message.startswith(prefix) else f"(as the suite's {dotted(keys)}) {message}"
        )
        return self.native.task.error(f"{dotted(source)}: {text}", source)


def _source_of(keys: Keys, sources: Mapping[Keys, Keys]) -> Keys | None:
    for length in range(len(keys), 0, -1):
        if keys[:length] in sources:
            return sources[keys[:length]]
    below = [source for made, source in sources.items() if made[: len(keys)] == keys]
    return below[0] if keys and below else None


# A user's own rows for a task: ``--llm-set 'hellaswag: dataset={path: rows.jsonl}'``, files as lm-eval looks for them.
# What else a task says of its data, such as how templates see a row, stays the task's.


def with_own_rows(native: NativeSuite, overrides: Sequence[Override]) -> tuple[Override, ...]:
    """Return ``overrides`` as the suite that was made of a task needs them.

    A path is as seen from the current folder, and takes the place of the data set that the task names.
    """
    return tuple(_adapted(native, override) for override in overrides)


def own_rows(task: TaskFile, overrides: Sequence[Override]) -> RowsSpec | None:
    """Return where ``overrides`` take the rows from that are evaluated; None if they leave that to the task."""
    name = str(task.value.get("task"))
    of_rows = [one for one in overrides if one.keys[:1] == _DATASET and one.matches(name)]
    try:
        found = apply_overrides({"dataset": {}}, [_with_place(task, one) for one in of_rows]).get("dataset")
        if not isinstance(found, dict) or not {"path", "hub"} & found.keys():
            return None
        return RowsSpec.model_validate({key: found[key] for key in RowsSpec.model_fields if key in found})
    except (OverrideError, ValidationError):
        return None  # the suite says what is wrong with it


def _adapted(native: NativeSuite, override: Override) -> Override:
    if not override.matches(str(native.value.get("suite"))):
        return override
    dataset: Any = native.value["dataset"]
    for above in (_DATASET, _FEWSHOT):
        if override.keys == (*above, "path"):
            inside: Any = native.value
            for key in above:
                inside = inside.setdefault(key, {})
            for key in _OF_HUB:
                inside.pop(key, None)
    if override.keys == _DATASET and isinstance(override.value, dict):
        kept = {key: part for key, part in dataset.items() if key not in RowsSpec.model_fields}
        override = replace(override, value={**kept, **override.value})
    return _with_place(native.task, override)


def _with_place(task: TaskFile, override: Override) -> Override:
    """Return the override with a path as seen from the task's file."""
    value = override.value
    for above in (_DATASET, _FEWSHOT):
        if override.keys == (*above, "path") and isinstance(value, str):
            return replace(override, value=beside(task.source.path, value))
        if override.keys == above and isinstance(value, Mapping) and isinstance(value.get("path"), str):
            return replace(override, value={**value, "path": beside(task.source.path, str(value["path"]))})
    return override


FILE_BUILDERS = {"json": None, "csv": "csv", "parquet": "parquet", "text": "text"}
"""Builders of ``datasets`` that read files, and the format of a suite; None if the suffix says it."""


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The source of a task's rows: ``value`` are keys of ``dataset`` or ``prompt.fewshot``, made of ``source``."""

    split: str
    value: Mapping[str, Any]
    source: Keys


def evaluated_rows(task: TaskFile) -> TaskRows:
    """Return the rows that are evaluated: ``test_split``, else ``validation_split``. Raises ``SuiteError``."""
    keys, split = evaluated_split(task)
    return TaskRows(split, _source(task, split, keys), keys)


def evaluated_split(task: TaskFile) -> tuple[Keys, str]:
    """Return the split that is evaluated, with its keys. Raises ``SuiteError``."""
    found = _first_split(task, "test_split", "validation_split")
    if found is None:
        raise task.error("found neither test_split nor validation_split, expected what to evaluate", ("task",))
    return found


def example_rows(task: TaskFile) -> tuple[TaskRows | None, bool]:
    """Return the rows that examples are drawn from, None if the task file holds them, and whether one more is drawn.

    lm-eval takes ``fewshot_split``, else the samples of ``fewshot_config``, else the training, validation or test
    split; and draws a spare example, so that the question's own can be left out, where ``fewshot_split`` is
    ``test_split``, also where there is neither.
    """
    found = example_split(task)
    spare = (task.spec.fewshot.split or task.spec.fewshot_split) == task.spec.test_split
    if found is None:
        return None, spare
    keys, split = found
    return TaskRows(split, _source(task, split, keys), keys), spare


def example_split(task: TaskFile) -> tuple[Keys, str] | None:
    """Return the split of the examples with its keys; None if the task file holds the examples. Raises
    ``SuiteError``.
    """
    config = task.spec.fewshot
    if config.split is not None:
        return ("fewshot_config", "split"), config.split
    if task.spec.fewshot_split is None and config.samples is not None:
        return None
    found = _first_split(task, "fewshot_split", "training_split", "validation_split", "test_split")
    if found is None:
        raise task.error("found no split to draw examples from", ("task",))
    return found


def _first_split(task: TaskFile, *keys: str) -> tuple[Keys, str] | None:
    return next((((key,), split) for key in keys if (split := getattr(task.spec, key)) is not None), None)


def _source(task: TaskFile, split: str, keys: Keys) -> dict[str, Any]:
    path, arguments = task.required("dataset_path"), task.spec.load_arguments
    if path in FILE_BUILDERS:
        return _files(task, path, split, arguments, keys)
    for key in ("data_files", "data_dir", "field", "name"):
        if key in arguments:
            keys = ("dataset_kwargs", key)
            raise task.error_at(keys, "for a data set of the hub, only config and split are supported")
    value = {
        "hub": path,
        "config": task.spec.dataset_name,
        "split": split,
        "revision": arguments.get("revision"),
        "streaming": True if arguments.get("streaming") is True else None,
    }
    return {key: part for key, part in value.items() if part is not None}


def _files(task: TaskFile, builder: str, split: str, arguments: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    at: Keys = ("dataset_kwargs", "data_files")
    found = arguments.get("data_files")
    if isinstance(found, dict):
        if split not in found:
            message = f"there is no split {quoted(split)} in dataset_kwargs.data_files"
            raise task.error_at(keys, message + expected_one_of(split, found))
        found, at = found[split], (*at, split)
    elif found is not None and split != "train":
        raise task.error_at(keys, f"files without a split are the split 'train', found {quoted(split)}")
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, str) or not found:
        expected = "the path of one file, or a pattern such as part-*.jsonl"
        message = f"{dotted(at)}: found {describe(found)}, expected {expected}"
        raise task.error(message, at if found is not None else ("dataset_path",))
    if "://" in found:
        raise task.error_at(at, f"found {quoted(found)}, expected a file of this machine")
    for key in ("revision", "streaming", "name"):
        if key in arguments:
            where = ("dataset_kwargs", key)
            raise task.error_at(where, "found it for files of this machine, which have none; remove it")
    base = str(arguments.get("data_dir", ""))
    format_ = _json_format(found) if builder == "json" else FILE_BUILDERS[builder]
    path = beside(task.source.path, os.path.join(base, found))
    value = {"path": path, "format": format_, "key": arguments.get("field")}
    return {key: part for key, part in value.items() if part is not None}


def _json_format(name: str) -> str | None:
    """Return the format of rows in JSON: ``datasets`` reads lines of JSON whatever the suffix says; a list in a
    ``.json`` file is read as well.
    """
    suffixes = Path(name).suffixes
    return None if any(suffix in (".json", ".jsonl", ".ndjson") for suffix in suffixes) else "jsonl"


def beside(task_path: Path, name: str) -> str:
    """Return a file, which lm-eval looks for in the current folder, as seen from the task file's folder."""
    if os.path.isabs(name):
        return name
    try:
        relative = os.path.relpath(os.path.abspath(name), task_path.parent.resolve())
    except ValueError:  # on another drive
        return os.path.abspath(name)
    return Path(relative).as_posix()


_GENERATION: Keys = ("generation_kwargs",)
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The names of the limit, in the order in which lm-eval looks for them."""
_DEFAULT_MAX_TOKENS = 256
_DATASET_OF_LM_EVAL = {"columns_first": True, "python_values": True, "first_id": 0}


def translate(
    task: TaskFile, *, multiple_input: bool = False, scoring: Scoring | None = None
) -> tuple[NativeSuite, tuple[MetricPair, ...]]:
    """Return the suite, and what its metrics are called in lm-eval. Raises ``SuiteError`` for what has no equivalent
    here.

    ``multiple_input``: ``doc_to_text`` is the index of the right option, each option belongs into the prompt, and
    ``doc_to_target`` follows it. ``scoring``: how replies are scored, where that is not said by the task's metrics.
    """
    spec, output_type = task.spec, task.spec.output_type
    for keys, function in functions(task.value):
        advice = "--llm-trust-task-code runs it for the tasks of the installed lm_eval package"
        raise task.error_at(keys, f"found {function.described}, which runs Python; {advice}")
    native = NativeSuite(task)
    native.put(("suite",), spec.task, ("task",))
    has_results = scoring is not None  # a function judges them, and need not look at the target
    scoring = scoring or scoring_of(task)
    _dataset(native)
    if multiple_input:
        scoring = _multiple_input(native, scoring)
    else:
        _fields(native, output_type, or_text=has_results)
    _prompt(native, output_type, multiple_input=multiple_input)
    source: Keys = ("metric_list",) if "metric_list" in task.value else ("output_type",)
    if scoring.filters:
        native.put(("filters",), scoring.filters, ("filter_list",))
    native.put(("score",), scoring.score, source)
    if scoring.epochs is not None:
        native.put(("epochs",), scoring.epochs, ("repeats",))
    if output_type == "generate_until":
        for key, (value, keys) in _generation(task).items():
            native.put(("generate", key), value, keys)
    return native, scoring.pairs


def _dataset(native: NativeSuite) -> None:
    rows = evaluated_rows(native.task)
    for key, value in rows.value.items():
        native.put(("dataset", key), value, rows.source if key == "split" else ("dataset_path",))
    native.value["dataset"].update(_DATASET_OF_LM_EVAL)


def _fields(native: NativeSuite, output_type: str, *, or_text: bool) -> None:
    """Translate the fields of samples. ``or_text``: a target of one word that is no column is this word, as in lm-eval,
    and no mistake.
    """
    task = native.task
    choices = task.spec.doc_to_choice
    if output_type == "multiple_choice" and choices is None:
        raise task.error("the key 'doc_to_choice' is missing, which holds the options", ("output_type",))
    if output_type == "loglikelihood_rolling":
        return
    target = task.required("doc_to_target")
    rule = target_rule(task, target, ("doc_to_target",), has_choices=choices is not None, or_text=or_text)
    if choices is None:
        native.put(("target",), rule, ("doc_to_target",))
        if looks_at_choices(task):
            # lm-eval looks for a column of this name; an example that stands in the task file may have none.
            native.put(("choices",), "{{ choices if choices is defined else [] }}", ("filter_list",))
        return
    options = choices_rule(task, choices, ("doc_to_choice",))
    if output_type == "multiple_choice":
        native.put(("choices",), options, ("doc_to_choice",))
        native.put(("target",), rule, ("doc_to_target",))
        return
    native.put(("dataset", "fields", "doc_choices"), options, ("doc_to_choice",))
    native.put(("dataset", "fields", "doc_target"), rule, ("doc_to_target",))
    native.put(("target",), "{{ doc_choices[doc_target] }}", ("doc_to_target",))


def _multiple_input(native: NativeSuite, scoring: Scoring) -> Scoring:
    task = native.task
    target = target_rule(task, task.required("doc_to_text"), ("doc_to_text",), has_choices=True)
    native.put(("target",), target, ("doc_to_text",))
    choices = choices_rule(task, task.required("doc_to_choice"), ("doc_to_choice",))
    native.put(("choices",), choices, ("doc_to_choice",))
    text = prompt_template(task, task.required("doc_to_target"), ("doc_to_target",))
    return replace(scoring, score={"choice": {**scoring.score["choice"], "continuation": text}})


def _prompt(native: NativeSuite, output_type: str, *, multiple_input: bool = False) -> None:
    task = native.task
    if output_type == "loglikelihood_rolling":
        text = prompt_template(task, task.required("doc_to_target"), ("doc_to_target",))
        native.put(("prompt", "template"), text, ("doc_to_target",))
        return
    text = "" if multiple_input else prompt_template(task, task.required("doc_to_text"), ("doc_to_text",))
    native.put(("prompt", "template"), text, ("doc_to_text",))
    if multiple_input:
        native.put((*_FEWSHOT, "template"), "{{ choices[target] }}", ("doc_to_choice",))
    spec = task.spec
    if spec.description:
        native.put(("prompt", "system"), text_template(spec.description), ("description",))
        native.put(("prompt", "system_delimiter"), "", ("description",))
    delimiter = " " if spec.target_delimiter is None else spec.target_delimiter
    native.put(("prompt", "delimiter"), "" if output_type == "loglikelihood" else delimiter, ("target_delimiter",))
    if spec.gen_prefix:
        native.put(("prompt", "prefix"), text_template(spec.gen_prefix), ("gen_prefix",))
    _fewshot(native, output_type, delimiter)


def _fewshot(native: NativeSuite, output_type: str, delimiter: str) -> None:
    task = native.task
    config = task.spec.fewshot
    native.put((*_FEWSHOT, "count"), task.spec.num_fewshot or 0, ("num_fewshot",))
    sampler = config.sampler
    rows, spare = example_rows(task)
    native.put((*_FEWSHOT, "sampler"), "lm_eval" if sampler == "default" else sampler, ("fewshot_config",))
    if sampler == "default":
        native.put((*_FEWSHOT, "spare"), spare, ("fewshot_split",))
    if rows is None:
        samples = config.samples
        keys = ("fewshot_config", "samples")
        if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
            raise task.wrong(keys, samples, "a list of mappings")
        native.put((*_FEWSHOT, "samples"), samples, keys)
    elif rows.value != {key: value for key, value in native.value["dataset"].items() if key in rows.value}:
        for key, value in rows.value.items():
            native.put((*_FEWSHOT, key), value, rows.source)
    native.put((*_FEWSHOT, "delimiter"), _fewshot_delimiter(task.spec), ("fewshot_delimiter",))
    if rows is None and looks_at_choices(task):  # examples without choices cannot be scored
        answer = prompt_template(task, str(task.required("doc_to_target")), ("doc_to_target",))
        native.put((*_FEWSHOT, "answer"), answer, ("doc_to_target",))
    if output_type == "loglikelihood" and delimiter:
        native.put((*_FEWSHOT, "answer_delimiter"), delimiter, ("target_delimiter",))
    _example_texts(native, output_type)


def _example_texts(native: NativeSuite, output_type: str) -> None:
    """Translate what ``fewshot_config`` says of examples alone."""
    task, config = native.task, native.task.spec.fewshot
    at: Keys = ("fewshot_config",)
    if config.doc_to_text is not None:
        keys = (*at, "doc_to_text")
        native.put((*_FEWSHOT, "template"), prompt_template(task, config.doc_to_text, keys), keys)
    fields = native.value["prompt"]["fewshot"].setdefault("fields", {})
    if config.doc_to_choice is not None:
        name = "choices" if output_type == "multiple_choice" else "doc_choices"
        fields[name] = choices_rule(task, config.doc_to_choice, (*at, "doc_to_choice"))
    if config.doc_to_target is not None:
        has_choices = task.spec.doc_to_choice is not None
        name = "doc_target" if has_choices and output_type == "generate_until" else "target"
        fields[name] = target_rule(task, config.doc_to_target, (*at, "doc_to_target"), has_choices=has_choices)
    if not fields:
        del native.value["prompt"]["fewshot"]["fields"]
    prefix = None if config.gen_prefix is None else text_template(config.gen_prefix)
    for key, ours, text in (
        ("gen_prefix", "prefix", prefix),
        ("target_delimiter", "answer_delimiter", config.target_delimiter),
        ("fewshot_delimiter", "delimiter", config.fewshot_delimiter),
    ):
        if text is not None:
            native.put((*_FEWSHOT, ours), text, (*at, key))


def _fewshot_delimiter(spec: TaskSpec) -> str:
    return "\n\n" if spec.fewshot_delimiter is None else spec.fewshot_delimiter


def _generation(task: TaskFile) -> dict[str, tuple[Any, Keys]]:
    """Return the settings of ``generate``, each with its keys in the task file. Raises ``SuiteError``.

    As lm-eval's ``normalize_gen_kwargs`` has it: ``do_sample: false`` is greedy whatever the temperature is.
    """
    given = task.spec.generation_kwargs or GenerationKwargs()
    if given.do_sample and not given.temperature > 0:
        raise task.error_at((*_GENERATION, "do_sample"), "found true, which needs a temperature above 0")
    temperature = 0.0 if given.do_sample is False else given.temperature
    max_key = next((key for key in _MAX_TOKENS if getattr(given, key) is not None), None)
    max_tokens = (getattr(given, max_key), (*_GENERATION, max_key)) if max_key else (_DEFAULT_MAX_TOKENS, _GENERATION)
    stops = [_fewshot_delimiter(task.spec)] if given.until is None else [*given.until]
    settings: dict[str, tuple[Any, Keys]] = {
        "max_tokens": max_tokens,
        "stop": (stops, (*_GENERATION, "until")),
        "temperature": (temperature, (*_GENERATION, "temperature")),
        "reasoning": (False, _GENERATION),  # lm-eval scores the whole of a reply
    }
    if temperature > 0 and given.top_p is not None:
        settings["top_p"] = (given.top_p, (*_GENERATION, "top_p"))
    elif temperature <= 0 and given.top_p not in (None, 1) and given.do_sample is None:
        message = "greedy decoding takes the likeliest token; set do_sample: true"
        raise task.error_at((*_GENERATION, "top_p"), message)
    if temperature > 0 and given.top_k is not None:  # without sampling it does nothing, as in transformers
        settings["top_k"] = (given.top_k, (*_GENERATION, "top_k"))
    if given.repetition_penalty not in (None, 1):  # which transformers applies to greedy replies too
        settings["repetition_penalty"] = (given.repetition_penalty, (*_GENERATION, "repetition_penalty"))
    return settings
