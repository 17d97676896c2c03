"""Before the first sample runs: which samples run (``--llm-limit``, ``--llm-shard``), and which are asked together.

If the session is stopped, samples that the model has answered ahead are scored and recorded, not discarded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from typing import Any

import pytest

from pytest_llmeval.gates.subjects import nearest_or_all, no_variant
from pytest_llmeval.inference.batcher import Batcher, PlannedSample
from pytest_llmeval.inference.chunks import choose_audited, choose_spares, plan_chunks
from pytest_llmeval.plugin.gate_setup import lacks_baseline
from pytest_llmeval.plugin.models import is_overridden
from pytest_llmeval.plugin.process_roles import is_first_process, is_worker, warn_once_in_session
from pytest_llmeval.plugin.recording import payload_of
from pytest_llmeval.plugin.sample_item import SampleItem
from pytest_llmeval.plugin.settings import SampleLimit, Shard, settings_key, was_given
from pytest_llmeval.plugin.stash import (
    SampleKey,
    batcher_key,
    collected_suites_key,
    is_sample_key,
    llm_session_key,
    num_deselected_key,
    suite_paths_key,
)
from pytest_llmeval.plugin.xdist_messages import Collected, batching_of, report_usage_errors
from pytest_llmeval.reporting.report.records import Payload
from pytest_llmeval.reporting.terminal import as_terminal, judge_lines, prompt_lines
from pytest_llmeval.roles import ROLES
from pytest_llmeval.text.escaping import without_commands
from pytest_llmeval.text.names import split_file
from pytest_llmeval.text.wording import counted

__all__ = [
    "AnsweredAhead",
    "FollowQueue",
    "LimitSamples",
    "ShardTests",
    "check_overrides",
    "collected_in",
    "payloads_of_worker",
    "plan",
    "show_prompts",
    "variant_lines",
]


class LimitSamples:
    """The hook of ``--llm-limit``, registered late: its wrapper is the outermost and sees what all others have left."""

    def __init__(self, limit: SampleLimit) -> None:
        self._limit = limit

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep at most the limit of each suite, the same samples for each model."""
        result = yield
        kept = self._kept(items)
        dropped = [item for item in items if isinstance(item, SampleItem) and item.key not in kept]
        if dropped:
            items[:] = [item for item in items if not isinstance(item, SampleItem) or item.key in kept]
            config.hook.pytest_deselected(items=dropped)
        return result

    def _kept(self, items: Iterable[pytest.Item]) -> set[SampleKey]:
        suites: dict[tuple[str, str | None], list[SampleItem]] = {}
        for item in items:
            if isinstance(item, SampleItem):
                suites.setdefault((item.file.info.name, item.model), []).append(item)
        kept: set[SampleKey] = set()
        for members in suites.values():
            ranked = members if self._limit.first else sorted(members, key=self._draw)
            kept.update(item.key for item in ranked[: self._limit.count])
        return kept

    def _draw(self, item: SampleItem) -> bytes:
        """Return a sample's place in a random order that no other sample, model, worker or run changes."""
        return hashlib.sha256(f"{self._limit.seed}:{item.file.info.base}:{item.sample.id}".encode()).digest()


