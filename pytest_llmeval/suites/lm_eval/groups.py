"""Finds the task files of a group file, or of a name, each with what its groups change in it.

A group's ``aggregate_metric_list`` has no effect: every task is a suite with numbers of its own, and no number is made
of a group. Names are looked up as in lm-eval's own index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.sniff import is_group_text, scalar_at
from pytest_llmeval.suites.lm_eval.task_file import TASK_KEYS, TaskFile, read_task_file
from pytest_llmeval.text.wording import Keys, expected_one_of, quoted

__all__ = [
    "NOT_INSTALLED",
    "Leaf",
    "TaskIndex",
    "index_of",
    "installed_tasks",
    "is_group",
    "leaves_of",
    "paths_of_name",
    "read_leaf",
]


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
    """Return the folder of the tasks of the installed lm_eval package, which is not imported; None if there is
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


_GROUP_KEYS = ("group", "group_alias", "task", "tag", "aggregate_metric_list", "metadata")
_MAX_DEPTH = 20

_Changes: TypeAlias = Mapping[str, tuple[TaskFile, Keys]]
"""Keys of a task, each with the group file that sets it and its keys there."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One task of a group. ``changes`` are what the group sets in it.

    ``inline`` is the name of a task that has no file: all of it are ``changes`` of ``source``, the group file.
    """

    source: Source
    changes: _Changes = field(default_factory=dict)
    inline: str | None = None


def is_group(task: TaskFile) -> bool:
    """Tell whether the file is a group: with the key ``group``, or with a list as ``task``."""
    return "class" not in task.value and ("group" in task.value or isinstance(task.value.get("task"), list))


def read_leaf(leaf: Leaf) -> TaskFile:
    """Return the task's file with what its groups change. Raises ``SuiteError``."""
    if leaf.inline is not None:
        return _inline_task(leaf)
    return _changed(read_task_file(leaf.source), leaf.changes)


def leaves_of(group: TaskFile) -> list[Leaf]:
    """Return the tasks of a group file in order, each once, through groups and tags of groups.

    Raises ``SuiteError`` for a name that is unknown, at its line and with the nearest spelling.
    """
    return list(_once(_Resolver(group.source).members(group, {}, ())))


def paths_of_name(name: str) -> list[Path]:
    """Return the files to collect for a task, a group or a tag of the installed lm_eval package.

    ``LookupError`` says in one line that there is no such name, with the nearest spelling, or no such package.
    """
    root = installed_tasks()
    if root is None:
        raise LookupError(f"{NOT_INSTALLED}; or name the file of the task in place of lm_eval:{name}")
    index = index_of(root)
    for files in (index.groups, index.tasks):
        if name in files:
            return [files[name]]
    tagged = index.tagged(name)
    if not tagged:
        raise LookupError(f"lm_eval has no task, group or tag {quoted(name)}{expected_one_of(name, index.names)}")
    return tagged


def _once(leaves: Iterator[Leaf]) -> Iterator[Leaf]:
    seen: set[tuple[str, str | None]] = set()
    for leaf in leaves:
        key = (os.path.realpath(leaf.source.path), leaf.inline)
        if key not in seen:
            seen.add(key)
            yield leaf


@dataclass(frozen=True, slots=True)
class _Group:
    """A group file that is being read, with its own changes and those of the groups above it, whose paths are chain."""

    file: TaskFile
    changes: _Changes
    chain: tuple[str, ...]


