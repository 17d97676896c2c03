"""The suite that is made from a task, and for each of its keys the key of the task that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmeval.data.yaml_reader import Document
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.suites.loading.suite import Origin
from pytest_llmeval.text.wording import Keys, dotted

__all__ = ["NativeSuite", "TaskOrigin"]


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
        """As if it had been read from the task file: errors name the lines there."""
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
