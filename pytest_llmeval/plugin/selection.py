"""Which samples run: the limit, the plan, and what is only shown. For the process that has collected them."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Sequence

import pytest

from pytest_llmeval.gates.subjects import nearest_or_all
from pytest_llmeval.plugin.earlier_replies import lacks_baseline
from pytest_llmeval.plugin.model_loading import is_overridden
from pytest_llmeval.plugin.process import is_first_process, warn_once_in_session
from pytest_llmeval.plugin.sample_item import SampleItem
from pytest_llmeval.plugin.settings import SampleLimit, Shard, settings_key, was_given
from pytest_llmeval.plugin.stash import (
    SampleKey,
    collected_suites_key,
    is_sample_key,
    num_deselected_key,
    suite_paths_key,
)
from pytest_llmeval.plugin.xdist_collected import Collected
from pytest_llmeval.plugin.xdist_messages import report_usage_errors
from pytest_llmeval.roles import ROLES
from pytest_llmeval.text.node_ids import split_file

__all__ = ["LimitSamples", "ShardTests", "check_overrides", "collected_in"]


class LimitSamples:
    """``--llm-limit``. Registered late, so that its wrapper is the outermost: it chooses among what all others left."""

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
        return hashlib.sha256(f"{self._limit.seed}:{item.file.info.name}:{item.sample.id}".encode()).digest()


class ShardTests:
    """``--llm-shard``. Registered after the limit: shards of a limited session share out what the limit leaves."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Keep what belongs to this part; the rest are the other parts'."""
        result = yield
        dropped = [item for item in items if not self._holds(item)]
        if dropped:
            items[:] = [item for item in items if self._holds(item)]
            config.hook.pytest_deselected(items=dropped)
        return result

    def _holds(self, item: pytest.Item) -> bool:
        """By a hash of what the test is known by: no other test, worker or order changes its part.

        A sample is in one part with all models, which are compared sample by sample.
        """
        known = f"{item.file.info.name}\0{item.sample.id}" if isinstance(item, SampleItem) else item.nodeid
        digest = hashlib.sha256(known.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self._shard.count == self._shard.number - 1


def _one_of_each_suite(items: Iterable[pytest.Item]) -> Sequence[SampleItem]:
    """Return a sample of each suite that has some among these tests, in order of appearance."""
    return [*{item.file.nodeid: item for item in items if isinstance(item, SampleItem)}.values()]


def collected_in(session: pytest.Session) -> Collected:
    """Return the samples and suites of a session that has collected some, in the process that did."""
    config = session.config
    samples = _one_of_each_suite(session.items)
    selected = {item.file.info.name: item.file.info for item in samples}
    has_model = bool(config.stash[settings_key].models)
    modelless = [] if has_model else [item for item in samples if not is_overridden(item)]
    lacking = {
        role: split_file(item.file.nodeid)[0]
        for role in ROLES
        for item in reversed(samples)
        if role in item.file.evaluation.scorer.roles
        and not config.stash[settings_key].specs_of(role)
        and not is_overridden(item, f"llm_{role}")
    }
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
        has_model=has_model or len(modelless) < len(samples),
        categories=_categories(session.items),
        may_have_others=session.testsfailed > 0 or any(is_sample_key not in item.stash for item in session.items),
    )


def _categories(items: Iterable[pytest.Item]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for item in items:
        if isinstance(item, SampleItem) and item.sample.category is not None:
            found.setdefault(item.file.info.name, {})[item.sample.category] = None
    return {name: list(categories) for name, categories in found.items()}


def check_overrides(session: pytest.Session) -> None:
    """Refuse a ``--llm-set`` for a suite that was not collected: a misspelt name must not pass for a change.

    Raises ``pytest.UsageError``; a worker of pytest-xdist, in which that would be an internal error, has its controller
    raise it. What the ini file sets is for every session of the project, and ``--lf`` collects no file in which nothing
    failed: these only warn, as does a session without a suite.
    """
    config = session.config
    if not is_first_process(config) or session.testsfailed:  # a suite that could not be collected may be the one
        return
    paths: dict[str, str] = session.stash.get(suite_paths_key, {})
    names = sorted(paths)
    messages = []
    for wanted in config.stash[settings_key].set:
        if not any(map(wanted.matches, names)):
            hint = nearest_or_all(wanted.suite, names, names)
            messages.append(f"--llm-set {wanted.text!r}: no suite {wanted.suite!r} was collected{hint}")
    if not messages:
        return
    if not names or not was_given(config, "set") or getattr(config.option, "lf", False):
        for message in messages:
            warn_once_in_session(config, pytest.PytestWarning(f"{message}; it changed nothing"))
    elif not hasattr(config, "workerinput"):
        raise pytest.UsageError("; ".join(messages))
    else:
        report_usage_errors(session, ["; ".join(messages)])