class ShardTests:
    """The hook of ``--llm-shard``, registered after the limit: shards share out the samples that the limit leaves."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep the tests of this part; the rest belong to other parts."""
        result = yield
        dropped = [item for item in items if not self._holds(item)]
        if dropped:
            items[:] = [item for item in items if self._holds(item)]
            config.hook.pytest_deselected(items=dropped)
        return result

    def _holds(self, item: pytest.Item) -> bool:
        """Tell whether the test is in this part, by a hash of its name: no other test, worker or order changes that.

        A sample is in one part with all models and variants, which are compared sample by sample.
        """
        known = f"{item.file.info.base}\0{item.sample.id}" if isinstance(item, SampleItem) else item.nodeid
        digest = hashlib.sha256(known.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self._shard.count == self._shard.number - 1


def collected_in(session: pytest.Session) -> Collected:
    """Return the samples and suites of a session that has collected some, in the process that collected them."""
    config = session.config
    samples = [*{item.file.nodeid: item for item in session.items if isinstance(item, SampleItem)}.values()]
    selected = {item.file.info.name: item.file.info for item in samples}
    modelless = [] if config.stash[settings_key].models else [item for item in samples if not is_overridden(item)]
    has_model = bool(config.stash[settings_key].models) or len(modelless) < len(samples)
    lacking = {
        role: split_file(item.file.nodeid)[0]
        for role in ROLES
        for item in reversed(samples)
        if role in item.file.evaluation.scorer.roles
        and not config.stash[settings_key].specs_of(role)
        and not is_overridden(item, f"llm_{role}")
    }
    categories: dict[str, dict[str, None]] = {}
    for item in session.items:
        if isinstance(item, SampleItem) and item.sample.category is not None:
            categories.setdefault(item.file.info.name, {})[item.sample.category] = None
    return Collected(
        samples=[place for place, item in enumerate(session.items) if isinstance(item, SampleItem)],
        suites=list(selected.values()),
        absent=[info for name, info in config.stash[collected_suites_key].items() if name not in selected],
        num_deselected=config.stash.get(num_deselected_key, 0),
        unanswered=next((split_file(item.file.nodeid)[0] for item in modelless if item.file.responses is None), None),
        lacking=lacking,
        without_baseline=next(
            (split_file(item.file.nodeid)[0] for item in samples if lacks_baseline(item.file.evaluation.suite)), None
        ),
        has_model=has_model,
        categories={name: list(found) for name, found in categories.items()},
        may_have_others=session.testsfailed > 0 or any(is_sample_key not in item.stash for item in session.items),
        variants=variant_lines(session) if has_model else (),
    )


def variant_lines(session: pytest.Session) -> list[str]:
    """Return a line for each suite with variants: ``boolq: 2 variants (short, polite), 400 samples, 400 requests``."""
    bases = {info.base for info in session.config.stash[collected_suites_key].values() if info.variant}
    found: dict[str, dict[str, list[SampleItem]]] = {}
    for item in session.items if bases else ():
        if isinstance(item, SampleItem) and (info := item.file.info).base in bases:
            found.setdefault(info.base, {}).setdefault(info.variant or "as written", []).append(item)
    return [_variant_line(base, variants) for base, variants in found.items()]


def _variant_line(base: str, variants: Mapping[str, Sequence[SampleItem]]) -> str:
    members = list(chain.from_iterable(variants.values()))
    num_models = len({item.model for item in members})
    num_requests = 0
    hashes: set[int] = set()
    for item in members:
        if item.file.responses is None:
            requests = item.question.requests
            turns = [(one, turn) for one in requests for turn in range(len(getattr(one, "turns", ())) + 1)]
            num_requests += len(turns)
            hashes.update(hash((item.model, *turn)) for turn in turns)  # the texts would fill the memory
    parts = [f"{counted(len(variants), 'variant')} ({', '.join(variants)})"]
    parts += [f"{num_models} models"] * (num_models > 1)
    parts += [counted(len(members), "sample"), counted(num_requests, "request")]
    if len(hashes) < num_requests:
        parts.append(f"{len(hashes):,} of them different")  # a store can share the replies to the others
    return f"{base}: {', '.join(parts)}"


def check_overrides(session: pytest.Session) -> None:
    """Raise ``pytest.UsageError`` for a ``--llm-set`` or ``--llm-variant`` whose suite was not collected.

    Its name may be misspelt. A worker of pytest-xdist, in which that would be an internal error, has its controller
    raise it. The ini file is for every session of the project, and ``--lf`` collects no file in which nothing failed:
    both only warn, as does a session without a suite.
    """
    config = session.config
    if not is_first_process(config) or session.testsfailed:  # a suite that could not be collected may be the one
        return
    paths: dict[str, str] = session.stash.get(suite_paths_key, {})
    names = sorted(paths)
    settings, infos = config.stash[settings_key], config.stash.get(collected_suites_key, {})
    written = [name for name in names if name not in infos or infos[name].variant is None]
    given = [("set", one, names) for one in settings.set]
    given += [("variant", one.override, written) for one in settings.variant]
    messages, are_given = [], False
    for option, wanted, known in given:
        if not any(map(wanted.matches, known)):
            hint = nearest_or_all(wanted.suite, known, known)
            problem = no_variant(wanted.suite, infos.values()) or f"no suite {wanted.suite!r} was collected{hint}"
            messages.append(f"--llm-{option} {wanted.text!r}: {problem}")
            are_given = are_given or was_given(config, option)
    if not messages:
        return
    if not names or not are_given or getattr(config.option, "lf", False):
        for message in messages:
            warn_once_in_session(config, pytest.PytestWarning(f"{message}; it changed nothing"))
    elif not is_worker(config):
        raise pytest.UsageError("; ".join(messages))
    else:
        report_usage_errors(session, ["; ".join(messages)])


_KEY = "llmeval_handed_over"
"""The key of a worker's output under which it sends records of samples that were answered ahead."""


class AnsweredAhead:
    """Hooks of the process in which samples run: the only one, or a worker of pytest-xdist."""

    def __init__(self, session: pytest.Session, batcher: Batcher) -> None:
        self._session = session
        self._batcher = batcher

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Record the samples that are answered: in the session's report, or in the output of a worker.

        pytest ends a session at once for Ctrl-C, and does not come to run their tests. If Ctrl-C is pressed again, the
        rest of them is lost.
        """
        config = self._session.config
        worker: dict[str, Any] | None = getattr(config, "workeroutput", None)
        with suppress(KeyboardInterrupt):
            self._batcher.stop()
            for payload in self._payloads():
                if worker is None:
                    config.stash[llm_session_key].add_answered(payload)
                else:
                    worker.setdefault(_KEY, []).append(payload.encode())

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Take back the requests that ``-x`` has left with the model."""
        self._batcher.stop()

    def _payloads(self) -> Iterator[Payload]:
        for item in self._session.items:
            if isinstance(item, SampleItem) and self._batcher.has_answered(item.key):
                record = item.record_answered(self._batcher)
                if record is not None:
                    yield payload_of(item, record, self._batcher.model)


def payloads_of_worker(output: dict[str, Any]) -> Iterator[Payload]:
    """Return the records in a worker's output; once, though pytest-xdist may tell of its end twice."""
    return map(Payload.decode, output.pop(_KEY, ()))


class FollowQueue:
    """A hook of a worker that tells the batcher which samples run next."""

    def __init__(self, batcher: Batcher, session: pytest.Session) -> None:
        self._batcher = batcher
        self._session = session
        self._next: pytest.Item | None = None
        plugins = session.config.pluginmanager.get_plugins()
        # The queue of pytest-xdist's worker. With a version that has it elsewhere, only the next item is known.
        self._queue: Any = next((plugin.torun for plugin in plugins if hasattr(plugin, "torun")), None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, nextitem: pytest.Item | None) -> None:
        """Note which item the worker runs after the one that it begins."""
        self._next = nextitem
        self._batcher.next_key = nextitem.key if isinstance(nextitem, SampleItem) else None

    def upcoming(self, key: Hashable) -> Iterator[Hashable]:
        """Return the keys of samples that the worker has been given by now: see ``Batcher.upcoming``."""
        places: list[object] = []
        if self._queue is not None:
            with self._queue.lock() as queued:
                places.extend(queued)
        given = [self._session.items[place] for place in places if isinstance(place, int)]  # others: the end's sign
        return _keys(given if self._next is None else [self._next, *given], key)


def plan(session: pytest.Session) -> None:
    """Make the session's batcher, and tell it which samples run, in chunks that are asked together."""
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
    config.pluginmanager.register(AnsweredAhead(session, batcher), "llmeval-hand-over")
    if is_worker(config):
        queue = FollowQueue(batcher, session)
        config.pluginmanager.register(queue, "llmeval-queue")
        batcher.upcoming = queue.upcoming
    else:
        batcher.upcoming = _in_order(items)


def _in_order(items: Sequence[pytest.Item]) -> Callable[[Hashable], Iterator[Hashable]]:
    """Return ``Batcher.upcoming`` for a process that runs all of these tests itself."""
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
        sizes = {sample_id: item.file.evaluation.lengths[sample_id] for sample_id, item in group.items()}
        yield (
            [group[sample_id].planned for sample_id in choose_audited(sizes)],
            [group[sample_id].planned for sample_id in choose_spares(sizes)],
        )


def show_prompts(session: pytest.Session) -> None:
    """Print the prompt of every selected sample, for ``--llm-show-prompts``."""
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


def _planned(item: SampleItem) -> PlannedSample:
    is_skipped = any(mark.name == "skip" for mark in item.own_markers)
    return dataclasses.replace(item.planned, is_skipped=True) if is_skipped else item.planned
