"""Before the first sample runs: which samples are asked together, or what they ask."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import pytest

from pytest_llmeval.inference.batcher import Batcher, PlannedSample
from pytest_llmeval.inference.chunks import choose_audited, choose_spares, plan_chunks
from pytest_llmeval.plugin.hand_over import HandOver
from pytest_llmeval.plugin.live import start as start_live
from pytest_llmeval.plugin.sample_item import SampleItem
from pytest_llmeval.plugin.stash import batcher_key
from pytest_llmeval.plugin.xdist_messages import batching_of
from pytest_llmeval.reporting.terminal.prompts import judge_lines, prompt_lines
from pytest_llmeval.reporting.terminal.summary import as_terminal
from pytest_llmeval.text.escaping import without_commands

__all__ = ["FollowQueue", "plan", "show_progress", "show_prompts"]


class FollowQueue:
    """In a worker: tells the batcher what runs next."""

    def __init__(self, batcher: Batcher, session: pytest.Session) -> None:
        self._batcher = batcher
        self._session = session
        self._next: pytest.Item | None = None
        plugins = session.config.pluginmanager.get_plugins()
        # The queue of pytest-xdist's worker. A version that has it elsewhere shows no more than the next item.
        self._queue: Any = next((plugin.torun for plugin in plugins if hasattr(plugin, "torun")), None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, nextitem: pytest.Item | None) -> None:
        """Say what the worker has in its queue after the item that it begins."""
        self._next = nextitem
        self._batcher.next_key = nextitem.key if isinstance(nextitem, SampleItem) else None

    def upcoming(self, key: Hashable) -> Iterator[Hashable]:
        """``Batcher.upcoming``, of what the worker was given by now."""
        places: list[object] = []
        if self._queue is not None:
            with self._queue.lock() as queued:
                places.extend(queued)
        given = [self._session.items[place] for place in places if isinstance(place, int)]  # else the sign of the end
        return _keys(given if self._next is None else [self._next, *given], key)


def plan(session: pytest.Session) -> None:
    config, items = session.config, session.items
    batching = batching_of(config)
    samples = [(place, item.nodeid) for place, item in enumerate(items) if isinstance(item, SampleItem)]
    first: dict[object, SampleItem] = {}
    for item in items:
        if isinstance(item, SampleItem):
            item.keep_hooks(first.setdefault(item.path, item))
    chunks = plan_chunks(samples, limit=batching.limit, num_workers=batching.num_workers, mode=batching.mode)
    batcher = config.stash[batcher_key] = Batcher(shares_chunks=batching.shares_chunks)
    for chunk in chunks:
        members = (items[place] for place in chunk.places)
        batcher.add([_planned(item) for item in members if isinstance(item, SampleItem)])
    for audited, spares in _audited(items):
        batcher.audit(audited, spares)
    config.pluginmanager.register(HandOver(session, batcher), "llmeval-hand-over")
    if hasattr(config, "workerinput"):
        queue = FollowQueue(batcher, session)
        config.pluginmanager.register(queue, "llmeval-queue")
        batcher.upcoming = queue.upcoming
    else:
        batcher.upcoming = _in_order(items)


def _in_order(items: Sequence[pytest.Item]) -> Callable[[Hashable], Iterator[Hashable]]:
    """``Batcher.upcoming`` of a process that runs all of these itself."""
    samples = [item for item in items if isinstance(item, SampleItem)]
    places: dict[Hashable, int] = {item.key: place for place, item in enumerate(samples)}
    return lambda key: _keys((samples[place] for place in range(places[key] + 1, len(samples))), key)


def _keys(items: Iterable[pytest.Item], key: Hashable) -> Iterator[Hashable]:
    """Return the keys of samples up to the first that is for another model than the sample of ``key``."""
    keys = (item.key for item in items if isinstance(item, SampleItem))
    return takewhile(lambda other: isinstance(key, tuple) and other[1] == key[1], keys)


def _audited(items: Iterable[pytest.Item]) -> Iterator[tuple[list[PlannedSample], list[PlannedSample]]]:
    """Return, for each suite and model, the samples by which the fast path is checked, and spare ones if none fits."""
    groups: dict[object, dict[str, SampleItem]] = {}
    for item in items:
        if isinstance(item, SampleItem):
            groups.setdefault(item.group, {})[item.sample.id] = item
    for group in groups.values():
        sizes = {sample_id: item.size for sample_id, item in group.items()}
        yield (
            [group[sample_id].planned for sample_id in choose_audited(sizes)],
            [group[sample_id].planned for sample_id in choose_spares(sizes)],
        )


def show_prompts(session: pytest.Session) -> None:
    """``--llm-show-prompts``: print the prompt of every selected sample."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    terminal = None if reporter is None else as_terminal(reporter)
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")
    marks = ("⟦", "⟧") if unicode else ("[[", "]]")
    for item in session.items:
        if isinstance(item, SampleItem) and terminal is not None:
            terminal.write_line("")
            terminal.write_line(item.nodeid, bold=True)
            for line in prompt_lines(item.question, marks=marks):
                terminal.write_line(without_commands(line))
            for line in judge_lines(item.file.evaluation, item.question, marks=marks):
                terminal.write_line(without_commands(line))


def show_progress(session: pytest.Session) -> None:
    """Let a live line follow the batcher, where there is a terminal for it."""
    live = start_live(session)
    if live is not None:
        session.config.stash[batcher_key].answering = live.answering


def _planned(item: SampleItem) -> PlannedSample:
    is_skipped = any(mark.name == "skip" for mark in item.own_markers)
    return dataclasses.replace(item.planned, is_skipped=True) if is_skipped else item.planned
