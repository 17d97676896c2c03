"""The suite that is made from a task, and for each of its keys the key of the task that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from pytest_llmeval.data.yaml_reader import Document
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.overrides import Override, OverrideError, apply_overrides
from pytest_llmeval.suites.format.schema import RowsSpec
from pytest_llmeval.suites.lm_eval.data import beside
from pytest_llmeval.suites.lm_eval.task_file import TaskFile
from pytest_llmeval.suites.loading.suite import Origin
from pytest_llmeval.text.wording import Keys, dotted

__all__ = ["NativeSuite", "TaskOrigin", "own_rows", "with_own_rows"]

_DATASET: Keys = ("dataset",)
_FEWSHOT: Keys = ("prompt", "fewshot")
_OF_HUB = ("hub", "config", "split", "revision", "streaming")


@dataclass(slots=True)
class NativeSuite:
    """``value`` is a mapping in the suite format; ``sources`` gives for its keys those of the task file."""

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
    """Return where ``overrides`` take the rows from that are evaluated; None where they leave that to the task."""
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
