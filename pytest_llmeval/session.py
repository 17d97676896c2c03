"""The session as the process sees it that reports it: gathers records, counts what is missing, writes the report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import pytest

from pytest_llmeval.errors import ReportError
from pytest_llmeval.models.base import EngineUse
from pytest_llmeval.models.messages import describe, redact
from pytest_llmeval.node_ids import SampleNode, model_nodes
from pytest_llmeval.options import Limit, Settings
from pytest_llmeval.reporting.engine_lines import merged
from pytest_llmeval.reporting.escape import first_line
from pytest_llmeval.reporting.records import Payload, Record, SuiteInfo, Unrecorded
from pytest_llmeval.reporting.report import (
    Comparison,
    Report,
    SuiteReport,
    compare_models,
    counted_suite,
    describe_environment,
    summarize_suite,
    write_report,
)
from pytest_llmeval.scoring.metrics import expanded, names_in
from pytest_llmeval.types import JSON

__all__ = ["LLMSession", "remember_wrong"]

Group: TypeAlias = tuple[str, str | None]
"""What numbers are taken over: a suite, and where several models are given one of them."""


class LLMSession:
    """Lives where reports arrive: in the only process, or in the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        # A test that changes the current directory does not move the report.
        self._report_path = None if settings.report is None else settings.report.absolute()
        self._started = time.time()
        self._expected: dict[str, None] = {}
        self._skipped: set[str] = set()
        self._records: dict[tuple[Group, str], Record] = {}
        self._recorded: set[str] = set()
        self._unrecorded: dict[str, Unrecorded] = {}
        self._suites: dict[str, SuiteInfo] = {}
        self._models: dict[str, Mapping[str, JSON]] = {}
        self._engines: dict[Group, EngineUse] = {}
        self._lost: dict[str, str] = {}
        self._problems: list[str] = []
        self._compared = settings.models if len(settings.models) > 1 else ()
        self._model_of_node = {node: model for model, node in model_nodes(self._compared).items()}
        self.report: Report | None = None

    def expect(self, nodeids: Iterable[str]) -> None:
        """These samples are to run."""
        self._expected.update(dict.fromkeys(nodeids))

    def know(self, info: SuiteInfo) -> None:
        """This suite was collected."""
        self._suites[info.name] = info

    def add(self, report: pytest.TestReport) -> None:
        """Take in one test report."""
        # The terminal keeps every report until the end: what has been taken in must not stay there too.
        payload = report.__dict__.pop("llm_payload", None)
        if payload is not None:
            self._add_payload(Payload.decode(payload) if isinstance(payload, str) else payload)
        if report.passed and report.when == "call":
            self._unrecorded.pop(report.nodeid, None)  # it failed before, and was run again
        if report.nodeid not in self._expected:
            if report.failed and report.when not in ("setup", "call", "teardown") and report.nodeid not in self._lost:
                # A worker died in a hand-written test, which may have had scores to record: nobody knows.
                self._problems.append(f"{report.nodeid}: {first_line(redact(str(report.longrepr)))}")
            return
        if report.skipped:
            self._skipped.add(report.nodeid)
        elif report.failed and report.nodeid not in self._recorded:
            # A worker that died: the report was made here, for a sample that never came back.
            self._add_missing(report.nodeid, first_line(redact(str(report.longrepr))))

    def _add_payload(self, payload: Payload) -> None:
        if payload.suite is not None:
            # What was made up for a sample that died before its suite was known gives way to the suite's own.
            self._suites[payload.suite.name] = payload.suite
        if payload.model is not None:
            self._models.setdefault(str(payload.model["name"]), payload.model)
        if payload.unrecorded is not None:
            self._unrecorded[payload.unrecorded.nodeid] = payload.unrecorded
        for record in payload.records:
            self._add_record(record)
            if payload.engine is not None:
                group = self._group_of(record)
                self._engines[group] = merged(self._engines.get(group), payload.engine)

    def _add_record(self, record: Record) -> None:
        key = (self._group_of(record), record.id)
        known = self._records.get(key)
        self._recorded.add(record.nodeid)
        if known is not None and known.nodeid != record.nodeid:
            # The order of arrival is the workers'; which one counts must not depend on it.
            record, other = sorted((known, record), key=lambda one: one.nodeid)
            self._problems.append(
                f"sample {record.id!r} of {_described(key[0])} was recorded by {record.nodeid} "
                f"and by {other.nodeid}: only the first counts"
            )
        self._records[key] = record

    def _add_missing(self, nodeid: str, reason: str) -> None:
        node = SampleNode.parse(nodeid)
        suite, model = self._suite_at(node.path), self._model_of_node.get(node.model or "")
        record = Record(suite=suite, model=model, id=node.sample_id, nodeid=nodeid, status="unscored", reason=reason)
        self._add_record(record)

    def _group_of(self, record: Record) -> Group:
        """A sample's model is what its node id says; a hand-written test's, what answered it."""
        if not self._compared:
            return record.suite, None
        if record.nodeid in self._expected:
            return record.suite, self._model_of_node.get(SampleNode.parse(record.nodeid).model or "")
        return record.suite, record.model if record.model in self._compared else None

    def _suite_at(self, path: str) -> str:
        """The name of the suite at this node id; read from its file where no worker has told of it."""
        name = next((info.name for info in self._suites.values() if info.path == path), None)
        if name is None:
            from pytest_llmeval.suites.loader import read_suite_name  # takes long to import, and is rarely needed here

            file, _, benchmark = path.partition("::")
            name = benchmark or read_suite_name(self._config.rootpath / file)
            self._suites[name] = SuiteInfo(name=name, path=path)
        return name

    def lose(self, nodeids: Iterable[str], reason: str) -> None:
        """These tests will not run, and nothing else tells of it: samples are unscored, other tests are a problem."""
        for nodeid in nodeids:
            self._lost[nodeid] = reason
        others = [nodeid for nodeid in self._lost if nodeid not in self._expected]
        if others:
            self._problems.append(f"{', '.join(others[:5])}{', …' if len(others) > 5 else ''}: {reason}")

    def finish(self, session: pytest.Session) -> None:
        """Reconcile, build the report and write it; the exit code becomes 1 if it was 0 and something is missing."""
        stopped = _why_stopped(session)
        missing = [nodeid for nodeid in self._expected if nodeid not in self._recorded and nodeid not in self._skipped]
        if missing and stopped is None:
            for nodeid in missing:
                self._add_missing(nodeid, self._lost.get(nodeid, "did not run"))
            self._problems.append(f"{len(missing)} of {len(self._expected)} samples did not come back")
        for path in dict.fromkeys(SampleNode.parse(nodeid).path for nodeid in self._expected):
            self._suite_at(path)
        for unrecorded in self._unrecorded.values():
            if unrecorded.nodeid not in self._recorded:
                self._add_unrecorded(unrecorded)
        self._find_mixtures()
        records = self._ordered_records()
        suites, comparisons = tuple(self._suite_reports(records)), self._comparisons(records)
        unscored = any(record.status == "unscored" for record in records)
        if (unscored or self._problems) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self.report = self._build(session, stopped, records, suites, comparisons)
        if self._report_path is not None:
            try:
                write_report(self.report, self._report_path)
            except ReportError as error:
                self._problems.append(str(error))
                self.report = dataclasses.replace(self.report, problems=tuple(self._problems))
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _add_unrecorded(self, unrecorded: Unrecorded) -> None:
        """Count a test that failed before it recorded anything as unscored in its suite.

        Its suite is what its mark ``llm_suite`` says, else the one suite that its file's other tests record to, else
        the suite is named after the file.
        """
        path, _, name = unrecorded.nodeid.partition("::")
        neighbours = {record.suite for record in self._records.values() if record.nodeid.partition("::")[0] == path}
        suite = unrecorded.suite or (neighbours.pop() if len(neighbours) == 1 else path)
        self._add_record(
            Record(
                suite=suite,
                model=unrecorded.model,
                id=name,
                nodeid=unrecorded.nodeid,
                status="unscored",
                reason=unrecorded.reason,
            )
        )

    def _find_mixtures(self) -> None:
        """One group's numbers are of one suite and one model."""
        models: dict[Group, dict[str, None]] = {}
        strangers: dict[str, str] = {}
        for (group, _), record in self._records.items():
            if record.model is not None:
                models.setdefault(group, {})[record.model] = None
            info = self._suites.get(record.suite)
            if info is not None and record.nodeid not in self._expected:
                strangers.setdefault(record.suite, record.nodeid)
        for suite, nodeid in strangers.items():
            path = self._suites[suite].path
            self._problems.append(
                f"suite {suite!r} is {path}, and {nodeid} records to it too: give its records another"
            )
        for group, names in models.items():
            if len(names) > 1:
                self._problems.append(
                    f"{_described(group)} was answered by {' and by '.join(names)}: its numbers mix them"
                )

    def _build(
        self,
        session: pytest.Session,
        stopped: str | None,
        records: tuple[Record, ...],
        suites: tuple[SuiteReport, ...],
        comparisons: tuple[Comparison, ...],
    ) -> Report:
        return Report(
            created=datetime.fromtimestamp(self._started, UTC).isoformat(timespec="seconds"),
            seconds=time.time() - self._started,
            environment=describe_environment(),
            models=tuple(self._ordered_models(suites)),
            options=_options(self._settings),
            exit_code=int(session.exitstatus),
            suites=suites,
            comparisons=comparisons,
            records=records,
            stopped=stopped,
            problems=tuple(self._problems),
        )

    def _ordered_records(self) -> tuple[Record, ...]:
        """Samples of suites as they were collected, then those of hand-written tests by node id, however they ran."""
        places = {nodeid: place for place, nodeid in enumerate(self._expected)}
        last = len(places)
        return tuple(sorted(self._records.values(), key=lambda one: (places.get(one.nodeid, last), one.nodeid)))

    def _ordered_models(self, suites: Iterable[SuiteReport]) -> Iterator[Mapping[str, JSON]]:
        """As the suites name them, then those that recorded nothing, however they arrived."""
        names = dict.fromkeys(model for suite in suites for model in suite.models)
        for name in (*names, *sorted(self._models.keys() - names)):
            if name in self._models:
                yield self._models[name]

    def _place_of(self, model: str | None) -> int:
        """Models in the order in which they were given, before them what is of none."""
        return self._compared.index(model) + 1 if model in self._compared else 0

    def _suite_reports(self, records: Sequence[Record]) -> Iterator[SuiteReport]:
        expected = self._expected_groups()
        groups: dict[Group, list[Record]] = {group: [] for group in expected}
        for record in records:
            groups.setdefault(self._group_of(record), []).append(record)
        suites = {suite: place for place, suite in enumerate(dict.fromkeys(suite for suite, _ in groups))}
        for group in sorted(groups, key=lambda group: (suites[group[0]], self._place_of(group[1]))):
            (name, model), members, own = group, groups[group], expected.get(group, [])
            skipped = sum(nodeid in self._skipped for nodeid in own)
            others = sum(record.nodeid not in self._expected for record in members)
            info = self._suites.get(name) or _recorded_info(name, members)
            counts = {"num_expected": len(own) - skipped + others, "num_skipped": skipped}
            engine = self._engines.get(group)
            try:
                found = summarize_suite(info, members, model=model, engine=engine, **counts)
            except Exception as error:  # one suite's numbers must not cost the others' report
                self._problems.append(f"{_described(group)} has no metrics: {describe(error)}")
                found = counted_suite(info, members, model=model, engine=engine, **counts)
            yield found

    def _expected_groups(self) -> dict[Group, list[str]]:
        """The node ids of samples that were to run, by group, in order of appearance."""
        by_path = {info.path: name for name, info in self._suites.items()}
        groups: dict[Group, list[str]] = {}
        for nodeid in self._expected:
            node = SampleNode.parse(nodeid)
            groups.setdefault((by_path[node.path], self._model_of_node.get(node.model or "")), []).append(nodeid)
        return groups

    def _comparisons(self, records: Sequence[Record]) -> tuple[Comparison, ...]:
        """Every model against the first that has scores, suite by suite."""
        suites: dict[str, dict[str, list[Record]]] = {}
        for record in records:
            suite, model = self._group_of(record)
            if model is not None:
                suites.setdefault(suite, {}).setdefault(model, []).append(record)
        scored = {record.model for record in records if record.status != "unscored"}
        order = [model for model in self._compared if model in scored]
        comparisons: list[Comparison] = []
        for suite, by_model in suites.items():
            info = self._suites.get(suite)
            own = [record for members in by_model.values() for record in members]
            info = info or _recorded_info(suite, own)
            try:
                names = expanded(info.metrics, [record.score for record in own])
                comparisons += compare_models(suite, by_model, order, names)
            except Exception as error:
                self._problems.append(f"suite {suite!r} has no comparison of its models: {describe(error)}")
        return tuple(comparisons)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to tell: not where suites were met by the way and had no model to answer them."""
        named = self._config.args_source is self._config.ArgsSource.ARGS
        return bool(self._records or (self._expected and named))

    def wrong_nodeids(self) -> list[str]:
        """Tests that ``--lf`` is to run again although they passed."""
        return list(dict.fromkeys(record.nodeid for record in self._records.values() if record.status == "wrong"))


def remember_wrong(config: pytest.Config, nodeids: Sequence[str]) -> None:
    """Let ``--lf`` run wrong answers again: for pytest they passed."""
    cache = getattr(config, "cache", None)
    if cache is None or not nodeids:
        return
    failed = dict(cache.get("cache/lastfailed", {}))
    failed.update(dict.fromkeys(nodeids, True))
    cache.set("cache/lastfailed", failed)


def _described(group: Group) -> str:
    suite, model = group
    return f"suite {suite!r}" if model is None else f"suite {suite!r} on {model}"


def _recorded_info(name: str, records: list[Record]) -> SuiteInfo:
    """A suite that only hand-written tests record to has the metrics that its records carry."""
    return SuiteInfo(name=name, metrics=names_in(record.score for record in records))


def _why_stopped(session: pytest.Session) -> str | None:
    for why in (session.shouldfail, session.shouldstop):
        if why:
            return str(why)
    if session.exitstatus == pytest.ExitCode.INTERRUPTED:
        return "interrupted"
    if session.exitstatus in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        return "stopped by an error"
    return None


def _options(settings: Settings) -> dict[str, JSON]:
    """The options that differ from their defaults, as the user would write them."""
    options: dict[str, JSON] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value == field.default or field.name == "written_models":
            continue
        name = "model" if field.name == "models" else field.name
        if isinstance(value, Limit):
            value = f"first:{value.count}" if value.first else str(value.count)
        if isinstance(value, tuple):
            options[name] = [redact(text) for text in value]
        else:
            options[name] = value if isinstance(value, bool) else redact(str(value))
    return options
