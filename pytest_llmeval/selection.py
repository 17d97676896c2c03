"""Which samples run: the limit, the plan, what needs a model, what ``--lf`` runs again, and what is only shown."""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import pytest

from pytest_llmeval.items import SampleItem, lookahead_key, suite_paths_key
from pytest_llmeval.lookahead import Lookahead
from pytest_llmeval.model_fixtures import is_overridden
from pytest_llmeval.options import Limit, settings_key
from pytest_llmeval.reporting.records import SuiteInfo
from pytest_llmeval.reporting.show_prompts import prompt_lines
from pytest_llmeval.suites.overrides import parse_override
from pytest_llmeval.suites.sniff import is_suite_file

__all__ = [
    "LimitSamples",
    "plan",
    "remember_wrong",
    "require_model",
    "sample_nodeids",
    "show_prompts",
    "suite_infos",
    "warn_of_unused_overrides",
]

_DEFAULT_CHUNK = 32
"""Samples computed ahead of the one that runs: enough to fill a batch, few enough that ``-x`` wastes little."""


class LimitSamples:
    """``--llm-limit``. Registered late, so that its wrapper is the outermost: it chooses among what all others left."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep at most the limit of each suite."""
        result = yield
        kept = self._kept(items)
        dropped = [item for item in items if isinstance(item, SampleItem) and item.key not in kept]
        if dropped:
            items[:] = [item for item in items if not isinstance(item, SampleItem) or item.key in kept]
            config.hook.pytest_deselected(items=dropped)
        return result

    def _kept(self, items: Iterable[pytest.Item]) -> set[tuple[str, str]]:
        suites: dict[str, list[SampleItem]] = {}
        for item in items:
            if isinstance(item, SampleItem):
                suites.setdefault(item.file.info.name, []).append(item)
        kept: set[tuple[str, str]] = set()
        for members in suites.values():
            ranked = members if self._limit.first else sorted(members, key=_draw)
            kept.update(item.key for item in ranked[: self._limit.count])
        return kept


def _draw(item: SampleItem) -> bytes:
    """A sample's place in a random order that no other sample, worker or run changes."""
    return hashlib.sha256(f"0:{item.file.info.name}:{item.sample.id}".encode()).digest()


def suite_infos(session: pytest.Session) -> list[SuiteInfo]:
    """The suites that the collected samples belong to."""
    samples = (item for item in session.items if isinstance(item, SampleItem))
    return list({item.file.info.name: item.file.info for item in samples}.values())


def plan(session: pytest.Session) -> None:
    """Make the lookahead plan of this process.

    In a worker of pytest-xdist every sample is a chunk of its own: a neighbour may be another worker's to compute.
    """
    config = session.config
    chunk = 1 if hasattr(config, "workerinput") else config.stash[settings_key].batch_size or _DEFAULT_CHUNK
    lookahead = config.stash[lookahead_key] = Lookahead(chunk)
    lookahead.plan(item.member for item in session.items if isinstance(item, SampleItem))


def warn_of_unused_overrides(session: pytest.Session) -> None:
    """Say which ``--llm-set`` changed nothing: a misspelt suite name must not pass for a change."""
    if getattr(session.config, "workerinput", {}).get("workerid", "gw0") != "gw0":
        return  # the other workers would say the same
    paths: dict[str, Path] = session.stash.get(suite_paths_key, {})
    names = sorted(paths)
    if session.testsfailed:
        return  # a suite that could not be collected is not one that is not there
    for text in session.config.stash[settings_key].set:
        override = parse_override(text)
        if not any(override.matches(name) for name in names):
            near = difflib.get_close_matches(override.suite, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"collected were {', '.join(names) or 'none'}"
            message = f"--llm-set {text!r} changed nothing: no suite {override.suite!r} was collected; {hint}"
            session.config.issue_config_time_warning(pytest.PytestWarning(message), stacklevel=2)


def sample_nodeids(config: pytest.Config, nodeids: Sequence[str]) -> list[str]:
    """Those of ``nodeids`` that are samples, judged by their files: this process has collected nothing itself."""
    suites: dict[str, bool] = {}
    samples = []
    for nodeid in nodeids:
        path = nodeid.partition("::")[0]
        if path.endswith((".yaml", ".yml")):
            if path not in suites:
                suites[path] = is_suite_file(config.rootpath / path)
            if suites[path]:
                samples.append(nodeid)
    return samples


def require_model(config: pytest.Config, nodeids: Iterable[str]) -> None:
    """Suites named on the command line, and nothing to answer them: that is a mistake, not something to skip."""
    if config.stash[settings_key].model is not None or config.args_source is not config.ArgsSource.ARGS:
        return
    for path in dict.fromkeys(nodeid.partition("::")[0] for nodeid in nodeids):
        if not is_overridden(config, Path(os.path.normpath(config.rootpath / path))):
            raise pytest.UsageError(
                f"{path} needs a model: give --llm-model (--llm-model demo ships with the plugin), "
                "or override the fixture llm_model in a conftest.py"
            )


def remember_wrong(config: pytest.Config, nodeids: Sequence[str]) -> None:
    """Let ``--lf`` run wrong answers again: for pytest they passed."""
    cache = getattr(config, "cache", None)
    if cache is None or not nodeids:
        return
    failed = dict(cache.get("cache/lastfailed", {}))
    failed.update(dict.fromkeys(nodeids, True))
    cache.set("cache/lastfailed", failed)


def show_prompts(session: pytest.Session) -> None:
    """Print the prompt of every selected sample."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")
    marks = ("⟦", "⟧") if unicode else ("[[", "]]")
    for item in session.items:
        if isinstance(item, SampleItem) and terminal is not None:
            terminal.write_line("")
            terminal.write_line(item.nodeid, bold=True)
            for line in prompt_lines(item.question, marks=marks):
                terminal.write_line(line)
