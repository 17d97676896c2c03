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

from pytest_llmeval.suites.lm_eval.task_file import TaskFile
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted

__all__ = ["TaskRows", "beside", "evaluated_rows", "example_rows"]

FILE_BUILDERS = {"json": None, "csv": "csv", "parquet": "parquet", "text": "text"}
"""Builders of ``datasets`` that read files, and the format of a suite; None where the suffix says it."""


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
    """Return the rows that examples are drawn from, None where the task file holds them, and whether one more is drawn.

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
    """Return the split of the examples with its keys; None where the task file holds the examples. Raises
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
