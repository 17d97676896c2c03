"""Suites that are run by name: ``--llm-suite gsm8k``, and node ids that begin with a name, such as ``gsm8k::17``.

They stand in pytest's tree below the session, as no folder or file is theirs. A name on the command line that is no
path is moved from pytest's arguments to ``--llm-suite``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.plugin.process_roles import is_path
from pytest_llmeval.plugin.settings import Settings, settings_key
from pytest_llmeval.plugin.suite_collectors import SuiteFile
from pytest_llmeval.plugin.task_collectors import TaskSuite
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.lm_eval.groups import Leaf, paths_of_name, read_leaf
from pytest_llmeval.suites.lm_eval.load import read_tasks
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.suites.named import NamedSuite, is_suite_name, load_named_suite, suites_named
from pytest_llmeval.text.wording import relative_path

__all__ = ["NamedSuites", "move_names"]

_LM_EVAL = "lm_eval:"


class PresetSuite(SuiteFile):
    """A preset that is run by its name. Its path is the rootdir, whose conftest.py holds for it."""

    named: NamedSuite

    @classmethod
    def of_name(cls, session: pytest.Session, named: NamedSuite) -> PresetSuite:
        """Return the suite, whose node id is its name."""
        root = session.config.rootpath
        suite: PresetSuite = cls.from_parent(session, path=root, name=named.name, nodeid=named.name)
        suite.named = named
        return suite

    def load(self, overrides: Sequence[Override], scorers: Mapping[str, Callable[..., Any]]) -> Suite:
        data = self.config.stash[settings_key].data
        folder = None
        if data is not None:
            folder = Source(self.config.invocation_params.dir / data.expanduser(), os.fspath(data))
        path = self.config.rootpath / self.named.name
        return load_named_suite(self.named, path, folder, overrides=overrides, scorers=scorers)


class NamedTask(TaskSuite):
    """A task of the installed lm_eval package that is run by its name."""

    @classmethod
    def of_name(cls, session: pytest.Session, name: str, leaf: Leaf) -> NamedTask:
        """Return the suite of the task, whose node id is ``name``: ``lm_eval:arc_easy``."""
        suite: NamedTask = cls.from_parent(session, path=leaf.source.path, name=name, nodeid=name)
        suite.leaf = leaf
        return suite


@dataclass(frozen=True, slots=True)
class _Asked:
    """A suite that was asked for: whole, or the sample or level ``selected`` of it (a node id)."""

    name: str
    found: NamedSuite | Leaf
    selected: str | None


def move_names(config: pytest.Config) -> None:
    """Move arguments that are names of suites, and of no file, to ``--llm-suite``.

    From a folder below the rootdir pytest shows node ids as ``../gsm8k::1``, and they can be given so.
    """
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return
    others = [argument for argument in config.args if not is_path(config, argument)]
    names = {argument: re.sub(r"^(?:\.\./)+", "", argument) for argument in others}
    names = {argument: node for argument, node in names.items() if _is_name(node.partition("::")[0])}
    if names:
        config.args = [argument for argument in config.args if argument not in names]
        config.option.llm_suite = [*(config.getoption("llm_suite") or ()), *names.values()]


def _is_name(name: str) -> bool:
    return name.startswith(_LM_EVAL) or is_suite_name(name)


class NamedSuites:
    """Collects the suites that ``--llm-suite`` names, in place of all that pytest finds without arguments.

    Raises ``OptionError`` for a name that does not exist.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        if settings.data is not None and not (config.invocation_params.dir / settings.data.expanduser()).is_dir():
            raise OptionError(f"--llm-data {settings.data}: there is no such folder")
        sources = pytest.Config.ArgsSource
        is_given = config.getoption("llm_suite") is not None
        asked: dict[tuple[str, str | None], _Asked] = {}
        # Names of the ini file and of the environment hold as testpaths do: where no path is given.
        for text in settings.suite if is_given or config.args_source is not sources.ARGS else ():
            try:
                for one in _asked_for(text):
                    other = asked.setdefault((one.name, one.selected), one)
                    if other.found != one.found:
                        raise LookupError(f"the suite {one.name} is asked for twice, with other settings")
            except (LookupError, SuiteError) as error:
                raise OptionError(f"--llm-suite {text}: {error.args[0]}") from None
        whole = {name for name, selected in asked if selected is None}
        self._asked = [one for one in asked.values() if one.selected is None or one.name not in whole]
        self._selected = {one.selected: one.name for one in self._asked if one.selected is not None}
        if config.args_source is not sources.ARGS and is_given:
            config.args = []
            config.args_source = sources.ARGS

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            report.result += [
                PresetSuite.of_name(collector, found)
                if isinstance(found, NamedSuite)
                else NamedTask.of_name(collector, name, found)
                for name, found in {one.name: one.found for one in self._asked}.items()
            ]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the samples that were selected by node ids, as pytest does with its own arguments."""
        if not self._selected:
            return
        suites = set(self._selected.values())
        met: set[str] = set()

        def is_kept(item: pytest.Item) -> bool:
            if item.nodeid.partition("::")[0] not in suites:
                return True
            above = {item.nodeid, *(node.nodeid for node in item.listchain())} & self._selected.keys()
            met.update(above)
            return bool(above)

        collected = {item.nodeid.partition("::")[0] for item in items}
        items[:] = [item for item in items if is_kept(item)]
        missing = [nodeid for nodeid, name in self._selected.items() if name in collected and nodeid not in met]
        if missing:
            items.clear()
            raise pytest.UsageError(*(f"not found: {nodeid}" for nodeid in missing))


def _asked_for(text: str) -> Iterator[_Asked]:
    """Yield the suites of one value of ``--llm-suite``: names with commas between them, or one node id.

    A value that begins with ``lm_eval:`` holds names of lm-eval's tasks. Raises ``LookupError`` and ``SuiteError``.
    """
    for one in [text] if "::" in text else text.split(","):
        given = one.strip()
        name, colons, _ = given.removeprefix(_LM_EVAL).partition("::")
        selected = given if colons else None
        if not text.startswith(_LM_EVAL):
            found = _presets(name)
            if selected is not None and len(found) > 1:
                raise LookupError(f"{name} is {len(found)} suites: name the one that has the sample")
            yield from (_Asked(named.name, named, selected) for named in found)
            continue
        for path in paths_of_name(name):
            for leaf in read_tasks(Source(path, relative_path(path))):
                yield _Asked(f"{_LM_EVAL}{read_leaf(leaf).value['task']}", leaf, selected)


def _presets(name: str) -> Sequence[NamedSuite]:
    """Return what ``suites_named`` does; its error says, too, whether lm-eval has something of this name."""
    try:
        return suites_named(name)
    except LookupError as error:
        with suppress(LookupError):
            paths_of_name(name)
            raise OptionError(f"--llm-suite {name}: {error.args[0]}; lm-eval has it: {_LM_EVAL}{name}") from None
        raise