class _Resolver:
    """Finds the members of groups: in the group file's own folder, then in the installed package."""

    def __init__(self, source: Source) -> None:
        installed = installed_tasks()
        own = source.path.parent.resolve()
        self._is_installed = installed is not None and own.is_relative_to(installed)
        self._base = source
        roots = [installed] if installed is not None and self._is_installed else [own]
        if installed is not None and not self._is_installed:
            roots.append(installed)
        self._makers: list[Callable[[], TaskIndex]] = [lambda root=root: index_of(root) for root in roots]  # type: ignore[misc]

    def members(self, file: TaskFile, changes: _Changes, chain: tuple[str, ...]) -> Iterator[Leaf]:
        """Yield the leaves of a group file; ``changes`` are those of the groups above it, which win over its own."""
        real = os.path.realpath(file.source.path)
        if real in chain or len(chain) > _MAX_DEPTH:
            raise file.error("the group is a member of itself", ("task",))
        group = _Group(file, {**_own_changes(file, file.value, ()), **changes}, (*chain, real))
        yield from self._list(group, file.value.get("task"), ("task",))

    def _list(self, group: _Group, members: Any, keys: Keys) -> Iterator[Leaf]:
        if isinstance(members, str):
            members = [members]
        if not isinstance(members, list) or not members:
            raise group.file.wrong(keys, members, "a list of tasks")
        for place, member in enumerate(members):
            if isinstance(member, str):
                yield from self._named(group, member, (*keys, place))
            else:
                yield from self._inner(group, member, (*keys, place))

    def _inner(self, group: _Group, member: Any, keys: Keys) -> Iterator[Leaf]:
        """Yield the leaves of a member that is a mapping: a task or a group with changes, a group or a task that has no
        file.
        """
        file = group.file
        if not isinstance(member, dict):
            raise file.wrong(keys, member, "a name or a mapping")
        own = _own_changes(file, member, keys)
        changed = replace(group, changes={**group.changes, **own})
        if "group" in member:
            name = member["group"]
            if isinstance(name, str) and self._find(name) is not None:
                yield from self._named(changed, name, (*keys, "group"))
            else:
                above = replace(group, changes={**own, **group.changes})
                yield from self._list(above, member.get("task"), (*keys, "task"))
            return
        name = member.get("task")
        if not isinstance(name, str):
            raise file.error_at(keys, "expected the key task, a name, or the key group")
        has_data = {"dataset_path", "include", "custom_dataset"} & {*member, *group.changes}
        if has_data and self._find(name, with_tags=False) is None:
            inline = {**group.changes, **{str(key): (file, (*keys, key)) for key in member}}
            yield Leaf(file.source, inline, inline=name)
            return
        yield from self._named(changed, name, (*keys, "task"))

    def _named(self, group: _Group, name: str, keys: Keys) -> Iterator[Leaf]:
        found = self._find(name)
        if found is None:
            known = [known for maker in self._makers for known in maker().names]
            message = f"there is no task, group or tag {quoted(name)}{expected_one_of(name, known)}"
            if installed_tasks() is None:
                message += f"; for its own tasks, {NOT_INSTALLED}"
            raise group.file.error_at(keys, message)
        kind, paths = found
        for path in paths:
            source = self._source(path)
            if kind == "group":
                yield from self.members(read_task_file(source), group.changes, group.chain)
            else:
                yield Leaf(source, group.changes)

    def _find(self, name: str, *, with_tags: bool = True) -> tuple[str, Sequence[Path]] | None:
        for maker in self._makers:
            index = maker()
            if name in index.groups:
                return "group", [index.groups[name]]
            if name in index.tasks:
                return "task", [index.tasks[name]]
        for maker in self._makers if with_tags else ():
            if tagged := maker().tagged(name):
                return "tag", tagged
        return None

    def _source(self, path: Path) -> Source:
        """Return the file as a user who named the group would write it."""
        relative = os.path.relpath(path, self._base.path.parent.resolve())
        return Source(path, os.path.normpath(os.path.join(os.path.dirname(self._base.shown), relative)))


def _own_changes(file: TaskFile, mapping: Mapping[str, Any], keys: Keys) -> _Changes:
    """Return the keys of tasks that a group file sets in ``mapping``, which stands at ``keys``. Raises
    ``SuiteError``.
    """
    changes = {}
    for key in mapping:
        if key in _GROUP_KEYS:
            continue
        if key not in TASK_KEYS:
            known = sorted({*TASK_KEYS, *_GROUP_KEYS})
            raise file.error(f"unknown key {quoted(str(key))}{expected_one_of(str(key), known)}", (*keys, key))
        changes[str(key)] = (file, (*keys, key))
    return changes


def _value_at(value: Any, keys: Keys) -> Any:
    for key in keys:
        value = value[key]
    return value


def _changed(task: TaskFile, changes: _Changes) -> TaskFile:
    if not changes:
        return task
    value = dict(task.value)
    places = {keys: place for keys, place in task.places.items() if not keys or keys[0] not in changes}
    for key, (group, at) in changes.items():
        value[key] = _value_at(group.value, at)
        for keys, place in group.places.items():
            if keys[: len(at)] == at:
                places[(key, *keys[len(at) :])] = place
    return replace(task, value=value, places=places)


def _inline_task(leaf: Leaf) -> TaskFile:
    base = TaskFile(leaf.source, {}, {(): (leaf.source, 1)})
    include = leaf.changes.get("include")
    if include is not None:
        group, at = include
        name = _value_at(group.value, at)
        if not isinstance(name, str):
            raise group.wrong(at, name, "the name of a file")
        base = replace(read_task_file(leaf.source.beside(name)), source=leaf.source)
    changes = {key: change for key, change in leaf.changes.items() if key != "include"}
    return _changed(base, changes)
