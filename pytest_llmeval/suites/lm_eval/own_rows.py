"""A user's own rows for a task: ``--llm-set 'hellaswag: dataset={path: rows.jsonl}'``, files as lm-eval looks for them.

What else a task says of its data, as how templates see a row, stays the task's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from pytest_llmeval.suites.format.dataset_spec import RowsSpec
from pytest_llmeval.suites.format.overrides import Override, OverrideError, apply_overrides
from pytest_llmeval.suites.lm_eval.data import beside
from pytest_llmeval.suites.lm_eval.native import NativeSuite
from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile

__all__ = ["own_rows", "with_own_rows"]

_DATASET, _FEWSHOT = ("dataset",), ("prompt", "fewshot")
_OF_HUB = ("hub", "config", "split", "revision", "streaming")


def with_own_rows(native: NativeSuite, overrides: Sequence[Override]) -> tuple[Override, ...]:
    """``overrides`` as the suite that was made of a task needs them.

    A path is as seen from the current folder, and takes the place of the data set that the task names.
    """
    return tuple(_adapted(native, override) for override in overrides)


def own_rows(task: TaskFile, overrides: Sequence[Override]) -> RowsSpec | None:
    """Where ``overrides`` take the rows from that are evaluated; None where they leave that to the task."""
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
    """The override with a path as seen from the task's file."""
    value = override.value
    for above in (_DATASET, _FEWSHOT):
        if override.keys == (*above, "path") and isinstance(value, str):
            return replace(override, value=beside(task.source.path, value))
        if override.keys == above and isinstance(value, Mapping) and isinstance(value.get("path"), str):
            return replace(override, value={**value, "path": beside(task.source.path, str(value["path"]))})
    return override
