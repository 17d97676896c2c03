"""``dataset_path``, splits and ``fewshot_*`` of a task as ``dataset`` and ``prompt.fewshot`` of a suite.

One thing is not lm-eval's: where examples come from the split that is evaluated, and that is not ``test_split``,
lm-eval can show a question with its answer as an example of itself. Here another example takes that place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.text.wording import Keys, describe, expected_one_of, quoted

__all__ = ["Rows", "beside", "evaluated_rows", "example_rows"]

FILE_BUILDERS = {"json": None, "csv": "csv", "parquet": "parquet", "text": "text"}
"""Builders of ``datasets`` that read files, and the format of a suite; None where the suffix says it."""
_ACTED_ON = ("data_files", "data_dir", "field", "revision", "streaming", "name")
_WITHOUT_EFFECT = ("trust_remote_code",)
"""lm-eval takes it away before ``datasets`` 4 sees it: a data set that is a script cannot be read any more."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where rows come from: ``value`` are keys of ``dataset`` or ``prompt.fewshot``, made of ``source``."""

    split: str
    value: Mapping[str, Any]
    source: Keys


def evaluated_rows(task: TaskFile) -> Rows:
    """The rows that are evaluated: ``test_split``, else ``validation_split``. Raises ``SuiteError``."""
    key, split = _evaluated(task)
    return Rows(split, _source(task, split, (key,)), (key,))


def evaluated_split(task: TaskFile) -> str:
    """The name of the split that is evaluated. Raises ``SuiteError``."""
    return _evaluated(task)[1]


def _evaluated(task: TaskFile) -> tuple[str, str]:
    for key in ("test_split", "validation_split"):
        split = _split(task, key)
        if split is not None:
            return key, split
    raise task.error("found neither test_split nor validation_split, expected what to evaluate", ("task",))


def example_rows(task: TaskFile, config: Mapping[str, Any]) -> tuple[Rows | None, bool]:
    """The rows that examples are drawn from, None where ``config`` holds them, and whether one more is drawn.

    lm-eval takes ``fewshot_split``, else the samples of ``fewshot_config``, else the training, validation or test
    split; and draws a spare example, so that the question's own can be left out, where ``fewshot_split`` is
    ``test_split``, also where there is neither.
    """
    found = example_split(task, config)
    spare = _named_example_split(task, config)[1] == _split(task, "test_split")
    if found is None:
        return None, spare
    keys, split = found
    return Rows(split, _source(task, split, keys), keys), spare


def example_split(task: TaskFile, config: Mapping[str, Any]) -> tuple[Keys, str] | None:
    """The split of the examples with its keys; None where ``config`` holds the examples. Raises ``SuiteError``."""
    keys, split = _named_example_split(task, config)
    if split is not None:
        return keys, split
    if config.get("samples") is not None:
        return None
    for key in ("training_split", "validation_split", "test_split"):
        split = _split(task, key)
        if split is not None:
            return (key,), split
    raise task.error("found no split to draw examples from", ("task",))


def _named_example_split(task: TaskFile, config: Mapping[str, Any]) -> tuple[Keys, str | None]:
    own = config.get("split")
    if own is None:
        return ("fewshot_split",), _split(task, "fewshot_split")
    if not isinstance(own, str):
        keys = ("fewshot_config", "split")
        raise task.wrong(keys, own, "the name of a split")
    return ("fewshot_config", "split"), own


def _split(task: TaskFile, key: str) -> str | None:
    value = task.value.get(key)
    if value is not None and not isinstance(value, str):
        raise task.wrong((key,), value, "the name of a split")
    return value


def _source(task: TaskFile, split: str, keys: Keys) -> dict[str, Any]:
    path = task.value.get("dataset_path")
    if not isinstance(path, str) or not path:
        raise task.wrong(("dataset_path",), path, "a data set of the hub, or json, csv or parquet")
    config = task.value.get("dataset_name")
    if config is not None and not isinstance(config, str):
        raise task.wrong(("dataset_name",), config, "text; put it in quotes")
    arguments = load_arguments(task)
    if path in FILE_BUILDERS:
        return _files(task, path, split, arguments, keys)
    return _hub(task, path, config, split, arguments)


def load_arguments(task: TaskFile) -> dict[str, Any]:
    """``dataset_kwargs`` that have an effect, checked. Raises ``SuiteError``."""
    given = task.value.get("dataset_kwargs")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise task.wrong(("dataset_kwargs",), given, "a mapping")
    for key in given:
        if key not in (*_ACTED_ON, *_WITHOUT_EFFECT):
            message = f"unknown key {quoted(str(key))} in dataset_kwargs{expected_one_of(str(key), _ACTED_ON)}"
            raise task.error(message, ("dataset_kwargs", key))
    return {key: value for key, value in given.items() if key in _ACTED_ON and value is not None}


def _hub(task: TaskFile, path: str, config: str | None, split: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("data_files", "data_dir", "field", "name"):
        if key in arguments:
            message = f"dataset_kwargs.{key}: for a data set of the hub, only config and split are supported"
            raise task.error(message, ("dataset_kwargs", key))
    value: dict[str, Any] = {"hub": path}
    if config is not None:
        value["config"] = config
    value["split"] = split
    if "revision" in arguments:
        value["revision"] = arguments["revision"]
    if arguments.get("streaming") is True:
        value["streaming"] = True
    return value


def _files(task: TaskFile, builder: str, split: str, arguments: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    at: Keys = ("dataset_kwargs", "data_files")
    found = arguments.get("data_files")
    if isinstance(found, dict):
        if split not in found:
            message = f"{'.'.join(map(str, keys))}: there is no split {quoted(split)} in dataset_kwargs.data_files"
            raise task.error(message + expected_one_of(split, found), keys)
        found, at = found[split], (*at, split)
    elif found is not None and split != "train":
        message = f"{'.'.join(map(str, keys))}: files without a split are the split 'train', found {quoted(split)}"
        raise task.error(message, keys)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, str) or not found:
        where = ".".join(map(str, at))
        message = f"{where}: found {describe(found)}, expected the path of one file, or a pattern such as part-*.jsonl"
        raise task.error(message, at if found is not None else ("dataset_path",))
    if "://" in found:
        raise task.error(f"{'.'.join(map(str, at))}: found {quoted(found)}, expected a file of this machine", at)
    for key in ("revision", "streaming", "name"):
        if key in arguments:
            message = f"dataset_kwargs.{key}: found it for files of this machine, which have none; remove it"
            raise task.error(message, ("dataset_kwargs", key))
    base = str(arguments.get("data_dir", ""))
    value: dict[str, Any] = {"path": beside(task.source.path, os.path.join(base, found))}
    format_ = FILE_BUILDERS[builder]
    if builder == "json":
        format_ = _json_format(found)
    if format_ is not None:
        value["format"] = format_
    if "field" in arguments:
        value["key"] = arguments["field"]
    return value


def _json_format(name: str) -> str | None:
    """``datasets`` reads lines of JSON whatever the suffix says; a list in a ``.json`` file is read as well."""
    suffixes = Path(name).suffixes
    return None if any(suffix in (".json", ".jsonl", ".ndjson") for suffix in suffixes) else "jsonl"


def beside(task_path: Path, name: str) -> str:
    """A file, which lm-eval looks for in the current folder, as seen from the task file's folder."""
    if os.path.isabs(name):
        return name
    try:
        relative = os.path.relpath(os.path.abspath(name), task_path.parent.resolve())
    except ValueError:  # on another drive
        return os.path.abspath(name)
    return Path(relative).as_posix()
