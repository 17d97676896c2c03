"""Task files of lm-eval in pytest's tree: a task is a suite, a group holds the suites of its tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.suite_collectors import PlainFailures, SuiteFile
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.format.sniff import is_group_file
from pytest_llmeval.suites.lm_eval.groups import Leaf
from pytest_llmeval.suites.lm_eval.load import load_task, read_tasks
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import relative_path

__all__ = ["TaskGroup", "TaskSuite", "collect_task_file"]

_seen_key = pytest.StashKey[set[str]]()


class TaskSuite(SuiteFile):
    """A task as a suite."""

    leaf: Leaf

    @classmethod
    def of_leaf(cls, parent: pytest.Collector, leaf: Leaf) -> TaskSuite:
        """Return the suite of ``leaf``. A task inside a group file has a node id as if it had a file of its own."""
        path = leaf.source.path
        if leaf.inline is None:
            suite: TaskSuite = cls.of(parent, path)  # type: ignore[assignment]
        else:
            name = leaf.inline.replace("/", "_").replace("::", "_")
            virtual = os.path.relpath(path.with_suffix("") / f"{name}.yaml", parent.config.rootpath)
            suite = cls.from_parent(parent, path=path, nodeid=Path(virtual).as_posix())
        suite.leaf = leaf
        return suite

    def load(self, overrides: Sequence[Override], scorers: Mapping[str, Callable[..., Any]]) -> Suite:
        is_trusted = self.config.stash[settings_key].trust_task_code
        return load_task(self.leaf, overrides=overrides, scorers=scorers, trust_code=is_trusted)


class TaskGroup(PlainFailures):
    """A group file. It is no ``pytest.File``: of these ``--lf`` skips all without a failed test of their own."""

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path) -> TaskGroup:
        relative = os.path.relpath(path, parent.config.rootpath)
        group: TaskGroup = cls.from_parent(parent, name=path.name, path=path, nodeid=Path(relative).as_posix())
        return group

    def collect(self) -> Iterator[TaskSuite]:
        """Yield the group's tasks, with those of groups in it, each once in a session."""
        for leaf in read_tasks(Source(self.path, relative_path(self.path))):
            suite = TaskSuite.of_leaf(self, leaf)
            if _is_first(suite):
                yield suite


def collect_task_file(parent: pytest.Collector, path: Path) -> list[pytest.Collector]:
    """Return the task or group in the task file ``path``; nothing for a task that a group has collected."""
    if is_group_file(path):
        return [TaskGroup.of(parent, path)]
    suite = TaskSuite.of_leaf(parent, Leaf(Source(path, relative_path(path))))
    return [suite] if _is_first(suite) or parent.session.isinitpath(path) else []


def _is_first(suite: TaskSuite) -> bool:
    seen = suite.session.stash.setdefault(_seen_key, set())
    if suite.nodeid in seen:
        return False
    seen.add(suite.nodeid)
    return True
