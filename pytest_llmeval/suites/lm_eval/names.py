"""Where the tasks, groups and tags of a folder are, by name, as lm-eval's own index has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.sniff import is_group_text, scalar_at
from pytest_llmeval.suites.lm_eval.task_file import read_task_file

__all__ = ["NOT_INSTALLED", "TaskIndex", "index_of", "installed_tasks"]

NOT_INSTALLED = "lm_eval is not installed: pip install 'lm_eval==0.4.13'"
_SKIPPED = ("__pycache__", ".ipynb_checkpoints", "node_modules", "venv", "site-packages")


@dataclass(frozen=True, slots=True)
class TaskIndex:
    """The YAML files of a folder: the file of each task and of each group by name. Of two the first by path counts."""

    root: Path
    tasks: dict[str, Path] = field(default_factory=dict)
    groups: dict[str, Path] = field(default_factory=dict)
    _texts: dict[Path, bytes] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return all names, for the nearest spelling of a wrong one; without tags, which would take long to find."""
        return [*self.groups, *self.tasks]

    def tagged(self, tag: str) -> list[Path]:
        """Return the files of the tasks that have this tag, also from a file that they include, by the tasks' names."""
        wanted = tag.encode()
        found: list[tuple[str, Path]] = []
        included: dict[Path, bool] = {}
        for name, path in self.tasks.items():
            text = self._texts[path]
            if wanted in text or self._includes(path, text, wanted, included):
                tags = _tags(path)
                if tag in tags:
                    found.append((name, path))
        return [path for _, path in sorted(found)]

    def _includes(self, path: Path, text: bytes, wanted: bytes, seen: dict[Path, bool]) -> bool:
        name = scalar_at(text, "include")
        if name is None:
            return b"include:" in text  # a list of files: read them
        inner = path.parent / name
        if inner not in seen:
            seen[inner] = False
            try:
                inside = inner.read_bytes()
            except OSError:
                return False
            seen[inner] = wanted in inside or self._includes(inner, inside, wanted, seen)
        return seen[inner]


def installed_tasks() -> Path | None:
    """Return the folder of the tasks of the installed lm_eval package, which is not imported; None where there is
    none.
    """
    try:
        spec = find_spec("lm_eval")
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(place) / "tasks"
        if folder.is_dir():
            return folder.resolve()
    return None


@lru_cache(maxsize=4)
def index_of(root: Path) -> TaskIndex:
    """Return the index of the YAML files under ``root``, by their text alone: 14,000 files take about a second."""
    index = TaskIndex(root)
    for path in sorted(_yaml_files(root), key=Path.as_posix):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        group, task = scalar_at(text, "group"), scalar_at(text, "task")
        if group is not None and is_group_text(text) and scalar_at(text, "class") is None:
            index.groups.setdefault(group, path)
        elif task is not None and not is_group_text(text):
            index.tasks.setdefault(task, path)
            index._texts[path] = text
    return index


def _yaml_files(root: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in _SKIPPED and not name.startswith("."))
        yield from (Path(folder) / name for name in files if name.endswith(".yaml"))


def _tags(path: Path) -> list[str]:
    try:
        value = read_task_file(Source(path, os.fspath(path))).value.get("tag")
    except SuiteError:
        return []
    return [value] if isinstance(value, str) else [tag for tag in value or () if isinstance(tag, str)]
